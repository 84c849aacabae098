#include "tests/copy_faults.h"

#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Names that --wrap gives: a call of NAME becomes one of __wrap_NAME, and __real_NAME is the library's function. */
#define WRAPPED(type, name, ...)         \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

typedef void CL_CALLBACK callback(cl_event event, cl_int status, void *user);

WRAPPED(cl_command_queue, clCreateCommandQueue, cl_context context, cl_device_id device,
	cl_command_queue_properties properties, cl_int *ret_code);
WRAPPED(cl_int, clEnqueueReadBuffer, cl_command_queue queue, cl_mem buffer, cl_bool blocking,
	size_t offset, size_t size, void *host, cl_uint n, const cl_event *wait, cl_event *event);
WRAPPED(cl_int, clEnqueueWriteBuffer, cl_command_queue queue, cl_mem buffer, cl_bool blocking,
	size_t offset, size_t size, const void *host, cl_uint n, const cl_event *wait,
	cl_event *event);
WRAPPED(cl_int, clGetEventInfo, cl_event event, cl_event_info what, size_t size, void *ret,
	size_t *ret_size);
WRAPPED(cl_int, clSetEventCallback, cl_event event, cl_int type, callback *call, void *user);

static struct {
	enum copy_fault fault;
	uint32_t good;
} faults[2]; /* of reads and of writes */

static cl_command_queue last_queue; /* the one that was made last */
static cl_event held;		    /* commands wait for it; NULL: none does */

static cl_event broken[1024]; /* [n_broken] events that end with an error; one reference each */
static size_t n_broken;

void copy_fault_set(bool write, enum copy_fault fault, uint32_t good)
{
	faults[write].fault = fault;
	faults[write].good = good;
}

void copy_fault_release(void)
{
	if (!held)
		return;
	clSetUserEventStatus(held, CL_COMPLETE);
	clReleaseEvent(held);
	held = NULL;
}

cl_command_queue __wrap_clCreateCommandQueue(cl_context context, cl_device_id device,
					     cl_command_queue_properties properties,
					     cl_int *ret_code)
{
	last_queue = __real_clCreateCommandQueue(context, device, properties, ret_code);
	return last_queue;
}

/* ---- commands ---- */

/* Returns the fault that the file names for reads, or for writes. */
static enum copy_fault fault_of_file(bool write)
{
	const char *path = getenv("COPY_FAULT");
	FILE *f = path ? fopen(path, "r") : NULL;
	char kind[8] = "", how[8] = "";
	int n = f ? fscanf(f, "%7s %7s", kind, how) : 0;

	if (f)
		fclose(f);
	if (n < 2 || strcmp(kind, write ? "write" : "read") != 0)
		return FAULT_NONE;
	return !strcmp(how, "refused") ? FAULT_REFUSED : FAULT_BROKEN;
}

/* Returns the fault of a command that is to be queued. */
static enum copy_fault next_fault(cl_command_queue queue, bool write)
{
	if (faults[write].fault == FAULT_NONE)
		return queue == last_queue ? fault_of_file(write) : FAULT_NONE;
	if (faults[write].good) {
		faults[write].good--;
		return FAULT_NONE;
	}
	return faults[write].fault;
}

/* Lets the command behind this one wait for copy_fault_release. */
static void hold(cl_command_queue queue)
{
	cl_context context;
	cl_int code;

	if (held)
		return;
	clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
	held = clCreateUserEvent(context, &code);
	if (!held || clEnqueueBarrierWithWaitList(queue, 1, &held, NULL) != CL_SUCCESS)
		abort();
}

/* Queues nothing, or a marker in the place of the command. */
static cl_int fail(enum copy_fault fault, cl_command_queue queue, cl_uint n, const cl_event *wait,
		   cl_event *event)
{
	cl_int code;

	if (fault == FAULT_REFUSED)
		return CL_OUT_OF_RESOURCES;
	if (fault == FAULT_HELD)
		hold(queue);
	code = clEnqueueMarkerWithWaitList(queue, n, wait, event);
	if (!event || code != CL_SUCCESS)
		return code;
	if (n_broken == ARRAY_SIZE(broken))
		abort();
	clRetainEvent(*event);
	broken[n_broken++] = *event;
	return code;
}

cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *host, cl_uint n,
				  const cl_event *wait, cl_event *event)
{
	enum copy_fault fault = next_fault(queue, false);

	return fault == FAULT_NONE ? __real_clEnqueueReadBuffer(queue, buffer, blocking, offset,
								size, host, n, wait, event)
				   : fail(fault, queue, n, wait, event);
}

cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				   size_t offset, size_t size, const void *host, cl_uint n,
				   const cl_event *wait, cl_event *event)
{
	enum copy_fault fault = next_fault(queue, true);

	return fault == FAULT_NONE ? __real_clEnqueueWriteBuffer(queue, buffer, blocking, offset,
								 size, host, n, wait, event)
				   : fail(fault, queue, n, wait, event);
}

/* ---- events ---- */

static bool is_broken(cl_event event)
{
	for (size_t i = 0; i < n_broken; i++)
		if (broken[i] == event)
			return true;
	return false;
}

cl_int __wrap_clGetEventInfo(cl_event event, cl_event_info what, size_t size, void *ret,
			     size_t *ret_size)
{
	cl_int code = __real_clGetEventInfo(event, what, size, ret, ret_size), *status = ret;

	if (code == CL_SUCCESS && what == CL_EVENT_COMMAND_EXECUTION_STATUS && is_broken(event) &&
	    *status == CL_COMPLETE)
		*status = CL_OUT_OF_RESOURCES;
	return code;
}

struct call {
	callback *call;
	void *user;
};

static void CL_CALLBACK call_broken(cl_event event, cl_int status, void *user)
{
	struct call c = *(struct call *)user;

	(void)status;
	free(user);
	c.call(event, CL_OUT_OF_RESOURCES, c.user);
}

cl_int __wrap_clSetEventCallback(cl_event event, cl_int type, callback *call, void *user)
{
	struct call *c;

	if (!is_broken(event))
		return __real_clSetEventCallback(event, type, call, user);
	c = malloc(sizeof(*c));
	if (!c)
		abort();
	*c = (struct call){call, user};
	return __real_clSetEventCallback(event, type, call_broken, c);
}
