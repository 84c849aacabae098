/*
 * Pools hidden states: adds those of consecutive tokens of a sequence to the sequence's sum, in the order of their
 * positions.
 *
 *     sums[seat] = (begins ? 0 : sums[seat]) + h32[t] + h32[t + 1] + ...
 *
 *     step      the step table (kernels/step.h): poolings at poolings_at; in
 *     h32       [T, LD(HIDDEN)] float, the tokens behind the last norm; in
 *     sums      [seats, LD(HIDDEN)] float, a row for each sequence; in and out
 *     result    [LD(HIDDEN)] float of each finished sum, at its offset; out
 *
 * Each column is one chain of additions of floats over all tokens of a sequence. So its bits do not depend on how the
 * prompt was cut. Global size: CEIL(LD(HIDDEN), WIDTH) x poolings groups. Option: HIDDEN. Reference: the same chain on
 * the host.
 */
#include "common.clh"

__kernel GROUP_SIZE void pool(__global const int *restrict step, int poolings_at,
			      __global const float *restrict h32, __global float *restrict sums,
			      __global float *restrict result)
{
	__global const int *p = step + poolings_at + GROUP_Y * POOLING_INTS;
	__global const float *in = h32 + (ulong)p[POOLING_TOKEN] * LD(HIDDEN);
	__global float *own = sums + (ulong)p[POOLING_SEAT] * LD(HIDDEN);
	uint c = GROUP_X * WIDTH + LANE * VEC;
	floatv sum = 0;

	if (c >= LD(HIDDEN))
		return;
	if (!p[POOLING_BEGINS])
		sum = V_LOAD(own + c);
	for (int t = 0; t < p[POOLING_COUNT]; t++)
		sum += V_LOAD(in + (ulong)t * LD(HIDDEN) + c);
	V_STORE(sum, own + c);
	if (p[POOLING_RESULT_AT] >= 0)
		V_STORE(sum, result + p[POOLING_RESULT_AT] + c);
}
