/* The work list of a decode step (a step whose rows all have one token): the phases that one launch
 * (kernels/generic/decode_step.cl) goes through. Layers append theirs (engine/layers/phases.h). Pure: numbers in,
 * ints out. Inside engine/ only.
 *
 * Each phase reads only buffers that earlier phases wrote. decode_work_order lists the buffers of each operation; a
 * test checks every list against it. */
#pragma once

#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/layer.h"

/* Ints that the longest list takes. */
uint64_t decode_work_ints(const struct model_config *c);

/* Fills the list of a step (room for decode_work_ints; no prefill rows, no scores). Returns its length. */
uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work);

struct phase_order decode_work_order(int op);
