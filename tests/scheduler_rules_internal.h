/* Functions that scheduler_rules.c (steps and ends) and scheduler_rules_admission.c (memory, hits, waiting) share. */
#pragma once

#include "tests/scheduler_rules.h"

/* The number of choices that have not ended, and the first of them (-1: none). */
uint32_t rules_live(const struct rule_request *q);
int rules_first_live(const struct rule_request *q);

/* Tokens of a choice that are known. */
uint32_t rules_known(const struct rule_request *q, const struct rule_choice *c);

/* Pages that n tokens need. */
uint32_t rules_ceil_pages(const struct rules *r, uint32_t n);
bool rules_remembers(const struct rules *r, const struct rule_request *q);

/* Whether n_pages and n_slots more can be had. */
bool rules_room(const struct rules *r, uint32_t n_pages, uint32_t n_slots);

/* Where q would begin, the reasons that are right then, and where it may leave the known prefixes. */
struct mirror_end rules_look_up(struct rules *r, struct rule_request *q, uint32_t *ret_misses);

/* True: q now waits for pages that another request is computing. */
bool rules_follow(struct rules *r, struct rule_request *q, const struct mirror_end *end,
		  uint64_t number);
bool rules_admit(struct rules *r, struct rule_request *q, struct mirror_end end, uint32_t misses,
		 uint64_t number);

/* Whether q's prompt is to come from elsewhere when q could begin at `end`. rules_receive admits q for that; false: no
 * room. */
bool rules_wants_handoff(const struct rules *r, const struct rule_request *q,
			 const struct mirror_end *end);
bool rules_receive(struct rules *r, struct rule_request *q, uint32_t misses);

/* Branches in doubt: takes those that the model tries. */
void rules_try_branches(struct rules *r);

/* The states that are wanted of q, from the front. Returns how many. */
uint32_t rules_wanted(const struct rule_request *q, uint32_t out[RULES_WANTED + 1]);
