#include "engine/checkpoint/pack_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cl_error.h"
#include "kernels/coded.h"

void *pack_map_part(struct packer *p, cl_mem buffer, uint64_t offset, uint64_t bytes, bool whole)
{
	cl_int code;
	void *m;

	if (p->error.code)
		return NULL;
	m = clEnqueueMapBuffer(p->queue, buffer, CL_TRUE,
			       whole ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_WRITE, offset, bytes,
			       0, NULL, NULL, &code);
	if (code != CL_SUCCESS) {
		cl_error(&p->error, code, "mapping weights");
		return NULL;
	}
	return m;
}

void pack_unmap(struct packer *p, cl_mem buffer, void *m)
{
	cl_int code = clEnqueueUnmapMemObject(p->queue, buffer, m, 0, NULL, NULL);

	if (code == CL_SUCCESS)
		code = clFinish(p->queue);
	if (code != CL_SUCCESS && !p->error.code)
		cl_error(&p->error, code, "writing weights");
}

static bool uses_bf16(const struct packer *p)
{
	return kernels_shape(p->kernels)->bf16;
}

uint64_t pack_matrix_bytes(const struct kernels *k, uint64_t panels, uint64_t cols)
{
	uint64_t K = KERNEL_LD(cols);

	if (kernels_packing(k) == KERNEL_PACK_CODED)
		return coded_table_bytes(panels) + panels * coded_panel_bound(K);
	return panels * 16 * K * (kernels_shape(k)->bf16 ? 2 : 4);
}

/* Where element k of row r of a panel goes. */
static uint64_t packed_index(enum kernel_packing packing, uint64_t k, uint64_t r)
{
	switch (packing) {
	case KERNEL_PACK_PANELS: return k * 16 + r;
	case KERNEL_PACK_CODED: /* before it is coded */
	case KERNEL_PACK_PAIRS: return k / 2 * 32 + r * 2 + k % 2;
	case KERNEL_PACK_FRAGMENTS: {
		uint64_t lane = r % 8 * 4 + k % 8 / 2, e = k % 2 + r / 8 * 2 + k % 16 / 8 * 4;

		return k / 16 * 256 + lane * 8 + e;
	}
	}
	return 0;
}

void pack_panel(const void *rows, uint64_t K, bool bf16, enum kernel_packing packing, void *out)
{
	const uint32_t *from = rows;
	const uint16_t *from16 = rows;
	uint32_t *to = out;
	uint16_t *to16 = out;

	for (uint64_t k = 0; k < K; k++)
		for (uint64_t r = 0; r < 16; r++) {
			uint64_t at = packed_index(packing, k, r);

			if (bf16)
				to16[at] = from16[r * K + k];
			else
				to[at] = from[r * K + k];
		}
}

/* Where the rows of a panel come from: 16 rows of K elements, padded with zeros. */
typedef void panel_rows(const struct packer *p, const void *from, uint64_t panel, uint64_t K,
			bool bf16, void *out);

/* Writes `panels` panels to first, first + stride, ... of a packed matrix. */
static void write_panels(struct packer *p, cl_mem buffer, uint64_t panels, uint64_t K,
			 uint64_t first, uint64_t stride, bool bf16, panel_rows *rows,
			 const void *from)
{
	enum kernel_packing packing = bf16 ? kernels_packing(p->kernels) : KERNEL_PACK_PANELS;
	uint64_t bytes = K * 16 * (bf16 ? 2 : 4), span = (panels - 1) * stride + 1;
	char *scratch = calloc(1, bytes), *m;

	if (!scratch) {
		err_set(&p->error, ENOMEM, "out of memory");
		return;
	}
	m = pack_map_part(p, buffer, first * bytes, span * bytes, stride == 1);
	for (uint64_t i = 0; m && i < panels; i++) {
		memset(scratch, 0, bytes);
		rows(p, from, i, K, bf16, scratch);
		pack_panel(scratch, K, bf16, packing, m + i * stride * bytes);
	}
	if (m)
		pack_unmap(p, buffer, m);
	free(scratch);
}

void pack_part_rows(const struct packer *p, const void *from, uint64_t panel, uint64_t K, bool bf16,
		    void *out)
{
	const struct pack_part *part = from;
	uint64_t rows = weights_find(p->weights, part->role, part->layer)->rows;
	char *row = out;

	for (uint64_t r = panel * 16; r < MIN(panel * 16 + 16, rows);
	     r++, row += K * (bf16 ? 2 : 4))
		weights_row(p->weights, part->role, part->layer, part->expert, r, bf16, row);
}

