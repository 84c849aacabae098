/* The streaming detokenizer: ids in, text out, as early as possible.
 *
 * Two things are held back: an incomplete UTF-8 sequence (until it is whole; it becomes U+FFFD if the next byte does
 * not continue it, or at the end), and any suffix that could begin a stop string. A stop string and all text behind it
 * are left out (detokenizer_include_stops: the text behind it alone). Special tokens add nothing, unless they are
 * shown. Each choice has one detokenizer; the tokenizer is borrowed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "protocol/tokenizer/stops.h"
#include "protocol/tokenizer/tokenizer.h"

struct detokenizer;

/* Returns a *new* detokenizer; NULL: out of memory. stops: borrowed; NULL: there are none. */
struct detokenizer *detokenizer_new(const struct tokenizer *t, const struct stops *stops);
void detokenizer_free(struct detokenizer *d);

/* The n special tokens `ids` are shown: they add their text, as other tokens do. Borrowed. */
void detokenizer_show(struct detokenizer *d, const int32_t *ids, size_t n);

/* From now on the text includes the stop string that ends it. Nothing that could begin one is held back then. To be
 * called before the first token. */
void detokenizer_include_stops(struct detokenizer *d);

/* Returns the number of bytes that a token adds to the text: 0 for a special token that is not shown. */
size_t detokenizer_bytes(const struct detokenizer *d, int32_t id);

/* Takes one id and appends the text that is final now (whole UTF-8 sequences, maybe none). 1: a stop string was found,
 * the text before it (or with it) has been appended, and further ids add nothing. 0: go on. -ENOMEM. Of several stop
 * strings the one that is complete first counts; of those that end together, the one that began first. So the result
 * does not depend on where tokens begin and end. */
int detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out) MUST_CHECK;

/* Ends the text: appends all text that is still held back, an incomplete sequence as U+FFFD. 1: a stop string was
 * found, before or now (U+FFFD may complete one). 0: none was found. -ENOMEM. */
int detokenizer_finish(struct detokenizer *d, struct buf *out) MUST_CHECK;

/* Returns how many of the pushed tokens' bytes the appended text stands for so far (special tokens that are not shown
 * count as none). With this number the caller sends each token's log-probabilities with the chunk that completes the
 * token. */
size_t detokenizer_released(const struct detokenizer *d);

/* Returns the stop string that was found, a copy that lives as long as the stops; NULL: none was. */
const char *detokenizer_stop(const struct detokenizer *d);
