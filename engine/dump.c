#include "engine/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "kernels/kernels.h"

struct dumped {
	char name[48];
	float *data; /* owned */
	uint64_t rows, cols;
};

struct dump {
	const char *path;
	cl_command_queue queue;
	struct dumped *items;
	size_t n;
	uint64_t bytes;
	bool full, failed;
};

struct dump *dump_new(const char *path, cl_command_queue queue)
{
	struct dump *d = calloc(1, sizeof(*d));

	if (d) {
		d->path = path;
		d->queue = queue;
	}
	return d;
}

void dump_free(struct dump *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		free(d->items[i].data);
	free(d->items);
	free(d);
}

/* Returns room for `rows` more rows behind those of the tensor `name`. Makes the tensor if the dump does not have it.
 * NULL: the dump is full, or out of memory. */
static float *grow(struct dump *d, const char *name, uint64_t rows, uint64_t cols)
{
	struct dumped *item = NULL;
	float *data;

	for (size_t i = 0; i < d->n; i++)
		if (!strcmp(d->items[i].name, name))
			item = &d->items[i];
	if (!item) {
		struct dumped *items = realloc(d->items, (d->n + 1) * sizeof(*items));

		if (!items) {
			d->failed = true;
			return NULL;
		}
		d->items = items;
		item = &items[d->n++];
		*item = (struct dumped){.cols = cols};
		snprintf(item->name, sizeof(item->name), "%s", name);
	}
	if (d->bytes + rows * cols * 4 > DUMP_BYTES_MAX) {
		if (!d->full)
			log_warning("activations: %s is full, later steps are not in it", d->path);
		d->full = true;
		return NULL;
	}
	data = realloc(item->data, (item->rows + rows) * cols * sizeof(*data));
	if (!data) {
		d->failed = true;
		return NULL;
	}
	item->data = data;
	d->bytes += rows * cols * 4;
	item->rows += rows;
	return data + (item->rows - rows) * cols;
}

/* Writes the name with the index in place of its %u, as in "layer%u.mlp". */
static void format_name(char *out, size_t size, const char *name, uint32_t index)
{
	const char *mark = strstr(name, "%u");

	if (mark)
		snprintf(out, size, "%.*s%u%s", (int)(mark - name), name, index, mark + 2);
	else
		snprintf(out, size, "%s", name);
}

void dump_rows(struct dump *d, const char *name, uint32_t index, cl_mem buffer, uint32_t rows,
	       uint32_t cols)
{
	const size_t zero[3] = {0, 0, 0}, region[3] = {cols * 4, rows, 1};
	char full[48];
	float *out;

	if (!d || d->full || !rows)
		return;
	format_name(full, sizeof(full), name, index);
	out = grow(d, full, rows, cols);
	if (out && clEnqueueReadBufferRect(d->queue, buffer, CL_TRUE, zero, zero, region,
					   KERNEL_LD(cols) * 4, 0, cols * 4, 0, out, 0, NULL,
					   NULL) != CL_SUCCESS)
		d->failed = true;
}

void dump_ints(struct dump *d, const char *name, const int32_t *v, uint32_t n)
{
	float *out = d && !d->full ? grow(d, name, n, 1) : NULL;

	for (uint32_t i = 0; out && i < n; i++)
		out[i] = (float)v[i];
}

static int produce(size_t index, void *data, void *user, struct err *e)
{
	const struct dump *d = user;

	(void)e;
	memcpy(data, d->items[index].data, d->items[index].rows * d->items[index].cols * 4);
	return 0;
}

int dump_write(struct dump *d, struct err *e)
{
	struct tensor *tensors = calloc(d->n + 1, sizeof(*tensors));
	int r;

	if (!tensors || d->failed) {
		free(tensors);
		return err_set(e, EIO, "activations could not be kept");
	}
	for (size_t i = 0; i < d->n; i++)
		tensors[i] = (struct tensor){.name = d->items[i].name,
					     .bytes = d->items[i].rows * d->items[i].cols * 4,
					     .shape = {d->items[i].rows, d->items[i].cols},
					     .n_dims = 2,
					     .type = stored_type_find("F32")};
	r = safetensors_write(d->path, tensors, d->n, produce, d, e);
	free(tensors);
	return r;
}
