#include "tests/gguf_convert.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/macros.h"
#include "engine/checkpoint/families/family.h"
#include "engine/checkpoint/formats/gguf_texts.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"
#include "tests/gguf_write.h"
#include "tests/model_text.h"

enum { PARTS_MAX = 4 };

struct conversion {
	const struct gguf_conversion *how;
	const char *from, *a; /* a: general.architecture */
	const struct model_config *c;
	const struct weights *w;
	bool hybrid, next;
	uint32_t turns; /* value heads of a key head, if they come in turn; else 1 */
	struct gguf_out files[PARTS_MAX]; /* [parts] */
	uint32_t parts, n;		  /* n: tensors so far */
};

/* ---- weights ---- */

/* A matrix of floats, or one for each expert. */
struct matrix {
	float *v; /* owned, [experts][rows][cols] */
	uint64_t experts, rows, cols;
};

static struct matrix read_matrix(const struct conversion *x, enum weight_role role, uint32_t layer)
{
	const struct weight *w = weights_find(x->w, role, layer);
	struct matrix m = {0};

	if (!w)
		return m;
	m = (struct matrix){.experts = w->experts, .rows = w->rows, .cols = w->cols};
	m.v = malloc(m.experts * m.rows * m.cols * sizeof(*m.v));
	for (uint64_t e = 0; m.v && e < m.experts; e++)
		for (uint64_t r = 0; r < m.rows; r++)
			weights_row(x->w, role, layer, (uint32_t)e, r, false,
				    m.v + (e * m.rows + r) * m.cols);
	return m;
}

/* Puts blocks of `size` floats in turn: block k * turns + j, of key head k, goes to place j * heads + k. */
static void put_in_turn(const struct conversion *x, float *v, uint64_t size)
{
	uint64_t heads = x->c->n_key_heads, n = heads * x->turns;
	float *copy = malloc(n * size * sizeof(*copy));

	memcpy(copy, v, n * size * sizeof(*v));
	for (uint64_t k = 0; k < heads; k++)
		for (uint64_t j = 0; j < x->turns; j++)
			memcpy(v + (j * heads + k) * size, copy + (k * x->turns + j) * size,
			       size * sizeof(*v));
	free(copy);
}

/* Puts the value heads of a weight of Gated DeltaNet in turn, whose rows have q and k first. */
static void reorder(const struct conversion *x, enum weight_role role, const struct matrix *m)
{
	const struct model_config *c = x->c;
	uint64_t keys = 2ull * c->n_key_heads * c->key_head_dim, dv = c->value_head_dim;

	if (x->turns == 1)
		return;
	switch (role) {
	case WEIGHT_DELTA_QKV:
	case WEIGHT_DELTA_CONV: put_in_turn(x, m->v + keys * m->cols, dv * m->cols); return;
	case WEIGHT_DELTA_Z: put_in_turn(x, m->v, dv * m->cols); return;
	case WEIGHT_DELTA_B:
	case WEIGHT_DELTA_A: put_in_turn(x, m->v, m->cols); return;
	case WEIGHT_DELTA_A_LOG:
	case WEIGHT_DELTA_DT_BIAS: put_in_turn(x, m->v, 1); return;
	case WEIGHT_DELTA_OUT:
		for (uint64_t r = 0; r < m->rows; r++)
			put_in_turn(x, m->v + r * m->cols, dv);
		return;
	default: return;
	}
}

/* Does to numbers what the converter does. */
static void change(const struct conversion *x, enum weight_role role, const struct matrix *m)
{
	bool norm = role == WEIGHT_FINAL_NORM || role == WEIGHT_INPUT_NORM ||
		    role == WEIGHT_POST_NORM || role == WEIGHT_MIXER_NORM ||
		    role == WEIGHT_MLP_NORM || role == WEIGHT_ATTN_Q_NORM ||
		    role == WEIGHT_ATTN_K_NORM;

	reorder(x, role, m);
	for (uint64_t i = 0; i < m->rows * m->cols; i++)
		if (role == WEIGHT_DELTA_A_LOG)
			m->v[i] = -expf(m->v[i]);
		else if (norm && x->c->norm_adds_one)
			m->v[i] += 1;
}

