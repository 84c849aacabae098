/* The scheduler decides which tokens of which requests run in the next step, and which pages and states are kept. It
 * is pure: no device, no I/O, no clock; a fuzzer or a simulation calls it as the daemon does. One thread.
 *
 *     submit ──> Submitted ──> Prefilling ──> PrefillDone ──> Decoding ──> Finished
 *                                  ^               └──────┬──────┘
 *                                  └───── Retracted <─────┘ no memory, and nothing else can run
 *
 * From each of these states but Finished a request may also become Finished or Aborted at once (request.h).
 *
 * Every step:  plan = scheduler_plan(s);  the engine runs it;  scheduler_commit(s, results). Up to two plans may be out
 * (planned and not committed): the next plan is made while the device runs the one before, whose draws are not known
 * yet (plan_row.token_draw). Plans are committed in their order.
 *
 * A step has prefill rows first, then at most one row for each decoding sequence (a mixed batch). A sequence without a
 * page for its next token pauses: it has no row. A sequence whose draws need the token before (needs_last) has no row
 * in a plan that is made while its last draw is out. So beside other sequences it has a row in every second step. If
 * all sequences that decode are such ones, they wait for each other, because a step with all of them takes little
 * longer than a step with one. Those of them that compute known tokens again wait too, unless a prompt has a row in the
 * plan and their choices have pages of their own. A sequence gets the page for its next token in each plan, also in one without a row of it, so that no admission
 * takes the page meanwhile. The prefill budget counts prompt tokens only. It is max_prefill_tokens, or the limit of
 * scheduler_pace if a sequence can decode. Of the prompts computed here at most one at a time is begun and not planned
 * to its end. A second prompt begins in the same step only if the first one is planned to its end and leaves some of
 * the budget. Requests wait in the order of (priority, submission), but while others wait no owner gets more than half
 * of the seats (see fairness.h).
 *
 * Prefix cache. Admission looks up where a prompt can be resumed, and the request begins there if the memory allows it.
 * At each commit the whole pages that were computed are handed to the cache. So are some states, as checkpoints, as
 * long as there are slots (inside a span at most SNAPSHOTS_MAX; chunking.h). Checkpoints lie at multiples of
 * state_tokens:
 *     - at the end of a span, and at the last multiple before the prompt's last token
 *     - at boundaries that the request names (the ends of turns), rounded down
 *     - where the prompt parts from the cached prefixes, or from the prompt of a follower, rounded down
 *     - at each multiple that a sequence reaches while decoding, unless refuse_decoded. The sequence then gives its
 *       previous checkpoint of this kind up, unless a request has resumed from that one, or another sequence has left a
 *       checkpoint at the same place.
 * A prompt that shares more with the prompt of a leader than with the cache may wait for the leader, if the leader will
 * leave a state (in a model without states: pages) that the waiting request can use (sharing.h).
 *
 * Memory. Admission takes all that a request needs, or nothing, from the memory that is free or can be evicted: slots,
 * pages for the prompt, a copy of the prompt's last, partial page for each choice but the first, pages for the tokens
 * that were drawn before a retraction, and at most one page of growth for each choice. More pages are taken as
 * sequences grow. A sequence that gets no page pauses. When no request can run and no plan is out, the decoding request
 * with most tokens is *retracted* (another reason is in fairness.h): it gives its memory back, and waits for admission
 * again in its old place of the queue. The pages and checkpoints that it has left in the cache stay there until they
 * are evicted. When it is admitted again it computes prompt tokens in chunks and its own generated tokens one by one,
 * as before. If at its first admission it did not resume behind decoded pages, it resumes later only from pages and
 * states that were computed in the same way, and its bits do not change. If it did, it may later resume from pages of
 * another origin, and its bits may change. A request that would complete alone completes, unless requests that go
 * before it keep coming.
 *
 * Log-probabilities of a prompt need the logits behind each token but the last. So a request for them uses no cached
 * pages until its whole prompt is planned, but leaves its own in the cache. The log-probabilities are reported once,
 * window by window, in events without a draw; a request that was retracted does not report them again.
 *
 * The n choices of a request prefill once. Then the fork lets the other choices share the prompt's whole pages, and
 * copies the last, partial page and the state for each of them.
 *
 * Prefill and decode apart (scheduler/handoff.h). The worker that decodes (HANDOFF_RECEIVE) admits a request with the
 * memory of an ordinary one. No plan uses this memory until another worker has sent the prompt's pages, its state and
 * the first tokens; then the prompt counts as prefilled here. For the worker that prefills (HANDOFF_SEND) it is an
 * ordinary request of one token a choice. Its plans list the pages and the state to send, and the request keeps them
 * until scheduler_shipped. The prefill worker may fail at any time; then the request begins again, with another prefill
 * worker or in the decode worker alone.
 *
 *     Submitted ──> Receiving ──> PrefillDone ...          ... PrefillDone ──> Shipping ──> Finished
 *         └<────────────┘ failed
 *
 * Plans depend on the configuration and on the calls of these functions with their arguments. They do not depend on
 * which of the free ids a pool gives out. */
