/*
 * Measures a device's best bandwidth and arithmetic, with which `tigon bench` compares kernels of the same run.
 *
 *     peak_launch  does nothing, so that its time is that of a launch
 *     peak_read    adds up n blocks, so that no load can be left out
 *     peak_copy    to[i] = from[i]
 *     peak_flops   `rounds` times, one fused multiply-add on each of a lane's ACCUMULATORS registers of VEC floats
 *
 * A block is as much as one load of a lane takes at best: 16 floats on a CPU, 4 on a GPU, where neighbouring lanes load
 * neighbouring blocks.
 *
 *     from, to   [n] block_t; in, out
 *     out        [work-items] float, the sums; out
 *     x          any number, so that a compiler cannot compute the result
 *
 * Global size: any number of groups. On a CPU each group has neighbouring blocks, as a kernel walks weights. On a GPU
 * all lanes of all groups take one block each in turn: an H200 reads a fifth faster that way than if each group has
 * neighbouring blocks. It copies fastest where each lane has one block. Options: common.clh, ACCUMULATORS. There is no
 * reference: the numbers have no meaning.
 */
#include "common.clh"

#if LANES == 1
typedef float16 block_t;
#define block_sum(b) v_sum(b)
#define LOADS	     4 /* loads that are under way at the same time */
#define STRIDE	     1
#define FIRST(n)     ((ulong)(n) * get_group_id(0) / get_num_groups(0))
#define END(n)	     ((ulong)(n) * (get_group_id(0) + 1) / get_num_groups(0))
#else
typedef float4 block_t;
#define block_sum(b) ((b).x + (b).y + (b).z + (b).w)
#define LOADS	     8
#define STRIDE	     get_global_size(0)
#define FIRST(n)     get_global_id(0)
#define END(n)	     (n)
#endif

__kernel GROUP_SIZE void peak_launch(void)
{
}

__kernel GROUP_SIZE void peak_read(__global const block_t *restrict from, __global float *restrict out, ulong n)
{
	block_t sum[LOADS];
	ulong i = FIRST(n), end = END(n), stride = STRIDE;

#pragma unroll
	for (uint k = 0; k < LOADS; k++)
		sum[k] = 0;
	for (; i + (LOADS - 1) * stride < end; i += LOADS * stride)
#pragma unroll
		for (uint k = 0; k < LOADS; k++)
			sum[k] += from[i + k * stride];
	for (; i < end; i += stride)
		sum[0] += from[i];
#pragma unroll
	for (uint k = 1; k < LOADS; k++)
		sum[0] += sum[k];
	out[get_global_id(0)] = block_sum(sum[0]);
}

__kernel GROUP_SIZE void peak_copy(__global const block_t *restrict from, __global block_t *restrict to, ulong n)
{
	ulong end = END(n), stride = STRIDE;

	for (ulong i = FIRST(n); i < end; i += stride)
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
