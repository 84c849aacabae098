#include "tests/tap.h"
#undef check /* the harness has a macro of this name for all its files */

#include "tests/kernels/harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mix.h"
#include "engine/device.h"
#include "kernels/coded.h"
#include "kernels/probe.h"

enum { GUARD = 4096, BUFFERS_MAX = 128, ALLOCATIONS_MAX = 4096, LABELS_MAX = 512 };

/* NaN as a float, and both halves of it NaN as bf16; as an int out of every range in use. */
#define POISON	    0xfff1fff1u
#define POISON_HALF 0xfff1u

struct area {
	cl_mem whole,
		mem; /* mem lies GUARD bytes inside whole; it is whole if there are no guard zones */
	uint64_t bytes;
};

struct label {
	char name[64];
	unsigned __int128 hash;
};

static struct {
	struct device device;
	uint32_t abilities; /* of the device */
	bool small;
	uint64_t random;
	struct area areas[BUFFERS_MAX];
	size_t n_areas;
	void *allocations[ALLOCATIONS_MAX];
	size_t n_allocations;
	double worst; /* largest error since the last ok_way, if anything was compared */
	bool compared;
	struct label labels[LABELS_MAX];
	size_t n_labels;
} h;

static const struct way ways[] = {
	{"generic float, CPU width", KERNELS_GENERIC, KERNEL_WIDTH_CPU, false},
	{"generic bf16, CPU width", KERNELS_GENERIC, KERNEL_WIDTH_CPU, true},
	{"generic bf16, narrow CPU", KERNELS_GENERIC, KERNEL_WIDTH_NARROW, true},
	{"x86 bf16", KERNELS_X86, KERNEL_WIDTH_DEVICE, true},
	{"x86 bf16, plain weights", KERNELS_X86, KERNEL_WIDTH_DEVICE, true, .plain = true},
	{"generic float, GPU width", KERNELS_GENERIC, KERNEL_WIDTH_GPU, false},
	{"generic bf16, GPU width", KERNELS_GENERIC, KERNEL_WIDTH_GPU, true},
	{"nvidia bf16", KERNELS_NVIDIA, KERNEL_WIDTH_DEVICE, true},
};

static const struct kernel_shape common_shapes[] = {
	{.hidden = 200,
	 .vocab = 1003,
	 .eps = 1e-6f,
	 .rotary_dim = 6,
	 .n_mlps = 2,
	 .dump = true,
	 .mlps = {{.experts = 7,
		   .topk = 3,
		   .expert_size = 24,
		   .shared_size = 40,
		   .norm_topk = true,
		   .shared_gate = true},
		  {.shared_size = 40}}},
	{.hidden = 40,
	 .vocab = 64,
	 .eps = 1e-5f,
	 .rotary_dim = 16,
	 .n_mlps = 1,
	 .mlps = {{.experts = 130, .topk = 8, .expert_size = 32}},
	 .ropes = 2,
	 .gelu = true,
	 .out_norms = true,
	 .embed_scale = 6.3125f},
};

static const struct kernel_shape small_shapes[] = {
	{.hidden = 40,
	 .vocab = 70,
	 .eps = 1e-6f,
	 .rotary_dim = 6,
	 .n_mlps = 2,
	 .dump = true,
	 .mlps = {{.experts = 5,
		   .topk = 2,
		   .expert_size = 24,
		   .shared_size = 40,
		   .norm_topk = true,
		   .shared_gate = true},
		  {.shared_size = 24}}},
	{.hidden = 24,
	 .vocab = 40,
	 .eps = 1e-6f,
	 .rotary_dim = 6,
	 .n_mlps = 1,
	 .mlps = {{.experts = 3, .topk = 2, .expert_size = 16}},
	 .ropes = 2,
	 .gelu = true,
	 .out_norms = true,
	 .embed_scale = 4.875f},
};

/* Ends the program unless `good`: a failure of the harness itself is no result of a test. */
static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s\n", what);
	fflush(stdout);
	abort();
}

bool check_that(bool good, const char *file, int line, const char *text)
{
	if (!good && tap_quiet++ < 20)
		printf("# %s:%d: %s\n", file, line, text);
	return good;
}

