#include "daemon/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/utf8.h"
#include "daemon/process.h"

#define NS 1e9

/* Upper bounds of buckets. long_bounds (seconds) are vLLM's for the time to the first token, token_bounds (seconds)
 * vLLM's for the time between tokens. Short bounds are added to these two, because a token of a small model takes less
 * than a millisecond. The other three are vLLM's bounds for numbers: of tokens in a text, of choices, of tokens in a
 * step. */
static const double long_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
				     0.1,   0.25,   0.5,   0.75, 1,    2.5,  5,	   7.5,
				     10,    20,	    40,	   80,	 160,  640,  2560};
static const double token_bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
				      0.1,    0.15,  0.2,    0.3,   0.4,  0.5,	 0.75, 1,
				      2.5,    5,     7.5,    10,    20,	  40,	 80};
static const double length_bounds[] = {1,    2,	   5,	  10,	 20,  50,  100, 200, 500, 1000,
				       2000, 5000, 10000, 20000, 5e4, 1e5, 2e5, 5e5, 1e6};
static const double choice_bounds[] = {1, 2, 5, 10, 20};
static const double step_bounds[] = {1,	  8,	16,   32,   64,	  128,	256,
				     512, 1024, 2048, 4096, 8192, 16384};

#define BOUNDS(array) .bounds = array, .n = ARRAY_SIZE(array)

static const struct {
	const char *name, *help;
	double unit; /* bounds are multiplied by `unit`, and the written sum is divided by it */
	const double *bounds;
	size_t n;
} histograms[METRICS_DISTRIBUTIONS] = {
	[METRICS_TTFT] = {"time_to_first_token_seconds", "Body received to first token.", NS,
			  BOUNDS(long_bounds)},
	[METRICS_ITL] = {"inter_token_latency_seconds", "Between two tokens of a choice.", NS,
			 BOUNDS(token_bounds)},
	[METRICS_E2E] = {"e2e_request_latency_seconds", "Body received to last token.", NS,
			 BOUNDS(long_bounds)},
	[METRICS_QUEUE] = {"request_queue_time_seconds",
			   "Body received to the first step that computes any of the prompt.", NS,
			   BOUNDS(long_bounds)},
	[METRICS_PREFILL] = {"request_prefill_time_seconds",
			     "First step that computes any of the prompt to first token.", NS,
			     BOUNDS(long_bounds)},
	[METRICS_DECODE] = {"request_decode_time_seconds", "First token to last token.", NS,
			    BOUNDS(long_bounds)},
	[METRICS_INFERENCE] = {"request_inference_time_seconds",
			       "First step that computes any of the prompt to last token.", NS,
			       BOUNDS(long_bounds)},
	[METRICS_TOKEN_TIME] = {"request_time_per_output_token_seconds",
				"Mean time between two tokens of a choice.", NS,
				BOUNDS(token_bounds)},
	[METRICS_PROMPT_TOKENS] = {"request_prompt_tokens", "Tokens of a prompt.", 1,
				   BOUNDS(length_bounds)},
	[METRICS_MOST_TOKENS] = {"request_max_num_generation_tokens",
				 "Tokens generated in the longest choice of a prompt.", 1,
				 BOUNDS(length_bounds)},
	[METRICS_N] = {"request_params_n", "Choices of a prompt.", 1, BOUNDS(choice_bounds)},
	[METRICS_MAX_TOKENS] = {"request_params_max_tokens",
				"Tokens that a choice could have: as requested, or as many as fit.",
				1, BOUNDS(length_bounds)},
	[METRICS_GENERATION_TOKENS] = {"request_generation_tokens", "Tokens generated in a choice.",
				       1, BOUNDS(length_bounds)},
	[METRICS_STEP_TOKENS] = {"iteration_tokens_total", "Tokens computed in a step.", 1,
				 BOUNDS(step_bounds)},
};