static void put(struct conversion *x, const char *name, const struct matrix *m, bool vector)
{
	uint64_t n = m->experts * m->rows * m->cols, ne[3] = {m->cols, m->rows, m->experts};
	bool plain = vector || strstr(name, "ssm_conv1d") || strstr(name, "ffn_gate_inp") ||
		     strstr(name, "nextn");
	uint32_t n_dims = vector ? 1 : m->experts > 1 ? 3 : 2, number = plain ? 0 : x->how->type;
	const struct stored_type *t = stored_type_of_ggml(number);
	struct gguf_out *o = &x->files[x->n++ % x->parts];
	uint8_t *blocks = malloc(stored_bytes(t, n));

	if (number == GGML_BF16)
		stored_narrow(m->v, n, (uint16_t *)(void *)blocks);
	for (uint64_t r = 0; number && number != GGML_BF16 && r < n / m->cols; r++)
		t->from_float(m->v + r * m->cols, m->cols, NULL,
			      blocks + r * stored_bytes(t, m->cols));
	if (number && x->how->rounded)
		t->to_float(blocks, m->v, n);
	if (x->how->rounded || !number)
		gguf_put_tensor(o, name, GGML_F32, n_dims, ne, m->v, n * sizeof(*m->v));
	else
		gguf_put_tensor(o, name, number, n_dims, ne, blocks, stored_bytes(t, n));
	free(blocks);
}

static const char *layer_name(uint32_t layer, const char *name)
{
	static char out[128];

	snprintf(out, sizeof(out), "blk.%u.%s", layer, name);
	return out;
}

static void put_role(struct conversion *x, enum weight_role role, uint32_t layer, const char *name,
		     bool vector)
{
	struct matrix m = read_matrix(x, role, layer);

	if (m.v) {
		change(x, role, &m);
		put(x, name, &m, vector);
	}
	free(m.v);
}

/* Stores the rows of n weights, `share` of them as one tensor: of each group (expert or key head) the rows of every
 * weight. rows[i]: those of a group. */
static void put_together(struct conversion *x, uint32_t layer, const char *name, uint64_t groups,
			 const enum weight_role *roles, const uint64_t *rows, uint32_t n,
			 bool experts)
{
	struct matrix of[4], all = {.experts = 1};
	float *to;

	for (uint32_t i = 0; i < n; i++) {
		of[i] = read_matrix(x, roles[i], layer);
		if (!of[i].v)
			return;
		all.rows += rows[i];
		all.cols = of[i].cols;
	}
	to = all.v = malloc(groups * all.rows * all.cols * sizeof(*to));
	for (uint64_t g = 0; g < groups; g++)
		for (uint32_t i = 0; i < n; i++, to += rows[i - 1] * all.cols)
			memcpy(to, of[i].v + g * rows[i] * all.cols,
			       rows[i] * all.cols * sizeof(*to));
	if (experts)
		all.experts = groups;
	else
		all.rows *= groups;
	put(x, layer_name(layer, name), &all, false);
	for (uint32_t i = 0; i < n; i++)
		free(of[i].v);
	free(all.v);
}

