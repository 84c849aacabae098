/*
 * Gated DeltaNet: a short causal convolution over q, k and v, then a recurrent state for each value head
 * (kernels/generic/delta.clh). Prompts go through it in chunks, generated tokens one by one.
 */
#include <string.h>

#include "base/macros.h"
#include "engine/layers/layer.h"

enum { BUFFER_Q = BUFFER_MIXER, BUFFER_K, BUFFER_V, BUFFER_GATES, BUFFER_CHUNKS };

static void shape(const struct model_config *c, struct kernel_shape *k)
{
	k->key_heads = c->n_key_heads;
	k->value_heads = c->n_value_heads;
	k->tiled_heads = c->tiled_heads;
	k->key_dim = c->key_head_dim;
	k->value_dim = c->value_head_dim;
	k->conv = c->conv_kernel;
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, Hv = c->n_value_heads, dv = c->value_head_dim;
	uint64_t key = (uint64_t)c->n_key_heads * c->key_head_dim, value = Hv * dv,
		 qkv = 2 * key + value;
	/* if synthetic, -exp(A_log) is about -1 to -16 */
	const struct weight a_log = {WEIGHT_DELTA_A_LOG,  AT_NEG_A,	  PACK_MINUS_EXP, 1, Hv,
				     .offset = 1.390625f, .range = 1.375f};
	const struct weight neg_a = {WEIGHT_DELTA_A_LOG, AT_NEG_A,     PACK_VECTOR, 1, Hv,
				     .offset = -8.5f,	 .range = 7.5f};
	const struct weight all[] = {
		layer_norm(c, WEIGHT_INPUT_NORM, D, AT_INPUT_NORM),
		{WEIGHT_DELTA_QKV, AT_IN_PROJ, PACK_STACKED, qkv, D, .gain = 1},
		{WEIGHT_DELTA_Z, AT_IN_PROJ, PACK_STACKED, value, D, .gain = 1},
		{WEIGHT_DELTA_B, AT_IN_PROJ, PACK_STACKED, Hv, D, .gain = 1},
		{WEIGHT_DELTA_A, AT_IN_PROJ, PACK_STACKED, Hv, D, .gain = 1},
		{WEIGHT_DELTA_OUT, AT_OUT_PROJ, PACK_STACKED, D, value, .gain = 0.5f},
		/* columns: the oldest input first */
		{WEIGHT_DELTA_CONV, AT_CONV, PACK_TRANSPOSE, qkv, c->conv_kernel, .gain = 1},
		c->stores_neg_a ? neg_a : a_log,
		/* if synthetic, softplus(w) is about 0.001 to 0.1 */
		{WEIGHT_DELTA_DT_BIAS, AT_DT_BIAS, PACK_VECTOR, 1, Hv, .offset = -4.59375f,
		 .range = 2.328125f},
		/* this norm multiplies by w, not by 1 + w, in every family */
		{WEIGHT_DELTA_NORM, AT_GATED_NORM, PACK_VECTOR, 1, dv, .offset = 1,
		 .range = 0.125f},
	};

	layer_weights_set(ret, all, ARRAY_SIZE(all));
}

static uint32_t scratch(const struct kernels *k, uint32_t T, uint32_t rows,
			struct layer_scratch ret[LAYER_SCRATCH_MAX])
{
	const struct kernel_shape *s = kernels_shape(k);
	uint64_t key = (uint64_t)T * s->key_heads * s->key_dim;
	uint64_t value = (uint64_t)T * s->value_heads * s->value_dim;
	const uint64_t input = kernels_delta_input_bytes(k);
	const struct layer_scratch all[] = {
		{AT_PROJ, "projections", (uint64_t)T * kernels_delta_ld(s) * 4},
		{AT_MIXED, "mixer outputs",
		 T * kernels_input_ld(s, s->value_heads * s->value_dim) * (s->bf16 ? 2 : 4)},
		{BUFFER_Q, "delta q", key * input},
		{BUFFER_K, "delta k", key * input},
		{BUFFER_V, "delta v", value * input},
		{BUFFER_GATES, "delta gates", (uint64_t)T * s->value_heads * 2 * 4},
		{BUFFER_CHUNKS, "delta chunks", kernels_delta_scratch(k, T, rows) * 4},
		/* the buffer that attention has for its splits */
		{AT_PARTIAL, "parts of a product",
		 kernels_parts_bytes(k, KERNEL_LD(s->hidden), s->value_heads * s->value_dim, rows)},
	};

