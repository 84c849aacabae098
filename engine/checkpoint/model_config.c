/*
 * Reading config.json. The keys and, where a key is missing, the defaults are those of the
 * configuration classes of transformers (Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3NextConfig),
 * whose saved nested configurations leave out what equals the default.
 */
#include "engine/checkpoint/model_config.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/file.h"

enum {
	CONFIG_MAX = 4 << 20, /* bytes */
	SIZE_LIMIT = 65536,   /* hidden and intermediate sizes */
	HEADS_LIMIT = 4096,
	EXPERTS_LIMIT = 4096,
	EXPERTS_PER_TOKEN_LIMIT = 32,
	POSITIONS_LIMIT = 1 << 30,
	VOCAB_LIMIT = (1 << 24) - 1,
};

/* One JSON object being read, and how messages call it: "DIR/config.json: text_config.". The first
 * error stays; readers after it return a default, so that a caller checks once. */
struct source {
	const char *file;
	const char *path; /* "" or "text_config." */
	const json_t *object;
	struct err *e;
	int error; /* 0 or -errno */
};

static void fail(struct source *s, int code, const char *key, const char *what)
{
	if (s->error == 0)
		s->error = err_set(s->e, code, "%s: %s%s %s", s->file, s->path, key, what);
}

/* The value of a key, NULL when it is missing or null. */
static const json_t *value(const struct source *s, const char *key)
{
	const json_t *v = json_object_get(s->object, key);

	return json_is_null(v) ? NULL : v;
}

static uint32_t whole(struct source *s, const char *key, uint32_t min, uint32_t max,
		      uint32_t missing)
{
	const json_t *v = value(s, key);
	json_int_t n;

	if (s->error < 0 || !v)
		return missing;
	n = json_integer_value(v);
	if (json_is_integer(v) && n >= min && n <= max)
		return (uint32_t)n;
	if (json_is_integer(v))
		s->error = err_set(s->e, EINVAL, "%s: %s%s is %lld, must be %u to %u", s->file,
				   s->path, key, (long long)n, min, max);
	else
		s->error = err_set(s->e, EINVAL, "%s: %s%s must be a whole number, %u to %u",
				   s->file, s->path, key, min, max);
	return missing;
}

static bool truth(struct source *s, const char *key, bool missing)
{
	const json_t *v = value(s, key);

	if (s->error < 0 || !v)
		return missing;
	if (!json_is_boolean(v))
		fail(s, EINVAL, key, "must be true or false");
	return json_is_true(v);
}

/* A number with min < value <= max, or min <= value when `closed`. */
static double real(struct source *s, const char *key, double min, double max, bool closed,
		   double missing)
{
	const json_t *v = value(s, key);
	double n;

	if (s->error < 0 || !v)
		return missing;
	n = json_number_value(v);
	if (json_is_number(v) && isfinite(n) && (closed ? n >= min : n > min) && n <= max)
		return n;
	s->error = err_set(s->e, EINVAL, "%s: %s%s must be a number %s %g and at most %g", s->file,
			   s->path, key, closed ? "of at least" : "above", min, max);
	return missing;
}

/* Refuses a key whose value is anything but the one that this engine computes. */
static void only_truth(struct source *s, const char *key, bool wanted)
{
	if (truth(s, key, wanted) != wanted && s->error == 0)
		fail(s, ENOTSUP, key,
		     wanted ? "is false, which is not supported"
			    : "is true, which is not supported");
}

static void only_word(struct source *s, const char *key, const char *wanted)
{
	const json_t *v = value(s, key);

	if (s->error < 0 || !v || (json_is_string(v) && !strcmp(json_string_value(v), wanted)))
		return;
	s->error = err_set(s->e, ENOTSUP, "%s: %s%s must be \"%s\": nothing else is supported",
			   s->file, s->path, key, wanted);
}

