/*
 * generic/peak.cl, and the peaks of three instructions. A round is several instructions of one kind that do not depend
 * on each other:
 *
 *     peak_dot    MMA_CHAINS mma.sync of a warp, each 16 x 8 x 16 products of bf16 (wgmma reaches more)
 *     peak_int8   MMA_CHAINS mma.sync of a warp, each 16 x 8 x 32 products of int8
 *     peak_dp4a   ACCUMULATORS dp4a of a lane, each 4 products of int8
 */
#include "generic/peak.cl"
#include "mma.clh"

#define MMA_CHAINS 8

__kernel GROUP_SIZE void peak_dot(__global float *restrict out, float x, uint rounds)
{
	float acc[MMA_CHAINS][4], sum = 0;
	uint a = as_uint(x), b = as_uint(x) ^ 0x00800080u;

#pragma unroll
	for (uint i = 0; i < MMA_CHAINS; i++)
		acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = x + i;
	for (uint r = 0; r < rounds; r++)
#pragma unroll
		for (uint i = 0; i < MMA_CHAINS; i++)
			MMA_BF16(acc[i], a, a, a, a, b, b);
#pragma unroll
	for (uint i = 0; i < MMA_CHAINS; i++)
		sum += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
	out[get_global_id(0)] = sum;
}

__kernel GROUP_SIZE void peak_int8(__global float *restrict out, float x, uint rounds)
{
	int acc[MMA_CHAINS][4], sum = 0;
	uint a = as_uint(x), b = as_uint(x) ^ 0x01010101u;

#pragma unroll
	for (uint i = 0; i < MMA_CHAINS; i++)
		acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = (int)i;
	for (uint r = 0; r < rounds; r++)
#pragma unroll
		for (uint i = 0; i < MMA_CHAINS; i++)
			__asm__ volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
					 "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
					 : "+r"(acc[i][0]), "+r"(acc[i][1]), "+r"(acc[i][2]), "+r"(acc[i][3])
					 : "r"(a), "r"(b));
#pragma unroll
	for (uint i = 0; i < MMA_CHAINS; i++)
		sum += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
	out[get_global_id(0)] = (float)sum;
}

__kernel GROUP_SIZE void peak_dp4a(__global float *restrict out, float x, uint rounds)
{
	int acc[ACCUMULATORS], sum = 0;
	uint a = as_uint(x), b = as_uint(x) ^ 0x01010101u;

#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		acc[i] = (int)i;
	for (uint r = 0; r < rounds; r++)
#pragma unroll
		for (uint i = 0; i < ACCUMULATORS; i++)
			__asm__ volatile("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(acc[i]) : "r"(a), "r"(b));
#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		sum += acc[i];
	out[get_global_id(0)] = (float)sum;
}
