/*
 * Answers questions about a kernel set: its sizes, its cuts, its abilities.
 */
#include "kernels/kernels_internal.h"

#include "kernels/sample.h"
#include "kernels/step.h"

int kernels_status(const struct kernels *k, struct err *e)
{
	if (!k->error.code)
		return 0;
	if (e)
		*e = k->error;
	return -k->error.code;
}

uint64_t kernels_launches(const struct kernels *k)
{
	return k->launches;
}

const struct kernel_shape *kernels_shape(const struct kernels *k)
{
	return &k->shape;
}

enum kernel_packing kernels_packing(const struct kernels *k)
{
	return k->packing;
}

enum kernel_packing kernels_plain_packing(const struct kernels *k)
{
	if (!kernel_packing_has_types(k->packing))
		return k->packing;
	return k->shape.bf16 ? k->tuning->packing : KERNEL_PACK_PANELS;
}

/* ---- sizes ---- */

uint32_t kernels_delta_group_floats(const struct kernel_shape *s)
{
	return s->key_dim * 64 + 2 * 64 * 64 + 2 * 64 * s->value_dim;
}

uint64_t kernels_delta_chunks(uint32_t T, uint32_t rows)
{
	return T / DELTA_CHUNK + rows;
}

/* Returns the floats that nvidia/delta_tensor.cl keeps of a chunk: four for each of CHUNK_QUADS of
 * nvidia/delta_tensor.clh. */
static uint64_t tensor_chunk_floats(const struct kernel_shape *s)
{
	const uint64_t C = DELTA_CHUNK, dk = s->key_dim, dv = s->value_dim;
	const uint64_t factors = 96; /* of which C + 1 are used */

	return s->key_heads * C * dk / 2 +
	       s->value_heads * (C * dk + C * C / 2 + factors + (C * dv + dk * dv) / 2);
}

uint64_t kernels_delta_scratch(const struct kernels *k, uint32_t T, uint32_t rows)
{
	uint64_t HV = k->shape.value_heads;

	if (!k->shape.key_heads)
		return 0;
	if (kernels_has_tensor_delta(k))
		return kernels_delta_chunks(T, rows) * tensor_chunk_floats(&k->shape);
	if (k->tuning->lanes > 1)
		return kernels_delta_chunks(T, rows) * HV * DELTA_CHUNK_FLOATS;
	return (uint64_t)k->compute_units * kernels_delta_group_floats(&k->shape);
}

uint32_t kernels_delta_input_bytes(const struct kernels *k)
{
	return kernels_has_tensor_delta(k) ? 2 : 4;
}

/* Returns the bytes of local memory of a group of attention_split (generic/attention_decode.cl): queries, weights, parts
 * and scratch. */
static uint64_t split_bytes(const struct kernel_shape *s)
{
	const uint64_t sharers = s->heads / s->kv_heads;

	return sizeof(float) * (sharers * (s->head_dim + SPLIT_TOKENS) +
				SPLIT_LANES * (4 * MIN(sharers, (uint64_t)SPLIT_CHUNK) + 1));
}

uint32_t kernels_split_slots(const struct kernels *k)
{
	uint32_t longest = CEIL_DIV(k->shape.max_context, (uint32_t)SPLIT_TOKENS);

	if (k->tuning->lanes == 1 || !k->shape.heads || split_bytes(&k->shape) > k->local_memory)
		return 0;
	return MAX(longest, (uint32_t)SPLIT_SLOTS_MIN);
}

/* On tensor cores gemm.cl, gemm_parts.cl and moe_gemm.cl number the elements of a product's input with 32 bits
 * (nvidia/tensor.clh). gemm_wide.cl does not, but it leaves them the products that it cannot compute. */
