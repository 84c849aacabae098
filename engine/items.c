#include "engine/items.h"

#include <errno.h>

#include "kernels/cl_error.h"

void items_init(struct items *t, const struct device *d, struct model *m,
		struct engine_counters *counters)
{
	*t = (struct items){.device = d, .model = m, .counters = counters};
}

void items_release(struct items *t)
{
	for (; t->head < t->tail; t->head++)
		clReleaseEvent(t->out[t->head % ENGINE_ITEMS_OUT].done);
}

uint32_t items_out(const struct items *t)
{
	return (uint32_t)(t->tail - t->head);
}

static int lose(struct items *t, struct err *e)
{
	if (e)
		*e = t->lost;
	return -EIO;
}

static int lose_by(struct items *t, cl_int code, const char *what, struct err *e)
{
	if (!t->lost.code) {
		cl_error(&t->lost, code, what);
		t->lost.code = EIO;
	}
	return lose(t, e);
}

/* ---- what an item consists of ---- */

uint32_t item_parts(const struct model *m, enum tier_kind kind, uint32_t id, uint32_t i,
		    struct item_part ret[LAYER_PIECES_MAX])
{
	const struct model_layer *l = &m->layers[i];
	uint32_t n = 0;

	for (uint32_t k = 0; k < l->n_pieces; k++)
		if (l->pieces[k].kind == kind)
			ret[n++] = (struct item_part){l->at[l->pieces[k].at],
						      id * l->pieces[k].bytes, l->pieces[k].bytes};
	return n;
}

static uint64_t bytes_of(const struct items *t, enum tier_kind kind)
{
	return model_item_bytes(t->model, kind);
}

static int check(struct items *t, enum tier_kind kind, uint32_t id, struct err *e)
{
	if (t->lost.code)
		return lose(t, e);
	if (id >= (kind == TIER_PAGE ? t->model->n_pages : t->model->n_slots) || !bytes_of(t, kind))
		return err_set(e, EINVAL, "there is no %s %u", kind == TIER_PAGE ? "page" : "state",
			       id);
	if (items_out(t) == ENGINE_ITEMS_OUT)
		return err_set(e, EBUSY, "%d copies are out already", ENGINE_ITEMS_OUT);
	return 0;
}

/* ---- copies ---- */

static cl_int copy_part(struct items *t, const struct item_part *p, bool write, char *host,
			cl_event *ret_done)
{
	cl_command_queue q = t->device->queue;

	return write ? clEnqueueWriteBuffer(q, p->buffer, CL_FALSE, p->at, p->bytes, host, 0, NULL,
					    ret_done)
		     : clEnqueueReadBuffer(q, p->buffer, CL_FALSE, p->at, p->bytes, host, 0, NULL,
					   ret_done);
}

static int copy_item(struct items *t, enum tier_kind kind, uint32_t id, bool write, char *host,
		     void *tag, struct err *e)
{
	uint64_t at = 0, bytes = bytes_of(t, kind);
	cl_event *done = &t->out[t->tail % ENGINE_ITEMS_OUT].done;
	struct item_part parts[LAYER_PIECES_MAX];
	cl_int code = CL_SUCCESS;

	for (uint32_t i = 0; i < t->model->config->n_layers; i++) {
		uint32_t n = item_parts(t->model, kind, id, i, parts);

		for (uint32_t k = 0; k < n && code == CL_SUCCESS; k++) {
			bool last = at + parts[k].bytes == bytes;

			code = copy_part(t, &parts[k], write, host + at, last ? done : NULL);
			at += parts[k].bytes;
		}
	}
	if (code == CL_SUCCESS)
		code = clFlush(t->device->queue);
	if (code != CL_SUCCESS) {
		/* Some of it may be on the queue, and the host's bytes go: nothing may run on. */
		clFinish(t->device->queue);
		return lose_by(t, code, "copying a page or state between host and device", e);
	}
	t->out[t->tail++ % ENGINE_ITEMS_OUT].tag = tag;
	*(write ? &t->counters->bytes_to_device : &t->counters->bytes_from_device) += bytes;
	return 0;
}

int items_read(struct items *t, enum tier_kind kind, uint32_t id, void *host, void *tag,
	       struct err *e)
{
	int r = check(t, kind, id, e);

	return r < 0 ? r : copy_item(t, kind, id, false, host, tag, e);
}

int items_write(struct items *t, enum tier_kind kind, uint32_t id, const void *host, void *tag,
		struct err *e)
{
	int r = check(t, kind, id, e);

	/* Only read from. */
	return r < 0 ? r : copy_item(t, kind, id, true, (char *)(uintptr_t)host, tag, e);
}

/* 1 when the oldest copy is through, 0 when not. */
static int oldest_done(struct items *t, struct err *e)
{
	cl_event done = t->out[t->head % ENGINE_ITEMS_OUT].done;
	cl_int status = CL_QUEUED, code;

	code = clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
			      NULL);
	if (code == CL_SUCCESS && status >= 0)
		return status == CL_COMPLETE;
	return lose_by(t, code == CL_SUCCESS ? status : code,
		       "copying a page or state between host and device", e);
}

int items_done(struct items *t, void **tags, uint32_t max, uint32_t *ret_n, struct err *e)
{
	uint32_t n = 0;
	int r = t->lost.code ? lose(t, e) : 0;

	while (n < max && items_out(t)) {
		if (r == 0) {
			int done = oldest_done(t, e);

			if (done == 0)
				break;
			if (done < 0) {
				/* The others may be under way to memory that is about to be given back. */
				clFinish(t->device->queue);
				r = done;
			}
		}
		clReleaseEvent(t->out[t->head % ENGINE_ITEMS_OUT].done);
		tags[n++] = t->out[t->head++ % ENGINE_ITEMS_OUT].tag;
	}
	*ret_n = n;
	return r;
}
