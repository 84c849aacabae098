/*
 * A request and its choices: what is known about them and which states they go through.
 *
 *     state        admit        prefilled    finish      abort
 *     Submitted    Prefilling   -            Finished    Aborted
 *     Prefilling   -            Decoding     Finished    Aborted
 *     Decoding     -            -            Finished    Aborted
 *
 * "-" is a bug in the scheduler and ends the program with the names of state and event. Finished
 * and Aborted take no events: the scheduler drops what arrives for them.
 *
 * A request has n choices, each a `sequence` of its own: seat, state slot, block table, tokens
 * drawn. Until the prompt is through only one of them is written, the *trunk*: the first choice
 * that is still alive at admission. The others hold references to the whole pages of the prompt
 * from the start, and pages and a slot of their own that stay empty. The *fork*, planned with the
 * first decode rows, copies the prompt's last partial page and the state from the trunk to the
 * others. Should the trunk end before the fork, it swaps that page and the slot with the next
 * living choice, which becomes the trunk.
 *
 * A choice that has ended draws no more, but holds what it held until it is released: a plan that
 * is out may still write there.
 */
#ifndef SCHEDULER_REQUEST_H
#define SCHEDULER_REQUEST_H

#include "scheduler/list.h"
#include "scheduler/scheduler.h"

enum request_state {
	REQUEST_SUBMITTED,
	REQUEST_PREFILLING,
	REQUEST_DECODING,
	REQUEST_FINISHED,
	REQUEST_ABORTED,
};

enum request_event {
	REQUEST_ADMIT,
	REQUEST_PREFILLED,
	REQUEST_FINISH,
	REQUEST_ABORT,
};

/* One choice. Between admission and release seat != POOL_NONE, and then slot and pages are its own
 * or, for whole pages of the prompt, shared with the other choices. */
struct sequence {
	struct list node; /* in scheduler.decoding while it decodes, else in no list */
	struct request *request;
	uint32_t choice;
	uint32_t seat, slot;
	uint32_t *pages; /* [n_pages] block table, in the memory of the seat */
	uint32_t n_pages;
	uint32_t n_generated;
	int32_t last_token; /* the newest token drawn: the input of the next decode row */
	bool ended;
};

/*
 * n_live: choices that have not ended.   n_live == 0  <=>  Finished or Aborted
 * n_held: choices that hold seat, slot and pages.
 * trunk != NULL  <=>  admitted, alive and not yet forked.
 */
struct request {
	uint64_t id;
	void *user;
	struct request *map_next; /* chain of the request map */
	struct list waiting;	  /* in scheduler.waiting while Submitted, else in no list */
	enum request_state state;
	uint32_t n_prompt, n_prefilled;
	uint32_t max_tokens, min_tokens;
	uint32_t n_end_tokens;
	uint32_t n_choices, n_live, n_held;
	struct sequence *trunk;
	int32_t *prompt;     /* [n_prompt] */
	int32_t *end_tokens; /* [n_end_tokens] */
	struct sampling sampling;
	struct sequence choices[]; /* [n_choices], then the arrays above: one allocation */
};

/* New: a copy of everything in `from`, Submitted, without an id. -ENOMEM. */
int request_new(const struct scheduler_request *from, struct request **ret) MUST_CHECK;
void request_free(struct request *r);

/* Takes the request to its next state. */
void request_advance(struct request *r, enum request_event event);

static inline bool request_over(const struct request *r)
{
	return r->n_live == 0;
}

/* The choice draws no more; the last one finishes the request. Nothing when it has ended already.
 */
void request_end_choice(struct sequence *q);

/* No choice draws any more. Nothing when the request is over. */
void request_abort(struct request *r);

/* Records a token drawn for a living choice, which ends with an end token or the last it may have.
 */
enum finish_reason request_draw(struct sequence *q, int32_t token);

/* The living choice with the smallest number, or NULL. */
struct sequence *request_first_live(struct request *r);

#endif
