#include "engine/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "kernels/cl_error.h"

/* A copy of pieces whose callback is still to come. */
struct copy_call {
	struct copies *copies;
	engine_done *done;
	void *tag;
};

int copies_init(struct copies *t, const struct device *d, const struct model *m, bool apart,
		struct engine_counters *counters, struct err *e)
{
	cl_int code;

	*t = (struct copies){.device = d, .model = m, .counters = counters, .queue = d->queue};
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->all_back, NULL);
	if (!apart)
		return 0;
	if (hazards_init(&t->hazards, m->n_pages, m->n_slots, m->shape.page_tokens) < 0)
		return err_no_memory(e);
	t->queue = clCreateCommandQueue(d->context, d->id, 0, &code);
	t->apart = code == CL_SUCCESS;
	return cl_error(e, code, "making a queue for copies");
}

void copies_wait(struct copies *t)
{
	if (t->queue)
		clFinish(t->queue);
	pthread_mutex_lock(&t->lock);
	while (t->n_out)
		pthread_cond_wait(&t->all_back, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void copies_release(struct copies *t)
{
	if (!t->device)
		return;
	copies_wait(t);
	for (size_t i = 0; i < t->n_queued; i++)
		clReleaseEvent(t->queued[i]);
	free(t->queued);
	for (size_t i = 0; i < ENGINE_STEPS_OUT; i++)
		if (t->plans[i])
			clReleaseEvent(t->plans[i]);
	if (t->apart)
		clReleaseCommandQueue(t->queue);
	hazards_release(&t->hazards);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->all_back);
	*t = (struct copies){0};
}

static int fail(const struct copies *t, struct err *e)
{
	if (e)
		*e = t->lost;
	return -EIO;
}

static int lose(struct copies *t, cl_int code, struct err *e)
{
	if (!t->lost.code) {
		cl_error(&t->lost, code, "copying pages or states between host and device");
		t->lost.code = EIO;
	}
	return fail(t, e);
}

/* Fails a call of which some commands may already be queued, and notes that the device is lost. Waits for the queue
 * first, so that no command still uses the host memory that the caller gets back. */
static int abandon(struct copies *t, cl_int code, struct err *e)
{
	clFinish(t->queue);
	return lose(t, code, e);
}

/* Returns CL_COMPLETE if the event's command has run, a larger number if it has not run yet, or a negative error. */
static cl_int status_of(cl_event event)
{
	cl_int status = CL_QUEUED;
	cl_int code = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
				     &status, NULL);

	return code == CL_SUCCESS ? status : code;
}

int copies_check(struct copies *t, struct err *e)
{
	cl_int status = CL_COMPLETE;
	size_t through = 0;

	for (; through < t->n_queued; through++) {
		status = status_of(t->queued[through]);
		if (status != CL_COMPLETE)
			break;
		clReleaseEvent(t->queued[through]);
	}
	t->n_done += through;
	t->n_queued -= through;
	if (through)
		memmove(t->queued, t->queued + through, t->n_queued * sizeof(*t->queued));
	if (status < 0)
		return lose(t, status, e);
	if (atomic_load(&t->failed))
		return lose(t, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, e);
	return t->lost.code ? fail(t, e) : 0;
}

/* ---- the order between copies and plans ---- */

int copies_plan_begins(struct copies *t, const struct plan *plan, struct err *e)
{
	cl_int code = CL_SUCCESS;
	uint64_t copy;

	/* A copy that could not be queued is noted in hazards, but has no event. */
	if (t->lost.code)
		return fail(t, e);
	if (!t->apart)
		return 0;
	copy = hazards_plan(&t->hazards, plan, t->n_plans + 1);
	if (copy > t->n_done)
		code = clEnqueueBarrierWithWaitList(t->device->queue, 1,
						    &t->queued[copy - t->n_done - 1], NULL);
	return code == CL_SUCCESS ? 0 : lose(t, code, e);
}

void copies_plan_queued(struct copies *t, cl_event done)
{
	cl_event *event = &t->plans[++t->n_plans % ENGINE_STEPS_OUT];

	if (!t->apart)
		return;
	if (*event)
		clReleaseEvent(*event);
	clRetainEvent(done);
	*event = done;
}

/* *ret: an event of the plans' queue after which all commands of a plan have run, to be released; NULL: they have. If
 * the plan is being queued, and has no event yet, the event stands behind its commands so far. */
