#include "daemon/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/problem.h"
#include "tests/tap.h"

static struct metrics m;

/* Returns the value of the line whose name, with its labels, is `name`. -1: there is none. */
static double value(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, name, len) && p[len] == ' ')
			return strtod(p + len, NULL);
	return -1;
}

/* Metrics with the model's name as a label: infos, errors, histograms. Metrics of the process. */
static void named(void)
{
	struct metrics_steps steps = {.pages = 8, .page_tokens = 64};
	struct buf out;
	const char *text;

	buf_init(&out, 1 << 20);
	m.cache_dtype = "bfloat16";
	m.model = "a\"\\\n\xff\xc3\xa9";
	metrics_error(&m, EINVAL);
	metrics_error(&m, -PROBLEM_CONTEXT_LENGTH);
	metrics_error(&m, 12345);
	metrics_observe(&m, METRICS_PROMPT_TOKENS, 5);
	metrics_observe(&m, METRICS_PROMPT_TOKENS, 6);
	metrics_publish(&m, &steps);
	metrics_write(&m, &out);
	ok(!strstr(buf_str(&out), "tigon_cache_config_info{"),
	   "no info before the model is loaded");
	buf_reset(&out);
	steps.loaded = 1;
	metrics_publish(&m, &steps);
	metrics_write(&m, &out);
	text = buf_str(&out);
#define NAME "model_name=\"a\\\"\\\\\\n\xef\xbf\xbd\xc3\xa9\""
	ok(value(text, "tigon_kv_cache_pages{" NAME "}") == 8,
	   "the model's name is a label, escaped and in UTF-8");
	ok(value(text, "tigon_cache_tier_items{" NAME ",tier=\"host\"}") == 0, "beside others");
	ok(value(text, "tigon_request_prompt_tokens_bucket{" NAME ",le=\"5\"}") == 1 &&
		   value(text, "tigon_request_prompt_tokens_bucket{" NAME ",le=\"10\"}") == 2 &&
		   value(text, "tigon_request_prompt_tokens_sum{" NAME "}") == 11 &&
		   value(text, "tigon_request_prompt_tokens_count{" NAME "}") == 2,
	   "a histogram of numbers");
#define ERROR(type, cause) \
	value(text, "tigon_errors_total{" NAME ",type=\"" type "\",cause=\"" cause "\"}")
	ok(ERROR("invalid_request_error", "invalid_value") == 1 &&
		   ERROR("invalid_request_error", "context_length_exceeded") == 1 &&
		   ERROR("server_error", "internal_error") == 1 &&
		   ERROR("server_error", "device_error") == 0 &&
		   ERROR("rate_limit_error", "queue_full") == 0,
	   "clients' mistakes are apart from failures");
	ok(value(text, "tigon_build_info{" NAME ",version=\"" TIGON_VERSION "\"}") == 1,
	   "build_info");
	ok(value(text, "tigon_cache_config_info{" NAME
		       ",block_size=\"64\",num_gpu_blocks=\"8\",cache_dtype=\"bfloat16\","
		       "enable_prefix_caching=\"False\"}") == 1,
	   "cache_config_info");
	ok(value(text, "process_open_fds") >= 3 && value(text, "process_open_fds") < 100 &&
		   value(text, "process_max_fds") > 3,
	   "descriptors");
	ok(value(text, "process_resident_memory_bytes") > 100000 &&
		   value(text, "process_virtual_memory_bytes") >
			   value(text, "process_resident_memory_bytes"),
	   "memory");
	ok(value(text, "process_cpu_seconds_total") > 0 &&
		   value(text, "process_cpu_seconds_total") < 60,
	   "processor time");
	ok(value(text, "process_start_time_seconds") <= (double)time(NULL) &&
		   value(text, "process_start_time_seconds") > (double)time(NULL) - 60,
	   "the time of the start");
	buf_release(&out);
}

