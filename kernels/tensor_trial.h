/* A trial of a device's tensor cores when a set is opened: nvidia/tensor_trial.cl. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>

#include "kernels/library.h"

/* Returns whether wgmma runs on the library's device and gives the bits of mma.sync. Otherwise products of many rows
 * run by mma.sync too, more slowly. A device of a compute capability other than 9.0 has no wgmma. On 9.0 the trial
 * waits for the queue; if wgmma cannot be used there, the reason is logged. */
bool tensor_has_wgmma(struct library *l, cl_command_queue queue);
