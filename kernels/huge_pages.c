#include "kernels/huge_pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void huge_pages_ask(cl_command_queue queue, cl_mem buffer, uint64_t bytes)
{
#ifdef MADV_HUGEPAGE
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin, end;
	cl_int code;
	/* The buffer's address; no byte is read or written through it. */
	void *p = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, bytes, 0, NULL, NULL,
				     &code);

	if (code != CL_SUCCESS)
		return;
	begin = ((uintptr_t)p + page - 1) & ~(page - 1);
	end = ((uintptr_t)p + bytes) & ~(page - 1);
	if (begin < end)
		madvise((void *)begin, end - begin, MADV_HUGEPAGE);
	clEnqueueUnmapMemObject(queue, buffer, p, 0, NULL, NULL);
	clFinish(queue);
#endif
}
