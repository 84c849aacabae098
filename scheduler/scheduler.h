/* The scheduler decides which tokens of which requests run in the next step, and which pages and states are kept. It
 * is pure: no device, no I/O, no clock; a fuzzer or a simulation calls it as the daemon does. One thread.
 *
 *     submit ──> Submitted ──> Prefilling ──> PrefillDone ──> Decoding ──> Finished
 *                    │  ^           └──────────────┴───┬──────────┘
 *                    │  └───────── Retracted <─────────┤ no memory, and nothing else can run
 *                    └──────────── abort ──────────────┴──> Aborted          (Prefilling is not retracted)
 *
 * Every step:  plan = scheduler_plan(s);  the engine runs it;  scheduler_commit(s, results). Two plans may be out
 * (planned and not committed): the next plan is made while the device runs the one before, whose draws are not known
 * yet (plan_row.token_draw). Plans are committed in their order.
 *
 * A step has prefill rows first, then one row for each decoding sequence that has a page for its next token (a mixed
 * batch). The prefill budget counts prompt tokens only. At most one prompt at a time is begun and not planned to its
 * end; another one begins in the same step only if that one ends and leaves some of the budget. Requests wait in the
 * order of (priority, submission).
 *
 * Prefix cache. Admission looks up where a prompt can be resumed, and the request begins there. At each commit the
 * whole pages that were computed are handed to the cache. So are states, as checkpoints, as long as there are slots.
 * They lie at multiples of state_tokens:
 *     - at the end of a window, and at the last multiple before the prompt's last token
 *     - at boundaries that the request names (the ends of turns), rounded down
 *     - where the prompt leaves the cached prefixes, or the prompt of a request that waits for it, rounded down
 *     - while decoding: a sequence keeps the newest one, and earlier ones that other requests use or left as well.
 * A prompt that shares more with a request that is being prefilled than with the cache waits for that request, if the
 * request leaves a state that it can use (sharing.h).
 *
 * Memory. Admission is a transaction on memory that is free or can be evicted: slots, pages for the prompt, a page for
 * each further choice where the prompt ends inside a page, and at most one page of growth for each choice. More pages
 * are taken as sequences grow. A sequence that gets none pauses. When no request can run and no plan is out, the request with most tokens is *retracted*: it gives its memory back, and waits
 * for admission again in its old place of the queue. Its whole pages and its checkpoints stay in the cache until they
 * are evicted. When it is admitted again it computes prompt tokens in chunks and its own generated tokens one by one,
 * as before, and resumes only from pages and states that were computed in this way. So its bits do not change, unless
 * it was first admitted behind decoded pages: such a request may later resume from pages of another origin. A request
 * that would complete alone completes, unless requests that go before it keep coming.
 *
 * Log-probabilities of a prompt need the logits behind all of its tokens. So such a request uses no cached pages, but
 * leaves its own in the cache. The log-probabilities are reported once, window by window, in events without a draw; a
 * request that was retracted does not report them again.
 *
 * The n choices of a request prefill once. When the prompt is computed each becomes a sequence: they share its whole
 * pages, and the last partial page and the state are copied.
 *
 * Prefill and decode apart (scheduler/handoff.h). The worker that decodes (HANDOFF_RECEIVE) admits a request with the
 * memory of an ordinary one. No plan uses this memory until another worker has sent the prompt and its first tokens;
 * then the prompt counts as prefilled here. For the worker that prefills (HANDOFF_SEND) it is an ordinary request of
 * one token a choice. Its plans list the pages and the state to send, and the request keeps them until
 * scheduler_shipped. Either worker may fail at any time; then the request begins again, on a third worker or here.
 *
 *     Submitted ──> Receiving ──> PrefillDone ...          ... PrefillDone ──> Shipping ──> Finished
 *         └─────────────┘ failed
 *
 * Plans depend on the configuration and on the calls of these functions, not on which free ids the pools give out. */
#pragma once

#include "base/err.h"
#include "prefix_cache/prefix_cache.h"
#include "prefix_cache/tiers.h"
#include "scheduler/plan.h"

struct scheduler;

