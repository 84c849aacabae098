/*
 * The harness of the kernel tests: a device, the ways to run a kernel on it, buffers that detect a write outside of
 * them and a number that was not written, and comparison with the references.
 *
 *     TIGON_TEST_DEVICE  the device, as device_open takes it (default: the CPU)
 *     TIGON_TEST_SMALL   "1": few and tiny cases, and buffers of exactly their size that begin undefined,
 *                        for tools that watch every access (tests/check_oclgrind)
 *     TIGON_TEST_WAY     only ways whose name has this in it
 *
 * One program is one process with one device, so the harness keeps its state in itself. A case is a part of a test that
 * ends with case_end; its memory, on host and device, lives until then.
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

/* What a test program tests; each test program defines it. The harness has the main function, which calls the two
 * functions here with every way that the device can run, and reports in TAP. */
extern const struct kernel_test {
	const char *programs; /* the OpenCL files that it tests; no others are compiled */
	void (*way)(const struct way *w);		       /* or NULL */
	void (*shape)(const struct way *w, struct kernels *k); /* for each common shape; or NULL */
	bool packings; /* also ways whose weights are plain */
	bool floats; /* its programs are of floats (kernels/programs.c), so ways of bf16 would be the same again */
} kernel_test;

bool harness_small(void);

/* Checks are counted quietly, only failures print. ok_way ends a group of them with one line, which has the largest
 * error that `near` saw in the group. */
#define check(condition) check_that((condition), __FILE__, __LINE__, #condition)
bool check_that(bool good, const char *file, int line, const char *text);
void failed(const char *fmt, ...) PRINTF(1, 2);
void ok_way(const struct way *w, const char *fmt, ...) PRINTF(2, 3);

/* Whether this way is the GPU's width on a CPU, which is slow. Then a test may leave out cases that the other widths
 * have. */
bool harness_emulates(const struct way *w);

/* Opens the set for a shape in this way. Returns NULL (and a check has failed) if the set does not open. */
struct kernels *set_open(const struct way *w, struct kernel_shape shape);

/* As set_open, with a table of cuts (kernels/tuning/tuning.h; NULL: none) and the programs `only`. */
struct kernels *set_open_tuned(const struct way *w, struct kernel_shape shape, const char *only,
			       const struct tuning_table *table);

/* Waits for the queue. A failed launch is a failed check. */
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

/* Fills out [n] with a random permutation of 0 .. n - 1. */
void random_permutation(uint32_t *out, uint32_t n);

float bf16_rounded(float x);

/* Returns new memory of the case, all zeros. */
void *case_alloc(size_t n, size_t size);
#define CASE_FLOATS(n)	((float *)case_alloc(n, sizeof(float)))
#define CASE_DOUBLES(n) ((double *)case_alloc(n, sizeof(double)))
#define CASE_INTS(n)	((int32_t *)case_alloc(n, sizeof(int32_t)))

/* Returns rows x cols random numbers, uniform from low to high, with row stride ld and zeros in between. */
float *case_matrix(size_t rows, size_t cols, size_t ld, float low, float high);

/* ---- buffers ---- */

/* Returns a buffer that a kernel will write. It is full of poison (a NaN that no kernel writes), and lies between guard
 * zones, which case_end checks; with TIGON_TEST_SMALL it has neither. */
cl_mem buffer_out(uint64_t bytes);
cl_mem buffer_floats(const float *v, uint64_t n);
cl_mem buffer_ints(const int32_t *v, uint64_t n);

/* Return buffers for elements of the way's type. buffer_elements rounds v to them in place, so that a reference sees
 * the kernel's numbers. */
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

/* Packs one panel of plain weights, 16 rows at most, into `out`; rounds them in place. */
void harness_pack(enum kernel_packing packing, bool bf16, const struct packed_part *p, uint32_t K,
		  void *out);

/* Writes new content over a buffer's beginning. */
void buffer_write(cl_mem mem, const void *data, uint64_t bytes);

/* Return the content of a buffer, in memory of the case. */
float *read_floats(cl_mem mem, uint64_t n);
int32_t *read_ints(cl_mem mem, uint64_t n);
float *read_elements(const struct way *w, cl_mem mem, uint64_t n);

/* Returns whether a number that was read back is still poison: it was never written. */
bool is_poison(float v);

/* Checks the guard zones of the case's buffers and frees all memory of the case. */
void case_end(void);

/* ---- comparison ---- */

/* Checks that every number is written and finite, that ||got - want|| / ||want|| <= bound, and that no difference is
 * above 4 bound max|want|. If all of want is 0, ||want|| and max|want| count as 1. */
void near(const float *got, const double *want, size_t n, double bound);

/* As `near`, for elements that a kernel rounded from floats. In bf16 it checks only that each element is the rounding
 * of a number that is off by at most 4 bound max|want|. */
void near_elements(const struct way *w, const float *got, const double *want, size_t n,
		   double bound);

/* Checks that each bf16 number is the rounding of one that is off by at most its own limit. */
void near_bf16(const float *got, const double *want, const double *limits, size_t n);

/* Returns whether the floats have the same bits, NaN or not. */
bool same_bits(const float *a, const float *b, size_t n);

/* Remembers bf16 results of the generic variant at a CPU's width, and checks that the x86 variant has the same bits in
 * the same case, which `label` and `number` name. Does nothing in other ways. */
void same_as_generic(const struct way *w, const char *label, unsigned number, const void *data,
		     size_t bytes);
