#include "engine/block.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/cl_error.h"

struct engine_block {
	cl_command_queue queue;
	cl_mem memory;
	void *data;
};

int block_new(const struct device *d, uint64_t bytes, struct engine_block **ret, struct err *e)
{
	struct engine_block *b = calloc(1, sizeof(*b));
	cl_int code;

	if (!b)
		return err_no_memory(e);
	b->queue = d->queue;
	b->memory = clCreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes,
				   NULL, &code);
	if (code == CL_SUCCESS)
		b->data =
			clEnqueueMapBuffer(d->queue, b->memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
					   0, bytes, 0, NULL, NULL, &code);
	if (code == CL_SUCCESS) {
		*ret = b;
		return 0;
	}
	engine_block_free(b);
	return err_set(e, ENOMEM, "no host memory for copies, %llu KiB (%s)",
		       (unsigned long long)(bytes >> 10), cl_error_name(code));
}

void *engine_block_data(struct engine_block *b)
{
	return b->data;
}

void engine_block_free(struct engine_block *b)
{
	if (!b)
		return;
	if (b->data) {
		clEnqueueUnmapMemObject(b->queue, b->memory, b->data, 0, NULL, NULL);
		clFinish(b->queue);
	}
	if (b->memory)
		clReleaseMemObject(b->memory);
	free(b);
}
