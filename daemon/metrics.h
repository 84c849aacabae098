/*
 * The daemon's counters, and the text that Prometheus scrapes. A metric that vLLM has too has the same name here,
 * with the prefix tigon_ in place of vLLM's, so that a dashboard needs another prefix only.
 *
 * The tables of metrics.c list all metrics. A metric's values are either members of struct metrics_steps or atomic
 * members of struct metrics. The engine thread publishes a struct metrics_steps as a whole, so that its values in one
 * scrape belong together. Any thread may change an atomic member. Times are kept in nanoseconds and written in seconds.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/transfer/counters.h"
#include "engine/engine.h"
#include "engine/store/store.h"
#include "scheduler/scheduler.h"

enum metrics_time {
	METRICS_TTFT, /* body received -> first token */
	METRICS_ITL,  /* token -> next token of the same choice */
	METRICS_E2E,  /* body received -> last choice of a prompt ended */
	/* Body received -> planning of the first step that computes any of the prompt. If another worker computed the
	 * prompt, or at least LIVE_STEPS steps (daemon/steps/live.h) came after that first step: body received -> first
	 * token. Noted at the first token. */
	METRICS_QUEUE,
	METRICS_PREFILL, /* end of the time of METRICS_QUEUE -> first token */
	METRICS_DECODE,	 /* first token -> last choice of a prompt ended */
	METRICS_TIMES,
};

enum metrics_finish {
	METRICS_STOP,
	METRICS_LENGTH,
	METRICS_ABORT,
	METRICS_ERROR,
	METRICS_FINISHES
};

enum { METRICS_BUCKETS_MAX = 32, METRICS_CODES_MAX = 16 };

struct metrics_histogram {
	/* buckets[i] counts times of at most bound i that are above bound i - 1; the bucket behind the last bound
	 * counts times above all bounds. */
	_Atomic uint64_t buckets[METRICS_BUCKETS_MAX + 1];
	_Atomic uint64_t sum_ns;
};

/* Statistics of scheduler, cache, store and engine, all read at one moment. */
struct metrics_steps {
	struct scheduler_stats scheduler;
	struct store_stats store; /* zeros without host memory and disk below the device */
	struct engine_counters device;
	uint64_t pages, pages_used; /* KV pages; those in use: neither free nor evictable at once */
	uint64_t tree_tokens;	    /* tokens whose KV pages the prefix cache holds */
	uint64_t budget_bytes;	    /* the most that pages and states may use */
};

struct metrics {
	pthread_mutex_t lock;
	struct metrics_steps steps; /* guarded by lock */

	_Atomic uint64_t generation_tokens;
	_Atomic uint64_t not_finite; /* requests */
	_Atomic uint64_t malformed;  /* requests that libmicrohttpd refused by itself */
	struct transfer_counters transfer;
	/* long prompts that were computed here because no prefill worker could */
	_Atomic uint64_t prompts_missed;
	/* Choices that ended, by reason. All choices that are left when a call is aborted or fails count as one. */
	_Atomic uint64_t finished[METRICS_FINISHES];
	_Atomic uint64_t responses[METRICS_CODES_MAX];
	_Atomic uint64_t log_dropped; /* log_dropped() at the last scrape */
	struct metrics_histogram times[METRICS_TIMES];
};

/* Makes the lock. All other members of *m must be zeros. */
void metrics_init(struct metrics *m);

/* engine: copies *steps, for metrics_write. */
void metrics_publish(struct metrics *m, const struct metrics_steps *steps);

/* Adds a time to a histogram. */
void metrics_time(struct metrics *m, enum metrics_time which, uint64_t ns);

/* Counts an HTTP response by its status code. */
void metrics_response(struct metrics *m, unsigned status);

/* Appends all metrics in Prometheus' text format, version 0.0.4. */
void metrics_write(struct metrics *m, struct buf *out);
