/*
 * Probe (kernels/probe.h): a body of DOT_INT8 (generic/dot_int8.clh).
 *
 *     out[c] = in[c] / 256 + sum over the bytes i of a word  w.bi a.bi,   w = in[128 + c], a = in[c / 16],   c < 128
 *
 * Options: those of common.clh, INT8_DOT.
 */
#include "common.clh"
#include "dot_int8.clh"

__kernel GROUP_SIZE void probe(__global const uint *in, __global uint *out)
{
	FOR_COLUMNS(c, 128)
	{
		intv sum = AS_INTV(V_LOAD(in + c) >> 8);

		DOT_INT8(sum, V_LOAD(in + 128 + c), in[c / 16]);
		V_STORE(AS_UINTV(sum), out + c);
	}
}