/* The projections of Gated DeltaNet as Qwen3-Next's first GGUF files have them, by key head: q, k, v, z. */
static void put_interleaved_inputs(struct conversion *x, uint32_t layer)
{
	const struct model_config *c = x->c;
	struct matrix qkv = read_matrix(x, WEIGHT_DELTA_QKV, layer);
	struct matrix z = read_matrix(x, WEIGHT_DELTA_Z, layer), all = {.experts = 1};
	uint64_t D, dk = c->key_head_dim, keys = c->n_key_heads * dk;
	uint64_t values = (uint64_t)c->n_value_heads / MAX(c->n_key_heads, 1u) * c->value_head_dim;
	float *to;

	if (!qkv.v)
		return;
	D = all.cols = qkv.cols;
	all.rows = qkv.rows + z.rows;
	to = all.v = malloc(all.rows * D * sizeof(*to));
	for (uint64_t k = 0; k < c->n_key_heads; k++) {
		const float *parts[] = {qkv.v + k * dk * D, qkv.v + (keys + k * dk) * D,
					qkv.v + (2 * keys + k * values) * D, z.v + k * values * D};

		for (int i = 0; i < 4; i++) {
			uint64_t n = (i < 2 ? dk : values) * D;

			memcpy(to, parts[i], n * sizeof(*to));
			to += n;
		}
	}
	put(x, layer_name(layer, "ssm_in.weight"), &all, false);
	free(qkv.v);
	free(z.v);
	free(all.v);
}

/* Puts rows i and i + half of each head beside each other, as the converter does with Llama's q and k. */
static void put_pairs(struct conversion *x, enum weight_role role, uint32_t layer, const char *name)
{
	struct matrix m = read_matrix(x, role, layer), pairs = m;
	uint64_t size = x->c->head_dim, half = size / 2;

	pairs.v = malloc(m.rows * m.cols * sizeof(*m.v));
	for (uint64_t r = 0; r < m.rows; r++)
		memcpy(pairs.v + (r / size * size + r % half * 2 + r / half % 2) * m.cols,
		       m.v + r * m.cols, m.cols * sizeof(*m.v));
	put(x, layer_name(layer, name), &pairs, false);
	free(m.v);
	free(pairs.v);
}

/* What Llama 3's scaling of RoPE divides frequencies by. */
static void put_rope(struct conversion *x)
{
	const struct model_config *c = x->c;
	struct matrix m = {.experts = 1, .rows = 1, .cols = c->rotary_dim / 2};

	if (c->rope_scaling != ROPE_LLAMA3)
		return;
	m.v = malloc(m.cols * sizeof(*m.v));
	for (uint64_t i = 0; i < m.cols; i++) {
		double length =
			2 * 3.14159265358979 * pow(c->rope_theta, 2.0 * (double)i / c->rotary_dim);
		double smooth = (c->rope_original_context / length - c->rope_low_factor) /
				(c->rope_high_factor - c->rope_low_factor);

		smooth = fmin(fmax(smooth, 0), 1);
		m.v[i] = (float)(1 / ((1 - smooth) / c->rope_factor + smooth));
	}
	put(x, "rope_freqs.weight", &m, true);
	free(m.v);
}

