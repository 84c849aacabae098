/* Attention over paged keys and values, in two kinds of layers: over all of them, or over a sliding window, whose pages
 * are those of a ring in the sequence's state slot (part.h). Queries and keys are normed, in most families, and rotated
 * by their positions. In some families each query head also has a gate, which scales its output, and in some the
 * projections have biases (kernels/generic/attention.cl). */
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
	k->qk_norm = c->qk_norm;
	k->qkv_bias = c->qkv_bias;
	k->score_dim = c->score_dim;
	k->window = c->n_layers_of[LAYER_SLIDING] ? c->sliding_window : 0;
	k->ropes = c->sliding_theta > 0 ? 2 : 1;
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, hd = c->head_dim, q = c->n_heads * hd, kv = c->n_kv_heads * hd;
	uint64_t gated = c->attention_gate ? 2 * q : q, normed = c->qk_norm ? hd : 0;
	const struct weight all[] = {
		layer_norm(c, WEIGHT_INPUT_NORM, D, AT_INPUT_NORM),
		{WEIGHT_ATTN_Q, AT_IN_PROJ, PACK_STACKED, gated, D, .gain = 1},
		{WEIGHT_ATTN_K, AT_IN_PROJ, PACK_STACKED, kv, D, .gain = 1},
		{WEIGHT_ATTN_V, AT_IN_PROJ, PACK_STACKED, kv, D, .gain = 1},
		{WEIGHT_ATTN_O, AT_OUT_PROJ, PACK_STACKED, D, q, .gain = 0.5f},
		layer_norm(c, WEIGHT_ATTN_Q_NORM, normed, AT_Q_NORM),
		layer_norm(c, WEIGHT_ATTN_K_NORM, normed, AT_K_NORM),
		layer_norm(c, WEIGHT_MIXER_NORM, c->out_norms ? D : 0, AT_MIXER_NORM),
		{WEIGHT_ATTN_Q_BIAS, AT_QKV_BIAS, PACK_VECTOR, c->qkv_bias, gated, .range = 0.125f},
		{WEIGHT_ATTN_K_BIAS, AT_QKV_BIAS, PACK_VECTOR, c->qkv_bias, kv, .range = 0.125f},
		{WEIGHT_ATTN_V_BIAS, AT_QKV_BIAS, PACK_VECTOR, c->qkv_bias, kv, .range = 0.125f},
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
	ret[1] = (struct layer_scratch){AT_MIXED, "mixer outputs",
					T * kernels_input_ld(s, s->heads * s->head_dim) *
						(s->bf16 ? 2 : 4)};
	ret[2] = (struct layer_scratch){AT_Q, "queries", query * 4};
	ret[3] = (struct layer_scratch){AT_PARTIAL, "attention splits", heads * s->head_dim * 4};
	ret[4] = (struct layer_scratch){AT_STATS, "attention splits", heads * 2 * 4};
	/* the same buffer: the splits have been added up by then */
	ret[5] = (struct layer_scratch){AT_PARTIAL, "parts of a product",
					kernels_parts_bytes(k, KERNEL_LD(s->hidden),
							    s->heads * s->head_dim, rows)};
	return 6;
}

/* Returns the bytes that a page keeps of a token's key or value, of all KV heads. */
static uint64_t row_bytes(const struct model_config *c, uint32_t number)
{
	return (uint64_t)c->n_kv_heads * kernels_kv_row_bytes(c->head_dim, number);
}

/* The parts of a page: keys and values (kernels/generic/attention.clh). */
static uint32_t parts(const struct model_config *c, uint32_t number, uint32_t page_tokens,
		      struct layer_part ret[LAYER_PARTS_MAX])
{
	uint64_t bytes = row_bytes(c, number) * page_tokens;

	ret[0] = (struct layer_part){"keys", AT_K_PAGES, TIER_PAGE, bytes};
	ret[1] = (struct layer_part){"values", AT_V_PAGES, TIER_PAGE, bytes};
	return 2;
}

