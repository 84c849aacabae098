/*
 * The harness of the kernel tests: a device, the ways to run a kernel on it, buffers that detect a write outside of them
 * and a number that was not written, and comparison with the references.
 *
 *     TIGON_TEST_DEVICE  the device, as device_open takes it (default: the CPU)
 *     TIGON_TEST_SMALL   "1": few and tiny cases, and buffers of exactly their size that begin undefined,
 *                        for tools that watch every access (tests/check_oclgrind)
 *     TIGON_TEST_WAY     only ways whose name has this in it
 *
 * One program is one process with one device, so the harness keeps its state in itself. Memory of a case,
 * on either side, lives until case_end.
 */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "kernels/kernels.h"

/* A way to run the kernels. */
struct way {
	const char *name;
	enum kernel_variant variant;
	enum kernel_width width;
	bool bf16;
	bool plain; /* weights are not coded; only where a test wants all packings */
};

/* The test of a program, which the program defines. The harness has the main function: it calls the test's functions with every way
 * that the device can run, and reports in TAP. */
extern const struct kernel_test {
	const char *programs; /* files of the programs that it runs; no others are compiled */
	void (*way)(const struct way *w);		       /* or NULL */
	void (*shape)(const struct way *w, struct kernels *k); /* for each common shape; or NULL */
	bool packings; /* also ways whose weights are plain */
} kernel_test;

bool harness_small(void);

/* Checks are counted quietly, only failures print. ok_way ends a group of them with one line, which has the largest
 * error that `near` saw in the group. */
#define check(condition) check_that((condition), __FILE__, __LINE__, #condition)
bool check_that(bool good, const char *file, int line, const char *text);
void failed(const char *fmt, ...) PRINTF(1, 2);
void ok_way(const struct way *w, const char *fmt, ...) PRINTF(2, 3);

/* The set for a shape in this way, NULL (and a failed check) when it does not open. */
struct kernels *set_open(const struct way *w, struct kernel_shape shape);

/* Waits; a failed launch is a failed check. */
void set_finish(struct kernels *k);

/* The first of the shapes that most tests share, so that each program is compiled once for all of them. In this one
 * no size is a multiple of 16, the outputs are kept (dump) and the second MLP is dense. There are no attention
 * and delta layers: their tests add them. */
struct kernel_shape common_shape(void);

/* ---- numbers ---- */

/* The same numbers in every run: seed once a case. */
void random_seed(uint64_t seed);
uint32_t random_below(uint32_t n);
float random_uniform(float low, float high);

/* A permutation of 0 .. n-1. */
void random_permutation(uint32_t *out, uint32_t n);

float bf16_rounded(float x);

/* New memory of the case, zero. */
void *case_alloc(size_t n, size_t size);
#define CASE_FLOATS(n)	((float *)case_alloc(n, sizeof(float)))
#define CASE_DOUBLES(n) ((double *)case_alloc(n, sizeof(double)))
#define CASE_INTS(n)	((int32_t *)case_alloc(n, sizeof(int32_t)))

/* rows x cols uniform numbers with row stride ld, zeros in between. */
float *case_matrix(size_t rows, size_t cols, size_t ld, float low, float high);

/* ---- buffers ---- */

/* A buffer that a kernel will write: poison, between guard zones. */
cl_mem buffer_out(uint64_t bytes);
cl_mem buffer_floats(const float *v, uint64_t n);
cl_mem buffer_ints(const int32_t *v, uint64_t n);

/* Memory for elements of the way's type; rounds v to them in place, so that a reference sees the kernel's numbers. */
cl_mem buffer_elements(const struct way *w, float *v, uint64_t n);
cl_mem buffer_out_elements(const struct way *w, uint64_t n);

/* [N, K] row-major weights (K padded already), packed for the set; rounds them in place. N is padded to 16 with
 * zeros. `first`, `stride`: the panels go to first, first + stride, ... of the buffer's `panels`. */
struct packed_part {
	float *weights;
	uint32_t N;
	uint32_t first, stride;
};
cl_mem buffer_packed(const struct kernels *k, bool bf16, const struct packed_part *parts,
		     size_t n_parts, uint32_t panels, uint32_t K);

/* Writes new content over a buffer's beginning. */
void buffer_write(cl_mem mem, const void *data, uint64_t bytes);

/* Content, in memory of the case. */
float *read_floats(cl_mem mem, uint64_t n);
int32_t *read_ints(cl_mem mem, uint64_t n);
float *read_elements(const struct way *w, cl_mem mem, uint64_t n);

/* Whether a number that was read back is still poison: it was never written. */
bool is_poison(float v);

/* Checks the guard zones of the case's buffers and frees all memory of the case. */
void case_end(void);

/* ---- comparison ---- */

/* Every number is written and finite; ||got - want|| / ||want|| <= bound and no difference above
 * 4 bound max|want|. */
void near(const float *got, const double *want, size_t n, double bound);

/* The same for elements that a kernel rounded from floats: in bf16 every one is the rounding of a number that
 * is as near. */
void near_elements(const struct way *w, const float *got, const double *want, size_t n,
		   double bound);

/* Floats with the same bits, NaN or not. */
bool same_bits(const float *a, const float *b, size_t n);

/* Remembers results of the generic variant on a CPU, and checks that the x86 variant has the same bits in the same case,
 * which `label` and `number` name. */
void same_as_generic(const struct way *w, const char *label, unsigned number, const void *data,
		     size_t bytes);
