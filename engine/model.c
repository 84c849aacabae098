/*
 * A model: its ends (embedding, final norm, head) and the walk over its layers, whose kinds are files of engine/layers.
 * Read this file from top to bottom: shapes, buffers, weights, forward pass.
 *
 *     x = embed(tokens)
 *     each layer:   x += mixer(norm(x));   x += mlp(norm(x))
 *     logits = lm_head(norm(x)), for the tokens whose logits the plan needs; a dump has those of all tokens
 *     sums of norm(x), for the vectors that the plan wants
 *
 * Source: the model mathematics of transformers (models/qwen3_5_moe, qwen3_next).
 */
#include "engine/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/stored_type.h"
#include "engine/decode_work.h"
#include "engine/layers/inputs.h"
#include "engine/rope.h"
#include "scheduler/plan.h"

/* ---- shapes ---- */

/* Returns x as a number of the elements' type. */
static float in_type(float x, bool bf16)
{
	uint32_t bits = (uint32_t)bf16_of_float(x) << 16;

	if (bf16)
		memcpy(&x, &bits, sizeof(x));
	return x;
}

void model_shape(const struct model_config *c, bool bf16, uint32_t page_tokens, bool dump,
		 struct kernel_shape *ret)
{
	*ret = (struct kernel_shape){
		.hidden = c->hidden_size,
		.vocab = c->vocab_size,
		.eps = c->rms_norm_eps,
		.page_tokens = page_tokens,
		.gelu = c->gelu,
		.out_norms = c->out_norms,
		.bf16 = bf16,
		.dump = dump,
	};
	if (c->scaled_embedding) /* transformers has the factor in the type of the elements */
		ret->embed_scale = in_type(sqrtf((float)c->hidden_size), bf16);
	layers_shape(c, ret);
}

static uint32_t element_bytes(const struct model *m)
{
	return m->shape.bf16 ? 2 : 4;
}

/* Returns the bytes of a number in KV pages (layers/part.h). */
static uint32_t kv_number(const struct model *m)
{
	return m->shape.kv_int8 ? 1 : element_bytes(m);
}

/* Returns the tables of rotary angles that a token has. */
static uint32_t ropes(const struct kernel_shape *k)
{
	return MAX(k->ropes, 1u);
}

static uint64_t inv_freq_bytes(const struct kernel_shape *k)
{
	return (uint64_t)ropes(k) * kernels_rope_ld(k) * 2;
}

/* ---- buffers ---- */

/* Returns whether the head's matrix is the embedding's, in one buffer. A quantised embedding is packed like the matrix of
 * a product; one of elements is not. */
static bool shares_head(const struct model *m)
{
	const struct weight *embed = weights_find(m->weights, WEIGHT_EMBED, 0);
	const struct weight *lm_head = weights_find(m->weights, WEIGHT_LM_HEAD, 0);

	return m->config->tie_word_embeddings && embed->quant && embed->quant == lm_head->quant;
}

/* Lists the weights at the model's ends that have buffers of their own. */
static void list_ends(const struct model *m, struct layer_weights *ret)
{
	layer_weights_of_ends(m->config, ret);
	if (shares_head(m))
		ret->n--; /* the head is the last */
}

/* Plans the buffers of a list of weights. The buffer of w->list[i] will be at[w->list[i].at]. Neighbours in the list
 * with the same `at` share a buffer. */
static void plan_weights(struct model *m, struct memory_plan *p, const char *name,
			 const struct layer_weights *w, uint32_t layer, cl_mem *at)
{
	for (uint32_t i = 0, n; i < w->n; i += n) {
		const struct weight *first = &w->list[i];

		n = pack_sharing(first, w->n - i);
		memory_plan_add(p, MEMORY_WEIGHTS, name,
				pack_bytes(m->kernels, m->weights, first, n, layer),
				&at[first->at]);
		m->may_save += pack_may_save(m->kernels, first, n);
	}
}

