/* The scheduler's rules, naively: requests in one flat array, everything computed anew when it is needed. The model
 * (scheduler_model.c) makes every call of the real scheduler here too, and compares the results.
 *
 * Memory. The rules do not predict which cached prefix is evicted when memory is short, and need not. Whether memory
 * can be had depends only on memory *in use*, that is on how many different pages and slots sequences and plans hold
 * or read; these are counted here, by id. The hit of a request is read off a copy of the cache from before the plan.
 * If prefixes were evicted while the plan was made, several hits may be right; the model tries these answers in turn
 * (rules.tried). */
#pragma once

#include "scheduler/scheduler.h"
#include "tests/cache_mirror.h"

enum {
	RULES_LEN = 80,	      /* longest sequence */
	RULES_SEQS = 6,	      /* most seats */
	RULES_PAGES = 96,     /* most pages */
	RULES_SLOTS = 32,     /* most slots */
	RULES_REQUESTS = 14,  /* alive at the same time */
	RULES_WANTED = 4,     /* most states that are wanted of a request at one time */
	RULES_EVICTED = 4096, /* size of the hash set of evicted pages; half is used */
	RULES_TRIES = 16,     /* questions of a plan (rules.tried) */
};

/* A choice. It holds memory from its admission until it is retracted, or its prompt does not come, or it has ended and
 * neither a plan that is out nor a ship uses the memory. */
struct rule_choice {
	bool ended, held, forked;
	uint32_t n_generated; /* known tokens of `generated` */
	uint32_t n_drawing;   /* tokens behind these, which plans that are out draw */
	int32_t generated[RULES_LEN];
	uint8_t decoded[RULES_LEN]; /* [n_planned] 1: a decode row computes the position */
	uint32_t n_planned;
	uint64_t last_plan;
	uint64_t order; /* place among the decoding sequences; 0: it is none of them */
	uint32_t first_page, n_pages, n_published;
	uint32_t pages[RULES_LEN]; /* ids; POOL_NONE: not seen yet */
	uint32_t slot;		   /* id of its own slot; POOL_NONE: not seen yet */
	uint32_t source;	   /* while pinned: the slot that the next row reads */
	bool pinned;
	bool drawn_before;	 /* it has had a draw since its admission */
	uint32_t seat;		 /* POOL_NONE: not seen yet */
	const uint32_t *allowed; /* as scheduler_allow was called last, or that of the request */
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
	/* the prefix with which it began last was not prefilled throughout */
	bool unclean;
	bool learn; /* its next row tells how its prefix was computed */
	bool leads;
	uint64_t order; /* place by the time of its admission, later by that of its prompt's end */
	int trunk;	/* index of the choice; -1: none */
	uint32_t n_computed; /* tokens of the prompt that are cached or committed */
	/* branch: the position at which the prompt leaves the prefixes that the cache knows, and a state is wanted; 0:
	 * none. branches: the positions that may be right, until a row of the plan tells which is. */
	uint32_t branch, branches[MIRROR_ENDS], n_branches;
	/* if log-probabilities of the prompt are wanted: its tokens that are planned */
	uint32_t n_scored;
	uint32_t asked[RULES_WANTED], n_asked; /* states that followers wait for */
	uint32_t span_start, span_end;	       /* as in struct request */
	/* Of a prompt that comes from another worker: the first `have` tokens are cached here and do not come. */
	uint32_t have;
	bool local; /* it waited for its prompt from another worker in vain; now it is computed here */
	bool prepared; /* scheduler_next_prepare has handed its prompt over */
	bool ships; /* it is over, and its trunk keeps its memory until the other worker has read it */
	/* [n_shipped] ids of the prompt's pages that ships named; POOL_NONE: no ship named the page */
	uint32_t ship_pages[RULES_LEN], n_shipped;
	uint32_t ship_slot;
	struct scheduler_hit hit;
	/* bits of the reasons (enum prefix_miss) at all places where q may begin so that its prompt comes from
	 * elsewhere; the model cannot tell which of these places it was */
	uint32_t receive_misses;
	uint32_t misses; /* bits of the reasons that are right */
	struct rule_choice choices[RULES_SEQS];
};

struct rule_row {
	uint32_t q, c; /* indexes of the request and of its choice */
	uint32_t start, n_tokens;
	bool decode, learn;
	bool pinned; /* it reads `source`, not its own slot */
	uint32_t source;
	uint32_t own; /* the slot that it should write; POOL_NONE: not seen yet */
	uint32_t dst; /* the slot that it wrote */
	bool handover;
	uint32_t n_snapshots, snapshots[SNAPSHOTS_MAX], snapshot_slots[SNAPSHOTS_MAX];
	/* the number of its tokens for which the log-probability of the next token is wanted */
	uint32_t n_scores, first_score; /* first_score: number of the first of these next tokens */
	bool pools, ends; /* hidden states are added to a sum; a request that draws nothing ends */
	uint32_t first_ship, n_ships; /* pages for another worker */
	bool ships_state;
	/* [n_draws] the choices that draw, and the indexes of the drawn tokens in `generated` */
	uint32_t n_draws, draws[RULES_SEQS], positions[RULES_SEQS];
	bool counts[RULES_SEQS]; /* [n_draws] the seat is reset before this draw */
};