/* The same of a state slot's ring (part.h). Behind the slots are the pages for the tokens of a prompt that the ring has
 * no place for (engine/step.c). */
static uint32_t parts_sliding(const struct model_config *c, uint32_t element, uint32_t page_tokens,
			      struct layer_part ret[LAYER_PARTS_MAX])
{
	uint32_t n = parts(c, element, page_tokens, ret);

	for (uint32_t i = 0; i < n; i++) {
		ret[i].kind = TIER_STATE;
		ret[i].chunk_bytes = ret[i].bytes;
		ret[i].bytes *= layer_ring_pages(c, page_tokens);
	}
	return n;
}

static void copy_pages(const struct layer_run *r, const struct page_copies *copies)
{
	kernel_copy_pages(r->kernels, r->all[BUFFER_STEP], copies->at, copies->n,
			  r->own[AT_K_PAGES], r->own[AT_V_PAGES]);
}

static void resume_sliding(const struct layer_run *r)
{
	copy_pages(r, &r->step->resumed);
}

static void forward_kind(const struct layer_run *r, bool sliding)
{
	const struct kernel_shape *s = kernels_shape(r->kernels);
	const struct model_step *t = r->step;
	const cl_mem *all = r->all, *own = r->own;
	const cl_int rows_at = sliding ? t->ring_rows_at : t->rows_at;
	uint32_t D = KERNEL_LD(s->hidden), ld = kernels_attention_ld(s), T = t->n_tokens;

	kernel_project(r->kernels, false, all[AT_H], (uint32_t)kernels_input_ld(s, D),
		       own[AT_IN_PROJ], all[AT_PROJ], ld, T, T - t->n_prefill_tokens, ld, D, NULL,
		       NULL);
	kernel_attention_prepare(r->kernels, all[BUFFER_STEP], rows_at, t->token_rows_at,
				 all[AT_PROJ], own[AT_QKV_BIAS], own[AT_Q_NORM], own[AT_K_NORM],
				 all[AT_ROPE], all[AT_Q], own[AT_K_PAGES], own[AT_V_PAGES], sliding,
				 T);
	kernel_attention(r->kernels, all[BUFFER_STEP], rows_at, t->tiles_at, all[AT_PROJ],
			 all[AT_Q], own[AT_K_PAGES], own[AT_V_PAGES], all[AT_MIXED], sliding,
			 t->n_tiles, T);
	for (uint32_t i = 0; i < t->n_batches; i++) {
		const struct split_batch *b = &t->batches[i];

		kernel_attention_decode(r->kernels, all[BUFFER_STEP], rows_at, b->splits_at,
					b->n_splits, b->first_row, b->n_rows, all[AT_PROJ],
					all[AT_Q], own[AT_K_PAGES], own[AT_V_PAGES],
					all[AT_PARTIAL], all[AT_STATS], all[AT_MIXED], sliding);
	}
	layer_output(r, s->heads * s->head_dim);
}

static void forward(const struct layer_run *r)
{
	forward_kind(r, false);
}

static void forward_sliding(const struct layer_run *r)
{
	forward_kind(r, true);
	copy_pages(r, &r->step->kept);
	copy_pages(r, &r->step->carried);
}

static void phases_of_kind(struct phase_list *l, uint32_t layer, bool sliding)
{
	const struct kernel_shape *s = l->shape;
	uint64_t D = KERNEL_LD(s->hidden), blocks = phase_row_blocks(l, l->n_tokens);

	phase_add_product(l, OP_ATTENTION_IN, layer, kernels_attention_ld(s), D, blocks);
	phase_add(l, sliding ? OP_SLIDING : OP_ATTENTION, layer, s->kv_heads, l->n_tokens, 1);
	if (l->cut->resident)
		phase_add(l, OP_ATTENTION_COMBINE, layer, 1, 1, 1);
	layer_output_phases(l, OP_ATTENTION_OUT, layer, (uint64_t)s->heads * s->head_dim);
}