struct scheduler_config {
	uint32_t page_tokens; /* positions of a KV page; in the engine a multiple of CHUNK_TOKENS */
	/* Checkpoints lie at multiples of it, and windows end there, except for the last one of a prompt. A multiple of
	 * page_tokens, in the engine page_tokens itself. 0: the model has no recurrent state. */
	uint32_t state_tokens;
	uint32_t n_pages; /* pages of the KV pool; ids 0 .. n_pages - 1 */
	/* state slots, at least max_seqs; ids 0 .. n_slots - 1; 0 in a model without state */
	uint32_t n_slots;
	uint64_t page_bytes, slot_bytes, cache_bytes; /* as in struct prefix_cache_config */
	bool cache_disabled;			      /* the cache keeps nothing */
	bool refuse_decoded;			      /* the cache keeps nothing that was decoded */
	uint32_t max_waiting;	/* most requests that wait, without retracted ones; 0: no limit */
	uint32_t max_plans_out; /* 1 or 2 */
	/* Computes the key of a page of n tokens from the key of the page before; NULL: there are no tiers below the
	 * device. */
	void (*content_key)(const struct content_key *before, const int32_t *tokens, uint32_t n,
			    struct content_key *ret);
	uint32_t max_seqs; /* sequences that run at the same time (seats) */
	/* prefill budget of a step, in prompt tokens; at least page_tokens and state_tokens */
	uint32_t max_prefill_tokens;
	uint32_t max_model_len; /* prompt + generated tokens of a sequence */
	/* HANDOFF_RECEIVE: a prompt with fewer uncached tokens is computed here. */
	uint32_t handoff_min_tokens;
	uint32_t vocab_size;
};

/* The part of this worker in a request whose prompt one worker computes and another one continues. */
enum scheduler_handoff {
	HANDOFF_NONE,
	HANDOFF_RECEIVE, /* another worker may compute the prompt: scheduler_next_prepare */
	HANDOFF_SEND,	 /* the prompt is for another worker: plan.ships, scheduler_shipped */
};

/* A request as the scheduler sees it. Everything is copied by scheduler_submit. */
struct scheduler_request {
	const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
	uint32_t n_prompt;
	uint32_t max_tokens;	   /* >= 1; prompt + max_tokens <= max_model_len */
	uint32_t min_tokens;	   /* end tokens are not drawn before so many tokens */
	uint32_t n_choices;	   /* 1 .. max_seqs */
	const int32_t *end_tokens; /* [n_end_tokens] one of them ends the choice that draws it */
	uint32_t n_end_tokens;
	/* [n_boundaries] rising, at most n_prompt: good places for checkpoints */
	const uint32_t *boundaries;
	uint32_t n_boundaries;
	int32_t priority; /* lower first */
	struct prefix_space space;
	struct content_key root_key; /* key of the space */
	/* [n_prompt / page_tokens] keys of the prompt's pages; NULL: the request does not use tiers */
	const struct content_key *page_keys;
	bool cache_disabled; /* the request neither uses the cache nor leaves anything there */
	/* report log-probabilities of all tokens of the prompt but the first, in events with scores */
	bool prompt_logprobs;
	uint32_t n_prompt_logprobs;	/* if so: most likely tokens reported beside each */
	enum scheduler_handoff handoff; /* HANDOFF_SEND: max_tokens is 1, prompt_logprobs false */
	/* HANDOFF_SEND: tokens that the other worker already has; they are not shipped. A multiple of page_tokens, <
	 * n_prompt. */
	uint32_t n_have;
	struct sampling sampling;
	void *user; /* the caller's pointer, returned in events */
};

/* The hit of a request: how much of its prompt was cached at its first admission. */
struct scheduler_hit {
	uint32_t n_cached; /* tokens of the prompt */
	enum prefix_miss miss;
	/* number of the plan that was next at the admission, or of a received prompt at its arrival: plans before it
	 * compute nothing of the request */
	uint64_t step;
	/* Tokens of the prompt that another worker sent. Then n_cached are tokens that it did not have to send, and
	 * miss is the reason why the cache could not resume further. */
	uint32_t n_received;
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };

/* One token of one choice; or, with draw NULL, scores of some tokens of the prompt (from scheduler_fail: neither).
 * scheduler_commit returns events in the order of the rows, and scores come before any draw of their request. */
