/*
 * The work list of a decode step: what one launch (kernels/generic/decode_step.cl) does for a step whose rows all have one
 * token. Pure: numbers in, ints out. Inside engine/ only.
 *
 * The order of the phases is the order of the model's data: each reads only what earlier ones wrote (decode_work_order says
 * what that is, for the test that checks it). A ticket reads 64 KiB of weights at least, if its phase has them; for up to
 * three tokens choosing experts and sorting rows is one phase.
 */
#ifndef ENGINE_DECODE_WORK_H
#define ENGINE_DECODE_WORK_H

#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/layer.h"

/* Ints that the longest list takes. */
uint64_t decode_work_ints(const struct model_config *c);

/* Fills the list of a step (room for decode_work_ints; no prefill rows, no scores). Returns its length. */
uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work);

struct phase_order decode_work_order(int op);

#endif
