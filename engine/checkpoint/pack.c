#include "engine/checkpoint/pack_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cl_error.h"
#include "kernels/coded.h"

static uint16_t round_bf16(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return 0x7fc0;
	return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

void *pack_map_part(struct packer *p, cl_mem buffer, uint64_t offset, uint64_t bytes, bool whole)
{
	cl_int code;
	void *m;

	if (p->error.code)
		return NULL;
	m = clEnqueueMapBuffer(p->device->queue, buffer, CL_TRUE,
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
	cl_int code = clEnqueueUnmapMemObject(p->device->queue, buffer, m, 0, NULL, NULL);

	if (code == CL_SUCCESS)
		code = clFinish(p->device->queue);
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

void pack_panel(const float *rows, uint64_t K, bool bf16, enum kernel_packing packing, void *out)
{
	float *f = out;
	uint16_t *h = out;

	for (uint64_t k = 0; k < K; k++)
		for (uint64_t r = 0; r < 16; r++) {
			float v = rows[r * K + k];
			uint64_t at = packed_index(packing, k, r);

			if (bf16)
				h[at] = round_bf16(v);
			else
				f[at] = v;
		}
}

/* Where the rows of a panel come from: 16 rows of K floats, padded with zeros. */
typedef void panel_rows(const struct packer *p, const void *from, uint64_t panel, uint64_t K,
			float *out);

/* Writes `panels` panels to first, first + stride, ... of a packed matrix. */
static void write_panels(struct packer *p, cl_mem buffer, uint64_t panels, uint64_t K,
			 uint64_t first, uint64_t stride, bool bf16, panel_rows *rows,
			 const void *from)
{
	enum kernel_packing packing = bf16 ? kernels_packing(p->kernels) : KERNEL_PACK_PANELS;
	uint64_t bytes = K * 16 * (bf16 ? 2 : 4), span = (panels - 1) * stride + 1;
	float *scratch = calloc(16 * K, sizeof(*scratch));
	char *m;

	if (!scratch) {
		err_set(&p->error, ENOMEM, "out of memory");
		return;
	}
	m = pack_map_part(p, buffer, first * bytes, span * bytes, stride == 1);
	for (uint64_t i = 0; m && i < panels; i++) {
		memset(scratch, 0, 16 * K * sizeof(*scratch));
		rows(p, from, i, K, scratch);
		pack_panel(scratch, K, bf16, packing, m + i * stride * bytes);
	}
	if (m)
		pack_unmap(p, buffer, m);
	free(scratch);
}

void pack_part_rows(const struct packer *p, const void *from, uint64_t panel, uint64_t K,
		    float *out)
{
	const struct pack_part *part = from;
	uint64_t rows, cols;

	weights_shape(p->config, part->role, part->layer, &rows, &cols);
	for (uint64_t r = panel * 16; r < MIN(panel * 16 + 16, rows); r++)
		weights_row(p->weights, part->role, part->layer, part->expert, r,
			    out + (r - panel * 16) * K);
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
		uint64_t rows, cols;

		weights_shape(p->config, part->role, part->layer, &rows, &cols);
		if (p->synthetic) {
			struct weight_synthesis s;

			weights_synthesis(p->config, p->seed, part->role, part->layer, part->expert,
					  &s);
			kernel_synthesize(p->kernels, buffer, part->first, (uint32_t)part->stride,
					  rows, cols, s.key, s.scale, s.offset);
		} else {
			write_panels(p, buffer, CEIL_DIV(rows, 16u), KERNEL_LD(cols), part->first,
				     part->stride, uses_bf16(p), pack_part_rows, part);
		}
	}
}

static void router_rows(const struct packer *p, const void *from, uint64_t panel, uint64_t K,
			float *out)
{
	uint32_t layer = *(const uint32_t *)from, E = p->config->n_experts;

	for (uint64_t r = panel * 16; r < panel * 16 + 16 && r <= E; r++)
		weights_row(p->weights, r < E ? WEIGHT_ROUTER : WEIGHT_SHARED_ROUTER, layer, 0,
			    r < E ? r : 0, out + (r - panel * 16) * K);
}

void pack_router(struct packer *p, cl_mem buffer, uint32_t layer)
{
	write_panels(p, buffer, CEIL_DIV(p->config->n_experts + 1, 16u),
		     KERNEL_LD(p->config->hidden_size), 0, 1, false, router_rows, &layer);
}

void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes)
{
	return pack_map_part(p, buffer, 0, bytes, true);
}

void pack_rows(struct packer *p, cl_mem buffer, enum weight_role role)
{
	bool bf16 = uses_bf16(p);
	uint64_t rows, cols, K;
	float *scratch;
	char *m;

	weights_shape(p->config, role, 0, &rows, &cols);
	K = KERNEL_LD(cols);
	if (p->synthetic) {
		struct weight_synthesis s;

		weights_synthesis(p->config, p->seed, role, 0, 0, &s);
		kernel_synthesize_rows(p->kernels, buffer, rows, cols, s.key, s.scale, s.offset);
		return;
	}
	scratch = calloc(K, sizeof(*scratch));
	if (!scratch) {
		err_set(&p->error, ENOMEM, "out of memory");
		return;
	}
	m = pack_map_part(p, buffer, 0, rows * K * (bf16 ? 2 : 4), true);
	for (uint64_t r = 0; m && r < rows; r++) {
		weights_row(p->weights, role, 0, 0, r, scratch);
		if (!bf16)
			memcpy(m + r * K * 4, scratch, K * 4);
		else
			for (uint64_t c = 0; c < K; c++)
				((uint16_t *)(void *)m)[r * K + c] = round_bf16(scratch[c]);
	}
	if (m)
		pack_unmap(p, buffer, m);
	free(scratch);
}

void pack_vector(struct packer *p, cl_mem buffer, enum weight_role role, uint32_t layer,
		 enum pack_transform transform)
{
	uint64_t rows, cols, n;
	float *row, *m;

	weights_shape(p->config, role, layer, &rows, &cols);
	n = rows * cols;
	row = calloc(cols, sizeof(*row));
	m = row ? pack_map_part(p, buffer, 0, KERNEL_LD(n) * sizeof(*m), true) : NULL;
	if (!row)
		err_set(&p->error, ENOMEM, "out of memory");
	for (uint64_t r = 0; m && r < rows; r++) {
		weights_row(p->weights, role, layer, 0, r, row);
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
