#include "daemon/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define UNIT 1e9

/* Upper bounds in seconds. vLLM's, with finer ones below: a small model's token takes under a
 * millisecond. */
static const double long_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
				     0.1,   0.25,   0.5,   0.75, 1,    2.5,  5,	   7.5,
				     10,    20,	    40,	   80,	 160,  640,  2560};
static const double token_bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
				      0.1,    0.15,  0.2,    0.3,   0.4,  0.5,	 0.75, 1,
				      2.5,    5,     7.5,    10,    20,	  40,	 80};

static const struct {
	const char *name, *help;
	const double *bounds;
	size_t n;
} times[METRICS_TIMES] = {
	[METRICS_TTFT] = {"time_to_first_token_seconds", "Body received to first token.",
			  long_bounds, ARRAY_SIZE(long_bounds)},
	[METRICS_ITL] = {"inter_token_latency_seconds", "Between two tokens of a choice.",
			 token_bounds, ARRAY_SIZE(token_bounds)},
	[METRICS_E2E] = {"e2e_request_latency_seconds", "Body received to last token.", long_bounds,
			 ARRAY_SIZE(long_bounds)},
	[METRICS_QUEUE] = {"request_queue_time_seconds", "Body received to admission.", long_bounds,
			   ARRAY_SIZE(long_bounds)},
	[METRICS_PREFILL] = {"request_prefill_time_seconds", "Admission to first token.",
			     long_bounds, ARRAY_SIZE(long_bounds)},
	[METRICS_DECODE] = {"request_decode_time_seconds", "First token to last token.",
			    long_bounds, ARRAY_SIZE(long_bounds)},
};

static_assert(ARRAY_SIZE(long_bounds) <= METRICS_BUCKETS_MAX, "buckets");
static_assert(ARRAY_SIZE(token_bounds) <= METRICS_BUCKETS_MAX, "buckets");

static const char *const finishes[METRICS_FINISHES] = {
	[METRICS_STOP] = "stop",
	[METRICS_LENGTH] = "length",
	[METRICS_ABORT] = "abort",
	[METRICS_ERROR] = "error",
};

/* The codes that the daemon sends; the last one stands for any other. */
static const unsigned codes[] = {200, 400, 401, 403, 404, 405, 409, 413, 415, 429, 500, 503, 0};
static_assert(ARRAY_SIZE(codes) <= METRICS_CODES_MAX, "codes");

