/* Reads config.json. Keys and defaults are those of the configuration classes of transformers. When such a class saves
 * a nested configuration, it leaves out keys that equal the default. families/ has the differences between families. */
#include "engine/checkpoint/model_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/families/family.h"

enum {
	CONFIG_MAX = 4 << 20, /* bytes */
	SIZE_LIMIT = 65536,   /* hidden and intermediate sizes */
	HEADS_LIMIT = 4096,
	POSITIONS_LIMIT = 1 << 30,
	VOCAB_LIMIT = (1 << 24) - 1,
};
#define EXPERTS_PER_TOKEN_LIMIT 32u

/* ---- whole numbers ---- */

enum part { MODEL, ATTENTION, DELTA, MOE, SHARED, DENSE };

static const struct key {
	enum part part;
	const char *name;
	size_t at; /* offset of a uint32_t in struct model_config */
	uint32_t min, max;
	bool by_16; /* must be a multiple of 16 */
} keys[] = {
#define KEY(part, name, field, ...)                                           \
	{                                                                     \
		part, name, offsetof(struct model_config, field), __VA_ARGS__ \
	}
	KEY(MODEL, "hidden_size", hidden_size, 1, SIZE_LIMIT),
	KEY(MODEL, "num_hidden_layers", n_layers, 1, MODEL_LAYERS_MAX),
	KEY(MODEL, "vocab_size", vocab_size, 1, VOCAB_LIMIT),
	KEY(MODEL, "max_position_embeddings", max_position_embeddings, 1, POSITIONS_LIMIT),
	KEY(MODEL, "num_nextn_predict_layers", n_mtp_layers, 0, MODEL_LAYERS_MAX),
	KEY(MODEL, "mtp_num_hidden_layers", n_mtp_layers, 0, MODEL_LAYERS_MAX),
	KEY(ATTENTION, "num_attention_heads", n_heads, 1, HEADS_LIMIT),
	KEY(ATTENTION, "num_key_value_heads", n_kv_heads, 1, HEADS_LIMIT),
	KEY(ATTENTION, "head_dim", head_dim, 16, 256, true),
	KEY(DELTA, "linear_num_key_heads", n_key_heads, 1, HEADS_LIMIT),
	KEY(DELTA, "linear_num_value_heads", n_value_heads, 1, HEADS_LIMIT),
	KEY(DELTA, "linear_key_head_dim", key_head_dim, 16, 256, true),
	KEY(DELTA, "linear_value_head_dim", value_head_dim, 16, 256, true),
	KEY(DELTA, "linear_conv_kernel_dim", conv_kernel, 2, 8),
	KEY(MOE, "moe_intermediate_size", expert_size, 1, SIZE_LIMIT),
	KEY(SHARED, "shared_expert_intermediate_size", shared_expert_size, 1, SIZE_LIMIT),
	KEY(DENSE, "intermediate_size", mlp_size, 1, SIZE_LIMIT),
#undef KEY
};

/* Reads the keys of one part of a model (enum part). A missing key leaves its field as it is: the family's default, or
 * the value of another key for the same field. */
static void read_keys(struct config_source *s, enum part part, struct model_config *c)
{
	for (const struct key *k = keys; k < keys + ARRAY_SIZE(keys); k++) {
		uint32_t *field = (uint32_t *)(void *)((char *)c + k->at);

		if (k->part != part)
			continue;
		*field = config_whole(s, k->name, k->min, k->max, *field);
		if (k->by_16 && *field % 16)
			config_fail(s, ENOTSUP, k->name, "must be a multiple of 16");
	}
}

/* ---- parts of a model ---- */

/* Reads a number that must be there. */
static double needed_real(struct config_source *s, const char *key, double min, double max)
{
	if (!config_value(s, key))
		config_fail(s, EINVAL, key, "is missing");
	return config_real(s, key, min, max, true, 0);
}

