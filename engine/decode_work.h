/* The work list of a decode step (a step without prefill rows): the phases that one launch goes through
 * (kernels/generic/decode_step.cl on a CPU, kernels/nvidia/decode_step.cl on a GPU). A phase is one operation
 * (engine/layers/phases.h). Each layer appends its phases. Pure: numbers in, ints out. Internal to engine/.
 *
 * The layers share buffers of work space. A phase reads such a buffer only if an earlier phase of the list has written
 * it. The one exception is the embedding, which reads the results of the step before. A test checks lists with
 * decode_work_order. */
#pragma once

#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/layer.h"

/* Returns how many ints a work list of this model has at most. */
uint64_t decode_work_ints(const struct model_config *c);

/* Writes the list of a step without prefill rows to `work`, which has room for decode_work_ints. Returns its length in
 * ints. */
uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work);

/* Returns the buffers that an operation (OP_* of kernels/step.h) reads and writes, without the weights of layers.
 * resident: in a list for resident groups (struct decode_cut). */
struct phase_order decode_work_order(int op, bool resident);