static_assert(ARRAY_SIZE(long_bounds) <= METRICS_BUCKETS_MAX, "buckets");
static_assert(ARRAY_SIZE(token_bounds) <= METRICS_BUCKETS_MAX, "buckets");

/* Values that metrics_write sets at each scrape. */
struct now {
	struct process_numbers process;
	uint64_t started, log_dropped, one;
};

/* All values of a scrape. */
struct scrape {
	const struct metrics *live;
	struct metrics_steps steps;
	struct now now;
};

/* One metric. A row without type and help is an exception: it adds a value with another label to the metric of the row
 * above it. */
struct row {
	const char *name, *type, *help;
	/* offset of a number in struct metrics_steps or struct now, or of an atomic in struct metrics */
	size_t offset, width;
	enum place { IN_STEPS, IN_NOW, IN_LIVE } place;
	/* offset of a uint64_t in struct metrics_steps by which the value is divided; 0: it is not divided */
	size_t share_of;
	double unit; /* the value is divided by `unit`; 0: it is not divided */
	/* a label's name and value, such as tier="host"; NULL: there is none, or `labels` writes it */
	const char *label;
	/* The row has n numbers, one behind the other in the struct (0: it has one). `labels` writes names and values
	 * of the labels of number i. */
	size_t n;
	void (*labels)(const struct scrape *s, size_t i, struct buf *out);
	bool sparse; /* numbers that are 0 are left out */
	/* a metric that every program has under this name: without tigon_ and without the model's name */
	bool common;
};

static void miss_labels(const struct scrape *s, size_t i, struct buf *out)
{
	buf_printf(out, "reason=\"%s\"",
		   prefix_miss_name((enum prefix_miss)(i + PREFIX_MISS_NONE + 1)));
}

const char *const metrics_finish_names[METRICS_FINISHES] = {
	[METRICS_STOP] = "stop",
	[METRICS_LENGTH] = "length",
	[METRICS_ABORT] = "abort",
	[METRICS_ERROR] = "error",
};

static void finish_labels(const struct scrape *s, size_t i, struct buf *out)
{
	buf_printf(out, "finished_reason=\"%s\"", metrics_finish_names[i]);
}

/* The values of the label "code". The last one stands for every status that is not listed. */
static const char *const codes[METRICS_CODES_MAX] = {"200", "400", "401", "403", "404",
						     "405", "409", "410", "413", "415",
						     "429", "431", "500", "503", "other"};

static void response_labels(const struct scrape *s, size_t i, struct buf *out)
{
	buf_printf(out, "route=\"%s\",code=\"%s\"",
		   atomic_load(&s->live->routes[i / METRICS_CODES_MAX]),
		   codes[i % METRICS_CODES_MAX]);
}

static void error_labels(const struct scrape *s, size_t i, struct buf *out)
{
	buf_printf(out, "type=\"%s\",cause=\"%s\"", openai_error_type(i), openai_error_cause(i));
}

static void build_labels(const struct scrape *s, size_t i, struct buf *out)
{
	buf_puts(out, "version=\"" TIGON_VERSION "\"");
}

static void cache_labels(const struct scrape *s, size_t i, struct buf *out)
{
	const struct metrics_steps *m = &s->steps;

	buf_printf(out,
		   "block_size=\"%" PRIu64 "\",num_gpu_blocks=\"%" PRIu64
		   "\",cache_dtype=\"%s\",enable_prefix_caching=\"%s\"",
		   m->page_tokens, m->pages, s->live->cache_dtype,
		   m->prefix_cache ? "True" : "False");
}

#define HOST "tier=\"host\""
#define DISK "tier=\"disk\""
#define STEPS(member)                                     \
	.offset = offsetof(struct metrics_steps, member), \
	.width = sizeof(((struct metrics_steps *)NULL)->member)
#define LIVE(member)                                                                   \
	.offset = offsetof(struct metrics, member), .width = sizeof(_Atomic uint64_t), \
	.place = IN_LIVE
#define NOW(member) \
	.offset = offsetof(struct now, member), .width = sizeof(uint64_t), .place = IN_NOW

