/* Simulates one worker: calls the real scheduler and cache as the daemon does, with a cost model in the device's
 * place. Time is simulated; only the host's time for planning and committing is measured. */
#pragma once

#include "daemon/cli/samples.h"
#include "daemon/cli/simulate/cost.h"
#include "daemon/cli/simulate/workload.h"
#include "scheduler/prefill_pace.h"
#include "scheduler/scheduler.h"

/* A request that a scheduler has. Its events point to it (`user`). */
struct flight {
	struct sim_request q;
	double last;	  /* fleet.c: the time of its newest token */
	uint32_t worker;  /* fleet.c: the worker that answers it */
	uint32_t n;	  /* tokens generated so far */
	int32_t output[]; /* [q.n_output] */
};

/* flight_new takes the workload's next request; NULL: out of memory. flight_submit hands it to a scheduler. After the
 * request's last event flight_end reports the end to the workload and frees the flight, also if it returns -ENOMEM. A
 * flight that no scheduler accepted is freed with free. */
struct flight *flight_new(struct workload *w) MUST_CHECK;
int flight_submit(struct flight *f, struct scheduler *s, enum scheduler_handoff handoff,
		  struct err *e) MUST_CHECK;
int flight_end(struct flight *f, struct workload *w, double now) MUST_CHECK;

/* The processor time in which the host planned and committed one step. */
struct plan_sample {
	float plan_us, commit_us;
	float nodes;   /* nodes of the cache's tree when the step was planned */
	uint32_t rows; /* rows of the plan */
};

struct sim_result {
	uint64_t requests, failed, prompt_tokens, cached_tokens, computed_tokens, generated_tokens,
		steps;
	uint64_t peak_bytes, peak_nodes;
	double seconds; /* simulated seconds */
	uint32_t peak_running;
	struct scheduler_stats end; /* at the end of the run */
	struct samples ttft_s, step_s;
	struct plan_sample *plans; /* [steps] owned */
	size_t plans_room;
};

/* A step of a simulated device. */
struct sim_step {
	uint32_t n_draws, n_prompt_tokens, n_decode_rows;
	double seconds;
};

/* Returns the step that runs a plan. */
struct sim_step sim_step_of(const struct cost_model *c, const struct plan *p);

/* Runs the workload to its end. -ENOMEM; -EINVAL: a scheduler cannot have this configuration. */
int sim_run(struct workload *w, const struct scheduler_config *config,
	    const struct cost_model *cost, struct sim_result *ret, struct err *e) MUST_CHECK;
void sim_result_release(struct sim_result *r);
