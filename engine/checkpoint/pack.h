/* Writes weights to device memory, in the layouts that the kernels read. Elements are the kernels' bf16 or floats.
 *
 *     matrix   panels: the elements of 16 rows with K columns (padded to 16) lie together, in the order that
 *              the kernel set wants (kernels_packing). Several weights may share one matrix: one behind the
 *              other (a fused projection, experts), or with panels that alternate (gate and up). Each weight
 *              is padded to whole panels with zeros.
 *     floats   a matrix of floats whatever the set's elements are, in plain panels; the rows of weights
 *              that share it follow each other (a router's experts, then the shared expert's gate).
 *     lookup   row-major [rows, K] elements, K padded to 16: the embedding table.
 *     vector   floats, padded to 16, with constant functions already applied (1 + w, -exp(A_log)); the
 *              convolution's taps are transposed.
 *
 * A kernel makes the numbers of synthetic weights in the forms matrix and lookup. All other weights are converted by
 * the host (weights_row, weights.h) and written into a mapping of the buffer, or into host memory from which they are
 * copied (staging.h). Several threads do this for matrices,
 * floats and lookups, while they read the rows from the files. Rows that were packed soon leave this process's memory
 * (weights_forget). The elements of a matrix may also be coded, so that they take fewer bytes (kernels/coded.h). */
#pragma once

#include "base/log.h"
#include "engine/checkpoint/staging.h"
#include "engine/checkpoint/weights.h"
#include "kernels/kernels.h"

/* Bytes of a block of staging that suffice for most parts of buffers that are written at a time. */
#define PACK_STAGING ((uint64_t)96 << 20)

struct packer {
	cl_context context;
	cl_command_queue queue;
	const struct weights *weights;
	struct kernels *kernels;
	struct staging *staging; /* borrowed; NULL: all is written into mappings */
	/* the part of a buffer that is being written to staging's block */
	uint64_t staged_at, staged_bytes;
	uint64_t saved; /* bytes that coding has saved of the planned buffers */
	uint64_t plain; /* bytes that the weights would take in addition if none were coded */
	/* the name of a tensor with a number that is NaN or infinite; NULL: none was found yet. Written by any thread
	 * that reads rows. */
	_Atomic(const char *) not_finite;
	/* bytes of the buffers that are filled, and of all buffers; for the log */
	uint64_t done, all;
	struct log_progress progress;
	struct err error; /* the first error; code 0: none */
};

/* Returns how many of the n weights share the buffer of the first one: the first itself, and the weights behind it up
 * to one with another buffer. */
uint32_t pack_sharing(const struct weight *w, uint32_t n);

/* pack_bytes returns the bytes of the buffer that n weights of a layer share (0: weights outside all layers), whose
 * types are in `all`. pack_may_save returns how many of those bytes
 * coding (kernels/coded.h) may save at most. */
uint64_t pack_bytes(const struct kernels *k, const struct weights *all, const struct weight *w,
		    uint32_t n, uint32_t layer);
uint64_t pack_may_save(const struct kernels *k, const struct weight *w, uint32_t n);

/* Fills the buffer that n weights of a layer share; padding is zero. A weight that is NaN or infinite is an error.
 * layer: 0 for weights outside all layers. Errors are kept in p->error; after one it does nothing. */
void pack_buffer(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t n,
		 uint32_t layer);

/* Returns memory for the first `bytes` of a buffer, all of which the caller then writes: a mapping, or a block of
 * staging. NULL: it failed, or there was an error before (p->error). pack_unmap hands the bytes over to the device. */
void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes);
void pack_unmap(struct packer *p, cl_mem buffer, void *mapped);