static cl_int event_of_plan(struct copies *t, uint64_t plan, cl_event *ret)
{
	cl_int code;

	*ret = NULL;
	if (plan + ENGINE_STEPS_OUT <= t->n_plans || !plan)
		return CL_SUCCESS;
	if (plan <= t->n_plans) {
		*ret = t->plans[plan % ENGINE_STEPS_OUT];
		return clRetainEvent(*ret);
	}
	code = clEnqueueMarkerWithWaitList(t->device->queue, 0, NULL, ret);
	return code == CL_SUCCESS ? clFlush(t->device->queue) : code;
}

/* ---- commands ---- */

static uint32_t count_of(const struct copies *t, enum tier_kind kind)
{
	return kind == TIER_PAGE ? t->model->n_pages : t->model->n_slots;
}

/* Returns the number of the copy that is queued next. */
static uint64_t next_copy(const struct copies *t)
{
	return t->n_done + t->n_queued + 1;
}

/* A call while its commands are queued. */
struct call {
	bool write;
	char *host;	/* the bytes of the next piece */
	cl_event after; /* the first command waits for it; NULL: for none */
	cl_event done;	/* of the last command; NULL: none is queued yet */
	cl_int code;	/* CL_SUCCESS, or why no further command is queued */
};

/* Notes that the call uses a page or slot, and returns the last plan that the call has to wait for. */
static uint64_t note_use(struct copies *t, const struct call *c, enum tier_kind kind, uint32_t id)
{
	return t->apart ? hazards_copy(&t->hazards, kind, id, c->write, next_copy(t)) : 0;
}

/* Queues the copy of one piece of page or slot `id`. */
static void copy_piece(struct copies *t, struct call *c, uint32_t layer, uint32_t part, uint32_t id,
		       bool last)
{
	const struct model_layer *l = &t->model->layers[layer];
	const struct layer_part *p = &l->parts[part];
	cl_uint n_after = c->after != NULL;
	const cl_event *after = n_after ? &c->after : NULL;
	cl_event *done = last ? &c->done : NULL;
	uint64_t bytes = p->bytes;

	if (c->code != CL_SUCCESS)
		return;
	c->code = c->write ? clEnqueueWriteBuffer(t->queue, l->at[p->at], CL_FALSE, id * bytes,
						  bytes, c->host, n_after, after, done)
			   : clEnqueueReadBuffer(t->queue, l->at[p->at], CL_FALSE, id * bytes,
						 bytes, c->host, n_after, after, done);
	*(c->write ? &t->counters->bytes_to_device : &t->counters->bytes_from_device) += bytes;
	c->host += bytes;
	if (c->after)
		clReleaseEvent(c->after);
	c->after = NULL;
}

static void copy_item(struct copies *t, struct call *c, enum tier_kind kind, uint32_t id)
{
	const char *end = c->host + model_item_bytes(t->model, kind);

	c->code = event_of_plan(t, note_use(t, c, kind, id), &c->after);
	for (uint32_t i = 0; i < t->model->config->n_layers; i++) {
		const struct model_layer *l = &t->model->layers[i];

		for (uint32_t k = 0; k < l->n_parts; k++)
			if (l->parts[k].kind == kind)
				copy_piece(t, c, i, k, id, c->host + l->parts[k].bytes == end);
	}
}

static void copy_pieces(struct copies *t, struct call *c, const struct engine_piece *pieces,
			uint32_t n)
{
	uint64_t plan = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct engine_piece *p = &pieces[i];

		plan = MAX(plan,
			   note_use(t, c, t->model->layers[p->layer].parts[p->part].kind, p->id));
	}
	c->code = event_of_plan(t, plan, &c->after);
	for (uint32_t i = 0; i < n; i++)
		copy_piece(t, c, pieces[i].layer, pieces[i].part, pieces[i].id, i + 1 == n);
}

/* Begins the commands of a call, which are all queued. */
static void begin(struct copies *t, struct call *c)
{
	if (c->code == CL_SUCCESS)
		c->code = clFlush(t->queue);
}

/* Ends a call: keeps the event of its last command, or gives the call's events up if it has failed. */
static cl_int end(struct copies *t, struct call *c)
{
	if (c->code == CL_SUCCESS)
		t->queued[t->n_queued++] = c->done;
	else if (c->done)
		clReleaseEvent(c->done);
	if (c->after)
		clReleaseEvent(c->after);
	return c->code;
}

/* ---- items ---- */

