/*
 * A request and its choices: what is known about them and which states they go through.
 *
 * Here (the states of prompts that go from worker to worker are below):
 *
 *     state         admit        prompt planned  row planned  retract     finish      abort
 *     Submitted     Prefilling   -               -            -           Finished    Aborted
 *     Prefilling    -            PrefillDone     -            -           Finished    Aborted
 *     PrefillDone   -            -               Decoding     Retracted   Finished    Aborted
 *     Decoding      -            -               Decoding     Retracted   Finished    Aborted
 *     Retracted     Prefilling   -               -            -           Finished    Aborted
 *
 * "-" is a bug in the scheduler and ends the program with the names of state and event. Finished
 * and Aborted take no events: the scheduler drops what arrives for them. A request that comes back
 * with a state from behind its prompt has nothing to prefill and goes through Prefilling at once.
 *
 * Between two workers (handoff.h). Finish and abort as above, but that Shipping, which draws no more, cannot finish:
 *
 *     state         receive     arrive        give back   sent        shipped
 *     Submitted     Receiving   -             -           -           -
 *     Receiving     -           PrefillDone   Submitted   -           -
 *     PrefillDone   -           -             -           Shipping    -
 *     Shipping      -           -             -           -           Finished
 *
 * A request has n choices, each a `sequence` of its own: seat, state slot, block table, tokens
 * drawn. Until the prompt is through only one of them is written, the *trunk*: the first choice
 * that is alive at admission. The others own a slot, and pages for what follows the prompt's last
 * whole page. The *fork*, planned with the first decode rows, gives them the trunk's whole pages
 * and copies its partial page and its state. A trunk that ends before the fork keeps what it holds
 * until then.
 *
 * A sequence as rows are planned and computed:
 *
 *     0             n_tree pages     n_computed    n_planned       n_pages pages
 *     |  the tree's pages  | its own, written | in plans that are out | empty |
 *
 * A choice that has ended draws no more, but holds what it held until no plan that is out has it.
 */
#ifndef SCHEDULER_REQUEST_H
#define SCHEDULER_REQUEST_H

#include "base/list.h"
#include "base/map.h"
#include "scheduler/scheduler.h"

enum request_state {
	REQUEST_SUBMITTED,
	REQUEST_PREFILLING,
	REQUEST_RECEIVING,
	REQUEST_PREFILL_DONE,
	REQUEST_DECODING,
	REQUEST_RETRACTED,
	REQUEST_SHIPPING,
	REQUEST_FINISHED,
	REQUEST_ABORTED,
};

enum request_event {
	REQUEST_ADMIT,
	REQUEST_PROMPT_PLANNED,
	REQUEST_ROW_PLANNED,
	REQUEST_RETRACT,
	REQUEST_FINISH,
	REQUEST_ABORT,
	REQUEST_RECEIVE,
	REQUEST_ARRIVE,
	REQUEST_GIVE_BACK,
	REQUEST_SENT,
	REQUEST_SHIPPED,
};

/*
 * One choice. Between admission and release seat != POOL_NONE.
 *
 * Slots: the next row reads `source` and writes `slot`, which the sequence owns. They differ before
 * the first row (source: the tree's, or POOL_NONE: zero) and where a checkpoint was handed over;
 * then the source is pinned until a row that reads it has run.
 */
struct sequence {
	struct list node; /* in scheduler.decoding once its prompt is planned, in .ending when it
			     has ended, else in none */
	struct request *request;
	uint32_t choice;
	uint32_t seat, slot, source;
	bool source_pinned;
	bool counts_valid; /* the seat's token counts are this sequence's */
	bool ended;
	uint32_t *pages;  /* [n_pages] block table, in the memory of the seat */
	uint32_t n_pages; /* in the table, whoever owns them */
	uint32_t n_tree;  /* the first of them, which the tree owns */
	struct prefix_node
		*path; /* locked; the node at the end of n_tree pages; NULL: remembers nothing */
	struct prefix_node
		*decoded; /* on the path: the node with its newest decode checkpoint, or NULL */
	struct content_key tree_key; /* at the end of n_tree pages, while there are tiers below */
	uint64_t tree_origin;
	struct content_key before_key; /* one page before */
	uint64_t before_origin;
	uint64_t prompt_origin,
		decode_origin; /* of pages that end inside the prompt, and after it */
	uint32_t n_planned, n_computed;
	uint64_t last_plan;		 /* step of the newest plan that has a row or draw of it */
	uint32_t n_generated, n_drawing; /* tokens drawn and known; draws in plans that are out */
	uint32_t draw_index;		 /* of the newest draw that is out, in its plan */
	int32_t *generated;		 /* [generated_room], n_generated of them known; owned */
	uint32_t generated_room;
};

enum { WANTED_MAX = SNAPSHOTS_MAX };

