/*
 * The Qwen3.5 and Qwen3-Next family: Gated DeltaNet layers beside gated full attention, experts with a shared
 * expert or a dense MLP. Read it from top to bottom: shapes, buffers, weights, forward pass.
 *
 *     x = embed(tokens)
 *     each layer:   x += mixer(norm(x));   x += mlp(norm(x))
 *     logits = lm_head(norm(x)), for the tokens that somebody asks about
 *
 * Source: the model mathematics of transformers (models/qwen3_5_moe, qwen3_next).
 */
#include "engine/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "engine/decode_work.h"
#include "scheduler/plan.h"

/* ---- shapes ---- */

static uint32_t key_width(const struct model_config *c)
{
	return c->n_key_heads * c->key_head_dim;
}

static uint32_t value_width(const struct model_config *c)
{
	return c->n_value_heads * c->value_head_dim;
}

void model_shape(const struct model_config *c, bool bf16, uint32_t page_tokens, bool dump,
		 struct kernel_shape *ret)
{
	*ret = (struct kernel_shape){
		.hidden = c->hidden_size,
		.vocab = c->vocab_size,
		.eps = c->rms_norm_eps,
		.page_tokens = page_tokens,
		.bf16 = bf16,
		.dump = dump,
	};
	if (c->n_layers_of[LAYER_ATTENTION]) {
		ret->heads = c->n_heads;
		ret->kv_heads = c->n_kv_heads;
		ret->head_dim = c->head_dim;
		ret->attention_gate = true;
		ret->rotary_dim = c->rotary_dim;
	}
	if (c->n_layers_of[LAYER_DELTA]) {
		ret->key_heads = c->n_key_heads;
		ret->value_heads = c->n_value_heads;
		ret->key_dim = c->key_head_dim;
		ret->value_dim = c->value_head_dim;
		ret->conv = c->conv_kernel;
	}
	if (c->n_layers_of[LAYER_MOE])
		ret->mlps[ret->n_mlps++] =
			(struct kernel_mlp){c->n_experts,      c->n_experts_per_token,
					    c->expert_size,    c->shared_expert_size,
					    c->norm_topk_prob, true};
	if (c->n_layers_of[LAYER_DENSE])
		ret->mlps[ret->n_mlps++] = (struct kernel_mlp){.shared_size = c->mlp_size};
}

/* Rows of the packed input projection of a layer: its outputs are columns of `proj`. */
static uint32_t proj_ld(const struct model *m, uint32_t layer)
{
	return m->config->layers[layer].mixer == LAYER_ATTENTION ? kernels_attention_ld(&m->shape)
								 : kernels_delta_ld(&m->shape);
}

static uint32_t mixed_ld(const struct model *m, uint32_t layer)
{
	return m->config->layers[layer].mixer == LAYER_ATTENTION
		       ? m->shape.heads * m->shape.head_dim
		       : value_width(m->config);
}

/* ---- buffers ---- */

/* A matrix of so many panels of K columns, or, in float, a router. */
static void plan_matrix(struct model *m, struct memory_plan *p, const char *name, uint64_t panels,
			uint64_t K, cl_mem *ret)
{
	uint64_t bytes = pack_matrix_bytes(m->kernels, panels, K);

	memory_plan_add(p, MEMORY_WEIGHTS, name, bytes, ret);
	if (kernels_packing(m->kernels) == KERNEL_PACK_CODED)
		m->may_save += bytes / 4;
}

static uint32_t panels_of(uint32_t rows)
{
	return CEIL_DIV(rows, 16u);
}