int main(void)
{
	struct metrics_steps steps = {0};
	struct buf out;
	const char *text;
	double last = 0;
	int buckets = 0;

	metrics_init(&m);
	buf_init(&out, 1 << 20);
	metrics_observe(&m, METRICS_TTFT, 1000000);	   /* 1 ms: on a bound */
	metrics_observe(&m, METRICS_TTFT, 1000001);	   /* just above it */
	metrics_observe(&m, METRICS_TTFT, 3000000000u);	   /* 3 s */
	metrics_observe(&m, METRICS_TTFT, 9000000000000u); /* above all bounds */
	metrics_response(&m, "/a", 200);
	metrics_response(&m, "/a", 200);
	metrics_response(&m, "/b", 418);
	atomic_store(&m.finished[METRICS_ABORT], 5);
	steps.pages = 8;
	steps.pages_used = 2;
	steps.scheduler.running = 6;
	steps.scheduler.prompt_tokens = 1000;
	steps.scheduler.cached_tokens = 640;
	steps.scheduler.misses[PREFIX_MISS_NONE] = 3;
	steps.scheduler.misses[PREFIX_MISS_EVICTED_STATE] = 2;
	steps.scheduler.retractions = 4;
	steps.scheduler.loads_failed = 9;
	steps.store.host_hits = 7;
	steps.store.disk_bytes = 1 << 20;
	steps.store.failed_gets = 11;
	metrics_publish(&m, &steps);
	memset(&steps, 0, sizeof(steps));
	metrics_response(&m, "/b", 409);
	metrics_write(&m, &out);
	ok(!out.failed, "written");
	text = buf_str(&out);
	ok(value(text, "tigon_time_to_first_token_seconds_bucket{le=\"0.001\"}") == 1,
	   "a bound is inside");
	ok(value(text, "tigon_time_to_first_token_seconds_bucket{le=\"0.0025\"}") == 2,
	   "buckets add up");
	ok(value(text, "tigon_time_to_first_token_seconds_bucket{le=\"2.5\"}") == 2,
	   "3 s is above 2.5");
	ok(value(text, "tigon_time_to_first_token_seconds_bucket{le=\"5\"}") == 3, "and below 5");
	ok(value(text, "tigon_time_to_first_token_seconds_bucket{le=\"2560\"}") == 3,
	   "9000 s is above all");
	ok(value(text, "tigon_time_to_first_token_seconds_bucket{le=\"+Inf\"}") == 4,
	   "but below infinity");
	ok(value(text, "tigon_time_to_first_token_seconds_count") == 4, "count");
	ok(value(text, "tigon_time_to_first_token_seconds_sum") > 9003.0 &&
		   value(text, "tigon_time_to_first_token_seconds_sum") < 9003.1,
	   "sum in seconds");
	ok(value(text, "tigon_inter_token_latency_seconds_count") == 0,
	   "another histogram is untouched");
	ok(value(text, "tigon_http_responses_total{route=\"/a\",code=\"200\"}") == 2,
	   "responses by route and code");
	ok(value(text, "tigon_http_responses_total{route=\"/b\",code=\"other\"}") == 1,
	   "an unknown code");
	ok(value(text, "tigon_num_requests_running") == 6, "a number of 32 bits");
	ok(value(text, "tigon_kv_cache_usage_perc") == 0.25, "usage is a share");
	ok(value(text, "tigon_request_success_total{finished_reason=\"abort\"}") == 5,
	   "finish reasons");
	ok(value(text, "tigon_prefix_cache_queries_total") == 1000 &&
		   value(text, "tigon_prefix_cache_hits_total") == 640,
	   "tokens looked for and found");
	ok(value(text, "tigon_prefix_cache_misses_total{reason=\"evicted-state\"}") == 2,
	   "reasons");
	ok(value(text, "tigon_prefix_cache_misses_total{reason=\"cold\"}") == 0,
	   "also without a case");
	ok(!strstr(text, "reason=\"none\""), "a full hit is no miss");
	ok(value(text, "tigon_cache_tier_hits_total{tier=\"host\"}") == 7 &&
		   value(text, "tigon_cache_tier_hits_total{tier=\"disk\"}") == 0 &&
		   value(text, "tigon_cache_tier_bytes{tier=\"disk\"}") == 1 << 20 &&
		   value(text, "tigon_cache_reads_failed_total") == 11 &&
		   value(text, "tigon_cache_loads_failed_total") == 9,
	   "what lies below the device");
	ok(value(text, "tigon_num_preemptions_total") == 4, "retractions");
	ok(value(text, "tigon_http_responses_total{route=\"/b\",code=\"409\"}") == 1, "conflicts");
	for (const char *p = strstr(text, "# TYPE"); p; p = strstr(p + 1, "# TYPE")) {
		char line[128];

		snprintf(line, sizeof(line), "%.*s ", (int)strcspn(p + 7, " ") + 7, p);
		check(!strstr(p + 1, line));
	}
	ok_all("a metric has one TYPE line");
	for (const char *p = strstr(text, "inter_token_latency_seconds_bucket"); p;
	     p = strstr(p + 1, "inter_token_latency_seconds_bucket")) {
		double le = strtod(strchr(p, '"') + 1, NULL);

		check(le > last);
		last = le;
		buckets++;
	}
	check(buckets > 10);
	ok_all("the bounds of %d buckets rise", buckets);
	named();
	buf_release(&out);
	return done();
}
