/* The scheduler's rules, naively: requests in one flat array, everything computed anew when it is needed. The model
 * (scheduler_model.c) passes it every call of the real scheduler and compares.
 *
 * Memory. The rules do not predict which cached prefix is evicted when memory is short, and need not. Whether memory
 * can be had depends only on memory *in use*, that is on how many different pages and slots sequences and plans hold
 * or read; these are counted here, by id. The hit of a request is read off a copy of the cache from before the plan.
 * If prefixes were evicted while the plan was made there may be several answers, which the model tries in turn
 * (rules.tried). */
#pragma once

#include "scheduler/scheduler.h"
#include "tests/cache_mirror.h"

enum {
	RULES_LEN = 80,	     /* longest sequence */
	RULES_SEQS = 6,	     /* most seats */
	RULES_PAGES = 96,    /* most pages */
	RULES_SLOTS = 32,    /* most slots */
	RULES_REQUESTS = 14, /* alive at the same time */
	RULES_WANTED = 4,
	RULES_EVICTED = 4096, /* size of the hash set of evicted pages; half is used */
	RULES_TRIES = 16,     /* questions of a plan (rules.tried) */
};

/* A choice. It holds memory from its admission until it is retracted, or its prompt does not come, or it has ended and
 * neither a plan that is out nor a ship uses the memory. */
struct rule_choice {
	bool ended, held, forked;
	uint32_t n_generated; /* known */
	uint32_t n_drawing;   /* drawn in plans that are out: generated[n_generated ...] */
	int32_t generated[RULES_LEN];
	uint8_t decoded[RULES_LEN]; /* of each position computed: by a decode row? */
	uint32_t n_planned;
	uint64_t last_plan;
	uint64_t order; /* among the decoding sequences; 0: not one */
	uint32_t first_page, n_pages, n_published;
	uint32_t pages[RULES_LEN]; /* ids; POOL_NONE: not seen yet */
	uint32_t slot;		   /* likewise */
	uint32_t source;	   /* while pinned: the slot that the next row reads */
	bool pinned;
	bool drawn_before; /* has had a first draw since its admission */
	uint32_t seat;	   /* POOL_NONE: not seen yet */
};

enum rule_place { RULE_QUEUED, RULE_FOLLOWS, RULE_RECEIVES, RULE_ADMITTED };

struct rule_request {
	bool used;
	uint64_t id, twin_id;
	struct scheduler_request r;
	int32_t prompt[RULES_LEN + 8], ends[2];
	uint32_t boundaries[8];
	enum rule_place place;
	uint32_t leader, following_to;
	bool admitted, retracted, clean; /* clean: its first hit was prefilled throughout */
	/* the prefix with which it began this time was not all prefilled */
	bool unclean;
	bool learn; /* how its prefix was computed is read off its next row */
	bool leads;
	uint64_t order;	     /* of admission; then of the prompt's end */
	int trunk;	     /* -1: none */
	uint32_t n_computed; /* of the trunk */
	/* Where the prompt left the known prefixes; 0: nowhere. In doubt until a row tells. */
	uint32_t branch, branches[MIRROR_ENDS], n_branches;
	uint32_t n_scored; /* tokens of the prompt, where its log-probabilities are wanted */
	uint32_t asked[RULES_WANTED], n_asked; /* states that followers wait for */
	/* Of a prompt that comes from another worker: the first `have` tokens are cached here and do not come. */
	uint32_t have;
	bool local;    /* could have been received, and did not come */
	bool prepared; /* the prompt of a receiving request was handed over */
	bool ships;    /* over, and its trunk is kept */
	uint32_t ship_pages[RULES_LEN],
		n_shipped; /* [n_shipped] ids that ships named, by index in the prompt; POOL_NONE: none */
	uint32_t ship_slot;
	struct scheduler_hit hit;
	/* reasons of all beginnings with which its prompt would come from elsewhere; they cannot be told apart */
	uint32_t receive_misses;
	uint32_t misses; /* bits of the reasons that would be right */
	struct rule_choice choices[RULES_SEQS];
};

