/* Compares a plan with the rules' plan, and with the plan of a second scheduler whose ids are renamed. */
#pragma once

#include "tests/scheduler_rules.h"

/* The plan, row by row and draw by draw, is the newest of the rules. NULL, or the condition that failed. */
const char *plan_check(const struct rules *r, const struct plan *p);

/* Notes in the rules which pages, slots and seats the plan took. */
void plan_learn_ids(struct rules *r, const struct plan *p);

struct id_names {
	uint32_t to[RULES_PAGES],
		from[RULES_PAGES]; /* id + 1 in the other scheduler; 0: not seen */
};

/* Zero except for n_slots; to be zeroed when ids are shuffled. */
struct plan_names {
	struct id_names pages, slots, seats;
	uint32_t n_slots;
};

/* a of one scheduler is b of the other. NULL, or the condition that failed. */
const char *plan_compare_prepare(struct plan_names *n, const struct scheduler_prepare *a,
				 const struct scheduler_prepare *b);

/* a of one scheduler is b of the other. NULL, or the condition that failed. */
const char *plan_compare(struct plan_names *n, const struct plan *a, const struct plan *b);
