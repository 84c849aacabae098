/* Chooses the numbers of KV pages and state slots. Pure arithmetic on sizes; engine.c asks the device.
 *
 * Pages and slots have buffers of their own on the device, whose sizes cannot change later, so the bytes are divided
 * here, once. First come the working slots, in which running sequences have their states: one for every sequence that
 * may run, and one more. With them come the pages of one sequence of full length. Then a third of all bytes
 * (CHECKPOINT_SHARE in cache_size.c says why), or what is left if that is less, becomes slots for checkpoints. The rest
 * becomes further pages. The largest buffer that the device allows bounds the pages and the slots for checkpoints.
 *
 * Beside the working slots there must be room for one page, or for a sequence of the length that an option gave. If there
 * is none and no option gave the number of sequences, fewer of them run: their slots take at most half of the bytes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The memory, and the options that ask for some of it. */
struct cache_wish {
	uint64_t room;	     /* bytes of the budget that weights and work space leave */
	uint64_t budget;     /* bytes that the engine may take in all */
	uint64_t max_buffer; /* bytes of the largest buffer that the device allows */
	/* page_bytes: bytes of a page, over all layers. page_buffer: the most bytes of a page that lie in one
	 * buffer. */
	uint64_t page_bytes, page_buffer;
	uint64_t slot_bytes, slot_buffer; /* the same for a slot; 0: no layer keeps states */
	/* bytes for the cache that an option asks for; 0: no option asks for bytes */
	uint64_t asked;
	/* share of `room` that an option asks for; 0: no option asks for a share */
	double asked_share;
	uint32_t max_seqs, page_tokens;
	bool fewer_seqs; /* no option gave max_seqs, so it may be lowered */
	uint32_t max_model_len;
	bool length_asked; /* an option gave max_model_len; otherwise it may be lowered */
	/* other programs use the memory too (it is a CPU's); unless an option asks, the cache then takes no more bytes
	 * than are likely to help */
	bool shared;
};

/* A number of bytes, as messages show it: "1.50 GiB". */
struct size_text {
	char s[32];
};
struct size_text size_text(uint64_t bytes);

struct cache_size {
	uint32_t n_pages, n_slots, max_model_len, max_seqs;
};

/* Returns the most tokens of a sequence that any choice below can allow: max_model_len, or what all bytes of the budget
 * hold if that is less and no option gave max_model_len. Work space is planned by it, before the cache is. `room` is not
 * read. */
uint32_t cache_size_longest(const struct cache_wish *w);

/* Chooses the numbers of pages and slots. If one sequence of max_model_len does not fit, lowers max_model_len to the
 * length that fits, unless an option gave max_model_len. -ENOMEM, with sizes in the sentence: an option gave a
 * length that does not fit, or not even one page fits. -EINVAL: the option for the cache asks for more bytes than
 * there are. */
int cache_size_choose(const struct cache_wish *w, struct cache_size *ret, struct err *e) MUST_CHECK;
