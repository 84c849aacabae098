/*
 * generic/peak.cl, and the peak of mma.sync: a warp's 16 x 8 x 16 products of bf16, rounds of MMA_CHAINS independent ones.
 * (Hopper's wgmma does more, and cannot be had from OpenCL source.)
 */
#include "generic/peak.cl"

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
			__asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
					 "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
					 : "+f"(acc[i][0]), "+f"(acc[i][1]), "+f"(acc[i][2]), "+f"(acc[i][3])
					 : "r"(a), "r"(b));
#pragma unroll
	for (uint i = 0; i < MMA_CHAINS; i++)
		sum += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
	out[get_global_id(0)] = sum;
}
