/* kernels/probe.c: a right answer is an ability. A program that the compiler refuses, a launch that fails and a wrong
 * answer are none. Answers are kept, unless memory was short, a launch failed or the compiler could not work. Functions
 * of OpenCL are replaced (--wrap) by ones that fail. */
#include "kernels/probe.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "engine/device.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* How the device fails. */
static enum { GOOD, LIES, DOES_NOT_BUILD, CANNOT_BUILD, DOES_NOT_RUN, SHORT_OF_MEMORY } fails;
static bool is_gpu;	      /* the device calls itself a GPU that makes PTX */
static unsigned builds;	      /* programs that were built, or should have been */
static char built_with[4096]; /* the options of the last one */

cl_int __real_clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices,
			     const char *options,
			     void(CL_CALLBACK *notify)(cl_program program, void *user), void *user);
cl_int __wrap_clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices,
			     const char *options,
			     void(CL_CALLBACK *notify)(cl_program program, void *user), void *user);
cl_int __real_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *to, cl_uint n,
				  const cl_event *wait, cl_event *event);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *to, cl_uint n,
				  const cl_event *wait, cl_event *event);
cl_mem __real_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *from,
			     cl_int *code);
cl_mem __wrap_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *from,
			     cl_int *code);
cl_int __real_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *to,
			      size_t *ret_size);
cl_int __wrap_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *to,
			      size_t *ret_size);

/* A GPU's programs of PTX do not build: the compiler of this machine's device might end the process over them. They are
 * the programs without the body 0 of DOT_INT8. */
cl_int __wrap_clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices,
			     const char *options,
			     void(CL_CALLBACK *notify)(cl_program program, void *user), void *user)
{
	builds++;
	snprintf(built_with, sizeof(built_with), "%s", options);
	if (fails == DOES_NOT_BUILD || (is_gpu && !strstr(options, "INT8_DOT=0")))
		return CL_BUILD_PROGRAM_FAILURE;
	if (fails == CANNOT_BUILD)
		return CL_OUT_OF_RESOURCES;
	return __real_clBuildProgram(program, n, devices, options, notify, user);
}

cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *to, cl_uint n,
				  const cl_event *wait, cl_event *event)
{
	cl_int code = __real_clEnqueueReadBuffer(queue, buffer, blocking, offset, size, to, n, wait,
						 event);

	if (fails == LIES)
		((unsigned char *)to)[size - 1] ^= 1;
	return fails == DOES_NOT_RUN ? CL_OUT_OF_RESOURCES : code;
}

cl_mem __wrap_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *from,
			     cl_int *code)
{
	if (fails != SHORT_OF_MEMORY)
		return __real_clCreateBuffer(context, flags, size, from, code);
	*code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
	return NULL;
}

cl_int __wrap_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *to,
			      size_t *ret_size)
{
	if (is_gpu && what == CL_DEVICE_TYPE && size == sizeof(cl_device_type)) {
		*(cl_device_type *)to = CL_DEVICE_TYPE_GPU;
		return CL_SUCCESS;
	}
	if (is_gpu && what == CL_DEVICE_EXTENSIONS) {
		snprintf(to, size, "cl_nv_device_attribute_query");
		return CL_SUCCESS;
	}
	return __real_clGetDeviceInfo(device, what, size, to, ret_size);
}

static struct device opened;
static cl_device_id device;
static bool is_cpu;

/* Probes the device, and counts its builds from 0 on. */
static int probe(const char *dir, bool again, uint32_t *ret, struct err *e)
{
	builds = 0;
	return probe_device(device, dir, again, ret, e);
}

static const char *new_cache(const char *name)
{
	const char *path = scratch_path(name);

	check(mkdir(path, 0700) == 0);
	return path;
}

