/*
 * One simulation: the real scheduler and cache, driven as the daemon drives them, with a cost model
 * in the device's place. Time is virtual; only the host's planning is measured for real.
 */
#ifndef DAEMON_CLI_SIMULATE_RUNNER_H
#define DAEMON_CLI_SIMULATE_RUNNER_H

#include "daemon/cli/simulate/workload.h"
#include "scheduler/scheduler.h"

/* What a step takes: a fixed part, prompt tokens at a rate, decode rows, and KV tokens that decode
 * rows read. */
struct cost_model {
	double step_s, prefill_token_s, decode_row_s, kv_token_s;
};

/* Numbers of which percentiles are wanted; kept whole. */
struct samples {
	double *v; /* [n] owned */
	size_t n, room;
};

/* Host time of one step beside the size of the tree at that moment. */
struct plan_sample {
	float nodes, plan_us, commit_us;
	uint32_t rows;
};

struct sim_result {
	uint64_t requests, failed, prompt_tokens, cached_tokens, computed_tokens, generated_tokens,
		steps;
	uint64_t peak_bytes, peak_nodes;
	double seconds; /* virtual */
	uint32_t peak_running;
	struct scheduler_stats end; /* before the last flush */
	struct samples ttft_s, step_s;
	struct plan_sample *plans; /* [steps] owned */
	size_t plans_room;
};

double sim_step_seconds(const struct cost_model *c, const struct plan *p);

/* Runs the workload to its end. -ENOMEM, -EINVAL (a configuration that cannot work). */
int sim_run(struct workload *w, const struct scheduler_config *config,
	    const struct cost_model *cost, struct sim_result *ret, struct err *e) MUST_CHECK;
void sim_result_release(struct sim_result *r);

/* The value below which a share p of the samples lies; 0 without samples. Sorts them. */
double samples_percentile(struct samples *s, double p);
int samples_add(struct samples *s, double v) MUST_CHECK;

#endif