uint32_t copies_items_out(const struct copies *t)
{
	return (uint32_t)(t->tail - t->head);
}

int copies_item(struct copies *t, enum tier_kind kind, uint32_t id, bool write, void *host,
		void *tag, struct err *e)
{
	uint64_t at = t->tail % ENGINE_ITEMS_OUT;
	struct call call = {.write = write, .host = host};

	if (t->lost.code)
		return fail(t, e);
	if (id >= count_of(t, kind) || !model_item_bytes(t->model, kind))
		return err_set(e, EINVAL, "there is no %s %u", kind == TIER_PAGE ? "page" : "state",
			       id);
	if (copies_items_out(t) == ENGINE_ITEMS_OUT)
		return err_set(e, EBUSY, "%d copies are out already", ENGINE_ITEMS_OUT);
	if (!array_grow(t->queued, t->cap, t->n_queued + 1))
		return err_no_memory(e);
	t->items[at].copy = next_copy(t);
	t->items[at].tag = tag;
	copy_item(t, &call, kind, id);
	begin(t, &call);
	if (end(t, &call) != CL_SUCCESS)
		return abandon(t, call.code, e);
	t->tail++;
	return 0;
}

int copies_items_done(struct copies *t, void **tags, uint32_t max, uint32_t *ret_n, struct err *e)
{
	bool lost = copies_check(t, NULL) < 0;
	uint32_t n = 0;

	/* With -EIO the caller gets its host memory back, which copies must then no longer use. */
	if (lost)
		clFinish(t->queue);
	for (; n < max && copies_items_out(t); n++) {
		uint64_t at = t->head % ENGINE_ITEMS_OUT;

		if (!lost && t->items[at].copy > t->n_done)
			break;
		tags[n] = t->items[at].tag;
		t->head++;
	}
	*ret_n = n;
	return lost ? fail(t, e) : 0;
}

/* ---- pieces ---- */

static void count(struct copies *t, int change)
{
	pthread_mutex_lock(&t->lock);
	t->n_out += (uint32_t)change;
	if (!t->n_out)
		pthread_cond_signal(&t->all_back);
	pthread_mutex_unlock(&t->lock);
}

/* Ends a copy of pieces: calls its engine_done and counts the copy as back. The driver calls this function, on a thread
 * of its own or inside clSetEventCallback. count() comes last: when n_out reaches 0, copies_wait returns and its caller
 * may free everything. */
static void CL_CALLBACK copied(cl_event event, cl_int status, void *user)
{
	struct copy_call *c = user;
	struct copies *t = c->copies;

	(void)event;
	if (status != CL_COMPLETE)
		atomic_store(&t->failed, true);
	c->done(c->tag, status == CL_COMPLETE);
	free(c);
	count(t, -1);
}

static int check_pieces(const struct copies *t, const struct engine_piece *pieces, uint32_t n,
			struct err *e)
{
	const struct model *m = t->model;

	if (!n)
		return err_set(e, EINVAL, "there are no pieces to copy");
	for (uint32_t i = 0; i < n; i++) {
		const struct engine_piece *p = &pieces[i];

		if (p->layer >= m->config->n_layers || p->part >= m->layers[p->layer].n_parts ||
		    p->id >= count_of(t, m->layers[p->layer].parts[p->part].kind))
			return err_set(e, EINVAL, "layer %u has no piece %u of part %u", p->layer,
				       p->id, p->part);
	}
	return 0;
}

int copies_pieces(struct copies *t, const struct engine_piece *pieces, uint32_t n, bool write,
		  void *host, engine_done *done, void *tag, struct err *e)
{
	struct call call = {.write = write, .host = host};
	struct copy_call *c;
	int r = copies_check(t, e);

	if (r == 0)
		r = check_pieces(t, pieces, n, e);
	if (r < 0)
		return r;
	c = array_grow(t->queued, t->cap, t->n_queued + 1) ? malloc(sizeof(*c)) : NULL;
	if (!c)
		return err_no_memory(e);
	*c = (struct copy_call){t, done, tag};
	count(t, 1);
	copy_pieces(t, &call, pieces, n);
	begin(t, &call);
	if (call.code == CL_SUCCESS)
		call.code = clSetEventCallback(call.done, CL_COMPLETE, copied, c);
	if (end(t, &call) == CL_SUCCESS)
		return 0;
	free(c);
	count(t, -1);
	return abandon(t, call.code, e);
}