static void plan_layer(struct model *m, struct memory_plan *p, uint32_t i)
{
	const struct model_config *c = m->config;
	struct model_layer *l = &m->layers[i];
	const struct kernel_mlp *mlp;
	uint32_t D = c->hidden_size;

	l->mlp = c->layers[i].mlp == LAYER_DENSE ? m->shape.n_mlps - 1 : 0;
	mlp = &m->shape.mlps[l->mlp];
	memory_plan_add(p, MEMORY_WEIGHTS, "input_layernorm", (uint64_t)KERNEL_LD(D) * 4,
			&l->input_norm);
	memory_plan_add(p, MEMORY_WEIGHTS, "post_attention_layernorm", (uint64_t)KERNEL_LD(D) * 4,
			&l->post_norm);
	plan_matrix(m, p, "in_proj", panels_of(proj_ld(m, i)), D, &l->in_proj);
	plan_matrix(m, p, "out_proj", panels_of(D), mixed_ld(m, i), &l->out_proj);
	if (c->layers[i].mixer == LAYER_ATTENTION) {
		memory_plan_add(p, MEMORY_WEIGHTS, "q_norm", KERNEL_LD(c->head_dim) * 4,
				&l->q_norm);
		memory_plan_add(p, MEMORY_WEIGHTS, "k_norm", KERNEL_LD(c->head_dim) * 4,
				&l->k_norm);
	} else {
		uint64_t channels = 2 * key_width(c) + value_width(c), Hv = c->n_value_heads;

		memory_plan_add(p, MEMORY_WEIGHTS, "conv1d", channels * c->conv_kernel * 4,
				&l->conv);
		memory_plan_add(p, MEMORY_WEIGHTS, "A_log", KERNEL_LD(Hv) * 4, &l->neg_a);
		memory_plan_add(p, MEMORY_WEIGHTS, "dt_bias", KERNEL_LD(Hv) * 4, &l->dt_bias);
		memory_plan_add(p, MEMORY_WEIGHTS, "norm", KERNEL_LD(c->value_head_dim) * 4,
				&l->norm);
	}
	if (mlp->experts) {
		uint64_t E = mlp->experts, I = mlp->expert_size;

		memory_plan_add(p, MEMORY_WEIGHTS, "router",
				KERNEL_LD(E + 1) * (uint64_t)KERNEL_LD(D) * 4, &l->router);
		plan_matrix(m, p, "experts' gate_up_proj", E * 2 * panels_of((uint32_t)I), D,
			    &l->experts_gate_up);
		plan_matrix(m, p, "experts' down_proj", E * panels_of(D), I, &l->experts_down);
	} else {
		memory_plan_add(p, MEMORY_WEIGHTS, "experts' gate_up_proj", 0, &l->experts_gate_up);
		memory_plan_add(p, MEMORY_WEIGHTS, "experts' down_proj", 0, &l->experts_down);
	}
	plan_matrix(m, p, "shared expert's gate_up_proj", 2 * panels_of(mlp->shared_size), D,
		    &l->shared_gate_up);
	plan_matrix(m, p, "shared expert's down_proj", panels_of(D), mlp->shared_size,
		    &l->shared_down);
}

static uint64_t n_addresses(const struct model *m)
{
	return AT_LAYERS + (uint64_t)m->config->n_layers * AT_LAYER_COUNT;
}

