/* The texts of Hugging Face's files, made of the keys of a GGUF file.
 *
 * All functions append to a buffer. -ENOENT: the file has no such text; -EINVAL: a key or tensor has a wrong value;
 * -ENOTSUP: one has a value that is not supported; -ENOMEM. The sentence names the file and the key. */
#pragma once

#include "base/buf.h"
#include "engine/checkpoint/formats/gguf_file.h"

struct gguf_source {
	const struct gguf_file *keys; /* of split files the first, which has all keys */
	const struct tensor *tensors; /* [n_tensors], sorted by name: those of all files */
	size_t n_tensors;
};

/* Returns general.architecture of the models with this model_type, which may lack "_text" at its end, static; NULL: there
 * is none. */
const char *gguf_architecture(const char *model_type);

/* Every so many layers of Gemma 3 have full attention, if a file does not say which. */
enum { GGUF_WINDOW_INTERVAL = 6 };

/* Returns the number whose square root divides the scores of Gemma 3's attention, if a file does not say it. Files of
 * llama.cpp's converter have no key for it: llama.cpp takes the quotient of sizes for the model with 62 layers (27B), and
 * the size of a head for all others. */
uint32_t gguf_score_size(uint64_t n_layers, uint64_t hidden, uint64_t heads, uint64_t head_dim);

/* Writes config.json, with the keys that models of this architecture have in transformers. */
int gguf_config(const struct gguf_source *s, struct buf *out, struct err *e) MUST_CHECK;

/* Writes generation_config.json: end tokens and sampling defaults. */
int gguf_generation(const struct gguf_source *s, struct buf *out, struct err *e) MUST_CHECK;

/* Writes tokenizer.json. */
int gguf_tokenizer(const struct gguf_source *s, struct buf *out, struct err *e) MUST_CHECK;

/* Returns tokenizer.ggml.pre of a tokenizer.json with this root, static; NULL: it splits texts in another way than
 * those that have a name here. *scores: it is one of SentencePiece's, whose files have scores in the place of merges. */
const char *gguf_pre_of(const json_t *tokenizer, bool *scores);

/* Writes tokenizer_config.json: special tokens, without the chat template. */
int gguf_tokenizer_config(const struct gguf_source *s, struct buf *out, struct err *e) MUST_CHECK;

/* Writes the chat template. */
int gguf_template(const struct gguf_source *s, struct buf *out, struct err *e) MUST_CHECK;

/* The vocabulary in a file's keys. */
struct gguf_vocab {
	const struct gguf_key *tokens; /* strings; the number of a token is its place */
	const struct gguf_key *types;  /* whole numbers; NULL: all tokens are normal */
};

/* What token_type says of a token. Converters mark numbers that stand for nothing as unused. */
enum {
	GGUF_TOKEN_NORMAL = 1,
	GGUF_TOKEN_UNKNOWN,
	GGUF_TOKEN_CONTROL,
	GGUF_TOKEN_USER,
	GGUF_TOKEN_UNUSED,
	GGUF_TOKEN_BYTE,
};

/* Finds the vocabulary and checks its keys. -ENOENT: there is none. */
int gguf_vocab(const struct gguf_source *s, struct gguf_vocab *ret, struct err *e) MUST_CHECK;
uint64_t gguf_token_type(const struct gguf_vocab *v, uint64_t id);

/* Appends a token, or another string of the file, as a JSON string. False: it is not UTF-8, or has a 0. */
bool gguf_quote(const char *text, size_t len, struct buf *out) MUST_CHECK;

/* Appends the text of a token of SentencePiece's, in which spaces are U+2581: llama.cpp's converter has written them as
 * spaces again in tokens that the user defined. */
void gguf_append_marked(uint64_t type, const char *text, size_t len, struct buf *out);

/* Appends the elements of model.merges for the vocabulary of SentencePiece's, by the scores of its tokens; all tokens
 * that are in use must be UTF-8 (gguf_merges.c). */
int gguf_merges(const struct gguf_source *s, const struct gguf_vocab *v, struct buf *out,
		struct err *e) MUST_CHECK;

/* Reads a key with the number of a token, such as tokenizer.ggml.bos_token_id. -1: there is none, or the vocabulary has
 * no such token. */
int64_t gguf_token_id(const struct gguf_source *s, const struct gguf_vocab *v, const char *name);

/* Appends `json` as text, and drops this reference to it; NULL counts as out of memory. */
int gguf_dump(json_t *json, const struct gguf_source *s, struct buf *out, struct err *e) MUST_CHECK;
