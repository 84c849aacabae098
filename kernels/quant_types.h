/* The types of quantised weights that kernels read, for host and kernels alike: ggml's block formats, whose names they
 * have, and whole numbers and e4m3 with scales that are floats. A weight is
 *
 *     code * scale - min          types with a min
 *     (code - OFFSET) * scale     types without; with a table, code is an index into it, and the table's value counts
 *
 * A code is an unsigned number of LOW + HIGH bits. A scale holds for GROUP neighbouring weights of a row. CHUNK weights
 * of a row are stored together in the layout of kernels/quant.h. (That for tensor cores, kernels/quant_stages.h, takes
 * 64 of every type.) INT and UINT are whole numbers of other files, with a scale for as many weights as their names
 * say: INT has the zero in the middle, UINT a zero for each group. Codes of E4M3 are floats of eight bits. Each of
 * these is a bf16 number exactly, so products in bf16 can take them as such (generic/e4m3_core.clh). Kinds of scales:
 *
 *     HALF     an f16 for each group, and one more for its min
 *     SUPER    an f16 for the whole chunk, multiplied by a signed byte for each group; likewise for its min
 *     E8M0     a power of two for each group: 2^(byte - 128)
 *     UE4M3    an unsigned float of 8 bits for each group, half of it, multiplied by a float of the tensor
 *     FLOAT    a float for each group, and one more for its min */
#ifndef KERNELS_QUANT_TYPES_H
#define KERNELS_QUANT_TYPES_H

#define QUANT_HALF  0
#define QUANT_SUPER 1
#define QUANT_E8M0  2
#define QUANT_UE4M3 3
#define QUANT_FLOAT 4

#define QUANT_TABLE_NONE 0
#define QUANT_TABLE_IQ4	 1 /* the 16 values of IQ4_NL */
#define QUANT_TABLE_E2M1 2 /* the 16 numbers of four bits, doubled */
#define QUANT_TABLE_E4M3 3 /* the floats of eight bits; no code is a NaN, which is 127 or 255 */

/* The number of the type whose table is E4M3: generic kernels in bf16 have an inner loop of its own for it. */
#define QUANT_E4M3 23

/*     name    number CHUNK LOW HIGH GROUP  scale  min OFFSET table */
#define QUANT_TYPES(ROW)                                                         \
	ROW(Q8_0, 1, 64, 8, 0, 32, QUANT_HALF, 0, 128, QUANT_TABLE_NONE)         \
	ROW(Q4_0, 2, 64, 4, 0, 32, QUANT_HALF, 0, 8, QUANT_TABLE_NONE)           \
	ROW(Q4_1, 3, 64, 4, 0, 32, QUANT_HALF, 1, 0, QUANT_TABLE_NONE)           \
	ROW(Q5_0, 4, 64, 4, 1, 32, QUANT_HALF, 0, 16, QUANT_TABLE_NONE)          \
	ROW(Q5_1, 5, 64, 4, 1, 32, QUANT_HALF, 1, 0, QUANT_TABLE_NONE)           \
	ROW(Q2_K, 6, 256, 2, 0, 16, QUANT_SUPER, 1, 0, QUANT_TABLE_NONE)         \
	ROW(Q3_K, 7, 256, 2, 1, 16, QUANT_SUPER, 0, 4, QUANT_TABLE_NONE)         \
	ROW(Q4_K, 8, 256, 4, 0, 32, QUANT_SUPER, 1, 0, QUANT_TABLE_NONE)         \
	ROW(Q5_K, 9, 256, 4, 1, 32, QUANT_SUPER, 1, 0, QUANT_TABLE_NONE)         \
	ROW(Q6_K, 10, 256, 4, 2, 16, QUANT_SUPER, 0, 32, QUANT_TABLE_NONE)       \
	ROW(IQ4_NL, 11, 64, 4, 0, 32, QUANT_HALF, 0, 128, QUANT_TABLE_IQ4)       \
	ROW(IQ4_XS, 12, 256, 4, 0, 32, QUANT_SUPER, 0, 128, QUANT_TABLE_IQ4)     \
	ROW(MXFP4, 13, 128, 4, 0, 32, QUANT_E8M0, 0, 12, QUANT_TABLE_E2M1)       \
	ROW(NVFP4, 14, 64, 4, 0, 16, QUANT_UE4M3, 0, 12, QUANT_TABLE_E2M1)       \
	ROW(INT4_32, 15, 32, 4, 0, 32, QUANT_FLOAT, 0, 8, QUANT_TABLE_NONE)      \
	ROW(INT4_128, 16, 128, 4, 0, 128, QUANT_FLOAT, 0, 8, QUANT_TABLE_NONE)   \
	ROW(UINT4_32, 17, 32, 4, 0, 32, QUANT_FLOAT, 1, 0, QUANT_TABLE_NONE)     \
	ROW(UINT4_128, 18, 128, 4, 0, 128, QUANT_FLOAT, 1, 0, QUANT_TABLE_NONE)  \
	ROW(INT8_32, 19, 32, 8, 0, 32, QUANT_FLOAT, 0, 128, QUANT_TABLE_NONE)    \
	ROW(INT8_128, 20, 128, 8, 0, 128, QUANT_FLOAT, 0, 128, QUANT_TABLE_NONE) \
	ROW(UINT8_32, 21, 32, 8, 0, 32, QUANT_FLOAT, 1, 0, QUANT_TABLE_NONE)     \
	ROW(UINT8_128, 22, 128, 8, 0, 128, QUANT_FLOAT, 1, 0, QUANT_TABLE_NONE)  \
	ROW(E4M3_128, QUANT_E4M3, 128, 8, 0, 128, QUANT_FLOAT, 0, 0, QUANT_TABLE_E4M3)

