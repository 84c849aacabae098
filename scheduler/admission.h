/*
 * Admission: who may hold seats, state slots and pages.
 *
 * A transaction: what the request can need at most is counted, compared with what is free, and
 * taken whole or not at all. A refusal changes nothing. Who was admitted therefore always
 * completes, and nobody is ever preempted.
 *
 * A request needs, for n living choices: n seats, n slots, and
 *
 *     position   0          W        n_prompt       n_prompt + max_tokens
 *                | whole    | partial  |  generated  |
 *                | shared,  | per choice, up to the  |     W = n_prompt rounded down to a page
 *                | once     | end of its last page   |
 */
#ifndef SCHEDULER_ADMISSION_H
#define SCHEDULER_ADMISSION_H

#include "scheduler/scheduler_internal.h"

/* Pages that n_choices of such a request hold together. */
uint64_t admission_pages(const struct scheduler_config *c, uint32_t n_prompt, uint32_t max_tokens,
			 uint32_t n_choices);

/* Admits a Submitted request: takes it out of the queue and gives each of its living choices what
 * it needs. False, and nothing changed, when that is not free now. */
bool admission_admit(struct scheduler *s, struct request *r) MUST_CHECK;

/* Gives back what an ended choice holds, if it holds anything. Not while a plan that uses it is
 * out. */
void admission_release(struct scheduler *s, struct sequence *q);

#endif