static int read_family(struct source *s, const char *type, enum model_family *ret)
{
	static const struct {
		const char *name;
		enum model_family family;
	} families[] = {
		{"qwen3_5", MODEL_QWEN3_5},	    {"qwen3_5_text", MODEL_QWEN3_5},
		{"qwen3_5_moe", MODEL_QWEN3_5_MOE}, {"qwen3_5_moe_text", MODEL_QWEN3_5_MOE},
		{"qwen3_next", MODEL_QWEN3_NEXT},
	};

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		if (strcmp(type, families[i].name))
			continue;
		*ret = families[i].family;
		return 0;
	}
	fail(s, ENOTSUP, "model_type",
	     "must be qwen3_5_moe, qwen3_5 or qwen3_next, with or without _text");
	return s->error;
}

static void read_layer_types(struct source *s, struct model_config *c)
{
	const json_t *types = value(s, "layer_types");
	uint32_t interval = whole(s, "full_attention_interval", 1, MODEL_LAYERS_MAX, 4);

	if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers))
		fail(s, EINVAL, "layer_types", "must be a list with num_hidden_layers entries");
	for (uint32_t i = 0; s->error == 0 && i < c->n_layers; i++) {
		const char *type = types ? json_string_value(json_array_get(types, i)) : NULL;

		if (!types)
			c->layers[i].mixer = (i + 1) % interval ? LAYER_DELTA : LAYER_ATTENTION;
		else if (type && !strcmp(type, "full_attention"))
			c->layers[i].mixer = LAYER_ATTENTION;
		else if (type && !strcmp(type, "linear_attention"))
			c->layers[i].mixer = LAYER_DELTA;
		else
			fail(s, ENOTSUP, "layer_types",
			     "holds something other than linear_attention and full_attention");
	}
}

/* RoPE is under rope_parameters, or rope_scaling with flat keys in older files; what is in the
 * object goes before what is beside it. */
static void read_rope(struct source *s, struct model_config *c)
{
	const json_t *scaling = value(s, "rope_scaling"), *v;
	const char *name = "rope_parameters", *key;
	struct source rope;
	double theta, factor;
	char path[64];

	theta = real(s, "rope_theta", 1, 1e15, true, 10000);
	factor = real(s, "partial_rotary_factor", 0, 1, false, 0.25);
	rope = *s;
	rope.object = value(s, "rope_parameters");
	if (json_object_size(scaling) || (scaling && !json_is_object(scaling))) {
		rope.object = scaling;
		name = "rope_scaling";
	}
	if (rope.object && !json_is_object(rope.object))
		fail(&rope, EINVAL, name, "must be an object");
	json_object_foreach((json_t *)rope.object, key, v) if (json_is_object(v))
		fail(&rope, ENOTSUP, name,
		     "differs between kinds of layers, which is not supported");
	snprintf(path, sizeof(path), "%s%s.", s->path, name);
	rope.path = path;
	only_word(&rope, "rope_type", "default");
	only_word(&rope, "type", "default");
	theta = real(&rope, "rope_theta", 1, 1e15, true, theta);
	factor = real(&rope, "partial_rotary_factor", 0, 1, false, factor);
	s->error = rope.error;
	c->rope_theta = theta;
	c->rotary_dim = (uint32_t)(c->head_dim * factor);
	if (c->rotary_dim < 2 || c->rotary_dim % 2)
		fail(s, ENOTSUP, "partial_rotary_factor",
		     "times head_dim must be an even number of at least 2");
}

static void read_attention(struct source *s, struct model_config *c)
{
	c->n_heads = whole(s, "num_attention_heads", 1, HEADS_LIMIT, 16);
	c->n_kv_heads =
		whole(s, "num_key_value_heads", 1, HEADS_LIMIT, c->family == MODEL_QWEN3_5 ? 4 : 2);
	c->head_dim = whole(s, "head_dim", 16, 256, 256);
	if (c->head_dim % 16)
		fail(s, ENOTSUP, "head_dim", "must be a multiple of 16");
	if (c->n_heads % c->n_kv_heads)
		fail(s, EINVAL, "num_attention_heads", "must be a multiple of num_key_value_heads");
	only_truth(s, "attention_bias", false);
	only_truth(s, "attn_output_gate", true);
	c->attention_gate = true;
	only_truth(s, "use_sliding_window", false);
	read_rope(s, c);
}