static void put_layer(struct conversion *x, uint32_t i)
{
	static const enum weight_role qkv[] = {WEIGHT_ATTN_Q, WEIGHT_ATTN_K, WEIGHT_ATTN_V};
	static const enum weight_role gates[] = {WEIGHT_DELTA_B, WEIGHT_DELTA_A};
	static const enum weight_role gate_up[] = {WEIGHT_EXPERT_GATE, WEIGHT_EXPERT_UP};
	static const struct {
		enum weight_role role;
		const char *name;
		bool vector;
	} plain[] = {
		{WEIGHT_INPUT_NORM, "attn_norm.weight", true},
		{WEIGHT_MIXER_NORM, "post_attention_norm.weight", true},
		{WEIGHT_MLP_NORM, "post_ffw_norm.weight", true},
		{WEIGHT_ATTN_O, "attn_output.weight", false},
		{WEIGHT_ATTN_Q_BIAS, "attn_q.bias", true},
		{WEIGHT_ATTN_K_BIAS, "attn_k.bias", true},
		{WEIGHT_ATTN_V_BIAS, "attn_v.bias", true},
		{WEIGHT_ATTN_Q_NORM, "attn_q_norm.weight", true},
		{WEIGHT_ATTN_K_NORM, "attn_k_norm.weight", true},
		{WEIGHT_DELTA_CONV, "ssm_conv1d.weight", false},
		{WEIGHT_DELTA_A_LOG, "ssm_a", true},
		{WEIGHT_DELTA_DT_BIAS, "ssm_dt.bias", true},
		{WEIGHT_DELTA_NORM, "ssm_norm.weight", true},
		{WEIGHT_DELTA_OUT, "ssm_out.weight", false},
		{WEIGHT_ROUTER, "ffn_gate_inp.weight", false},
		{WEIGHT_SHARED_ROUTER, "ffn_gate_inp_shexp.weight", true},
		{WEIGHT_EXPERT_DOWN, "ffn_down_exps.weight", false},
	};
	const struct model_config *c = x->c;
	bool moe = c->layers[i].mlp == LAYER_MOE;
	const struct weight *q = weights_find(x->w, WEIGHT_ATTN_Q, i);
	uint64_t r = c->n_key_heads ? c->n_value_heads / c->n_key_heads : 0;

	for (size_t k = 0; k < ARRAY_SIZE(plain); k++)
		put_role(x, plain[k].role, i, layer_name(i, plain[k].name), plain[k].vector);
	put_role(x, WEIGHT_POST_NORM, i,
		 layer_name(i, x->hybrid ? "post_attention_norm.weight" : "ffn_norm.weight"), true);
	put_role(x, WEIGHT_SHARED_GATE, i,
		 layer_name(i, moe ? "ffn_gate_shexp.weight" : "ffn_gate.weight"), false);
	put_role(x, WEIGHT_SHARED_UP, i,
		 layer_name(i, moe ? "ffn_up_shexp.weight" : "ffn_up.weight"), false);
	put_role(x, WEIGHT_SHARED_DOWN, i,
		 layer_name(i, moe ? "ffn_down_shexp.weight" : "ffn_down.weight"), false);
	if (x->how->fused) {
		if (q)
			put_together(x, i, "attn_qkv.weight", 1, qkv,
				     (uint64_t[]){q->rows,
						  weights_find(x->w, WEIGHT_ATTN_K, i)->rows,
						  weights_find(x->w, WEIGHT_ATTN_V, i)->rows},
				     3, false);
		put_together(x, i, "ffn_gate_up_exps.weight", c->n_experts, gate_up,
			     (uint64_t[]){c->expert_size, c->expert_size}, 2, true);
	} else {
		if (!strcmp(x->a, "llama")) {
			put_pairs(x, WEIGHT_ATTN_Q, i, "attn_q.weight");
			put_pairs(x, WEIGHT_ATTN_K, i, "attn_k.weight");
		} else {
			put_role(x, WEIGHT_ATTN_Q, i, layer_name(i, "attn_q.weight"), false);
			put_role(x, WEIGHT_ATTN_K, i, layer_name(i, "attn_k.weight"), false);
		}
		put_role(x, WEIGHT_ATTN_V, i, layer_name(i, "attn_v.weight"), false);
		put_role(x, WEIGHT_EXPERT_GATE, i, layer_name(i, "ffn_gate_exps.weight"), false);
		put_role(x, WEIGHT_EXPERT_UP, i, layer_name(i, "ffn_up_exps.weight"), false);
	}
	if (x->how->interleaved) {
		put_interleaved_inputs(x, i);
	} else {
		put_role(x, WEIGHT_DELTA_QKV, i, layer_name(i, "attn_qkv.weight"), false);
		put_role(x, WEIGHT_DELTA_Z, i, layer_name(i, "attn_gate.weight"), false);
	}
	if (x->next) {
		put_together(x, i, "ssm_ba.weight", c->n_key_heads, gates, (uint64_t[]){r, r}, 2,
			     false);
	} else {
		put_role(x, WEIGHT_DELTA_B, i, layer_name(i, "ssm_beta.weight"), false);
		put_role(x, WEIGHT_DELTA_A, i, layer_name(i, "ssm_alpha.weight"), false);
	}
}

