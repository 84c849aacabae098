/*
 * The tokenizer: a Hugging Face tokenizer.json with byte-level BPE, text to ids and ids to bytes.
 *
 * Encoding: added tokens are matched first in the raw text (longest match), NFC applies to what
 * lies between them, a splitter (the Qwen2/3, Qwen3.5 and Llama-3 patterns by hand, any other by
 * PCRE2) cuts it into words, and ranked merges turn each word's bytes into ids.
 *
 * A tokenizer does not change after it was opened: any thread may use it at the same time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

struct tokenizer;

/* Reads a tokenizer.json from memory; `name` stands for the file in messages. New; -EINVAL (the
 * sentence names the file and what is wrong with it), -ENOTSUP for a construct that is none of the
 * above, -ENOMEM. */
int tokenizer_parse(const char *name, const char *json, size_t len, struct tokenizer **ret,
		    struct err *e) MUST_CHECK;
void tokenizer_free(struct tokenizer *t);

/* Appends the ids of text (UTF-8; invalid bytes become U+FFFD). With `added` false the text of
 * added tokens is treated as ordinary text. What Hugging Face's encode gives with
 * add_special_tokens=False. 0 or -ENOMEM; -E2BIG when PCRE2, which runs patterns that are not
 * known by hand, gave up on this text. On failure out is as before. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool added,
		     struct ids *out) MUST_CHECK;

/* The bytes a token stands for, borrowed; NULL and *len = 0 for an id that has none (a gap in the
 * vocabulary, an id past its end). */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);

/* Special tokens are left out of generated text. `<think>` and `<tool_call>` are added, not special. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* The id of an added or ordinary token given by its text (as bytes); -1 when there is none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *text);

/* The same between the ids that the file's post-processor puts before and behind a text (Llama 3's
 * BOS, an embedding model's EOS), if any: Hugging Face's encode with add_special_tokens=True. For
 * raw completions; a chat template writes them as text. */
int tokenizer_encode_whole(const struct tokenizer *t, const char *text, size_t len,
			   struct ids *out) MUST_CHECK;

/* One past the largest id that has bytes. */
int32_t tokenizer_size(const struct tokenizer *t);
