/*
 * Begins a step: copies the tokens' embedding rows and computes cosine and sine of their rotary angles.
 *
 *     x[t, :] = table[token_t, :]
 *     rope[t] = cos(p_t f_j) | sin(p_t f_j), j < ROT/2
 *
 * The angle is a float product, as the model's reference computes it: at position 2595 another rounding of the angle
 * would already move the result by 1e-4.
 *
 *     step       the step table (kernels/step.h): tokens at tokens_at, positions at positions_at; in
 *     drawn      [draws] int, the ids that the step before drew, -1 where a draw failed, for tokens that name a draw; in
 *     table      [vocabulary, LD(HIDDEN)] elem_t; in
 *     inv_freq   [ROT/2] float, the frequencies f; in
 *     x          [T, LD(HIDDEN)] float; out
 *     rope       [T, ROT] float; out
 *
 * Global size: one group for each token. Options: HIDDEN, ROT. Reference: reference_rope_angles.
 */
#include "common.clh"

GROUP_FUNCTION void embed_group(ulong t, __global const int *step, int tokens_at, int positions_at,
				__global const int *drawn, __global const elem_t *table,
				__global const float *inv_freq, __global float *x, __global float *rope)
{
	int token = step[tokens_at + t];
	ulong id = (ulong)(token < 0 ? MAX_(drawn[-1 - token], 0) : token);
	float position = (float)step[positions_at + t];

	FOR_COLUMNS (c, LD(HIDDEN))
		V_STORE(EV_LOAD(table + id * LD(HIDDEN) + c), x + t * LD(HIDDEN) + c);
	FOR_ITEMS (j, ROT / 2) {
		float angle = position * inv_freq[j];

		rope[t * ROT + j] = cos(angle);
		rope[t * ROT + ROT / 2 + j] = sin(angle);
	}
}

#ifndef STEP
__kernel GROUP_SIZE void embed(__global const int *restrict step, int tokens_at, int positions_at,
			       __global const int *restrict drawn, __global const elem_t *restrict table,
			       __global const float *restrict inv_freq, __global float *restrict x,
			       __global float *restrict rope)
{
	embed_group(GROUP_X, step, tokens_at, positions_at, drawn, table, inv_freq, x, rope);
}
#endif