static void put_weights(struct conversion *x)
{
	const struct model_config *c = x->c;
	float zeros[64] = {0};
	const struct matrix some = {zeros, 1, 2, 32};

	put_rope(x);
	put_role(x, WEIGHT_EMBED, 0, "token_embd.weight", false);
	put_role(x, WEIGHT_FINAL_NORM, 0, "output_norm.weight", true);
	if (!c->tie_word_embeddings || x->how->head)
		put_role(x, WEIGHT_LM_HEAD, 0, "output.weight", false);
	for (uint32_t i = 0; i < c->n_layers; i++)
		put_layer(x, i);
	for (uint32_t i = c->n_layers; i < c->n_layers + x->how->mtp; i++) {
		put(x, layer_name(i, "nextn.eh_proj.weight"), &some, false);
		put(x, layer_name(i, "attn_q.weight"), &some, false);
	}
}

/* ---- keys ---- */

static void whole(struct conversion *x, const char *key, uint32_t v)
{
	char name[128];

	snprintf(name, sizeof(name), "%s.%s", x->a, key);
	gguf_put_whole(&x->files[0], name, v);
}

static void real(struct conversion *x, const char *key, float v)
{
	char name[128];

	snprintf(name, sizeof(name), "%s.%s", x->a, key);
	gguf_put_real(&x->files[0], name, v);
}

static void put_mixers(struct conversion *x)
{
	const struct model_config *c = x->c;
	char name[128];

	if (x->how->interval) {
		whole(x, "full_attention_interval", 4);
		return;
	}
	snprintf(name, sizeof(name), "%s.attention.recurrent_layers", x->a);
	gguf_put_array(&x->files[0], name, GGUF_BOOL, c->n_layers + x->how->mtp);
	for (uint32_t i = 0; i < c->n_layers + x->how->mtp; i++)
		buf_putc(&x->files[0].keys, i < c->n_layers && c->layers[i].mixer == LAYER_DELTA);
}

/* The keys of Gemma 3. llama.cpp's converter writes no pattern of layers and no attention.scale, which are only needed by
 * models that Google has not published. */
static void put_windows(struct conversion *x)
{
	const struct model_config *c = x->c;
	char name[128];

	whole(x, "attention.sliding_window", c->sliding_window);
	real(x, "rope.freq_base_swa", (float)c->sliding_theta);
	if (c->score_dim != c->head_dim)
		real(x, "attention.scale", (float)(1 / sqrt(c->score_dim)));
	if (x->how->interval) {
		whole(x, "attention.sliding_window_pattern", 3);
		return;
	}
	snprintf(name, sizeof(name), "%s.attention.sliding_window_pattern", x->a);
	gguf_put_array(&x->files[0], name, GGUF_BOOL, c->n_layers);
	for (uint32_t i = 0; i < c->n_layers; i++)
		buf_putc(&x->files[0].keys, c->layers[i].mixer == LAYER_SLIDING);
}

