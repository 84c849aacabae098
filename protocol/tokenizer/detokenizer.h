/*
 * The streaming detokenizer: ids in, text out, as early as it may go out.
 *
 * Held back are: an incomplete UTF-8 sequence (until it is whole; U+FFFD only at the very end),
 * and any suffix that could begin a stop string. A stop string and all behind it are left out.
 * Special tokens add nothing. One detokenizer a choice; the tokenizer is borrowed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "protocol/tokenizer/tokenizer.h"

struct detokenizer;

/* New. The n_stops strings are copied; empty ones are not allowed. NULL when out of memory. */
struct detokenizer *detokenizer_new(const struct tokenizer *t, const char *const *stops,
				    size_t n_stops);
void detokenizer_free(struct detokenizer *d);

/* Takes one id and appends the text that may go out now (whole UTF-8 sequences, maybe none).
 * 1: a stop string was met, the text before it has been appended, nothing may follow.
 * 0: go on. -ENOMEM.
 * Of several stop strings the one that is complete first counts, of those that end together the
 * one that began first: that does not depend on where tokens begin and end. */
int detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out) MUST_CHECK;

/* Generation ended: appends what was held back, an incomplete sequence as U+FFFD. 0 or -ENOMEM. */
int detokenizer_finish(struct detokenizer *d, struct buf *out) MUST_CHECK;

/* Raw bytes (of all pushed ids; special tokens have none) that are covered by the text that went
 * out so far. With it the caller lets each token's log-probabilities ride with the chunk that
 * completes the token. */
size_t detokenizer_released(const struct detokenizer *d);
