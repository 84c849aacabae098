#include "engine/memory_plan.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "kernels/cl_error.h"
#include "kernels/huge_pages.h"

struct planned {
	const char *name;
	uint64_t bytes;
	cl_mem *ret;
};

struct memory_plan {
	const struct device *device; /* borrowed */
	struct planned *items;
	size_t n, cap;
	cl_mem *slabs;
	size_t n_slabs;
	uint64_t bytes[MEMORY_CLASSES];
	int failed;
};

struct memory_plan *memory_plan_new(const struct device *d)
{
	struct memory_plan *p = calloc(1, sizeof(*p));

	if (p)
		p->device = d;
	return p;
}

void memory_plan_free(struct memory_plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++)
		if (*p->items[i].ret)
			clReleaseMemObject(*p->items[i].ret);
	for (size_t i = 0; i < p->n_slabs; i++)
		clReleaseMemObject(p->slabs[i]);
	free(p->items);
	free(p->slabs);
	free(p);
}

void memory_plan_add(struct memory_plan *p, enum memory_class class, const char *name,
		     uint64_t bytes, cl_mem *ret_buffer)
{
	*ret_buffer = NULL;
	if (!array_grow(p->items, p->cap, p->n + 1)) {
		p->failed = ENOMEM;
		return;
	}
	bytes = ROUND_UP(MAX(bytes, (uint64_t)1), p->device->alignment);
	p->items[p->n++] = (struct planned){name, bytes, ret_buffer};
	p->bytes[class] += bytes;
}

uint64_t memory_plan_bytes(const struct memory_plan *p, enum memory_class class)
{
	return p->bytes[class];
}

uint64_t memory_plan_total(const struct memory_plan *p)
{
	uint64_t total = 0;

	for (size_t i = 0; i < MEMORY_CLASSES; i++)
		total += p->bytes[i];
	return total;
}

static int create_buffer(const struct device *d, const char *name, uint64_t bytes, cl_mem *ret,
			 struct err *e)
{
	cl_mem_flags flags = CL_MEM_READ_WRITE | (d->cpu ? CL_MEM_ALLOC_HOST_PTR : 0);
	cl_int code;
	cl_mem buffer = clCreateBuffer(d->context, flags, bytes, NULL, &code);

	if (code != CL_SUCCESS)
		return err_set(e, ENOMEM, "the device has no room for %s of %llu MiB (%s)", name,
			       (unsigned long long)(bytes >> 20), cl_error_name(code));
	*ret = buffer;
	return 0;
}

/* Allocates one slab of `bytes` bytes and cuts the buffers of items[first] .. items[end - 1] from it. */
static int allocate_slab(struct memory_plan *p, size_t first, size_t end, uint64_t bytes,
			 struct err *e)
{
	uint64_t at = 0;
	cl_mem slab;
	cl_int code;
	int r = create_buffer(p->device, "a slab", bytes, &slab, e);

	if (r < 0)
		return r;
	p->slabs[p->n_slabs++] = slab;
	huge_pages_ask(p->device->queue, slab, bytes);
	for (size_t i = first; i < end; i++) {
		cl_buffer_region region = {at, p->items[i].bytes};

		*p->items[i].ret = clCreateSubBuffer(slab, CL_MEM_READ_WRITE,
						     CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
		if (code != CL_SUCCESS) {
			*p->items[i].ret = NULL;
			return cl_error(e, code, p->items[i].name);
		}
		at += p->items[i].bytes;
	}
	return 0;
}

static int allocate_slabs(struct memory_plan *p, struct err *e)
{
	size_t first = 0;
	uint64_t bytes = 0;
	int r;

	p->slabs = calloc(p->n + 1, sizeof(*p->slabs));
	if (!p->slabs)
		return err_no_memory(e);
	for (size_t i = 0; i < p->n; i++) {
		if (bytes + p->items[i].bytes > p->device->max_alloc) {
			r = allocate_slab(p, first, i, bytes, e);
			if (r < 0)
				return r;
			first = i;
			bytes = 0;
		}
		bytes += p->items[i].bytes;
	}
	return p->n ? allocate_slab(p, first, p->n, bytes, e) : 0;
}

int memory_plan_allocate(struct memory_plan *p, struct err *e)
{
	if (p->failed)
		return err_no_memory(e);
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].bytes > p->device->max_alloc)
			return err_set(
				e, ENOMEM,
				"%s needs %llu MiB, and the largest buffer of %s is %llu MiB",
				p->items[i].name, (unsigned long long)(p->items[i].bytes >> 20),
				p->device->name, (unsigned long long)(p->device->max_alloc >> 20));
	if (p->device->cpu)
		return allocate_slabs(p, e);
	for (size_t i = 0; i < p->n; i++) {
		int r = create_buffer(p->device, p->items[i].name, p->items[i].bytes,
				      p->items[i].ret, e);

		if (r < 0)
			return r;
	}
	return 0;
}
