/*
 * Names of tensors, in all their variants, to the rows of each weight.
 *
 *     prefix    model.language_model. (Qwen3.5 beside a vision tower, and what transformers 5
 * saves), language_model.model. (older saves of the same), model. (text only) lm_head   at top
 * level or under language_model.; absent when tied in_proj   _qkv, _z, _b, _a; or _qkvz and _ba,
 * interleaved: for each key head [q dk | k dk | v r*dv | z r*dv] and [b r | a r], r value heads a
 * key head experts   packed gate_up_proj [E, 2I, D] (gate rows first) and down_proj [E, D, I], or
 * one tensor a projection and expert
 *
 * The vision tower and the multi-token-prediction head are passed over. Any other tensor that is
 * left over is an error: a checkpoint with biases, more layers or quantised weights is not the
 * model that this engine computes.
 */
#include "engine/checkpoint/weights_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

enum layout {
	LAYOUT_MATRIX, /* [rows, columns] */
	LAYOUT_VECTOR, /* [columns] */
	LAYOUT_CONV,   /* [rows, 1, columns] */
};

/* The tensor of each role that has one of its own; behind the prefix, or "layers.N.". */
static const struct {
	const char *name;
	enum layout layout;
} plain[WEIGHT_ROLES] = {
	[WEIGHT_EMBED] = {"embed_tokens.weight", LAYOUT_MATRIX},
	[WEIGHT_FINAL_NORM] = {"norm.weight", LAYOUT_VECTOR},
	[WEIGHT_INPUT_NORM] = {"input_layernorm.weight", LAYOUT_VECTOR},
	[WEIGHT_POST_NORM] = {"post_attention_layernorm.weight", LAYOUT_VECTOR},
	[WEIGHT_DELTA_QKV] = {"linear_attn.in_proj_qkv.weight", LAYOUT_MATRIX},
	[WEIGHT_DELTA_Z] = {"linear_attn.in_proj_z.weight", LAYOUT_MATRIX},
	[WEIGHT_DELTA_B] = {"linear_attn.in_proj_b.weight", LAYOUT_MATRIX},
	[WEIGHT_DELTA_A] = {"linear_attn.in_proj_a.weight", LAYOUT_MATRIX},
	[WEIGHT_DELTA_CONV] = {"linear_attn.conv1d.weight", LAYOUT_CONV},
	[WEIGHT_DELTA_A_LOG] = {"linear_attn.A_log", LAYOUT_VECTOR},
	[WEIGHT_DELTA_DT_BIAS] = {"linear_attn.dt_bias", LAYOUT_VECTOR},
	[WEIGHT_DELTA_NORM] = {"linear_attn.norm.weight", LAYOUT_VECTOR},
	[WEIGHT_DELTA_OUT] = {"linear_attn.out_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_ATTN_Q] = {"self_attn.q_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_ATTN_K] = {"self_attn.k_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_ATTN_V] = {"self_attn.v_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_ATTN_O] = {"self_attn.o_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_ATTN_Q_NORM] = {"self_attn.q_norm.weight", LAYOUT_VECTOR},
	[WEIGHT_ATTN_K_NORM] = {"self_attn.k_norm.weight", LAYOUT_VECTOR},
	[WEIGHT_ROUTER] = {"mlp.gate.weight", LAYOUT_MATRIX},
	[WEIGHT_SHARED_GATE] = {"mlp.shared_expert.gate_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_SHARED_UP] = {"mlp.shared_expert.up_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_SHARED_DOWN] = {"mlp.shared_expert.down_proj.weight", LAYOUT_MATRIX},
	[WEIGHT_SHARED_ROUTER] = {"mlp.shared_expert_gate.weight", LAYOUT_MATRIX},
};

/* The same roles in a layer whose MLP is dense. */
static const char *const dense_names[WEIGHT_ROLES] = {
	[WEIGHT_SHARED_GATE] = "mlp.gate_proj.weight",
	[WEIGHT_SHARED_UP] = "mlp.up_proj.weight",
	[WEIGHT_SHARED_DOWN] = "mlp.down_proj.weight",
};

struct resolver {
	struct weights *w;
	const struct model_config *c;
	const char *dir, *prefix;
	const struct tensor *list;
	size_t n;
	bool *used; /* [n]: tensors of list that a role has claimed */
	struct err *e;
};

static const struct tensor *find(const struct resolver *r, const char *fmt, ...) PRINTF(2, 3);
static const struct tensor *find(const struct resolver *r, const char *fmt, ...)
{
	char name[TENSOR_NAME_MAX + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	return safetensors_find(r->w->files, name);
}

static int missing(const struct resolver *r, uint32_t layer, bool in_layer, const char *name)
{
	if (in_layer)
		return err_set(r->e, ENOENT, "%s: tensor %slayers.%u.%s is missing", r->dir,
			       r->prefix, layer, name);
	return err_set(r->e, ENOENT, "%s: tensor %s%s is missing", r->dir, r->prefix, name);
}

static void print_shape(char *out, size_t size, const uint64_t *shape, uint32_t n)
{
	size_t at = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%llu", i ? ", " : "",
				       (unsigned long long)shape[i]);
}

/* Checks that t can be read and has this shape, and marks it as used. */
static int claim(struct resolver *r, const struct tensor *t, const uint64_t *shape, uint32_t n)
{
	char has[192], wants[192];

	if (t->dtype == TENSOR_OTHER)
		return err_set(
			r->e, ENOTSUP,
			"%s: tensor %s has dtype %s: only BF16, F16 and F32 weights are supported",
			t->file, t->name, t->dtype_name);
	if (t->n_dims != n || memcmp(t->shape, shape, n * sizeof(*shape)) != 0) {
		print_shape(has, sizeof(has), t->shape, t->n_dims);
		print_shape(wants, sizeof(wants), shape, n);
		return err_set(r->e, EINVAL,
			       "%s: tensor %s has shape [%s], config.json makes it [%s]", t->file,
			       t->name, has, wants);
	}
	r->used[t - r->list] = true;
	return 0;
}

static size_t element_size(enum tensor_dtype dtype)
{
	return dtype == TENSOR_F32 ? 4 : 2;
}

static struct weight_source *source(struct resolver *r, enum weight_role role, uint32_t layer)
{
	return &r->w->sources[(size_t)layer * WEIGHT_ROLES + role];
}

/* Appends a stretch of rows to a role: the rows of tensor t from `first` on, in groups. */
static void add_part(struct weight_source *s, const struct tensor *t, uint64_t cols, uint64_t start,
		     uint64_t first, uint64_t group, uint64_t stride)
{
	s->starts[s->n_parts] = start;
	s->parts[s->n_parts++] = (struct weight_rows){
		.data = (const uint8_t *)t->data + first * cols * element_size(t->dtype),
		.group = group,
		.stride = stride,
		.dtype = t->dtype,
	};
}

static int claim_plain(struct resolver *r, const struct tensor *t, enum weight_role role,
		       uint32_t layer, enum layout layout)
{
	uint64_t rows, cols, shape[3];
	int error;

	weights_shape(r->c, role, layer, &rows, &cols);
	switch (layout) {
	case LAYOUT_VECTOR:
		shape[0] = cols;
		error = claim(r, t, shape, 1);
		break;
	case LAYOUT_CONV:
		shape[0] = rows;
		shape[1] = 1;
		shape[2] = cols;
		error = claim(r, t, shape, 3);
		break;
	default:
		shape[0] = rows;
		shape[1] = cols;
		error = claim(r, t, shape, 2);
		break;
	}
	if (error == 0)
		add_part(source(r, role, layer), t, cols, 0, 0, 0, 0);
	return error;
}

/* in_proj_qkvz and in_proj_ba of one layer. */
static int resolve_interleaved(struct resolver *r, uint32_t layer, const struct tensor *qkvz)
{
	const struct model_config *c = r->c;
	uint64_t dk = c->key_head_dim, ratio = c->n_value_heads / c->n_key_heads;
	uint64_t dv = ratio * c->value_head_dim, stride = 2 * dk + 2 * dv;
	uint64_t key_rows = dk * c->n_key_heads, cols = c->hidden_size;
	uint64_t qkvz_shape[2] = {stride * c->n_key_heads, cols};
	uint64_t ba_shape[2] = {2 * (uint64_t)c->n_value_heads, cols};
	struct weight_source *qkv = source(r, WEIGHT_DELTA_QKV, layer);
	const struct tensor *ba;
	int error;

	ba = find(r, "%slayers.%u.linear_attn.in_proj_ba.weight", r->prefix, layer);
	if (!ba)
		return missing(r, layer, true, "linear_attn.in_proj_ba.weight");
	error = claim(r, qkvz, qkvz_shape, 2);
	if (error == 0)
		error = claim(r, ba, ba_shape, 2);
	if (error < 0)
		return error;
	add_part(qkv, qkvz, cols, 0, 0, dk, stride);
	add_part(qkv, qkvz, cols, key_rows, dk, dk, stride);
	add_part(qkv, qkvz, cols, 2 * key_rows, 2 * dk, dv, stride);
	add_part(source(r, WEIGHT_DELTA_Z, layer), qkvz, cols, 0, 2 * dk + dv, dv, stride);
	add_part(source(r, WEIGHT_DELTA_B, layer), ba, cols, 0, 0, ratio, 2 * ratio);
	add_part(source(r, WEIGHT_DELTA_A, layer), ba, cols, 0, ratio, ratio, 2 * ratio);
	return 0;
}

static struct weight_rows *expert_rows(struct resolver *r, uint32_t layer, uint64_t expert)
{
	return &r->w->experts[(layer * (uint64_t)r->c->n_experts + expert) * WEIGHT_EXPERT_ROLES];
}

static int resolve_packed(struct resolver *r, uint32_t layer, const struct tensor *gate_up)
{
	uint64_t n = r->c->n_experts, size = r->c->expert_size, d = r->c->hidden_size;
	uint64_t gate_up_shape[3] = {n, 2 * size, d}, down_shape[3] = {n, d, size};
	const struct tensor *down;
	size_t expert_bytes, down_bytes;
	int error;

	down = find(r, "%slayers.%u.mlp.experts.down_proj", r->prefix, layer);
	if (!down)
		return missing(r, layer, true, "mlp.experts.down_proj");
	error = claim(r, gate_up, gate_up_shape, 3);
	if (error == 0)
		error = claim(r, down, down_shape, 3);
	if (error < 0)
		return error;
	expert_bytes = 2 * size * d * element_size(gate_up->dtype);
	down_bytes = size * d * element_size(down->dtype);
	for (uint64_t i = 0; i < n; i++) {
		struct weight_rows *rows = expert_rows(r, layer, i);

		rows[0].data = (const uint8_t *)gate_up->data + i * expert_bytes;
		rows[1].data = rows[0].data + expert_bytes / 2;
		rows[2].data = (const uint8_t *)down->data + i * down_bytes;
		rows[0].dtype = rows[1].dtype = gate_up->dtype;
		rows[2].dtype = down->dtype;
	}
	return 0;
}

static int resolve_experts(struct resolver *r, uint32_t layer)
{
	static const char *const projections[WEIGHT_EXPERT_ROLES] = {"gate", "up", "down"};
	const struct tensor *t;
	char name[64];
	int error;

	t = find(r, "%slayers.%u.mlp.experts.gate_up_proj", r->prefix, layer);
	if (t)
		return resolve_packed(r, layer, t);
	for (uint32_t i = 0; i < r->c->n_experts; i++) {
		for (int k = 0; k < WEIGHT_EXPERT_ROLES; k++) {
			struct weight_rows *rows = expert_rows(r, layer, i) + k;
			uint64_t shape[2];

			weights_shape(r->c, WEIGHT_EXPERT_GATE + k, layer, &shape[0], &shape[1]);
			snprintf(name, sizeof(name), "mlp.experts.%u.%s_proj.weight", i,
				 projections[k]);
			t = find(r, "%slayers.%u.%s", r->prefix, layer, name);
			if (!t)
				return missing(r, layer, true, name);
			error = claim(r, t, shape, 2);
			if (error < 0)
				return error;
			*rows = (struct weight_rows){.data = t->data, .dtype = t->dtype};
		}
	}
	return 0;
}

static int resolve_layer(struct resolver *r, uint32_t layer)
{
	const struct tensor *t;
	uint64_t rows, cols;
	int error = 0;

	t = find(r, "%slayers.%u.linear_attn.in_proj_qkvz.weight", r->prefix, layer);
	if (t && r->c->layers[layer].mixer == LAYER_DELTA) {
		error = resolve_interleaved(r, layer, t);
		if (error < 0)
			return error;
	}
	for (int role = WEIGHT_INPUT_NORM; role < WEIGHT_ROLES; role++) {
		const char *name = plain[role].name;

		weights_shape(r->c, role, layer, &rows, &cols);
		if (!rows || source(r, role, layer)->n_parts)
			continue;
		if (weight_is_expert(role)) {
			/* All three are found together. */
			if (role == WEIGHT_EXPERT_GATE)
				error = resolve_experts(r, layer);
			if (error < 0)
				return error;
			continue;
		}
		if (r->c->layers[layer].mlp == LAYER_DENSE && dense_names[role])
			name = dense_names[role];
		t = find(r, "%slayers.%u.%s", r->prefix, layer, name);
		if (!t)
			return missing(r, layer, true, name);
		error = claim_plain(r, t, role, layer, plain[role].layout);
		if (error < 0)
			return error;
	}
	return 0;
}

/* lm_head has one name in each layout. A tied checkpoint may hold it too, when it is the same. */
static int resolve_lm_head(struct resolver *r, const struct tensor *embed)
{
	static const char *const names[] = {"lm_head.weight", "language_model.lm_head.weight",
					    "model.language_model.lm_head.weight"};
	const struct tensor *t = NULL;
	int error;

	for (size_t i = 0; !t && i < ARRAY_SIZE(names); i++)
		t = find(r, "%s", names[i]);
	if (!t && !r->c->tie_word_embeddings)
		return err_set(
			r->e, ENOENT,
			"%s: tensor lm_head.weight is missing and config.json does not tie it to "
			"the embedding",
			r->dir);
	error = claim_plain(r, t ? t : embed, WEIGHT_LM_HEAD, 0, LAYOUT_MATRIX);
	if (error < 0 || !t || !r->c->tie_word_embeddings)
		return error;
	if (t->dtype != embed->dtype || memcmp(t->data, embed->data, t->bytes) != 0)
		return err_set(r->e, EINVAL,
			       "%s: tensor %s differs from the embedding, but config.json has "
			       "tie_word_embeddings",
			       t->file, t->name);
	return 0;
}

static int resolve_whole(struct resolver *r)
{
	const struct tensor *embed, *norm;
	int error;

	embed = find(r, "%s%s", r->prefix, plain[WEIGHT_EMBED].name);
	norm = find(r, "%s%s", r->prefix, plain[WEIGHT_FINAL_NORM].name);
	if (!norm)
		return missing(r, 0, false, plain[WEIGHT_FINAL_NORM].name);
	error = claim_plain(r, embed, WEIGHT_EMBED, 0, LAYOUT_MATRIX);
	if (error == 0)
		error = claim_plain(r, norm, WEIGHT_FINAL_NORM, 0, LAYOUT_VECTOR);
	if (error == 0)
		error = resolve_lm_head(r, embed);
	return error;
}

/* The prefix under which there is an embedding. */
static int find_prefix(struct resolver *r)
{
	static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
					       "model."};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		r->prefix = prefixes[i];
		if (find(r, "%s%s", r->prefix, plain[WEIGHT_EMBED].name))
			return 0;
	}
	return missing(r, 0, false, plain[WEIGHT_EMBED].name);
}

