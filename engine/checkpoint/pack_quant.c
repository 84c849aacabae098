/* Matrices of panels that have types of their own (kernels/quant.h). */
#include "engine/checkpoint/pack_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "base/parallel.h"
#include "kernels/quant_stages.h"

enum { UNIT = 64 }; /* bytes; panels begin at multiples */

static bool in_stages(const struct kernels *k)
{
	return kernels_packing(k) == KERNEL_PACK_STAGES;
}

/* Returns the bytes of a panel of a weight. */
static uint64_t panel_bytes(const struct kernels *k, const struct weight *w)
{
	const struct quant_type *t = quant_of(w->quant);
	uint64_t K = t ? w->cols : KERNEL_LD(w->cols);

	if (in_stages(k))
		return quant_stages_bytes(t, K);
	return t ? quant_panel_bytes(t, K)
		 : QUANT_HEADER + K * 16 * (kernels_shape(k)->bf16 ? 2 : 4);
}

static uint64_t table_bytes(uint64_t panels)
{
	return ROUND_UP((panels + 1) * sizeof(uint32_t), (uint64_t)UNIT);
}

uint64_t pack_quant_bytes(const struct kernels *k, const struct weights *all,
			  const struct weight *w, uint32_t n, uint32_t layer)
{
	uint64_t panels = 0, bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t own = CEIL_DIV(w[i].rows, 16u) * w[i].experts;

		panels += own;
		bytes += own * panel_bytes(k, weights_find(all, w[i].role, layer));
	}
	return table_bytes(panels) + bytes;
}

void pack_quant_places(const struct pack_part *parts, const uint64_t *bytes, size_t n_parts,
		       uint64_t panels, uint32_t *table)
{
	uint64_t at = table_bytes(panels) / UNIT;

	for (size_t i = 0; i < n_parts; i++)
		for (uint64_t k = 0; k < CEIL_DIV(parts[i].rows, 16u); k++)
			table[parts[i].first + k * parts[i].stride] = (uint32_t)(bytes[i] / UNIT);
	for (uint64_t i = 0; i < panels; i++) {
		uint64_t own = table[i];

		table[i] = (uint32_t)at;
		at += own;
	}
	table[panels] = (uint32_t)at;
}

/* ---- synthetic weights ---- */

/* Returns the standard deviation of random codes, minus the offset, in units of the scale. */
static double code_deviation(const struct quant_type *t)
{
	double codes = ldexp(1, (int)(t->low + t->high));

	switch (t->table) {
	case QUANT_TABLE_IQ4: return 70.5;
	case QUANT_TABLE_E2M1: return 6.4;
	case QUANT_TABLE_E4M3: return 107.2;
	default: return sqrt((codes * codes - 1) / 12);
	}
}

/* Makes a block of ggml's: random codes, and scales with which the numbers have the deviation `d`. */
static void make_block(const struct quant_type *t, double d, uint64_t *random, uint8_t *block)
{
	double scale = d / code_deviation(t), middle = (ldexp(1, (int)(t->low + t->high)) - 1) / 2;

	for (uint32_t i = 0; i < t->bytes; i += 8) {
		uint64_t v = mix_next(random);

		memcpy(block + i, &v, MIN(t->bytes - i, 8u));
	}
	quant_put_scales(t, scale, scale * middle, block);
}

static void make_rows(const struct quant_type *t, const struct weight_synthesis *s, uint64_t first,
		      uint64_t n, uint64_t cols, uint8_t *out)
{
	for (uint64_t r = first; r < first + n; r++) {
		uint64_t key = s->key + r * MIX_GOLDEN;

		for (uint64_t i = 0; i < cols / t->block; i++, out += t->bytes)
			make_block(t, s->scale * 32768 / sqrt(3), &key, out);
	}
}

/* ---- writing ---- */

struct writing {
	struct packer *packer;
	struct pack_work work;
	const uint32_t *places; /* of each panel (pack_quant_places) */
	uint8_t *out;
	uint64_t K;
	bool bf16;
};

