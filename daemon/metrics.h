/*
 * What the daemon counts, and the text that Prometheus scrapes. Names follow vLLM's under the
 * prefix tigon_, so that dashboards port by a prefix swap.
 *
 * Every member is atomic and any thread may add to it; a scrape sees each value at some moment, not
 * all at the same one. Times are kept in nanoseconds and written in seconds.
 */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "prefix_cache/prefix_cache.h"

enum metrics_time {
	METRICS_TTFT,  /* body received -> first token */
	METRICS_ITL,   /* token -> next token of the same choice */
	METRICS_E2E,   /* body received -> last token */
	METRICS_QUEUE, /* body received -> first step that computes any of it; requests with a token
			*/
	METRICS_PREFILL, /* that step's start -> first token */
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

struct metrics {
	_Atomic uint64_t running, waiting; /* gauges, set by the engine thread */
	_Atomic uint64_t pages_used, pages_total;
	_Atomic uint64_t prompt_tokens, generation_tokens;
	/* The prefix cache and the scheduler, as their statistics say it; see struct
	 * scheduler_stats. */
	_Atomic uint64_t cached_tokens, misses[PREFIX_MISS_N];
	_Atomic uint64_t retractions, replayed_tokens, shared_waits;
	_Atomic uint64_t evicted_pages, evicted_slots, evicted_unhit_slots;
	_Atomic uint64_t cache_nodes, cache_tokens, cache_slots, cache_bytes, cache_budget;
	/* Below the device; see struct cache_store_stats. */
	_Atomic uint64_t host_items, host_bytes, host_hits, host_evicted;
	_Atomic uint64_t disk_items, disk_bytes, disk_hits, disk_evicted;
	_Atomic uint64_t disk_queued_items, disk_written_items, disk_written_bytes;
	_Atomic uint64_t disk_unwritten_items, disk_damaged;
	_Atomic uint64_t loads_begun, loads_failed, stores_dropped;
	/* Prefill and decode apart: peers that can be asked, or that came; prompts, and the bytes of their pages and states */
	_Atomic uint64_t peers, prompts_sent, prompts_sent_bytes, prompts_received,
		prompts_received_bytes;
	_Atomic uint64_t prompts_failed, prompts_missed;
	_Atomic uint64_t finished[METRICS_FINISHES]; /* choices; an aborted request counts once */
	_Atomic uint64_t responses[METRICS_CODES_MAX];
	_Atomic uint64_t steps, launches, bytes_to_device, bytes_from_device;
	struct metrics_histogram times[METRICS_TIMES];
};

void metrics_time(struct metrics *m, enum metrics_time which, uint64_t ns);

/* Counts an HTTP response by its status code. */
void metrics_response(struct metrics *m, unsigned status);

/* Appends the exposition text (version 0.0.4). */
void metrics_write(const struct metrics *m, struct buf *out);

#endif
