/*
 * The scheduler: which tokens of which requests run in the next step. Pure: no device, no I/O, no
 * clock; a fuzzer or a simulation drives it as the daemon does. One thread.
 *
 *     submit ──> Submitted ──> Prefilling ──> Decoding ──> Finished
 *                    └────────────┴── abort ──┴──> Aborted
 *
 * Every step:  plan = scheduler_plan(s);  the engine runs it;  scheduler_commit(s, results).
 * Prefill rows come first, then one row for every decoding sequence (mixed batches). The prefill
 * budget counts prompt tokens only. One unfinished prefill is head of line: no other prompt may
 * begin before it is through, except in what is left of its step's budget when it ends.
 *
 * Pages and slots: admission is a transaction on what is free. It reserves what the request can
 * need at most (prompt + max_tokens for every choice), so that an admitted request always completes.
 *
 * The n choices of a request prefill once; when the prompt is through each becomes a sequence: whole
 * pages are shared, the last partial page and the state are copied.
 *
 * Plans depend on requests and configuration only, not on the order of free lists.
 */
#ifndef SCHEDULER_SCHEDULER_H
#define SCHEDULER_SCHEDULER_H

#include "base/err.h"
#include "scheduler/plan.h"

struct scheduler;

struct scheduler_config {
	uint32_t page_tokens;	     /* positions a KV page holds, a multiple of CHUNK_TOKENS */
	uint32_t n_pages;	     /* pages of the KV pool; ids 0 .. n_pages - 1 */
	uint32_t n_slots;	     /* state slots, >= max_seqs; ids 0 .. n_slots - 1 */
	uint32_t max_seqs;	     /* sequences that run at the same time (seats) */
	uint32_t max_prefill_tokens; /* prefill budget of a step, >= page_tokens */
	uint32_t max_model_len;	     /* prompt + generated tokens of a sequence */
	uint32_t vocab_size;
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
	struct sampling sampling;
	void *user; /* comes back in events */
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };

/* One token of one choice, in the order of plan.draws. */
struct scheduler_event {
	uint64_t request;
	void *user;
	uint32_t choice;
	enum finish_reason finish;	/* of this choice, with this token */
	bool request_finished;		/* last event of the request: its id is gone */
	const struct draw_result *draw; /* borrowed from the results given to commit */
};

struct scheduler_stats {
	uint32_t running; /* sequences prefilling or decoding: the seats that are taken */
	uint32_t waiting; /* requests not yet admitted */
	uint32_t free_pages, free_slots;
};

/* New. -EINVAL with a sentence for a configuration that cannot work. */
int scheduler_new(const struct scheduler_config *config, struct scheduler **ret,
		  struct err *e) MUST_CHECK;
void scheduler_free(struct scheduler *s);

/* Queues a request and gives it an id (never reused, never 0). -EINVAL: it can never run here, the
 * sentence has both numbers. -ENOMEM. On failure nothing changed. */
int scheduler_submit(struct scheduler *s, const struct scheduler_request *r, uint64_t *ret_id,
		     struct err *e) MUST_CHECK;

/* Ends a request, or one of its choices, whatever its state; unknown ids and choices are ignored (the
 * request may just have finished). There is no event, also not for draws of a plan that is out, and a
 * request whose last choice ends this way is gone. While a plan is out, what it uses is freed at its
 * commit. */
void scheduler_abort(struct scheduler *s, uint64_t id);
void scheduler_finish_choice(struct scheduler *s, uint64_t id, uint32_t choice);

/* The next step, or NULL when there is nothing to run. Not while a plan is out. */
const struct plan *scheduler_plan(struct scheduler *s);

/* The plan that is out has run: results [n_draws of the plan]. Writes one event a draw of a live
 * choice to `events` (room for n_draws) and returns their number. */
uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events);

/* The plan that is out was not run (device error): every request in it is aborted; one event each
 * (of those that scheduler_abort had not ended already) with draw = NULL and request_finished.
 * Returns their number, at most n_rows of the plan. Waiting requests stay. */
uint32_t scheduler_fail(struct scheduler *s, struct scheduler_event *events);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *ret);

/* Renames pages, slots and seats by permutations drawn from seed (tests: no answer may depend on which
 * of them a sequence gets). -EBUSY while a sequence runs. */
int scheduler_shuffle(struct scheduler *s, uint64_t seed) MUST_CHECK;

#endif