static void phases(struct phase_list *l, uint32_t layer)
{
	phases_of_kind(l, layer, false);
}

static void phases_sliding(struct phase_list *l, uint32_t layer)
{
	phases_of_kind(l, layer, true);
}

static const struct phase_order order[] = {
	{OP_ATTENTION_IN, 1u << AT_H, 1u << AT_PROJ},
	{OP_ATTENTION, 1u << AT_PROJ | 1u << AT_ROPE | PHASE_OWN,
	 1u << AT_Q | 1u << AT_MIXED | PHASE_OWN},
	{OP_SLIDING, 1u << AT_PROJ | 1u << AT_ROPE | PHASE_OWN,
	 1u << AT_Q | 1u << AT_MIXED | PHASE_OWN},
	{OP_ATTENTION_OUT, 1u << AT_MIXED | 1u << AT_X, 1u << AT_X | 1u << AT_Y},
	{OP_ADD_NORM, 1u << AT_X | 1u << AT_Y, 1u << AT_X | 1u << AT_H | 1u << AT_H32},
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

/* Returns the FLOP of the products q k^T and p v (p: the weights of the keys) for so many pairs of a query and a
 * key. */
static double pair_flops(const struct model_config *c, double pairs)
{
	return 4.0 * c->n_heads * c->head_dim * pairs;
}

/* Adds the FLOP of all pairs to *sum. prefill: the pairs of prefill rows among them. */
static void add_flops(const struct model_config *c, const struct cost_step *s, double all,
		      double prefill, struct cost_flops *sum)
{
	*(s->tensor.attention ? &sum->bf16 : &sum->floats) += pair_flops(c, prefill);
	*(s->tensor.splits ? &sum->bf16 : &sum->floats) += pair_flops(c, all - prefill);
}

static void flops(const struct model_config *c, const struct cost_step *s, struct cost_flops *sum)
{
	add_flops(c, s, s->keys, s->prefill_keys, sum);
}

static void flops_sliding(const struct model_config *c, const struct cost_step *s,
			  struct cost_flops *sum)
{
	add_flops(c, s, s->window_keys, s->prefill_window_keys, sum);
}

static bool kernel(const struct model_config *c, const struct cost_step *s,
		   const struct kernel_timing *l, struct roofline_work *ret)
{
	double query = (double)c->n_heads * c->head_dim, kv = (double)c->n_kv_heads * c->head_dim;
	double context = l->sliding ? s->window_context : s->context;
	double kept =
		2.0 * (double)row_bytes(c, s->kv_number); /* bytes of a token's key and value */

	/* On a GPU `attention` computes only prompts, but the bytes and FLOP are those of all rows of the step.
	 * `tigon bench kernels` has no steps with both. */
	if (!strcmp(l->kernel, "attention") || !strcmp(l->kernel, "attention_split")) {
		ret->bytes = context * kept + s->tokens * query * (4 + 4 + s->element);
		ret->flops = pair_flops(c, l->sliding ? s->window_keys : s->keys);
	} else if (!strcmp(l->kernel, "attention_combine")) {
		ret->bytes = (context / SPLIT_TOKENS * 4 + s->tokens * (4 + s->element)) * query;
	} else if (!strcmp(l->kernel, "attention_prepare")) {
		ret->bytes = l->m * ((query + 2 * kv) * 4 + query * 4 + kept);
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

const struct layer_ops layer_sliding = {
	.shape = shape,
	.weights = weights,
	.scratch = scratch,
	.parts = parts_sliding,
	.resume = resume_sliding,
	.forward = forward_sliding,
	.phases = phases_sliding,
	.order = order,
	.window = true,
	.flops = flops_sliding,
	.kernel = kernel,
};