void pack_matrix(struct packer *p, cl_mem buffer, uint64_t panels, const struct pack_part *parts,
		 size_t n_parts)
{
	if (kernels_packing(p->kernels) == KERNEL_PACK_CODED) {
		pack_matrix_coded(p, buffer, panels, parts, n_parts);
		return;
	}
	for (size_t i = 0; i < n_parts && !p->error.code; i++) {
		const struct pack_part *part = &parts[i];
		const struct weight *w = weights_find(p->weights, part->role, part->layer);
		struct weight_synthesis s;

		if (weights_synthesis(p->weights, part->role, part->layer, part->expert, &s))
			kernel_synthesize(p->kernels, buffer, part->first, (uint32_t)part->stride,
					  w->rows, w->cols, s.key, s.scale, s.offset);
		else
			write_panels(p, buffer, CEIL_DIV(w->rows, 16u), KERNEL_LD(w->cols),
				     part->first, part->stride, uses_bf16(p), pack_part_rows, part);
	}
}

static void router_rows(const struct packer *p, const void *from, uint64_t panel, uint64_t K,
			bool bf16, void *out)
{
	const struct weight *w = from;
	float *row = out;

	for (uint64_t r = panel * 16; r < panel * 16 + 16 && r <= w->rows; r++, row += K)
		weights_row(p->weights, r < w->rows ? WEIGHT_ROUTER : WEIGHT_SHARED_ROUTER,
			    w->layer, 0, r < w->rows ? r : 0, bf16, row);
}

void pack_router(struct packer *p, cl_mem buffer, uint32_t layer)
{
	const struct weight *w = weights_find(p->weights, WEIGHT_ROUTER, layer);

	write_panels(p, buffer, CEIL_DIV(w->rows + 1, 16u), KERNEL_LD(w->cols), 0, 1, false,
		     router_rows, w);
}

void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes)
{
	return pack_map_part(p, buffer, 0, bytes, true);
}

void pack_rows(struct packer *p, cl_mem buffer, enum weight_role role)
{
	const struct weight *w = weights_find(p->weights, role, 0);
	uint64_t K = KERNEL_LD(w->cols), size = uses_bf16(p) ? 2 : 4;
	struct weight_synthesis s;
	char *m;

	if (weights_synthesis(p->weights, role, 0, 0, &s)) {
		kernel_synthesize_rows(p->kernels, buffer, w->rows, w->cols, s.key, s.scale,
				       s.offset);
		return;
	}
	m = pack_map_part(p, buffer, 0, w->rows * K * size, true);
	for (uint64_t r = 0; m && r < w->rows; r++) {
		char *row = m + r * K * size;

		weights_row(p->weights, role, 0, 0, r, uses_bf16(p), row);
		memset(row + w->cols * size, 0, (K - w->cols) * size);
	}
	if (m)
		pack_unmap(p, buffer, m);
}

void pack_vector(struct packer *p, cl_mem buffer, enum weight_role role, uint32_t layer,
		 enum pack_transform transform)
{
	const struct weight *w = weights_find(p->weights, role, layer);
	uint64_t rows = w->rows, cols = w->cols, n = rows * cols;
	float *row, *m;

	row = calloc(cols, sizeof(*row));
	m = row ? pack_map_part(p, buffer, 0, KERNEL_LD(n) * sizeof(*m), true) : NULL;
	if (!row)
		err_set(&p->error, ENOMEM, "out of memory");
	for (uint64_t r = 0; m && r < rows; r++) {
		weights_row(p->weights, role, layer, 0, r, false, row);
		for (uint64_t c = 0; c < cols; c++) {
			float v = row[c];

			switch (transform) {
			case PACK_PLAIN:
			case PACK_TRANSPOSE: break;
			case PACK_ONE_PLUS: v = 1.0f + v; break;
			case PACK_MINUS_EXP: v = -expf(v); break;
			}
			m[transform == PACK_TRANSPOSE ? c * rows + r : r * cols + c] = v;
		}
	}
	if (m) {
		memset(m + n, 0, (KERNEL_LD(n) - n) * sizeof(*m));
		pack_unmap(p, buffer, m);
	}
	free(row);
}
