/* A trial of a device's tensor cores at the start: nvidia/tensor_trial.cl. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>

#include "kernels/library.h"

/* Whether wgmma runs on the library's device and gives the bits of mma.sync. Every reason why not is only logged: then
 * products of many rows run by mma.sync too, more slowly. Waits for the queue. */
bool tensor_has_wgmma(struct library *l, cl_command_queue queue);
