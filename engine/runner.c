#include "engine/runner.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/block.h"
#include "kernels/cl_error.h"
#include "kernels/step.h"

/* A place for a queued plan. After the plan was waited for, the place is free for another one. */
struct queued {
	int32_t *table, *result; /* in the runner's host memory */
	int32_t *resets;	 /* [resets_cap] ints: the tables of the plan's seat resets */
	size_t resets_cap;
	struct step_draw *draws; /* [max_seqs] */
	uint32_t n_draws, n_scores, result_ints;
	/* the places of scores and poolings in the table, for reading their results */
	cl_int scores_at, poolings_at;
	cl_int work_at; /* the place of the work list of a step in one launch */
	cl_event done;	/* the results are read */
};

struct runner {
	const struct device *device;
	struct model *model;
	struct copies *copies;
	struct engine_counters *counters;
	struct step_limits limits;
	struct engine_block *host; /* tables and results */
	struct queued queued[ENGINE_STEPS_OUT];
	/* [max_seqs] batches of splits of the step that is being built */
	struct split_batch *batches;
	uint64_t head, tail; /* head: plans waited for so far; tail: plans queued so far */
	struct err lost;     /* code 0: the device is not lost */
	bool given_up;	     /* it is lost because a step in one launch was given up */
};

/* Queues the clearing of the flag RESULT_GIVEN_UP, which no kernel sets back to 0. */
static int clear_flag(struct runner *r, struct err *e)
{
	const cl_int no = 0;
	cl_int code =
		clEnqueueFillBuffer(r->device->queue, r->model->at[AT_RESULT], &no, sizeof(no),
				    RESULT_GIVEN_UP * sizeof(no), sizeof(no), 0, NULL, NULL);

	return cl_error(e, code, "clearing the result");
}

int runner_new(const struct device *d, struct model *m, const struct step_limits *l,
	       struct copies *copies, struct engine_counters *counters, struct runner **ret,
	       struct err *e)
{
	struct runner *r = calloc(1, sizeof(*r));
	uint64_t ints = m->step_ints + m->result_ints;
	int32_t *host;
	int error;

	if (!r)
		return err_no_memory(e);
	r->device = d;
	r->model = m;
	r->copies = copies;
	r->counters = counters;
	r->limits = *l;
	r->batches = calloc(l->max_seqs, sizeof(*r->batches));
	if (!r->batches) {
		free(r);
		return err_set(e, ENOMEM, "out of memory");
	}
	error = block_new(d, ints * ENGINE_STEPS_OUT * sizeof(*host), &r->host, e);
	if (error == 0)
		error = clear_flag(r, e);
	if (error < 0) {
		runner_free(r);
		return error;
	}
	host = engine_block_data(r->host);
	for (size_t i = 0; i < ENGINE_STEPS_OUT; i++) {
		r->queued[i].table = host + i * ints;
		r->queued[i].result = r->queued[i].table + m->step_ints;
		r->queued[i].draws = calloc(l->max_seqs, sizeof(*r->queued[i].draws));
		if (!r->queued[i].draws) {
			runner_free(r);
			return err_no_memory(e);
		}
	}
	*ret = r;
	return 0;
}

void runner_free(struct runner *r)
{
	if (!r)
		return;
	clFinish(r->device->queue);
	for (size_t i = 0; i < ENGINE_STEPS_OUT; i++) {
		if (r->queued[i].done)
			clReleaseEvent(r->queued[i].done);
		free(r->queued[i].resets);
		free(r->queued[i].draws);
	}
	engine_block_free(r->host);
	free(r->batches);
	free(r);
}

uint32_t runner_queued(const struct runner *r)
{
	return (uint32_t)(r->tail - r->head);
}

/* Notes that the device is lost: no queued plan has results, and no later one can be queued. */
static int lose_device(struct runner *r, const struct err *why, struct err *e)
{
	if (!r->lost.code) {
		r->lost = *why;
		r->lost.code = EIO;
	}
	r->head = r->tail;
	if (e)
		*e = r->lost;
	return -EIO;
}

/* Returns the place of the plan that was queued last, which runs before the next one. The plan may have been waited for
 * already. */
static struct queued *previous(struct runner *r)
{
	return &r->queued[(r->tail + ENGINE_STEPS_OUT - 1) % ENGINE_STEPS_OUT];
}

const float *runner_pooled(const struct runner *r, uint32_t pooling)
{
	const struct queued *s = &r->queued[(r->head + ENGINE_STEPS_OUT - 1) % ENGINE_STEPS_OUT];
	int32_t at =
		s->table[s->poolings_at + (cl_int)(pooling * POOLING_INTS) + POOLING_RESULT_AT];

	return (const float *)(const void *)(s->result + at);
}