static void read_rope_scaling(struct config_source *s, struct model_config *c)
{
	static const char *const names[] = {
		[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3"};
	uint32_t kind = config_word(s, "type", names, ARRAY_SIZE(names), ROPE_DEFAULT);

	c->rope_scaling = config_word(s, "rope_type", names, ARRAY_SIZE(names), kind);
	if (c->rope_scaling == ROPE_DEFAULT)
		return;
	c->rope_factor = needed_real(s, "factor", 1, 1e6);
	if (c->rope_scaling == ROPE_LINEAR)
		return;
	c->rope_low_factor = needed_real(s, "low_freq_factor", 1e-3, 1e6);
	c->rope_high_factor = needed_real(s, "high_freq_factor", 1e-3, 1e6);
	c->rope_original_context =
		needed_real(s, "original_max_position_embeddings", 1, POSITIONS_LIMIT);
	if (c->rope_high_factor <= c->rope_low_factor)
		config_fail(s, EINVAL, "high_freq_factor", "must be above low_freq_factor");
}

/* Reads the keys of RoPE in layers with a sliding window, which have no scaling. They are in rope_parameters, in an object
 * beside that of the other layers, or in older files flat. Returns the other layers' object, or NULL if rope_parameters
 * has none. */
static const json_t *read_sliding_rope(struct config_source *s, struct model_config *c)
{
	const json_t *all = config_value(s, "rope_parameters");
	struct config_source rope = *s;
	char path[64];

	c->sliding_theta = config_real(s, "rope_local_base_freq", 1, 1e15, true, c->sliding_theta);
	if (!json_is_object(all))
		return all;
	rope.object = json_object_get(all, "sliding_attention");
	if (rope.object && !json_is_object(rope.object))
		config_fail(&rope, EINVAL, "rope_parameters.sliding_attention",
			    "must be an object");
	snprintf(path, sizeof(path), "%srope_parameters.sliding_attention.", s->path);
	rope.path = path;
	config_only_word(&rope, "rope_type", "default");
	c->sliding_theta = config_real(&rope, "rope_theta", 1, 1e15, true, c->sliding_theta);
	s->error = rope.error;
	return json_object_get(all, "full_attention");
}

/* Reads RoPE's keys. They are in rope_parameters, or in older files in rope_scaling or flat. Of the two objects only
 * one is read: rope_scaling, unless it is missing or empty. The keys of that object override flat ones. */
static void read_rope(struct config_source *s, struct model_config *c)
{
	const json_t *scaling = config_value(s, "rope_scaling"), *v;
	const char *name = "rope_parameters", *key;
	struct config_source rope;
	double theta, factor;
	char path[64];

	theta = config_real(s, "rope_theta", 1, 1e15, true, c->rope_theta);
	factor = config_real(s, "partial_rotary_factor", 0, 1, false, c->family->rotary_factor);
	rope = *s;
	rope.object =
		c->sliding_theta > 0 ? read_sliding_rope(s, c) : config_value(s, "rope_parameters");
	rope.error = s->error;
	if (json_object_size(scaling) || (scaling && !json_is_object(scaling))) {
		rope.object = scaling;
		name = "rope_scaling";
	}
	if (rope.object && !json_is_object(rope.object))
		config_fail(&rope, EINVAL, name, "must be an object");
	json_object_foreach((json_t *)rope.object, key, v) if (json_is_object(v))
		config_fail(&rope, ENOTSUP, name,
			    "differs between kinds of layers, which is not supported");
	snprintf(path, sizeof(path), "%s%s.", s->path, name);
	rope.path = path;
	read_rope_scaling(&rope, c);
	theta = config_real(&rope, "rope_theta", 1, 1e15, true, theta);
	factor = config_real(&rope, "partial_rotary_factor", 0, 1, false, factor);
	s->error = rope.error;
	c->rope_theta = theta;
	c->rotary_dim = (uint32_t)(c->head_dim * factor);
	if (c->rotary_dim < 2 || c->rotary_dim % 2)
		config_fail(s, ENOTSUP, "partial_rotary_factor",
			    "times head_dim must be an even number of at least 2");
}

static void read_attention(struct config_source *s, struct model_config *c)
{
	read_keys(s, ATTENTION, c);
	if (!c->n_kv_heads)
		c->n_kv_heads = c->n_heads;
	if (!c->head_dim)
		c->head_dim = c->hidden_size / c->n_heads;
	if (c->head_dim % 16 || c->head_dim > 256 || !c->head_dim)
		config_fail(
			s, ENOTSUP, "head_dim",
			"is missing, and hidden_size / num_attention_heads is no multiple of 16 "
			"up to 256");
	if (c->n_heads % c->n_kv_heads)
		config_fail(s, EINVAL, "num_attention_heads",
			    "must be a multiple of num_key_value_heads");
	config_only_truth(s, "attention_bias", false);
	config_only_truth(s, "attn_output_gate", c->attention_gate);
	config_only_truth(s, "use_sliding_window", false);
	read_rope(s, c);
}

static void read_delta(struct config_source *s, struct model_config *c)
{
	read_keys(s, DELTA, c);
	if (c->n_value_heads % c->n_key_heads)
		config_fail(s, EINVAL, "linear_num_value_heads",
			    "must be a multiple of linear_num_key_heads");
}

/* Reads the sizes of the kinds of MLPs that the layers have, and sets the sizes of the other kinds to 0. */
static void read_mlps(struct config_source *s, struct model_config *c)
{
	if (c->n_layers_of[LAYER_MOE]) {
		c->n_experts_per_token = config_whole(s, "num_experts_per_tok", 1,
						      MIN(c->n_experts, EXPERTS_PER_TOKEN_LIMIT),
						      c->n_experts_per_token);
		if (c->n_experts_per_token > c->n_experts)
			config_fail(s, EINVAL, "num_experts_per_tok",
				    "is missing and its default is above num_experts");
		read_keys(s, MOE, c);
		if (c->shared_expert_size)
			read_keys(s, SHARED, c);
	} else {
		c->n_experts = c->n_experts_per_token = c->expert_size = c->shared_expert_size = 0;
	}
	if (c->n_layers_of[LAYER_DENSE])
		read_keys(s, DENSE, c);
	else
		c->mlp_size = 0;
	c->norm_topk_prob = config_truth(s, "norm_topk_prob", c->norm_topk_prob);
	config_only_truth(s, "mlp_bias", false);
}

static void read_text(struct config_source *s, struct model_config *c)
{
	const struct family *f = c->family;

	*c = f->defaults;
	c->family = f;
	quantised_config_read(s, &c->quantised);
	read_keys(s, MODEL, c);
	c->rms_norm_eps =
		(float)config_real(s, "rms_norm_eps", 1e-20, 0.1, true, (double)c->rms_norm_eps);
	if (c->gelu)
		config_only_word(s, "hidden_activation", "gelu_pytorch_tanh");
	else
		config_only_word(s, "hidden_act", "silu");
	if (s->error < 0)
		return;
	f->read_layers(s, c);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		c->n_layers_of[c->layers[i].mixer]++;
		c->n_layers_of[c->layers[i].mlp]++;
	}
	read_attention(s, c);
	if (c->n_key_heads)
		read_delta(s, c);
	read_mlps(s, c);
	c->tie_word_embeddings = config_truth(s, "tie_word_embeddings", c->tie_word_embeddings);
}

/* ---- end tokens and sampling defaults ---- */

/* Reads eos_token_id, a number or a list. Returns whether the key is there. After an earlier error it reads nothing and
 * returns false. */
static bool read_end_tokens(struct config_source *s, struct model_config *c)
{
	const json_t *v = config_value(s, "eos_token_id");
	size_t n = json_is_array(v) ? json_array_size(v) : 1;

	if (s->error < 0 || !v)
		return false;
	c->n_end_tokens = 0;
	if (n > MODEL_END_TOKENS_MAX) {
		config_fail(s, EINVAL, "eos_token_id", "holds more than 16 tokens");
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
		json_int_t k = json_integer_value(id);

		if (!json_is_integer(id) || k < 0 || k >= c->vocab_size) {
			config_fail(s, EINVAL, "eos_token_id",
				    "must be a token id below vocab_size, or a list of them");
			return true;
		}
		c->end_tokens[c->n_end_tokens++] = (int32_t)k;
	}
	return true;
}

/* Reads the sampling defaults of requests, like vLLM with --generation-config auto. do_sample is not read: it only
 * tells transformers' own generate() whether to draw. */
static void read_sampling(struct config_source *s, struct model_config *c)
{
	const json_t *top_k = config_value(s, "top_k");

	c->default_temperature = (float)config_real(s, "temperature", 0, 2, true, 1);
	c->default_top_p = (float)config_real(s, "top_p", 1e-6, 1, true, 1);
	c->default_min_p = (float)config_real(s, "min_p", 0, 1, true, 0);
	c->default_repetition_penalty =
		(float)config_real(s, "repetition_penalty", 1e-3, 10, true, 1);
	/* -1 and 0 both mean: no limit */
	if (!json_is_integer(top_k) || json_integer_value(top_k) != -1)
		c->default_top_k = (int32_t)config_whole(s, "top_k", 0, VOCAB_LIMIT, 0);
}

/* ---- whole files ---- */

static int load(const char *file, const char *text, size_t len, json_t **ret, struct err *e)
{
	json_error_t why;
	json_t *v;

	if (len > CONFIG_MAX)
		return err_set(e, EFBIG, "%s: more than the %d bytes that are read", file,
			       CONFIG_MAX);
	v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!v)
		return err_set(e, EINVAL, "%s: not valid JSON at line %d, column %d", file,
			       why.line, why.column);
	if (!json_is_object(v)) {
		json_decref(v);
		return err_set(e, EINVAL, "%s: not a JSON object", file);
	}
	*ret = v;
	return 0;
}