uint32_t kernels_most_tokens(const struct kernels *k)
{
	const struct kernel_shape *s = &k->shape;
	uint64_t widest = kernels_input_ld(s, s->hidden);

	if (!kernels_on_tensor_cores(k))
		return UINT32_MAX;
	widest = MAX(widest, kernels_input_ld(s, (uint64_t)s->heads * s->head_dim));
	widest = MAX(widest, kernels_input_ld(s, (uint64_t)s->value_heads * s->value_dim));
	for (uint32_t i = 0; i < s->n_mlps; i++) {
		const struct kernel_mlp *m = &s->mlps[i];

		widest = MAX(widest,
			     kernel_mlp_slots(m) *
				     kernels_input_ld(s, MAX(m->expert_size, m->shared_size)));
	}
	return (uint32_t)(UINT32_MAX / widest);
}

uint64_t kernels_sample_floats(const struct kernel_shape *s)
{
	return SAMPLE_FLOATS((uint64_t)s->vocab);
}

uint64_t kernels_score_floats(const struct kernel_shape *s)
{
	return SCORE_FLOATS((uint64_t)s->vocab);
}

/* Each expert that has rows may have one task of fewer than TASK_ROWS rows, beside its full tasks. A shared expert has
 * T rows. */
uint64_t kernels_max_tasks(const struct kernel_mlp *m, uint32_t T)
{
	uint64_t choices = (uint64_t)T * m->topk;

	return MIN((uint64_t)m->experts, choices) + choices / TASK_ROWS +
	       (m->shared_size ? CEIL_DIV(T, (uint32_t)TASK_ROWS) : 0);
}

uint64_t kernels_task_ints(const struct kernel_mlp *m, uint32_t n_tokens)
{
	return TASK_AT(kernels_max_tasks(m, n_tokens));
}

/* ---- cuts ---- */

uint32_t kernels_cut_tile_tokens(const struct kernels *k, uint32_t cut)
{
	return cuts_tile_tokens(&k->shape, &k->cuts.of[CUT_ATTENTION][cut]);
}

uint32_t kernels_tile_tokens(const struct kernels *k, uint32_t T)
{
	struct tuning_place p = cuts_attention(&k->shape, T);

	return kernels_cut_tile_tokens(k, cuts_find(&k->cuts, &p));
}

uint32_t kernels_least_tile_tokens(const struct kernels *k)
{
	uint32_t least = kernels_cut_tile_tokens(k, 0);

	for (uint32_t i = 1; i < k->cuts.n[CUT_ATTENTION]; i++)
		least = MIN(least, kernels_cut_tile_tokens(k, i));
	return least;
}

bool kernels_on_tensor_cores(const struct kernels *k)
{
	return k->tuning->tensor && k->shape.bf16;
}

bool kernels_has_flash(const struct kernels *k)
{
	const struct kernel_shape *s = &k->shape;

	return kernels_on_tensor_cores(k) && s->heads && !s->kv_int8 && s->head_dim % 16 == 0 &&
	       s->head_dim <= 256 && s->heads / s->kv_heads <= FLASH_QUERIES &&
	       s->page_tokens % FLASH_KEYS == 0;
}

bool kernels_has_tensor_splits(const struct kernels *k)
{
	const struct kernel_shape *s = &k->shape;

	return kernels_on_tensor_cores(k) && s->heads && !s->kv_int8 && s->head_dim % 64 == 0 &&
	       s->head_dim <= 256 && s->heads / s->kv_heads <= 8;
}

bool kernels_has_tensor_delta(const struct kernels *k)
{
	const struct kernel_shape *s = &k->shape;

	return kernels_on_tensor_cores(k) && s->key_heads &&
	       (s->key_dim == 64 || s->key_dim == 128) && s->value_dim % 16 == 0 &&
	       s->value_dim <= 128;
}

struct kernel_tensor kernels_tensor(const struct kernels *k)
{
	return (struct kernel_tensor){
		.attention = kernels_has_flash(k),
		.splits = kernels_has_tensor_splits(k),
		.delta = kernels_has_tensor_delta(k),
	};
}

