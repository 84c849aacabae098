/*
 * Probe (kernels/probe.h): PTX by inline assembly. out[i] = in[i] with its four bytes in reverse order, for i < 64.
 *
 * Source: the PTX ISA, "prmt".
 */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void probe(__global const uint *in, __global uint *out)
{
	uint i = get_local_id(0), r;

	__asm__("prmt.b32 %0, %1, 0, 0x0123;" : "=r"(r) : "r"(in[i]));
	out[i] = r;
}