static const struct row rows[] = {
	{"num_requests_running", "gauge",
	 "Sequences with a seat: they prefill, decode, receive or send a prompt.",
	 STEPS(scheduler.running)},
	{"num_requests_waiting", "gauge", "Requests not yet admitted.", STEPS(waiting)},
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
	 STEPS(scheduler.misses[PREFIX_MISS_NONE + 1]), .n = PREFIX_MISS_N - PREFIX_MISS_NONE - 1,
	 .labels = miss_labels},
	{"prefix_cache_shared_waits_total", "counter",
	 "Requests that waited for another one to compute their common prefix.",
	 STEPS(scheduler.shared_waits)},
	{"prefix_cache_nodes", "gauge", "Nodes of the tree.", STEPS(scheduler.cache.nodes)},
	{"prefix_cache_tokens", "gauge", "Tokens whose KV pages the tree holds.",
	 STEPS(tree_tokens)},
	{"prefix_cache_states", "gauge", "States that the tree holds.",
	 STEPS(scheduler.cache.tree_slots)},
	{"prefix_cache_evicted_pages_total", "counter", "KV pages evicted.",
	 STEPS(scheduler.cache.evicted_pages)},
	{"prefix_cache_evicted_states_total", "counter", "States evicted.",
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
	{"cache_disk_damaged_total", "counter", "Files that failed a check or could not be read.",
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
	{"prompt_tokens_cached_total", "counter", "Of them, those found in the prefix cache.",
	 STEPS(scheduler.cached_tokens)},
	{"generation_tokens_total", "counter", "Tokens generated.", LIVE(generation_tokens)},
	{"embeddings_total", "counter", "Vectors made of texts.", LIVE(embeddings)},
	{"scored_texts_total", "counter",
	 "Texts of which the likelihood behind another one was computed.", LIVE(scored_texts)},
	{"requests_not_finite_total", "counter",
	 "Requests, and prompts for decode workers, that failed because the model computed NaN or "
	 "infinite numbers.",
	 LIVE(not_finite)},
	{"billing_lines_dropped_total", "counter",
	 "Requests whose system prompt began with an agent's line of billing data, which changes "
	 "each time: it was left out, so that the prompt can be found in the prefix cache.",
	 LIVE(billing_lines)},
	{"body_bytes", "gauge", "Memory of request bodies of more than 64 KiB, in bytes.",
	 LIVE(body_bytes)},
	{"answer_unread_bytes", "gauge",
	 "Memory of answers that clients have not read yet, in bytes.", LIVE(unread_bytes)},
	{"answers_unread_total", "counter",
	 "Answers that were ended because clients did not read and the memory for them was used up.",
	 LIVE(unread)},
	{"constraint_bytes", "gauge",
	 "Memory of constraints, allowed tokens and bad words of requests, in bytes.",
	 LIVE(constraint_bytes)},
	{"responses_stored", "gauge", "Responses that clients may ask for again.",
	 LIVE(stored_responses)},
	{"responses_stored_bytes", "gauge", "Memory of these responses, in bytes.",
	 LIVE(stored_response_bytes)},
	{"request_success_total", "counter",
	 "Choices ended, by reason; without requests that were refused.", LIVE(finished),
	 .n = METRICS_FINISHES, .labels = finish_labels},
	{"http_responses_total", "counter", "HTTP responses, by endpoint and status code.",
	 LIVE(responses), .n = METRICS_ROUTES_MAX * METRICS_CODES_MAX, .labels = response_labels,
	 .sparse = true},
	{"errors_total", "counter",
	 "Errors that clients got, also in streams, by their type and cause: server_error is not a client's mistake.",
	 LIVE(errors), .n = OPENAI_ERRORS, .labels = error_labels},
	{"http_malformed_requests_total", "counter",
	 "Requests that are no HTTP: the connection was closed.", LIVE(malformed)},
	{"http_tls_handshakes_failed_total", "counter",
	 "Connections that ended before their handshake of TLS was complete.", LIVE(tls_failed)},
	{"http_tls_handshakes_delayed_total", "counter",
	 "Times that a handshake of TLS waited, because handshakes have at most half of a thread's time.",
	 LIVE(tls_delayed)},
	{"log_dropped_lines_total", "counter", "Lines of the log that nobody read in time.",
	 NOW(log_dropped)},
	{"device_steps_total", "counter", "Steps run.", STEPS(device.steps)},
	{"device_launches_total", "counter", "Kernels launched.", STEPS(device.launches)},
	{"device_bytes_to_total", "counter", "Bytes copied to the device.",
	 STEPS(device.bytes_to_device)},
	{"device_bytes_from_total", "counter", "Bytes copied from the device.",
	 STEPS(device.bytes_from_device)},
	{"cache_config_info", "gauge", "The KV cache; always 1.", STEPS(loaded),
	 .labels = cache_labels, .sparse = true},
	{"build_info", "gauge", "The program; always 1.", NOW(one), .labels = build_labels},
	{"process_cpu_seconds_total", "counter", "Processor time used, user and system.",
	 NOW(process.cpu_ns), .unit = NS, .common = true},
	{"process_open_fds", "gauge", "Open file descriptors.", NOW(process.open_fds),
	 .common = true},
	{"process_max_fds", "gauge", "File descriptors that may be open.", NOW(process.max_fds),
	 .common = true},
	{"process_resident_memory_bytes", "gauge", "Memory that is resident.",
	 NOW(process.resident_bytes), .common = true},
	{"process_virtual_memory_bytes", "gauge", "Address space in use.",
	 NOW(process.virtual_bytes), .common = true},
	{"process_start_time_seconds", "gauge", "When the program started, since 1970.",
	 NOW(started), .common = true},
};

static uint64_t load(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_acquire);
}