/*
 * n_live: choices that have not ended.   n_live == 0  <=>  Shipping, Finished or Aborted
 * n_held: choices that hold a seat.
 * trunk != NULL  <=>  admitted or Receiving, and not yet forked; one that is sent never forks.
 */
struct request {
	uint64_t id;
	void *user;
	struct map_node by_id; /* in scheduler.requests */
	size_t waiting_index;  /* in scheduler.waiting, or WAITING_NONE */
	struct list leading;   /* in scheduler.leaders while its prompt is not computed, else in no
				  list */
	struct list followers; /* requests that wait for its prompt, by their `following` */
	struct list following;
	uint32_t following_to; /* tokens of the leader's prompt that it waits for */
	struct list receiving; /* in scheduler.receiving while Receiving, else in no list */
	enum request_state state;
	struct load *load;     /* what it waits for, outside of the queue; NULL: nothing */
	uint32_t n_loads;      /* that it waited for */
	bool loads_over;       /* it waits for no more of them */
	enum prefix_miss lost; /* what did not come of the last that failed, as a reason; NONE */
	bool admitted;	       /* at least once: hit is known */
	bool retracted;	       /* and not admitted again */
	struct scheduler_hit hit;
	bool origin_known; /* it can ask for exactly the bits it had (see prefix_cache.h) */
	uint32_t n_prompt;
	uint32_t max_tokens, min_tokens;
	uint32_t n_end_tokens, n_boundaries;
	uint32_t n_choices, n_live, n_held;
	int32_t priority;
	bool cache_disabled;
	bool prompt_logprobs;
	uint32_t n_prompt_logprobs;
	enum scheduler_handoff handoff;
	bool prepared;	    /* Receiving: scheduler_next_prepare has told of it */
	uint32_t n_have;    /* tokens of the prompt that are not sent: when Receiving, or sent */
	uint32_t n_shipped; /* first page of the prompt that is in no ship */
	uint32_t n_scored;  /* tokens of the prompt that were planned with scores, if those are
			      wanted */
	struct prefix_space space;
	struct sequence *trunk;
	uint32_t window_start;	     /* its prompt's states from here on can still be asked for */
	uint32_t wanted[WANTED_MAX]; /* [n_wanted] rising: where the prompt left what others know or
					send */
	uint32_t n_wanted;
	struct content_key root_key;
	struct content_key *page_keys; /* [n_prompt / page size], or NULL */
	int32_t *prompt;	       /* [n_prompt] */
	int32_t *end_tokens;	       /* [n_end_tokens] */
	uint32_t *boundaries;	       /* [n_boundaries] */
	/* Of a request that is sent, by index: pages that were its own when they were shipped, which it has a reference to
	 * since they were published, for the tree may have taken its own in their place; POOL_NONE: others. */
	uint32_t *ship_pages; /* [n_ship_pages] */
	uint32_t n_ship_pages;
	struct sampling sampling;
	struct sequence choices[]; /* [n_choices], then the arrays above: one allocation */
};

/* New: a copy of everything in `from`, with n_keys page_keys and n_ship_pages ship_pages, Submitted, without an id.
 * -ENOMEM. */
int request_new(const struct scheduler_request *from, uint32_t n_keys, uint32_t n_ship_pages,
		struct request **ret) MUST_CHECK;
void request_free(struct request *r);

/* Takes the request to its next state. */
void request_advance(struct request *r, enum request_event event);

static inline bool request_over(const struct request *r)
{
	return r->n_live == 0;
}

/* It is over, and keeps its trunk for who reads from it. */
static inline bool request_ships(const struct request *r)
{
	return r->state == REQUEST_SHIPPING;
}

/* The choice draws no more; the last one finishes the request, or, when it drew what is to be sent, makes it ship.
 * Nothing when it has ended already. */
void request_end_choice(struct sequence *q);

/* No choice draws any more. Nothing when the request is over. */
void request_abort(struct request *r);

/* Room for a token that is about to be drawn, beside those that are out. -ENOMEM. */
int request_reserve_draw(struct sequence *q) MUST_CHECK;

/* The same for every living choice's first draw. */
int request_reserve_first_draws(struct request *r) MUST_CHECK;

/* Records a token drawn for a living choice, which ends with an end token or the last it may have.
 */
enum finish_reason request_draw(struct sequence *q, int32_t token);

/* Its prompt's log-probabilities are wanted, and not all of them are planned: every token has to be computed. */
static inline bool request_scores(const struct request *r)
{
	return r->prompt_logprobs && r->n_scored < r->n_prompt;
}

/* The living choice with the smallest number, or NULL. */
struct sequence *request_first_live(struct request *r);

/* Prompt and generated tokens [from, from + n) that are known, copied to out. */
void request_tokens(const struct sequence *q, uint32_t from, uint32_t n, int32_t *out);

/* Tokens of a sequence that are known: prompt and drawn. */
static inline uint32_t request_known(const struct sequence *q)
{
	return q->request->n_prompt + q->n_generated;
}

#endif
