#include "engine/checkpoint/formats/gguf_keys.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/families/family.h"
#include "engine/checkpoint/formats/gguf_texts.h"

/* The numbers of Llama 3's scaling of RoPE that a GGUF file's readers assume. */
#define LOW_FACTOR  1.0
#define HIGH_FACTOR 4.0

struct maker {
	const struct checkpoint *k;
	const struct model_config *c;
	const char *a;	      /* general.architecture */
	const json_t *config; /* the object in config.json with the language model's keys */
	struct gguf_keys *out;
	struct err *e;
};

/* Writes the whole name of a key of the architecture to out [256]. */
static const char *full_name(const struct maker *m, const char *key, char out[256])
{
	snprintf(out, 256, "%s.%s", m->a, key);
	return out;
}

static void whole(const struct maker *m, const char *key, uint32_t v)
{
	char name[256];

	gguf_add_whole(m->out, full_name(m, key, name), v);
}

static void real(const struct maker *m, const char *key, double v)
{
	char name[256];

	gguf_add_real(m->out, full_name(m, key, name), (float)v);
}

static int refuse(const struct maker *m, const char *key, const char *what)
{
	return err_set(m->e, ENOTSUP,
		       "%s: %s %s, which GGUF files of the architecture %s cannot say",
		       checkpoint_path(m->k), key, what, m->a);
}

/* Refuses what the keys cannot say. */
static int check(const struct maker *m)
{
	const struct model_config *c = m->c;

	if (c->n_experts && !c->norm_topk_prob)
		return refuse(m, "norm_topk_prob", "is false");
	if (c->n_experts && c->n_layers_of[LAYER_DENSE])
		return refuse(m, "the model", "has layers with experts and layers without");
	if (c->rope_scaling == ROPE_LLAMA3 &&
	    (c->rope_low_factor != LOW_FACTOR || c->rope_high_factor != HIGH_FACTOR))
		return refuse(m, "rope_scaling", "has other factors than 1 and 4");
	return 0;
}

/* ---- layers ---- */

/* Returns n if every n-th layer has attention, and no other one. 0: the layers follow no such rule. */
static uint32_t interval_of(const struct model_config *c)
{
	uint32_t n = 0;

	while (n < c->n_layers && c->layers[n].mixer != LAYER_ATTENTION)
		n++;
	n++;
	for (uint32_t i = 0; i < c->n_layers; i++)
		if ((c->layers[i].mixer == LAYER_ATTENTION) != ((i + 1) % n == 0))
			return 0;
	return n;
}

static void add_mixers(const struct maker *m)
{
	const struct model_config *c = m->c;
	uint32_t interval = interval_of(c);
	char name[256];

	if (interval) {
		whole(m, "full_attention_interval", interval);
		return;
	}
	gguf_add_array(m->out, full_name(m, "attention.recurrent_layers", name), GGUF_BOOL,
		       c->n_layers);
	for (uint32_t i = 0; i < c->n_layers; i++)
		buf_putc(&m->out->bytes, c->layers[i].mixer == LAYER_DELTA);
}

static void add_delta(const struct maker *m)
{
	const struct model_config *c = m->c;

	if (!c->n_key_heads)
		return;
	whole(m, "ssm.conv_kernel", c->conv_kernel);
	whole(m, "ssm.state_size", c->key_head_dim);
	whole(m, "ssm.group_count", c->n_key_heads);
	whole(m, "ssm.time_step_rank", c->n_value_heads);
	whole(m, "ssm.inner_size", c->n_value_heads * c->value_head_dim);
	add_mixers(m);
}

/* Adds the window, and which layers have it if it is not all but each sixth. llama.cpp has no key for what scores are
 * divided by; models of Google's need none. */
static void add_windows(const struct maker *m)
{
	const struct model_config *c = m->c;
	uint32_t size = gguf_score_size(c->n_layers, c->hidden_size, c->n_heads, c->head_dim);
	char name[256];

	if (!c->sliding_window)
		return;
	whole(m, "attention.sliding_window", c->sliding_window);
	real(m, "rope.freq_base_swa", c->sliding_theta);
	if (c->score_dim != size)
		real(m, "attention.scale", 1 / sqrt(c->score_dim));
	if (interval_of(c) == GGUF_WINDOW_INTERVAL)
		return;
	gguf_add_array(m->out, full_name(m, "attention.sliding_window_pattern", name), GGUF_BOOL,
		       c->n_layers);
	for (uint32_t i = 0; i < c->n_layers; i++)
		buf_putc(&m->out->bytes, c->layers[i].mixer == LAYER_SLIDING);
}

static void add_experts(const struct maker *m)
{
	const struct model_config *c = m->c;

	if (!c->n_experts)
		return;
	whole(m, "expert_count", c->n_experts);
	whole(m, "expert_used_count", c->n_experts_per_token);
	whole(m, "expert_feed_forward_length", c->expert_size);
	if (c->shared_expert_size)
		whole(m, "expert_shared_feed_forward_length", c->shared_expert_size);
}

/* ---- RoPE ---- */

