/* The launches of a set of kernels, and the time of each on the device: for `tigon bench` and `tigon tune`, otherwise
 * off.
 *
 * A launch is noted with the event that the queue gives it. Times are the device's own, from the beginning of a
 * launch to its end; only a queue with CL_QUEUE_PROFILING_ENABLE has them. After a launch of moe_sort its task list is
 * read back, for the number of experts that a layer uses. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/tuning/tuning.h"

struct kernel_timing {
	const char *kernel; /* name, as in kernels_name */
	/* Of a launch by a kernel_gemm_*: the sizes of its product C [m, n] = A [m, k] W; of gemm_sum_parts k is the
	 * number of parts. Of all others k is 0: the kernel was launched in m x n groups. */
	uint32_t m, n, k;
	bool dense;  /* the kernel belongs to an MLP without experts */
	bool tensor; /* the kernel is given floats, but rounds them and multiplies on tensor cores */
	bool sliding; /* it computes attention over a sliding window */
	/* A launch that has only a part of a layer's work: the n_rows rows of the step from first_row on, or of each sum
	 * the n_terms terms from first_term on. 0 rows or terms: it has all of them. */
	uint32_t first_row, n_rows, first_term, n_terms;
	/* the number of experts in the task list that the launch works on, without the shared one; 0: no list, or no
	 * experts */
	uint32_t experts;
	struct tuning_place place; /* the launch's place (tuning.h); TUNING_NONE: it has none */
	uint64_t ns;		   /* 0: the queue has no times */
};

struct profile;

/* Returns a new profile without notes; NULL: out of memory. The queue is borrowed. */
struct profile *profile_new(cl_command_queue queue);
void profile_free(struct profile *p);

/* Notes a launch of x by y groups. kernel: its name, borrowed. dense, tensor: as in kernel_timing. routed: the kernel
 * writes or reads a task list. Returns the place for its event, valid until the next call; NULL: out of memory
 * (profile_take then fails). */
cl_event *profile_launch(struct profile *p, const char *kernel, uint64_t x, uint64_t y, bool dense,
			 bool tensor, bool routed);

/* Notes that the last launch is a product of these sizes. */
void profile_product(struct profile *p, uint32_t m, uint32_t n, uint32_t k);

/* Note which rows of the step, and which terms of each sum, the last launch has (kernel_timing). */
void profile_rows(struct profile *p, uint32_t first, uint32_t n);
void profile_terms(struct profile *p, uint32_t first, uint32_t n);

/* Notes that the last launch is attention over a sliding window. */
void profile_sliding(struct profile *p);

/* Notes the place of the last launch (tuning.h). */
void profile_place(struct profile *p, const struct tuning_place *place);

/* Queues a read of a task list of at most so many ints (moe_route.cl), which the last launch has written. experts: the
 * number of experts of the layer's MLP, without the shared one. */
void profile_tasks(struct profile *p, cl_mem tasks, uint64_t ints, uint32_t experts);

/* Waits for the queue, returns the launches that were noted since the last call as *ret [*ret_n], in their order, and
 * forgets them, after an error too. *ret is borrowed until the next launch is noted or profile_free. */
int profile_take(struct profile *p, const struct kernel_timing **ret, size_t *ret_n,
		 struct err *e) MUST_CHECK;
