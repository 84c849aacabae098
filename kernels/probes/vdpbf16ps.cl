/*
 * Probe (kernels/probe.h): vdpbf16ps by inline assembly, as x86/gemm_core.clh has it.
 *
 *     out[i] = i + the sum of the two products of the pairs of bf16 in in[256 + i] and in[384 + i],   i < 128
 */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void probe(__global const uint *in, __global uint *out)
{
	for (uint i = 0; i < 128; i += 16) {
		float16 sum = (float16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + (float)i;

		__asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(vload16(0, in + 256 + i)), "v"(vload16(0, in + 384 + i)));
		vstore16(as_uint16(sum), 0, out + i);
	}
}
