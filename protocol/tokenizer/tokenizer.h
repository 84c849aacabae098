/* The tokenizer: a Hugging Face tokenizer.json with byte pair encoding, text to ids and ids to bytes.
 *
 * Encoding: added tokens that the file marks "normalized": false are looked for in the raw text. The text around the
 * found ones is normalized to NFC, if the file says so, and all other added tokens are looked for in the normalized
 * text. The splitter cuts the text that is left into words, and byte pair encoding turns each word into ids.
 *
 * There are two kinds of files. In those with byte-level BPE (Qwen, Llama 3) a word begins as its bytes. In those that were
 * made of SentencePiece's (Gemma), which are called *marked* here, the normalizer writes spaces as U+2581, and a word
 * begins as its characters, or as the bytes of those that have no token.
 *
 * A tokenizer does not change after it was made: any thread may use it at the same time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/pace.h"

struct tokenizer;

/* Makes a *new* tokenizer of the text of a tokenizer.json. Errors call the file `name`. -EINVAL: the file is wrong.
 * -ENOTSUP: it has a construct that is not known here (tokenizer_load.c lists the known ones). -ENOMEM. */
int tokenizer_parse(const char *name, const char *json, size_t len, struct tokenizer **ret,
		    struct err *e) MUST_CHECK;
void tokenizer_free(struct tokenizer *t);

/* Bounds of an encoding, for texts of clients. */
struct tokenizer_bounds {
	size_t ids;		 /* the most ids */
	const struct pace *pace; /* asked every 64 words, and within a long one; NULL: never */
};

/* Appends the ids of text (UTF-8; invalid bytes become U+FFFD), like Hugging Face's encode with
 * add_special_tokens=False. With `added` false the text of added tokens is treated as ordinary text. bounds NULL: there
 * are none. 0 or -ENOMEM; -E2BIG: a pattern takes too long for this text; -EOVERFLOW: the text has more than
 * bounds->ids ids; -ECANCELED: bounds->pace gives up. On failure out is unchanged. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool added,
		     const struct tokenizer_bounds *bounds, struct ids *out) MUST_CHECK;

/* Returns the bytes of a token, *borrowed*; NULL, and *len = 0: the id has none (it is a gap in the vocabulary, or
 * outside of it). */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);

/* Returns whether a token is special, which means that generated text leaves it out. Not all added tokens are special:
 * Qwen3's `<think>` and `<tool_call>` are not. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* Returns the id of the added or ordinary token with this text (as bytes); -1: there is none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *text);

/* Like tokenizer_encode with `added`, and adds the ids that the file's post-processor puts before and behind a text
 * (Llama 3's BOS, an embedding model's EOS), if any: Hugging Face's encode with add_special_tokens=True. These ids do
 * not count for bounds->ids. Not for text that a chat template made: the template writes these tokens itself. */
int tokenizer_encode_whole(const struct tokenizer *t, const char *text, size_t len,
			   const struct tokenizer_bounds *bounds, struct ids *out) MUST_CHECK;

/* Returns the largest id that has bytes, plus 1. */
int32_t tokenizer_size(const struct tokenizer *t);