static void plan_scratch(struct model *m, struct memory_plan *p)
{
	const struct kernel_shape *k = &m->shape;
	struct model_scratch *s = &m->s;
	uint64_t T = m->max_tokens, R = m->max_rows, element = k->bf16 ? 2 : 4;
	uint64_t D = KERNEL_LD(k->hidden), V = KERNEL_LD(k->vocab);
	uint64_t key = (uint64_t)k->key_heads * k->key_dim,
		 value = (uint64_t)k->value_heads * k->value_dim;
	uint64_t query = (uint64_t)k->heads * k->head_dim;
	uint64_t experts = 0, choices = 1, act = 0, tasks = 0;

	for (uint32_t i = 0; i < k->n_mlps; i++) {
		const struct kernel_mlp *mlp = &k->mlps[i];

		experts = MAX(experts, (uint64_t)mlp->experts);
		choices = MAX(choices, (uint64_t)mlp->topk + 1);
		act = MAX(act, (uint64_t)(mlp->topk + 1) *
				       KERNEL_LD(MAX(mlp->expert_size, mlp->shared_size)));
		tasks = MAX(tasks, kernels_task_ints(mlp, m->max_tokens));
	}
	memory_plan_add(p, MEMORY_SCRATCH, "step table", m->step_ints * 4, &s->step);
	memory_plan_add(p, MEMORY_SCRATCH, "addresses", m->decode_step ? n_addresses(m) * 8 : 0,
			&m->addresses);
	memory_plan_add(p, MEMORY_SCRATCH, "residual stream", T * D * 4, &s->x);
	memory_plan_add(p, MEMORY_SCRATCH, "normed rows", T * D * element, &s->h);
	memory_plan_add(p, MEMORY_SCRATCH, "normed rows", T * D * 4, &s->h32);
	memory_plan_add(p, MEMORY_SCRATCH, "rotary angles", T * k->rotary_dim * 4, &s->rope);
	memory_plan_add(p, MEMORY_SCRATCH, "projections",
			T * MAX(kernels_attention_ld(k), kernels_delta_ld(k)) * 4, &s->proj);
	memory_plan_add(p, MEMORY_SCRATCH, "mixer outputs", T * MAX(query, value) * element,
			&s->mixed);
	memory_plan_add(p, MEMORY_SCRATCH, "queries", T * query * 4, &s->q);
	memory_plan_add(p, MEMORY_SCRATCH, "delta q", T * key * 4, &s->qs);
	memory_plan_add(p, MEMORY_SCRATCH, "delta k", T * key * 4, &s->ks);
	memory_plan_add(p, MEMORY_SCRATCH, "delta v", T * value * 4, &s->vs);
	memory_plan_add(p, MEMORY_SCRATCH, "delta gates", T * k->value_heads * 2 * 4, &s->gates);
	memory_plan_add(p, MEMORY_SCRATCH, "delta chunks", kernels_delta_scratch(m->kernels) * 4,
			&s->delta_work);
	memory_plan_add(p, MEMORY_SCRATCH, "router logits", T * KERNEL_LD(experts + 1) * 4,
			&s->router);
	memory_plan_add(p, MEMORY_SCRATCH, "experts chosen", T * choices * 4, &s->experts);
	memory_plan_add(p, MEMORY_SCRATCH, "expert weights", T * choices * 4, &s->weights);
	memory_plan_add(p, MEMORY_SCRATCH, "expert rows", T * choices * 4, &s->rows);
	memory_plan_add(p, MEMORY_SCRATCH, "expert tasks", tasks * 4, &s->tasks);
	memory_plan_add(p, MEMORY_SCRATCH, "expert activations", T * act * element, &s->act);
	memory_plan_add(p, MEMORY_SCRATCH, "expert outputs", T * choices * D * 4, &s->y);
	memory_plan_add(p, MEMORY_SCRATCH, "logits", R * V * 4, &s->logits);
	memory_plan_add(p, MEMORY_SCRATCH, "sampling", R * kernels_sample_floats(k) * 4, &s->work);
	memory_plan_add(p, MEMORY_SCRATCH, "token counts", R * k->vocab * 4, &s->counts);
	memory_plan_add(p, MEMORY_SCRATCH, "results", m->result_ints * 4, &s->result);
	memory_plan_add(p, MEMORY_SCRATCH, "dump", k->dump ? T * D * 4 : 0, &s->dump);
}