TEST(right)
{
	const char *dir = new_cache("right");
	uint32_t first = 0, second = 0;
	struct err e = {0};
	uint64_t start = clock_now_ns(), asked;
	char names[128];

	is_int(probe(dir, false, &first, &e), 0, "a device is asked %s", e.text);
	asked = clock_now_ns() - start;
	ok(first & ABILITY_PLAIN && builds, "it runs plain OpenCL C");
	ok(!is_cpu ||
		   !(first & (ABILITY_DP4A | ABILITY_MMA_BF16 | ABILITY_MMA_INT8 | ABILITY_WGMMA)),
	   "a CPU has no PTX");
	start = clock_now_ns();
	is_int(probe(dir, false, &second, &e), 0, "it is asked again");
	printf("# asking %.1f ms, remembering %.2f ms\n", (double)asked / 1e6,
	       (double)(clock_now_ns() - start) / 1e6);
	ok(second == first && !builds, "and its answers are remembered: nothing is built");
	is_int(probe(dir, true, &second, &e), 0, "it is asked in any case");
	ok(second == first && builds, "and answers the same");
	is_int(probe(NULL, false, &second, &e), 0, "without a cache");
	ok(second == first && builds, "it answers each time");
	probe_names(ABILITY_PLAIN | ABILITY_WGMMA, names, sizeof(names));
	is_str(names, "plain, wgmma", "abilities have names");
	probe_names(0, names, sizeof(names));
	is_str(names, "none", "a device without any");
	probe_names(UINT32_MAX, names, sizeof(names));
	ok(strlen(names) < sizeof(names) - 1 && strstr(names, "vpmaddubsw"), "all names fit: %s",
	   names);
}

/* Probes a device that fails in one way. The answers are kept, and a later question finds the right ones. */
static void no(int way, const char *name)
{
	const char *dir = new_cache(name);
	uint32_t has = UINT32_MAX, right = 0;
	struct err e = {0};

	fails = (typeof(fails))way;
	is_int(probe(dir, false, &has, &e), 0, "%s is no error %s", name, e.text);
	fails = GOOD;
	ok(has == 0 && builds, "%s is no ability", name);
	is_int(probe(dir, false, &has, &e), 0, "the device is asked again");
	ok(has == 0 && !builds, "that is remembered");
	ok(probe(dir, true, &right, &e) == 0 && right & ABILITY_PLAIN, "until it is asked anew");
	ok(probe(dir, false, &has, &e) == 0 && has == right && !builds, "which is remembered too");
}

TEST(wrong)
{
	no(LIES, "a wrong answer");
	no(DOES_NOT_BUILD, "a program that does not build");
}

/* Probes a device that fails in a way that may pass. The next question finds the right answers. */
static void not_now(int way, const char *name)
{
	const char *dir = new_cache(name);
	uint32_t has = UINT32_MAX;
	struct err e = {0};

	fails = (typeof(fails))way;
	is_int(probe(dir, false, &has, &e), 0, "%s is no error %s", name, e.text);
	fails = GOOD;
	ok(has == 0 && builds, "%s is no ability", name);
	ok(probe(dir, false, &has, &e) == 0 && has & ABILITY_PLAIN && builds,
	   "the device is asked again");
	ok(probe(dir, false, &has, &e) == 0 && has & ABILITY_PLAIN && !builds,
	   "and its right answers are remembered");
}

TEST(passing)
{
	not_now(DOES_NOT_RUN, "a launch that fails");
	not_now(CANNOT_BUILD, "a compiler without resources");
}

TEST(short_of_memory)
{
	const char *dir = new_cache("short");
	uint32_t has = 77;
	struct err e = {0};

	fails = SHORT_OF_MEMORY;
	is_int(probe(dir, false, &has, &e), -ENOMEM, "memory that is short says nothing");
	fails = GOOD;
	ok(has == 77 && strstr(e.text, "plain"), "the error names the ability: %s", e.text);
	ok(probe(dir, false, &has, &e) == 0 && has & ABILITY_PLAIN && builds,
	   "and nothing is remembered of it");
}