bool kernels_has_warp_topk(const struct kernels *k, const struct kernel_mlp *m)
{
	return k->tuning->tensor && m->experts && m->experts <= WARP_EXPERTS &&
	       m->topk <= WARP_LANES;
}

bool kernels_has_cuts(const struct kernels *k)
{
	return k->cuts.n_places;
}

bool kernels_tuned(const struct kernels *k, const struct tuning_place *p)
{
	return cuts_find(&k->cuts, p) != 0;
}

struct tuning_place kernels_decode_place(const struct kernels *k, uint32_t T)
{
	return cuts_decode_step(&k->shape, T);
}

struct tuning_use kernels_tuning_use(const struct kernels *k)
{
	return k->cuts.given;
}

void kernels_use_default_cuts(struct kernels *k, bool on)
{
	k->cuts.defaults = on;
}

bool kernels_other_bits(const struct kernels *k, char ret[33])
{
	if (k->cuts.same_bits)
		return false;
	cuts_identity(&k->cuts, ret);
	return true;
}

/* Returns whether nvidia/decode_step.cl computes the mixers of this shape: an output projection is two chains at most,
 * a split's scores and a head's state fit in a half's registers and memory. There are no phases for sliding windows,
 * none for norms of outputs, and none that write pages of int8. */
static bool step_takes_mixers(const struct kernel_shape *s)
{
	const uint32_t sharers = s->heads ? s->heads / s->kv_heads : 1;

	if (s->window || s->out_norms || s->kv_int8)
		return false;
	if (s->heads && (s->heads * s->head_dim > 2 * CHAIN_TERMS || s->head_dim > 256 ||
			 s->head_dim % 4 || sharers > 8))
		return false;
	return !s->key_heads || (s->value_heads * s->value_dim <= 2 * CHAIN_TERMS &&
				 s->key_dim <= 128 && s->value_dim <= 128 && s->value_dim % 4 == 0);
}

/* Returns whether nvidia/decode_step.cl computes the MLP of this shape: all sums but those of output projections are
 * one chain, a choice has a number of four bits, a lane has at most 16 experts, and there is a group for each 8 columns
 * of the router. */
static bool step_takes_mlp(const struct kernels *k)
{
	const struct kernel_mlp *m = &k->shape.mlps[0];

	return KERNEL_LD(k->shape.hidden) <= CHAIN_TERMS &&
	       KERNEL_LD(MAX(m->expert_size, m->shared_size)) <= CHAIN_TERMS && m->topk < 16 &&
	       m->topk <= m->experts && m->experts <= WARP_EXPERTS &&
	       kernel_mlp_router_ld(m) / 8 <= k->compute_units;
}

bool kernels_decode_resident(const struct kernels *k)
{
	return k->tuning->lanes > 1;
}

bool kernels_has_decode_step(const struct kernels *k)
{
	const bool split = kernels_split_slots(k) || !k->shape.heads;

	if (k->shape.n_mlps != 1 || k->shape.dump || k->shape.separate_launches ||
	    !k->tuning->decode_blocks || (kernels_decode_resident(k) && !split))
		return false;
	return !kernels_decode_resident(k) ||
	       (kernels_on_tensor_cores(k) && step_takes_mixers(&k->shape) && step_takes_mlp(k));
}

uint32_t kernels_decode_rows(const struct kernels *k)
{
	return kernels_decode_resident(k) ? STEP_ROWS : UINT32_MAX;
}

void kernels_decode_cut(const struct kernels *k, uint32_t T, uint32_t *ret_columns,
			uint32_t *ret_rows, uint32_t *ret_router_columns)
{
	struct tuning_place p = cuts_decode_step(&k->shape, T);
	const struct tuning_cut *cut = &k->cuts.of[CUT_DECODE_STEP][cuts_find(&k->cuts, &p)];
	uint32_t width = k->tuning->lanes * k->tuning->vec;

	*ret_columns = width * cut->blocks;
	*ret_rows = cut->row_block;
	*ret_router_columns = width * ROUTER_BLOCKS;
}
