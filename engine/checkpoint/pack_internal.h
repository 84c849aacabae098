/* Shared by pack.c and pack_coded.c. */
#pragma once

#include "engine/checkpoint/pack.h"

/* Maps `bytes` bytes of the buffer from `offset` on for writing. NULL: it failed, or there was an error before
 * (p->error). `whole`: the caller writes all of these bytes, so that their present content need not be fetched. */
void *pack_map_part(struct packer *p, cl_mem buffer, uint64_t offset, uint64_t bytes, bool whole);

/* A part of a packed matrix (not of a sequence's data): the rows of n weights one behind the other. Panel p of the part
 * is panel first + stride * p of the matrix. */
struct pack_part {
	const struct weight *weights;
	uint32_t n, layer, expert;
	uint64_t rows, first, stride;
};

/* Returns the bytes of a packed matrix of so many panels of `cols` columns; if it is coded, the most that it can
 * take. */
uint64_t pack_matrix_bytes(const struct kernels *k, uint64_t panels, uint64_t cols);

/* Reads the rows of panel `panel` of a part into `out`: at most 16 rows of K elements, bf16 or float. `out` holds zeros
 * before, and keeps them as padding. Several threads may call it at the same time. */
void pack_part_rows(struct packer *p, const struct pack_part *part, uint64_t panel, uint64_t K,
		    bool bf16, void *out);

/* Packs 16 rows of K elements, bf16 or float, into one panel (kernels.h has the packings). For KERNEL_PACK_CODED it
 * packs them as for KERNEL_PACK_PAIRS, because the panel is coded later. */
void pack_panel(const void *rows, uint64_t K, bool bf16, enum kernel_packing packing, void *out);

/* Fills a matrix of elements in KERNEL_PACK_CODED (kernels.h). Together the parts have all its panels. Errors are kept
 * in p->error; after one it does nothing. */
void pack_matrix_coded(struct packer *p, cl_mem buffer, uint64_t panels,
		       const struct pack_part *parts, size_t n_parts);
