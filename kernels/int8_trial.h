/* Int8 products of made-up numbers, for `tigon bench`: no model launches them yet, so no step can measure them. Each
 * product takes the next of up to 1024 matrices of weights, which are cut from a buffer of 256 MB or more. So weights
 * come from memory and not from a cache, unless the matrices are small. */
#pragma once

#include "kernels/kernels.h"

struct int8_trial;

/* Opens a trial, and with it the int8 products of the set k for groups of `group` values (kernels_open_int8). k and the
 * context are borrowed until the trial is closed; the queue is the set's. */
int int8_trial_open(struct kernels *k, cl_context context, cl_command_queue queue,
		    const char *cache_dir, uint32_t group, struct int8_trial **ret,
		    struct err *e) MUST_CHECK;
void int8_trial_close(struct int8_trial *t);

/* Waits for the queue, then queues `launches` pairs of launches: quantize_rows for [M, K] elements, then
 * gemm_int8_store. N and K are multiples of 16. -ENOMEM: the device has no room for such a product. */
int int8_trial_run(struct int8_trial *t, uint32_t M, uint32_t N, uint32_t K, uint32_t launches,
		   struct err *e) MUST_CHECK;
