#include "kernels/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/macros.h"
#include "kernels/cache_file.h"
#include "kernels/cl_error.h"
#include "kernels/library.h"

enum { IN = 512, OUT = 256, KEY_MAX = 16 << 20 };

/* ---- devices that are worth asking ---- */

/* These keep probes away from compilers that do not know their language: some end the process over an instruction that
 * they do not know. An instruction that the processor does not have would end it too. */

static bool has_extension(cl_device_id device, const char *name)
{
	char text[16384] = "";

	clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof(text) - 1, text, NULL);
	return strstr(text, name) != NULL;
}

static bool lists_dot(cl_device_id device)
{
	return has_extension(device, "cl_khr_integer_dot_product");
}

/* A device that has a compute capability has a compiler that makes PTX. */
static bool makes_ptx(cl_device_id device)
{
	return !probe_is_cpu(device) && has_extension(device, "cl_nv_device_attribute_query");
}

#if defined(__x86_64__)
/* Returns whether it is PoCL's CPU device, whose compiler takes the processor's instructions. */
static bool is_pocl(cl_device_id device)
{
	return probe_is_cpu(device) && library_is_pocl(device);
}

static bool is_pocl_on_avx512(cl_device_id device)
{
	return is_pocl(device) && __builtin_cpu_supports("avx512f");
}
#endif

static bool runs_vdpbf16ps(cl_device_id device)
{
#if defined(__x86_64__)
	return is_pocl_on_avx512(device) && __builtin_cpu_supports("avx512bf16");
#else
	return false;
#endif
}

static bool runs_vpdpbusd(cl_device_id device)
{
#if defined(__x86_64__)
	return is_pocl_on_avx512(device) && __builtin_cpu_supports("avx512vnni");
#else
	return false;
#endif
}

static bool runs_vpmaddubsw(cl_device_id device)
{
#if defined(__x86_64__)
	return is_pocl(device) && __builtin_cpu_supports("avx2");
#else
	return false;
#endif
}

/* ---- known answers ---- */

/* Fills the input of all probes: the first half are any words, the second half pairs of bf16 numbers, which are
 * integers from -255 to 255, so that sums of their products are exact in float. */
static void fill(uint32_t in[IN])
{
	uint32_t random = 1;

	for (size_t i = 0; i < IN; i++) {
		uint32_t pair = 0;

		random = random * 1664525 + 1013904223;
		for (int half = 0; half < 2; half++) {
			int x = (int)(random >> (8 + 9 * half) & 511) - 256;

			pair |= float_bits((float)MAX(x, -255)) >> 16 << 16 * half;
		}
		in[i] = i < IN / 2 ? random ^ random >> 15 : pair;
	}
	/* the largest products of bytes */
	in[0] = 0xffffffff;
	in[128] = 0x80808080;
	in[129] = 0x7f7f7f7f;
}

/* Returns element i of the bf16 numbers at `pairs`. */
static float bf16_at(const uint32_t *pairs, size_t i)
{
	return bits_float(pairs[i / 2] >> 16 * (i % 2) << 16);
}

static int signed_byte(uint32_t word, size_t i)
{
	return (int8_t)(word >> 8 * (i % 4));
}

static void answer_dot_int8(const uint32_t in[IN], uint32_t out[OUT])
{
	for (size_t c = 0; c < 128; c++) {
		int sum = (int)(in[c] >> 8);

		for (size_t i = 0; i < 4; i++)
			sum += (int)(in[128 + c] >> 8 * i & 0xff) * signed_byte(in[c / 16], i);
		out[c] = (uint32_t)sum;
	}
}

static void answer_mma_bf16(const uint32_t in[IN], uint32_t out[OUT])
{
	uint32_t all = 0, most = 0, least = UINT32_MAX;

	for (size_t m = 0; m < 16; m++)
		for (size_t n = 0; n < 8; n++) {
			float sum = (float)(m % 8 * 4 + n / 2); /* the lane */

			for (size_t k = 0; k < 16; k++)
				sum += bf16_at(in + 256, m * 16 + k) *
				       bf16_at(in + 384, n * 16 + k);
			out[m * 8 + n] = float_bits(sum);
		}
	for (size_t l = 0; l < 32; l++) {
		all |= (in[l] & 1) << l;
		most = MAX(most, in[l]);
		least = MIN(least, in[l]);
	}
	for (size_t l = 0; l < 32; l++) {
		out[128 + l] = float_bits((float)(l + (l ^ 5)));
		out[160 + l] = float_bits((float)(31 - l));
		out[192 + l] = most ^ least;
		out[224 + l] = all;
	}
}

static void answer_mma_int8(const uint32_t in[IN], uint32_t out[OUT])
{
	for (size_t m = 0; m < 16; m++)
		for (size_t n = 0; n < 8; n++) {
			int sum = 0;

			for (size_t k = 0; k < 32; k++)
				sum += signed_byte(in[m * 8 + k / 4], k) *
				       signed_byte(in[128 + n * 8 + k / 4], k);
			out[m * 8 + n] = (uint32_t)sum;
		}
}

