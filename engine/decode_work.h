/* The work list of a decode step (a step without prefill rows): the phases that one launch
 * (kernels/generic/decode_step.cl) goes through. Each layer appends its phases (engine/layers/phases.h). Pure: numbers
 * in, ints out. Inside engine/ only.
 *
 * A phase reads a work buffer only if an earlier phase of the list has written it; only the embedding reads the results
 * of the step before. decode_work_order returns the buffers of an operation, and a test checks lists with it. */
#pragma once

#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/layer.h"

/* Returns the number of ints of the longest list. */
uint64_t decode_work_ints(const struct model_config *c);

/* Writes the list of a step without prefill rows to `work`, which has room for decode_work_ints. Returns its length in
 * ints. */
uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work);

/* Returns the buffers that an operation reads and writes, without the weights of layers (engine/layers/phases.h). */
struct phase_order decode_work_order(int op);