int model_plan(struct model *m, struct memory_plan *p, struct err *e)
{
	const struct model_config *c = m->config;
	uint64_t element = m->shape.bf16 ? 2 : 4;

	m->layers = calloc(c->n_layers, sizeof(*m->layers));
	if (!m->layers)
		return err_set(e, ENOMEM, "out of memory");
	memory_plan_add(p, MEMORY_WEIGHTS, "embed_tokens",
			(uint64_t)c->vocab_size * KERNEL_LD(c->hidden_size) * element, &m->embed);
	memory_plan_add(p, MEMORY_WEIGHTS, "inv_freq", (uint64_t)MAX(m->shape.rotary_dim, 2u) * 2,
			&m->inv_freq);
	memory_plan_add(p, MEMORY_WEIGHTS, "norm", (uint64_t)KERNEL_LD(c->hidden_size) * 4,
			&m->final_norm);
	plan_matrix(m, p, "lm_head", panels_of(c->vocab_size), c->hidden_size, &m->lm_head);
	for (uint32_t i = 0; i < c->n_layers; i++)
		plan_layer(m, p, i);
	plan_scratch(m, p);
	return 0;
}

uint64_t model_page_part(const struct model *m)
{
	return (uint64_t)m->shape.kv_heads * m->shape.head_dim * m->shape.page_tokens *
	       (m->shape.bf16 ? 2 : 4);
}

uint64_t model_ring_part(const struct model *m)
{
	return (2ull * key_width(m->config) + value_width(m->config)) * m->config->conv_kernel * 4;
}

uint64_t model_state_part(const struct model *m)
{
	return (uint64_t)value_width(m->config) * m->config->key_head_dim * 4;
}

uint64_t model_page_bytes(const struct model *m)
{
	return 2 * model_page_part(m) * m->config->n_layers_of[LAYER_ATTENTION];
}

uint64_t model_slot_bytes(const struct model *m)
{
	return (model_ring_part(m) + model_state_part(m)) * m->config->n_layers_of[LAYER_DELTA];
}

void model_plan_cache(struct model *m, struct memory_plan *p, uint32_t n_pages, uint32_t n_slots)
{
	m->n_pages = n_pages;
	m->n_slots = n_slots;
	for (uint32_t i = 0; i < m->config->n_layers; i++) {
		struct model_layer *l = &m->layers[i];

		if (m->config->layers[i].mixer == LAYER_ATTENTION) {
			memory_plan_add(p, MEMORY_KV, "keys", model_page_part(m) * n_pages,
					&l->k_pages);
			memory_plan_add(p, MEMORY_KV, "values", model_page_part(m) * n_pages,
					&l->v_pages);
		} else {
			memory_plan_add(p, MEMORY_STATE, "convolution states",
					model_ring_part(m) * n_slots, &l->ring);
			memory_plan_add(p, MEMORY_STATE, "recurrent states",
					model_state_part(m) * n_slots, &l->state);
		}
	}
}

/* ---- weights ---- */

static void pack_mixer(struct model *m, struct packer *p, uint32_t i)
{
	const struct model_config *c = m->config;
	struct model_layer *l = &m->layers[i];

	if (c->layers[i].mixer == LAYER_ATTENTION) {
		uint32_t q = c->n_heads * 2 * c->head_dim / 16,
			 kv = c->n_kv_heads * c->head_dim / 16;
		const struct pack_part parts[] = {
			{WEIGHT_ATTN_Q, i, 0, 0, 1},
			{WEIGHT_ATTN_K, i, 0, q, 1},
			{WEIGHT_ATTN_V, i, 0, q + kv, 1},
		};

		pack_matrix(p, l->in_proj, panels_of(proj_ld(m, i)), parts, ARRAY_SIZE(parts));
		pack_matrix(p, l->out_proj, panels_of(c->hidden_size),
			    &(struct pack_part){WEIGHT_ATTN_O, i, 0, 0, 1}, 1);
		pack_vector(p, l->q_norm, WEIGHT_ATTN_Q_NORM, i, PACK_ONE_PLUS);
		pack_vector(p, l->k_norm, WEIGHT_ATTN_K_NORM, i, PACK_ONE_PLUS);
	} else {
		uint32_t qkv = (2 * key_width(c) + value_width(c)) / 16, z = value_width(c) / 16;
		const struct pack_part parts[] = {
			{WEIGHT_DELTA_QKV, i, 0, 0, 1},
			{WEIGHT_DELTA_Z, i, 0, qkv, 1},
			{WEIGHT_DELTA_B, i, 0, qkv + z, 1},
			{WEIGHT_DELTA_A, i, 0, qkv + z + KERNEL_LD(c->n_value_heads) / 16, 1},
		};

		pack_matrix(p, l->in_proj, panels_of(proj_ld(m, i)), parts, ARRAY_SIZE(parts));
		pack_matrix(p, l->out_proj, panels_of(c->hidden_size),
			    &(struct pack_part){WEIGHT_DELTA_OUT, i, 0, 0, 1}, 1);
		pack_vector(p, l->conv, WEIGHT_DELTA_CONV, i, PACK_TRANSPOSE);
		pack_vector(p, l->neg_a, WEIGHT_DELTA_A_LOG, i, PACK_MINUS_EXP);
		pack_vector(p, l->dt_bias, WEIGHT_DELTA_DT_BIAS, i, PACK_PLAIN);
		pack_vector(p, l->norm, WEIGHT_DELTA_NORM, i, PACK_PLAIN);
	}
}