/* ---- the commands of a plan ---- */

static int write_table(struct runner *r, const int32_t *table, uint64_t n, struct err *e)
{
	cl_int code = clEnqueueWriteBuffer(r->device->queue, r->model->at[BUFFER_STEP], CL_FALSE, 0,
					   n * sizeof(*table), table, 0, NULL, NULL);

	r->counters->bytes_to_device += n * sizeof(*table);
	return cl_error(e, code, "writing the step table");
}

/* Queues the plan's seat resets. All of them use the step table's buffer, one after the other: the queue is in order,
 * so each reset has run before the next one's table is written. */
static int enqueue_resets(struct runner *r, const struct plan *plan, const int32_t *tables,
			  struct err *e)
{
	for (uint32_t i = 0; i < plan->n_resets; i++) {
		uint64_t n = step_reset_ints(&plan->resets[i]);
		int error = write_table(r, tables, n, e);

		if (error < 0)
			return error;
		kernel_seat_reset(r->model->kernels, r->model->at[BUFFER_STEP], 0,
				  r->model->at[BUFFER_COUNTS], 1);
		tables += n;
	}
	return 0;
}

/* Queues the plan's copies of pages, or of states, in the buffer of one part, whose pieces have `bytes` bytes. */
static cl_int copy_pieces(cl_command_queue q, cl_mem buffer, uint64_t bytes,
			  const struct plan_copy *copies, uint32_t n)
{
	cl_int code = CL_SUCCESS;

	for (uint32_t i = 0; i < n && code == CL_SUCCESS; i++)
		code = clEnqueueCopyBuffer(q, buffer, buffer, copies[i].src * bytes,
					   copies[i].dst * bytes, bytes, 0, NULL, NULL);
	return code;
}

/* Queues the plan's copies of whole pages and whole states, in every layer. */
static int enqueue_copies(struct runner *r, const struct plan *plan, struct err *e)
{
	cl_int code = CL_SUCCESS;

	for (uint32_t i = 0; i < r->model->config->n_layers; i++) {
		const struct model_layer *l = &r->model->layers[i];

		for (uint32_t k = 0; k < l->n_parts && code == CL_SUCCESS; k++) {
			const struct layer_part *p = &l->parts[k];
			bool page = p->kind == TIER_PAGE;

			code = copy_pieces(r->device->queue, l->at[p->at], p->bytes,
					   page ? plan->page_copies : plan->state_copies,
					   page ? plan->n_page_copies : plan->n_state_copies);
		}
	}
	return code ? err_set(e, EIO, "copying pages or states on the device failed") : 0;
}

/* Queues the read of the results. The event of this command, s->done, tells that the plan has run. */
static int enqueue_read(struct runner *r, struct queued *s, struct err *e)
{
	cl_command_queue q = r->device->queue;
	uint64_t bytes = s->result_ints * sizeof(*s->result);
	cl_int code = clEnqueueReadBuffer(q, r->model->at[AT_RESULT], CL_FALSE, 0, bytes, s->result,
					  0, NULL, &s->done);

	if (code == CL_SUCCESS)
		code = clFlush(q);
	r->counters->bytes_from_device += bytes;
	return cl_error(e, code, "reading results");
}

/* Adds the step's tokens and positions to the dump; without a dump it does nothing. Some of the tokens may be those
 * that the step before draws, so the function waits for the step before. */
static int dump_tokens(struct runner *r, struct queued *s, const struct model_step *step,
		       struct err *e)
{
	struct dump *dump = r->model->dump;
	const int32_t *drawn = previous(r)->result + RESULT_IDS;
	int32_t *tokens = s->table + step->tokens_at;

	if (!dump)
		return 0;
	if (clFinish(r->device->queue) != CL_SUCCESS)
		return err_set(e, EIO, "waiting for the step before failed");
	for (uint32_t i = 0; i < step->n_tokens; i++)
		if (tokens[i] < 0)
			tokens[i] = drawn[-1 - tokens[i]];
	dump_ints(dump, "tokens", tokens, step->n_tokens);
	dump_ints(dump, "positions", s->table + step->positions_at, step->n_tokens);
	return 0;
}

/* Builds the tables of the plan's seat resets in s->resets, which grows if it must. */
static int build_resets(struct queued *s, const struct plan *plan, struct err *e)
{
	uint64_t n = 0, at = 0;

	for (uint32_t i = 0; i < plan->n_resets; i++)
		n += step_reset_ints(&plan->resets[i]);
	if (n > s->resets_cap) {
		int32_t *resets = realloc(s->resets, n * sizeof(*resets));

		if (!resets)
			return err_no_memory(e);
		s->resets = resets;
		s->resets_cap = n;
	}
	for (uint32_t i = 0; i < plan->n_resets; i++) {
		step_build_reset(&plan->resets[i], s->resets + at);
		at += step_reset_ints(&plan->resets[i]);
	}
	return 0;
}

