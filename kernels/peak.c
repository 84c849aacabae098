#include "kernels/peak.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "kernels/cl_error.h"
#include "kernels/huge_pages.h"
#include "kernels/library.h"
#include "kernels/probe.h"

enum {
	/* as many as registers hold, and enough that no sum waits for itself */
	ACCUMULATORS = 16,
	NARROW_ACCUMULATORS = 6, /* on a CPU whose registers have 8 floats */
	MMA_CHAINS = 8,		 /* as in nvidia/peak.cl */
	MMA_FLOPS = 2 * 16 * 8 * 16,
	MMA_INT8_OPS = 2 * 16 * 8 * 32,
	GPU_LANES = 256,
	GPU_GROUPS = 8, /* for each compute unit: 2048 lanes, all that an H200 has room for */
	/* a CPU's number of rounds; a GPU, with far more lanes, runs 1 / 64 of them */
	ROUNDS = 1 << 20,
	TRIES = 5,
	LAUNCHES = 500, /* launches that are timed together */
};

/* The most bytes of a buffer, more than most caches hold. On a GPU they are so many that the time in which a launch
 * begins and ends does not count. */
#define CPU_BYTES (512ull << 20)
#define GPU_BYTES (2048ull << 20)

/* A measured peak below this share of the known one is a reason for a warning. */
#define GOOD_DAY 0.95

struct peaks {
	cl_command_queue queue;
	cl_program program;
	/* dot, int8 and dp4a are NULL if the variant or the device has no such instruction. */
	cl_kernel launch, read, copy, flops, dot, int8, dp4a;
	cl_mem from, to, out; /* to is NULL if only reading is measured */
	uint64_t bytes;
	size_t lanes;
	size_t readers, copiers, busy; /* groups that read, copy, compute */
	size_t block;		       /* bytes of a block_t */
	cl_uint rounds;
	/* operations of a group in a round */
	double flops_a_round, dot_a_round, int8_a_round, dp4a_a_round;
};

/* ---- known peaks ---- */

static const struct {
	const char *device; /* a part of the device's name */
	uint32_t units;
	enum kernel_variant variant;
	struct peak peak;
} known_peaks[] = {
	/* Both cores of a machine with AVX512_BF16 under PoCL 3.1: vdpbf16ps, vpdpbusd and plain reading. */
	{"AMD EPYC", 2, KERNELS_X86, {.read = 57e9, .dot = 457e9, .int8 = 910e9}},
	/* Driver 580.159.04. */
	{"NVIDIA H200",
	 132,
	 KERNELS_NVIDIA,
	 {.read = 4.4e12,
	  .copy = 4.27e12,
	  .flops = 63.5e12,
	  .dot = 629e12,
	  .int8 = 1261e12,
	  .dp4a = 133e12}},
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
		{"int8 arithmetic by lanes", "GOP/s", measured.dp4a, known.dp4a},
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
		.dp4a = MAX(a.dp4a, b.dp4a),
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

/* Creates the kernels. Those that the variant's source or the device does not have stay NULL. */
static int create_kernels(struct peaks *p, uint32_t abilities, struct err *e)
{
	const struct {
		const char *name;
		cl_kernel *kernel;
		uint32_t needs; /* one of these abilities; 0: none */
	} kernels[] = {
		{"peak_launch", &p->launch, 0},
		{"peak_read", &p->read, 0},
		{"peak_copy", &p->copy, 0},
		{"peak_flops", &p->flops, 0},
		{"peak_dot", &p->dot, 0},
		{"peak_dp4a", &p->dp4a, ABILITY_DP4A},
		{"peak_int8", &p->int8, ABILITY_MMA_INT8 | ABILITY_VPDPBUSD},
	};
	cl_int code = CL_SUCCESS;

	for (size_t i = 0; i < ARRAY_SIZE(kernels) && code == CL_SUCCESS; i++) {
		if (kernels[i].needs && !(kernels[i].needs & abilities))
			continue;
		*kernels[i].kernel = clCreateKernel(p->program, kernels[i].name, &code);
		if (code == CL_INVALID_KERNEL_NAME)
			code = CL_SUCCESS;
	}
	return cl_error(e, code, "the bench's yardsticks");
}

static int create_buffers(struct peaks *p, cl_context context, cl_device_id device, bool reading,
			  struct err *e)
{
	cl_ulong largest = 0;
	cl_int code = CL_SUCCESS;

	clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(largest), &largest, NULL);
	p->bytes = MIN(p->lanes == 1 ? CPU_BYTES : GPU_BYTES, largest / 4 / p->block * p->block);
	if (p->lanes > 1)
		p->copiers = CEIL_DIV(p->bytes / p->block, p->lanes);
	p->from = buffer(p, context, p->bytes, &code);
	if (!reading)
		p->to = buffer(p, context, p->bytes, &code);
	p->out = buffer(p, context, p->lanes * MAX(p->readers, p->busy) * sizeof(float), &code);
	return cl_error(e, code, "the bench's yardsticks");
}