	_Static_assert(ARRAY_SIZE(all) <= LAYER_SCRATCH_MAX, "the caller's array");
	memcpy(ret, all, sizeof(all));
	return ARRAY_SIZE(all);
}

/* The parts of a state, in floats, are the convolution's last inputs [conv_kernel, channels] (a channel is one number
 * of q, k or v of a token), a ring that is indexed by absolute position, and the recurrent state [value_heads, key_dim,
 * value_dim]. */
static uint32_t parts(const struct model_config *c, uint32_t number, uint32_t page_tokens,
		      struct layer_part ret[LAYER_PARTS_MAX])
{
	uint64_t key = (uint64_t)c->n_key_heads * c->key_head_dim;
	uint64_t value = (uint64_t)c->n_value_heads * c->value_head_dim;

	(void)number;
	(void)page_tokens;
	ret[0] = (struct layer_part){"last inputs", AT_RING, TIER_STATE,
				     (2 * key + value) * c->conv_kernel * 4};
	ret[1] = (struct layer_part){"recurrent state", AT_STATE, TIER_STATE,
				     value * c->key_head_dim * 4};
	return 2;
}

static void forward(const struct layer_run *r)
{
	const struct kernel_shape *s = kernels_shape(r->kernels);
	const struct model_step *t = r->step;
	const cl_mem *all = r->all, *own = r->own;
	uint32_t D = KERNEL_LD(s->hidden), ld = kernels_delta_ld(s), T = t->n_tokens;

	kernel_project(r->kernels, false, all[AT_H], (uint32_t)kernels_input_ld(s, D),
		       own[AT_IN_PROJ], all[AT_PROJ], ld, T, T - t->n_prefill_tokens, ld, D, NULL,
		       NULL);
	kernel_delta_conv(r->kernels, all[BUFFER_STEP], t->rows_at, t->token_rows_at, all[AT_PROJ],
			  own[AT_CONV], own[AT_NEG_A], own[AT_DT_BIAS], own[AT_RING], all[BUFFER_Q],
			  all[BUFFER_K], all[BUFFER_V], all[BUFFER_GATES], t->n_prefill_tokens);
	kernel_delta_prefill(r->kernels, all[BUFFER_STEP], t->rows_at, t->n_prefill_rows,
			     t->n_prefill_tokens, all[AT_PROJ], all[BUFFER_Q], all[BUFFER_K],
			     all[BUFFER_V], all[BUFFER_GATES], own[AT_GATED_NORM], own[AT_RING],
			     own[AT_STATE], all[BUFFER_CHUNKS], all[AT_MIXED]);
	kernel_delta_decode(r->kernels, all[BUFFER_STEP], t->rows_at, t->n_prefill_rows,
			    t->n_rows - t->n_prefill_rows, all[AT_PROJ], own[AT_CONV],
			    own[AT_NEG_A], own[AT_DT_BIAS], own[AT_GATED_NORM], own[AT_RING],
			    own[AT_STATE], all[AT_MIXED]);
	layer_output(r, s->value_heads * s->value_dim);
}

static void phases(struct phase_list *l, uint32_t layer)
{
	const struct kernel_shape *s = l->shape;
	uint64_t D = KERNEL_LD(s->hidden), blocks = phase_row_blocks(l, l->n_tokens);

	phase_add_product(l, OP_DELTA_IN, layer, kernels_delta_ld(s), D, blocks);
	phase_add(l, OP_DELTA, layer, s->value_heads, l->n_tokens, 1);
	layer_output_phases(l, OP_DELTA_OUT, layer, (uint64_t)s->value_heads * s->value_dim);
}

static const struct phase_order order[] = {
	{OP_DELTA_IN, 1u << AT_H, 1u << AT_PROJ},
	{OP_DELTA, 1u << AT_PROJ | PHASE_OWN, 1u << AT_MIXED | PHASE_OWN},
	{OP_DELTA_OUT, 1u << AT_MIXED | 1u << AT_X, 1u << AT_X},
	{OP_END, 0, 0},
};