static void read_delta(struct source *s, struct model_config *c)
{
	c->n_key_heads = whole(s, "linear_num_key_heads", 1, HEADS_LIMIT, 16);
	c->n_value_heads = whole(s, "linear_num_value_heads", 1, HEADS_LIMIT, 32);
	c->key_head_dim = whole(s, "linear_key_head_dim", 16, 256, 128);
	c->value_head_dim = whole(s, "linear_value_head_dim", 16, 256, 128);
	c->conv_kernel = whole(s, "linear_conv_kernel_dim", 2, 8, 4);
	if (c->key_head_dim % 16)
		fail(s, ENOTSUP, "linear_key_head_dim", "must be a multiple of 16");
	if (c->value_head_dim % 16)
		fail(s, ENOTSUP, "linear_value_head_dim", "must be a multiple of 16");
	if (c->n_value_heads % c->n_key_heads)
		fail(s, EINVAL, "linear_num_value_heads",
		     "must be a multiple of linear_num_key_heads");
}

/* Which layers are dense: all of Qwen3.5, none of Qwen3.5-MoE, in Qwen3-Next those of
 * mlp_only_layers and those that decoder_sparse_step leaves out. */
static void read_dense_layers(struct source *s, struct model_config *c)
{
	const json_t *only = value(s, "mlp_only_layers"), *v;
	uint32_t step = whole(s, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, 1);
	size_t i;

	for (uint32_t k = 0; k < c->n_layers; k++)
		c->layers[k].mlp = c->family == MODEL_QWEN3_5 || c->n_experts == 0 ||
						   (c->family == MODEL_QWEN3_NEXT && (k + 1) % step)
					   ? LAYER_DENSE
					   : LAYER_MOE;
	if (c->family != MODEL_QWEN3_NEXT || !only)
		return;
	if (!json_is_array(only))
		fail(s, EINVAL, "mlp_only_layers", "must be a list of layer numbers");
	json_array_foreach(only, i, v)
	{
		json_int_t k = json_integer_value(v);

		if (!json_is_integer(v) || k < 0 || k >= c->n_layers) {
			fail(s, EINVAL, "mlp_only_layers", "must be a list of layer numbers");
			return;
		}
		c->layers[k].mlp = LAYER_DENSE;
	}
}

static void read_mlp(struct source *s, struct model_config *c)
{
	if (c->family != MODEL_QWEN3_5)
		c->n_experts = whole(s, "num_experts", c->family == MODEL_QWEN3_NEXT ? 0 : 1,
				     EXPERTS_LIMIT, c->family == MODEL_QWEN3_NEXT ? 512 : 256);
	read_dense_layers(s, c);
	for (uint32_t k = 0; k < c->n_layers; k++) {
		c->n_layers_of[c->layers[k].mixer]++;
		c->n_layers_of[c->layers[k].mlp]++;
	}
	if (c->n_layers_of[LAYER_MOE]) {
		c->n_experts_per_token = whole(s, "num_experts_per_tok", 1,
					       MIN(c->n_experts, (uint32_t)EXPERTS_PER_TOKEN_LIMIT),
					       c->family == MODEL_QWEN3_NEXT ? 10 : 8);
		if (c->n_experts_per_token > c->n_experts)
			fail(s, EINVAL, "num_experts_per_tok",
			     "is missing and its default is above num_experts");
		c->expert_size = whole(s, "moe_intermediate_size", 1, SIZE_LIMIT, 512);
		c->shared_expert_size =
			whole(s, "shared_expert_intermediate_size", 1, SIZE_LIMIT, 512);
	} else {
		c->n_experts = 0;
	}
	if (c->n_layers_of[LAYER_DENSE])
		c->mlp_size = whole(s, "intermediate_size", 1, SIZE_LIMIT,
				    c->family == MODEL_QWEN3_NEXT ? 5632 : 12288);
	/* Qwen3.5 always normalises, whatever the key says; a file that says otherwise is not
	 * understood. */
	c->norm_topk_prob = truth(s, "norm_topk_prob", true);
	if (c->family != MODEL_QWEN3_NEXT)
		only_truth(s, "norm_topk_prob", true);
	only_truth(s, "mlp_bias", false);
}