static void plan_layer(struct model *m, struct memory_plan *p, uint32_t i)
{
	const struct layer_kinds *kinds = &m->config->layers[i];
	struct model_layer *l = &m->layers[i];
	struct layer_weights w;

	layer_ops[kinds->mixer]->weights(m->config, &w);
	plan_weights(m, p, "a mixer's matrix", &w, i, l->at);
	layer_ops[kinds->mlp]->weights(m->config, &w);
	plan_weights(m, p, "an MLP's matrix", &w, i, l->at);
	l->n_parts = layer_parts(m->config, i, kv_number(m), m->shape.page_tokens, l->parts);
}

static uint64_t n_addresses(const struct model *m)
{
	return AT_LAYERS + (uint64_t)m->config->n_layers * AT_LAYER_COUNT;
}

/* Plans the work space that all layers share, because they run one after the other. */
static void plan_layer_scratch(struct model *m, struct memory_plan *p)
{
	struct layer_scratch most[BUFFERS] = {0}, wanted[LAYER_SCRATCH_MAX];

	for (int kind = 0; kind < LAYER_KINDS; kind++) {
		uint32_t n = m->config->n_layers_of[kind]
				     ? layer_ops[kind]->scratch(m->kernels, m->max_tokens,
								m->max_rows, wanted)
				     : 0;

		for (uint32_t i = 0; i < n; i++)
			if (wanted[i].bytes > most[wanted[i].at].bytes)
				most[wanted[i].at] = wanted[i];
	}
	for (int at = 0; at < BUFFERS; at++)
		if (most[at].bytes)
			memory_plan_add(p, MEMORY_SCRATCH, most[at].name, most[at].bytes,
					&m->at[at]);
}

/* Returns the rows of AT_LOGITS. Scores and dumps take as many tokens at once, and each time read the whole head. */
static uint32_t logits_rows(const struct model *m)
{
	enum { AT_ONCE = 64 };

	return MIN(MAX(m->max_rows, (uint32_t)AT_ONCE), m->max_tokens);
}

static void plan_scratch(struct model *m, struct memory_plan *p)
{
	const struct kernel_shape *k = &m->shape;
	uint64_t T = m->max_tokens, R = m->max_rows, L = logits_rows(m);
	uint64_t D = KERNEL_LD(k->hidden), V = KERNEL_LD(k->vocab);
	const struct layer_scratch own[] = {
		{BUFFER_STEP, "step table", m->step_ints * 4},
		{AT_X, "residual stream", T * D * 4},
		{AT_H, "normed rows", T * kernels_input_ld(k, D) * element_bytes(m)},
		{AT_H32, "normed rows", T * D * 4},
		{AT_ROPE, "rotary angles", T * ropes(k) * kernels_rope_ld(k) * 4},
		{AT_LOGITS, "logits", L * V * 4},
		{BUFFER_SAMPLING, "sampling",
		 MAX(R * kernels_sample_floats(k), L * kernels_score_floats(k)) * 4},
		{BUFFER_COUNTS, "token counts", R * k->vocab * 4},
		{BUFFER_SUMS, "sums of hidden states", R * D * 4},
		{AT_RESULT, "results", m->result_ints * 4},
		{BUFFER_DUMP, "dump", k->dump ? T * D * 4 : 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		memory_plan_add(p, MEMORY_SCRATCH, own[i].name, own[i].bytes, &m->at[own[i].at]);
	plan_layer_scratch(m, p);
	if (m->decode_step)
		memory_plan_add(p, MEMORY_SCRATCH, "addresses", n_addresses(m) * 8, &m->addresses);
}

int model_plan(struct model *m, struct memory_plan *p, struct err *e)
{
	struct layer_weights w;

	m->layers = calloc(m->config->n_layers, sizeof(*m->layers));
	if (!m->layers)
		return err_no_memory(e);
	list_ends(m, &w);
	plan_weights(m, p, "the embedding or the head", &w, 0, m->at);
	memory_plan_add(p, MEMORY_WEIGHTS, "inv_freq", inv_freq_bytes(&m->shape),
			&m->at[AT_INV_FREQ]);
	for (uint32_t i = 0; i < m->config->n_layers; i++)
		plan_layer(m, p, i);
	plan_scratch(m, p);
	return 0;
}

uint64_t model_item_bytes(const struct model *m, enum tier_kind kind)
{
	return layer_part_bytes(m->config, kv_number(m), m->shape.page_tokens, kind);
}

uint64_t model_cache_work(const struct model *m, uint64_t *ret_most)
{
	uint64_t chunks = m->max_tokens / CHUNK_TOKENS, bytes = 0;

	*ret_most = 0;
	for (uint32_t i = 0; i < m->config->n_layers; i++)
		for (uint32_t k = 0; k < m->layers[i].n_parts; k++) {
			uint64_t work = m->layers[i].parts[k].chunk_bytes * chunks;

			bytes += work;
			*ret_most = MAX(*ret_most, work);
		}
	return bytes;
}

uint64_t model_piece_most(const struct model *m, enum tier_kind kind)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < m->config->n_layers; i++)
		for (uint32_t k = 0; k < m->layers[i].n_parts; k++)
			if (m->layers[i].parts[k].kind == kind)
				most = MAX(most, m->layers[i].parts[k].bytes);
	return most;
}

