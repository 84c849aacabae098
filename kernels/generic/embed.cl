/*
 * The beginning of a step: embedding rows and rotary angles, one group a token.
 *
 *     x[t, :] = table[token_t, :]                        [T, LD(HIDDEN)] float
 *     rope[t] = cos(p_t f_j) | sin(p_t f_j), j < ROT/2    [T, ROT]  float
 *
 * A token that the step before has drawn, and the host has not seen yet, is -1 - d: the id of draw d is still at
 * the beginning of the results (sample.cl).
 *
 * The angle is a float product, as the reference computes it: at position 2595 another rounding of
 * it would already move the result by 1e-4.
 * Options: HIDDEN, ROT. Reference: reference_embed.
 */
#include "common.clh"

GROUP_FUNCTION void embed_group(ulong t, __global const int *step, int tokens_at, int positions_at,
				__global const int *drawn, __global const elem_t *table,
				__global const float *inv_freq, __global float *x, __global float *rope)
{
	int token = step[tokens_at + t];
	ulong id = (ulong)(token < 0 ? drawn[-1 - token] : token);
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