#pragma once

#include "base/err.h"
#include "prefix_cache/prefix_cache.h"
#include "prefix_cache/tiers.h"
#include "scheduler/plan.h"

struct scheduler;

struct scheduler_config {
	uint32_t page_tokens; /* positions of a KV page; in the engine a multiple of CHUNK_TOKENS */
	/* Checkpoints lie at multiples of it. Windows end at multiples of it, too, except for a prompt's last window. A
	 * multiple of page_tokens, in the engine page_tokens itself. 0: the model has no states. */
	uint32_t state_tokens;
	uint32_t n_pages; /* pages of the KV pool; ids 0 .. n_pages - 1 */
	/* state slots, at least max_seqs; ids 0 .. n_slots - 1; 0 in a model without state */
	uint32_t n_slots;
	/* cache_bytes: the most bytes of all pages and slots that are not free, those that could be evicted included;
	 * 0: the pools alone limit them. page_bytes, slot_bytes: bytes of a page and of a slot. */
	uint64_t page_bytes, slot_bytes, cache_bytes;
	bool cache_disabled; /* the cache keeps nothing */
	bool refuse_decoded; /* the cache keeps nothing that was decoded */
	/* scheduler_submit refuses a request while so many wait, retracted ones not counted; 0: no limit */
	uint32_t max_waiting;
	uint32_t max_plans_out; /* 1 or 2 */
	/* Computes the key of a page from its n tokens and the key of the page before. NULL: there are no tiers below
	 * the device. */
	void (*content_key)(const struct content_key *before, const int32_t *tokens, uint32_t n,
			    struct content_key *ret);
	uint32_t max_seqs; /* the most sequences that run at the same time (seats) */
	/* prefill budget of a step, in prompt tokens; at least page_tokens and state_tokens */
	uint32_t max_prefill_tokens;
	uint32_t max_model_len; /* prompt + generated tokens of a sequence */
	/* HANDOFF_RECEIVE: a prompt with fewer uncached tokens is computed here. */
	uint32_t handoff_min_tokens;
	uint32_t vocab_size;
};

/* The role of this worker for a request, when one worker computes the prompt and another worker decodes. */
enum scheduler_handoff {
	HANDOFF_NONE,
	HANDOFF_RECEIVE, /* another worker may compute the prompt: scheduler_next_prepare */
	HANDOFF_SEND,	 /* the prompt is for another worker: plan.ships, scheduler_shipped */
};

/* A request as the scheduler sees it. scheduler_submit copies the struct and its arrays. */
struct scheduler_request {
	const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
	uint32_t n_prompt;
	/* prompt + max_tokens <= max_model_len. 0: the request draws nothing and ends with its prompt; n_choices is 1
	 * then, and handoff HANDOFF_NONE. */
	uint32_t max_tokens;
	/* End tokens are not drawn before so many tokens, unless the token mask leaves nothing else. */
	uint32_t min_tokens;
	uint32_t n_choices;	   /* 1 .. max_seqs */
	const int32_t *end_tokens; /* [n_end_tokens] one of them ends the choice that draws it */
	uint32_t n_end_tokens;
	/* [n_boundaries] rising, at most n_prompt: the ends of turns, which are good places for checkpoints */
	const uint32_t *boundaries;
	uint32_t n_boundaries;
	int32_t priority; /* lower first */
	/* The number of the client, whose share of the seats is limited while others wait (fairness.h). 0: no owner;
	 * such a request is never held back. */
	uint64_t owner;
	struct prefix_space space;
	struct content_key root_key; /* key of the space: the key before that of the first page */
	/* [n_prompt / page_tokens] keys of the prompt's whole pages; NULL: the request does not use the tiers below the
	 * device */
	const struct content_key *page_keys;
	bool cache_disabled; /* the request neither uses the cache nor leaves anything there */
	/* report log-probabilities of the prompt's tokens from number first_score on, in events with scores. The first
	 * token has none, so first_score 0 counts as 1. All tokens from number first_score - 1 on are computed,
	 * whatever is cached. */
	bool prompt_logprobs;
	uint32_t first_score; /* <= n_prompt */
	/* with prompt_logprobs: number of most likely tokens beside each */
	uint32_t n_prompt_logprobs;
	/* make a vector of the prompt's hidden states; max_tokens is 0 then. For POOLING_MEAN every token is computed,
	 * whatever is cached. */
	enum pooling pooling;
	enum scheduler_handoff handoff; /* HANDOFF_SEND: max_tokens is 1, prompt_logprobs false */
	/* HANDOFF_SEND: number of tokens at the prompt's beginning whose pages the other worker has already; these
	 * pages are not shipped. A multiple of page_tokens, < n_prompt. */
	uint32_t n_have;
	struct sampling sampling;
	const struct plan_bias *biases; /* [n_biases] of every draw, by rising token */
	uint32_t n_biases;
	/* [PLAN_MASK_WORDS] the token mask of every draw, until scheduler_allow gives a choice another one; NULL: there
	 * is none */
	const uint32_t *allowed;
	/* The mask of a draw depends on the token before. So a choice gets no row while a plan that is out draws a
	 * token of it, and the caller calls scheduler_allow between the commit of a draw and the next plan. */
	bool needs_last;
	void *user; /* the caller's pointer, returned in events */
};

