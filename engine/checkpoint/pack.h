/*
 * Weights into device memory, in the layouts the kernels read.
 *
 * matrix:  panels of 16 rows, K columns each (padded to 16), in the order that the kernel set wants
 *          (kernels_packing). Several weights may share one matrix, one behind the other (a fused projection,
 *          experts) or in turns panel by panel (gate and up), each padded to whole panels with zeros.
 * floats:  a matrix of floats whatever the set's elements are, in plain panels; the rows of weights that share it
 *          follow each other (a router's experts, behind them the shared expert's gate).
 * lookup:  row-major [rows, K] elements: the embedding table.
 * vector:  floats, with what can be computed once already done (1 + w, -exp(A_log)), padded to 16 of them.
 *
 * Synthetic matrices are filled by a kernel where they lie; everything else is converted from the
 * stored type to the kernels' elements row by row, into a mapping of the buffer.
 */
#pragma once

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

/* How many of n weights of a table, from the first on, share the first one's buffer. */
uint32_t pack_sharing(const struct weight *w, uint32_t n);

/* Bytes of the buffer that n such weights share, and how many of them coding (kernels/coded.h) may save, at most. */
uint64_t pack_bytes(const struct kernels *k, const struct weight *w, uint32_t n);
uint64_t pack_may_save(const struct kernels *k, const struct weight *w, uint32_t n);

/* Fills it with those of a layer, all of it: what pads rows and columns is zero. */
void pack_buffer(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t n,
		 uint32_t layer);

/* The first `bytes` of a buffer for writing, all of them; NULL (and p->error) when that fails. */
void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes);
void pack_unmap(struct packer *p, cl_mem buffer, void *mapped);
