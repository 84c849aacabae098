/* A request and its choices: their data, and the states that a request goes through.
 *
 *     state         admit        prompt planned  row planned  retract     finish      abort
 *     Submitted     Prefilling   -               -            -           Finished    Aborted
 *     Prefilling    -            PrefillDone     -            -           Finished    Aborted
 *     PrefillDone   -            -               Decoding     Retracted   Finished    Aborted
 *     Decoding      -            -               Decoding     Retracted   Finished    Aborted
 *     Retracted     Prefilling   -               -            -           Finished    Aborted
 *
 * "-" is a bug in the scheduler: the names of state and event are logged, and the program aborts. Finished and Aborted
 * are final; calls for such requests are ignored. A request that resumes behind its prompt has nothing to prefill and
 * leaves Prefilling at once.
 *
 * When prefill and decode are apart (scheduler/handoff.h) there are two more states, Receiving and Shipping. In both
 * states a request may be aborted. In Receiving it may finish; in Shipping the event "finish" cannot come, because no
 * choice is alive:
 *
 *     state         receive     arrive        give back   sent        shipped
 *     Submitted     Receiving   -             -           -           -
 *     Receiving     -           PrefillDone   Submitted   -           -
 *     PrefillDone   -           -             -           Shipping    -
 *     Shipping      -           -             -           -           Finished
 *
 * A request has n choices, each a `sequence` with the tokens that it drew. At admission each living choice gets a seat,
 * a block table and, if the model has states, a slot. One of them, the *trunk*, computes the prompt: the first choice
 * that is alive at admission. The other choices get pages for the tokens behind the prompt's last whole page. The
 * *fork*, planned with the request's first decode rows, gives them the prompt's whole pages, and copies of the trunk's
 * partial page and state. A trunk that ends before the fork keeps its pages and slot until the fork, or until its
 * request is over.
 *
 * The pages of a sequence:
 *
 *     0             n_tree pages     n_computed    n_planned       n_pages pages
 *     |  the tree's pages  | its own, written | in plans that are out | empty |
 *
 * A choice that has ended draws no more. It keeps its pages and slot until no plan that is out uses it. The trunk also
 * keeps them as long as its request is Shipping. */
#pragma once

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

/* One choice. From admission to release seat != POOL_NONE.
 *
 * Slots: the next row reads `source` and writes `slot`, which the sequence owns. These differ in two cases. Before the
 * first row of a sequence the source may be a slot of the tree, or POOL_NONE for a zero state. And when the state of a
 * row, or of a received prompt, becomes a checkpoint, the slot with that state is the source of the next row, which
 * writes another slot. A slot that is the source and not the sequence's own is pinned until the row that reads it is
 * committed, or until the sequence is released. */
struct sequence {
	struct list node; /* in scheduler.decoding or scheduler.ending, or in no list */
	struct request *request;
	uint32_t choice;
	uint32_t seat, slot, source;
	bool source_pinned;
	bool counts_valid; /* the seat's token counts are this sequence's */
	bool ended;
	uint32_t *pages;  /* [n_pages] block table, in the memory of the seat */
	uint32_t n_pages; /* pages in the table */
	/* how many of them, from the first on, the tree owns; before the fork, of a choice that is not the trunk: how
	 * many the fork will set */
	uint32_t n_tree;
	/* end of the locked path of the tree that has n_tree pages; NULL: the sequence has no seat, the tree gets no
	 * pages of it, or it is not the trunk and waits for the fork */
	struct prefix_node *path;
	/* node of the path with the newest checkpoint that this sequence left while decoding; or NULL */
	struct prefix_node *decoded;
	/* Key and origin of page n_tree - 1 and, once the sequence has published a page, of the page before that one.
	 * They are not kept up to date if the request does not use the tiers below the device (tiering.h). */
	struct content_key tree_key;
	uint64_t tree_origin;
	struct content_key before_key;
	uint64_t before_origin;
	/* origins of the pages that this sequence computes: of those that end inside the prompt; of those that end
	 * behind the prompt */
	uint64_t prompt_origin, decode_origin;
	uint32_t n_planned, n_computed;	 /* positions; see the figure above */
	uint64_t last_plan;		 /* newest plan that uses it */
	uint32_t n_generated, n_drawing; /* tokens drawn and known; draws in plans that are out */
	/* index of its newest draw among the draws of that draw's plan */
	uint32_t draw_index;
	const uint32_t *allowed; /* token mask of its next draw; NULL: none */
	int32_t *generated;	 /* [generated_room], n_generated of them known; owned */
	uint32_t generated_room;
};

enum { WANTED_MAX = SNAPSHOTS_MAX };

/*
 * n_live: choices that have not ended.   n_live == 0  <=>  Shipping, Finished or Aborted
 * n_held: choices that hold a seat.
 * trunk: the request's trunk from the time when the request gets its seats (a Receiving request has seats, too) until
 *        the fork, or until the request gives its seats back and waits again; otherwise NULL. A HANDOFF_SEND request
 *        never forks.
 */