#define ROW(name) &family_##name,
static const struct family *const families[] = {FAMILIES(ROW) NULL};

static int find_family(struct config_source *s, const struct family **ret)
{
	const json_t *value = config_value(s, "model_type");
	const char *type = json_string_value(value);
	char names[256] = "", found[96] = " must be";
	size_t at = 0;

	for (const struct family *const *f = families; *f; f++) {
		size_t n = strlen((*f)->name);

		if (type && !strncmp(type, (*f)->name, n) &&
		    (!type[n] || !strcmp(type + n, "_text"))) {
			*ret = *f;
			return 0;
		}
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
				       f == families ? ""
				       : f[1]	     ? ", "
						     : " or ",
				       (*f)->name);
		at = MIN(at, sizeof(names) - 1);
	}
	if (type)
		snprintf(found, sizeof(found), " is \"%.60s\", but must be", type);
	else if (!value)
		snprintf(found, sizeof(found), " is missing: it must be");
	return err_set(s->e, ENOTSUP, "%s: %smodel_type%s %s, with or without _text", s->file,
		       s->path, found, names);
}

static int read_config(const char *file, const json_t *top, struct model_config *c, struct err *e)
{
	struct config_source outer = {.file = file, .path = "", .object = top, .e = e};
	struct config_source text = outer;
	const json_t *nested = config_value(&outer, "text_config");
	const struct family *inner;
	int r;

	r = find_family(&outer, &c->family);
	if (r < 0)
		return r;
	if (nested && !json_is_object(nested))
		config_fail(&outer, EINVAL, "text_config", "must be an object");
	if (outer.error < 0)
		return outer.error;
	if (nested) {
		text.object = nested;
		text.path = "text_config.";
		inner = c->family;
		r = config_value(&text, "model_type") ? find_family(&text, &inner) : 0;
		if (r < 0)
			return r;
		if (inner != c->family) {
			config_fail(&text, EINVAL, "model_type",
				    "contradicts the model_type above it");
			return text.error;
		}
	}
	read_text(&text, c);
	if (text.error < 0)
		return text.error;
	if (nested)
		quantised_config_read(&outer, &c->quantised);
	/* In a nested configuration (of a model with a vision tower) this key at the top overrides the nested one. */
	c->tie_word_embeddings =
		config_truth(&outer, "tie_word_embeddings", c->tie_word_embeddings);
	if (!read_end_tokens(&text, c))
		read_end_tokens(&outer, c);
	return outer.error < 0 ? outer.error : text.error;
}

