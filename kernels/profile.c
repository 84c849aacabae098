#include "kernels/profile.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"
#include "kernels/cl_error.h"
#include "kernels/step.h"

/* A task list that is being read to the host. */
struct tasks {
	int32_t *ints; /* owned; NULL: this launch wrote no list */
	cl_event done;
	uint32_t experts;
};

struct note {
	cl_event done;
	bool routed;
	struct tasks tasks;
};

struct profile {
	cl_command_queue queue;
	bool timed;  /* the queue has times */
	bool failed; /* a launch or a task list could not be noted; profile_take reports that */
	struct note *notes;
	struct kernel_timing *timings; /* [cap] one for each note */
	size_t n, cap;
};

struct profile *profile_new(cl_command_queue queue)
{
	struct profile *p = calloc(1, sizeof(*p));
	cl_command_queue_properties properties = 0;

	if (!p)
		return NULL;
	clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, NULL);
	p->queue = queue;
	p->timed = properties & CL_QUEUE_PROFILING_ENABLE;
	return p;
}

static void forget(struct profile *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct note *note = &p->notes[i];

		if (note->done)
			clReleaseEvent(note->done);
		if (note->tasks.done)
			clReleaseEvent(note->tasks.done);
		free(note->tasks.ints);
	}
	p->n = 0;
	p->failed = false;
}

void profile_free(struct profile *p)
{
	if (!p)
		return;
	clFinish(p->queue); /* until then a read may write into a task list */
	forget(p);
	free(p->notes);
	free(p->timings);
	free(p);
}

static bool make_room(struct profile *p)
{
	size_t cap = p->cap;

	return array_grow(p->notes, cap, p->n + 1) && array_grow(p->timings, p->cap, p->n + 1);
}

cl_event *profile_launch(struct profile *p, const char *kernel, uint64_t x, uint64_t y, bool dense,
			 bool tensor, bool routed)
{
	if (!make_room(p)) {
		p->failed = true;
		return NULL;
	}
	p->notes[p->n] = (struct note){.routed = routed};
	p->timings[p->n] = (struct kernel_timing){
		.kernel = kernel,
		.m = (uint32_t)MIN(x, (uint64_t)UINT32_MAX),
		.n = (uint32_t)MIN(y, (uint64_t)UINT32_MAX),
		.dense = dense,
		.tensor = tensor,
	};
	return &p->notes[p->n++].done;
}

void profile_product(struct profile *p, uint32_t m, uint32_t n, uint32_t k)
{
	struct kernel_timing *t = p->n ? &p->timings[p->n - 1] : NULL;

	if (t) {
		t->m = m;
		t->n = n;
		t->k = k;
	}
}

void profile_rows(struct profile *p, uint32_t first, uint32_t n)
{
	if (p->n) {
		p->timings[p->n - 1].first_row = first;
		p->timings[p->n - 1].n_rows = n;
	}
}

void profile_terms(struct profile *p, uint32_t first, uint32_t n)
{
	if (p->n) {
		p->timings[p->n - 1].first_term = first;
		p->timings[p->n - 1].n_terms = n;
	}
}

void profile_sliding(struct profile *p)
{
	if (p->n)
		p->timings[p->n - 1].sliding = true;
}

void profile_place(struct profile *p, const struct tuning_place *place)
{
	if (p->n)
		p->timings[p->n - 1].place = *place;
}

void profile_tasks(struct profile *p, cl_mem tasks, uint64_t ints, uint32_t experts)
{
	struct tasks *t = p->n ? &p->notes[p->n - 1].tasks : NULL;

	if (!t)
		return;
	/* reads the longest possible list, because reading its length first would mean waiting */
	t->ints = malloc(ints * sizeof(*t->ints));
	t->experts = experts;
	if (!t->ints || clEnqueueReadBuffer(p->queue, tasks, CL_FALSE, 0, ints * sizeof(*t->ints),
					    t->ints, 0, NULL, &t->done) != CL_SUCCESS)
		p->failed = true;
}

/* Returns the number of experts in a task list, which is sorted by expert. The shared expert, whose number is the last,
 * is not counted. */
static uint32_t distinct(const struct tasks *t)
{
	uint32_t n = 0;
	int32_t last = -1;

	for (int32_t i = 0; i < t->ints[0]; i++) {
		int32_t expert = t->ints[TASK_AT(i) + TASK_EXPERT];

		n += expert != last && (uint32_t)expert < t->experts;
		last = expert;
	}
	return n;
}

static uint64_t elapsed(cl_event event)
{
	cl_ulong start = 0, end = 0;

	clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start, NULL);
	clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL);
	return end > start ? end - start : 0;
}

int profile_take(struct profile *p, const struct kernel_timing **ret, size_t *ret_n, struct err *e)
{
	cl_int code = clFinish(p->queue);
	bool failed = p->failed;
	uint32_t experts = 0;
	size_t n = p->n;

	for (size_t i = 0; i < n && code == CL_SUCCESS && !failed; i++) {
		if (p->notes[i].tasks.ints)
			experts = distinct(&p->notes[i].tasks);
		if (p->notes[i].routed && !p->timings[i].dense)
			p->timings[i].experts = experts;
		if (p->timed && p->notes[i].done)
			p->timings[i].ns = elapsed(p->notes[i].done);
	}
	forget(p);
	if (failed)
		return err_no_memory(e);
	if (code != CL_SUCCESS)
		return cl_error(e, code, "waiting for the kernels");
	*ret = p->timings;
	*ret_n = n;
	return 0;
}