static uint64_t load(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

void metrics_time(struct metrics *m, enum metrics_time which, uint64_t ns)
{
	struct metrics_histogram *h = &m->times[which];
	size_t i = 0;

	while (i < times[which].n && (double)ns > times[which].bounds[i] * UNIT)
		i++;
	atomic_fetch_add_explicit(&h->buckets[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

void metrics_response(struct metrics *m, unsigned status)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(codes) && codes[i] != status)
		i++;
	atomic_fetch_add_explicit(&m->responses[i], 1, memory_order_relaxed);
}

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP tigon_%s %s\n# TYPE tigon_%s %s\n", name, help, name, type);
}

static void single(struct buf *out, const char *name, const char *type, const char *help,
		   const _Atomic uint64_t *value)
{
	head(out, name, type, help);
	buf_printf(out, "tigon_%s %" PRIu64 "\n", name, load(value));
}

static void write_times(const struct metrics *m, struct buf *out)
{
	for (size_t t = 0; t < METRICS_TIMES; t++) {
		const struct metrics_histogram *h = &m->times[t];
		uint64_t sum = 0;

		head(out, times[t].name, "histogram", times[t].help);
		for (size_t i = 0; i < times[t].n; i++) {
			sum += load(&h->buckets[i]);
			buf_printf(out, "tigon_%s_bucket{le=\"%g\"} %" PRIu64 "\n", times[t].name,
				   times[t].bounds[i], sum);
		}
		sum += load(&h->buckets[times[t].n]);
		buf_printf(out, "tigon_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", times[t].name, sum);
		buf_printf(out, "tigon_%s_sum %.9f\n", times[t].name,
			   (double)load(&h->sum_ns) / UNIT);
		buf_printf(out, "tigon_%s_count %" PRIu64 "\n", times[t].name, sum);
	}
}

static void write_cache(const struct metrics *m, struct buf *out)
{
	single(out, "prefix_cache_queries_total", "counter",
	       "Prompt tokens of admitted requests, looked for in the prefix cache.",
	       &m->prompt_tokens);
	single(out, "prefix_cache_hits_total", "counter", "Of them, those that were found there.",
	       &m->cached_tokens);
	head(out, "prefix_cache_misses_total", "counter",
	     "Admitted requests by the reason why they did not hit further.");
	for (int i = PREFIX_MISS_NONE + 1; i < PREFIX_MISS_N; i++) {
		const char *reason = prefix_miss_name((enum prefix_miss)i);

		buf_printf(out, "tigon_prefix_cache_misses_total{reason=\"%s\"} %" PRIu64 "\n",
			   reason, load(&m->misses[i]));
	}
	single(out, "prefix_cache_shared_waits_total", "counter",
	       "Requests that waited for another one to compute what they share.",
	       &m->shared_waits);
	single(out, "prefix_cache_nodes", "gauge", "Nodes of the tree.", &m->cache_nodes);
	single(out, "prefix_cache_tokens", "gauge", "Tokens whose KV pages the tree holds.",
	       &m->cache_tokens);
	single(out, "prefix_cache_states", "gauge", "Recurrent states that the tree holds.",
	       &m->cache_slots);
	single(out, "prefix_cache_evicted_pages_total", "counter", "KV pages evicted.",
	       &m->evicted_pages);
	single(out, "prefix_cache_evicted_states_total", "counter", "Recurrent states evicted.",
	       &m->evicted_slots);
	single(out, "prefix_cache_evicted_unhit_states_total", "counter",
	       "Of them, those that were never hit.", &m->evicted_unhit_slots);
	single(out, "cache_used_bytes", "gauge", "KV pages and states in use, running and cached.",
	       &m->cache_bytes);
	single(out, "cache_budget_bytes", "gauge", "What they may use.", &m->cache_budget);
	single(out, "num_preemptions_total", "counter",
	       "Requests retracted because memory ran out; they come back.", &m->retractions);
	single(out, "replayed_tokens_total", "counter", "Tokens computed again for such requests.",
	       &m->replayed_tokens);
}

static void write_transfer(const struct metrics *m, struct buf *out)
{
	single(out, "transfer_peers", "gauge",
	       "Workers to hand prompts over to, or that hand theirs over.", &m->peers);
	single(out, "transfer_sent_total", "counter", "Prompts computed for other workers.",
	       &m->prompts_sent);
	single(out, "transfer_sent_bytes_total", "counter",
	       "Bytes of pages and states sent with them.", &m->prompts_sent_bytes);
	single(out, "transfer_received_total", "counter", "Prompts that other workers computed.",
	       &m->prompts_received);
	single(out, "transfer_received_bytes_total", "counter",
	       "Bytes of pages and states that came with them.", &m->prompts_received_bytes);
	single(out, "transfer_failed_total", "counter",
	       "Prompts that were handed over in vain: then computed elsewhere.",
	       &m->prompts_failed);
	single(out, "transfer_missed_total", "counter",
	       "Prompts long enough to be handed over that were computed here: nobody was there, or all failed.",
	       &m->prompts_missed);
}

/* A value each of host memory and disk. */
static void both_tiers(struct buf *out, const char *name, const char *type, const char *help,
		       const _Atomic uint64_t *host, const _Atomic uint64_t *disk)
{
	head(out, name, type, help);
	buf_printf(out, "tigon_%s{tier=\"host\"} %" PRIu64 "\n", name, load(host));
	buf_printf(out, "tigon_%s{tier=\"disk\"} %" PRIu64 "\n", name, load(disk));
}

static void write_tiers(const struct metrics *m, struct buf *out)
{
	both_tiers(out, "cache_tier_items", "gauge",
		   "KV pages and states of this model below the device.", &m->host_items,
		   &m->disk_items);
	both_tiers(out, "cache_tier_bytes", "gauge",
		   "Bytes below the device; on disk those of every model in the directory.",
		   &m->host_bytes, &m->disk_bytes);
	both_tiers(out, "cache_tier_hits_total", "counter",
		   "Pages and states brought up from there.", &m->host_hits, &m->disk_hits);
	both_tiers(out, "cache_tier_evicted_total", "counter",
		   "Pages and states that made room there.", &m->host_evicted, &m->disk_evicted);
	single(out, "cache_disk_queued_items", "gauge", "Pages and states to be written to disk.",
	       &m->disk_queued_items);
	single(out, "cache_disk_written_items_total", "counter",
	       "Pages and states written to disk.", &m->disk_written_items);
	single(out, "cache_disk_written_bytes_total", "counter", "Bytes of them.",
	       &m->disk_written_bytes);
	single(out, "cache_disk_unwritten_items_total", "counter",
	       "Pages and states that were not written: a disk that is full, broken or too slow.",
	       &m->disk_unwritten_items);
	single(out, "cache_disk_damaged_total", "counter",
	       "Files that did not check and were passed over.", &m->disk_damaged);
	single(out, "cache_loads_total", "counter",
	       "Requests that waited for pages and a state from below the device.",
	       &m->loads_begun);
	single(out, "cache_loads_failed_total", "counter",
	       "Of them, those whose pages or state did not come.", &m->loads_failed);
	single(out, "cache_stores_dropped_total", "counter",
	       "Pages and states that left the device before there was room for them below.",
	       &m->stores_dropped);
}

void metrics_write(const struct metrics *m, struct buf *out)
{
	uint64_t total = load(&m->pages_total);

	single(out, "num_requests_running", "gauge", "Sequences that prefill or decode.",
	       &m->running);
	single(out, "num_requests_waiting", "gauge", "Requests not yet admitted.", &m->waiting);
	/* As in vLLM, what is only cached and could be evicted counts as free. */
	head(out, "kv_cache_usage_perc", "gauge", "Share of the KV pages in use, 0 to 1.");
	buf_printf(out, "tigon_kv_cache_usage_perc %.6f\n",
		   total ? (double)load(&m->pages_used) / (double)total : 0.0);
	single(out, "kv_cache_pages_used", "gauge", "KV pages in use.", &m->pages_used);
	single(out, "kv_cache_pages", "gauge", "KV pages of the pool.", &m->pages_total);
	write_cache(m, out);
	write_tiers(m, out);
	write_transfer(m, out);
	single(out, "prompt_tokens_total", "counter", "Prompt tokens of admitted requests.",
	       &m->prompt_tokens);
	single(out, "generation_tokens_total", "counter", "Tokens generated.",
	       &m->generation_tokens);
	head(out, "request_success_total", "counter",
	     "Choices ended, by reason; without what was refused because the queue is full (429).");
	for (size_t i = 0; i < METRICS_FINISHES; i++)
		buf_printf(out, "tigon_request_success_total{finished_reason=\"%s\"} %" PRIu64 "\n",
			   finishes[i], load(&m->finished[i]));
	head(out, "http_responses_total", "counter", "HTTP responses, by status code.");
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (codes[i])
			buf_printf(out, "tigon_http_responses_total{code=\"%u\"} ", codes[i]);
		else
			buf_puts(out, "tigon_http_responses_total{code=\"other\"} ");
		buf_printf(out, "%" PRIu64 "\n", load(&m->responses[i]));
	}
	single(out, "device_steps_total", "counter", "Steps run.", &m->steps);
	single(out, "device_launches_total", "counter", "Kernels launched.", &m->launches);
	single(out, "device_bytes_to_total", "counter", "Bytes copied to the device.",
	       &m->bytes_to_device);
	single(out, "device_bytes_from_total", "counter", "Bytes copied from the device.",
	       &m->bytes_from_device);
	write_times(m, out);
}