/* Parts of a checkpoint that the language model does not use. */
static bool is_foreign(const char *name)
{
	static const char *const prefixes[] = {
		"model.visual.", "visual.",    "model.vision_tower.", "vision_tower.",
		"mtp.",		 "model.mtp.", "language_model.mtp.", "model.language_model.mtp.",
	};
	static const char inv_freq[] = ".rotary_emb.inv_freq"; /* a constant that old files hold */
	size_t n = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return n >= sizeof(inv_freq) && !strcmp(name + n - (sizeof(inv_freq) - 1), inv_freq);
}

/* Names that only quantised checkpoints have: FP8 and NVFP4 scales, GPTQ, AWQ, compressed-tensors,
 * bitsandbytes. They are looked for first, since the plain names are then missing. */
static int refuse_quantised(struct resolver *r)
{
	static const char *const suffixes[] = {
		"_scale_inv", "_scale", ".scales", ".qweight",
		".qzeros",    ".g_idx", "_packed", ".absmax",
	};

	for (size_t i = 0; i < r->n; i++) {
		size_t n = strlen(r->list[i].name);

		for (size_t k = 0; k < ARRAY_SIZE(suffixes) && !is_foreign(r->list[i].name); k++) {
			size_t m = strlen(suffixes[k]);

			if (n > m && !strcmp(r->list[i].name + n - m, suffixes[k]))
				return err_set(
					r->e, ENOTSUP,
					"%s: tensor %s belongs to a quantised checkpoint: only "
					"BF16, F16 and F32 weights are supported",
					r->list[i].file, r->list[i].name);
		}
	}
	return 0;
}

static int refuse_left_over(struct resolver *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (!r->used[i] && !is_foreign(r->list[i].name))
			return err_set(r->e, EINVAL,
				       "%s: tensor %s has no place in the model of config.json",
				       r->list[i].file, r->list[i].name);
	return 0;
}

int weights_resolve(struct weights *w, const char *dir, struct err *e)
{
	struct resolver r = {.w = w, .c = &w->config, .dir = dir, .e = e};
	int error;

	r.list = safetensors_list(w->files, &r.n);
	r.used = calloc(r.n ? r.n : 1, sizeof(*r.used));
	if (!r.used)
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	error = refuse_quantised(&r);
	if (error == 0)
		error = find_prefix(&r);
	if (error == 0)
		error = resolve_whole(&r);
	for (uint32_t i = 0; error == 0 && i < r.c->n_layers; i++)
		error = resolve_layer(&r, i);
	if (error == 0)
		error = refuse_left_over(&r);
	free(r.used);
	return error;
}