void failed(const char *fmt, ...)
{
	va_list ap;

	if (tap_quiet++ >= 20)
		return;
	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

void ok_way(const struct way *w, const char *fmt, ...)
{
	char what[256], error[64] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (h.compared)
		snprintf(error, sizeof(error), " (off by %.1e at most)", h.worst);
	ok_all("%s: %s%s", w->name, what, error);
	h.worst = 0;
	h.compared = false;
}

static bool runs(const struct way *w)
{
	const char *only = getenv("TIGON_TEST_WAY");

	if (kernel_test.floats && w->bf16 && w->variant != KERNELS_NVIDIA)
		return false;
	return (!only || strstr(w->name, only)) && kernels_supported(w->variant, h.abilities) &&
	       (h.device.cpu || (w->width != KERNEL_WIDTH_CPU && w->width != KERNEL_WIDTH_NARROW));
}

bool harness_small(void)
{
	return h.small;
}

struct kernel_shape common_shape(void)
{
	return h.small ? small_shapes[0] : common_shapes[0];
}

bool harness_emulates(const struct way *w)
{
	return w->width == KERNEL_WIDTH_GPU && h.device.cpu;
}

struct kernels *set_open(const struct way *w, struct kernel_shape shape)
{
	return set_open_tuned(w, shape, kernel_test.programs, NULL);
}

struct kernels *set_open_tuned(const struct way *w, struct kernel_shape shape, const char *only,
			       const struct tuning_table *table)
{
	const struct tuning_options tuning = {.table = table};
	struct kernels *k = NULL;
	struct err e = {0};

	shape.bf16 = w->bf16;
	shape.width = w->width;
	shape.plain_weights = w->plain;
	/* Nobody runs the GPU's width on a CPU, and PoCL takes long to optimise it. */
	shape.unoptimised = harness_emulates(w) && !h.small;
	shape.only = only;
	if (kernels_open(h.device.context, h.device.id, h.device.queue, &shape, w->variant,
			 h.abilities, NULL, &tuning, &k, &e) < 0) {
		failed("%s", e.text);
		ok_way(w, "the kernels open");
		return NULL;
	}
	return k;
}

void set_finish(struct kernels *k)
{
	struct err e = {0};
	cl_int code = clFinish(h.device.queue);

	if (kernels_status(k, &e) < 0)
		failed("%s", e.text);
	else if (code != CL_SUCCESS)
		failed("clFinish gives %d", code);
}

static void run_way(const struct way *w)
{
	const struct kernel_shape *shapes = h.small ? small_shapes : common_shapes;
	size_t n = h.small ? ARRAY_SIZE(small_shapes) : ARRAY_SIZE(common_shapes);

	if (kernel_test.way)
		kernel_test.way(w);
	for (size_t i = 0; kernel_test.shape && i < n; i++) {
		struct kernels *k = set_open(w, shapes[i]);

		if (!k)
			return;
		kernel_test.shape(w, k);
		kernels_close(k);
	}
}

int main(void)
{
	const char *which = getenv("TIGON_TEST_DEVICE"), *small = getenv("TIGON_TEST_SMALL");
	struct err e;

	/* No line of the log: tests/check_oclgrind takes every line that is not TAP for a finding. */
	log_set_level(LOG_LEVEL_WARNING);
	h.small = small && !strcmp(small, "1");
	if (device_open(which, &h.device, &e) < 0)
		return skip_all(e.text);
	must(probe_device(h.device.id, NULL, false, &h.abilities, &e) == 0, e.text);
	printf("# %s\n", h.device.name);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		if (runs(&ways[i]) && (kernel_test.packings || !ways[i].plain))
			run_way(&ways[i]);
	device_close(&h.device);
	return done();
}

/* ---- numbers ---- */

void random_seed(uint64_t seed)
{
	h.random = seed * MIX_GOLDEN + 1;
}

uint32_t random_below(uint32_t n)
{
	return (uint32_t)(mix_next(&h.random) >> 32) % n;
}

float random_uniform(float low, float high)
{
	return low + (high - low) * (float)(mix_next(&h.random) >> 40) * 0x1p-24f;
}

void random_permutation(uint32_t *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = random_below(i + 1);

		out[i] = out[k];
		out[k] = i;
	}
}

