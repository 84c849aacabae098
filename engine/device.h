/* Chooses an OpenCL device, opens its context and queue, and finds out how much memory may be used. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct device {
	cl_device_id id;
	cl_context context;
	cl_command_queue queue; /* in-order queue */
	bool cpu;		/* it is a CPU, which shares the host's memory */
	/* Bytes that this process may use: on a CPU those that the machine and the control group have left, on a GPU
	 * its global memory. */
	uint64_t memory;
	uint64_t max_alloc; /* bytes of the largest buffer that the device allows */
	uint64_t alignment; /* alignment of sub-buffers in bytes */
	char name[256], driver[128];
};

/* Where PoCL cannot find out the machine's cores and memory (without /sys), sets the environment variable
 * HWLOC_SYNTHETIC, unless it is set. device_open and device_count call it too, but a program with several threads calls
 * it before it starts them, because setenv in one thread while another one reads the environment is a race. */
void device_settle_environment(void);

/* Opens the device that `which` names: NULL (the first GPU, else the first device), a number that device_print shows,
 * or a part of a device's name, in which upper and lower case are the same. -ENODEV: there is no such device. Other
 * errors are those of cl_error.h. */
int device_open(const char *which, struct device *ret, struct err *e) MUST_CHECK;
void device_close(struct device *d);

/* Replaces the queue, which must be unused, by one that times its commands. Errors are those of cl_error.h. */
int device_time_commands(struct device *d, struct err *e) MUST_CHECK;

/* Returns the number of devices. -ENODEV: there is none. */
int device_count(struct err *e) MUST_CHECK;

/* Writes a device's line to `out`: number (below device_count), name, driver, memory. -ENODEV: it is gone. */
int device_print(uint32_t number, FILE *out, struct err *e) MUST_CHECK;
