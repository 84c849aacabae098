/*
 * Weights into device memory, in the layouts the kernels read.
 *
 * matrix:  panels of 16 rows, K columns each (padded to 16), in the order that the kernel set wants
 *          (kernels_packing). Several weights may share one matrix one behind the other (a fused projection,
 *          experts), or take turns panel by panel (gate and up), each padded to whole panels with zeros.
 * router:  a matrix of floats whatever the set's elements are, in plain panels: the experts' rows and
 *          behind them the shared expert's gate.
 * rows:    row-major [rows, K] elements: the embedding table.
 * vector:  floats, with what can be computed once already done (1 + w, -exp(A_log)).
 *
 * Synthetic matrices are filled by a kernel where they lie; everything else is converted from the
 * stored type to the kernels' elements row by row, into a mapping of the buffer.
 */
#ifndef ENGINE_CHECKPOINT_PACK_H
#define ENGINE_CHECKPOINT_PACK_H

#include "engine/checkpoint/weights.h"
#include "kernels/kernels.h"

struct packer {
	cl_context context;
	cl_command_queue queue;
	const struct weights *weights;
	struct kernels *kernels;
	uint64_t saved;	  /* bytes that coded matrices did not need */
	uint64_t plain;	  /* what they would take more at two bytes a weight */
	struct err error; /* the first one sticks; code 0: none */
};

/* A weight's place in a packed matrix: its panel p is panel first + p * stride. */
struct pack_part {
	enum weight_role role;
	uint32_t layer, expert;
	uint64_t first, stride;
};

/* Bytes of a packed matrix of so many panels of `cols` columns; coded ones (kernels/coded.h) use less in the end. */
uint64_t pack_matrix_bytes(const struct kernels *k, uint64_t panels, uint64_t cols);

/* Fills a matrix, all of it: the parts have all its panels. */
void pack_matrix(struct packer *p, cl_mem buffer, uint64_t panels, const struct pack_part *parts,
		 size_t n_parts);
void pack_router(struct packer *p, cl_mem buffer, uint32_t layer);
void pack_rows(struct packer *p, cl_mem buffer, enum weight_role role);

enum pack_transform {
	PACK_PLAIN,
	PACK_ONE_PLUS,	/* 1 + w */
	PACK_MINUS_EXP, /* -exp(w) */
	PACK_TRANSPOSE, /* [rows, cols] as [cols, rows]: convolution taps */
};

/* Fills a float vector; rows of a weight with several follow one another. The buffer holds the weight padded to
 * 16 floats; the padding is zero. */
void pack_vector(struct packer *p, cl_mem buffer, enum weight_role role, uint32_t layer,
		 enum pack_transform transform);

/* The first `bytes` of a buffer for writing, all of them; NULL (and p->error) when that fails. */
void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes);
void pack_unmap(struct packer *p, cl_mem buffer, void *mapped);

#endif