static void write_quantised(struct writing *g, const struct pack_part *part,
			    const struct quant_type *t, uint64_t panel, uint8_t *rows, uint8_t *out)
{
	const struct weight *w = part->weights;
	const struct weights *all = g->packer->weights;
	uint64_t bytes = w->cols / t->block * t->bytes, first = panel * 16, at;
	uint64_t n = MIN(w->rows - first, (uint64_t)16);
	const void *of[16] = {NULL};
	struct weight_synthesis s;
	bool finite = true;
	float factor = 1;

	for (uint64_t r = 0; r < n; r++)
		of[r] = rows + r * bytes;
	if (weights_synthesis(all, w->role, part->layer, part->expert, &s))
		make_rows(t, &s, first, n, w->cols, rows);
	else if (weights_quantised(all, w->role, part->layer, part->expert, first, &at))
		finite = weights_blocks(all, w->role, part->layer, part->expert, first, n, rows,
					&factor);
	else
		for (uint64_t r = 0; r < n; r++)
			of[r] = weights_view(all, w->role, part->layer, part->expert, first + r)
					.data;
	finite &= (in_stages(g->packer->kernels) ? quant_pack_stages : quant_pack)(t, of, w->cols,
										   factor, out);
	if (!finite)
		pack_note_not_finite(g->packer, w, part->layer, part->expert, first);
}

static void write_chunks(void *arg)
{
	struct writing *g = arg;
	uint8_t *rows = malloc(g->K * 16 * 4);
	struct pack_chunk c;

	while (rows && pack_work_take(&g->work, &c)) {
		const struct pack_part *part = c.part;
		const struct weight *w =
			weights_find(g->packer->weights, part->weights->role, part->layer);
		const struct quant_type *t = quant_of(w->quant);

		for (uint64_t i = c.first; i < c.first + c.n; i++) {
			uint8_t *at =
				g->out + (uint64_t)UNIT * g->places[part->first + i * part->stride];

			if (t) {
				write_quantised(g, part, t, i, rows, at);
			} else {
				if (in_stages(g->packer->kernels))
					quant_plain_begin(at, g->K);
				else
					memset(at, 0, QUANT_HEADER);
				pack_read_panel(g->packer, part, i, g->K, g->bf16,
						kernels_plain_packing(g->packer->kernels), rows,
						at + QUANT_HEADER);
			}
		}
		pack_forget(g->packer, &c);
	}
	free(rows);
}

void pack_matrix_quant(struct packer *p, cl_mem buffer, uint64_t panels,
		       const struct pack_part *parts, size_t n_parts)
{
	struct writing g = {.packer = p,
			    .K = KERNEL_LD(parts[0].weights->cols),
			    .bf16 = kernels_shape(p->kernels)->bf16};
	uint64_t *bytes = calloc(n_parts, sizeof(*bytes)), chunks = 0;
	uint32_t *places = calloc(1, table_bytes(panels));

	if (!bytes || !places) {
		err_no_memory(&p->error);
		goto out;
	}
	for (size_t i = 0; i < n_parts; i++) {
		bytes[i] = panel_bytes(p->kernels, weights_find(p->weights, parts[i].weights->role,
								parts[i].layer));
		chunks += CEIL_DIV(parts[i].rows, (uint64_t)16 * PACK_CHUNK);
	}
	pack_quant_places(parts, bytes, n_parts, panels, places);
	g.places = places;
	g.out = pack_map_part(p, buffer, 0, (uint64_t)UNIT * places[panels], true);
	if (!g.out)
		goto out;
	memcpy(g.out, places, table_bytes(panels));
	pack_work_init(&g.work, parts, n_parts);
	parallel_run(chunks, write_chunks, &g);
	if (g.work.part < n_parts)
		err_no_memory(&p->error);
	pack_work_release(&g.work);
	pack_unmap(p, buffer, g.out);
out:
	free(bytes);
	free(places);
}