void metrics_init(struct metrics *m)
{
	pthread_mutex_init(&m->lock, NULL);
	m->started = (uint64_t)time(NULL);
}

void metrics_publish(struct metrics *m, const struct metrics_steps *steps)
{
	pthread_mutex_lock(&m->lock);
	m->steps = *steps;
	pthread_mutex_unlock(&m->lock);
}

static void count(_Atomic uint64_t *v, uint64_t more)
{
	atomic_fetch_add_explicit(v, more, memory_order_relaxed);
}

void metrics_observe(struct metrics *m, enum metrics_distribution which, uint64_t value)
{
	struct metrics_histogram *h = &m->histograms[which];
	size_t i = 0;

	while (i < histograms[which].n &&
	       (double)value > histograms[which].bounds[i] * histograms[which].unit)
		i++;
	count(&h->buckets[i], 1);
	count(&h->sum, value);
}

/* Returns the index of a route; the first response of a route takes the next free one. */
static size_t route_index(struct metrics *m, const char *route)
{
	for (size_t i = 0; i < METRICS_ROUTES_MAX; i++) {
		const char *have = NULL;

		if (atomic_compare_exchange_strong(&m->routes[i], &have, route) ||
		    !strcmp(have, route))
			return i;
	}
	assert(false);
	return 0;
}

void metrics_response(struct metrics *m, const char *route, unsigned status)
{
	char code[16];
	size_t i = 0;

	snprintf(code, sizeof(code), "%u", status);
	while (codes[i + 1] && strcmp(codes[i], code) != 0)
		i++;
	/* This addition releases the route. So a scrape that reads the count finds the route, too. */
	atomic_fetch_add(&m->responses[route_index(m, route)][i], 1);
}

void metrics_error(struct metrics *m, int code)
{
	count(&m->errors[openai_error_number(code)], 1);
}

static void head(struct buf *out, const char *name, const char *type, const char *help, bool common)
{
	const char *prefix = common ? "" : "tigon_";

	buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, type);
}

/* Writes the value of a label: Prometheus escapes three characters, and drops all metrics of an answer that is not
 * UTF-8. */
