#include "daemon/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define UNIT 1e9

/* Upper bounds of buckets in seconds. long_bounds are vLLM's for the time to the first token, token_bounds vLLM's for
 * the time between tokens. Short bounds are added to both, because a token of a small model takes less than a
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
	[METRICS_QUEUE] = {"request_queue_time_seconds",
			   "Body received to the first step that computes any of the prompt.",
			   long_bounds, ARRAY_SIZE(long_bounds)},
	[METRICS_PREFILL] = {"request_prefill_time_seconds",
			     "First step that computes any of the prompt to first token.",
			     long_bounds, ARRAY_SIZE(long_bounds)},
	[METRICS_DECODE] = {"request_decode_time_seconds", "First token to last token.",
			    long_bounds, ARRAY_SIZE(long_bounds)},
};

static_assert(ARRAY_SIZE(long_bounds) <= METRICS_BUCKETS_MAX, "buckets");
static_assert(ARRAY_SIZE(token_bounds) <= METRICS_BUCKETS_MAX, "buckets");

/* One metric. A row without type and help is an exception: it adds a value with another label to the metric of the row
 * above it. */
struct row {
	const char *name, *type, *help;
	/* offset of a number in struct metrics_steps; if `live` is set, of an atomic in struct metrics */
	size_t offset, width;
	bool live;
	/* offset of a uint64_t in struct metrics_steps by which the value is divided; 0: it is not divided */
	size_t share_of;
	/* name and value, such as tier="host"; with name_of the name alone; NULL: there is no label */
	const char *label;
	/* With name_of the row has n numbers, one behind the other in the struct, and name_of(i) is the label's value
	 * for number i. Without it the row has one number. */
	size_t n;
	const char *(*name_of)(size_t i);
};

static const char *miss_name(size_t i)
{
	return prefix_miss_name((enum prefix_miss)(i + PREFIX_MISS_NONE + 1));
}

static const char *finish_name(size_t i)
{
	static const char *const names[METRICS_FINISHES] = {
		[METRICS_STOP] = "stop",
		[METRICS_LENGTH] = "length",
		[METRICS_ABORT] = "abort",
		[METRICS_ERROR] = "error",
	};

	return names[i];
}

/* The values of the label "code". The last one stands for every status that is not listed. */
static const char *const codes[] = {"200", "400", "401", "403", "404", "405",  "409",
				    "413", "415", "429", "500", "503", "other"};
static_assert(ARRAY_SIZE(codes) <= METRICS_CODES_MAX, "codes");

static const char *code_name(size_t i)
{
	return codes[i];
}

#define HOST "tier=\"host\""
#define DISK "tier=\"disk\""
#define STEPS(member)                                     \
	.offset = offsetof(struct metrics_steps, member), \
	.width = sizeof(((struct metrics_steps *)NULL)->member)
#define LIVE(member) \
	.offset = offsetof(struct metrics, member), .width = sizeof(_Atomic uint64_t), .live = true

