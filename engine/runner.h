/*
 * Running plans: what is on the device's queue and not waited for yet. Inside engine/ only.
 *
 * A plan becomes a list of commands on one in-order queue: seat resets, copies of pages and states, the step
 * table, the forward pass, the draws, and last a read of the results, whose event is waited for. Since the
 * queue is in order, the plan after it can follow before it has run: device buffers have one owner at a
 * time without anybody looking. Only the host's sides of the step table and the results exist once for each
 * plan that may be out, in memory that the device reaches without a copy.
 */
#ifndef ENGINE_RUNNER_H
#define ENGINE_RUNNER_H

#include "engine/dump.h"
#include "engine/engine.h"
#include "engine/step.h"

struct runner;

/* New. All borrowed; the model is allocated and filled, model->dump may be NULL. */
int runner_new(const struct device *d, struct model *m, const struct step_limits *l,
	       struct runner **ret, struct err *e) MUST_CHECK;

/* Waits for what is on the queue. */
void runner_free(struct runner *r);

/* As engine_submit, engine_wait and engine_step. */
int runner_submit(struct runner *r, const struct plan *plan, struct err *e) MUST_CHECK;
int runner_wait(struct runner *r, struct draw_result *results, struct err *e) MUST_CHECK;

uint32_t runner_queued(const struct runner *r);

/* steps, bytes_to_device and bytes_from_device; launches is the kernels' to count. */
struct engine_counters *runner_counters(struct runner *r);

#endif