void model_plan_cache(struct model *m, struct memory_plan *p, uint32_t n_pages, uint32_t n_slots)
{
	m->n_pages = n_pages;
	m->n_slots = n_slots;
	for (uint32_t i = 0; i < m->config->n_layers; i++) {
		struct model_layer *l = &m->layers[i];

		for (uint32_t k = 0; k < l->n_parts; k++) {
			const struct layer_part *part = &l->parts[k];
			bool page = part->kind == TIER_PAGE;

			memory_plan_add(p, page ? MEMORY_KV : MEMORY_STATE, part->name,
					part->bytes * (page ? n_pages : n_slots) +
						part->chunk_bytes * (m->max_tokens / CHUNK_TOKENS),
					&l->at[part->at]);
		}
	}
}

/* ---- weights ---- */

static void pack_weights(struct packer *p, const struct layer_weights *w, uint32_t layer,
			 cl_mem *at)
{
	for (uint32_t i = 0, n; i < w->n; i += n) {
		n = pack_sharing(&w->list[i], w->n - i);
		pack_buffer(p, at[w->list[i].at], &w->list[i], n, layer);
	}
}

/* Writes the frequencies of RoPE. */
static void pack_inv_freq(struct model *m, struct packer *p)
{
	const struct kernel_shape *k = &m->shape;
	float *f = pack_map(p, m->at[AT_INV_FREQ], inv_freq_bytes(k));

	if (!f)
		return;
	if (k->rotary_dim)
		rope_frequencies(m->config, f);
	if (k->rotary_dim && ropes(k) > 1)
		rope_sliding_frequencies(m->config, f + k->rotary_dim / 2);
	pack_unmap(p, m->at[AT_INV_FREQ], f);
}

void model_pack(struct model *m, struct packer *p)
{
	struct layer_weights w;

	if (shares_head(m))
		m->at[AT_LM_HEAD] = m->at[AT_EMBED];
	list_ends(m, &w);
	pack_weights(p, &w, 0, m->at);
	pack_inv_freq(m, p);
	for (uint32_t i = 0; i < m->config->n_layers && !p->error.code; i++) {
		const struct layer_kinds *kinds = &m->config->layers[i];

		layer_ops[kinds->mixer]->weights(m->config, &w);
		pack_weights(p, &w, i, m->layers[i].at);
		layer_ops[kinds->mlp]->weights(m->config, &w);
		pack_weights(p, &w, i, m->layers[i].at);
	}
}