/* Gate and up take turns panel by panel: one group of the kernel has both of a column. */
static void gate_up_parts(struct pack_part *ret, enum weight_role gate, enum weight_role up,
			  uint32_t layer, uint32_t expert, uint32_t size)
{
	uint64_t first = (uint64_t)expert * 2 * panels_of(size);

	ret[0] = (struct pack_part){gate, layer, expert, first, 2};
	ret[1] = (struct pack_part){up, layer, expert, first + 1, 2};
}

static void pack_experts(struct model *m, struct packer *p, uint32_t i)
{
	const struct kernel_mlp *mlp = &m->shape.mlps[m->layers[i].mlp];
	const struct model_layer *l = &m->layers[i];
	uint64_t E = mlp->experts, size = panels_of(mlp->expert_size),
		 D = panels_of(m->shape.hidden);
	struct pack_part *parts = calloc(2 * E, sizeof(*parts));

	if (!parts) {
		err_set(&p->error, ENOMEM, "out of memory");
		return;
	}
	for (uint32_t e = 0; e < E; e++)
		gate_up_parts(parts + 2 * (size_t)e, WEIGHT_EXPERT_GATE, WEIGHT_EXPERT_UP, i, e,
			      mlp->expert_size);
	pack_matrix(p, l->experts_gate_up, E * 2 * size, parts, 2 * E);
	for (uint32_t e = 0; e < E; e++)
		parts[e] = (struct pack_part){WEIGHT_EXPERT_DOWN, i, e, e * D, 1};
	pack_matrix(p, l->experts_down, E * D, parts, E);
	free(parts);
}

static void pack_mlp(struct model *m, struct packer *p, uint32_t i)
{
	const struct kernel_mlp *mlp = &m->shape.mlps[m->layers[i].mlp];
	struct model_layer *l = &m->layers[i];
	struct pack_part parts[2];

	if (mlp->experts) {
		pack_router(p, l->router, i);
		pack_experts(m, p, i);
	}
	gate_up_parts(parts, WEIGHT_SHARED_GATE, WEIGHT_SHARED_UP, i, 0, mlp->shared_size);
	pack_matrix(p, l->shared_gate_up, 2 * panels_of(mlp->shared_size), parts, 2);
	pack_matrix(p, l->shared_down, panels_of(m->shape.hidden),
		    &(struct pack_part){WEIGHT_SHARED_DOWN, i, 0, 0, 1}, 1);
}

/* f_j = theta^(-2j / rot), in float as the reference has it. */
static void pack_inv_freq(struct model *m, struct packer *p)
{
	uint32_t rot = m->shape.rotary_dim;
	float *f = pack_map(p, m->inv_freq, MAX(rot, 2u) * 2);

	for (uint32_t j = 0; f && j < rot / 2; j++)
		f[j] = 1.0f / powf((float)m->config->rope_theta, (float)(2 * j) / (float)rot);
	if (f)
		pack_unmap(p, m->inv_freq, f);
}

