/*
 * Which pieces of a prompt's data have been transferred, one bit a piece.
 *
 * A piece is one part (message.h) of one page or of the state. Every piece of each page that the receiver lacks has to
 * be transferred, and every piece of the state, each exactly once.
 *
 *     bit of a piece = (layer * n_pages + page - first_page) * WIRE_PARTS + part   (a state counts as page first_page)
 *
 * Pure. One thread.
 */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

struct pieces {
	const struct wire_layout *layout; /* borrowed */
	uint32_t first_page, n_pages;	  /* the pages of the prompt that have to be transferred */
	uint64_t expected_bytes, expected_pieces;
	uint64_t bytes, n_pieces; /* the bytes and the number of the pieces that are marked */
	uint64_t *bits;		  /* owned; NULL before pieces_init and after pieces_release */
};

/* Makes the bits, none marked, for a prompt of n_prompt tokens of which the receiver has the first n_have (a multiple
 * of layout->page_tokens). -EINVAL or -EOVERFLOW with a sentence, -ENOMEM; after an error *p is unchanged. */
int pieces_init(struct pieces *p, const struct wire_layout *layout, uint32_t n_prompt,
		uint32_t n_have, struct err *e) MUST_CHECK;

/* Frees the bits. The counts stay. */
void pieces_release(struct pieces *p);

/* Marks the pieces of one run as transferred. -EPROTO with a sentence: a piece does not have to be transferred, has the
 * wrong size or was marked before. After an error some pieces of the run may be marked, so the caller fails the whole
 * delivery. */
int pieces_mark(struct pieces *p, const struct wire_run *run, struct err *e) MUST_CHECK;

/* Makes an array of n bits, all 0. NULL: out of memory. */
uint64_t *bits_new(uint64_t n) MUST_CHECK;

/* Sets a bit. True: it was 1 before. */
bool bits_set(uint64_t *bits, uint64_t at);
