/*
 * generic/peak.cl, and the peaks of two instructions. A round is ACCUMULATORS instructions of one kind that do not
 * depend on each other:
 *
 *     peak_dot    vdpbf16ps, 16 floats += 32 products of bf16
 *     peak_int8   vpdpbusd, 16 ints += 64 products of int8; for processors with AVX512_VNNI
 */
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

__kernel GROUP_SIZE void peak_int8(__global float *restrict out, float x, uint rounds)
{
	uint16 acc[ACCUMULATORS], sum = 0;
	uint16 a = (uint16)(as_uint(x)), b = (uint16)(as_uint(x) ^ 0x01010101u);

#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		acc[i] = i;
	for (uint r = 0; r < rounds; r++)
#pragma unroll
		for (uint i = 0; i < ACCUMULATORS; i++)
			__asm__("vpdpbusd %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
#pragma unroll
	for (uint i = 0; i < ACCUMULATORS; i++)
		sum += acc[i];
	out[get_global_id(0)] = v_sum(convert_float16(sum));
}