static void answer_wgmma(const uint32_t in[IN], uint32_t out[OUT])
{
	(void)in;
	for (size_t i = 0; i < 128; i++)
		out[i] = 16;
}

static void answer_vdpbf16ps(const uint32_t in[IN], uint32_t out[OUT])
{
	for (size_t i = 0; i < 128; i++) {
		float sum = (float)i;

		for (size_t half = 0; half < 2; half++)
			sum += bf16_at(in + 256 + i, half) * bf16_at(in + 384 + i, half);
		out[i] = float_bits(sum);
	}
}

/* ---- the table ---- */

#define STD_12 "-cl-std=CL1.2"

/* A probe is a kernel `probe` of one group:
 *
 *     in    [IN] uint, the numbers of `fill`; in
 *     out   [OUT] uint, zeros at first; in and out
 *
 * There is no row for subgroups. Sums over the lanes of a group (common.clh) are trees whose order decides bits. So a
 * subgroup could only exchange the terms of the same tree, which saves barriers of kernels that take less time than
 * their launch. */
static const struct probe {
	enum ability ability;
	const char *name;			   /* in messages and in tigon devices */
	bool (*worth_asking)(cl_device_id device); /* NULL: all devices are asked */
	const char *variant, *file, *options;	   /* as for library_program */
	size_t lanes; /* of the group; then the width is a GPU's; 0: the device's width */
	void (*answer)(const uint32_t in[IN], uint32_t out[OUT]);
} probes[] = {
	{ABILITY_PLAIN, "plain", NULL, "generic", "probes/dot_int8.cl", STD_12 " -DINT8_DOT=0", 0,
	 answer_dot_int8},
	{ABILITY_DOT, "integer dot product", lists_dot, "generic", "probes/dot_int8.cl",
	 "-cl-std=CL3.0 -DINT8_DOT=1", 64, answer_dot_int8},
	{ABILITY_DP4A, "dp4a", makes_ptx, "nvidia", "probes/dot_int8.cl", STD_12 " -DINT8_DOT=2", 0,
	 answer_dot_int8},
	{ABILITY_MMA_BF16, "mma.sync bf16", makes_ptx, "nvidia", "probes/mma_bf16.cl", STD_12, 32,
	 answer_mma_bf16},
	{ABILITY_MMA_INT8, "mma.sync int8", makes_ptx, "nvidia", "probes/mma_int8.cl", STD_12, 32,
	 answer_mma_int8},
	{ABILITY_WGMMA, "wgmma", makes_ptx, "nvidia", "probes/wgmma.cl", STD_12, 128, answer_wgmma},
	{ABILITY_VDPBF16PS, "vdpbf16ps", runs_vdpbf16ps, "x86", "probes/vdpbf16ps.cl", STD_12, 1,
	 answer_vdpbf16ps},
	{ABILITY_VPDPBUSD, "vpdpbusd", runs_vpdpbusd, "x86", "probes/dot_int8.cl",
	 STD_12 " -DINT8_DOT=3", 0, answer_dot_int8},
	{ABILITY_VPMADDUBSW, "vpmaddubsw", runs_vpmaddubsw, "x86", "probes/dot_int8.cl",
	 STD_12 " -DINT8_DOT=4", 0, answer_dot_int8},
};

/* ---- asking ---- */

/* A context for probes alone, because an instruction that fails may leave its context unusable. */
struct asking {
	cl_device_id device;
	cl_context context; /* NULL: none is open */
	cl_command_queue queue;
};

static void asking_close(struct asking *a)
{
	if (a->queue)
		clReleaseCommandQueue(a->queue);
	if (a->context)
		clReleaseContext(a->context);
	a->queue = NULL;
	a->context = NULL;
}

static int asking_open(struct asking *a, struct err *e)
{
	cl_int code;

	if (a->context)
		return 0;
	a->context = clCreateContext(NULL, 1, &a->device, NULL, NULL, &code);
	if (code == CL_SUCCESS)
		a->queue = clCreateCommandQueue(a->context, a->device, 0, &code);
	return cl_error(e, code, "probing the device");
}

static cl_mem copy_of(cl_context context, const uint32_t *words, size_t n, cl_int *code)
{
	return *code != CL_SUCCESS
		       ? NULL
		       : clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
					n * sizeof(*words), (void *)(uintptr_t)words, code);
}

/* Runs a compiled probe on `in`. out: zeros, in whose place its answer is written. */
static int run(const struct asking *a, cl_program program, size_t lanes, const uint32_t in[IN],
	       uint32_t out[OUT], struct err *e)
{
	cl_int code;
	cl_kernel kernel = clCreateKernel(program, "probe", &code);
	cl_mem from = copy_of(a->context, in, IN, &code), to = copy_of(a->context, out, OUT, &code);

	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 0, sizeof(from), &from);
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 1, sizeof(to), &to);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(a->queue, kernel, 1, NULL, &lanes, &lanes, 0, NULL,
					      NULL);
	if (code == CL_SUCCESS)
		code = clEnqueueReadBuffer(a->queue, to, CL_TRUE, 0, OUT * sizeof(*out), out, 0,
					   NULL, NULL);
	if (from)
		clReleaseMemObject(from);
	if (to)
		clReleaseMemObject(to);
	if (kernel)
		clReleaseKernel(kernel);
	return cl_error(e, code, "it does not run");
}