static void read_text(struct source *s, struct model_config *c)
{
	bool dense = c->family == MODEL_QWEN3_5, next = c->family == MODEL_QWEN3_NEXT;

	if (value(s, "quantization_config") || value(s, "compression_config"))
		fail(s, ENOTSUP, "quantization_config",
		     "is there: quantised checkpoints are not supported, only bf16, f16 and f32");
	c->hidden_size = whole(s, "hidden_size", 1, SIZE_LIMIT, dense ? 4096 : 2048);
	c->n_layers = whole(s, "num_hidden_layers", 1, MODEL_LAYERS_MAX,
			    dense  ? 32
			    : next ? 48
				   : 40);
	c->vocab_size = whole(s, "vocab_size", 1, VOCAB_LIMIT, next ? 151936 : 248320);
	c->max_position_embeddings = whole(s, "max_position_embeddings", 1, POSITIONS_LIMIT, 32768);
	c->rms_norm_eps = (float)real(s, "rms_norm_eps", 1e-20, 0.1, true, 1e-6);
	c->norm_adds_one = true;
	only_word(s, "hidden_act", "silu");
	read_layer_types(s, c);
	read_attention(s, c);
	read_delta(s, c);
	read_mlp(s, c);
	c->n_mtp_layers = whole(s, "mtp_num_hidden_layers", 0, MODEL_LAYERS_MAX,
				whole(s, "num_nextn_predict_layers", 0, MODEL_LAYERS_MAX, 0));
	c->tie_word_embeddings = truth(s, "tie_word_embeddings", false);
}

/* eos_token_id, a number or a list of them. True when the key was there. */
static bool read_end_tokens(struct source *s, struct model_config *c)
{
	const json_t *v = value(s, "eos_token_id");
	size_t n = json_is_array(v) ? json_array_size(v) : 1;

	if (s->error < 0 || !v)
		return false;
	c->n_end_tokens = 0;
	if (n > MODEL_END_TOKENS_MAX) {
		fail(s, EINVAL, "eos_token_id", "holds more than 16 tokens");
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
		json_int_t k = json_integer_value(id);

		if (!json_is_integer(id) || k < 0 || k >= c->vocab_size) {
			fail(s, EINVAL, "eos_token_id",
			     "must be a token id below vocab_size, or a list of them");
			return true;
		}
		c->end_tokens[c->n_end_tokens++] = (int32_t)k;
	}
	return true;
}

/* Defaults of a request, as vLLM takes them with --generation-config auto: whatever the file
 * states, without regard to do_sample, which only tells transformers' own generate() whether to
 * draw. */
static void read_sampling(struct source *s, struct model_config *c)
{
	const json_t *top_k = value(s, "top_k");

	c->default_temperature = (float)real(s, "temperature", 0, 2, true, 1);
	c->default_top_p = (float)real(s, "top_p", 1e-6, 1, true, 1);
	c->default_min_p = (float)real(s, "min_p", 0, 1, true, 0);
	c->default_repetition_penalty = (float)real(s, "repetition_penalty", 1e-3, 10, true, 1);
	/* -1 and 0 both mean that there is no such limit. */
	if (!json_is_integer(top_k) || json_integer_value(top_k) != -1)
		c->default_top_k = (int32_t)whole(s, "top_k", 0, VOCAB_LIMIT, 0);
}

