/*
 * The scheduler: which tokens of which requests run in the next step, and what of it is kept. Pure:
 * no device, no I/O, no clock; a fuzzer or a simulation drives it as the daemon does. One thread.
 *
 *     submit ──> Submitted ──> Prefilling ──> PrefillDone ──> Decoding ──> Finished
 *                    │  ^           └──────────────┴───┬──────────┘
 *                    │  └───────── Retracted <─────────┤ no memory and nothing else can run
 *                    └──────────── abort ──────────────┴──> Aborted
 *
 * Every step:  plan = scheduler_plan(s);  the engine runs it;  scheduler_commit(s, results). Two
 * plans may be out: the next one is made while the device runs the one before, with draws that
 * nobody has seen yet (plan_row.token_draw). Commits come in the order of plans.
 *
 * Prefill rows come first, then one row for every decoding sequence (mixed batches). The prefill
 * budget counts prompt tokens only. One unfinished prefill is head of line: no other prompt may
 * begin before it is through, except in what is left of its step's budget when it ends. Requests
 * wait in the order of (priority, submission).
 *
 * Prefix cache. Admission asks it what can be resumed and begins there; what is prefilled or
 * decoded is handed to it at commit, whole pages at a time, with states (checkpoints) at
 *     - the last page boundary of every window and of the prompt, and the last whole page before
 * the prompt's last token
 *     - boundaries that the request names (turn ends), rounded down
 *     - the point where the prompt left what was known, when there was no state (promotion)
 *     - page boundaries while decoding: a sequence keeps the newest one.
 * A prompt that shares more with a request that is being prefilled than with the cache waits for
 * it.
 *
 * Memory. Admission is a transaction on what is free or can be evicted: pages for the prompt, and
 * one of growth for each choice; slots. Later pages are taken as sequences grow. A sequence that
 * gets none pauses; when nothing can run and no plan is out, the request with most tokens is
 * retracted: what it computed goes to the cache, and it waits for admission again, ahead of later
 * ones. It comes back by a state that it left itself, or by computing prompt tokens in chunks and
 * its own generated tokens one by one, so that its bits do not change. A request that fits the
 * pools alone always completes.
 *
 * A request may ask how likely the tokens of its prompt were. That takes the logits behind all of them, so it finds
 * nothing in the cache, but leaves what it computes there. They are said once, window by window, as events without
 * a draw; a request that comes back is an ordinary one.
 *
 * The n choices of a request prefill once; when the prompt is through each becomes a sequence:
 * whole pages are shared, the last partial page and the state are copied.
 *
 * Prefill and decode apart. A request may have its prompt computed by another worker. Here (HANDOFF_RECEIVE), when enough
 * of it has to be computed, it is admitted with all that an ordinary one gets, leaves pages that are here *as prefilled* where
 * they are, and waits, beside the queue and in nobody's way, for the others, the state behind the prompt and the first
 * tokens; what has come counts as prefilled here. There (HANDOFF_SEND) it is an ordinary request of one token, whose plans
 * say what is to be shipped, and which keeps what it holds for that until it is told that all is through. Either may
 * fail at any time, and the request then begins again, there or here.
 *
 *     Submitted ──> Receiving ──> PrefillDone ...          ... PrefillDone ──> Shipping ──> Finished
 *         └─────────────┘ failed
 *
 * Plans depend on requests and configuration only, not on the order of free lists.
 */
#ifndef SCHEDULER_SCHEDULER_H
#define SCHEDULER_SCHEDULER_H

#include "base/err.h"
#include "prefix_cache/prefix_cache.h"
#include "prefix_cache/tiers.h"
#include "scheduler/plan.h"

struct scheduler;

struct scheduler_config {
	uint32_t page_tokens;  /* positions a KV page holds; for the engine a multiple of
				  CHUNK_TOKENS */
	uint32_t state_tokens; /* checkpoints lie at multiples of it, windows end there: a multiple
				  of page_tokens, for the engine page_tokens itself; 0: the model
				  has no recurrent state */
	uint32_t n_pages;      /* pages of the KV pool; ids 0 .. n_pages - 1 */
	uint32_t n_slots;      /* state slots, > max_seqs; ids 0 .. n_slots - 1; 0 without state */
	uint64_t page_bytes, slot_bytes, cache_bytes; /* as in struct prefix_cache_config */
	bool cache_disabled;			      /* nothing is remembered */
	bool refuse_decoded;			      /* only prefilled tokens are remembered */
	uint32_t max_waiting;	/* requests not yet admitted (retracted ones do not count); 0: no
				   limit */
	uint32_t max_plans_out; /* 1 or 2 */
	/* Content keys, when there are tiers below the device (else NULL): that of a page, from the one
	 * before. */
	void (*content_key)(const struct content_key *before, const int32_t *tokens, uint32_t n,
			    struct content_key *ret);
	uint32_t max_seqs;	     /* sequences that run at the same time (seats) */
	uint32_t max_prefill_tokens; /* prefill budget of a step, >= page_tokens */
	uint32_t max_model_len;	     /* prompt + generated tokens of a sequence */
	/* HANDOFF_RECEIVE: where fewer tokens of the prompt have to be computed that is done here. */
	uint32_t handoff_min_tokens;
	uint32_t vocab_size;
};