/* The hit of a request: how much of its prompt was cached at its first admission. */
struct scheduler_hit {
	uint32_t n_cached; /* tokens of the prompt */
	enum prefix_miss miss;
	/* number of the next plan at the time of the admission (of a received prompt: of its arrival); earlier plans
	 * compute nothing of the request */
	uint64_t step;
	/* Tokens of the prompt whose pages another worker sent. If there are any, n_cached are the tokens whose pages
	 * it did not have to send, and miss is the reason why the cache could not resume further. */
	uint32_t n_received;
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };

/* One token of one choice; or, with draw NULL, scores of some tokens of the prompt; or, with both NULL, the end of a
 * request that draws nothing (from scheduler_fail: the end of any request, with finish FINISH_NONE). If draw->token is
 * negative, the draw has failed, and with it the request: this is its last event. If the token of a
 * score is negative, the caller has to abort the request. Events come in the order of the rows, and scores before any
 * draw of their request. */
struct scheduler_event {
	uint64_t request;
	void *user;
	uint32_t choice;
	enum finish_reason finish; /* why this choice ends with this token, if it does */
	/* this is the request's last event: calls for its id are ignored from now on, or (HANDOFF_SEND) it ships */
	bool request_finished;
	struct scheduler_hit hit;	/* the same in every event of a request */
	const struct draw_result *draw; /* borrowed from the results that the caller gave */
	/* [n_scores] of the tokens of the prompt from index first_score on */
	const struct draw_result *scores;
	uint32_t first_score, n_scores;
	/* with `pooled` the vector of the request is engine_pooled(pooling): the sum of that pooling of the plan */
	bool pooled;
	uint32_t pooling;
};

struct scheduler_stats {
	/* sequences that hold a seat, also those that have ended and still hold their memory */
	uint32_t running;
	/* requests that wait for admission, for the first time or again */
	uint32_t waiting;
	uint64_t stores_waiting; /* items in the queue of scheduler_next_store */
	/* All members below, except `cache`, count from the start. */
	uint64_t retractions, replayed_tokens; /* replayed: generated tokens computed again */
	/* Counted at a request's first admission, or when its prompt has come from another worker: tokens of the
	 * prompts, and how many of them were cached. */
	uint64_t prompt_tokens, cached_tokens;
	/* requests by the reason of their miss, counted at the same times */
	uint64_t misses[PREFIX_MISS_N];
	/* times that a request began to wait for items of the store (tiering.h), and how many of these loads failed */
	uint64_t loads_begun, loads_failed;
	/* queued items whose page or slot left the cache before they were stored; those that scheduler_flush or
	 * scheduler_fail takes out of the queue are not counted */
	uint64_t stores_dropped;
	uint64_t shared_waits; /* times that a request waited for another one's prefill */
	/* times that a request began to wait for its prompt from another worker, and how often the prompt did not
	 * come */
	uint64_t receives, receives_failed;
	struct prefix_stats cache;
};

