/*
 * The daemon's counters, and the text that Prometheus scrapes. Names follow vLLM's under the prefix tigon_, so that
 * dashboards port by a prefix swap.
 *
 * A metric is a row of the table in metrics.c. Its value is a member of struct metrics_steps, which the engine thread
 * publishes as a whole, so that the values of one scrape belong together; or an atomic counter of struct metrics, to which
 * any thread adds. Times are kept in nanoseconds and written in seconds.
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
	METRICS_E2E,  /* body received -> last token */
	/* body received -> first step that computes any of the prompt; only requests that drew a token */
	METRICS_QUEUE,
	METRICS_PREFILL, /* start of that step -> first token */
	METRICS_DECODE,	 /* first token -> last token */
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
	/* Not cumulative; the last one: above all bounds. */
	_Atomic uint64_t buckets[METRICS_BUCKETS_MAX + 1];
	_Atomic uint64_t sum_ns;
};

/* Statistics of scheduler, cache, store and engine after a step or a message. */
struct metrics_steps {
	struct scheduler_stats scheduler;
	struct store_stats store; /* zeros without host memory and disk below the device */
	struct engine_counters device;
	uint64_t pages, pages_used; /* KV pages in use: neither free nor evictable at once */
	uint64_t tree_tokens;	    /* tokens whose KV pages the prefix cache holds */
	uint64_t budget_bytes;	    /* the most that pages and states may use */
};

struct metrics {
	pthread_mutex_t lock;
	struct metrics_steps steps; /* guarded by lock */

	_Atomic uint64_t generation_tokens;
	struct transfer_counters transfer;
	_Atomic uint64_t prompts_missed; /* prompts computed here because no prefill worker could */
	_Atomic uint64_t finished[METRICS_FINISHES]; /* choices; an aborted request counts once */
	_Atomic uint64_t responses[METRICS_CODES_MAX];
	struct metrics_histogram times[METRICS_TIMES];
};

/* *m must be zeros before. */
void metrics_init(struct metrics *m);

/* engine: copies *steps. */
void metrics_publish(struct metrics *m, const struct metrics_steps *steps);

void metrics_time(struct metrics *m, enum metrics_time which, uint64_t ns);

/* Counts an HTTP response by its status code. */
void metrics_response(struct metrics *m, unsigned status);

/* Appends the exposition text (version 0.0.4). */
void metrics_write(struct metrics *m, struct buf *out);
