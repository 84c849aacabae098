/*
 * Which parts of a prompt's pages and state have been transferred, one bit a part.
 *
 * A part is one of the arrays that a layer keeps of a sequence, either in pages (the keys of a page, its values) or in a
 * state (the last inputs of a convolution, a recurrent state). A prompt needs the parts in pages of each page that the
 * receiver lacks, and the parts in states once, each exactly once.
 *
 *     bit of a part = (layer * n_pages + page - first_page) * WIRE_PARTS + part   (a state counts as page first_page)
 *
 * Pure. One thread.
 */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

struct parts {
	const struct wire_layout *layout; /* borrowed */
	uint32_t first_page, n_pages;	  /* pages of the prompt that have to be transferred */
	uint64_t expected_bytes, expected_parts;
	uint64_t bytes, n_parts; /* marked so far */
	uint64_t *bits;		 /* owned; NULL before parts_init and after parts_release */
};

/* For a prompt of n_prompt tokens of which the receiver has the first n_have, a multiple of layout->page_tokens.
 * -EINVAL or -EOVERFLOW with a sentence, -ENOMEM; *p is unchanged then. */
int parts_init(struct parts *p, const struct wire_layout *layout, uint32_t n_prompt,
	       uint32_t n_have, struct err *e) MUST_CHECK;

/* Frees the bits. The counts stay. */
void parts_release(struct parts *p);

/* Marks the parts of one piece. -EPROTO with a sentence: a part was not requested, has the wrong size or was marked
 * before. Some parts of the piece may be marked then, so the caller gives the whole transfer up. */
int parts_mark(struct parts *p, const struct wire_piece *piece, struct err *e) MUST_CHECK;

/* Bit arrays, zeroed. NULL: out of memory. */
uint64_t *bits_new(uint64_t n) MUST_CHECK;

/* Sets a bit. True: it was set before. */
bool bits_set(uint64_t *bits, uint64_t at);