struct request {
	/* as submitted, but for handoff and n_have, which change; its arrays lie behind `choices` */
	struct scheduler_request ask;
	uint64_t id;
	struct map_node by_id; /* in scheduler.requests */
	size_t waiting_index;  /* place in scheduler.waiting, or WAITING_NONE */
	struct list leading;   /* in scheduler.leaders, or in no list */
	struct list followers; /* requests that wait for its prompt, by their `following` */
	struct list following; /* in the `followers` of its leader, or in no list */
	uint32_t following_to; /* tokens of the leader's prompt that it waits for */
	struct list receiving; /* in scheduler.receiving while Receiving, else in no list */
	enum request_state state;
	struct tier_load *load; /* the load that it waits for, not in scheduler.waiting; or NULL */
	uint32_t n_loads;	/* number of loads so far, with the one that it waits for */
	bool loads_over;	/* it waits for no more loads */
	/* the kind of item that a failed load lacked: PREFIX_MISS_EVICTED_PAGE or _EVICTED_STATE; else _NONE */
	enum prefix_miss lost;
	/* it was admitted to compute its prompt here, or its prompt has arrived from another worker, now or earlier:
	 * `hit` is known */
	bool admitted;
	bool retracted; /* it was retracted and not admitted since */
	struct scheduler_hit hit;
	/* At its first admission all pages of its prompt were prefilled or still to be computed (origin 0). So after a
	 * retraction it resumes only from pages of the origins that it had before. */
	bool origin_known;
	uint32_t n_live, n_held;
	bool prepared; /* Receiving: scheduler_next_prepare has returned it */
	/* index of the page behind the last page in a ship so far; 0: there was no ship */
	uint32_t n_shipped;
	/* if log-probabilities of the prompt are wanted: number of its tokens in the rows planned so far */
	uint32_t n_scored;
	struct sequence *trunk;
	/* states behind this position of its prompt can still be asked for: the plan that computes them is not made */
	uint32_t window_start;
	/* The window that the whole prefill budget would give, of which the last row is a part (chunking.h). */
	uint32_t span_start, span_end;
	/* Rising positions where a state is wanted, because this prompt parts behind them from another prompt or from
	 * the cached prefixes. */
	uint32_t wanted[WANTED_MAX];
	uint32_t n_wanted;
	/* HANDOFF_SEND: the pages that it ships and that it has handed to the tree, by their place in the prompt. It
	 * keeps a reference to each, because the tree may have replaced the page by one of its own. POOL_NONE: the page
	 * was not handed over yet, was in the cache, or is not to be shipped. */
	uint32_t *ship_pages; /* [n_ship_pages] */
	uint32_t n_ship_pages;
	/* [ask.n_choices]; the arrays of ask and ship_pages lie behind them: one allocation. */
	struct sequence choices[];
};

/* Makes a request that is Submitted and has no id, with a copy of everything in `from`. -ENOMEM. */
int request_new(const struct scheduler_request *from, const struct scheduler_config *config,
		struct request **ret) MUST_CHECK;
void request_free(struct request *r);

/* Moves the request to its next state, by the tables above. */
void request_advance(struct request *r, enum request_event event);

static inline bool request_over(const struct request *r)
{
	return r->n_live == 0;
}

/* Whether the request is over, but keeps its trunk because not all of its ships have been read yet. */
static inline bool request_ships(const struct request *r)
{
	return r->state == REQUEST_SHIPPING;
}

/* Ends a choice, which then draws no more. If it was the last living one, the request finishes; but a HANDOFF_SEND
 * request becomes Shipping if this choice has drawn. Does nothing if the choice has ended already. */
void request_end_choice(struct sequence *q);

/* Ends all choices, or ends Shipping: the request is Aborted. Does nothing if it is Finished or Aborted already. */
void request_abort(struct request *r);

/* Makes room for one more draw, beside those in plans that are out. -ENOMEM. */
int request_reserve_draw(struct sequence *q) MUST_CHECK;

/* Makes room for every living choice's first draw. -ENOMEM. */
int request_reserve_first_draws(struct request *r) MUST_CHECK;

/* Whether the token is an end token of the request. */
bool request_ends_with(const struct request *r, int32_t token);

/* Adds a token that a living choice drew. An end token, or reaching max_tokens, ends the choice. Returns the reason, or
 * FINISH_NONE. */
enum finish_reason request_draw(struct sequence *q, int32_t token);

/* Whether the request wants log-probabilities of its prompt and some of them are not planned yet. */
static inline bool request_scores(const struct request *r)
{
	return r->ask.prompt_logprobs && r->n_scored < r->ask.n_prompt;
}

/* Returns the number of tokens at the prompt's beginning that need not be computed if they are cached, because no
 * result is wanted there. */
static inline uint32_t request_reusable(const struct request *r)
{
	uint32_t n = r->ask.n_prompt - 1;

	if (r->ask.pooling == POOLING_MEAN)
		return 0;
	return request_scores(r) ? MIN(n, r->ask.first_score - 1) : n;
}

/* Whether results are wanted of the prompt from its first token on, so that every token has to be computed. */
static inline bool request_needs_all(const struct request *r)
{
	return (r->ask.pooling == POOLING_MEAN || request_scores(r)) && !request_reusable(r);
}

/* Whether the request may resume only from pages that were prefilled, because its results must have the bits of a
 * prompt that is computed whole. */
static inline bool request_wants_prefilled(const struct request *r)
{
	return r->ask.handoff == HANDOFF_SEND || r->ask.prompt_logprobs || r->ask.pooling;
}

/* Returns the sum of request_known over the living choices; it has the prompt once for each. */
uint64_t request_length(const struct request *r);

/* Returns the living choice with the smallest number, or NULL. */
struct sequence *request_first_live(struct request *r);

/* Copies n known tokens from position `from` on, of the prompt and the generated ones, to out. */
void request_tokens(const struct sequence *q, uint32_t from, uint32_t n, int32_t *out);

/* Returns the number of known tokens: prompt and drawn. */
static inline uint32_t request_known(const struct sequence *q)
{
	return q->request->ask.n_prompt + q->n_generated;
}
