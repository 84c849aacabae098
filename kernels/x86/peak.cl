/* generic/peak.cl, and the peak of vdpbf16ps: 16 floats += 32 products of bf16, rounds of ACCUMULATORS independent ones. */
#include "generic/peak.cl"

__kernel GROUP_SIZE void peak_dot(__global float *restrict out, float x, uint rounds)
{
	float16 acc[ACCUMULATORS], sum = 0;
	uint16 a = (uint16)(as_uint(x)), b = (uint16)(as_uint(x) ^ 0x00800080u);

#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		acc[i] = x + i;
	for (uint r = 0; r < rounds; r++)
#pragma unroll
		for (uint i = 0; i < ACCUMULATORS; i++)
			__asm__("vdpbf16ps %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		sum += acc[i];
	out[get_global_id(0)] = v_sum(sum);
}
