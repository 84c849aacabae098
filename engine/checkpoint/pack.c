#include "engine/checkpoint/pack_internal.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/cl_error.h"
#include "kernels/coded.h"
#include "kernels/quant.h"

#define GIB 1073741824.0

enum { LOOKUP_ROWS = 256 }; /* rows of a lookup that a thread takes at a time */

/* About so many bytes of a lookup, or of a matrix that is not coded, are mapped at a time; more if one expert, or a
 * matrix without experts, has more. */
#define MAPPED ((uint64_t)64 << 20)

void *pack_map_part(struct packer *p, cl_mem buffer, uint64_t offset, uint64_t bytes, bool whole)
{
	cl_int code;
	void *m;

	if (p->error.code)
		return NULL;
	if (whole && p->staging && bytes <= p->staging->bytes) {
		p->staged_at = offset;
		p->staged_bytes = bytes;
		return staging_take(p->staging, &p->error);
	}
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
	cl_int code;

	if (p->staging && staging_has(p->staging, m)) {
		if (!p->error.code)
			staging_send(p->staging, buffer, p->staged_at, p->staged_bytes, &p->error);
		return;
	}
	code = clEnqueueUnmapMemObject(p->queue, buffer, m, 0, NULL, NULL);
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

/* The panels of some parts (pack_internal.h), which threads write side by side. */
struct writing {
	struct packer *packer;
	struct pack_work work;
	char *out; /* panel `first` of the matrix, mapped */
	uint64_t first, K;
	bool bf16;
};

static void write_chunks(void *arg)
{
	struct writing *w = arg;
	enum kernel_packing packing =
		w->bf16 ? kernels_packing(w->packer->kernels) : KERNEL_PACK_PANELS;
	uint64_t bytes = w->K * 16 * (w->bf16 ? 2 : 4);
	char *rows = malloc(bytes);
	struct pack_chunk c;

	while (rows && pack_work_take(&w->work, &c)) {
		for (uint64_t i = c.first; i < c.first + c.n; i++)
			pack_read_panel(w->packer, c.part, i, w->K, w->bf16, packing, rows,
					w->out + (c.part->first + i * c.part->stride - w->first) *
							 bytes);
		pack_forget(w->packer, &c);
	}
	free(rows);
}

/* Writes the panels of n parts into a matrix that is not coded. Together the parts have all panels of the matrix from
 * panel parts[0].first on, up to their last one. */
static void write_parts(struct packer *p, cl_mem buffer, const struct pack_part *parts, size_t n,
			bool bf16)
{
	struct writing w = {.packer = p,
			    .first = parts[0].first,
			    .K = KERNEL_LD(parts[0].weights->cols),
			    .bf16 = bf16};
	uint64_t bytes = w.K * 16 * (bf16 ? 2 : 4), panels = 0;

	for (size_t i = 0; i < n; i++)
		panels += CEIL_DIV(parts[i].rows, 16u);
	w.out = pack_map_part(p, buffer, w.first * bytes, panels * bytes, true);
	if (!w.out)
		return;
	pack_work_init(&w.work, parts, n);
	parallel_run(CEIL_DIV(panels, (uint64_t)PACK_CHUNK), write_chunks, &w);
	pack_work_release(&w.work);
	pack_unmap(p, buffer, w.out);
	/* A thread that has no memory takes no chunk. So chunks are left if no thread has memory. */
	if (w.work.part < n)
		err_no_memory(&p->error);
}

/* Fills a matrix that is not coded. It has n parts for each expert, one expert behind the other. */
static void fill_matrix(struct packer *p, cl_mem buffer, const struct pack_part *parts,
			size_t n_parts, uint32_t n)
{
	const struct pack_part *part = parts, *end = parts + n_parts, *next;
	uint64_t panel = KERNEL_LD(parts->weights->cols) * 16 * (uses_bf16(p) ? 2 : 4);
	struct weight_synthesis s;

	for (; part < end && !p->error.code; part = next) {
		const struct weight *w = part->weights;

		next = part + 1;
		if (weights_synthesis(p->weights, w->role, part->layer, part->expert, &s)) {
			kernel_synthesize(p->kernels, buffer, part->first, (uint32_t)part->stride,
					  w->rows, w->cols, s.key, s.scale, s.offset);
			continue;
		}
		for (next = part + n;
		     next < end && (next + n - 1)->first * panel < part->first * panel + MAPPED;
		     next += n)
			;
		write_parts(p, buffer, part, (size_t)(next - part), uses_bf16(p));
	}
}

void *pack_map(struct packer *p, cl_mem buffer, uint64_t bytes)
{
	return pack_map_part(p, buffer, 0, bytes, true);
}

/* Some rows of a lookup (pack.h), which threads write side by side. */
struct lookup {
	struct packer *packer;
	const struct weight *weight;
	char *out; /* row `first` */
	uint64_t first, end, K;
};

static void write_rows(void *arg, size_t i)
{
	const struct lookup *l = arg;
	const struct weight *w = l->weight;
	uint64_t first = l->first + i * LOOKUP_ROWS, end = MIN(first + LOOKUP_ROWS, l->end);
	bool bf16 = uses_bf16(l->packer);
	uint64_t size = bf16 ? 2 : 4;

	for (uint64_t r = first; r < end; r++) {
		char *row = l->out + (r - l->first) * l->K * size;

		pack_row(l->packer, w, 0, 0, r, bf16, row);
		memset(row + w->cols * size, 0, (l->K - w->cols) * size);
	}
	weights_forget(l->packer->weights, w->role, 0, 0, first, end - first);
}

static void fill_lookup(struct packer *p, cl_mem buffer, const struct weight *w)
{
	struct lookup l = {.packer = p, .weight = w, .K = KERNEL_LD(w->cols)};
	const uint64_t bytes = l.K * (uses_bf16(p) ? 2 : 4); /* of a row */
	const uint64_t rows = CEIL_DIV(MAPPED, bytes * LOOKUP_ROWS) * LOOKUP_ROWS;
	struct weight_synthesis s;

	if (weights_synthesis(p->weights, w->role, 0, 0, &s)) {
		kernel_synthesize_rows(p->kernels, buffer, w->rows, w->cols, s.key, s.scale,
				       s.offset);
		return;
	}
	for (; l.first < w->rows; l.first = l.end) {
		l.end = MIN(l.first + rows, w->rows);
		l.out = pack_map_part(p, buffer, l.first * bytes, (l.end - l.first) * bytes, true);
		if (!l.out)
			return;
		parallel_for(CEIL_DIV(l.end - l.first, (uint64_t)LOOKUP_ROWS), write_rows, &l);
		pack_unmap(p, buffer, l.out);
	}
}

/* Fills m with one of the vectors of a buffer. row: work space for a row. */
static void fill_vector(struct packer *p, const struct weight *w, uint32_t layer, float *row,
			float *m)
{
	uint64_t rows = w->rows, cols = w->cols;

	for (uint64_t r = 0; r < rows; r++) {
		pack_row(p, w, layer, 0, r, false, row);
		for (uint64_t c = 0; c < cols; c++) {
			float v = row[c];

			if (w->form == PACK_ONE_PLUS)
				v = 1.0f + v;
			else if (w->form == PACK_MINUS_EXP)
				v = -expf(v);
			if (!isfinite(v))
				pack_note_not_finite(p, w, layer, 0, r);
			m[w->form == PACK_TRANSPOSE ? c * rows + r : r * cols + c] = v;
		}
	}
	weights_forget(p->weights, w->role, layer, 0, 0, rows);
}

/* ---- weights that share a buffer ---- */

static bool is_matrix(const struct weight *w)
{
	return w->form == PACK_STACKED || w->form == PACK_TURNS;
}

static bool is_quantised_lookup(const struct weights *all, const struct weight *w)
{
	return weights_find(all, w->role, 0)->quant != QUANT_PLAIN;
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

/* Returns the numbers that n vectors have together. */
static uint64_t numbers_of(const struct weight *w, uint32_t n)
{
	uint64_t numbers = 0;

	for (uint32_t i = 0; i < n; i++)
		numbers += w[i].rows * w[i].cols;
	return numbers;
}

/* Returns the number of panels of a matrix that n weights share. Of experts' weights: the panels of one expert. */
static uint64_t panels_of(const struct weight *w, uint32_t n)
{
	uint64_t panels = 0;

	for (uint32_t i = 0; i < n; i++)
		panels += CEIL_DIV(w[i].rows, 16u);
	return panels;
}

uint64_t pack_bytes(const struct kernels *k, const struct weights *all, const struct weight *w,
		    uint32_t n, uint32_t layer)
{
	if (is_matrix(w) && kernel_packing_has_types(kernels_packing(k)))
		return pack_quant_bytes(k, all, w, n, layer);
	if (is_matrix(w))
		return pack_matrix_bytes(k, panels_of(w, n) * w->experts, w->cols);
	if (w->form == PACK_FLOATS)
		return KERNEL_LD(rows_of(w, n)) * KERNEL_LD(w->cols) * 4;
	if (w->form == PACK_LOOKUP && is_quantised_lookup(all, w))
		return pack_quant_bytes(k, all, w, n, layer);
	if (w->form == PACK_LOOKUP)
		return w->rows * KERNEL_LD(w->cols) * (kernels_shape(k)->bf16 ? 2 : 4);
	return KERNEL_LD(numbers_of(w, n)) * 4;
}

uint64_t pack_may_save(const struct kernels *k, const struct weight *w, uint32_t n)
{
	bool coded = is_matrix(w) && kernels_packing(k) == KERNEL_PACK_CODED;

	return coded ? pack_matrix_bytes(k, panels_of(w, n) * w->experts, w->cols) / 4 : 0;
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
	if (kernel_packing_has_types(kernels_packing(p->kernels)))
		pack_matrix_quant(p, buffer, panels_of(w, n) * w->experts, parts, n_parts);
	else if (kernels_packing(p->kernels) == KERNEL_PACK_CODED)
		pack_matrix_coded(p, buffer, panels_of(w, n) * w->experts, parts, n_parts);
	else
		fill_matrix(p, buffer, parts, n_parts, n);
	free(parts);
}

static void pack_vectors(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t n,
			 uint32_t layer)
{
	uint64_t numbers = numbers_of(w, n), cols = 0, at = 0;
	float *row, *m;

	for (uint32_t i = 0; i < n; i++)
		cols = MAX(cols, w[i].cols);
	row = calloc(cols, sizeof(*row));
	if (!row)
		err_no_memory(&p->error);
	m = row ? pack_map_part(p, buffer, 0, KERNEL_LD(numbers) * sizeof(*m), true) : NULL;
	for (uint32_t i = 0; m && i < n; at += w[i].rows * w[i].cols, i++)
		fill_vector(p, &w[i], layer, row, m + at);
	if (m) {
		memset(m + numbers, 0, (KERNEL_LD(numbers) - numbers) * sizeof(*m));
		pack_unmap(p, buffer, m);
	}
	free(row);
}

void pack_buffer(struct packer *p, cl_mem buffer, const struct weight *w, uint32_t n,
		 uint32_t layer)
{
	if (p->error.code)
		return;
	if (is_matrix(w))
		pack_matrix(p, buffer, w, n, layer);
	else if (w->form == PACK_FLOATS)
		write_parts(p, buffer, &(struct pack_part){w, n, layer, 0, rows_of(w, n), 0, 1}, 1,
			    false);
	else if (w->form == PACK_LOOKUP && is_quantised_lookup(p->weights, w))
		pack_matrix_quant(p, buffer, panels_of(w, 1),
				  &(struct pack_part){w, 1, layer, 0, w->rows, 0, 1}, 1);
	else if (w->form == PACK_LOOKUP)
		fill_lookup(p, buffer, w);
	else
		pack_vectors(p, buffer, w, n, layer);
	p->done += pack_bytes(p->kernels, p->weights, w, n, layer);
	log_progress(&p->progress, clock_now_ns(), (double)p->done / (double)p->all,
		     "loaded %.2f of %.2f GiB of weights", (double)p->done / GIB,
		     (double)p->all / GIB);
	if (atomic_load(&p->not_finite) && !p->error.code)
		err_set(&p->error, EINVAL, "tensor %s has a weight that is NaN or infinite",
			atomic_load(&p->not_finite));
}
