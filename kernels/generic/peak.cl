/*
 * What a device can do at best: the yardsticks that the bench measures beside the kernels, in the same run.
 *
 *     peak_read    adds up n blocks, so that no load can be left out
 *     peak_copy    to[i] = from[i]
 *     peak_flops   rounds of independent fused multiply-adds on ACCUMULATORS registers of VEC floats a lane
 *
 * A block is as much as one load of a lane takes at best: 16 floats on a CPU, 4 on a GPU, where the lanes of a group
 * stand side by side.
 *
 *     from, to   [n] block_t; in, out
 *     out        [work-items] float, the sums; out
 *     x          any number, which a compiler cannot know
 *
 * Global size: any number of groups; each has a contiguous part of the blocks. Options: common.clh. No reference:
 * the numbers have no meaning.
 */
#include "common.clh"

#define ACCUMULATORS 16

#if LANES == 1
typedef float16 block_t;
#define block_sum(b) v_sum(b)
#else
typedef float4 block_t;
#define block_sum(b) ((b).x + (b).y + (b).z + (b).w)
#endif

/* This group's part of n: contiguous, as a kernel walks weights. */
#define FIRST(n) ((ulong)(n) * get_group_id(0) / get_num_groups(0))
#define END(n)	 ((ulong)(n) * (get_group_id(0) + 1) / get_num_groups(0))

__kernel GROUP_SIZE void peak_read(__global const block_t *restrict from, __global float *restrict out, ulong n)
{
	block_t a = 0, b = 0, c = 0, d = 0;
	ulong i = FIRST(n) + LANE, end = END(n);

	for (; i + 3 * LANES < end; i += 4 * LANES) {
		a += from[i];
		b += from[i + LANES];
		c += from[i + 2 * LANES];
		d += from[i + 3 * LANES];
	}
	for (; i < end; i += LANES)
		a += from[i];
	a = a + b + c + d;
	out[get_global_id(0)] = block_sum(a);
}

__kernel GROUP_SIZE void peak_copy(__global const block_t *restrict from, __global block_t *restrict to, ulong n)
{
	for (ulong i = FIRST(n) + LANE; i < END(n); i += LANES)
		to[i] = from[i];
}

__kernel GROUP_SIZE void peak_flops(__global float *restrict out, float x, uint rounds)
{
	floatv acc[ACCUMULATORS], a = x, b = x * 0.5f;
	floatv sum = 0;

#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		acc[i] = x + i;
	for (uint r = 0; r < rounds; r++)
#pragma unroll
		for (uint i = 0; i < ACCUMULATORS; i++)
			acc[i] = fma(acc[i], a, b);
#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		sum += acc[i];
	out[get_global_id(0)] = v_sum(sum);
}