struct rule_plan {
	uint32_t n_rows, n_page_copies, n_state_copies;
	struct rule_row rows[RULES_SEQS];
};

/* Names (mirror_name) of evicted pages and states. states: names, with origin, of pages whose state was evicted. pages:
 * a hash set of the names, without origin, of evicted pages. */
struct rule_marks {
	uint64_t states[256];
	uint32_t n_states, n_pages;
	uint64_t pages[RULES_EVICTED]; /* 0: none */
};

void rules_mark_page(struct rule_marks *m, uint64_t name);

struct rules {
	struct scheduler_config config;
	uint32_t pace; /* as in scheduler_pace; 0: no limit was set */
	struct prefix_cache_config cache;
	uint32_t align;
	struct rule_request requests[RULES_REQUESTS];
	int head;
	uint64_t planned, committed, orders;
	/* the sequences that can decode wait for each other in the plan that is being made; those that compute tokens
	 * again join a prompt's rows */
	bool gathers;
	uint64_t making; /* number of the plan that is being made; if none is, `planned` */
	struct rule_plan plans[2]; /* [number % 2] */
	uint64_t retractions, replayed_tokens, prompt_tokens, cached_tokens, shared_waits;
	uint64_t receives, receives_failed;
	uint64_t admissions_refused, paused, awaited, gathered, joined, grown, alone, cut_prompts,
		held_back, gave_way;
	const struct mirror *before, *after; /* the cache before and after the plan */
	const struct rule_marks *evicted;
	/* Of question number n of this plan (where an admission begins, or which branch is right): the answer that is
	 * tried, and the number of answers. */
	uint32_t tried[RULES_TRIES], of[RULES_TRIES], n_tried;
	uint32_t new_slots; /* slots that this plan takes and whose ids are not known yet */
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

/* Return the number of pages, and of slots, in use. */
uint32_t rules_pages(const struct rules *r);
uint32_t rules_slots(const struct rules *r);

/* Sets seen [n_slots] for the slots in use that are no seat's own, as far as their ids are known. Each seat has one
 * slot of its own in addition. */
void rules_mark_slots(const struct rules *r, bool *seen);

uint32_t rules_seats(const struct rules *r);

/* Returns the number of pages that all choices of a request need at their longest. */
uint32_t rules_pages_at_most(const struct rules *r, const struct scheduler_request *q);

/* Makes the next plan, which is then plans[planned % 2]. False: there is none. */
bool rules_plan(struct rules *r);

/* The consequence of a draw of choice c of request q (indexes), or (undrawn) of the end of a request that draws
 * nothing. event: there is an event; false: the choice had ended before. over: all choices of the request have
 * ended. */
struct rule_event {
	uint32_t q, c;
	bool event, over, undrawn;
	enum finish_reason finish;
};

/* Commits the oldest plan that is out, whose drawn tokens are in `generated` of the choices. Writes the consequence of
 * each draw, and of each end of a request that draws nothing, to `out`, and returns their number. */
uint32_t rules_commit(struct rules *r, struct rule_event out[RULES_SEQS]);

/* Ends all plans that are out, as plans that did not run, and with them all requests that run. Writes the indexes of
 * these requests to `out` in the order of their events. Returns their number. */
uint32_t rules_fail(struct rules *r, uint32_t out[2 * RULES_SEQS]);

void rules_abort(struct rules *r, struct rule_request *q);
void rules_finish_choice(struct rules *r, struct rule_request *q, uint32_t c);

/* rules_received: the prompt for which q waited has come, with the first token of each choice in `tokens`; writes
 * events like rules_commit, and returns their number. rules_receive_failed: the prompt does not come; again: q may wait
 * for it once more. rules_shipped: the other worker has read the prompt of q. */
uint32_t rules_received(struct rules *r, struct rule_request *q, const int32_t *tokens,
			struct rule_event out[RULES_SEQS]);
void rules_receive_failed(struct rules *r, struct rule_request *q, bool again);
void rules_shipped(struct rules *r, struct rule_request *q);

/* Writes the origins of the first n_pages pages of a choice, by the rules. */
void rules_origins(const struct rules *r, const struct rule_choice *c, uint32_t n_pages,
		   uint64_t *out);
