/*
 * Probe (kernels/probe.h): the instructions of the kernels in nvidia/: mma.sync of bf16, and around it the copies and
 * loads of matrices (copy.clh) and the exchange between the lanes of a warp (warp.clh).
 *
 *     A    in + 256   [16][16] bf16
 *     B    in + 384   [8 columns][16] bf16
 *     out             [16][8] float: element i is that of A B, plus the number of the lane that has it
 *     out + 128       [32] float: the sum of the numbers of lanes l and l ^ 5
 *     out + 160       [32] float: the number of lane 31 - l
 *     out + 192       [32] the largest of in[0 .. 31] ^ the smallest of them
 *     out + 224       [32] bit i: the lowest bit of in[i]
 *
 * Lanes 16 to 31 copy no byte behind B, so that zeros are written there, to which the product is added.
 */
#include "copy.clh"
#include "mma.clh"
#include "warp.clh"

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void probe(__global const uint *in, __global uint *out)
{
	__local uint4 memory[64]; /* A, B, zeros: rows of 32 bytes */
	const uint l = get_local_id(0), at = (uint)(ulong)memory;
	const uint row = l / 4, column = l % 4 * 2;
	uint a[4], b[4];
	float d[4];

	COPY_16(at + l * 16, in + 256 + l * 4);
	COPY_SOME_16(at + 512 + l * 16, in + 384 + l % 16 * 4, l < 16 ? 16 : 0);
	COPY_END();
	COPY_WAIT(0);
	barrier(CLK_LOCAL_MEM_FENCE);
	LOAD_MATRICES("", a, at + l % 16 * 32 + l / 16 * 16);
	LOAD_MATRICES("", b, at + 512 + l % 8 * 32 + l / 8 % 2 * 16);
#pragma unroll
	for (uint i = 0; i < 4; i++)
		d[i] = ((__local const float *)memory)[192 + l] + l;
	MMA_BF16(d, a[0], a[1], a[2], a[3], b[0], b[1]);
	out[row * 8 + column] = as_uint(d[0]);
	out[row * 8 + column + 1] = as_uint(d[1]);
	out[(row + 8) * 8 + column] = as_uint(d[2]);
	out[(row + 8) * 8 + column + 1] = as_uint(d[3]);
	out[128 + l] = as_uint(add_other(l, 5));
	out[160 + l] = as_uint(from_lane(l, 31 - l));
	out[192 + l] = warp_max(in[l]) ^ warp_min(in[l]);
	out[224 + l] = warp_ballot(in[l] & 1);
}
