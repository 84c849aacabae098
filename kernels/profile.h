/*
 * The launches of a set of kernels, and how long each took on the device: for `tigon bench`, off otherwise.
 *
 * A launch is noted with the event that the queue gives it. Times are the device's own, from the beginning of a launch
 * to its end; only a queue that was made with CL_QUEUE_PROFILING_ENABLE has them. Behind moe_sort its list of tasks is
 * read back: it says how many experts a layer touched.
 */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/tuning/tuning.h"

struct kernel_timing {
	const char *kernel; /* as kernels_name has it */
	/* Of a product C [m, n] = A [m, k] W. Else k is 0, and m x n groups were launched; of quantize_rows m rows
	 * of n numbers. */
	uint32_t m, n, k;
	bool dense;		   /* of an MLP without experts */
	uint32_t experts;	   /* that the task list names, where the kernel depends on one */
	struct tuning_place place; /* in a tuning table; TUNING_NONE: it has none */
	uint64_t ns;		   /* 0: the queue tells no times */
};

struct profile;

/* New. The queue is borrowed. */
struct profile *profile_new(cl_command_queue queue);
void profile_free(struct profile *p);

/* Notes a launch of x by y groups. kernel: its name, borrowed. routed: its work depends on the task list. Returns the
 * place of its event, NULL when out of memory (profile_take then fails). */
cl_event *profile_launch(struct profile *p, const char *kernel, uint64_t x, uint64_t y, bool dense,
			 bool routed);

/* The launch that was just noted is a product of these sizes. */
void profile_product(struct profile *p, uint32_t m, uint32_t n, uint32_t k);

/* It stands there in a tuning table. */
void profile_place(struct profile *p, const struct tuning_place *place);

/* Queues a read of a task list of at most so many ints (moe_route.cl); experts: how many there are. */
void profile_tasks(struct profile *p, cl_mem tasks, uint64_t ints, uint32_t experts);

/* Waits for what was noted since the last call: *ret [*ret_n] in the order of the launches, borrowed until the next
 * launch. */
int profile_take(struct profile *p, const struct kernel_timing **ret, size_t *ret_n,
		 struct err *e) MUST_CHECK;