void model_pack(struct model *m, struct packer *p)
{
	pack_rows(p, m->embed, WEIGHT_EMBED);
	pack_inv_freq(m, p);
	pack_vector(p, m->final_norm, WEIGHT_FINAL_NORM, 0, PACK_ONE_PLUS);
	pack_matrix(p, m->lm_head, panels_of(m->config->vocab_size),
		    &(struct pack_part){WEIGHT_LM_HEAD, 0, 0, 0, 1}, 1);
	for (uint32_t i = 0; i < m->config->n_layers && !p->error.code; i++) {
		pack_vector(p, m->layers[i].input_norm, WEIGHT_INPUT_NORM, i, PACK_ONE_PLUS);
		pack_vector(p, m->layers[i].post_norm, WEIGHT_POST_NORM, i, PACK_ONE_PLUS);
		pack_mixer(m, p, i);
		pack_mlp(m, p, i);
	}
}

/* ---- forward ---- */

static void attention_layer(struct model *m, const struct model_layer *l,
			    const struct model_step *t)
{
	struct kernels *k = m->kernels;
	const struct model_scratch *s = &m->s;
	uint32_t D = KERNEL_LD(m->shape.hidden), ld = kernels_attention_ld(&m->shape);
	uint32_t width = m->shape.heads * m->shape.head_dim;

	kernel_gemm_store(k, false, s->h, D, l->in_proj, s->proj, ld, t->n_tokens, ld, D);
	kernel_attention_prepare(k, s->step, t->rows_at, t->token_rows_at, s->proj, l->q_norm,
				 l->k_norm, s->rope, s->q, l->k_pages, l->v_pages, t->n_tokens);
	kernel_attention(k, s->step, t->rows_at, t->tiles_at, s->proj, s->q, l->k_pages, l->v_pages,
			 s->mixed, t->n_tiles, t->n_tokens);
	kernel_gemm_add(k, s->mixed, width, l->out_proj, s->x, D, t->n_tokens, D, width, s->dump);
}

static void delta_layer(struct model *m, const struct model_layer *l, const struct model_step *t)
{
	struct kernels *k = m->kernels;
	const struct model_scratch *s = &m->s;
	uint32_t D = KERNEL_LD(m->shape.hidden), ld = kernels_delta_ld(&m->shape);
	uint32_t width = m->shape.value_heads * m->shape.value_dim;

	kernel_gemm_store(k, false, s->h, D, l->in_proj, s->proj, ld, t->n_tokens, ld, D);
	kernel_delta_conv(k, s->step, t->rows_at, t->token_rows_at, s->proj, l->conv, l->neg_a,
			  l->dt_bias, l->ring, s->qs, s->ks, s->vs, s->gates, t->n_prefill_tokens);
	kernel_delta_prefill(k, s->step, t->rows_at, t->n_prefill_rows, s->proj, s->qs, s->ks,
			     s->vs, s->gates, l->norm, l->ring, l->state, s->delta_work, s->mixed);
	kernel_delta_decode(k, s->step, t->rows_at, t->n_prefill_rows,
			    t->n_rows - t->n_prefill_rows, s->proj, l->conv, l->neg_a, l->dt_bias,
			    l->norm, l->ring, l->state, s->mixed);
	kernel_gemm_add(k, s->mixed, width, l->out_proj, s->x, D, t->n_tokens, D, width, s->dump);
}

