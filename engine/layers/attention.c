/* Full attention over paged keys and values. Queries and keys are normed and rotated by their positions. In some
 * families each query head also has a gate, which scales its output (kernels/generic/attention.cl). */
#include <string.h>

#include "base/macros.h"
#include "engine/layers/layer.h"

static void shape(const struct model_config *c, struct kernel_shape *k)
{
	k->heads = c->n_heads;
	k->kv_heads = c->n_kv_heads;
	k->head_dim = c->head_dim;
	k->rotary_dim = c->rotary_dim;
	k->attention_gate = c->attention_gate;
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, hd = c->head_dim, q = c->n_heads * hd, kv = c->n_kv_heads * hd;
	uint64_t gated = c->attention_gate ? 2 * q : q;
	const struct weight all[] = {
		layer_norm(c, WEIGHT_INPUT_NORM, D, AT_INPUT_NORM),
		{WEIGHT_ATTN_Q, AT_IN_PROJ, PACK_STACKED, gated, D, .gain = 1},
		{WEIGHT_ATTN_K, AT_IN_PROJ, PACK_STACKED, kv, D, .gain = 1},
		{WEIGHT_ATTN_V, AT_IN_PROJ, PACK_STACKED, kv, D, .gain = 1},
		{WEIGHT_ATTN_O, AT_OUT_PROJ, PACK_STACKED, D, q, .gain = 0.5f},
		layer_norm(c, WEIGHT_ATTN_Q_NORM, hd, AT_Q_NORM),
		layer_norm(c, WEIGHT_ATTN_K_NORM, hd, AT_K_NORM),
	};

	layer_weights_set(ret, all, ARRAY_SIZE(all));
}

static uint32_t scratch(const struct kernels *k, uint32_t T, uint32_t rows,
			struct layer_scratch ret[LAYER_SCRATCH_MAX])
{
	const struct kernel_shape *s = kernels_shape(k);
	uint64_t query = (uint64_t)T * s->heads * s->head_dim;
	uint64_t heads =
		(uint64_t)kernels_split_slots(k) * s->heads; /* query heads of all splits */

	ret[0] = (struct layer_scratch){AT_PROJ, "projections",
					(uint64_t)T * kernels_attention_ld(s) * 4};
	ret[1] = (struct layer_scratch){AT_MIXED, "mixer outputs", query * (s->bf16 ? 2 : 4)};
	ret[2] = (struct layer_scratch){AT_Q, "queries", query * 4};
	ret[3] = (struct layer_scratch){AT_PARTIAL, "attention splits", heads * s->head_dim * 4};
	ret[4] = (struct layer_scratch){AT_STATS, "attention splits", heads * 2 * 4};
	/* the same buffer: the splits have been added up by then */
	ret[5] = (struct layer_scratch){AT_PARTIAL, "parts of a product",
					kernels_parts_bytes(k, KERNEL_LD(s->hidden),
							    s->heads * s->head_dim, rows)};
	return 6;
}

/* The parts of a page: keys [kv_heads, head_dim, page_tokens], values [kv_heads, page_tokens, head_dim]. */
static uint32_t parts(const struct model_config *c, uint32_t element, uint32_t page_tokens,
		      struct layer_part ret[LAYER_PARTS_MAX])
{
	uint64_t bytes = (uint64_t)c->n_kv_heads * c->head_dim * page_tokens * element;

	ret[0] = (struct layer_part){"keys", AT_K_PAGES, TIER_PAGE, bytes};
	ret[1] = (struct layer_part){"values", AT_V_PAGES, TIER_PAGE, bytes};
	return 2;
}