/* As peaks_open. reading: only launches and reading are measured. */
static int open_peaks(cl_context context, cl_device_id device, cl_command_queue queue,
		      enum kernel_variant variant, uint32_t abilities, const char *cache_dir,
		      bool reading, struct peaks **ret, struct err *e)
{
	struct library library = {
		.context = context,
		.device = device,
		.variant = kernels_variant_name(variant),
		.cache_dir = cache_dir,
	};
	struct peaks *p = calloc(1, sizeof(*p));
	cl_uint units = 1, accumulators;
	char options[128];
	bool cpu;
	int r;

	if (!p)
		return err_no_memory(e);
	clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	cpu = probe_is_cpu(device);
	p->queue = queue;
	p->lanes = cpu ? 1 : GPU_LANES;
	p->readers = p->copiers = cpu ? units * 8 : units * GPU_GROUPS;
	p->busy = cpu ? units : units * GPU_GROUPS;
	p->block = (cpu ? 16 : 4) * sizeof(float);
	p->rounds = cpu ? ROUNDS : ROUNDS / 64;
	accumulators = cpu && !kernels_wide_registers() ? NARROW_ACCUMULATORS : ACCUMULATORS;
	p->flops_a_round = 2.0 * accumulators * (cpu ? 16 : GPU_LANES);
	/* A vdpbf16ps is 32 products, a vpdpbusd 64; a GPU's warp is 32 lanes. */
	p->dot_a_round = cpu ? 2.0 * ACCUMULATORS * 32 : GPU_LANES / 32.0 * MMA_CHAINS * MMA_FLOPS;
	p->int8_a_round =
		cpu ? 2.0 * ACCUMULATORS * 64 : GPU_LANES / 32.0 * MMA_CHAINS * MMA_INT8_OPS;
	p->dp4a_a_round = 2.0 * ACCUMULATORS * 4 * GPU_LANES;
	snprintf(options, sizeof(options),
		 "-cl-std=CL1.2 -DLANES=%zu -DVEC=%d -DBF16=0 -DACCUMULATORS=%u", p->lanes,
		 cpu ? 16 : 1, accumulators);
	r = library_program(&library, "peak.cl", options, &p->program, e);
	if (r == 0)
		r = create_kernels(p, abilities, e);
	if (r == 0)
		r = create_buffers(p, context, device, reading, e);
	if (r < 0) {
		peaks_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

int peaks_open(cl_context context, cl_device_id device, cl_command_queue queue,
	       enum kernel_variant variant, uint32_t abilities, const char *cache_dir,
	       struct peaks **ret, struct err *e)
{
	return open_peaks(context, device, queue, variant, abilities, cache_dir, false, ret, e);
}

void peaks_close(struct peaks *p)
{
	if (!p)
		return;

	cl_kernel kernels[] = {p->launch, p->read, p->copy, p->flops, p->dot, p->int8, p->dp4a};
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

/* Returns a launch's nanoseconds on the device; if the queue has no such times, the nanoseconds that the host
 * waited. */
static uint64_t launch_ns(cl_event event, uint64_t waited)
{
	cl_ulong start = 0, end = 0;

	if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start,
				    NULL) != CL_SUCCESS ||
	    clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL) !=
		    CL_SUCCESS ||
	    end <= start)
		return MAX(waited, (uint64_t)1);
	return end - start;
}

/* Runs one launch on an empty queue, and raises *best to its work per second if that is more. */
static int run(struct peaks *p, cl_kernel k, size_t groups, double work, double *best,
	       struct err *e)
{
	size_t local = p->lanes, global = groups * p->lanes;
	cl_event event = NULL;
	uint64_t start = clock_now_ns();
	cl_int code =
		clEnqueueNDRangeKernel(p->queue, k, 1, NULL, &global, &local, 0, NULL, &event);

