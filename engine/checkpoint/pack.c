#include "engine/checkpoint/pack_internal.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
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

/* Returns the position of element k of row r in a panel. */
static uint64_t packed_index(enum kernel_packing packing, uint64_t k, uint64_t r)
{
	switch (packing) {
	case KERNEL_PACK_PANELS: return k * 16 + r;
	case KERNEL_PACK_CODED: /* the packing before the panel is coded */
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

/* Returns whether n bf16 or float numbers are all finite. NaN and infinities have the largest exponent. */
static bool is_finite(const void *numbers, uint64_t n, bool bf16)
{
	const uint16_t *narrow = numbers;
	const uint32_t *wide = numbers;
	bool bad = false;

	if (bf16)
		for (uint64_t i = 0; i < n; i++)
			bad |= (narrow[i] & 0x7f80) == 0x7f80;
	else
		for (uint64_t i = 0; i < n; i++)
			bad |= (wide[i] & 0x7f800000) == 0x7f800000;
	return !bad;
}

/* Reads a row of a weight, as weights_row. If a number in it is not finite, notes the tensor. */
static void read_row(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
		     uint64_t row, bool bf16, void *out)
{
	weights_row(p->weights, w->role, layer, expert, row, bf16, out);
	if (!is_finite(out, w->cols, bf16))
		atomic_store(&p->not_finite,
			     weights_tensor(p->weights, w->role, layer, expert, row));
}

/* Writes the panels of a part (pack_internal.h) into a matrix that is not coded. */
static void write_part(struct packer *p, cl_mem buffer, const struct pack_part *part, bool bf16)
{
	enum kernel_packing packing = bf16 ? kernels_packing(p->kernels) : KERNEL_PACK_PANELS;
	uint64_t panels = CEIL_DIV(part->rows, 16u), K = KERNEL_LD(part->weights->cols);
	uint64_t bytes = K * 16 * (bf16 ? 2 : 4), span = (panels - 1) * part->stride + 1;
	char *scratch = calloc(1, bytes), *m;

	if (!scratch) {
		err_no_memory(&p->error);
		return;
	}
	m = pack_map_part(p, buffer, part->first * bytes, span * bytes, part->stride == 1);
	for (uint64_t i = 0; m && i < panels; i++) {
		memset(scratch, 0, bytes);
		pack_part_rows(p, part, i, K, bf16, scratch);
		pack_panel(scratch, K, bf16, packing, m + i * part->stride * bytes);
	}
	if (m)
		pack_unmap(p, buffer, m);
	free(scratch);
}

void pack_part_rows(struct packer *p, const struct pack_part *part, uint64_t panel, uint64_t K,
		    bool bf16, void *out)
{
	uint64_t row = panel * 16, end = MIN(row + 16, part->rows);
	const struct weight *w = part->weights;
	char *at = out;

	for (uint64_t before = 0; row < end; row++, at += K * (bf16 ? 2 : 4)) {
		while (row - before >= w->rows)
			before += w++->rows;
		read_row(p, w, part->layer, part->expert, row - before, bf16, at);
	}
}

static void fill_matrix(struct packer *p, cl_mem buffer, const struct pack_part *parts,
			size_t n_parts)
{
	for (size_t i = 0; i < n_parts && !p->error.code; i++) {
		const struct pack_part *part = &parts[i];
		const struct weight *w = part->weights;
		struct weight_synthesis s;

		if (weights_synthesis(p->weights, w->role, part->layer, part->expert, &s))
			kernel_synthesize(p->kernels, buffer, part->first, (uint32_t)part->stride,
					  w->rows, w->cols, s.key, s.scale, s.offset);
		else
			write_part(p, buffer, part, uses_bf16(p));
	}
}

void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes)
{
	return pack_map_part(p, buffer, 0, bytes, true);
}

static void fill_lookup(struct packer *p, cl_mem buffer, const struct weight *w)
{
	uint64_t K = KERNEL_LD(w->cols), size = uses_bf16(p) ? 2 : 4;
	struct weight_synthesis s;
	char *m;

	if (weights_synthesis(p->weights, w->role, 0, 0, &s)) {
		kernel_synthesize_rows(p->kernels, buffer, w->rows, w->cols, s.key, s.scale,
				       s.offset);
		return;
	}
	m = pack_map_part(p, buffer, 0, w->rows * K * size, true);
	for (uint64_t r = 0; m && r < w->rows; r++) {
		char *row = m + r * K * size;

		read_row(p, w, 0, 0, r, uses_bf16(p), row);
		memset(row + w->cols * size, 0, (K - w->cols) * size);
	}
	if (m)
		pack_unmap(p, buffer, m);
}

static void fill_vector(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t layer)
{
	uint64_t rows = w->rows, cols = w->cols, n = rows * cols;
	float *row, *m;

	row = calloc(cols, sizeof(*row));
	m = row ? pack_map_part(p, buffer, 0, KERNEL_LD(n) * sizeof(*m), true) : NULL;
	if (!row)
		err_no_memory(&p->error);
	for (uint64_t r = 0; m && r < rows; r++) {
		read_row(p, w, layer, 0, r, false, row);
		for (uint64_t c = 0; c < cols; c++) {
			float v = row[c];

			if (w->form == PACK_ONE_PLUS)
				v = 1.0f + v;
			else if (w->form == PACK_MINUS_EXP)
				v = -expf(v);
			m[w->form == PACK_TRANSPOSE ? c * rows + r : r * cols + c] = v;
		}
	}
	if (m) {
		memset(m + n, 0, (KERNEL_LD(n) - n) * sizeof(*m));
		pack_unmap(p, buffer, m);
	}
	free(row);
}

/* ---- weights that share a buffer ---- */

static bool is_matrix(const struct weight *w)
{
	return w->form == PACK_STACKED || w->form == PACK_TURNS;
}

uint32_t pack_sharing(const struct weight *w, uint32_t n)
{
	uint32_t sharing = 1;

	while (sharing < n && w[sharing].at == w->at)
		sharing++;
	return sharing;
}

static uint64_t rows_of(const struct weight *w, uint32_t n)
{
	uint64_t rows = 0;

	for (uint32_t i = 0; i < n; i++)
		rows += w[i].rows;
	return rows;
}

/* Returns the number of panels of a matrix that n weights share; if they are of experts, that of one expert. */
static uint64_t panels_of(const struct weight *w, uint32_t n)
{
	uint64_t panels = 0;

	for (uint32_t i = 0; i < n; i++)
		panels += CEIL_DIV(w[i].rows, 16u);
	return panels;
}

uint64_t pack_bytes(const struct kernels *k, const struct weight *w, uint32_t n)
{
	if (is_matrix(w))
		return pack_matrix_bytes(k, panels_of(w, n) * w->experts, w->cols);
	if (w->form == PACK_FLOATS)
		return KERNEL_LD(rows_of(w, n)) * KERNEL_LD(w->cols) * 4;
	if (w->form == PACK_LOOKUP)
		return w->rows * KERNEL_LD(w->cols) * (kernels_shape(k)->bf16 ? 2 : 4);
	return KERNEL_LD(w->rows * w->cols) * 4;
}

uint64_t pack_may_save(const struct kernels *k, const struct weight *w, uint32_t n)
{
	bool coded = is_matrix(w) && kernels_packing(k) == KERNEL_PACK_CODED;

	return coded ? pack_bytes(k, w, n) / 4 : 0;
}

/* Lists the parts of a matrix that n weights share, one for each expert and weight: parts [experts * n]. */
static void make_parts(const struct weight *w, uint32_t n, uint32_t layer, struct pack_part *parts)
{
	uint64_t first = 0;

	for (uint32_t e = 0; e < w->experts; e++)
		for (uint32_t i = 0; i < n; i++, parts++) {
			*parts = (struct pack_part){&w[i], 1, layer, e, w[i].rows, first, 1};
			if (w->form == PACK_TURNS) {
				parts->first = e * panels_of(w, n) + i;
				parts->stride = n;
			}
			first += CEIL_DIV(w[i].rows, 16u);
		}
}

static void pack_matrix(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t n,
			uint32_t layer)
{
	size_t n_parts = (size_t)n * w->experts;
	struct pack_part *parts = calloc(n_parts, sizeof(*parts));

	if (!parts) {
		err_no_memory(&p->error);
		return;
	}
	make_parts(w, n, layer, parts);
	if (kernels_packing(p->kernels) == KERNEL_PACK_CODED)
		pack_matrix_coded(p, buffer, panels_of(w, n) * w->experts, parts, n_parts);
	else
		fill_matrix(p, buffer, parts, n_parts);
	free(parts);
}

void pack_buffer(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t n,
		 uint32_t layer)
{
	if (p->error.code)
		return;
	if (is_matrix(w))
		pack_matrix(p, buffer, w, n, layer);
	else if (w->form == PACK_FLOATS)
		write_part(p, buffer, &(struct pack_part){w, n, layer, 0, rows_of(w, n), 0, 1},
			   false);
	else if (w->form == PACK_LOOKUP)
		fill_lookup(p, buffer, w);
	else
		fill_vector(p, buffer, w, layer);
	if (atomic_load(&p->not_finite) && !p->error.code)
		err_set(&p->error, EINVAL, "tensor %s has a weight that is NaN or infinite",
			atomic_load(&p->not_finite));
}
