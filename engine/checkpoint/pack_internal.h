/* Shared by pack.c, pack_panels.c and pack_coded.c. */
#pragma once

#include <pthread.h>

#include "engine/checkpoint/pack.h"

/* As pack_map, for `bytes` bytes of the buffer from `offset` on. `whole`: the caller writes all of these bytes, so that
 * their present content need not be fetched. */
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

/* Fills a matrix of elements in KERNEL_PACK_CODED (kernels.h). Together the parts have all its panels. Errors are kept
 * in p->error; after one it does nothing. */
void pack_matrix_coded(struct packer *p, cl_mem buffer, uint64_t panels,
		       const struct pack_part *parts, size_t n_parts);

/* ---- pack_quant.c ---- */

/* Returns the bytes of a matrix in KERNEL_PACK_QUANT that n weights of a layer share. */
uint64_t pack_quant_bytes(const struct kernels *k, const struct weights *all,
			  const struct weight *w, uint32_t n, uint32_t layer);

/* Writes to table [panels + 1] where each panel begins, in units of 64 bytes, and the end (kernels/quant.h). bytes: of
 * a panel of each part. Together the parts have all panels. */
void pack_quant_places(const struct pack_part *parts, const uint64_t *bytes, size_t n_parts,
		       uint64_t panels, uint32_t *table);

/* Fills such a matrix. Together the parts have all its panels. Errors are kept in p->error. */
void pack_matrix_quant(struct packer *p, cl_mem buffer, uint64_t panels,
		       const struct pack_part *parts, size_t n_parts);

/* ---- pack_panels.c ---- */

/* Notes that the tensor of a row has a number that is not finite. */
void pack_note_not_finite(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
			  uint64_t row);

/* Read a row of a weight, or n, as weights_row and weights_rows do. If a number is not finite, they note the tensor. */
void pack_row(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
	      uint64_t row, bool bf16, void *out);
void pack_rows(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
	       uint64_t row, uint64_t n, bool bf16, void *out, uint64_t ld);

/* The panels of some parts. Threads take them in chunks, in the order of the parts; each thread begins the next chunk
 * when it has ended one. */
struct pack_work {
	const struct pack_part *parts;
	size_t n_parts;
	pthread_mutex_t lock;
	/* Guarded by lock. part, panel: the first panel that no thread has taken. taken: the number of chunks that
	 * threads have taken. */
	size_t part;
	uint64_t panel, taken;
};

enum { PACK_CHUNK = 16 }; /* the most panels of a chunk */

struct pack_chunk {
	const struct pack_part *part;
	uint64_t first, n; /* n panels of the part, from panel `first` on */
	uint64_t number;   /* of the chunk, from 0 on */
};

void pack_work_init(struct pack_work *w, const struct pack_part *parts, size_t n_parts);
void pack_work_release(struct pack_work *w);

/* Takes the next chunk; false: there is none left. */
bool pack_work_take(struct pack_work *w, struct pack_chunk *ret);

/* Reads panel `panel` of a part and packs it into `out` (K x 16 elements). `rows`, of as many bytes, is work space.
 * Rows and columns that the part lacks are zeros. For KERNEL_PACK_CODED it packs as for KERNEL_PACK_PAIRS, because the
 * panel is coded later. */
void pack_read_panel(struct packer *p, const struct pack_part *part, uint64_t panel, uint64_t K,
		     bool bf16, enum kernel_packing packing, void *rows, void *out);

/* Says that the rows of a chunk were read and are not needed again soon (weights_forget). */
void pack_forget(const struct packer *p, const struct pack_chunk *c);
