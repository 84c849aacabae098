#include "engine/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cl_error.h"

/* A call that is out. */
struct copy {
	struct pieces *pieces;
	engine_done *done;
	void *tag;
};

void pieces_init(struct pieces *t, const struct device *d, const struct model *m,
		 struct engine_counters *counters)
{
	*t = (struct pieces){.device = d, .model = m, .counters = counters};
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->all_back, NULL);
}

void pieces_wait(struct pieces *t)
{
	pthread_mutex_lock(&t->lock);
	while (t->n_out)
		pthread_cond_wait(&t->all_back, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void pieces_release(struct pieces *t)
{
	pieces_wait(t);
	for (size_t i = 0; i < t->n_writes; i++)
		clReleaseEvent(t->writes[i]);
	free(t->writes);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->all_back);
}

uint64_t pieces_bytes(const struct pieces *t, enum tier_kind kind, uint32_t part)
{
	struct item_part parts[LAYER_PIECES_MAX];

	for (uint32_t i = 0; i < t->model->config->n_layers; i++)
		if (part < item_parts(t->model, kind, 0, i, parts))
			return parts[part].bytes;
	return 0;
}

static void count(struct pieces *t, int change)
{
	pthread_mutex_lock(&t->lock);
	t->n_out += (uint32_t)change;
	if (!t->n_out)
		pthread_cond_signal(&t->all_back);
	pthread_mutex_unlock(&t->lock);
}

/* Who waits for all to be back may free everything once the last was counted. */
static void end(struct copy *c, bool good)
{
	struct pieces *t = c->pieces;

	c->done(c->tag, good);
	free(c);
	count(t, -1);
}

static void CL_CALLBACK copied(cl_event event, cl_int status, void *user)
{
	struct copy *c = user;

	(void)event;
	if (status != CL_COMPLETE)
		atomic_store(&c->pieces->failed, true);
	end(c, status == CL_COMPLETE);
}

static int lose(struct pieces *t, cl_int code, struct err *e)
{
	cl_error(&t->lost, code, "copying parts of pages or states between host and device");
	t->lost.code = EIO;
	if (e)
		*e = t->lost;
	return -EIO;
}

int pieces_check(struct pieces *t, struct err *e)
{
	size_t through = 0;
	cl_int status = CL_COMPLETE;

	for (; through < t->n_writes; through++) {
		cl_int code = clGetEventInfo(t->writes[through], CL_EVENT_COMMAND_EXECUTION_STATUS,
					     sizeof(status), &status, NULL);

		if (code != CL_SUCCESS)
			status = code;
		if (status != CL_COMPLETE)
			break;
		clReleaseEvent(t->writes[through]);
	}
	t->n_writes -= through;
	if (through)
		memmove(t->writes, t->writes + through, t->n_writes * sizeof(*t->writes));
	if (!t->lost.code && status < 0)
		return lose(t, status, e);
	if (!t->lost.code && atomic_load(&t->failed))
		return lose(t, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, e);
	if (!t->lost.code)
		return 0;
	if (e)
		*e = t->lost;
	return -EIO;
}

static int check(struct pieces *t, const struct engine_piece *pieces, uint32_t n, struct err *e)
{
	const struct model_config *c = t->model->config;
	struct item_part parts[LAYER_PIECES_MAX];

	if (pieces_check(t, e) < 0)
		return -EIO;
	if (!n)
		return err_set(e, EINVAL, "there are no pieces to copy");
	for (uint32_t i = 0; i < n; i++) {
		const struct engine_piece *p = &pieces[i];
		bool page = p->kind == TIER_PAGE;

		if (p->layer >= c->n_layers ||
		    p->part >= item_parts(t->model, p->kind, p->id, p->layer, parts) ||
		    p->id >= (page ? t->model->n_pages : t->model->n_slots))
			return err_set(e, EINVAL, "layer %u has no %s %u", p->layer,
				       page ? "page" : "state", p->id);
	}
	return 0;
}

static cl_int copy_part(struct pieces *t, const struct item_part *p, bool write, char *host,
			cl_event *ret_done)
{
	cl_command_queue q = t->device->queue;

	return write ? clEnqueueWriteBuffer(q, p->buffer, CL_FALSE, p->at, p->bytes, host, 0, NULL,
					    ret_done)
		     : clEnqueueReadBuffer(q, p->buffer, CL_FALSE, p->at, p->bytes, host, 0, NULL,
					   ret_done);
}

static cl_int enqueue(struct pieces *t, const struct engine_piece *pieces, uint32_t n, bool write,
		      char *host, cl_event *ret_done)
{
	cl_int code = CL_SUCCESS;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n && code == CL_SUCCESS; i++) {
		const struct engine_piece *p = &pieces[i];
		struct item_part parts[LAYER_PIECES_MAX];

		(void)item_parts(t->model, p->kind, p->id, p->layer, parts);
		code = copy_part(t, &parts[p->part], write, host + bytes,
				 i + 1 == n ? ret_done : NULL);
		bytes += parts[p->part].bytes;
	}
	if (code == CL_SUCCESS)
		code = clFlush(t->device->queue);
	*(write ? &t->counters->bytes_to_device : &t->counters->bytes_from_device) += bytes;
	return code;
}

/* For one more write. */
static int reserve(struct pieces *t)
{
	size_t cap = MAX(2 * t->cap, (size_t)64);
	cl_event *writes;

	if (t->n_writes < t->cap)
		return 0;
	writes = reallocarray(t->writes, cap, sizeof(*writes));
	if (!writes)
		return -ENOMEM;
	t->writes = writes;
	t->cap = cap;
	return 0;
}

int pieces_copy(struct pieces *t, const struct engine_piece *pieces, uint32_t n, bool write,
		void *host, engine_done *done, void *tag, struct err *e)
{
	cl_event event = NULL;
	struct copy *c;
	cl_int code;
	int r = check(t, pieces, n, e);

	if (r < 0)
		return r;
	c = write && reserve(t) < 0 ? NULL : malloc(sizeof(*c));
	if (!c)
		return err_set(e, ENOMEM, "out of memory");
	*c = (struct copy){t, done, tag};
	count(t, 1);
	code = enqueue(t, pieces, n, write, host, &event);
	if (code == CL_SUCCESS)
		code = clSetEventCallback(event, CL_COMPLETE, copied, c);
	if (code == CL_SUCCESS && write)
		t->writes[t->n_writes++] = event;
	else if (event)
		clReleaseEvent(event);
	if (code == CL_SUCCESS)
		return 0;
	/* Some of it may be on the queue, and the host's bytes go: nothing may run on. */
	clFinish(t->device->queue);
	free(c);
	count(t, -1);
	return lose(t, code, e);
}