static json_t *load(const char *file, const char *text, size_t len, struct err *e)
{
	json_error_t why;
	json_t *v;

	if (len > CONFIG_MAX) {
		err_set(e, EFBIG, "%s: more than the %d bytes that are read", file, CONFIG_MAX);
		return NULL;
	}
	v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!v) {
		err_set(e, EINVAL, "%s: not valid JSON at line %d, column %d", file, why.line,
			why.column);
		return NULL;
	}
	if (!json_is_object(v)) {
		json_decref(v);
		err_set(e, EINVAL, "%s: not a JSON object", file);
		return NULL;
	}
	return v;
}

static int read_config(const char *file, const json_t *top, struct model_config *c, struct err *e)
{
	struct source outer = {.file = file, .path = "", .object = top, .e = e}, text = outer;
	const json_t *nested = value(&outer, "text_config");
	const char *type = json_string_value(value(&outer, "model_type"));
	enum model_family inner;
	int r;

	r = read_family(&outer, type ? type : "", &c->family);
	if (r < 0)
		return r;
	if (value(&outer, "quantization_config"))
		fail(&outer, ENOTSUP, "quantization_config",
		     "is there: quantised checkpoints are not supported, only bf16, f16 and f32");
	if (nested && !json_is_object(nested))
		fail(&outer, EINVAL, "text_config", "must be an object");
	if (outer.error < 0)
		return outer.error;
	if (nested) {
		text.object = nested;
		text.path = "text_config.";
		type = json_string_value(value(&text, "model_type"));
		r = type ? read_family(&text, type, &inner) : 0;
		if (r < 0)
			return r;
		if (type && inner != c->family) {
			fail(&text, EINVAL, "model_type", "contradicts the model_type above it");
			return text.error;
		}
	}
	read_text(&text, c);
	if (text.error < 0)
		return text.error;
	/* With a vision tower the whole model's key, at the top, is the one that holds. */
	c->tie_word_embeddings = truth(&outer, "tie_word_embeddings", c->tie_word_embeddings);
	if (!read_end_tokens(&text, c))
		read_end_tokens(&outer, c);
	return outer.error < 0 ? outer.error : text.error;
}

int model_config_parse(const char *name, const char *json, size_t len, const char *generation,
		       size_t generation_len, struct model_config *ret, struct err *e)
{
	static const char generation_name[] = "generation_config.json";
	struct model_config *c;
	struct source s = {.file = generation_name, .path = "", .e = e};
	json_t *top = NULL, *defaults = NULL;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ENOMEM, "%s: out of memory", name);
	r = -EINVAL;
	top = load(name, json, len, e);
	if (!top)
		goto out;
	if (generation) {
		defaults = load(generation_name, generation, generation_len, e);
		if (!defaults)
			goto out;
	}
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

/* Reads DIR/name into out. *ret_is: whether there is such a file. */
static int read_optional(int dir_fd, const char *dir, const char *name, struct buf *out,
			 bool *ret_is, struct err *e)
{
	char shown[512];

	*ret_is = faccessat(dir_fd, name, F_OK, 0) == 0;
	if (!*ret_is)
		return 0;
	snprintf(shown, sizeof(shown), "%s/%s", dir, name);
	return file_read(dir_fd, name, shown, out, e);
}

int model_config_open(const char *dir, struct model_config *ret, struct err *e)
{
	struct buf config, generation;
	bool has_generation = false;
	char shown[512];
	int dir_fd, r;

	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return err_set(e, errno, "%s: cannot open the directory: %s", dir, strerror(errno));
	buf_init(&config, CONFIG_MAX);
	buf_init(&generation, CONFIG_MAX);
	snprintf(shown, sizeof(shown), "%s/config.json", dir);
	r = file_read(dir_fd, "config.json", shown, &config, e);
	if (r == 0)
		r = read_optional(dir_fd, dir, "generation_config.json", &generation,
				  &has_generation, e);
	if (r == 0)
		r = model_config_parse(shown, buf_str(&config), config.len,
				       has_generation ? buf_str(&generation) : NULL, generation.len,
				       ret, e);
	buf_release(&config);
	buf_release(&generation);
	close(dir_fd);
	return r;
}
