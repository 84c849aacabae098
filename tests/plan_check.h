/* Compares a plan with the rules' plan, and with the plan of a second scheduler whose ids are renamed. */
#pragma once

#include "tests/scheduler_rules.h"

/* Compares the plan p, row by row and draw by draw, with the newest plan of the rules. Returns NULL, or the condition
 * that failed. */
const char *plan_check(const struct rules *r, const struct plan *p);

/* Notes in the rules which pages, slots and seats the plan took. */
void plan_learn_ids(struct rules *r, const struct plan *p);

struct id_names {
	uint32_t to[RULES_PAGES],
		from[RULES_PAGES]; /* id + 1 in the other scheduler; 0: not seen */
};

/* The ids of one scheduler as the other one has them. All members but n_slots, the number of slots, are zeros at first.
 * They are zeroed again when ids are shuffled. */
struct plan_names {
	struct id_names pages, slots, seats;
	uint32_t n_slots;
};

/* Checks that `a`, which one scheduler handed over, is what the other one handed over as `b`, except for ids. Returns
 * NULL, or the condition that failed. */
const char *plan_compare_prepare(struct plan_names *n, const struct scheduler_prepare *a,
				 const struct scheduler_prepare *b);

/* Does the same for two plans, which may be NULL: no plan was made. */
const char *plan_compare(struct plan_names *n, const struct plan *a, const struct plan *b);