/* ---- forward ---- */

/* Computes the logits of n tokens of the step into AT_LOGITS; n is at most logits_rows. The numbers of the n tokens are
 * at rows_at of the step table. */
static void head(struct model *m, cl_int rows_at, uint32_t n)
{
	uint32_t D = KERNEL_LD(m->shape.hidden), V = KERNEL_LD(m->shape.vocab);

	kernel_rms_norm(m->kernels, m->at[BUFFER_STEP], rows_at, m->at[AT_X], m->at[AT_FINAL_NORM],
			m->at[AT_H], m->at[AT_H32], n);
	kernel_gemm_store(m->kernels, false, m->at[AT_H], (uint32_t)kernels_input_ld(&m->shape, D),
			  m->at[AT_LM_HEAD], m->at[AT_LOGITS], V, n, V, D);
}

/* Pools hidden states: the layers have left all rows of the step, behind the last norm, in AT_H32. */
static void pool(struct model *m, const struct model_step *t)
{
	kernel_pool(m->kernels, m->at[BUFFER_STEP], t->poolings_at, m->at[AT_H32],
		    m->at[BUFFER_SUMS], m->at[AT_RESULT], t->n_poolings);
}

/* Scores tokens of prompts. There may be more tokens than the logits' buffer has rows, so slices of them are scored one
 * after the other. */
static void score(struct model *m, const struct model_step *t)
{
	for (uint32_t done = 0, n; done < t->n_scores; done += n) {
		n = MIN(t->n_scores - done, logits_rows(m));

		head(m, t->score_rows_at + (cl_int)done, n);
		kernel_score(m->kernels, m->at[BUFFER_STEP],
			     t->scores_at + (cl_int)(done * SCORE_INTS), m->at[AT_LOGITS],
			     m->at[BUFFER_SAMPLING], m->at[AT_RESULT], n);
		if (t->scored_logits)
			kernels_read_rows(m->kernels, m->at[AT_LOGITS], n, m->shape.vocab,
					  t->scored_logits + (size_t)done * m->shape.vocab);
	}
}

static void draw(struct model *m, const struct model_step *t)
{
	kernel_sample(m->kernels, m->at[BUFFER_STEP], t->draws_at, m->at[AT_LOGITS],
		      m->at[BUFFER_SAMPLING], m->at[BUFFER_COUNTS], m->at[AT_RESULT], t->n_draws);
}

/* ---- a decode step in one launch ---- */

enum { WORK_ALIGN = 16 }; /* ints of a cache line */

uint64_t model_work_ints(const struct model *m)
{
	return m->decode_step ? WORK_ALIGN + decode_work_ints(m->config) : 0;
}

void model_addresses(struct model *m)
{
	uint32_t n_layers = m->config->n_layers;

	for (uint32_t i = 0; i < n_layers; i++)
		m->layers[i].at[AT_NEXT_NORM] = i + 1 < n_layers
							? m->layers[i + 1].at[AT_INPUT_NORM]
							: m->at[AT_FINAL_NORM];
	if (!m->decode_step)
		return;
	for (uint32_t at = 0; at < AT_LAYERS; at++)
		if (m->at[at])
			kernel_address(m->kernels, m->at[at], m->addresses, at);
	for (uint32_t i = 0; i < n_layers; i++)
		for (uint32_t at = 0; at < AT_LAYER_COUNT; at++)
			if (m->layers[i].at[at])
				kernel_address(m->kernels, m->layers[i].at[at], m->addresses,
					       AT_LAYERS + i * AT_LAYER_COUNT + at);
}

