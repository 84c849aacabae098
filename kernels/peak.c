#include "kernels/peak.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "kernels/cl_error.h"
#include "kernels/huge_pages.h"
#include "kernels/int8.h"
#include "kernels/library.h"

enum {
	ACCUMULATORS = 16, /* peak.cl */
	MMA_CHAINS = 8,	   /* nvidia/peak.cl */
	MMA_FLOPS = 2 * 16 * 8 * 16,
	GPU_LANES = 64,
	/* a CPU's number of rounds; a GPU runs 1 / 64 of them on far more lanes */
	ROUNDS = 1 << 20,
	TRIES = 5,
	BYTES = 512 << 20, /* bytes, far more than caches hold */
};

/* A measured peak is low below this share of the known one. */
#define GOOD_DAY 0.95

struct peaks {
	cl_command_queue queue;
	cl_program program;
	/* dot, int8: NULL if the variant has no such instruction */
	cl_kernel read, copy, flops, dot, int8;
	cl_mem from, to, out;
	uint64_t bytes;
	size_t lanes, groups; /* groups that measure bandwidth */
	size_t busy;	      /* groups that measure arithmetic */
	size_t block;	      /* bytes of a block_t */
	cl_uint rounds;
	double flops_a_round, dot_a_round, int8_a_round; /* FLOP of a group in a round */
};

/* ---- known peaks ---- */

static const struct {
	const char *device; /* a part of its name */
	uint32_t units;
	enum kernel_variant variant;
	struct peak peak;
} known_peaks[] = {
	/* Zen 4 server cores with AVX512_BF16, PoCL 3.1: vdpbf16ps, vpdpbusd and plain reading, both cores. */
	{"AMD EPYC", 2, KERNELS_X86, {.read = 57e9, .dot = 457e9, .int8 = 910e9}},
	{"NVIDIA H200", 132, KERNELS_NVIDIA, {.copy = 4.26e12}},
};

bool peak_known(const char *device, uint32_t units, enum kernel_variant variant, struct peak *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_peaks); i++)
		if (strstr(device, known_peaks[i].device) && units == known_peaks[i].units &&
		    variant == known_peaks[i].variant) {
			*ret = known_peaks[i].peak;
			return true;
		}
	return false;
}

bool peak_below(struct peak measured, struct peak known, char *ret_what, size_t size)
{
	const struct {
		const char *what, *unit;
		double measured, known;
	} all[] = {
		{"reading", "GB/s", measured.read, known.read},
		{"copying", "GB/s", measured.copy, known.copy},
		{"float arithmetic", "GFLOP/s", measured.flops, known.flops},
		{"bf16 arithmetic", "GFLOP/s", measured.dot, known.dot},
		{"int8 arithmetic", "GOP/s", measured.int8, known.int8},
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i].measured < GOOD_DAY * all[i].known) {
			snprintf(ret_what, size, "%s at %.1f %s, where %.1f are known", all[i].what,
				 all[i].measured / 1e9, all[i].unit, all[i].known / 1e9);
			return true;
		}
	return false;
}

struct peak peak_best(struct peak a, struct peak b)
{
	return (struct peak){
		.read = MAX(a.read, b.read),
		.copy = MAX(a.copy, b.copy),
		.flops = MAX(a.flops, b.flops),
		.dot = MAX(a.dot, b.dot),
		.int8 = MAX(a.int8, b.int8),
	};
}

/* ---- opening ---- */

static cl_mem buffer(struct peaks *p, cl_context context, uint64_t bytes, cl_int *code)
{
	const cl_float value = 1.0f;
	cl_mem m;

	if (*code != CL_SUCCESS)
		return NULL;
	m = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, code);
	if (*code == CL_SUCCESS && p->lanes == 1)
		huge_pages_ask(p->queue, m, bytes);
	if (*code == CL_SUCCESS)
		*code = clEnqueueFillBuffer(p->queue, m, &value, sizeof(value), 0, bytes, 0, NULL,
					    NULL);
	return m;
}

static int create(struct peaks *p, cl_context context, cl_device_id device, bool dot, bool int8,
		  struct err *e)
{
	const struct {
		const char *name;
		cl_kernel *kernel;
		bool there;
	} kernels[] = {
		{"peak_read", &p->read, true},	 {"peak_copy", &p->copy, true},
		{"peak_flops", &p->flops, true}, {"peak_dot", &p->dot, dot},
		{"peak_int8", &p->int8, int8},
	};
	cl_ulong largest = 0;
	cl_int code = CL_SUCCESS;

	for (size_t i = 0; i < ARRAY_SIZE(kernels) && code == CL_SUCCESS; i++)
		if (kernels[i].there)
			*kernels[i].kernel = clCreateKernel(p->program, kernels[i].name, &code);
	clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(largest), &largest, NULL);
	p->bytes = MIN((uint64_t)BYTES, largest / 4 / p->block * p->block);
	p->from = buffer(p, context, p->bytes, &code);
	p->to = buffer(p, context, p->bytes, &code);
	p->out = buffer(p, context, p->lanes * MAX(p->groups, p->busy) * sizeof(float), &code);
	return cl_error(e, code, "the bench's yardsticks");
}

