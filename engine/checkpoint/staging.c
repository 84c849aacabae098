#include "engine/checkpoint/staging.h"

bool staging_open(struct staging *s, cl_context context, cl_command_queue queue, uint64_t bytes)
{
	*s = (struct staging){.queue = queue, .bytes = bytes};
	for (unsigned i = 0; i < STAGING_BLOCKS; i++) {
		cl_int code;

		s->buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
					       bytes, NULL, &code);
		if (code == CL_SUCCESS)
			s->blocks[i] = clEnqueueMapBuffer(queue, s->buffers[i], CL_TRUE,
							  CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes,
							  0, NULL, NULL, &code);
		if (code != CL_SUCCESS) {
			staging_close(s);
			return false;
		}
	}
	return true;
}

void staging_close(struct staging *s)
{
	for (unsigned i = 0; i < STAGING_BLOCKS; i++) {
		if (s->copied[i])
			clReleaseEvent(s->copied[i]);
		if (s->blocks[i])
			clEnqueueUnmapMemObject(s->queue, s->buffers[i], s->blocks[i], 0, NULL,
						NULL);
		if (s->buffers[i])
			clReleaseMemObject(s->buffers[i]);
	}
	*s = (struct staging){0};
}

void *staging_take(struct staging *s, struct err *e)
{
	cl_event *copied = &s->copied[s->turn];
	cl_int code;

	if (!*copied)
		return s->blocks[s->turn];
	code = clWaitForEvents(1, copied);
	clReleaseEvent(*copied);
	*copied = NULL;
	if (code == CL_SUCCESS)
		return s->blocks[s->turn];
	cl_error(e, code, "writing weights");
	return NULL;
}

void staging_send(struct staging *s, cl_mem buffer, uint64_t offset, uint64_t bytes, struct err *e)
{
	cl_int code = clEnqueueWriteBuffer(s->queue, buffer, CL_FALSE, offset, bytes,
					   s->blocks[s->turn], 0, NULL, &s->copied[s->turn]);

	if (code == CL_SUCCESS)
		code = clFlush(s->queue); /* the copy begins now, not when the host waits for it */
	if (code != CL_SUCCESS)
		cl_error(e, code, "writing weights");
	s->turn = (s->turn + 1) % STAGING_BLOCKS;
}