/* What two workers have to do with a request, of which one computes the prompt and the other one what follows. */
enum scheduler_handoff {
	HANDOFF_NONE,
	HANDOFF_RECEIVE, /* its prompt may be computed elsewhere: see scheduler_next_prepare */
	HANDOFF_SEND, /* its prompt is computed for another worker: plan.ships, scheduler_shipped */
};

/* A request as the scheduler sees it. Everything is copied by scheduler_submit. */
struct scheduler_request {
	const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
	uint32_t n_prompt;
	uint32_t max_tokens;	   /* >= 1; prompt + max_tokens <= max_model_len */
	uint32_t min_tokens;	   /* end tokens are not drawn before */
	uint32_t n_choices;	   /* 1 .. max_seqs */
	const int32_t *end_tokens; /* [n_end_tokens] a draw of one of them ends the choice */
	uint32_t n_end_tokens;
	const uint32_t *boundaries; /* [n_boundaries] rising token counts where a checkpoint is
				       likely to be wanted (turn ends) */
	uint32_t n_boundaries;
	int32_t priority; /* lower first */
	struct prefix_space space;
	struct content_key root_key; /* of the space, for page_keys */
	const struct content_key
		*page_keys;   /* [n_prompt / page_tokens], the first from the space; NULL: the
						tiers are not for this request */
	bool cache_disabled;  /* neither matches nor is remembered */
	bool prompt_logprobs; /* events with scores of all tokens of the prompt but the first */
	uint32_t n_prompt_logprobs;	/* then: best tokens reported beside each */
	enum scheduler_handoff handoff; /* HANDOFF_SEND: max_tokens is 1, prompt_logprobs false */
	/* HANDOFF_SEND: tokens that the other worker has and that are not shipped, a multiple of page_tokens < n_prompt. */
	uint32_t n_have;
	struct sampling sampling;
	void *user; /* comes back in events */
};

/* What the cache gave a request at its first admission. */
struct scheduler_hit {
	uint32_t n_cached; /* tokens of the prompt */
	enum prefix_miss miss;
	uint64_t step; /* of the plan that first computed any of it */
	/* Tokens of the prompt that came from another worker. Then n_cached are those that were not sent because they were
	 * here, and miss says why no more could be resumed. */
	uint32_t n_received;
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };

/* One token of one choice, in the order of plan.draws; or what is said of some tokens of the prompt: then draw is
 * NULL, and they come before anything else of their request. */
struct scheduler_event {
	uint64_t request;
	void *user;
	uint32_t choice;
	enum finish_reason finish; /* of this choice, with this token */
	bool request_finished; /* last event of the request: its id is gone, or (HANDOFF_SEND) it ships */
	struct scheduler_hit hit;	/* the same in every event of a request */
	const struct draw_result *draw; /* borrowed from the results given to commit, as are */
	const struct draw_result
		*scores; /* [n_scores] of the prompt's tokens from first_score on */
	uint32_t first_score, n_scores;
};

struct scheduler_stats {
	uint32_t
		running; /* sequences that hold a seat: prefilling, decoding, receiving, shipping */
	uint32_t waiting;		       /* requests not yet admitted, or retracted */
	uint64_t retractions, replayed_tokens; /* since the beginning */
	uint64_t prompt_tokens, cached_tokens; /* of requests admitted for the first time */
	uint64_t misses[PREFIX_MISS_N];	       /* such requests by reason */
	uint64_t loads_begun, loads_failed, stores_dropped; /* by requests; of those; items */
	uint64_t stores_waiting; /* items that scheduler_next_store has still to look at */
	uint64_t shared_waits;	 /* requests that waited for another one's prefill */
	uint64_t receives, receives_failed; /* prompts that were to come from elsewhere; of those */
	struct prefix_stats cache;
};

/* A page or state to be copied between device and what is below. */
struct scheduler_item {
	struct tier_item item; /* of a load without parent_origin */
	/* Of a store: */
	struct content_key parent;
	uint32_t depth;	       /* tokens to its end */
	const int32_t *tokens; /* [page_tokens] of a page, borrowed until the next plan or commit */
	uint32_t id;	       /* of a store: the page or slot to read */
	uint64_t request;      /* of a load: for scheduler_loaded */
	uint32_t index;
};

/* New. -EINVAL with a sentence for a configuration that cannot work. */
int scheduler_new(const struct scheduler_config *config, struct scheduler **ret,
		  struct err *e) MUST_CHECK;
void scheduler_free(struct scheduler *s);

/* Queues a request and gives it an id (never reused, never 0). -EINVAL: it can never run here, the
 * sentence has both numbers. -EAGAIN: max_waiting requests wait already. -ENOMEM. On failure
 * nothing changed. */
int scheduler_submit(struct scheduler *s, const struct scheduler_request *r, uint64_t *ret_id,
		     struct err *e) MUST_CHECK;

