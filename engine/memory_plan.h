/* Plans buffers of the device before they are allocated.
 *
 * Every buffer of a plan is announced first (memory_plan_add), so that the sum is known. Then all buffers of the plan
 * are allocated at once. An engine has two plans. The first has weights and work space. The second has KV pages and
 * slots and is filled in when the weights are on the device, because coded weights (kernels/coded.h) take less than
 * planned. A planned buffer lives as long as its plan.
 *
 * On a CPU the buffers are cut from slabs, which are few large buffers. A slab is no larger than the largest buffer
 * that the device allows. The system is asked to back slabs with large pages (kernels/huge_pages.h). On a GPU each
 * buffer is an allocation of its own, because NVIDIA's driver copies a sub-buffer's bytes through host memory when it
 * is released. Releasing a sub-buffer of 16 GiB took 9.8 s and 16 GiB of host memory, releasing an allocation of its
 * own 0.0 s (H200, driver 580.159.04). With 125 GiB of sub-buffers the process ran out of memory and was killed. */
#pragma once

#include <CL/cl.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/device.h"

enum memory_class { MEMORY_WEIGHTS, MEMORY_KV, MEMORY_STATE, MEMORY_SCRATCH, MEMORY_CLASSES };

struct memory_plan;

struct memory_plan *memory_plan_new(const struct device *d);
void memory_plan_free(struct memory_plan *p);

/* Plans a buffer of so many bytes; 0 becomes the smallest buffer. Allocating the plan puts the buffer into *ret_buffer,
 * and freeing the plan releases it there, so *ret_buffer must live as long as the plan. The name is borrowed. Errors
 * are kept for memory_plan_allocate. */
void memory_plan_add(struct memory_plan *p, enum memory_class class, const char *name,
		     uint64_t bytes, cl_mem *ret_buffer);

/* Return the bytes planned so far, of one class and of all; the size of each buffer is rounded up to the device's
 * alignment. */
uint64_t memory_plan_bytes(const struct memory_plan *p, enum memory_class class);
uint64_t memory_plan_total(const struct memory_plan *p);

/* Allocates all buffers of the plan. -ENOMEM: a buffer is larger than the device allows, or memory is short. Other
 * errors: a sub-buffer could not be made. */
int memory_plan_allocate(struct memory_plan *p, struct err *e) MUST_CHECK;
