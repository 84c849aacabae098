/* The work list of a decode step (a step without prefill rows): the phases that one launch
 * (kernels/generic/decode_step.cl) goes through. Each layer appends its own (engine/layers/phases.h). Pure: numbers in,
 * ints out. Inside engine/ only.
 *
 * A phase reads no work buffer that an earlier phase has not written. decode_work_order returns the buffers of an
 * operation, and a test checks work lists with it. */
#pragma once

#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/layer.h"

/* Ints that the longest list takes. */
uint64_t decode_work_ints(const struct model_config *c);

/* Fills the list of a step without prefill rows; work has room for decode_work_ints. Returns its length in ints. */
uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work);

/* The buffers that an operation reads and writes. */
struct phase_order decode_work_order(int op);