int model_config_parse(const char *name, const char *json, size_t len, const char *generation,
		       size_t generation_len, struct model_config *ret, struct err *e)
{
	static const char generation_name[] = "generation_config.json";
	struct model_config *c;
	struct config_source s = {.file = generation_name, .path = "", .e = e};
	json_t *top = NULL, *defaults = NULL;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ENOMEM, "%s: out of memory", name);
	r = load(name, json, len, &top, e);
	if (r == 0 && generation)
		r = load(generation_name, generation, generation_len, &defaults, e);
	if (r == 0)
		r = read_config(name, top, c, e);
	if (r < 0)
		goto out;
	s.object = defaults;
	read_end_tokens(&s, c);
	read_sampling(&s, c);
	r = s.error;
	if (r == 0)
		*ret = *c;
out:
	json_decref(top);
	json_decref(defaults);
	free(c);
	return r;
}

/* Changes the conventions of the family's own files into those of llama.cpp's converter. */
static void convert_to_gguf(struct model_config *c)
{
	c->norm_adds_one = false; /* 1 was added to the stored weights */
	c->stores_neg_a = c->n_layers_of[LAYER_DELTA];
	/* with one key head, or one value head for each, both orders are the same */
	c->tiled_heads = c->family->gguf_tiles_heads && c->n_key_heads > 1 &&
			 c->n_value_heads != c->n_key_heads;
}

int model_config_read(const struct checkpoint *k, struct model_config *ret, struct err *e)
{
	struct checkpoint_text config, generation = {0};
	int r = checkpoint_read(k, CHECKPOINT_CONFIG, &config, e);
	bool defaults = false;

	if (r == 0) {
		r = checkpoint_read(k, CHECKPOINT_GENERATION, &generation, e);
		defaults = r == 0;
		r = r == -ENOENT ? 0 : r;
	}
	if (r == 0)
		r = model_config_parse(config.name, buf_str(&config.bytes), config.bytes.len,
				       defaults ? buf_str(&generation.bytes) : NULL,
				       generation.bytes.len, ret, e);
	if (r == 0 && checkpoint_names(k) == CHECKPOINT_GGUF)
		convert_to_gguf(ret);
	checkpoint_text_release(&config);
	checkpoint_text_release(&generation);
	return r;
}

int model_config_open(const char *path, struct model_config *ret, struct err *e)
{
	struct checkpoint *k;
	int r = checkpoint_open(path, &k, e);

	if (r < 0)
		return r;
	r = model_config_read(k, ret, e);
	checkpoint_close(k);
	return r;
}