/* x += mlp(norm(x)), and h = norm(x) with the weight of what comes next. */
static void mlp_layer(struct model *m, const struct model_layer *l, const struct model_step *t,
		      cl_mem next_norm)
{
	const struct kernel_mlp *mlp = &m->shape.mlps[l->mlp];
	struct kernels *k = m->kernels;
	const struct model_scratch *s = &m->s;
	uint32_t D = KERNEL_LD(m->shape.hidden), E = KERNEL_LD(mlp->experts + 1), T = t->n_tokens;

	kernel_rms_norm(k, s->step, -1, s->x, l->post_norm, s->h, s->h32, T);
	if (mlp->experts)
		kernel_gemm_store(k, true, s->h32, D, l->router, s->router, E, T, E, D);
	kernel_moe_route(k, l->mlp, s->router, s->experts, s->weights, s->rows, s->tasks, T);
	kernel_moe_gate_up(k, l->mlp, s->h, l->experts_gate_up, l->shared_gate_up, s->tasks,
			   s->rows, s->act, T);
	kernel_moe_down(k, l->mlp, s->act, l->experts_down, l->shared_down, s->tasks, s->rows, s->y,
			T);
	kernel_combine_norm(k, l->mlp, s->x, s->y, s->weights, s->router, next_norm, s->h, s->h32,
			    s->dump, T);
}

/* Logits of n tokens of the step, whose numbers stand at rows_at; n is at most max_rows. */
static void head(struct model *m, cl_int rows_at, uint32_t n)
{
	const struct model_scratch *s = &m->s;
	uint32_t D = KERNEL_LD(m->shape.hidden), V = KERNEL_LD(m->shape.vocab);

	kernel_rms_norm(m->kernels, s->step, rows_at, s->x, m->final_norm, s->h, s->h32, n);
	kernel_gemm_store(m->kernels, false, s->h, D, m->lm_head, s->logits, V, n, V, D);
}

/* Given tokens: far more of them than there is room for logits, so slice after slice. */
static void score(struct model *m, const struct model_step *t)
{
	for (uint32_t done = 0; done < t->n_scores; done += m->max_rows) {
		uint32_t n = MIN(t->n_scores - done, m->max_rows);

		head(m, t->score_rows_at + (cl_int)done, n);
		kernel_score(m->kernels, m->s.step, t->scores_at + (cl_int)(done * SCORE_INTS),
			     m->s.logits, m->s.work, m->s.result, n);
	}
}

/* ---- a decode step in one launch ---- */

enum { WORK_ALIGN = 16 }; /* ints: a cache line */

uint64_t model_work_ints(const struct model *m)
{
	return m->decode_step ? WORK_ALIGN + decode_work_ints(m->config) : 0;
}

void model_addresses(struct model *m)
{
	const struct model_scratch *s = &m->s;
	const cl_mem all[AT_LAYERS] = {
		[AT_X] = s->x,
		[AT_H] = s->h,
		[AT_H32] = s->h32,
		[AT_ROPE] = s->rope,
		[AT_PROJ] = s->proj,
		[AT_MIXED] = s->mixed,
		[AT_Q] = s->q,
		[AT_ROUTER_LOGITS] = s->router,
		[AT_EXPERTS] = s->experts,
		[AT_WEIGHTS] = s->weights,
		[AT_ROWS] = s->rows,
		[AT_TASKS] = s->tasks,
		[AT_ACT] = s->act,
		[AT_Y] = s->y,
		[AT_LOGITS] = s->logits,
		[AT_RESULT] = s->result,
		[AT_EMBED] = m->embed,
		[AT_INV_FREQ] = m->inv_freq,
		[AT_FINAL_NORM] = m->final_norm,
		[AT_LM_HEAD] = m->lm_head,
	};

	if (!m->decode_step)
		return;
	for (uint32_t i = 0; i < AT_LAYERS; i++)
		kernel_address(m->kernels, all[i], m->addresses, i);
	for (uint32_t n = 0; n < m->config->n_layers; n++) {
		const struct model_layer *l = &m->layers[n];
		const cl_mem own[AT_LAYER_COUNT] = {
			[AT_INPUT_NORM] = l->input_norm,
			[AT_POST_NORM] = l->post_norm,
			[AT_NEXT_NORM] =
				n + 1 < m->config->n_layers ? l[1].input_norm : m->final_norm,
			[AT_IN_PROJ] = l->in_proj,
			[AT_OUT_PROJ] = l->out_proj,
			[AT_CONV] = l->conv,
			[AT_NEG_A] = l->neg_a,
			[AT_DT_BIAS] = l->dt_bias,
			[AT_NORM] = l->norm,
			[AT_RING] = l->ring,
			[AT_STATE] = l->state,
			[AT_Q_NORM] = l->q_norm,
			[AT_K_NORM] = l->k_norm,
			[AT_K_PAGES] = l->k_pages,
			[AT_V_PAGES] = l->v_pages,
			[AT_ROUTER] = l->router,
			[AT_EXPERTS_GATE_UP] = l->experts_gate_up,
			[AT_EXPERTS_DOWN] = l->experts_down,
			[AT_SHARED_GATE_UP] = l->shared_gate_up,
			[AT_SHARED_DOWN] = l->shared_down,
		};

		for (uint32_t i = 0; i < AT_LAYER_COUNT; i++)
			if (own[i])
				kernel_address(m->kernels, own[i], m->addresses,
					       AT_LAYERS + n * AT_LAYER_COUNT + i);
	}
}

