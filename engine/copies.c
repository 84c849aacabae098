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

void copies_init(struct copies *t, const struct device *d, const struct model *m,
		 struct engine_counters *counters)
{
	*t = (struct copies){.device = d, .model = m, .counters = counters};
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->all_back, NULL);
}

void copies_wait(struct copies *t)
{
	pthread_mutex_lock(&t->lock);
	while (t->n_out)
		pthread_cond_wait(&t->all_back, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void copies_release(struct copies *t)
{
	copies_wait(t);
	for (; t->head < t->tail; t->head++)
		clReleaseEvent(t->items[t->head % ENGINE_ITEMS_OUT].done);
	for (size_t i = 0; i < t->n_writes; i++)
		clReleaseEvent(t->writes[i]);
	free(t->writes);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->all_back);
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
	clFinish(t->device->queue);
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

/* ---- commands ---- */

static uint32_t count_of(const struct copies *t, enum tier_kind kind)
{
	return kind == TIER_PAGE ? t->model->n_pages : t->model->n_slots;
}

/* Queues the copy of one piece of page or slot `id`, and moves *host behind the piece's bytes. */
static cl_int copy_piece(struct copies *t, uint32_t layer, uint32_t part, uint32_t id, bool write,
			 char **host, cl_event *ret_done)
{
	const struct model_layer *l = &t->model->layers[layer];
	const struct layer_part *p = &l->parts[part];
	cl_command_queue q = t->device->queue;
	uint64_t bytes = p->bytes;
	char *at = *host;

	*(write ? &t->counters->bytes_to_device : &t->counters->bytes_from_device) += bytes;
	*host += bytes;
	return write ? clEnqueueWriteBuffer(q, l->at[p->at], CL_FALSE, id * bytes, bytes, at, 0,
					    NULL, ret_done)
		     : clEnqueueReadBuffer(q, l->at[p->at], CL_FALSE, id * bytes, bytes, at, 0,
					   NULL, ret_done);
}

static cl_int copy_item(struct copies *t, enum tier_kind kind, uint32_t id, bool write, char *host,
			cl_event *ret_done)
{
	const char *end = host + model_item_bytes(t->model, kind);
	cl_int code = CL_SUCCESS;

	for (uint32_t i = 0; i < t->model->config->n_layers; i++) {
		const struct model_layer *l = &t->model->layers[i];

		for (uint32_t k = 0; k < l->n_parts && code == CL_SUCCESS; k++) {
			bool last = host + l->parts[k].bytes == end;

			if (l->parts[k].kind == kind)
				code = copy_piece(t, i, k, id, write, &host,
						  last ? ret_done : NULL);
		}
	}
	return code == CL_SUCCESS ? clFlush(t->device->queue) : code;
}

static cl_int copy_pieces(struct copies *t, const struct engine_piece *pieces, uint32_t n,
			  bool write, char *host, cl_event *ret_done)
{
	cl_int code = CL_SUCCESS;

	for (uint32_t i = 0; i < n && code == CL_SUCCESS; i++)
		code = copy_piece(t, pieces[i].layer, pieces[i].part, pieces[i].id, write, &host,
				  i + 1 == n ? ret_done : NULL);
	return code == CL_SUCCESS ? clFlush(t->device->queue) : code;
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
	cl_int code;

	if (t->lost.code)
		return fail(t, e);
	if (id >= count_of(t, kind) || !model_item_bytes(t->model, kind))
		return err_set(e, EINVAL, "there is no %s %u", kind == TIER_PAGE ? "page" : "state",
			       id);
	if (copies_items_out(t) == ENGINE_ITEMS_OUT)
		return err_set(e, EBUSY, "%d copies are out already", ENGINE_ITEMS_OUT);
	code = copy_item(t, kind, id, write, host, &t->items[at].done);
	if (code != CL_SUCCESS)
		return abandon(t, code, e);
	t->items[at].tag = tag;
	t->tail++;
	return 0;
}

int copies_items_done(struct copies *t, void **tags, uint32_t max, uint32_t *ret_n, struct err *e)
{
	uint32_t n = 0;

	/* With -EIO the caller gets its host memory back, which copies must then no longer use. */
	if (t->lost.code)
		clFinish(t->device->queue);
	for (; n < max && copies_items_out(t); n++) {
		cl_event done = t->items[t->head % ENGINE_ITEMS_OUT].done;
		cl_int status = t->lost.code ? CL_COMPLETE : status_of(done);

		if (status > CL_COMPLETE)
			break;
		if (status < 0)
			abandon(t, status, NULL);
		clReleaseEvent(done);
		tags[n] = t->items[t->head++ % ENGINE_ITEMS_OUT].tag;
	}
	*ret_n = n;
	return t->lost.code ? fail(t, e) : 0;
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

int copies_check(struct copies *t, struct err *e)
{
	cl_int status = CL_COMPLETE;
	size_t through = 0;

	for (; through < t->n_writes; through++) {
		status = status_of(t->writes[through]);
		if (status != CL_COMPLETE)
			break;
		clReleaseEvent(t->writes[through]);
	}
	t->n_writes -= through;
	if (through)
		memmove(t->writes, t->writes + through, t->n_writes * sizeof(*t->writes));
	if (status < 0)
		return lose(t, status, e);
	if (atomic_load(&t->failed))
		return lose(t, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, e);
	return t->lost.code ? fail(t, e) : 0;
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
	cl_event event = NULL;
	struct copy_call *c;
	cl_int code;
	int r = copies_check(t, e);

	if (r == 0)
		r = check_pieces(t, pieces, n, e);
	if (r < 0)
		return r;
	c = write && !array_grow(t->writes, t->cap, t->n_writes + 1) ? NULL : malloc(sizeof(*c));
	if (!c)
		return err_no_memory(e);
	*c = (struct copy_call){t, done, tag};
	count(t, 1);
	code = copy_pieces(t, pieces, n, write, host, &event);
	if (code == CL_SUCCESS)
		code = clSetEventCallback(event, CL_COMPLETE, copied, c);
	if (code == CL_SUCCESS && write)
		t->writes[t->n_writes++] = event;
	else if (event)
		clReleaseEvent(event);
	if (code == CL_SUCCESS)
		return 0;
	free(c);
	count(t, -1);
	return abandon(t, code, e);
}