static const struct row rows[] = {
	{"num_requests_running", "gauge",
	 "Sequences with a seat: they prefill, decode, receive or send a prompt.",
	 STEPS(scheduler.running)},
	{"num_requests_waiting", "gauge", "Requests not yet admitted.", STEPS(scheduler.waiting)},
	{"kv_cache_usage_perc", "gauge", "Share of the KV pages in use, 0 to 1.", STEPS(pages_used),
	 .share_of = offsetof(struct metrics_steps, pages)},
	{"kv_cache_pages_used", "gauge", "KV pages in use.", STEPS(pages_used)},
	{"kv_cache_pages", "gauge", "KV pages of the pool.", STEPS(pages)},
	{"prefix_cache_queries_total", "counter",
	 "Prompt tokens of admitted requests, looked for in the prefix cache.",
	 STEPS(scheduler.prompt_tokens)},
	{"prefix_cache_hits_total", "counter", "Of them, those that were found there.",
	 STEPS(scheduler.cached_tokens)},
	{"prefix_cache_misses_total", "counter",
	 "Admitted requests by the reason why they did not hit further.",
	 STEPS(scheduler.misses[PREFIX_MISS_NONE + 1]), .label = "reason",
	 .n = PREFIX_MISS_N - PREFIX_MISS_NONE - 1, .name_of = miss_name},
	{"prefix_cache_shared_waits_total", "counter",
	 "Requests that waited for another one to compute their common prefix.",
	 STEPS(scheduler.shared_waits)},
	{"prefix_cache_nodes", "gauge", "Nodes of the tree.", STEPS(scheduler.cache.nodes)},
	{"prefix_cache_tokens", "gauge", "Tokens whose KV pages the tree holds.",
	 STEPS(tree_tokens)},
	{"prefix_cache_states", "gauge", "Recurrent states that the tree holds.",
	 STEPS(scheduler.cache.tree_slots)},
	{"prefix_cache_evicted_pages_total", "counter", "KV pages evicted.",
	 STEPS(scheduler.cache.evicted_pages)},
	{"prefix_cache_evicted_states_total", "counter", "Recurrent states evicted.",
	 STEPS(scheduler.cache.evicted_slots)},
	{"prefix_cache_evicted_unhit_states_total", "counter",
	 "Of them, those that were never hit.", STEPS(scheduler.cache.evicted_unhit_slots)},
	{"cache_used_bytes", "gauge", "KV pages and states in use, running and cached.",
	 STEPS(scheduler.cache.used_bytes)},
	{"cache_budget_bytes", "gauge", "What they may use.", STEPS(budget_bytes)},
	{"num_preemptions_total", "counter",
	 "Requests retracted because memory ran out; they come back.",
	 STEPS(scheduler.retractions)},
	{"replayed_tokens_total", "counter", "Tokens computed again for such requests.",
	 STEPS(scheduler.replayed_tokens)},
	{"cache_tier_items", "gauge", "KV pages and states of this model below the device.",
	 STEPS(store.host_items), .label = HOST},
	{"cache_tier_items", NULL, NULL, STEPS(store.disk_items), .label = DISK},
	{"cache_tier_bytes", "gauge",
	 "Bytes below the device; on disk those of every model in the directory.",
	 STEPS(store.host_bytes), .label = HOST},
	{"cache_tier_bytes", NULL, NULL, STEPS(store.disk_bytes), .label = DISK},
	{"cache_tier_hits_total", "counter", "Pages and states brought up from there.",
	 STEPS(store.host_hits), .label = HOST},
	{"cache_tier_hits_total", NULL, NULL, STEPS(store.disk_hits), .label = DISK},
	{"cache_tier_evicted_total", "counter", "Pages and states that made room there.",
	 STEPS(store.host_evicted), .label = HOST},
	{"cache_tier_evicted_total", NULL, NULL, STEPS(store.disk_evicted), .label = DISK},
	{"cache_disk_queued_items", "gauge", "Pages and states to be written to disk.",
	 STEPS(store.queued_items)},
	{"cache_disk_written_items_total", "counter", "Pages and states written to disk.",
	 STEPS(store.written_items)},
	{"cache_disk_written_bytes_total", "counter", "Bytes of them.", STEPS(store.written_bytes)},
	{"cache_disk_unwritten_items_total", "counter",
	 "Pages and states that were not written: a disk that is full, broken or too slow.",
	 STEPS(store.unwritten_items)},
	{"cache_disk_damaged_total", "counter", "Files that did not check and were passed over.",
	 STEPS(store.damaged)},
	{"cache_reads_failed_total", "counter",
	 "Pages and states whose read from host memory or disk failed.", STEPS(store.failed_gets)},
	{"cache_loads_total", "counter",
	 "Requests that waited for pages and a state from below the device.",
	 STEPS(scheduler.loads_begun)},
	{"cache_loads_failed_total", "counter", "Of them, those whose pages or state did not come.",
	 STEPS(scheduler.loads_failed)},
	{"cache_stores_dropped_total", "counter",
	 "Pages and states that left the device before there was room for them below.",
	 STEPS(scheduler.stores_dropped)},
	{"transfer_peers", "gauge", "Workers to hand prompts over to, or that hand theirs over.",
	 LIVE(transfer.peers)},
	{"transfer_sent_total", "counter", "Prompts computed for other workers.",
	 LIVE(transfer.prompts_sent)},
	{"transfer_sent_bytes_total", "counter", "Bytes of pages and states sent with them.",
	 LIVE(transfer.prompts_sent_bytes)},
	{"transfer_received_total", "counter", "Prompts that other workers computed.",
	 LIVE(transfer.prompts_received)},
	{"transfer_received_bytes_total", "counter",
	 "Bytes of pages and states that came with them.", LIVE(transfer.prompts_received_bytes)},
	{"transfer_failed_total", "counter",
	 "Prompts that were handed over in vain: then computed elsewhere.",
	 LIVE(transfer.prompts_failed)},
	{"transfer_missed_total", "counter",
	 "Prompts long enough to be handed over that were computed here, because no prefill worker was available or all failed.",
	 LIVE(prompts_missed)},
	{"prompt_tokens_total", "counter", "Prompt tokens of admitted requests.",
	 STEPS(scheduler.prompt_tokens)},
	{"generation_tokens_total", "counter", "Tokens generated.", LIVE(generation_tokens)},
	{"requests_not_finite_total", "counter",
	 "Requests that failed because the model computed NaN or infinite numbers.",
	 LIVE(not_finite)},
	{"request_success_total", "counter",
	 "Choices ended, by reason; without requests that the full queue refused (429).",
	 LIVE(finished), .label = "finished_reason", .n = METRICS_FINISHES, .name_of = finish_name},
	{"http_responses_total", "counter", "HTTP responses, by status code.", LIVE(responses),
	 .label = "code", .n = ARRAY_SIZE(codes), .name_of = code_name},
	{"http_malformed_requests_total", "counter",
	 "Requests that are no HTTP: the connection was closed.", LIVE(malformed)},
	{"log_dropped_lines_total", "counter", "Lines of the log that nobody read in time.",
	 LIVE(log_dropped)},
	{"device_steps_total", "counter", "Steps run.", STEPS(device.steps)},
	{"device_launches_total", "counter", "Kernels launched.", STEPS(device.launches)},
	{"device_bytes_to_total", "counter", "Bytes copied to the device.",
	 STEPS(device.bytes_to_device)},
	{"device_bytes_from_total", "counter", "Bytes copied from the device.",
	 STEPS(device.bytes_from_device)},
};

