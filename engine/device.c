#include "engine/device.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "kernels/cl_error.h"

enum { PLATFORMS_MAX = 16, DEVICES_MAX = 64 };

/* PoCL asks hwloc for the machine's cores and memory, and hwloc reads /sys. Without /sys, as in a bare chroot, hwloc
 * finds no memory and PoCL calls abort. An environment variable tells hwloc the machine instead. */
void device_settle_environment(void)
{
	struct sysinfo info;
	char machine[128];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (access("/sys/devices/system/cpu", F_OK) == 0 || sysinfo(&info) < 0)
		return;
	snprintf(machine, sizeof(machine), "numa:1(memory=%llu) core:%ld pu:1",
		 (unsigned long long)info.totalram * info.mem_unit, MAX(cores, 1L));
	setenv("HWLOC_SYNTHETIC", machine, 0);
}

/* Lists the devices of the first PLATFORMS_MAX platforms, in the order of the OpenCL loader; at most DEVICES_MAX. */
static int all_devices(cl_device_id devices[DEVICES_MAX], cl_uint *ret_n, struct err *e)
{
	cl_platform_id platforms[PLATFORMS_MAX];
	cl_uint n_platforms = 0, n = 0;

	device_settle_environment();
	if (clGetPlatformIDs(PLATFORMS_MAX, platforms, &n_platforms) != CL_SUCCESS || !n_platforms)
		return err_set(
			e, ENODEV,
			"no OpenCL platform: install one (pocl-opencl-icd for the CPU, or the "
			"GPU vendor's driver)");
	for (cl_uint i = 0; i < MIN(n_platforms, (cl_uint)PLATFORMS_MAX); i++) {
		cl_uint found = 0;

		if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, DEVICES_MAX - n, devices + n,
				   &found) == CL_SUCCESS)
			n += MIN(found, DEVICES_MAX - n);
		if (n == DEVICES_MAX)
			break;
	}
	if (!n)
		return err_set(e, ENODEV, "no OpenCL platform here has a device");
	*ret_n = n;
	return 0;
}

static void device_text(cl_device_id id, cl_device_info what, char *text, size_t size)
{
	memset(text, 0, size);
	clGetDeviceInfo(id, what, size - 1, text, NULL);
}

static cl_device_id choose(const char *which, const cl_device_id *devices, cl_uint n)
{
	char name[256], *end;
	unsigned long index;

	if (!which) {
		for (cl_uint i = 0; i < n; i++) {
			cl_device_type type = 0;

			clGetDeviceInfo(devices[i], CL_DEVICE_TYPE, sizeof(type), &type, NULL);
			if (type & CL_DEVICE_TYPE_GPU)
				return devices[i];
		}
		return devices[0];
	}
	index = strtoul(which, &end, 10);
	if (isdigit((unsigned char)*which) && !*end)
		return index < n ? devices[index] : NULL;
	for (cl_uint i = 0; i < n; i++) {
		device_text(devices[i], CL_DEVICE_NAME, name, sizeof(name));
		if (*which && strcasestr(name, which))
			return devices[i];
	}
	return NULL;
}

static void describe(cl_device_id id, struct device *d)
{
	cl_device_type type = 0;
	cl_ulong memory = 0, largest = 0;
	cl_uint bits = 0;

	device_text(id, CL_DEVICE_NAME, d->name, sizeof(d->name));
	device_text(id, CL_DRIVER_VERSION, d->driver, sizeof(d->driver));
	clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
	clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memory), &memory, NULL);
	clGetDeviceInfo(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(largest), &largest, NULL);
	clGetDeviceInfo(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(bits), &bits, NULL);
	d->id = id;
	d->cpu = type & CL_DEVICE_TYPE_CPU;
	d->memory = d->cpu ? host_memory_read().left : memory;
	d->max_alloc = largest;
	d->alignment = MAX((uint64_t)bits / 8, (uint64_t)256);
}

int device_open(const char *which, struct device *ret, struct err *e)
{
	cl_device_id devices[DEVICES_MAX], id;
	struct device d = {0};
	cl_uint n;
	cl_int code;
	int r = all_devices(devices, &n, e);

	if (r < 0)
		return r;
	id = choose(which, devices, n);
	if (!id)
		return err_set(
			e, ENODEV,
			"--device: no OpenCL device matches \"%s\"; tigon devices lists them",
			which);
	describe(id, &d);
	d.context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
	if (code != CL_SUCCESS)
		return cl_error(e, code, d.name);
	d.queue = clCreateCommandQueue(d.context, id, 0, &code);
	if (code != CL_SUCCESS) {
		clReleaseContext(d.context);
		return cl_error(e, code, d.name);
	}
	*ret = d;
	return 0;
}

int device_time_commands(struct device *d, struct err *e)
{
	cl_int code;
	cl_command_queue timed =
		clCreateCommandQueue(d->context, d->id, CL_QUEUE_PROFILING_ENABLE, &code);

	if (code != CL_SUCCESS)
		return cl_error(e, code, d->name);
	clReleaseCommandQueue(d->queue);
	d->queue = timed;
	return 0;
}

void device_close(struct device *d)
{
	if (d->queue)
		clReleaseCommandQueue(d->queue);
	if (d->context)
		clReleaseContext(d->context);
	*d = (struct device){0};
}

int device_count(struct err *e)
{
	cl_device_id devices[DEVICES_MAX];
	cl_uint n;
	int r = all_devices(devices, &n, e);

	return r < 0 ? r : (int)n;
}

int device_print(uint32_t number, FILE *out, struct err *e)
{
	cl_device_id devices[DEVICES_MAX];
	struct device d = {0};
	cl_uint n;
	int r = all_devices(devices, &n, e);

	if (r < 0)
		return r;
	if (number >= n)
		return err_set(e, ENODEV, "there is no OpenCL device %u any more", number);
	describe(devices[number], &d);
	fprintf(out, "%u: %s, driver %s, %.1f GiB\n", number, d.name, d.driver,
		(double)d.memory / (1u << 30));
	return 0;
}
