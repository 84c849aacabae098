/*
 * Begins a step: copies the tokens' embedding rows and computes cosine and sine of their rotary angles.
 *
 *     x[t, :] = table[token_t, :] * EMBED_SCALE, rounded to elem_t
 *     rope[t, r] = cos(p_t f_rj) | sin(p_t f_rj), j < ROT/2, r < ROPES
 *
 * The angle is a float product, as the model's reference computes it: at position 2595 another rounding of the angle
 * would already move the result by 1e-4.
 *
 *     step       the step table (kernels/step.h): tokens at tokens_at, positions at positions_at; in
 *     drawn      the result of the step before (kernels/step.h). Tokens that name a draw are its ids, of which those
 *                of failed draws are -1; in
 *     table      [vocabulary, LD(HIDDEN)] elem_t; with QUANT_EMBED panels of quantised weights (kernels/quant.h); in
 *     inv_freq   [ROPES, ROT/2] float, the frequencies f; in
 *     x          [T, LD(HIDDEN)] float; out
 *     rope       [T, ROPES, ROT] float; out
 *
 * Global size: one group for each token. Options: HIDDEN, ROT, ROPES (tables of angles; a model with sliding windows
 * may have two), EMBED_SCALE (a float; 1: none), QUANT_EMBED. Reference: reference_rope_angles.
 */
#include "common.clh"

#if BF16
#define ROUNDED(v) bf16_widen_v(bf16_round_v(v))
#else
#define ROUNDED(v) (v)
#endif

static inline floatv scaled(floatv v)
{
	return EMBED_SCALE == 1.0f ? v : ROUNDED(v * EMBED_SCALE);
}

#if QUANT_EMBED
#include "quant_embed.clh"
#else
GROUP_FUNCTION void embed_row(__global const elem_t *table, ulong id, __global float *x)
{
	FOR_COLUMNS (c, LD(HIDDEN))
		V_STORE(scaled(EV_LOAD(table + id * LD(HIDDEN) + c)), x + c);
}
#endif

GROUP_FUNCTION void embed_group(ulong t, __global const int *step, int tokens_at, int positions_at,
				__global const int *drawn, __global const elem_t *table,
				__global const float *inv_freq, __global float *x, __global float *rope)
{
	int token = step[tokens_at + t];
	ulong id = (ulong)(token < 0 ? MAX_(drawn[RESULT_IDS - 1 - token], 0) : token);
	float position = (float)step[positions_at + t];

	embed_row(table, id, x + t * LD(HIDDEN));
	for (uint r = 0; r < ROPES; r++)
		FOR_ITEMS (j, ROT / 2) {
			float angle = position * inv_freq[r * (ROT / 2) + j];

			rope[(t * ROPES + r) * ROT + j] = cos(angle);
			rope[(t * ROPES + r) * ROT + ROT / 2 + j] = sin(angle);
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