static uint64_t load(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

void metrics_init(struct metrics *m)
{
	pthread_mutex_init(&m->lock, NULL);
}

void metrics_publish(struct metrics *m, const struct metrics_steps *steps)
{
	pthread_mutex_lock(&m->lock);
	m->steps = *steps;
	pthread_mutex_unlock(&m->lock);
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
	char code[16];
	size_t i = 0;

	snprintf(code, sizeof(code), "%u", status);
	while (i + 1 < ARRAY_SIZE(codes) && strcmp(codes[i], code) != 0)
		i++;
	atomic_fetch_add_explicit(&m->responses[i], 1, memory_order_relaxed);
}

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP tigon_%s %s\n# TYPE tigon_%s %s\n", name, help, name, type);
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

static uint64_t number(const struct metrics *m, const struct metrics_steps *steps,
		       const struct row *row, size_t i)
{
	const char *at =
		(row->live ? (const char *)m : (const char *)steps) + row->offset + i * row->width;

	if (row->live)
		return load((const _Atomic uint64_t *)at);
	return row->width == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static void write_row(const struct metrics *m, const struct metrics_steps *steps,
		      const struct row *row, struct buf *out)
{
	for (size_t i = 0; i < MAX(row->n, (size_t)1); i++) {
		uint64_t v = number(m, steps, row, i);

		buf_printf(out, "tigon_%s", row->name);
		if (row->name_of)
			buf_printf(out, "{%s=\"%s\"}", row->label, row->name_of(i));
		else if (row->label)
			buf_printf(out, "{%s}", row->label);
		if (row->share_of) {
			uint64_t whole = *(const uint64_t *)((const char *)steps + row->share_of);

			buf_printf(out, " %.6f\n", whole ? (double)v / (double)whole : 0.0);
		} else {
			buf_printf(out, " %" PRIu64 "\n", v);
		}
	}
}

void metrics_write(struct metrics *m, struct buf *out)
{
	struct metrics_steps steps;

	pthread_mutex_lock(&m->lock);
	steps = m->steps;
	pthread_mutex_unlock(&m->lock);
	atomic_store_explicit(&m->log_dropped, log_dropped(), memory_order_relaxed);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];

		if (row->type)
			head(out, row->name, row->type, row->help);
		write_row(m, &steps, row, out);
	}
	write_times(m, out);
}