TEST(damaged)
{
	const char *dir = new_cache("damaged");
	struct dirent *entry;
	uint32_t has = 0;
	struct err e = {0};
	char path[200];
	int n = 0;
	DIR *d;

	check(probe(dir, false, &has, &e) == 0);
	d = opendir(dir);
	while (d && (entry = readdir(d)))
		if (strstr(entry->d_name, ".clbin")) {
			snprintf(path, sizeof(path), "damaged/%.100s", entry->d_name);
			scratch_write(path, "TIGONCL1 and no abilities", 25);
			n++;
		}
	closedir(d);
	is_int(n, 1, "the answers are one file");
	ok(probe(dir, false, &has, &e) == 0 && has & ABILITY_PLAIN && builds,
	   "a damaged one is no answer");
	ok(probe(dir, false, &has, &e) == 0 && !builds, "and is replaced");
}

TEST(gpu)
{
	uint32_t has = 0;
	struct err e = {0};

	is_gpu = true;
	is_int(probe(NULL, false, &has, &e), 0, "a GPU whose compiler refuses PTX is probed");
	is_gpu = false;
	ok(has == ABILITY_PLAIN && builds > 4, "it has plain OpenCL C at its width, and no more");
}

TEST(variants)
{
	const uint32_t all = ABILITY_DP4A | ABILITY_MMA_BF16 | ABILITY_MMA_INT8;

	ok(kernels_best_variant(ABILITY_PLAIN | ABILITY_DOT) == KERNELS_GENERIC &&
		   kernels_best_variant(0) == KERNELS_GENERIC,
	   "plain OpenCL C runs the generic kernels");
	ok(kernels_best_variant(ABILITY_PLAIN | ABILITY_VDPBF16PS) == KERNELS_X86 &&
		   kernels_best_variant(ABILITY_PLAIN | ABILITY_VPDPBUSD) == KERNELS_GENERIC,
	   "vdpbf16ps runs x86");
	ok(kernels_best_variant(all) == KERNELS_NVIDIA &&
		   kernels_best_variant(all | ABILITY_WGMMA) == KERNELS_NVIDIA,
	   "mma.sync of bf16 runs nvidia, with and without wgmma");
	ok(kernels_best_variant((all | ABILITY_WGMMA) & ~(uint32_t)ABILITY_MMA_BF16) ==
		   KERNELS_GENERIC,
	   "without mma.sync of bf16 the rest is not enough");
}

/* Quantised weights have the generic kernels on every GPU. Nothing is built here: the options tell. */
TEST(bodies)
{
	static const struct {
		uint32_t abilities;
		const char *option, *what;
	} bodies[] = {
		{ABILITY_PLAIN, "-DINT8_DOT=0 ", "plain OpenCL C"},
		{ABILITY_PLAIN | ABILITY_DOT, "-DINT8_DOT=1 ", "the integer dot product"},
		{ABILITY_PLAIN | ABILITY_DOT | ABILITY_DP4A, "-DINT8_DOT=2 ", "dp4a"},
	};
	const struct kernel_shape shape = {.hidden = 256,
					   .vocab = 256,
					   .eps = 1e-6f,
					   .n_mlps = 1,
					   .mlps = {{.shared_size = 256}},
					   .bf16 = true,
					   .quant = 1u << QUANT_Q8_0,
					   .int8 = true,
					   .width = KERNEL_WIDTH_GPU,
					   .only = "gemm.cl"};

	fails = DOES_NOT_BUILD;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct kernels *k;
		struct err e = {0};
		int r = kernels_open(opened.context, device, opened.queue, &shape, KERNELS_GENERIC,
				     bodies[i].abilities, NULL, NULL, &k, &e);

		ok(r == -ENOEXEC && strstr(built_with, bodies[i].option),
		   "quantised products by %s", bodies[i].what);
	}
	fails = GOOD;
}

int main(void)
{
	struct err e = {0};

	if (device_open(getenv("TIGON_TEST_DEVICE"), &opened, &e) < 0)
		return skip_all(e.text);
	device = opened.id;
	is_cpu = opened.cpu;
	run_tests();
	device_close(&opened);
	return done();
}
