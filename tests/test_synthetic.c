/*
 * kernels/generic/synthetic.clh on an OpenCL device gives the bits that it gives on the host, also
 * when the compiler is allowed to fuse a multiplication with an addition or to flush subnormals.
 */
#include <CL/cl.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/macros.h"
#include "engine/device.h"
#include "kernels/generic/synthetic.clh"
#include "tests/tap.h"

enum { ELEMENTS = 100003, SOURCE_MAX = 65536 };

static const char kernel_text[] =
	"__kernel void elements(__global ushort *out, ulong key, float scale, float offset,\n"
	"                       ulong first)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	out[i] = (ushort)synthetic_bf16(key, scale, offset, first + i);\n"
	"}\n"
	"__kernel void words(__global ushort4 *out, ulong key, float scale, float offset, ulong "
	"first)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	ulong word = synthetic_word(key, first / 4 + i);\n"
	"	out[i] = (ushort4)((ushort)synthetic_bf16_of((uint)word, scale, offset),\n"
	"			   (ushort)synthetic_bf16_of((uint)(word >> 16), scale, offset),\n"
	"			   (ushort)synthetic_bf16_of((uint)(word >> 32), scale, offset),\n"
	"			   (ushort)synthetic_bf16_of((uint)(word >> 48), scale, offset));\n"
	"}\n";

static const struct {
	uint64_t key;
	float scale, offset;
	uint64_t first;
} cases[] = {
	{0, 0x1p-20f, 0, 0},
	{1, 0x1.8p-16f, 0, 4},
	{0xdeadbeefcafef00d, 0x1.fep-19f, 1, (uint64_t)1 << 33},
	{0xffffffffffffffff, 0x1.02p-15f, -4.59375f, ((uint64_t)1 << 40) + 8},
	{0x0123456789abcdef, 0x1.5ap-15f, 1.390625f, 12},
	{42, 0x1p-40f, 0, 0},
};

/* The first elements of each case, as another program computed them in exact fractions. Host and device compile the same
 * text, so a wrong change of that text would change both, and a comparison of the two would not find it. */
static const uint16_t recorded[ARRAY_SIZE(cases)][8] = {
	{0xbd00, 0xbd00, 0xbd00, 0xbd00, 0x3c9b, 0xba9c, 0x3c21, 0x3cc4},
	{0xbe53, 0x3d58, 0xbef6, 0x3dcc, 0x3f23, 0xbe1f, 0x3da4, 0x3ebd},
	{0x3f65, 0x3f87, 0x3f6f, 0x3f80, 0x3f85, 0x3f8b, 0x3f8c, 0x3f67},
	{0xc0a0, 0xc081, 0xc0a8, 0xc0b1, 0xc0a1, 0xc086, 0xc087, 0xc084},
	{0x400d, 0x3fd4, 0x3ffd, 0x3f0b, 0x3f91, 0x3f58, 0x3e9c, 0x3fe1},
	{0xb11e, 0x32a9, 0x32d4, 0x321d, 0xb18b, 0xb2a0, 0xb29c, 0x3277},
};

static uint16_t got[ELEMENTS + 3], want[ELEMENTS + 3];

static void compare(cl_command_queue queue, cl_mem buffer, cl_kernel kernel, size_t items,
		    const char *options, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cl_int r = CL_SUCCESS;

		memset(got, 0, sizeof(got));
		for (size_t k = 0; k < ELEMENTS; k++)
			want[k] = (uint16_t)synthetic_bf16(cases[i].key, cases[i].scale,
							   cases[i].offset, cases[i].first + k);
		r |= clSetKernelArg(kernel, 0, sizeof(buffer), &buffer);
		r |= clSetKernelArg(kernel, 1, sizeof(cl_ulong), &cases[i].key);
		r |= clSetKernelArg(kernel, 2, sizeof(cl_float), &cases[i].scale);
		r |= clSetKernelArg(kernel, 3, sizeof(cl_float), &cases[i].offset);
		r |= clSetKernelArg(kernel, 4, sizeof(cl_ulong), &cases[i].first);
		r |= clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL);
		r |= clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(got), got, 0, NULL,
					 NULL);
		check(r == CL_SUCCESS);
		check(!memcmp(got, want, ELEMENTS * sizeof(*got)));
		check(!memcmp(got, recorded[i], sizeof(recorded[i])));
	}
	ok_all("%s built with \"%s\": %d elements of %zu keys", name, options, ELEMENTS,
	       ARRAY_SIZE(cases));
}

static void test_options(cl_context context, cl_device_id device, cl_command_queue queue,
			 const char *header, const char *options)
{
	const char *texts[] = {header, kernel_text};
	cl_program program = clCreateProgramWithSource(context, 2, texts, NULL, NULL);
	cl_kernel elements, words;
	cl_mem buffer;
	char log[4096] = "";

	if (!ok(clBuildProgram(program, 1, &device, options, NULL, NULL) == CL_SUCCESS,
		"builds with \"%s\"", options)) {
		clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof(log), log,
				      NULL);
		printf("# %s\n", log);
		clReleaseProgram(program);
		return;
	}
	elements = clCreateKernel(program, "elements", NULL);
	words = clCreateKernel(program, "words", NULL);
	buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(got), NULL, NULL);
	compare(queue, buffer, elements, ELEMENTS, options, "single elements");
	compare(queue, buffer, words, CEIL_DIV(ELEMENTS, 4), options, "four at a time");
	clReleaseMemObject(buffer);
	clReleaseKernel(elements);
	clReleaseKernel(words);
	clReleaseProgram(program);
}

int main(void)
{
	static char header[SOURCE_MAX];
	struct device d;
	struct err e;
	FILE *f;

	if (device_open(NULL, &d, &e) < 0)
		return skip_all(e.text);
	f = fopen("kernels/generic/synthetic.clh", "rb");
	if (!ok(f && fread(header, 1, sizeof(header) - 1, f) > 0, "reads the header"))
		return done();
	fclose(f);
	test_options(d.context, d.id, d.queue, header, "");
	test_options(d.context, d.id, d.queue, header,
		     "-cl-std=CL1.2 -cl-mad-enable -cl-denorms-are-zero");
	device_close(&d);
	return done();
}