/* Ends a request, or one of its choices, whatever its state; unknown ids and choices are ignored
 * (the request may just have finished). There is no event, also not for draws of a plan that is
 * out, and a request whose last choice ends this way is gone. While a plan is out, what it uses is
 * freed at its commit. */
void scheduler_abort(struct scheduler *s, uint64_t id);
void scheduler_finish_choice(struct scheduler *s, uint64_t id, uint32_t choice);

/* The next step, or NULL when there is nothing to run (now: with a plan out, call again after its
 * commit). Not while max_plans_out plans are out. */
const struct plan *scheduler_plan(struct scheduler *s);

/* The oldest plan that is out has run: results [n_draws + n_scored_tokens of the plan]. Writes one
 * event a draw of a live choice, and one a score of a live request, to `events` (room for n_draws + n_scores, at
 * most twice max_seqs) and returns their number. */
uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events);

/* The plans that are out were not run (device error), and nothing that the device has is to be trusted: every request
 * that runs is aborted, also one that pauses or receives; one event each (of those that scheduler_abort had not ended already)
 * with draw = NULL and request_finished. What ships, and had its last event, is gone. Returns their number, at most
 * max_seqs. Waiting requests stay, without what they waited for from below; the cache is empty, and everything is free. */
uint32_t scheduler_fail(struct scheduler *s, struct scheduler_event *events);

/*
 * Tiers. What the index knows is told by the caller: what was there at the start, and what is gone.
 *
 * A store is taken when there is room for its bytes, and its reading queued on the device before the next plan is submitted.
 * What waits is kept for nothing: when the cache needs its page or slot it is dropped. Loads can be taken at any time. When the
 * bytes of one are at hand, scheduler_loaded says whether and where they are to be written: at once, before the next plan is
 * submitted. !good: they will never come, and the item is forgotten. Uses are the pages and states that requests resumed, in
 * the order in which they should count as used below; those that nobody takes are forgotten.
 */
struct tiers *scheduler_tiers(struct scheduler *s); /* borrowed; NULL without config.content_key */
void scheduler_tiers_ready(
	struct scheduler *s); /* from now on, what the index does not know is not there */
bool scheduler_next_store(struct scheduler *s, struct scheduler_item *ret);
bool scheduler_next_load(struct scheduler *s, struct scheduler_item *ret);
uint32_t scheduler_take_uses(struct scheduler *s, struct tier_item *ret, uint32_t max);
bool scheduler_loaded(struct scheduler *s, uint64_t request, uint32_t index, bool good,
		      uint32_t *ret_id);

/*
 * Prefill and decode apart: the worker that decodes. A plan admits requests whose prompts are to come from elsewhere; they are
 * asked for after it, also when it is NULL. Everything of one is borrowed, and holds, until scheduler_received or
 * scheduler_receive_failed is called for it, or it is aborted, or everything fails; nothing may be written after that. What
 * is written to the pages and the slot is queued on the device behind the plans that are out.
 */
struct scheduler_prepare {
	uint64_t request;
	void *user;
	/* What the other worker is to run: HANDOFF_SEND, without page_keys. Its choices are those up to the last that is
	 * alive, by their numbers. */
	struct scheduler_request ask;
	const uint32_t *pages; /* [n_pages] where the prompt's pages from ask.n_have on go */
	uint32_t n_pages;
	uint32_t slot; /* where the state behind the prompt goes; POOL_NONE: there are no states */
};

/* The next request that nobody has asked for; false: there is none. */
bool scheduler_next_prepare(struct scheduler *s, struct scheduler_prepare *ret);

/* All of the prompt's pages and its state are written, or queued to be before any later plan; draws
 * [ask.n_choices] are the first tokens of its choices, checked to be in the vocabulary. Writes an event for each choice that is
 * alive to `events` (room for ask.n_choices), as scheduler_commit does, and returns their number. Plans may be out. 0, and
 * nothing happens, when the request does not receive (any more). */
uint32_t scheduler_received(struct scheduler *s, uint64_t id, const struct draw_result *draws,
			    struct scheduler_event *events);

/* It will not come. The request gives everything back and queues in its old place: to be received again, from
 * elsewhere, or to be computed here. Nothing when it does not receive. */
void scheduler_receive_failed(struct scheduler *s, uint64_t id, bool again);

/* The worker that prefills: what the ships of a request named is not needed any more. Only after its last event, which leaves it
 * shipping: one that is to ship no more before that is aborted (as it may be after). */
void scheduler_shipped(struct scheduler *s, uint64_t id);

/* Forgets every cached prefix. -EBUSY while a request lives, and then nothing changed. */
int scheduler_flush(struct scheduler *s) MUST_CHECK;

/* For GET /cache; not to be changed. */
const struct prefix_cache *scheduler_cache(const struct scheduler *s);

/* A hash of everything in a plan but the ids of pages, slots and seats and what is drawn: for
 * comparing runs (tigon simulate). */
uint64_t plan_hash(const struct plan *p);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *ret);

/* Renames pages, slots and seats by permutations drawn from seed (tests: no answer may depend on
 * which of them a sequence gets). -EBUSY while a sequence runs. */
int scheduler_shuffle(struct scheduler *s, uint64_t seed) MUST_CHECK;

#endif