static uint32_t plan_tokens(const struct plan *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_rows; i++)
		n += p->rows[i].n_tokens;
	return n;
}

static int enqueue_plan(struct runner *r, struct queued *s, const struct plan *plan, struct err *e)
{
	struct model *m = r->model;
	struct step_built built;
	int error;

	r->limits.tile_tokens = kernels_tile_tokens(m->kernels, plan_tokens(plan));
	step_build(plan, &r->limits, m->dump, s->table, s->draws, r->batches, &built);
	model_add_work(m, s->table, &built.step, &built.table_ints);
	s->n_draws = plan->n_draws;
	s->n_scores = plan->n_scored_tokens;
	s->scores_at = built.step.scores_at;
	s->poolings_at = built.step.poolings_at;
	s->work_at = built.step.work_at;
	s->result_ints = built.result_ints;
	error = dump_tokens(r, s, &built.step, e);
	if (error == 0)
		error = enqueue_resets(r, plan, s->resets, e);
	if (error == 0)
		error = enqueue_copies(r, plan, e);
	if (error == 0)
		error = write_table(r, s->table, built.table_ints, e);
	if (error < 0)
		return error;
	model_forward(m, &built.step);
	if (plan->logits)
		r->counters->bytes_from_device += 4ull * s->n_scores * r->limits.vocab_size;
	error = kernels_status(m->kernels, e);
	return error < 0 ? error : enqueue_read(r, s, e);
}

int runner_submit(struct runner *r, const struct plan *plan, struct err *e)
{
	struct queued *s = &r->queued[r->tail % ENGINE_STEPS_OUT];
	struct err why = {0};
	int error;

	if (r->lost.code)
		return lose_device(r, &r->lost, e);
	if (runner_queued(r) == ENGINE_STEPS_OUT)
		return err_set(e, EBUSY, "%d plans are queued already", ENGINE_STEPS_OUT);
	if (step_check(plan, &r->limits, previous(r)->n_draws) < 0)
		return err_set(e, EINVAL, "a plan is outside the engine's limits");
	error = build_resets(s, plan, e);
	if (error < 0)
		return error;
	if (copies_plan_begins(r->copies, plan, &why) < 0 || enqueue_plan(r, s, plan, &why) < 0)
		return lose_device(r, &why, e);
	copies_plan_queued(r->copies, s->done);
	r->tail++;
	r->counters->steps++;
	return 0;
}

/* Sets the error of a step that was given up. */
static void say_given_up(const struct queued *s, struct err *e)
{
	int32_t v = s->result[RESULT_GIVEN_UP];
	const int32_t *phase =
		s->table + s->work_at + WORK_INTS + (GIVEN_UP_PHASE(v) - 1) * PHASE_INTS;

	err_set(e, EIO,
		"a decode step was given up, because %d of its groups did not come to the end of phase "
		"%d (operation %d, layer %d) in time",
		GIVEN_UP_LATE(v), GIVEN_UP_PHASE(v), phase[PHASE_OP], phase[PHASE_LAYER]);
}

int runner_wait(struct runner *r, struct draw_result *results, struct err *e)
{
	struct queued *s = &r->queued[r->head % ENGINE_STEPS_OUT];
	struct err why = {0};
	cl_int code;

	if (r->lost.code)
		return lose_device(r, &r->lost, e);
	if (!runner_queued(r))
		return err_set(e, EINVAL, "no plan is queued");
	code = clWaitForEvents(1, &s->done);
	clReleaseEvent(s->done);
	s->done = NULL;
	if (cl_error(&why, code, "waiting for results") < 0)
		return lose_device(r, &why, e);
	if (s->result[RESULT_GIVEN_UP]) {
		r->given_up = true;
		say_given_up(s, &why);
		return lose_device(r, &why, e);
	}
	r->head++;
	step_results(s->draws, s->n_draws, s->result, results);
	step_score_results(s->table + s->scores_at, s->n_scores, s->result, results + s->n_draws);
	return r->model->dump ? dump_write(r->model->dump, e) : 0;
}

bool runner_given_up(const struct runner *r)
{
	return r->given_up;
}

int runner_forgive(struct runner *r, struct err *e)
{
	r->lost = (struct err){0};
	r->given_up = false;
	return clear_flag(r, e);
}
