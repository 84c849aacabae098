/*
 * How many KV pages and state slots there are. Pure arithmetic on sizes; engine.c asks the device.
 *
 * Both live in pools of their own on the device and cannot be traded later, so the bytes are divided here, once:
 *   1. a working slot for every sequence and one more, and the pages of one sequence of full length;
 *   2. of all the bytes a third to checkpoint slots (CHECKPOINT_SHARE says why), as far as they go;
 *   3. the rest to pages.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The memory, and the options that ask for some of it. */
struct cache_wish {
	uint64_t room;	     /* bytes of the budget that weights and work space leave */
	uint64_t budget;     /* all of it */
	uint64_t max_buffer; /* bytes of the largest buffer */
	uint64_t page_bytes, page_buffer; /* of a page: over all layers, in its largest buffer */
	uint64_t slot_bytes, slot_buffer; /* of a slot; 0: no recurrent layers */
	uint64_t asked;			  /* bytes for the cache; 0: not given */
	double asked_share;		  /* of room; 0: not given */
	uint32_t max_seqs, page_tokens;
	uint32_t max_model_len;
	bool length_asked; /* max_model_len was asked for; otherwise it may be lowered */
	bool shared; /* other programs use the memory too (a CPU's): take no more than is likely to help */
};

/* Bytes as messages show them: "1.50 GiB". */
struct size_text {
	char s[32];
};
struct size_text size_text(uint64_t bytes);

struct cache_size {
	uint32_t n_pages, n_slots, max_model_len;
};

/* -ENOMEM, with both numbers: the cache does not hold a sequence of the length that was asked for, or nothing at
 * all. -EINVAL: more is asked for than there is room. */
int cache_size_choose(const struct cache_wish *w, struct cache_size *ret, struct err *e) MUST_CHECK;