	if (code == CL_SUCCESS)
		code = clFinish(p->queue);
	if (code == CL_SUCCESS)
		*best = MAX(*best, work * 1e9 / (double)launch_ns(event, clock_now_ns() - start));
	if (event)
		clReleaseEvent(event);
	return cl_error(e, code, "measuring the device's peak");
}

/* Measures a kernel of arithmetic once, and raises *best if it was faster. Does nothing if k is NULL. */
static int arithmetic(struct peaks *p, cl_kernel k, double work_a_round, double *best,
		      struct err *e)
{
	cl_float x = 1e-3f;

	if (!k)
		return 0;

	clSetKernelArg(k, 0, sizeof(p->out), &p->out);
	clSetKernelArg(k, 1, sizeof(x), &x);
	clSetKernelArg(k, 2, sizeof(p->rounds), &p->rounds);
	return run(p, k, p->busy, work_a_round * p->rounds * (double)p->busy, best, e);
}

static int bandwidth(struct peaks *p, cl_kernel k, cl_mem to, size_t groups, double bytes,
		     double *best, struct err *e)
{
	cl_ulong n = p->bytes / p->block;

	clSetKernelArg(k, 0, sizeof(p->from), &p->from);
	clSetKernelArg(k, 1, sizeof(to), &to);
	clSetKernelArg(k, 2, sizeof(n), &n);
	return run(p, k, groups, bytes, best, e);
}

static int measure_once(struct peaks *p, struct peak *best, struct err *e)
{
	double bytes = (double)p->bytes;
	int r = bandwidth(p, p->copy, p->to, p->copiers, 2 * bytes, &best->copy, e);

	if (r == 0)
		r = bandwidth(p, p->read, p->out, p->readers, bytes, &best->read, e);
	if (r == 0)
		r = arithmetic(p, p->flops, p->flops_a_round, &best->flops, e);
	if (r == 0)
		r = arithmetic(p, p->dot, p->dot_a_round, &best->dot, e);
	if (r == 0)
		r = arithmetic(p, p->int8, p->int8_a_round, &best->int8, e);
	return r == 0 ? arithmetic(p, p->dp4a, p->dp4a_a_round, &best->dp4a, e) : r;
}

int peaks_measure(struct peaks *p, struct peak *ret, struct err *e)
{
	struct peak best = {0};
	int r = cl_error(e, clFinish(p->queue), "measuring the device's peak");

	for (int i = 0; r == 0 && i < TRIES; i++)
		r = measure_once(p, &best, e);
	if (r < 0)
		return r;
	best.dot = MAX(best.dot, best.flops);
	best.int8 = MAX(MAX(best.int8, best.dp4a), best.flops);
	*ret = best;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Times LAUNCHES empty launches, one behind the other, TRIES times. *ret is the median of the nanoseconds of one. */
static int launches(struct peaks *p, double *ret, struct err *e)
{
	double ns[TRIES];
	cl_int code = clFinish(p->queue);

	for (int i = 0; code == CL_SUCCESS && i < TRIES; i++) {
		uint64_t start = clock_now_ns();

		for (int n = 0; code == CL_SUCCESS && n < LAUNCHES; n++)
			code = clEnqueueNDRangeKernel(p->queue, p->launch, 1, NULL, &p->lanes,
						      &p->lanes, 0, NULL, NULL);
		if (code == CL_SUCCESS)
			code = clFinish(p->queue);
		ns[i] = (double)(clock_now_ns() - start) / LAUNCHES;
	}
	if (code != CL_SUCCESS)
		return cl_error(e, code, "an empty launch");
	qsort(ns, TRIES, sizeof(*ns), compare);
	*ret = ns[TRIES / 2];
	return 0;
}

int peak_quick(cl_context context, cl_device_id device, cl_command_queue queue,
	       const char *cache_dir, double *ret_launch_ns, double *ret_read, struct err *e)
{
	struct peaks *p;
	double launch_ns = 0, read = 0;
	int r = open_peaks(context, device, queue, KERNELS_GENERIC, 0, cache_dir, true, &p, e);

	if (r < 0)
		return r;
	r = launches(p, &launch_ns, e);
	for (int i = 0; r == 0 && i < TRIES; i++)
		r = bandwidth(p, p->read, p->out, p->readers, (double)p->bytes, &read, e);
	peaks_close(p);
	if (r == 0) {
		*ret_launch_ns = launch_ns;
		*ret_read = read;
	}
	return r;
}
