/* The order between plans and copies that are on different queues (copies.h): which copy a plan has to wait for, and
 * which plan a copy has to wait for, because one of the two writes a page or a state slot that the other one uses.
 * Nothing but numbers, no OpenCL. Internal to engine/.
 *
 * Plans and copies are numbered from 1, each in the order of their calls. Both queues are in order, so one number is
 * enough: that of the last plan, or of the last copy, that must have run. 0: there is none.
 *
 * A page or slot counts as a whole: a copy of one layer's piece of a page uses the page. */
#pragma once

#include "base/macros.h"
#include "prefix_cache/tiers.h"
#include "scheduler/plan.h"

struct hazard {
	uint64_t used,
		changed; /* the last plan that reads or writes the page or slot, and the last one that writes it */
	uint64_t read, written; /* the last copy that reads it, and the last one that writes it */
};

struct hazards {
	struct hazard *of[2]; /* by enum tier_kind: [n_pages] and [n_slots], owned */
	uint32_t page_tokens;
	bool slots; /* the model keeps states */
};

/* -ENOMEM. hazards_release takes a struct of zeros as well. */
int hazards_init(struct hazards *h, uint32_t n_pages, uint32_t n_slots,
		 uint32_t page_tokens) MUST_CHECK;
void hazards_release(struct hazards *h);

/* Notes that plan `number` comes next, and returns the last copy that it has to wait for. The plan must be one that
 * step_check has accepted. */
uint64_t hazards_plan(struct hazards *h, const struct plan *plan, uint64_t number);

/* Notes that copy `number` writes, or reads, page or slot `id`, and returns the last plan that it has to wait for. A
 * copy of several pages or slots calls it for each of them. */
uint64_t hazards_copy(struct hazards *h, enum tier_kind kind, uint32_t id, bool write,
		      uint64_t number);