/* Asks the device for an ability. Returns 0 and whether it has it, in *ret_has; if not, *why has the reason. A negative
 * code: the device could not be asked, for the reason in *why. */
static int ask(const struct asking *a, const struct probe *p, bool *ret_has, struct err *why)
{
	const size_t width = !p->lanes && probe_is_cpu(a->device) ? 1 : 64;
	const size_t lanes = p->lanes ? p->lanes : width;
	struct library library = {.context = a->context,
				  .device = a->device,
				  .variant = p->variant};
	uint32_t in[IN], out[OUT] = {0}, known[OUT] = {0};
	char options[256];
	cl_program program;
	int r;

	*ret_has = false;
	snprintf(options, sizeof(options), "%s -DLANES=%zu -DVEC=%d -DBF16=1", p->options, width,
		 width == 1 ? 16 : 1);
	r = library_program(&library, p->file, options, &program, why);
	if (r < 0)
		return r == -ENOEXEC ? 0 : r;
	fill(in);
	p->answer(in, known);
	r = run(a, program, lanes, in, out, why);
	clReleaseProgram(program);
	if (r < 0)
		return r;
	*ret_has = !memcmp(out, known, sizeof(out));
	if (!*ret_has)
		err_set(why, EIO, "its answer is wrong");
	return 0;
}

/* Asks for all abilities of the set `worth`. *ret_sure: each of them was answered. */
static int ask_all(cl_device_id device, uint32_t worth, uint32_t *ret, bool *ret_sure,
		   struct err *e)
{
	struct asking a = {.device = device};
	uint32_t has = 0;
	bool sure = true;
	int r = 0;

	for (const struct probe *p = probes; r == 0 && p < probes + ARRAY_SIZE(probes); p++) {
		struct err why;
		bool good;

		if (!(worth & p->ability) || (r = asking_open(&a, e)) < 0)
			continue;
		r = ask(&a, p, &good, &why);
		if (good) {
			has |= p->ability;
			continue;
		}
		asking_close(&a);
		if (r == -ENOMEM) {
			err_set(e, ENOMEM, "probing the device for %s: %s", p->name, why.text);
		} else if (r < 0) {
			log_warning("probing the device for %s failed, so it is not used now: %s",
				    p->name, why.text);
			sure = false;
			r = 0;
		} else {
			log_debug("the device has no %s: %s", p->name, why.text);
		}
	}
	asking_close(&a);
	if (r == 0) {
		*ret = has;
		*ret_sure = sure;
	}
	return r;
}

/* ---- remembering ---- */

/* Writes the path of the file with a device's abilities. `worth` is a part of it, because it follows from the processor
 * as well, and not only from the device's name. */
static int answers_path(cl_device_id device, const char *dir, uint32_t worth,
			char ret[CACHE_PATH_MAX], struct err *e)
{
	struct buf key;
	char options[64];
	int r = 0;

	buf_init(&key, KEY_MAX);
	for (const struct probe *p = probes; r == 0 && p < probes + ARRAY_SIZE(probes); p++) {
		buf_printf(&key, "%x %s %zu\n", p->ability, p->options, p->lanes);
		r = library_source(p->variant, p->file, &key, e);
	}
	snprintf(options, sizeof(options), "abilities of %x", worth);
	if (r == 0)
		cache_file_path(dir, device, buf_str(&key), options, ret);
	buf_release(&key);
	return r;
}

static bool recall(const char *path, uint32_t *ret)
{
	size_t bytes = 0;
	void *data = cache_file_read(path, false, &bytes);
	bool good = data && bytes == sizeof(*ret);

	if (good)
		memcpy(ret, data, sizeof(*ret));
	free(data);
	return good;
}

bool probe_is_cpu(cl_device_id device)
{
	cl_device_type type = 0;

	clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
	return type & CL_DEVICE_TYPE_CPU;
}

int probe_device(cl_device_id device, const char *cache_dir, bool again, uint32_t *ret,
		 struct err *e)
{
	char path[CACHE_PATH_MAX];
	uint32_t worth = 0;
	bool sure;
	int r;

	for (const struct probe *p = probes; p < probes + ARRAY_SIZE(probes); p++)
		if (!p->worth_asking || p->worth_asking(device))
			worth |= p->ability;
	if (!cache_dir)
		return ask_all(device, worth, ret, &sure, e);
	r = answers_path(device, cache_dir, worth, path, e);
	if (r < 0)
		return r;
	if (!again && recall(path, ret))
		return 0;
	r = ask_all(device, worth, ret, &sure, e);
	if (r == 0 && sure)
		cache_file_write(path, ret, sizeof(*ret));
	return r;
}

void probe_names(uint32_t abilities, char *ret, size_t size)
{
	size_t n = 0;

	snprintf(ret, size, "none");
	for (const struct probe *p = probes; p < probes + ARRAY_SIZE(probes); p++)
		if (abilities & p->ability && n < size)
			n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? ", " : "", p->name);
}
