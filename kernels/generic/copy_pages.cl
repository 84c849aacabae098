/*
 * Copies KV pages of a layer with a sliding window to other places in the buffers of the layer, bit by bit.
 *
 *     step        the step table (kernels/step.h): n page copies at copies_at; in. No page is written by one copy and
 *                 read or written by another.
 *     k_pages     [pages, KV_HEADS, HD, PAGE] elem_t (attention.cl); in and out
 *     v_pages     [pages, KV_HEADS, PAGE, HD] elem_t; in and out
 *
 * A page of a KV head has 64 or more elements of 2 or 4 bytes, or rows of int8 (KV_INT8), so it is a number of uint4. Global size: n x (2 KV_HEADS)
 * groups, first those of the keys. Options: KV_HEADS, HD (head
 * size), PAGE (tokens), KV_INT8. Reference: the same copies on the
 * host.
 */
#include "common.clh"

#if KV_INT8
#define HEAD_QUADS (PAGE * (HD + 4) / 16) /* codes, and a scale a row */
#else
#define HEAD_QUADS (HD * PAGE * (uint)sizeof(elem_t) / 16)
#endif

__kernel GROUP_SIZE void copy_pages(__global const int *restrict step, int copies_at, __global uint4 *k_pages,
				    __global uint4 *v_pages)
{
	__global const int *copy = step + copies_at + GROUP_X * COPY_INTS;
	__global uint4 *pages = GROUP_Y < KV_HEADS ? k_pages : v_pages;
	uint g = GROUP_Y % KV_HEADS;
	__global const uint4 *from = pages + ((ulong)copy[COPY_FROM] * KV_HEADS + g) * HEAD_QUADS;
	__global uint4 *to = pages + ((ulong)copy[COPY_TO] * KV_HEADS + g) * HEAD_QUADS;

	FOR_ITEMS (i, HEAD_QUADS)
		to[i] = from[i];
}