/* Adds the sizes of the sections of a rotated head that turn by time, height and width, of which Qwen3.5 has three, and
 * the converter writes four. A text has one position, so that they make no difference. */
static void add_sections(const struct maker *m)
{
	static const int32_t usual[4] = {11, 11, 10, 0};
	const json_t *rope = json_object_get(m->config, "rope_parameters");
	const json_t *list = json_object_get(rope, "mrope_section");
	char name[256];

	if (!m->c->family->gguf_tiles_heads)
		return;
	gguf_add_array(m->out, full_name(m, "rope.dimension_sections", name), GGUF_I32, 4);
	for (size_t i = 0; i < 4; i++) {
		const json_t *v = json_array_get(list, i);
		int32_t n = list ? (int32_t)json_integer_value(v) : usual[i];

		buf_append(&m->out->bytes, &n, sizeof(n));
	}
}

static void add_rope(const struct maker *m)
{
	const struct model_config *c = m->c;
	bool part = c->rotary_dim != c->head_dim;
	char name[256];

	real(m, "rope.freq_base", c->rope_theta);
	if (part || c->n_key_heads || !strcmp(m->a, "llama"))
		whole(m, "rope.dimension_count", c->rotary_dim);
	add_sections(m);
	if (c->rope_scaling != ROPE_LINEAR)
		return;
	gguf_add_text(m->out, full_name(m, "rope.scaling.type", name), "linear", strlen("linear"));
	real(m, "rope.scaling.factor", c->rope_factor);
}

/* ---- whole texts ---- */

static void add_sizes(const struct maker *m)
{
	const struct model_config *c = m->c;
	/* The converter writes it also for models in which no layer is dense. */
	json_int_t mlp =
		c->mlp_size ? c->mlp_size
			    : json_integer_value(json_object_get(m->config, "intermediate_size"));

	whole(m, "block_count", c->n_layers);
	whole(m, "context_length", c->max_position_embeddings);
	whole(m, "embedding_length", c->hidden_size);
	if (mlp > 0 && mlp <= INT32_MAX)
		whole(m, "feed_forward_length", (uint32_t)mlp);
	whole(m, "attention.head_count", c->n_heads);
	whole(m, "attention.head_count_kv", c->n_kv_heads);
	whole(m, "attention.key_length", c->head_dim);
	whole(m, "attention.value_length", c->head_dim);
	real(m, "attention.layer_norm_rms_epsilon", (double)c->rms_norm_eps);
	if (!strcmp(m->a, "llama"))
		whole(m, "vocab_size", c->vocab_size);
}

/* Adds the sampling defaults that generation_config.json has. */
static int add_sampling(const struct maker *m)
{
	static const char *const keys[][2] = {
		{"top_p", "general.sampling.top_p"},
		{"min_p", "general.sampling.min_p"},
		{"temperature", "general.sampling.temp"},
		{"repetition_penalty", "general.sampling.penalty_repeat"},
	};
	struct checkpoint_text text;
	json_t *top = NULL;
	int r = checkpoint_read(m->k, CHECKPOINT_GENERATION, &text, m->e);

	if (r == 0) {
		top = json_loadb(buf_str(&text.bytes), text.bytes.len, 0, NULL);
		if (json_is_integer(json_object_get(top, "top_k")))
			gguf_add_int(m->out, "general.sampling.top_k",
				     (int32_t)json_integer_value(json_object_get(top, "top_k")));
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
			const json_t *v = json_object_get(top, keys[i][0]);

			if (json_is_number(v))
				gguf_add_real(m->out, keys[i][1], (float)json_number_value(v));
		}
	}
	json_decref(top);
	checkpoint_text_release(&text);
	return r == -ENOENT ? 0 : r;
}

static int add_keys(const struct maker *m, const char *name)
{
	int r = check(m);

	if (r < 0)
		return r;
	gguf_add_text(m->out, "general.architecture", m->a, strlen(m->a));
	gguf_add_text(m->out, "general.type", "model", strlen("model"));
	gguf_add_text(m->out, "general.name", name, strlen(name));
	r = add_sampling(m);
	add_sizes(m);
	add_rope(m);
	add_experts(m);
	add_delta(m);
	add_windows(m);
	return r;
}

int gguf_keys_of_config(const struct checkpoint *k, const struct model_config *c, const char *name,
			struct gguf_keys *out, struct err *e)
{
	struct maker m = {
		.k = k, .c = c, .a = gguf_architecture(c->family->name), .out = out, .e = e};
	struct checkpoint_text text;
	json_t *top;
	int r;

	if (!m.a)
		return err_set(e, ENOTSUP, "%s: GGUF files of the family %s are not written",
			       checkpoint_path(k), c->family->name);
	r = checkpoint_read(k, CHECKPOINT_CONFIG, &text, e);
	top = r == 0 ? json_loadb(buf_str(&text.bytes), text.bytes.len, 0, NULL) : NULL;
	m.config = json_object_get(top, "text_config");
	if (!m.config)
		m.config = top;
	if (r == 0)
		r = add_keys(&m, name);
	json_decref(top);
	checkpoint_text_release(&text);
	return r;
}