/* A page or state to copy from the device to the store, or from the store to the device. */
struct scheduler_item {
	struct tier_item item; /* if it is to be copied to the device, without parent_origin */
	/* The next four are set if the item is to be copied to the store. */
	/* key of the page before the item's page; of a state, before the page at whose end it lies */
	struct content_key parent;
	uint32_t depth; /* tokens from the prompt's beginning to the item's end */
	/* [page_tokens] tokens of a page, borrowed until the cache changes; NULL: the item is a state */
	const int32_t *tokens;
	uint32_t id; /* the page or slot to read */
	/* The next two are set if the item is to be copied to the device: arguments for scheduler_load_place and
	 * scheduler_loaded. */
	uint64_t request;
	uint32_t index;
};

/* Makes a scheduler. -EINVAL: the configuration cannot work. -ENOMEM. */
int scheduler_new(const struct scheduler_config *config, struct scheduler **ret,
		  struct err *e) MUST_CHECK;
void scheduler_free(struct scheduler *s);

/* Queues a request and gives it an id (never reused, never 0). -EINVAL: a value is wrong, or the request can never run
 * here (limits.h). -EAGAIN: max_waiting requests wait already. -ENOMEM. After an error nothing changed. */
int scheduler_submit(struct scheduler *s, const struct scheduler_request *r, uint64_t *ret_id,
		     struct err *e) MUST_CHECK;

/* scheduler_abort ends a request in any state, scheduler_finish_choice one of its choices; with the last choice the
 * request ends. Unknown ids and choices are ignored, because the request may just have finished. No event follows for a
 * request or choice that ended so, not even for its draws in a plan that is out. Memory that plans which are out use
 * does not become free before they are committed. */
void scheduler_abort(struct scheduler *s, uint64_t id);
void scheduler_finish_choice(struct scheduler *s, uint64_t id, uint32_t choice);

/* Gives a choice of a request with needs_last the token mask of its next draw. allowed [PLAN_MASK_WORDS] is borrowed
 * until the next call for the choice, or until the choice ends; NULL: every token may be drawn. Unknown ids and
 * choices, and choices that have ended, are ignored. */
void scheduler_allow(struct scheduler *s, uint64_t id, uint32_t choice, const uint32_t *allowed);

/* Makes the next plan. NULL: nothing can run until another call changes that (such as a commit, a new request, an
 * abort, a loaded item or a received prompt). Not to be called while max_plans_out plans are out. */
const struct plan *scheduler_plan(struct scheduler *s);

/* Limits the prefill budget of the plans that are made from now on and in which a sequence can decode. n_tokens: the
 * limit (prefill_pace.h). A limit below the least budget (scheduler_config.max_prefill_tokens) counts as the least, and
 * one above the configured budget as that budget, as it is at first. */
void scheduler_pace(struct scheduler *s, uint32_t n_tokens);

/* Commits the oldest plan that is out, which has run with these results [n_draws + n_scored_tokens of the plan]. Writes
 * an event for each draw of a living choice, for each plan_score of a living request, and for the end of each living
 * request that draws nothing, to `events` (room for twice max_seqs), and returns the number of events. */
uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events);

/* To be called when the device has failed: its memory is lost, and the plans that are out were not run. Aborts every
 * request that has a seat, and writes one event for each that was still alive, with draw = NULL and request_finished.
 * Returns the number of events, at most max_seqs. Requests that ship end without an event. Waiting requests stay; those
 * that wait for a load queue again, and wait for no further load. Afterwards the cache on the device and the queue of
 * stores are empty, and all memory is free; the index of the tiers below stays. */
uint32_t scheduler_fail(struct scheduler *s, struct scheduler_event *events);

/* ---- tiers below the device ---- */

/* Returns the index of the store's items, borrowed; NULL without config.content_key. The caller adds the items that the
 * store has at the start, and removes those that leave the store. */
struct tiers *scheduler_tiers(struct scheduler *s);

/* Notes that the index is complete: from now on an item that it does not have is not in the store. */
void scheduler_tiers_ready(struct scheduler *s);

/* Takes the next item out of the queue of stores, and adds it to scheduler_tiers. False: the queue is empty. The caller
 * takes an item when it has room for the bytes, and queues the copy on the device before it submits the next plan. An
 * item in the queue keeps no memory alive: if the cache evicts its page or slot, the item is dropped. */
bool scheduler_next_store(struct scheduler *s, struct scheduler_item *ret);

/* Writes the next item to load to *ret; may be called at any time. False: there is none. */
bool scheduler_next_load(struct scheduler *s, struct scheduler_item *ret);