static void put_keys(struct conversion *x)
{
	const struct model_config *c = x->c;

	gguf_put_text(&x->files[0], "general.architecture", x->a);
	whole(x, "block_count", c->n_layers + x->how->mtp);
	if (x->how->mtp)
		whole(x, "nextn_predict_layers", x->how->mtp);
	whole(x, "context_length", c->max_position_embeddings);
	whole(x, "embedding_length", c->hidden_size);
	if (c->mlp_size)
		whole(x, "feed_forward_length", c->mlp_size);
	whole(x, "attention.head_count", c->n_heads);
	whole(x, "attention.head_count_kv", c->n_kv_heads);
	whole(x, "attention.key_length", c->head_dim);
	whole(x, "attention.value_length", c->head_dim);
	real(x, "attention.layer_norm_rms_epsilon", c->rms_norm_eps);
	real(x, "rope.freq_base", (float)c->rope_theta);
	whole(x, "rope.dimension_count", c->rotary_dim);
	if (c->rope_scaling == ROPE_LINEAR) {
		char name[128];

		snprintf(name, sizeof(name), "%s.rope.scaling.type", x->a);
		gguf_put_text(&x->files[0], name, "linear");
		real(x, "rope.scaling.factor", (float)c->rope_factor);
	}
	if (c->sliding_window)
		put_windows(x);
	if (x->hybrid) {
		put_mixers(x);
		whole(x, "ssm.conv_kernel", c->conv_kernel);
		whole(x, "ssm.state_size", c->key_head_dim);
		whole(x, "ssm.group_count", c->n_key_heads);
		whole(x, "ssm.time_step_rank", c->n_value_heads);
		whole(x, "ssm.inner_size", c->n_value_heads * c->value_head_dim);
	}
	if (c->n_experts) {
		whole(x, "expert_count", c->n_experts);
		whole(x, "expert_used_count", c->n_experts_per_token);
		whole(x, "expert_feed_forward_length", c->expert_size);
		if (c->shared_expert_size)
			whole(x, "expert_shared_feed_forward_length", c->shared_expert_size);
	}
}

/* ---- tokenizer ---- */

static void put_merges(struct conversion *x, const json_t *merges)
{
	const json_t *m;
	size_t i;

	gguf_put_array(&x->files[0], "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
	json_array_foreach(merges, i, m)
	{
		char text[1024];

		if (json_is_array(m))
			snprintf(text, sizeof(text), "%s %s",
				 json_string_value(json_array_get(m, 0)),
				 json_string_value(json_array_get(m, 1)));
		else
			snprintf(text, sizeof(text), "%s", json_string_value(m));
		gguf_put_string(&x->files[0].keys, text, strlen(text));
	}
}

static void put_vocab(struct conversion *x, json_t *root)
{
	uint32_t n = x->c->vocab_size;
	const char **texts = calloc(n, sizeof(*texts));
	int32_t *types = calloc(n, sizeof(*types));
	struct gguf_out *o = &x->files[0];
	const char *text;
	json_t *v;
	size_t i;

	json_object_foreach(json_object_get(json_object_get(root, "model"), "vocab"), text, v)
	{
		texts[json_integer_value(v)] = text;
		types[json_integer_value(v)] = GGUF_TOKEN_NORMAL;
	}
	json_array_foreach(json_object_get(root, "added_tokens"), i, v)
	{
		json_int_t id = json_integer_value(json_object_get(v, "id"));
		bool special = json_is_true(json_object_get(v, "special"));

		texts[id] = json_string_value(json_object_get(v, "content"));
		types[id] = special ? GGUF_TOKEN_CONTROL : GGUF_TOKEN_USER;
	}
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, n);
	for (uint32_t k = 0; k < n; k++) {
		char pad[32];

		snprintf(pad, sizeof(pad), "[PAD%u]", k);
		gguf_put_string(&o->keys, texts[k] ? texts[k] : pad,
				strlen(texts[k] ? texts[k] : pad));
		if (!texts[k])
			types[k] = GGUF_TOKEN_UNUSED;
	}
	gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, n);
	buf_append(&o->keys, types, n * sizeof(*types));
	free(texts);
	free(types);
}