static void write_escaped(struct buf *out, const char *text)
{
	for (size_t n; *text; text += n) {
		n = strcspn(text, "\n\\\"");
		utf8_replace(text, n, out);
		if (!text[n])
			break;
		buf_putc(out, '\\');
		buf_putc(out, text[n] == '\n' ? 'n' : text[n]);
		n++;
	}
}

/* Begins a line of a metric that is not `common`: writes its name and the label model_name, if there is a model's name.
 * more: further labels follow, so the braces stay open; false: the braces are closed. */
static void begin_line(const struct metrics *m, const char *name, const char *suffix, bool more,
		       struct buf *out)
{
	buf_printf(out, "tigon_%s%s", name, suffix);
	if (m->model || more)
		buf_putc(out, '{');
	if (m->model) {
		buf_puts(out, "model_name=\"");
		write_escaped(out, m->model);
		buf_puts(out, more ? "\"," : "\"}");
	}
}

static void write_histograms(const struct metrics *m, struct buf *out)
{
	for (size_t t = 0; t < METRICS_DISTRIBUTIONS; t++) {
		const struct metrics_histogram *h = &m->histograms[t];
		const char *name = histograms[t].name;
		uint64_t sum = 0;

		head(out, name, "histogram", histograms[t].help, false);
		for (size_t i = 0; i < histograms[t].n; i++) {
			sum += load(&h->buckets[i]);
			begin_line(m, name, "_bucket", true, out);
			buf_printf(out, "le=\"%g\"} %" PRIu64 "\n", histograms[t].bounds[i], sum);
		}
		sum += load(&h->buckets[histograms[t].n]);
		begin_line(m, name, "_bucket", true, out);
		buf_printf(out, "le=\"+Inf\"} %" PRIu64 "\n", sum);
		begin_line(m, name, "_sum", false, out);
		buf_printf(out, " %.9f\n", (double)load(&h->sum) / histograms[t].unit);
		begin_line(m, name, "_count", false, out);
		buf_printf(out, " %" PRIu64 "\n", sum);
	}
}

static uint64_t number(const struct scrape *s, const struct row *row, size_t i)
{
	size_t offset = row->offset + i * row->width;
	const char *at;

	if (row->place == IN_LIVE)
		return load((const _Atomic uint64_t *)((const char *)s->live + offset));
	at = (row->place == IN_NOW ? (const char *)&s->now : (const char *)&s->steps) + offset;
	return row->width == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static void write_row(const struct scrape *s, const struct row *row, struct buf *out)
{
	for (size_t i = 0; i < MAX(row->n, (size_t)1); i++) {
		uint64_t v = number(s, row, i);

		if (row->sparse && !v)
			continue;
		if (row->common)
			buf_puts(out, row->name);
		else
			begin_line(s->live, row->name, "", row->labels || row->label, out);
		if (row->labels)
			row->labels(s, i, out);
		else if (row->label)
			buf_puts(out, row->label);
		if (row->labels || row->label)
			buf_putc(out, '}');
		if (row->share_of) {
			uint64_t whole =
				*(const uint64_t *)((const char *)&s->steps + row->share_of);

			buf_printf(out, " %.6f\n", whole ? (double)v / (double)whole : 0.0);
		} else if (row->unit != 0) {
			buf_printf(out, " %.6f\n", (double)v / row->unit);
		} else {
			buf_printf(out, " %" PRIu64 "\n", v);
		}
	}
}

void metrics_write(struct metrics *m, struct buf *out)
{
	struct scrape s = {.live = m,
			   .now = {.started = m->started, .log_dropped = log_dropped(), .one = 1}};

	process_read(&s.now.process);
	pthread_mutex_lock(&m->lock);
	s.steps = m->steps;
	pthread_mutex_unlock(&m->lock);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];

		if (row->type)
			head(out, row->name, row->type, row->help, row->common);
		write_row(&s, row, out);
	}
	write_histograms(m, out);
}
