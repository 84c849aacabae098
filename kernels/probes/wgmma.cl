/*
 * Probe (kernels/probe.h): wgmma, and that it adds as mma.sync does, bit for bit. 128 lanes multiply 64 columns by 32
 * tokens over 64 terms, once by wgmma and once by mma.sync, with random numbers of very different sizes.
 *
 *     out[i] = 16, the number of sums of lane i that are equal and not 0, for i < 128
 */
#include "tensor.clh"
#include "wgmma.clh"

/* Returns a random element: the upper half of a float. */
static inline uint random_element(uint i)
{
	uint x = i * 2654435761u + 12345u;

	x ^= x >> 15;
	x *= 2246822519u;
	x ^= x >> 13;
	x *= 3266489917u;
	x ^= x >> 16;
	return as_uint(ldexp((float)(int)(x & 0xffff) - 32767.5f, (int)(x >> 16 & 15) - 24)) >> 16;
}

static inline uint random_pair(uint i)
{
	return random_element(2 * i) | random_element(2 * i + 1) << 16;
}

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void probe(__global const uint *in, __global uint *out)
{
	__local uint4 tokens_[32 * WGMMA_ROW_BYTES / 16] __attribute__((aligned(1024)));
	__local uint *tokens = (__local uint *)tokens_;
	const uint memory = (uint)(ulong)tokens_, lane = THREAD % 32;
	uint4 weights[4];
	float d[16], acc[4][4];
	uint equal = 0;

	/* A chunk has four pairs of terms (WGMMA_CHUNK): pair p of a token goes into its chunk p / 4. */
	for (uint i = THREAD; i < 32 * 32; i += 128)
		tokens[WGMMA_CHUNK(i / 32, i % 32 / 4) / 4 + i % 4] = random_pair(i);
#pragma unroll
	for (uint k = 0; k < 4; k++)
		weights[k] = (uint4)(random_pair(4096 + THREAD * 16 + k * 4), random_pair(4097 + THREAD * 16 + k * 4),
				     random_pair(4098 + THREAD * 16 + k * 4), random_pair(4099 + THREAD * 16 + k * 4));
	WGMMA_WRITTEN();
	barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
	for (uint i = 0; i < 16; i++)
		d[i] = acc[i / 4][i % 4] = 0;
	WGMMA_BEGIN();
#pragma unroll
	for (uint k = 0; k < 4; k++)
		WGMMA_32(d, weights[k], WGMMA_TOKENS(memory + k * 32));
	WGMMA_END();
	WGMMA_WAIT(0);
	WGMMA_READ(d, 16);
#pragma unroll
	for (uint k = 0; k < 4; k++)
#pragma unroll
		for (uint t = 0; t < 4; t++) {
			uint row = t * 8 + lane / 4;
			uint2 b = (uint2)(tokens[WGMMA_CHUNK(row, 2 * k) / 4 + lane % 4],
					  tokens[WGMMA_CHUNK(row, 2 * k + 1) / 4 + lane % 4]);

			MMA_PAIRS(acc[t], weights[k], b);
		}
#pragma unroll
	for (uint i = 0; i < 16; i++)
		equal += as_uint(d[i]) == as_uint(acc[i / 4][i % 4]) && d[i] != 0;
	out[THREAD] = equal;
}
