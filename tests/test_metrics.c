#include "daemon/metrics.h"

#include <stdlib.h>

#include "tests/tap.h"

static struct metrics m;

/* The value of a line, or -1. */
static double value(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, name, len) && p[len] == ' ')
			return strtod(p + len, NULL);
	return -1;
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
	metrics_time(&m, METRICS_TTFT, 1000000);	/* 1 ms: on a bound */
	metrics_time(&m, METRICS_TTFT, 1000001);	/* just above */
	metrics_time(&m, METRICS_TTFT, 3000000000u);	/* 3 s */
	metrics_time(&m, METRICS_TTFT, 9000000000000u); /* above all bounds */
	metrics_response(&m, 200);
	metrics_response(&m, 200);
	metrics_response(&m, 418);
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
	metrics_response(&m, 409);
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
	ok(value(text, "tigon_http_responses_total{code=\"200\"}") == 2, "responses by code");
	ok(value(text, "tigon_http_responses_total{code=\"other\"}") == 1, "an unknown code");
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
	ok(value(text, "tigon_http_responses_total{code=\"409\"}") == 1, "conflicts");
	for (const char *p = strstr(text, "# TYPE"); p; p = strstr(p + 1, "# TYPE")) {
		char line[128];

		snprintf(line, sizeof(line), "%.*s ", (int)strcspn(p + 7, " ") + 7, p);
		check(!strstr(p + 1, line));
	}
	ok_all("a metric has one TYPE line");
	/* Buckets never fall. */
	for (const char *p = strstr(text, "inter_token_latency_seconds_bucket"); p;
	     p = strstr(p + 1, "inter_token_latency_seconds_bucket")) {
		double le = strtod(strchr(p, '"') + 1, NULL);

		check(le > last);
		last = le;
		buckets++;
	}
	check(buckets > 10);
	ok_all("the bounds of %d buckets rise", buckets);
	buf_release(&out);
	return done();
}