void model_add_work(const struct model *m, int32_t *table, struct model_step *s,
		    uint64_t *table_ints)
{
	struct decode_cut cut;
	uint64_t at = ROUND_UP(*table_ints, (uint64_t)WORK_ALIGN);

	s->work_at = 0;
	if (!m->decode_step || s->n_prefill_rows || s->n_scores || !s->n_tokens)
		return;
	kernels_decode_cut(m->kernels, s->n_tokens, &cut.columns, &cut.rows, &cut.router_columns);
	s->work_at = (cl_int)at;
	*table_ints = at + decode_work_build(m->config, &m->shape, &cut, s, table + at);
}

void model_forward(struct model *m, const struct model_step *t)
{
	const struct model_config *c = m->config;
	struct kernels *k = m->kernels;
	const struct model_scratch *s = &m->s;

	if (t->work_at) {
		kernel_decode_step(k, s->step, t->work_at, m->addresses, t->n_tokens);
		kernel_sample(k, s->step, t->draws_at, s->logits, s->work, s->counts, s->result,
			      t->n_draws);
		return;
	}
	kernel_embed(k, s->step, t->tokens_at, t->positions_at, s->result, m->embed, m->inv_freq,
		     s->x, s->rope, t->n_tokens);
	dump_rows(m->dump, "embed", 0, s->x, t->n_tokens, c->hidden_size);
	kernel_rms_norm(k, s->step, -1, s->x, m->layers[0].input_norm, s->h, s->h32, t->n_tokens);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		const struct model_layer *l = &m->layers[i];

		if (c->layers[i].mixer == LAYER_ATTENTION)
			attention_layer(m, l, t);
		else
			delta_layer(m, l, t);
		dump_rows(m->dump, "layer%u.mixer", i, s->dump, t->n_tokens, c->hidden_size);
		mlp_layer(m, l, t, i + 1 < c->n_layers ? l[1].input_norm : m->final_norm);
		dump_rows(m->dump, "layer%u.mlp", i, s->dump, t->n_tokens, c->hidden_size);
		dump_rows(m->dump, "layer%u", i, s->x, t->n_tokens, c->hidden_size);
		if (m->on_layer)
			m->on_layer(m->on_layer_user, i);
	}
	dump_rows(m->dump, "final_norm", 0, s->h32, t->n_tokens, c->hidden_size);
	if (m->dump)
		for (uint32_t done = 0; done < t->n_tokens; done += m->max_rows) {
			uint32_t n = MIN(t->n_tokens - done, m->max_rows);

			head(m, t->all_at + (cl_int)done, n);
			dump_rows(m->dump, "logits", 0, s->logits, n, c->vocab_size);
		}
	score(m, t);
	head(m, t->logits_at, t->n_logits);
	kernel_sample(k, s->step, t->draws_at, s->logits, s->work, s->counts, s->result,
		      t->n_draws);
}
