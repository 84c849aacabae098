/*
 * The daemon's counters, and the text that Prometheus scrapes. A metric that vLLM has too has the same name here,
 * with the prefix tigon_ in place of vLLM's, so that a dashboard needs another prefix only.
 *
 * The tables of metrics.c list all metrics. A metric's values are members of struct metrics_steps, or atomic members of
 * struct metrics, or are read for each scrape. The engine thread publishes a struct metrics_steps as a whole, so that
 * its values in one scrape belong together. Any thread may change an atomic member. Durations are kept in nanoseconds
 * and written in seconds.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/transfer/counters.h"
#include "engine/engine.h"
#include "engine/store/store.h"
#include "protocol/openai/errors.h"
#include "scheduler/scheduler.h"

/* The histograms: distributions of durations, in nanoseconds, and of numbers. A choice has "ended" here by a stop
 * string, a stop token, or the last token that it was allowed. An end by an abort or a failure of the call is not
 * noted. */
enum metrics_distribution {
	METRICS_TTFT, /* body received -> first token */
	METRICS_ITL,  /* token -> next token of the same choice */
	METRICS_E2E,  /* body received -> last choice of a prompt ended */
	/* Body received -> planning of the first step that computes any of the prompt. If another worker computed the
	 * prompt, or at least LIVE_STEPS steps (daemon/steps/live.h) came after that first step: body received -> first
	 * token. Noted at the first token. */
	METRICS_QUEUE,
	METRICS_PREFILL,   /* end of the time of METRICS_QUEUE -> first token */
	METRICS_DECODE,	   /* first token -> last choice of a prompt ended */
	METRICS_INFERENCE, /* METRICS_PREFILL and METRICS_DECODE together */
	/* First token -> last token of a choice, divided by the number of tokens behind the first. Choices of fewer
	 * than two tokens are left out. */
	METRICS_TOKEN_TIME,
	/* The next four are noted when the last choice of a prompt has ended: tokens of the prompt, tokens of its
	 * longest choice, number of choices (n), and the most tokens that a choice was allowed. */
	METRICS_PROMPT_TOKENS,
	METRICS_MOST_TOKENS,
	METRICS_N,
	METRICS_MAX_TOKENS,
	METRICS_GENERATION_TOKENS, /* tokens of a choice, noted when it has ended */
	METRICS_STEP_TOKENS,	   /* tokens that a step computes, noted when it is planned */
	METRICS_DISTRIBUTIONS,
};

enum metrics_finish {
	METRICS_STOP,
	METRICS_LENGTH,
	METRICS_ABORT,
	METRICS_ERROR,
	METRICS_FINISHES
};

/* The names of these reasons in the log and in the label "finished_reason". */
extern const char *const metrics_finish_names[METRICS_FINISHES];

enum { METRICS_BUCKETS_MAX = 32, METRICS_CODES_MAX = 16, METRICS_ROUTES_MAX = 64 };

struct metrics_histogram {
	/* buckets[i] counts values of at most bound i that are above bound i - 1; the bucket behind the last bound
	 * counts values above all bounds. */
	_Atomic uint64_t buckets[METRICS_BUCKETS_MAX + 1];
	_Atomic uint64_t sum;
};

/* Statistics of scheduler, cache, store and engine, all read at one moment. */
struct metrics_steps {
	struct scheduler_stats scheduler;
	struct store_stats store; /* zeros without host memory and disk below the device */
	struct engine_counters device;
	uint64_t
		waiting; /* prompts that are not admitted: at the scheduler, or behind in their calls (live.h) */
	uint64_t pages, pages_used; /* KV pages; those in use: neither free nor evictable at once */
	uint64_t tree_tokens;	    /* tokens whose KV pages the prefix cache holds */
	uint64_t budget_bytes;	    /* the most bytes that pages and states may use */
	/* Constant from the first publication on. */
	uint64_t loaded;      /* always 1 */
	uint64_t page_tokens; /* tokens of a page */
	bool prefix_cache;    /* --prefix-cache is on */
};

struct metrics {
	/* set by main before the other threads start; borrowed */
	const char *model;	 /* the model's name; NULL: the metrics do not have it */
	const char *cache_dtype; /* number format of the KV cache */
	uint64_t started;	 /* seconds since 1970 */
	pthread_mutex_t lock;
	struct metrics_steps steps; /* guarded by lock */

	_Atomic uint64_t generation_tokens;
	_Atomic uint64_t embeddings,
		scored_texts; /* parts of calls (enum openai_task) that ended well */
	/* calls, and prompts for decode workers, that failed because logits were not finite */
	_Atomic uint64_t not_finite;
	_Atomic uint64_t
		billing_lines; /* requests with a billing line (openai/request.h), which was dropped */
	_Atomic uint64_t body_bytes;	   /* large request bodies in memory (server_count_body) */
	_Atomic uint64_t unread_bytes;	   /* memory of answers that clients have not read yet */
	_Atomic uint64_t constraint_bytes; /* memory of constraints (server_constraint_bounds) */
	/* responses that clients may ask for again, and their bytes (daemon/request/responses.h) */
	_Atomic uint64_t stored_responses, stored_response_bytes;
	_Atomic uint64_t unread;     /* answers that were ended because clients read too slowly */
	_Atomic uint64_t tls_failed; /* connections that ended within their handshake of TLS */
	_Atomic uint64_t
		tls_delayed; /* times that a handshake waited for its turn (daemon/http/handshakes.h) */
	_Atomic uint64_t malformed; /* requests that libmicrohttpd refused by itself */
	struct transfer_counters transfer;
	/* long prompts that were computed here because no prefill worker took prompts or handing them over failed */
	_Atomic uint64_t prompts_missed;
	/* Choices that ended, by reason. All choices that are left when a call is aborted or fails count as one.
	 * METRICS_ERROR counts only failures with HTTP status 500 or more. */
	_Atomic uint64_t finished[METRICS_FINISHES];
	/* the paths that metrics_response was given, in the order in which they came; NULL: not used yet */
	_Atomic(const char *) routes[METRICS_ROUTES_MAX];
	_Atomic uint64_t responses[METRICS_ROUTES_MAX][METRICS_CODES_MAX];
	_Atomic uint64_t errors[OPENAI_ERRORS]; /* by openai_error_number */
	struct metrics_histogram histograms[METRICS_DISTRIBUTIONS];
};

/* Makes the lock, and notes the time as that of the program's start. All other members of *m must be zeros. */
void metrics_init(struct metrics *m);

/* engine: copies *steps, for metrics_write. */
void metrics_publish(struct metrics *m, const struct metrics_steps *steps);

/* Adds a value to a histogram: a duration in nanoseconds, or a number. */
void metrics_observe(struct metrics *m, enum metrics_distribution which, uint64_t value);

/* Counts an HTTP response by its endpoint's path, which must be static, and its status code. */
void metrics_response(struct metrics *m, const char *route, unsigned status);

/* Counts an error that a client gets, as an HTTP response or in its stream, by the code of its struct err. */
void metrics_error(struct metrics *m, int code);

/* Appends all metrics in Prometheus' text format, version 0.0.4. */
void metrics_write(struct metrics *m, struct buf *out);