int peaks_open(cl_context context, cl_device_id device, cl_command_queue queue,
	       enum kernel_variant variant, const char *cache_dir, struct peaks **ret,
	       struct err *e)
{
	struct library library = {
		.context = context,
		.device = device,
		.variant = kernels_variant_name(variant),
		.cache_dir = cache_dir,
	};
	struct peaks *p = calloc(1, sizeof(*p));
	cl_device_type type = 0;
	cl_uint units = 1;
	bool cpu;
	int r;

	if (!p)
		return err_no_memory(e);
	clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
	clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	cpu = type & CL_DEVICE_TYPE_CPU;
	p->queue = queue;
	p->lanes = cpu ? 1 : GPU_LANES;
	p->groups = cpu ? units * 8 : units * 32;
	p->busy = cpu ? units : units * 32;
	p->block = (cpu ? 16 : 4) * sizeof(float);
	p->rounds = cpu ? ROUNDS : ROUNDS / 64;
	p->flops_a_round = 2.0 * ACCUMULATORS * (cpu ? 16 : GPU_LANES);
	/* a vdpbf16ps computes 32 products; a group of a GPU is two warps */
	p->dot_a_round =
		cpu ? 2.0 * ACCUMULATORS * 32 : (double)GPU_LANES / 32 * MMA_CHAINS * MMA_FLOPS;
	p->int8_a_round = 2.0 * ACCUMULATORS * 64; /* products of a vpdpbusd */
	r = library_program(&library, "peak.cl",
			    cpu ? "-cl-std=CL1.2 -DLANES=1 -DVEC=16 -DBF16=0"
				: "-cl-std=CL1.2 -DLANES=64 -DVEC=1 -DBF16=0",
			    &p->program, e);
	if (r == 0)
		r = create(p, context, device, variant != KERNELS_GENERIC,
			   int8_has_instruction(variant), e);
	if (r < 0) {
		peaks_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

void peaks_close(struct peaks *p)
{
	if (!p)
		return;

	cl_kernel kernels[] = {p->read, p->copy, p->flops, p->dot, p->int8};
	cl_mem buffers[] = {p->from, p->to, p->out};

	clFinish(p->queue);
	for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
		if (kernels[i])
			clReleaseKernel(kernels[i]);
	for (size_t i = 0; i < ARRAY_SIZE(buffers); i++)
		if (buffers[i])
			clReleaseMemObject(buffers[i]);
	if (p->program)
		clReleaseProgram(p->program);
	free(p);
}

/* ---- measuring ---- */

/* Runs one launch on an empty queue, and raises *best to its work a second. */
static int run(struct peaks *p, cl_kernel k, size_t groups, double work, double *best,
	       struct err *e)
{
	size_t local = p->lanes, global = groups * p->lanes;
	uint64_t start = clock_now_ns();
	cl_int code = clEnqueueNDRangeKernel(p->queue, k, 1, NULL, &global, &local, 0, NULL, NULL);

	if (code == CL_SUCCESS)
		code = clFinish(p->queue);
	*best = MAX(*best, work * 1e9 / (double)MAX(clock_now_ns() - start, (uint64_t)1));
	return cl_error(e, code, "measuring the device's peak");
}

static int arithmetic(struct peaks *p, cl_kernel k, double flops_a_round, double *best,
		      struct err *e)
{
	cl_float x = 1e-3f;

	clSetKernelArg(k, 0, sizeof(p->out), &p->out);
	clSetKernelArg(k, 1, sizeof(x), &x);
	clSetKernelArg(k, 2, sizeof(p->rounds), &p->rounds);
	return run(p, k, p->busy, flops_a_round * p->rounds * (double)p->busy, best, e);
}

static int bandwidth(struct peaks *p, cl_kernel k, cl_mem to, double bytes, double *best,
		     struct err *e)
{
	cl_ulong n = p->bytes / p->block;

	clSetKernelArg(k, 0, sizeof(p->from), &p->from);
	clSetKernelArg(k, 1, sizeof(to), &to);
	clSetKernelArg(k, 2, sizeof(n), &n);
	return run(p, k, p->groups, bytes, best, e);
}

int peaks_measure(struct peaks *p, struct peak *ret, struct err *e)
{
	struct peak best = {0};
	int r = cl_error(e, clFinish(p->queue), "measuring the device's peak");

	for (int i = 0; r == 0 && i < TRIES; i++) {
		r = bandwidth(p, p->copy, p->to, 2.0 * (double)p->bytes, &best.copy, e);
		if (r == 0)
			r = bandwidth(p, p->read, p->out, (double)p->bytes, &best.read, e);
		if (r == 0)
			r = arithmetic(p, p->flops, p->flops_a_round, &best.flops, e);
		if (r == 0 && p->dot)
			r = arithmetic(p, p->dot, p->dot_a_round, &best.dot, e);
		if (r == 0 && p->int8)
			r = arithmetic(p, p->int8, p->int8_a_round, &best.int8, e);
	}
	if (r < 0)
		return r;
	best.dot = MAX(best.dot, best.flops);
	best.int8 = MAX(best.int8, best.flops);
	*ret = best;
	return 0;
}
