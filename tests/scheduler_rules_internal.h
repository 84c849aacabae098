/* Functions that scheduler_rules.c (steps and ends) and scheduler_rules_admission.c (memory, hits, waiting) share. */
#pragma once

#include "tests/scheduler_rules.h"

/* Return the number of choices that have not ended, and the index of the first of them (-1: none). */
uint32_t rules_live(const struct rule_request *q);
int rules_first_live(const struct rule_request *q);

/* Returns the number of a choice's tokens that are known: of its prompt, and generated. */
uint32_t rules_known(const struct rule_request *q, const struct rule_choice *c);

/* Returns the number of pages that n tokens need. */
uint32_t rules_ceil_pages(const struct rules *r, uint32_t n);

/* Returns the number of tokens at the beginning of q's prompt that need not be computed if they are cached: no result of
 * q is wanted there. */
uint32_t rules_reusable(const struct rule_request *q);

/* Returns whether q may resume only from a prefix that was prefilled throughout. */
bool rules_wants_prefilled(const struct rule_request *q);

/* Returns whether q may use the cache and leave pages and states in it. */
bool rules_remembers(const struct rules *r, const struct rule_request *q);

/* Returns whether n_pages pages and n_slots slots more can be had. */
bool rules_room(const struct rules *r, uint32_t n_pages, uint32_t n_slots);

/* Returns the place where q would begin. *ret_misses: bits of the reasons (enum prefix_miss) that are right then. Notes
 * in q->branches where q may leave the prefixes that the cache knows. */
struct mirror_end rules_look_up(struct rules *r, struct rule_request *q, uint32_t *ret_misses);

/* True: q now waits for pages or a state that another request is computing. */
bool rules_follow(struct rules *r, struct rule_request *q, const struct mirror_end *end,
		  uint64_t number);

/* Admits q, which begins at `end`, in the plan with this number. False: there is no room. */
bool rules_admit(struct rules *r, struct rule_request *q, struct mirror_end end, uint32_t misses,
		 uint64_t number);

/* rules_wants_handoff returns whether q's prompt is to come from another worker if q could begin at `end`.
 * rules_receive admits q to wait for that prompt; false: there is no room. */
bool rules_wants_handoff(const struct rules *r, const struct rule_request *q,
			 const struct mirror_end *end);
bool rules_receive(struct rules *r, struct rule_request *q, uint32_t misses);

/* Sets the branch of each request for which several may be right to the one that the model tries. */
void rules_try_branches(struct rules *r);

/* Writes the positions at which states are wanted of q, in rising order. Returns their number. */
uint32_t rules_wanted(const struct rule_request *q, uint32_t out[RULES_WANTED + 1]);