static void forward(const struct layer_run *r)
{
	const struct kernel_shape *s = kernels_shape(r->kernels);
	const struct model_step *t = r->step;
	const cl_mem *all = r->all, *own = r->own;
	uint32_t D = KERNEL_LD(s->hidden), ld = kernels_attention_ld(s), T = t->n_tokens;
	uint32_t width = s->heads * s->head_dim;

	kernel_project(r->kernels, false, all[AT_H], D, own[AT_IN_PROJ], all[AT_PROJ], ld, T,
		       T - t->n_prefill_tokens, ld, D, NULL, NULL);
	kernel_attention_prepare(r->kernels, all[BUFFER_STEP], t->rows_at, t->token_rows_at,
				 all[AT_PROJ], own[AT_Q_NORM], own[AT_K_NORM], all[AT_ROPE],
				 all[AT_Q], own[AT_K_PAGES], own[AT_V_PAGES], T);
	kernel_attention(r->kernels, all[BUFFER_STEP], t->rows_at, t->tiles_at, all[AT_PROJ],
			 all[AT_Q], own[AT_K_PAGES], own[AT_V_PAGES], all[AT_MIXED], t->n_tiles, T);
	for (uint32_t i = 0; i < t->n_batches; i++) {
		const struct split_batch *b = &t->batches[i];

		kernel_attention_decode(r->kernels, all[BUFFER_STEP], t->rows_at, b->splits_at,
					b->n_splits, b->first_row, b->n_rows, all[AT_PROJ],
					all[AT_Q], own[AT_K_PAGES], own[AT_V_PAGES],
					all[AT_PARTIAL], all[AT_STATS], all[AT_MIXED]);
	}
	kernel_project(r->kernels, true, all[AT_MIXED], width, own[AT_OUT_PROJ], all[AT_X], D, T,
		       T - t->n_prefill_tokens, D, width, all[BUFFER_DUMP], all[AT_PARTIAL]);
}

static void phases(struct phase_list *l, uint32_t layer)
{
	const struct kernel_shape *s = l->shape;
	uint64_t D = KERNEL_LD(s->hidden), width = (uint64_t)s->heads * s->head_dim;
	uint64_t blocks = phase_row_blocks(l, l->n_tokens);

	phase_add_product(l, OP_ATTENTION_IN, layer, kernels_attention_ld(s), D, blocks);
	phase_add(l, OP_ATTENTION, layer, s->kv_heads, l->n_tokens, 1);
	if (l->cut->resident)
		phase_add(l, OP_ATTENTION_COMBINE, layer, 1, 1, 1);
	phase_add_product(l, OP_ATTENTION_OUT, layer, D, width, blocks);
}

static const struct phase_order order[] = {
	{OP_ATTENTION_IN, 1u << AT_H, 1u << AT_PROJ},
	{OP_ATTENTION, 1u << AT_PROJ | 1u << AT_ROPE | PHASE_OWN,
	 1u << AT_Q | 1u << AT_MIXED | PHASE_OWN},
	{OP_ATTENTION_OUT, 1u << AT_MIXED | 1u << AT_X, 1u << AT_X},
	{OP_END, 0, 0},
};

static const struct phase_order resident_order[] = {
	{OP_ATTENTION_IN, 1u << AT_X, 1u << AT_PROJ},
	{OP_ATTENTION, 1u << AT_PROJ | 1u << AT_ROPE | PHASE_OWN,
	 1u << AT_PARTIAL | 1u << AT_STATS | PHASE_OWN},
	{OP_ATTENTION_COMBINE, 1u << AT_PROJ | 1u << AT_PARTIAL | 1u << AT_STATS, 1u << AT_MIXED},
	{OP_ATTENTION_OUT, 1u << AT_MIXED | 1u << AT_X, 1u << AT_X},
	{OP_END, 0, 0},
};

/* Returns the FLOP of the products q k^T and p v (p: the weights of the keys), over the keys up to the query's own
 * position. */
static double flops(const struct model_config *c, const struct cost_step *s)
{
	return 4.0 * c->n_heads * c->head_dim * s->keys;
}

static bool kernel(const struct model_config *c, const struct cost_step *s,
		   const struct kernel_timing *l, struct roofline_work *ret)
{
	double query = (double)c->n_heads * c->head_dim, kv = (double)c->n_kv_heads * c->head_dim;

	/* The bytes and FLOP are those of all rows of the step, although on a GPU `attention` computes only prompts,
	 * and attention_split only rows that generate. `tigon bench kernels` has no steps with both. */
	if (!strcmp(l->kernel, "attention") || !strcmp(l->kernel, "attention_split")) {
		ret->bytes =
			s->context * 2 * kv * s->element + s->tokens * query * (4 + 4 + s->element);
		ret->flops = flops(c, s);
	} else if (!strcmp(l->kernel, "attention_combine")) {
		ret->bytes = (s->context / SPLIT_TOKENS * 4 + s->tokens * (4 + s->element)) * query;
	} else if (!strcmp(l->kernel, "attention_prepare")) {
		ret->bytes = l->m * ((query + 2 * kv) * 4 + query * 4 + 2 * kv * s->element);
	} else {
		return false;
	}
	return true;
}

const struct layer_ops layer_attention = {
	.shape = shape,
	.weights = weights,
	.scratch = scratch,
	.parts = parts,
	.forward = forward,
	.phases = phases,
	.order = order,
	.resident_order = resident_order,
	.flops = flops,
	.kernel = kernel,
};