struct scheduler_event {
	uint64_t request;
	void *user;
	uint32_t choice;
	enum finish_reason finish; /* why this choice ends with this token, if it does */
	/* the request's last event: its id is not known any more, or (HANDOFF_SEND) it ships */
	bool request_finished;
	struct scheduler_hit hit;	  /* the same in every event of a request */
	const struct draw_result *draw;	  /* borrowed from the results that the caller gave */
	const struct draw_result *scores; /* [n_scores] of tokens from first_score on */
	uint32_t first_score, n_scores;
};

struct scheduler_stats {
	uint32_t running; /* sequences with a seat: prefilling, decoding, receiving, shipping */
	uint32_t waiting; /* requests that are not admitted yet, or were retracted and wait again */
	uint64_t stores_waiting; /* items in the queue of scheduler_next_store */
	/* The others, but for `cache`, are counts since the start. */
	uint64_t retractions, replayed_tokens; /* replayed: generated tokens computed again */
	/* at first admissions: tokens of the prompts, and those of them that were cached */
	uint64_t prompt_tokens, cached_tokens;
	uint64_t misses[PREFIX_MISS_N];	    /* first admissions by reason of the miss */
	uint64_t loads_begun, loads_failed; /* times that a request waited for items (tiering.h) */
	uint64_t stores_dropped;	    /* items that left the device before they were stored */
	uint64_t shared_waits; /* times that a request waited for another one's prefill */
	uint64_t receives, receives_failed; /* times that another worker was to send a prompt */
	struct prefix_stats cache;
};

/* A page or state to copy from the device to the store, or from the store to the device. */
struct scheduler_item {
	struct tier_item item; /* to the device: without parent_origin */
	/* To the store: */
	struct content_key parent; /* key of the page before */
	uint32_t depth;		   /* tokens from the prompt's beginning to the item's end */
	const int32_t *tokens; /* [page_tokens] of a page, borrowed until the next plan or commit */
	uint32_t id;	       /* the page or slot to read */
	/* To the device: arguments for scheduler_loaded. */
	uint64_t request;
	uint32_t index;
};

/* New. -EINVAL: the configuration cannot work. -ENOMEM. */
int scheduler_new(const struct scheduler_config *config, struct scheduler **ret,
		  struct err *e) MUST_CHECK;
void scheduler_free(struct scheduler *s);

/* Queues a request and gives it an id (never reused, never 0). -EINVAL: it can never run here (limits.h). -EAGAIN:
 * max_waiting requests wait already. -ENOMEM. After an error nothing changed. */
int scheduler_submit(struct scheduler *s, const struct scheduler_request *r, uint64_t *ret_id,
		     struct err *e) MUST_CHECK;

/* scheduler_abort ends a request in any state, scheduler_finish_choice one of its choices; with the last choice the
 * request ends. Unknown ids and choices are ignored, because the request may just have finished. No event follows for
 * what ended so, not even for draws of a plan that is out. Memory that a plan which is out uses becomes free when that
 * plan is committed. */
void scheduler_abort(struct scheduler *s, uint64_t id);
void scheduler_finish_choice(struct scheduler *s, uint64_t id, uint32_t choice);

/* Makes the next plan; NULL: nothing can run now. A commit, a new request, a loaded item or a received prompt may
 * change that. Not while max_plans_out plans are out. */
const struct plan *scheduler_plan(struct scheduler *s);

/* The oldest plan that is out has run, with results [n_draws + n_scored_tokens of the plan]. Writes an event for each
 * draw of a living choice, and for each score of a living request, to `events` (room for n_draws + n_scores, at most
 * twice max_seqs), and returns their number. */
uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events);

/* The device failed: its memory is lost, and the plans that are out were not run. Aborts every request that has a
 * seat, and writes one event for each that was still alive, with draw = NULL and request_finished; returns their
 * number, at most max_seqs. Requests that ship end without an event. Waiting requests stay; those that wait for a load
 * queue again, and get no further one. The cache is empty, and all memory is free. */
uint32_t scheduler_fail(struct scheduler *s, struct scheduler_event *events);

/* ---- tiers below the device ---- */

/* The index of the store's items; borrowed; NULL without config.content_key. The caller adds the items that the store
 * has at the start, and removes those that leave the store. */
struct tiers *scheduler_tiers(struct scheduler *s);