void model_add_work(const struct model *m, int32_t *table, struct model_step *s,
		    uint64_t *table_ints)
{
	struct decode_cut cut;
	uint64_t at = ROUND_UP(*table_ints, (uint64_t)WORK_ALIGN);

	s->work_at = 0;
	if (!m->decode_step || s->n_prefill_rows || s->n_scores || !s->n_tokens ||
	    s->n_tokens > kernels_decode_rows(m->kernels) || s->n_batches > 1)
		return;
	cut.resident = kernels_decode_resident(m->kernels);
	kernels_decode_cut(m->kernels, s->n_tokens, &cut.columns, &cut.rows, &cut.router_columns);
	s->work_at = (cl_int)at;
	*table_ints = at + decode_work_build(m->config, &m->shape, &cut, s, table + at);
}

static void resume_layers(struct model *m, const struct model_step *t)
{
	for (uint32_t i = 0; i < m->config->n_layers; i++) {
		const struct layer_ops *mixer = layer_ops[m->config->layers[i].mixer];
		const struct layer_run run = {m->kernels, m->at, m->layers[i].at, t};

		if (mixer->resume)
			mixer->resume(&run);
	}
}

/* Queues one layer: x += mixer(norm(x)); x += mlp(norm(x)). The normed rows that the mixer reads are in AT_H already.
 * The layer leaves in AT_H those that the next layer's mixer reads, or those of the final norm (struct layer_ops). Then
 * calls on_layer. */
static void forward_layer(struct model *m, const struct model_step *t, uint32_t i)
{
	const struct layer_kinds *kinds = &m->config->layers[i];
	const struct layer_run run = {m->kernels, m->at, m->layers[i].at, t, m->importance, i};
	uint32_t D = m->config->hidden_size;

	layer_ops[kinds->mixer]->forward(&run);
	dump_rows(m->dump, "layer%u.mixer", i, m->at[BUFFER_DUMP], t->n_tokens, D);
	layer_ops[kinds->mlp]->forward(&run);
	dump_rows(m->dump, "layer%u.mlp", i, m->at[BUFFER_DUMP], t->n_tokens, D);
	dump_rows(m->dump, "layer%u", i, m->at[AT_X], t->n_tokens, D);
	if (m->on_layer)
		m->on_layer(m->on_layer_user, i);
}

/* Dumps the logits of all tokens, not only of those whose logits the plan needs. Without a dump it does nothing. */
static void dump_logits(struct model *m, const struct model_step *t)
{
	for (uint32_t done = 0, n; m->dump && done < t->n_tokens; done += n) {
		n = MIN(t->n_tokens - done, logits_rows(m));
		head(m, t->all_at + (cl_int)done, n);
		dump_rows(m->dump, "logits", 0, m->at[AT_LOGITS], n, m->config->vocab_size);
	}
}

void model_forward(struct model *m, const struct model_step *t)
{
	uint32_t D = m->config->hidden_size, T = t->n_tokens;

	resume_layers(m, t);
	if (t->work_at) {
		kernel_decode_step(m->kernels, m->at[BUFFER_STEP], t->work_at, m->addresses, T);
		draw(m, t);
		return;
	}
	kernel_embed(m->kernels, m->at[BUFFER_STEP], t->tokens_at, t->positions_at,
		     m->at[AT_RESULT], m->at[AT_EMBED], m->at[AT_INV_FREQ], m->at[AT_X],
		     m->at[AT_ROPE], T);
	dump_rows(m->dump, "embed", 0, m->at[AT_X], T, D);
	kernel_rms_norm(m->kernels, m->at[BUFFER_STEP], -1, m->at[AT_X],
			m->layers[0].at[AT_INPUT_NORM], m->at[AT_H], m->at[AT_H32], T);
	for (uint32_t i = 0; i < m->config->n_layers; i++)
		forward_layer(m, t, i);
	dump_rows(m->dump, "final_norm", 0, m->at[AT_H32], T, D);
	if (m->importance)
		inputs_of_head(&(struct layer_run){m->kernels, m->at, .step = t,
						   .importance = m->importance});
	pool(m, t);
	dump_logits(m, t);
	score(m, t);
	head(m, t->logits_at, t->n_logits);
	draw(m, t);
}