/* Takes up to `max` items that requests have resumed on the device, in the order in which the store should mark them as
 * used, and returns their number. The items have no parent_origin. Only the newest USES_MAX (8192) items that were not
 * taken are kept. */
uint32_t scheduler_take_uses(struct scheduler *s, struct tier_item *ret, uint32_t max);

/* Returns whether the bytes of item `index` that scheduler_next_load gave for the request are needed. True: the caller
 * copies them to page or slot *ret_id. The request may end meanwhile, so *ret_id may belong to another one before the
 * copy has run: a plan that is submitted after the copy was queued must find the bytes copied. */
bool scheduler_load_place(const struct scheduler *s, uint64_t request, uint32_t index,
			  uint32_t *ret_id);

/* To be called once for each item that scheduler_next_load gave: when its bytes are in their page or slot, or are not
 * needed, or (!good) will never come. If the request still waits, an item that will never come is removed from
 * scheduler_tiers. With its last item the request queues again. */
void scheduler_loaded(struct scheduler *s, uint64_t request, uint32_t index, bool good);

/* ---- prefill and decode apart ---- */

/* For the worker that decodes: a prompt that another worker is to compute. scheduler_plan admits the requests with such
 * prompts, also when it returns NULL; after each scheduler_plan the caller takes such prompts with
 * scheduler_next_prepare. All pointers are borrowed until scheduler_received or scheduler_receive_failed is called for
 * the request, or the request ends, or scheduler_fail is called; after that the caller must not write to the request's
 * pages and slot. The caller queues its writes to pages and slot behind the plans that are out. */
struct scheduler_prepare {
	uint64_t request;
	void *user;
	/* The request that the other worker runs: HANDOFF_SEND, without page_keys. It has the choices up to the last
	 * one that is alive. */
	struct scheduler_request ask;
	const uint32_t *pages; /* [n_pages] pages for the prompt from position ask.n_have on */
	uint32_t n_pages;
	uint32_t slot; /* slot for the state behind the prompt; POOL_NONE: there are no states */
};

/* Describes the next prompt that the caller has not taken yet; false: there is none. */
bool scheduler_next_prepare(struct scheduler *s, struct scheduler_prepare *ret);

/* To be called when the prompt's pages and state are written, or queued to be written before any later plan: the
 * request may decode from now on. draws [ask.n_choices] (ask of struct scheduler_prepare) are the first tokens of its
 * choices; the caller has checked that they are in the vocabulary. Writes an event for each living choice to `events`
 * (room for ask.n_choices), as scheduler_commit does, and returns the number of events. Plans may be out. Returns 0 and
 * does nothing if the request is not Receiving. */
uint32_t scheduler_received(struct scheduler *s, uint64_t id, const struct draw_result *draws,
			    struct scheduler_event *events);

/* To be called when the prompt will not come. The request gives its memory back and queues in its old place. again:
 * its prompt may be received again; !again: it is computed here. Does nothing if the request is not Receiving. */
void scheduler_receive_failed(struct scheduler *s, uint64_t id, bool again);

/* For the worker that prefills: ends a request, because all data in its ships have been read. To be called after the
 * request's last event; does nothing if it is not Shipping. Until then scheduler_abort can end it at any time. */
void scheduler_shipped(struct scheduler *s, uint64_t id);

/* ---- cache and statistics ---- */

/* Empties the cache on the device and the queue of stores. The index of the tiers below stays; the caller clears it
 * (tiers_clear). -EBUSY, and nothing changed, while there is a request. */
int scheduler_flush(struct scheduler *s) MUST_CHECK;

/* Returns the prefix cache for GET /cache, borrowed. */
const struct prefix_cache *scheduler_cache(const struct scheduler *s);

/* Returns a hash of the work in a plan: its number; the tokens of prefill rows; of all rows kind, start and length,
 * whether the token is known, and whether the state is zero; the positions of snapshots; row and position of each draw;
 * row, first token and length of each score; row, first token and flags of each pooling; row, pages (by index) and
 * state of each ship; the numbers of resets and copies. The hash leaves out all else, such as the ids of pages, slots
 * and seats, generated tokens, and the parameters of draws. `tigon simulate --replay` compares plans by their
 * hashes. */
uint64_t plan_hash(const struct plan *p);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *ret);

/* For tests that answers do not depend on the ids of pages, slots and seats: empties the cache, and from now on the
 * pools give ids out in a random order (see pool_shuffle). -EBUSY, and nothing changed, while there is a request. */
int scheduler_shuffle(struct scheduler *s, uint64_t seed) MUST_CHECK;