struct rule_row {
	uint32_t q, c;
	uint32_t start, n_tokens;
	bool decode, learn;
	bool pinned; /* it reads `source`, not its own slot */
	uint32_t source;
	uint32_t own; /* the slot that it should write; POOL_NONE: not seen yet */
	uint32_t dst; /* the slot that it wrote */
	bool handover;
	uint32_t n_snapshots, snapshots[SNAPSHOTS_MAX], snapshot_slots[SNAPSHOTS_MAX];
	/* number of its tokens behind which the log-probability of the next one is wanted */
	uint32_t n_scores;
	uint32_t first_ship, n_ships; /* pages for another worker */
	bool ships_state;
	uint32_t n_draws, draws[RULES_SEQS], positions[RULES_SEQS]; /* choices */
	bool counts[RULES_SEQS];				    /* the seat is reset for it */
};

struct rule_plan {
	uint32_t n_rows, n_page_copies, n_state_copies;
	struct rule_row rows[RULES_SEQS];
};

/* Evicted names: pages whose state was evicted, and evicted pages (those without origin; a hash set). */
struct rule_marks {
	uint64_t states[256];
	uint32_t n_states, n_pages;
	uint64_t pages[RULES_EVICTED]; /* 0: none */
};

void rules_mark_page(struct rule_marks *m, uint64_t name);

struct rules {
	struct scheduler_config config;
	struct prefix_cache_config cache;
	uint32_t align;
	struct rule_request requests[RULES_REQUESTS];
	int head;
	uint64_t planned, committed, orders;
	uint64_t making;	   /* number of the plan that is being made; else as `planned` */
	struct rule_plan plans[2]; /* number % 2 */
	uint64_t retractions, replayed_tokens, prompt_tokens, cached_tokens, shared_waits;
	uint64_t receives, receives_failed;
	uint64_t admissions_refused, paused, alone, cut_prompts, held_back, gave_way;
	const struct mirror *before, *after; /* of the plan that is made */
	const struct rule_marks *evicted;
	/* Of the n-th question of this plan (where an admission begins, which branch is taken): the answer that is
	 * tried, and the number of answers. */
	uint32_t tried[RULES_TRIES], of[RULES_TRIES], n_tried;
	uint32_t new_slots; /* taken in this plan; their ids are not known yet */
};

/* Loops over the requests in `rules` that are used, and over all choices of a request, also ended ones. */
#define each_request(q, rules)                                        \
	for (__typeof__(&(rules)->requests[0]) q = (rules)->requests; \
	     q < (rules)->requests + RULES_REQUESTS; q++)             \
		if (q->used)
#define each_choice(c, q)                                                                        \
	for (__typeof__(&(q)->choices[0]) c = (q)->choices; c < (q)->choices + (q)->r.n_choices; \
	     c++)

bool rules_over(const struct rule_request *q);
bool rules_holds(const struct rule_request *q);

/* Pages and slots in use. */
uint32_t rules_pages(const struct rules *r);
uint32_t rules_slots(const struct rules *r);

/* The known slots: beside these each seat has a slot of its own. [n_slots] */
void rules_mark_slots(const struct rules *r, bool *seen);

uint32_t rules_seats(const struct rules *r);

/* Pages that all choices of a request need at their longest. */
uint32_t rules_pages_at_most(const struct rules *r, const struct scheduler_request *q);

/* Makes the next plan in plans[planned % 2]; false: there is none. */
bool rules_plan(struct rules *r);

/* The oldest plan has ended, with the tokens in `generated`. Returns the number of its draws; `out` says of each
 * whether an event follows, and of which kind. */
struct rule_event {
	uint32_t q, c;
	bool event, over;
	enum finish_reason finish;
};
uint32_t rules_commit(struct rules *r, struct rule_event out[RULES_SEQS]);

/* The plans that are out never ran, and all requests that run end by that. Returns their number; `out` has them in
 * order. */
uint32_t rules_fail(struct rules *r, uint32_t out[2 * RULES_SEQS]);

void rules_abort(struct rules *r, struct rule_request *q);
void rules_finish_choice(struct rules *r, struct rule_request *q, uint32_t c);

/* The prompt for which q waited has come / will not come. Events as of a commit. */
uint32_t rules_received(struct rules *r, struct rule_request *q, const int32_t *tokens,
			struct rule_event out[RULES_SEQS]);
void rules_receive_failed(struct rules *r, struct rule_request *q, bool again);
void rules_shipped(struct rules *r, struct rule_request *q);

/* The origins of the first n_pages pages of a choice, by the rules. */
void rules_origins(const struct rules *r, const struct rule_choice *c, uint32_t n_pages,
		   uint64_t *out);