/* Whether codes may be 128 or more. */
#define QUANT_WIDE(LOW, table) ((LOW) == 8 || (table) == QUANT_TABLE_IQ4)

/* A panel whose weights are not quantised: elements of the set, in the order of its packing. */
#define QUANT_PLAIN 0

/* Bytes of a panel's header: the type's number as a uint, the tensor's scale as a float, then zeros; that of a panel of
 * stages says more (kernels/quant_stages.h). */
#define QUANT_HEADER 64

/* Bytes of the scales of a chunk, and of a chunk: a multiple of 64. */
#define QUANT_SCALES(CHUNK, GROUP, SCALE, MIN)                              \
	((SCALE) == QUANT_HALF	  ? (CHUNK) / (GROUP)*32 * (1 + (MIN))      \
	 : (SCALE) == QUANT_FLOAT ? (CHUNK) / (GROUP)*64 * (1 + (MIN))      \
	 : (SCALE) == QUANT_SUPER ? 64 + (CHUNK) / (GROUP)*16 * (1 + (MIN)) \
				  : (CHUNK) / (GROUP)*16)
#define QUANT_CHUNK(CHUNK, LOW, HIGH, GROUP, SCALE, MIN) \
	(QUANT_SCALES(CHUNK, GROUP, SCALE, MIN) + (CHUNK)*2 * ((LOW) + (HIGH)))

/* Stages (kernels/quant_stages.h): the terms of one, the scales that a row has in it, the bytes of the scales of all
 * rows, and the bytes of a stage. */
#define QUANT_STAGE_TERMS	  64
#define QUANT_STAGE_GROUPS(GROUP) ((GROUP) < QUANT_STAGE_TERMS ? QUANT_STAGE_TERMS / (GROUP) : 1)
#define QUANT_STAGE_SCALES(GROUP, SCALE)                           \
	(QUANT_STAGE_GROUPS(GROUP) * ((SCALE) == QUANT_FLOAT  ? 64 \
				      : (SCALE) == QUANT_HALF ? 32 \
							      : 16))
#define QUANT_STAGE(LOW, HIGH, GROUP, SCALE, MIN) \
	(128 * ((LOW) + (HIGH)) + QUANT_STAGE_SCALES(GROUP, SCALE) * (1 + (MIN)))
#define QUANT_STAGE_PLAIN (QUANT_STAGE_TERMS * 16 * 2) /* of bf16 elements */

/* Bytes of a panel's scale factors for 256 weights each, in front of its stages. K: weights of a row. */
#define QUANT_SUPERS(K, SCALE) ((SCALE) == QUANT_SUPER ? ((K) + 255) / 256 * 64 : 0)
#endif
