/* Chooses the numbers of KV pages and state slots. Pure arithmetic on sizes; engine.c asks the device.
 *
 * Pages and slots have buffers of their own on the device, whose sizes cannot change later, so the bytes are divided
 * here, once: 1. a working slot for every sequence and one more, and the pages of one sequence of full length; 2.
 * checkpoint slots, with a third of all bytes (CHECKPOINT_SHARE says why) or with what is left if that is less; 3. the
 * rest to pages. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The memory, and the options that ask for some of it. */
struct cache_wish {
	uint64_t room;	     /* bytes of the budget that weights and work space leave */
	uint64_t budget;     /* bytes that the engine may take in all */
	uint64_t max_buffer; /* bytes of the largest buffer that the device allows */
	/* bytes of a page over all layers, and in the buffer that has most of it */
	uint64_t page_bytes, page_buffer;
	uint64_t slot_bytes, slot_buffer; /* the same of a slot; 0: no recurrent layers */
	uint64_t asked;			  /* the option's bytes for the cache; 0: not given */
	double asked_share;		  /* the option's share of `room`; 0: not given */
	uint32_t max_seqs, page_tokens;
	uint32_t max_model_len;
	bool length_asked; /* an option gave max_model_len; otherwise it may be lowered */
	/* other programs use the memory too (a CPU's): take no more than is likely to help */
	bool shared;
};

/* Bytes as messages show them: "1.50 GiB". */
struct size_text {
	char s[32];
};
struct size_text size_text(uint64_t bytes);

struct cache_size {
	uint32_t n_pages, n_slots, max_model_len;
};

/* Chooses both numbers. If one sequence of max_model_len does not fit, lowers that to what fits, unless an option gave
 * it. -ENOMEM, with sizes in the sentence: it must not be lowered, or not even one page fits. -EINVAL: the option asks
 * for more bytes than there are. */
int cache_size_choose(const struct cache_wish *w, struct cache_size *ret, struct err *e) MUST_CHECK;