/* Rounds to the nearest bf16 number, ties to even. NaN stays NaN. */
static uint16_t bf16_bits(float x)
{
	uint32_t u = float_bits(x);

	return isnan(x) ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float bf16_rounded(float x)
{
	return bits_float((uint32_t)bf16_bits(x) << 16);
}

void *case_alloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	must(p && h.n_allocations < ALLOCATIONS_MAX, "out of memory");
	h.allocations[h.n_allocations++] = p;
	return p;
}

float *case_matrix(size_t rows, size_t cols, size_t ld, float low, float high)
{
	float *m = CASE_FLOATS(rows * ld);

	for (size_t r = 0; r < rows; r++)
		for (size_t c = 0; c < cols; c++)
			m[r * ld + c] = random_uniform(low, high);
	return m;
}

/* ---- buffers ---- */

cl_mem buffer_out(uint64_t bytes)
{
	uint64_t guard = h.small ? 0 : GUARD, all;
	struct area *a = &h.areas[h.n_areas];
	uint32_t poison = POISON;
	cl_int code;

	bytes = MAX(bytes, (uint64_t)4);
	all = ROUND_UP(bytes, 4) + 2 * guard;
	must(h.n_areas < BUFFERS_MAX, "too many buffers");
	a->bytes = bytes;
	a->whole = a->mem = clCreateBuffer(h.device.context, CL_MEM_READ_WRITE, all, NULL, &code);
	must(code == CL_SUCCESS, "clCreateBuffer");
	if (!h.small) {
		cl_buffer_region region = {guard, bytes};

		must(clEnqueueFillBuffer(h.device.queue, a->whole, &poison, sizeof(poison), 0, all,
					 0, NULL, NULL) == CL_SUCCESS,
		     "clEnqueueFillBuffer");
		a->mem = clCreateSubBuffer(a->whole, CL_MEM_READ_WRITE,
					   CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
		must(code == CL_SUCCESS, "clCreateSubBuffer");
	}
	h.n_areas++;
	return a->mem;
}

void buffer_write(cl_mem mem, const void *data, uint64_t bytes)
{
	if (bytes)
		must(clEnqueueWriteBuffer(h.device.queue, mem, CL_TRUE, 0, bytes, data, 0, NULL,
					  NULL) == CL_SUCCESS,
		     "clEnqueueWriteBuffer");
}

static void *read_bytes(cl_mem mem, uint64_t bytes)
{
	void *p = case_alloc(bytes, 1);

	if (bytes)
		must(clEnqueueReadBuffer(h.device.queue, mem, CL_TRUE, 0, bytes, p, 0, NULL,
					 NULL) == CL_SUCCESS,
		     "clEnqueueReadBuffer");
	return p;
}

cl_mem buffer_out_elements(const struct way *w, uint64_t n)
{
	return buffer_out(n * (w->bf16 ? 2 : 4));
}

static cl_mem buffer_of(const void *data, uint64_t bytes)
{
	cl_mem mem = buffer_out(bytes);

	buffer_write(mem, data, bytes);
	return mem;
}

cl_mem buffer_floats(const float *v, uint64_t n)
{
	return buffer_of(v, n * 4);
}

cl_mem buffer_ints(const int32_t *v, uint64_t n)
{
	return buffer_of(v, n * 4);
}

static cl_mem buffer_rounded(bool bf16, float *v, uint64_t n)
{
	uint16_t *bits;

	if (!bf16)
		return buffer_floats(v, n);
	bits = case_alloc(n, sizeof(*bits));
	for (uint64_t i = 0; i < n; i++) {
		bits[i] = bf16_bits(v[i]);
		v[i] = bf16_rounded(v[i]);
	}
	return buffer_of(bits, n * 2);
}

cl_mem buffer_elements(const struct way *w, float *v, uint64_t n)
{
	return buffer_rounded(w->bf16, v, n);
}

/* Returns where element (row, k) of a panel goes, in the layouts that kernels.h defines. */
static size_t packed_at(enum kernel_packing packing, size_t row, size_t k)
{
	switch (packing) {
	case KERNEL_PACK_PANELS: return k * 16 + row;
	case KERNEL_PACK_CODED: /* before it is coded */
	case KERNEL_PACK_PAIRS: return k / 2 * 32 + row * 2 + k % 2;
	case KERNEL_PACK_QUANT:
	case KERNEL_PACK_STAGES: break; /* its panels have packings of their own */
	case KERNEL_PACK_FRAGMENTS:
		for (size_t lane = 0; lane < 32; lane++)
			for (size_t e = 0; e < 8; e++)
				if (lane / 4 + 8 * (e / 2 % 2) == row &&
				    2 * (lane % 4) + e % 2 + 8 * (e / 4) == k % 16)
					return k / 16 * 256 + lane * 8 + e;
		break;
	}
	must(false, "unknown packing");
	return 0;
}

/* Returns a buffer with the panels, which are in KERNEL_PACK_PAIRS, coded one behind the other. */
static cl_mem buffer_coded(const float *pairs, uint32_t panels, uint32_t K)
{
	uint64_t at = coded_table_bytes(panels), n = (uint64_t)K * 16;
	uint8_t *out = case_alloc(at + panels * coded_panel_bound(K), 1);
	uint16_t *bits = case_alloc(n, sizeof(*bits));
	uint32_t *table = (uint32_t *)(void *)out;

	for (uint32_t p = 0; p < panels; p++) {
		for (uint64_t i = 0; i < n; i++)
			bits[i] = bf16_bits(pairs[p * n + i]);
		table[p] = (uint32_t)(at / CODED_UNIT);
		at += coded_panel(bits, K, out + at);
	}
	table[panels] = (uint32_t)(at / CODED_UNIT);
	return buffer_of(out, at);
}

cl_mem buffer_packed(const struct kernels *k, bool bf16, const struct packed_part *parts,
		     size_t n_parts, uint32_t panels, uint32_t K)
{
	enum kernel_packing packing = bf16 ? kernels_packing(k) : KERNEL_PACK_PANELS;
	float *packed = CASE_FLOATS((size_t)panels * K * 16);

	for (size_t i = 0; i < n_parts; i++) {
		const struct packed_part *p = &parts[i];

		for (size_t n = 0; n < p->N; n++) {
			float *panel = packed + (p->first + n / 16 * p->stride) * K * 16;

			for (size_t c = 0; c < K; c++) {
				float *v = &p->weights[n * K + c];

				*v = bf16 ? bf16_rounded(*v) : *v;
				panel[packed_at(packing, n % 16, c)] = *v;
			}
		}
	}
	return packing == KERNEL_PACK_CODED
		       ? buffer_coded(packed, panels, K)
		       : buffer_rounded(bf16, packed, (uint64_t)panels * K * 16);
}

void harness_pack(enum kernel_packing packing, bool bf16, const struct packed_part *p, uint32_t K,
		  void *out)
{
	for (size_t n = 0; n < p->N; n++)
		for (size_t c = 0; c < K; c++) {
			float *v = &p->weights[n * K + c];
			size_t at = packed_at(packing, n, c);

			*v = bf16 ? bf16_rounded(*v) : *v;
			if (bf16)
				((uint16_t *)out)[at] = bf16_bits(*v);
			else
				((float *)out)[at] = *v;
		}
}

float *read_floats(cl_mem mem, uint64_t n)
{
	return read_bytes(mem, n * 4);
}

int32_t *read_ints(cl_mem mem, uint64_t n)
{
	return read_bytes(mem, n * 4);
}

float *read_elements(const struct way *w, cl_mem mem, uint64_t n)
{
	const uint16_t *bits;
	float *v;

	if (!w->bf16)
		return read_floats(mem, n);
	bits = read_bytes(mem, n * 2);
	v = CASE_FLOATS(n);
	for (uint64_t i = 0; i < n; i++)
		v[i] = bits_float(bits[i] == POISON_HALF ? POISON : (uint32_t)bits[i] << 16);
	return v;
}

bool is_poison(float v)
{
	return !h.small && float_bits(v) == POISON;
}

static bool guards_whole(const struct area *a)
{
	uint64_t all = ROUND_UP(a->bytes, 4) + 2 * GUARD;
	const unsigned char *p = read_bytes(a->whole, all);
	uint32_t poison = POISON;
	bool whole = true;

	for (uint64_t i = 0; i < all; i++)
		if (i < GUARD || i >= GUARD + a->bytes)
			whole &= p[i] == ((const unsigned char *)&poison)[i % 4];
	return whole;
}

void case_end(void)
{
	must(clFinish(h.device.queue) == CL_SUCCESS, "clFinish");
	/* A small run keeps its buffers: oclgrind 21.10 takes a new buffer at a released one's address for as long as
	 * the old one, and bytes behind that length for undefined. */
	for (size_t i = 0; i < h.n_areas && !h.small; i++) {
		struct area *a = &h.areas[i];

		if (!guards_whole(a))
			failed("buffer %zu of the case: written outside", i);
		clReleaseMemObject(a->mem);
		clReleaseMemObject(a->whole);
	}
	h.n_areas = 0;
	while (h.n_allocations)
		free(h.allocations[--h.n_allocations]);
}

/* ---- comparison ---- */

void near(const float *got, const double *want, size_t n, double bound)
{
	double square = 0, reference = 0, most = 0, largest = 0, error;
	size_t missing = 0;

	for (size_t i = 0; i < n; i++) {
		double d = got[i] - want[i];

		missing += !isfinite(got[i]) || is_poison(got[i]);
		square += d * d;
		reference += want[i] * want[i];
		most = fmax(most, fabs(d));
		largest = fmax(largest, fabs(want[i]));
	}
	if (missing) {
		failed("%zu of %zu numbers are missing or not finite", missing, n);
		return;
	}
	error = reference > 0 ? sqrt(square / reference) : sqrt(square);
	h.compared = true;
	h.worst = fmax(h.worst, error);
	if (error > bound || most > 4 * bound * (largest > 0 ? largest : 1))
		failed("%zu numbers are off by %.2e, one by %.2e of %.2e", n, error, most, largest);
}

/* Returns whether a bf16 number is the rounding of one that is off by at most `limit`. */
static bool rounds_near(float got, double want, double limit)
{
	return !is_poison(got) && bf16_rounded((float)(want - limit)) <= got &&
	       got <= bf16_rounded((float)(want + limit));
}

static void not_near(size_t wrong, size_t n)
{
	if (wrong)
		failed("%zu of %zu elements are missing or not the nearest", wrong, n);
}

void near_elements(const struct way *w, const float *got, const double *want, size_t n,
		   double bound)
{
	double largest = 0;
	size_t wrong = 0;

	if (!w->bf16) {
		near(got, want, n, bound);
		return;
	}
	for (size_t i = 0; i < n; i++)
		largest = fmax(largest, fabs(want[i]));
	for (size_t i = 0; i < n; i++)
		wrong += !rounds_near(got[i], want[i], 4 * bound * largest);
	not_near(wrong, n);
}

void near_bf16(const float *got, const double *want, const double *limits, size_t n)
{
	size_t wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += !rounds_near(got[i], want[i], limits[i]);
	not_near(wrong, n);
}

bool same_bits(const float *a, const float *b, size_t n)
{
	return !memcmp(a, b, n * sizeof(*a));
}

void same_as_generic(const struct way *w, const char *label, unsigned number, const void *data,
		     size_t bytes)
{
	const bool first = w->variant == KERNELS_GENERIC && w->width == KERNEL_WIDTH_CPU;
	struct hash128 hash = HASH128_INIT;
	char name[64];

	if (!w->bf16 || w->width == KERNEL_WIDTH_GPU || w->variant == KERNELS_NVIDIA)
		return;
	snprintf(name, sizeof(name), "%s %u", label, number);
	hash128_update(&hash, data, bytes);
	for (size_t i = 0; i < h.n_labels; i++)
		if (!strcmp(h.labels[i].name, name)) {
			if (first)
				failed("the label %s is used twice", name);
			else if (h.labels[i].hash != hash.value)
				failed("%s: not the bits of the generic variant", name);
			return;
		}
	if (!first) {
		failed("%s: the generic variant did not run this case", name);
		return;
	}
	must(h.n_labels < LABELS_MAX, "too many labels");
	snprintf(h.labels[h.n_labels].name, sizeof(name), "%s", name);
	h.labels[h.n_labels++].hash = hash.value;
}
