#include "kernels/tensor_trial.h"

#include <CL/cl_ext.h>

#include "base/log.h"
#include "kernels/cl_error.h"

/* The options that common.clh needs on an NVIDIA device. */
static const char options[] = "-cl-std=CL1.2 -DLANES=64 -DVEC=1 -DBF16=1";

/* Runs the trial. *ret is the number of sums that differ between wgmma and mma.sync, or that are 0. */
static int run(const struct library *l, cl_program program, cl_command_queue queue, cl_uint *ret,
	       struct err *e)
{
	const cl_uint zero = 0;
	size_t lanes = 128;
	cl_int code;
	cl_kernel kernel = clCreateKernel(program, "tensor_trial", &code);
	cl_mem differ =
		code == CL_SUCCESS
			? clCreateBuffer(l->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
					 sizeof(zero), (void *)(uintptr_t)&zero, &code)
			: NULL;

	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 0, sizeof(differ), &differ);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &lanes, &lanes, 0, NULL,
					      NULL);
	if (code == CL_SUCCESS)
		code = clEnqueueReadBuffer(queue, differ, CL_TRUE, 0, sizeof(*ret), ret, 0, NULL,
					   NULL);
	if (differ)
		clReleaseMemObject(differ);
	if (kernel)
		clReleaseKernel(kernel);
	return code == CL_SUCCESS ? 0 : cl_error(e, code, "tensor_trial");
}

bool tensor_has_wgmma(struct library *l, cl_command_queue queue)
{
	cl_uint major = 0, minor = 0, differ = 0;
	cl_program program;
	struct err e;
	int r;

	clGetDeviceInfo(l->device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, sizeof(major), &major,
			NULL);
	clGetDeviceInfo(l->device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV, sizeof(minor), &minor,
			NULL);
	if (major != 9 || minor)
		return false;
	r = library_program(l, "tensor_trial.cl", options, &program, &e);
	if (r == 0) {
		r = run(l, program, queue, &differ, &e);
		clReleaseProgram(program);
	}
	if (r < 0)
		log_warning("wgmma cannot be used, products of many rows will be slower: %s",
			    e.text);
	else if (differ)
		log_warning(
			"wgmma and mma.sync differ in %u of 2048 sums: products of many rows will be slower",
			differ);
	return r == 0 && !differ;
}
