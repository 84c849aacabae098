/*
 * Probe (kernels/probe.h): mma.sync m16n8k32 of int8 with sums of int32, as nvidia/peak.cl measures it.
 *
 *     A    in         [16][32] int8
 *     B    in + 128   [8 columns][32] int8
 *     out             [16][8] int: A B
 *
 * Lane l of the warp has of A rows l / 4 and l / 4 + 8 at k = l % 4 * 4, then the same rows at k + 16; of B column
 * l / 4 at the same k; of the product row l / 4, columns l % 4 * 2 and the next, then row l / 4 + 8. A word is four
 * neighbours in k. Source: the PTX ISA, "Matrix Fragments for mma.m16n8k32".
 */
__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void probe(__global const uint *in, __global uint *out)
{
	const uint l = get_local_id(0), row = l / 4, word = l % 4, column = l % 4 * 2;
	__global const uint *A = in + row * 8 + word, *B = in + 128 + row * 8 + word;
	int d[4] = {0, 0, 0, 0};

	__asm__ volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
			 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
			 : "r"(A[0]), "r"(A[64]), "r"(A[4]), "r"(A[68]), "r"(B[0]), "r"(B[4]));
	out[row * 8 + column] = d[0];
	out[row * 8 + column + 1] = d[1];
	out[(row + 8) * 8 + column] = d[2];
	out[(row + 8) * 8 + column + 1] = d[3];
}