/* The index is complete: an item that it does not have is not in the store. */
void scheduler_tiers_ready(struct scheduler *s);

/* The next item to store; false: there is none. The caller takes one when it has room for the bytes, and queues the
 * copy on the device before it submits the next plan. The item is added to scheduler_tiers. Items in this queue keep no
 * memory alive: if the cache evicts the page or slot, the item is dropped. */
bool scheduler_next_store(struct scheduler *s, struct scheduler_item *ret);

/* The next item to load, at any time; false: there is none. */
bool scheduler_next_load(struct scheduler *s, struct scheduler_item *ret);

/* Takes up to `max` items that requests have resumed on the device, in the order in which the store should mark them
 * as used. If the caller takes too few, the oldest ones are forgotten. */
uint32_t scheduler_take_uses(struct scheduler *s, struct tier_item *ret, uint32_t max);

/* Item `index` that scheduler_next_load gave for the request has arrived, or (!good) will never come; in the second
 * case it is removed from scheduler_tiers. True: the caller copies the item's bytes to page or slot *ret_id, before it
 * submits the next plan. False: they are not needed any more. */
bool scheduler_loaded(struct scheduler *s, uint64_t request, uint32_t index, bool good,
		      uint32_t *ret_id);

/* ---- prefill and decode apart ---- */

/* For the worker that decodes: a prompt to hand to another worker. scheduler_plan admits such requests, also when it
 * returns NULL; after it the caller takes them with scheduler_next_prepare. All pointers are borrowed until
 * scheduler_received or scheduler_receive_failed is called for the request, or it is aborted, or scheduler_fail is
 * called; after that the caller must not write to the request's pages and slot. The caller queues its writes to them
 * behind the plans that are out. */
struct scheduler_prepare {
	uint64_t request;
	void *user;
	/* The request that the other worker runs: HANDOFF_SEND, without page_keys. Its choices are the first ones, up
	 * to the last that is alive. */
	struct scheduler_request ask;
	const uint32_t *pages; /* [n_pages] pages for the prompt from position ask.n_have on */
	uint32_t n_pages;
	uint32_t slot; /* slot for the state behind the prompt; POOL_NONE: there are no states */
};

/* The next prompt that the caller has not taken yet; false: there is none. */
bool scheduler_next_prepare(struct scheduler *s, struct scheduler_prepare *ret);

/* The prompt's pages and state are written, or queued to be written before any later plan. draws [ask.n_choices] are
 * the first tokens of its choices; the caller has checked that they are in the vocabulary. Writes an event for each
 * living choice to `events` (room for ask.n_choices), as scheduler_commit does, and returns their number. Plans may
 * be out. Returns 0 and does nothing if the request is not Receiving. */
uint32_t scheduler_received(struct scheduler *s, uint64_t id, const struct draw_result *draws,
			    struct scheduler_event *events);

/* The prompt will not come. The request gives its memory back and queues in its old place, to be received again
 * (`again`) or to be computed here. Does nothing if the request is not Receiving. */
void scheduler_receive_failed(struct scheduler *s, uint64_t id, bool again);

/* For the worker that prefills: all data in the ships of a request have been read, so the request ends. To be called
 * after the request's last event; does nothing if it is not Shipping. scheduler_abort ends it at any time. */
void scheduler_shipped(struct scheduler *s, uint64_t id);

/* ---- cache and statistics ---- */

/* Forgets every cached prefix. -EBUSY, and nothing changed, while there is a request. */
int scheduler_flush(struct scheduler *s) MUST_CHECK;

/* The prefix cache for GET /cache, borrowed. */
const struct prefix_cache *scheduler_cache(const struct scheduler *s);

/* A hash of the work in a plan: the tokens of prefill rows; start and length of all rows; snapshots, draws, scores and
 * ships; the numbers of resets and copies. It leaves out the ids of pages, slots and seats, generated tokens, and the
 * parameters of draws. `tigon simulate --replay` compares plans by it. */
uint64_t plan_hash(const struct plan *p);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *ret);

/* For tests, in which no answer may depend on the ids of pages, slots and seats: from now on the pools give them out
 * in a random order (see pool_shuffle). -EBUSY while there is a request. */
int scheduler_shuffle(struct scheduler *s, uint64_t seed) MUST_CHECK;
