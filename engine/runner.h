/* Puts plans on the device's queue and waits for them. Internal to engine/.
 *
 * A plan becomes a list of commands on one in-order queue: seat resets, copies of pages and states, the step table, the
 * forward pass, poolings, scores and draws, and last a read of the results, whose event is waited for. Because the
 * queue is in order, the next plan can be queued before the first has run, and only one of them uses the device's
 * buffers at a time. The host has a copy of the step table and of the results for each queued plan, in memory that the
 * device accesses directly. */
#pragma once

#include "engine/copies.h"
#include "engine/dump.h"
#include "engine/engine.h"
#include "engine/step.h"

struct runner;

/* Makes a runner; *ret is new. Device, model, copies and counters are borrowed, the limits are copied. The model's
 * buffers must be allocated and filled. The runner tells the copies of its plans, and counts steps and its own bytes.
 * -ENOMEM. */
int runner_new(const struct device *d, struct model *m, const struct step_limits *l,
	       struct copies *copies, struct engine_counters *counters, struct runner **ret,
	       struct err *e) MUST_CHECK;

/* Waits until all queued commands have run, then frees the runner. */
void runner_free(struct runner *r);

/* runner_submit does the work of engine_submit. runner_wait does that of engine_wait, except the check of copies. */
int runner_submit(struct runner *r, const struct plan *plan, struct err *e) MUST_CHECK;
int runner_wait(struct runner *r, struct draw_result *results, struct err *e) MUST_CHECK;

/* Returns whether the device is lost because a decode step in one launch was given up: not all of its groups came to
 * the end of a phase (RESULT_GIVEN_UP of kernels/step.h). Pages and states that the step was to write are not to be
 * used. */
bool runner_given_up(const struct runner *r);

/* After that, and if no page and no state is in use: lets the device be used again. -EIO. */
int runner_forgive(struct runner *r, struct err *e) MUST_CHECK;

/* As engine_pooled. */
const float *runner_pooled(const struct runner *r, uint32_t pooling);

uint32_t runner_queued(const struct runner *r);