static bool put_tokenizer(struct conversion *x)
{
	struct checkpoint_text text, template;
	struct gguf_out *o = &x->files[0];
	struct err e = {0};
	json_t *root;
	bool good;

	if (!x->how->pre)
		return true;
	good = model_text(x->from, CHECKPOINT_TOKENIZER, &text, &e) == 0 &&
	       model_text(x->from, CHECKPOINT_TEMPLATE, &template, &e) == 0;
	if (!good) {
		printf("# %s\n", e.text);
		return false;
	}
	root = json_loadb(buf_str(&text.bytes), text.bytes.len, 0, NULL);
	gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
	gguf_put_text(o, "tokenizer.ggml.pre", x->how->pre);
	put_vocab(x, root);
	put_merges(x, json_object_get(json_object_get(root, "model"), "merges"));
	gguf_put_whole(o, "tokenizer.ggml.eos_token_id", (uint32_t)x->c->end_tokens[0]);
	gguf_put_whole(o, "tokenizer.ggml.padding_token_id", 0);
	gguf_put_text(o, "tokenizer.chat_template", buf_str(&template.bytes));
	json_decref(root);
	checkpoint_text_release(&text);
	checkpoint_text_release(&template);
	return true;
}

/* ---- whole files ---- */

static void put_split_keys(struct conversion *x)
{
	for (uint32_t i = 0; x->how->parts && i < x->parts; i++) {
		gguf_put_whole(&x->files[i], "split.no", i);
		gguf_put_whole(&x->files[i], "split.count", x->parts);
		gguf_put_whole(&x->files[i], "split.tensors.count", x->n);
	}
}

static bool write_files(struct conversion *x, const char *to)
{
	struct err e = {0};
	char path[4096];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < x->parts; i++) {
		struct buf file;

		buf_init(&file, GGUF_OUT_MAX);
		gguf_out_file(&x->files[i], &file);
		if (x->how->parts)
			snprintf(path, sizeof(path), "%s-%05u-of-%05u.gguf", to, i + 1, x->parts);
		else
			snprintf(path, sizeof(path), "%s", to);
		r = file_write(path, file.data, file.len, &e);
		buf_release(&file);
	}
	if (r < 0)
		printf("# %s\n", e.text);
	return r == 0;
}

/* Chooses the architecture of the family. */
static bool choose(struct conversion *x)
{
	static const char *const names[][2] = {
		{"qwen3_5", "qwen35"}, {"qwen3_5_moe", "qwen35moe"}, {"qwen3_next", "qwen3next"},
		{"qwen3", "qwen3"},    {"qwen3_moe", "qwen3moe"},    {"qwen2", "qwen2"},
		{"llama", "llama"},    {"gemma3", "gemma3"}};
	const struct model_config *c = x->c;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(c->family->name, names[i][0]))
			x->a = names[i][1];
	if (!x->a || (c->n_experts && !c->norm_topk_prob)) {
		printf("# %s: a GGUF file cannot say this\n", x->from);
		return false;
	}
	x->hybrid = c->n_key_heads;
	x->next = !strcmp(x->a, "qwen3next");
	x->turns = x->hybrid && !x->next ? c->n_value_heads / c->n_key_heads : 1;
	return true;
}

bool gguf_convert(const char *from, const char *to, const struct gguf_conversion *how)
{
	struct model_config c;
	struct conversion x = {.how = how, .from = from, .c = &c, .parts = MAX(how->parts, 1u)};
	struct checkpoint *k = NULL;
	struct weights *w = NULL;
	struct weight *table = NULL;
	struct err e = {0};
	bool good = false;

	if (checkpoint_open(from, &k, &e) == 0 && model_config_read(k, &c, &e) == 0 &&
	    (table = layers_weights(&c)) && weights_open(k, &c, table, &w, &e) == 0) {
		x.w = w;
		for (uint32_t i = 0; i < x.parts; i++)
			gguf_out_init(&x.files[i]);
		good = choose(&x);
		if (good) {
			put_keys(&x);
			good = put_tokenizer(&x);
			put_weights(&x);
			put_split_keys(&x);
			good = good && write_files(&x, to);
		}
		for (uint32_t i = 0; i < x.parts; i++)
			gguf_out_release(&x.files[i]);
	} else {
		printf("# %s\n", e.text);
	}
	weights_close(w);
	free(table);
	checkpoint_close(k);
	return good;
}
