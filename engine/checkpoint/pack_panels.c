/* Panels of matrices: reads their rows, packs them, and shares them out among threads. */
#include "engine/checkpoint/pack_internal.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

/* How many numbers is_finite tests in one inner loop. The loop has a constant length, because compilers vectorise such
 * a loop at -O2 too. */
enum { BLOCK = 32 };

/* Returns whether n bf16 or float numbers are all finite. NaN and infinities have the largest exponent. */
static bool is_finite(const void *numbers, uint64_t n, bool bf16)
{
	const uint16_t *narrow = numbers;
	const uint32_t *wide = numbers;
	uint64_t i = 0;
	uint16_t bad16 = 0;
	uint32_t bad = 0;

	if (bf16) {
		for (; n - i >= BLOCK; i += BLOCK)
			for (int k = 0; k < BLOCK; k++)
				bad16 |= (narrow[i + k] & 0x7f80) == 0x7f80;
		for (; i < n; i++)
			bad16 |= (narrow[i] & 0x7f80) == 0x7f80;
		return !bad16;
	}
	for (; n - i >= BLOCK; i += BLOCK)
		for (int k = 0; k < BLOCK; k++)
			bad |= (wide[i + k] & 0x7f800000) == 0x7f800000;
	for (; i < n; i++)
		bad |= (wide[i] & 0x7f800000) == 0x7f800000;
	return !bad;
}

void pack_note_not_finite(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
			  uint64_t row)
{
	atomic_store(&p->not_finite, weights_tensor(p->weights, w->role, layer, expert, row));
}

void pack_rows(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
	       uint64_t row, uint64_t n, bool bf16, void *out, uint64_t ld)
{
	size_t bytes = ld * (bf16 ? 2 : 4);

	weights_rows(p->weights, w->role, layer, expert, row, n, bf16, out, ld);
	for (uint64_t i = 0; i < n; i++)
		if (!is_finite((const char *)out + i * bytes, w->cols, bf16))
			pack_note_not_finite(p, w, layer, expert, row + i);
}

void pack_row(struct packer *p, const struct weight *w, uint32_t layer, uint32_t expert,
	      uint64_t row, bool bf16, void *out)
{
	pack_rows(p, w, layer, expert, row, 1, bf16, out, 0);
}

/* ---- one panel ---- */

/* The functions below pack 16 rows. For KERNEL_PACK_PAIRS and KERNEL_PACK_FRAGMENTS (kernels.h) they move two
 * neighbouring bf16 elements of a row, a pair, at a time. */

static void pack_elements16(const uint16_t *rows, uint64_t K, uint16_t *out)
{
	for (uint64_t k = 0; k < K; k++)
		for (uint64_t r = 0; r < 16; r++)
			out[k * 16 + r] = rows[r * K + k];
}

/* Packs K floats of each row as KERNEL_PACK_PANELS. If each is a pair of bf16 elements instead, this is
 * KERNEL_PACK_PAIRS. */
static void pack_elements32(const uint32_t *rows, uint64_t K, uint32_t *out)
{
	for (uint64_t k = 0; k < K; k++)
		for (uint64_t r = 0; r < 16; r++)
			out[k * 16 + r] = rows[r * K + k];
}

static void pack_fragments(const uint32_t *rows, uint64_t pairs, uint32_t *out)
{
	for (uint64_t k = 0; k < pairs; k += 8, out += 128)
		for (uint64_t r = 0; r < 16; r++)
			for (uint64_t i = 0; i < 8; i++)
				out[(r % 8 * 4 + i % 4) * 4 + r / 8 + i / 4 * 2] =
					rows[r * pairs + k + i];
}

static void pack_panel(const void *rows, uint64_t K, bool bf16, enum kernel_packing packing,
		       void *out)
{
	if (!bf16) {
		pack_elements32(rows, K, out);
		return;
	}
	switch (packing) {
	case KERNEL_PACK_PANELS: pack_elements16(rows, K, out); break;
	case KERNEL_PACK_CODED: /* packed like PAIRS here; pack_coded.c codes the panel afterwards */
	case KERNEL_PACK_PAIRS: pack_elements32(rows, K / 2, out); break;
	case KERNEL_PACK_FRAGMENTS: pack_fragments(rows, K / 2, out); break;
	case KERNEL_PACK_QUANT:
	case KERNEL_PACK_STAGES: assert(false); /* not the packing of a plain panel */
	}
}

void pack_read_panel(struct packer *p, const struct pack_part *part, uint64_t panel, uint64_t K,
		     bool bf16, enum kernel_packing packing, void *rows, void *out)
{
	uint64_t row = panel * 16, end = MIN(row + 16, part->rows), size = bf16 ? 2 : 4;
	const struct weight *w = part->weights;
	char *at = rows;

	for (uint64_t before = 0, n; row < end; row += n) {
		while (row - before >= w->rows)
			before += w++->rows;
		n = MIN(end, before + w->rows) - row;
		pack_rows(p, w, part->layer, part->expert, row - before, n, bf16, at, K);
		for (uint64_t i = 0; i < n; i++, at += K * size)
			memset(at + w->cols * size, 0, (K - w->cols) * size);
	}
	memset(at, 0, (size_t)((char *)rows + 16 * K * size - at));
	pack_panel(rows, K, bf16, packing, out);
}

void pack_forget(const struct packer *p, const struct pack_chunk *c)
{
	const struct pack_part *part = c->part;
	const struct weight *w = part->weights;
	uint64_t row = c->first * 16, end = MIN(row + c->n * 16, part->rows), before = 0;

	for (; row < end; before += w++->rows)
		if (row < before + w->rows) {
			uint64_t n = MIN(end, before + w->rows) - row;

			weights_forget(p->weights, w->role, part->layer, part->expert, row - before,
				       n);
			row += n;
		}
}

/* ---- threads ---- */

void pack_work_init(struct pack_work *w, const struct pack_part *parts, size_t n_parts)
{
	*w = (struct pack_work){.parts = parts, .n_parts = n_parts};
	pthread_mutex_init(&w->lock, NULL);
}

void pack_work_release(struct pack_work *w)
{
	pthread_mutex_destroy(&w->lock);
}

bool pack_work_take(struct pack_work *w, struct pack_chunk *ret)
{
	bool left;

	pthread_mutex_lock(&w->lock);
	left = w->part < w->n_parts;
	if (left) {
		const struct pack_part *part = &w->parts[w->part];
		uint64_t panels = CEIL_DIV(part->rows, 16u);

		*ret = (struct pack_chunk){part, w->panel,
					   MIN(panels - w->panel, (uint64_t)PACK_CHUNK),
					   w->taken++};
		w->panel += ret->n;
		if (w->panel == panels) {
			w->panel = 0;
			w->part++;
		}
	}
	pthread_mutex_unlock(&w->lock);
	return left;
}
