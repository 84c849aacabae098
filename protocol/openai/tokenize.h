/* Reads and writes the bodies of /tokenize and /detokenize. Those of vLLM:
 *
 *     {"prompt": text, "add_special_tokens": bool, "return_token_strs": bool}
 *                       ->  {"count", "max_model_len", "tokens", "token_strs"}
 *     {"tokens": [id]}  ->  {"prompt": text}
 *
 * In place of "prompt" there may be "messages", "tools" and other members of a chat request. "model" is optional. Those
 * of llama.cpp's server:
 *
 *     {"content": text, "add_special": bool}  ->  {"tokens": [id]}
 *     the same with "with_pieces": true       ->  {"tokens": [{"id", "piece": text, or a list of bytes}]}
 *     {"tokens": [id]}                        ->  {"content": text}
 *
 * /detokenize cannot tell the two apart, so its answer has both names of the text. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/pace.h"
#include "protocol/tokenizer/tokenizer.h"

struct openai_limits;

struct openai_tokenize {
	const char *model; /* NULL: absent */
	const char
		*prompt; /* prompt or content; may be ""; NULL: the prompt is `context`, rendered */
	size_t prompt_len;
	json_t *context; /* owned, NULL with a prompt: as in struct openai_request */
	/* add special tokens around a prompt; true by default, but false for content */
	bool add_special_tokens;
	enum tokenize_form {
		TOKENIZE_COUNTED, /* vLLM's; token_strs is null */
		TOKENIZE_STRS, /* vLLM's with token_strs: the tokens as the vocabulary spells them, a letter for each
				   * byte (" a" is "Ġa") */
		TOKENIZE_BARE, /* llama.cpp's */
		TOKENIZE_PIECES, /* llama.cpp's with pieces: the bytes of each token, as text if they are UTF-8 */
	} form;
};

struct openai_detokenize {
	const char *model;
	struct ids ids; /* owned; all are in the vocabulary */
};

/* Parse the bodies, like openai_parse_chat. */
int openai_parse_tokenize(const char *body, size_t len, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_tokenize *ret, struct err *e) MUST_CHECK;
void openai_tokenize_release(struct openai_tokenize *t);
int openai_parse_detokenize(const char *body, size_t len, const struct pace *pace,
			    uint32_t vocab_size, struct arena *arena, struct openai_detokenize *ret,
			    struct err *e) MUST_CHECK;
void openai_detokenize_release(struct openai_detokenize *d);

/* Writes the answer of /tokenize. -ECANCELED: pace_gives_up (pace NULL: never). */
int openai_body_tokenize(const struct tokenizer *t, const struct ids *ids, uint32_t max_model_len,
			 enum tokenize_form form, const struct pace *pace, struct buf *out,
			 struct err *e) MUST_CHECK;

/* Writes the number of tokens of a prompt, in the shape of OpenAI's /v1/responses/input_tokens. */
void openai_body_count(size_t n, struct buf *out);

/* Writes the answer of /detokenize. The text is the tokens' bytes as text, special tokens included; bytes that are
 * not UTF-8 become U+FFFD. */
void openai_body_detokenize(const struct tokenizer *t, const int32_t *ids, size_t n,
			    struct buf *out);