static const struct phase_order resident_order[] = {
	{OP_DELTA_IN, 1u << AT_X, 1u << AT_PROJ},
	{OP_DELTA, 1u << AT_PROJ | PHASE_OWN, 1u << AT_MIXED | PHASE_OWN},
	{OP_DELTA_OUT, 1u << AT_MIXED | 1u << AT_X, 1u << AT_X},
	{OP_END, 0, 0},
};

static double channels(const struct model_config *c)
{
	return 2.0 * c->n_key_heads * c->key_head_dim +
	       (double)c->n_value_heads * c->value_head_dim;
}

/* Returns the FLOP of the recurrence for one token: for each element of the state S of each value head, 1 for its decay
 * and 2 each for S^T k, k u^T and S^T q. */
static double recurrence_flops(const struct model_config *c)
{
	return 7.0 * c->n_value_heads * c->value_head_dim * c->key_head_dim;
}

static double conv_flops(const struct model_config *c)
{
	return 2 * channels(c) * c->conv_kernel;
}

static void flops(const struct model_config *c, const struct cost_step *s, struct cost_flops *sum)
{
	double prompts = s->tensor.delta ? s->prefill_tokens : 0;

	sum->bf16 += prompts * recurrence_flops(c);
	sum->floats += (s->tokens - prompts) * recurrence_flops(c) + s->tokens * conv_flops(c);
}

/* Returns the bytes that the recurrence moves for so many tokens in so many rows. All rows write a state, and `resumed`
 * of them read one. */
static double recurrence_bytes(const struct model_config *c, const struct cost_step *s,
			       double tokens, double rows, double resumed)
{
	double value = (double)c->n_value_heads * c->value_head_dim;
	double state = (value * c->key_head_dim + channels(c) * c->conv_kernel) * 4;

	return (rows + resumed) * state +
	       tokens * ((channels(c) + value + 2.0 * c->n_value_heads) * 4 + value * s->element);
}

static bool kernel(const struct model_config *c, const struct cost_step *s,
		   const struct kernel_timing *l, struct roofline_work *ret)
{
	double rows = s->rows - s->prefill_rows;
	double value = (double)c->n_value_heads * c->value_head_dim;

	if (!strcmp(l->kernel, "delta_prefill") || !strcmp(l->kernel, "delta_scan")) {
		ret->bytes = recurrence_bytes(c, s, s->prefill_tokens, s->prefill_rows,
					      s->prefill_resumed);
		ret->flops = s->prefill_tokens * recurrence_flops(c);
	} else if (!strcmp(l->kernel, "delta_decode")) {
		ret->bytes = recurrence_bytes(c, s, rows, rows, s->resumed - s->prefill_resumed);
		ret->flops = rows * (recurrence_flops(c) + conv_flops(c));
	} else if (!strcmp(l->kernel, "delta_conv")) {
		ret->bytes = s->prefill_tokens * (channels(c) * 8 + c->n_value_heads * 16.0);
	} else if (!strcmp(l->kernel, "delta_conv_tensor")) {
		ret->bytes = s->prefill_tokens * (channels(c) * 6 + c->n_value_heads * 16.0);
	} else if (!strcmp(l->kernel, "delta_scan_tensor")) { /* S^T k and k u^T */
		ret->bytes = (s->prefill_rows + s->prefill_resumed) * value * c->key_head_dim * 4 +
			     s->prefill_tokens * channels(c) * 2;
		ret->flops = s->prefill_tokens * recurrence_flops(c) * 5 / 7;
	} else if (!strcmp(l->kernel, "delta_out")) { /* S^T q, z, and a state each 64 tokens */
		ret->bytes =
			s->prefill_tokens * value * (4 + s->element + c->key_head_dim * 2 / 64.0);
		ret->flops = s->prefill_tokens * recurrence_flops(c) * 2 / 7;
	} else if (!strcmp(l->kernel, "delta_norm")) {
		ret->bytes = s->prefill_tokens * c->n_value_heads * c->value_head_dim *
			     (4 + 4 + s->element);
	} else {
		return false;
	}
	return true;
}

const struct layer_ops layer_delta = {
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
