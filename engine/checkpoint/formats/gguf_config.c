/* config.json and generation_config.json of the keys of a GGUF file. Most keys only get another name, so their values are
 * checked by the reader of config.json (model_config.c). A key that changes the mathematics and has no counterpart there is
 * refused unless its value changes nothing. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/formats/gguf_texts.h"
#include "engine/checkpoint/model_config.h"

/* The parts that models of an architecture may have, beside those of all models. */
enum { DELTA = 1, DENSE = 2, EXPERTS = 4, SHARED = 8, SLIDING = 16 };

static const struct architecture {
	const char *name;	/* general.architecture, and the beginning of keys */
	const char *model_type; /* in config.json */
	unsigned parts;
} architectures[] = {
	{"qwen35", "qwen3_5", DELTA | DENSE},
	{"qwen35moe", "qwen3_5_moe", DELTA | EXPERTS | SHARED},
	{"qwen3next", "qwen3_next", DELTA | EXPERTS | SHARED},
	{"qwen3", "qwen3", DENSE},
	{"qwen3moe", "qwen3_moe", EXPERTS},
	{"qwen2", "qwen2", DENSE},
	{"llama", "llama", DENSE},
	{"gemma3", "gemma3_text", DENSE | SLIDING},
};

const char *gguf_architecture(const char *model_type)
{
	size_t len = strlen(model_type);

	for (size_t i = 0; i < ARRAY_SIZE(architectures); i++) {
		const char *own = architectures[i].model_type;

		if (!strncmp(own, model_type, len) && (!own[len] || !strcmp(own + len, "_text")))
			return architectures[i].name;
	}
	return NULL;
}

/* Keys that only get another name. */
static const struct renamed {
	unsigned part; /* 0: of all models */
	const char *key, *name;
	bool optional;
} renamed[] = {
	{0, "embedding_length", "hidden_size", false},
	{0, "context_length", "max_position_embeddings", false},
	{0, "attention.head_count", "num_attention_heads", false},
	{0, "attention.layer_norm_rms_epsilon", "rms_norm_eps", false},
	{0, "rope.freq_base", "rope_theta", true},
	{DENSE, "feed_forward_length", "intermediate_size", false},
	{EXPERTS, "expert_count", "num_experts", false},
	{EXPERTS, "expert_used_count", "num_experts_per_tok", false},
	{EXPERTS, "expert_feed_forward_length", "moe_intermediate_size", false},
	{SHARED, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", false},
	{SLIDING, "rope.freq_base_swa", "rope_local_base_freq", true},
	{DELTA, "ssm.conv_kernel", "linear_conv_kernel_dim", false},
	{DELTA, "ssm.state_size", "linear_key_head_dim", false},
	{DELTA, "ssm.group_count", "linear_num_key_heads", false},
	{DELTA, "ssm.time_step_rank", "linear_num_value_heads", false},
};

/* Keys that change the mathematics, and the value with which they do not; the number 0 does not either. `read`: the part
 * whose models may have any value. */
static const struct {
	const char *key;
	double neutral;
	unsigned read;
} refused[] = {
	{"attention.causal", 1},
	{"attention.clamp_kqv", 0},
	{"attention.max_alibi_bias", 0},
	{"attention.scale", 0, SLIDING},
	{"attention.sliding_window", 0, SLIDING},
	{"attn_logit_softcapping", 0},
	{"embedding_scale", 1},
	{"expert_gating_func", 1},
	{"expert_weights_norm", 1},
	{"expert_weights_scale", 1},
	{"final_logit_softcapping", 0},
	{"logit_scale", 1},
	{"residual_scale", 1},
};

struct maker {
	const struct gguf_source *s;
	const struct architecture *a;
	json_t *top;
	struct err *e;
};

/* ---- keys ---- */

/* Writes the whole name of a key of the architecture to out [256]. */
static const char *full_name(const struct maker *m, const char *key, char out[256])
{
	snprintf(out, 256, "%s.%s", m->a->name, key);
	return out;
}

static const struct gguf_key *find(const struct maker *m, const char *key)
{
	char name[256];

	return gguf_find(m->s->keys, full_name(m, key, name));
}

static int fail(const struct maker *m, int code, const char *key, const char *what)
{
	char name[256];

	return err_set(m->e, code, "%s: key %s %s", m->s->keys->shown, full_name(m, key, name),
		       what);
}

/* Sets a member of config.json. Takes over the value; NULL: the key has a value that JSON has not. */
static int set(const struct maker *m, const char *name, const char *key, json_t *value)
{
	if (value && json_object_set_new(m->top, name, value) == 0)
		return 0;
	return fail(m, EINVAL, key, "has a value that cannot be used");
}

/* Reads a whole number. A key that is missing leaves *ret as it is. */
static int whole(const struct maker *m, const char *key, bool optional, uint64_t *ret)
{
	const struct gguf_key *k = find(m, key);

	if (!k)
		return optional ? 0 : fail(m, EINVAL, key, "is missing");
	if (k->array || !gguf_whole(k, 0, ret) || *ret > INT32_MAX)
		return fail(m, EINVAL, key, "is no whole number up to 2147483647");
	return 0;
}

static int rename_keys(const struct maker *m)
{
	for (const struct renamed *r = renamed; r < renamed + ARRAY_SIZE(renamed); r++) {
		const struct gguf_key *k = find(m, r->key);
		int error = 0;

		if (r->part && !(m->a->parts & r->part))
			continue;
		if (k)
			error = set(m, r->name, r->key, gguf_json(k));
		else if (!r->optional)
			error = fail(m, EINVAL, r->key, "is missing");
		if (error < 0)
			return error;
	}
	return 0;
}

static int refuse_keys(const struct maker *m)
{
	uint64_t experts = 0;
	int error = whole(m, "expert_count", true, &experts);

	if (error < 0)
		return error;
	if (experts && !(m->a->parts & EXPERTS))
		return fail(m, ENOTSUP, "expert_count", "has a value that is not supported");
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct gguf_key *k = find(m, refused[i].key);
		json_t *v = k ? gguf_json(k) : NULL;
		double n = json_number_value(v);
		bool neutral = !k || m->a->parts & refused[i].read ||
			       (json_is_number(v) && (n == 0 || n == refused[i].neutral)) ||
			       (json_is_true(v) && refused[i].neutral == 1);

		json_decref(v);
		if (!neutral)
			return fail(m, ENOTSUP, refused[i].key,
				    "has a value that is not supported");
	}
	return 0;
}

/* ---- layers ---- */

/* Writes layer_types. `k` says of each layer whether it is of the `other` kind; NULL: all have full attention. */
static int set_layer_types(const struct maker *m, const char *key, const struct gguf_key *k,
			   const char *other, uint64_t n_layers)
{
	json_t *list;

	if (k && (!k->array || k->type != GGUF_BOOL || k->n < n_layers))
		return fail(m, EINVAL, key, "is no list of a truth value for each layer");
	list = json_array();
	for (uint64_t i = 0; list && i < n_layers; i++)
		if (json_array_append_new(list, json_string(k && k->value[i] ? other
									     : "full_attention")) <
		    0) {
			json_decref(list);
			list = NULL;
		}
	return set(m, "layer_types", key, list);
}

/* Writes layer_types of recurrent_layers, which says of each layer whether it has no attention; or
 * full_attention_interval. */
static int set_mixers(const struct maker *m, uint64_t n_layers)
{
	const char *key = "attention.recurrent_layers";
	const struct gguf_key *k = find(m, key);
	uint64_t interval = 4;
	int error;

	if (k)
		return set_layer_types(m, key, k, "linear_attention", n_layers);
	error = whole(m, "full_attention_interval", true, &interval);
	return error < 0 ? error
			 : set(m, "full_attention_interval", "full_attention_interval",
			       json_integer((json_int_t)interval));
}

/* Writes the window, and which layers have it. Without a window all layers have full attention. The pattern is a list, or
 * the distance between layers with full attention, which is GGUF_WINDOW_INTERVAL if the file does not say it. */
static int set_windows(const struct maker *m, uint64_t n_layers)
{
	const char *key = "attention.sliding_window_pattern";
	const struct gguf_key *k = find(m, key);
	uint64_t window = 0, interval = GGUF_WINDOW_INTERVAL;
	int error = whole(m, "attention.sliding_window", true, &window);

	if (error < 0)
		return error;
	if (!window)
		return set_layer_types(m, key, NULL, NULL, n_layers);
	error = set(m, "sliding_window", "attention.sliding_window",
		    json_integer((json_int_t)window));
	if (error < 0)
		return error;
	if (k && k->array)
		return set_layer_types(m, key, k, "sliding_attention", n_layers);
	error = whole(m, key, true, &interval);
	if (error == 0 && (!interval || interval > MODEL_LAYERS_MAX))
		return fail(m, ENOTSUP, key, "is not from 1 to 512");
	return error < 0
		       ? error
		       : set(m, "sliding_window_pattern", key, json_integer((json_int_t)interval));
}

/* Writes the number of layers, without those of multi-token prediction, which block_count includes. */
static int set_layers(const struct maker *m)
{
	uint64_t n = 0, mtp = 0;
	int error = whole(m, "block_count", false, &n);

	if (error == 0)
		error = whole(m, "nextn_predict_layers", true, &mtp);
	if (error < 0)
		return error;
	if (mtp >= n)
		return fail(m, EINVAL, "nextn_predict_layers", "leaves no layers of block_count");
	n -= mtp;
	if (n > MODEL_LAYERS_MAX)
		return fail(m, EINVAL, "block_count", "is above 512");
	error = set(m, "num_hidden_layers", "block_count", json_integer((json_int_t)n));
	if (error == 0 && mtp)
		error = set(m, "mtp_num_hidden_layers", "nextn_predict_layers",
			    json_integer((json_int_t)mtp));
	if (error == 0 && m->a->parts & DELTA)
		error = set_mixers(m, n);
	if (error == 0 && m->a->parts & SLIDING)
		error = set_windows(m, n);
	return error;
}

static int set_value_heads(const struct maker *m)
{
	uint64_t heads = 0, inner = 0;
	int error = whole(m, "ssm.time_step_rank", false, &heads);

	if (error == 0)
		error = whole(m, "ssm.inner_size", false, &inner);
	if (error < 0)
		return error;
	if (!heads || inner % heads)
		return fail(m, EINVAL, "ssm.inner_size", "is no multiple of ssm.time_step_rank");
	return set(m, "linear_value_head_dim", "ssm.inner_size",
		   json_integer((json_int_t)(inner / heads)));
}

/* ---- attention and RoPE ---- */

/* Returns the share of a head that is rotated: a number whose product with head_dim, rounded down, is n. */
static double rotary_share(uint64_t n, uint64_t head_dim)
{
	double share = (double)n / (double)head_dim;

	return (uint64_t)((double)head_dim * share) < n ? nextafter(share, 1) : share;
}

/* The numbers of Llama 3's scaling of RoPE that all published models share. */
#define LOW_FACTOR  1.0
#define HIGH_FACTOR 4.0

/* Returns whether the numbers by which frequencies are divided, data [n] in any alignment, are those of Llama 3's scaling
 * by `factor` of a model that was trained with `context` positions. */
static bool is_llama3(const uint8_t *data, uint64_t n, double theta, double factor, double context)
{
	const double two_pi = 6.283185307179586;

	for (uint64_t i = 0; i < n; i++) {
		double wavelength = two_pi * pow(theta, (double)i / (double)n), want = 1;
		double smooth = (context / wavelength - LOW_FACTOR) / (HIGH_FACTOR - LOW_FACTOR);
		float stored;

		if (wavelength > context / LOW_FACTOR)
			want = factor;
		else if (wavelength >= context / HIGH_FACTOR)
			want = 1 / ((1 - smooth) / factor + smooth);
		memcpy(&stored, data + i * sizeof(stored), sizeof(stored));
		if (!(fabs((double)stored - want) <= 1e-4 * want))
			return false;
	}
	return true;
}

/* Writes Llama 3's scaling of RoPE. GGUF files have no keys of it, but the number by which each frequency is divided
 * (`factors`, one for each pair of dimensions). The original context is the power of two with which they agree. */
static int set_llama3_rope(const struct maker *m, const struct tensor *factors, uint64_t rotary)
{
	const double theta = json_number_value(json_object_get(m->top, "rope_theta"));
	const uint8_t *data = factors->data;
	uint64_t n = rotary / 2;
	int context = 64;
	float factor;

	if (strcmp(factors->type->name, "F32") != 0 || factors->n_dims != 1 || !n ||
	    factors->shape[0] != n)
		return err_set(m->e, EINVAL, "%s: tensor %s is not %llu numbers of type F32",
			       factors->file, factors->name, (unsigned long long)n);
	memcpy(&factor, data + (n - 1) * sizeof(factor), sizeof(factor));
	while (context < 1 << 20 && !is_llama3(data, n, theta, (double)factor, context))
		context *= 2;
	if (context == 1 << 20)
		return err_set(m->e, ENOTSUP,
			       "%s: tensor %s has other numbers than Llama 3's, which is not "
			       "supported",
			       factors->file, factors->name);
	return set(m, "rope_scaling", "rope.freq_base",
		   json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
			     (double)factor, "low_freq_factor", LOW_FACTOR, "high_freq_factor",
			     HIGH_FACTOR, "original_max_position_embeddings", context));
}

/* Writes the scaling of RoPE, if there is any, as rope_scaling. */
static int set_rope_scaling(const struct maker *m, uint64_t rotary)
{
	static const char *const keys[][2] = {
		{"rope.scaling.factor", "factor"},
		{"rope.scaling.original_context_length", "original_max_position_embeddings"},
		{"rope.scaling.attn_factor", "attention_factor"},
		{"rope.scaling.yarn_beta_fast", "beta_fast"},
		{"rope.scaling.yarn_beta_slow", "beta_slow"},
	};
	const struct gguf_key *type = find(m, "rope.scaling.type");
	const struct tensor *factors =
		tensor_find(m->s->tensors, m->s->n_tensors, "rope_freqs.weight");
	json_t *scaling, *name = type ? gguf_json(type) : NULL;

	if (factors) {
		json_decref(name);
		return set_llama3_rope(m, factors, rotary);
	}
	if (!type)
		return 0;
	if (!json_is_string(name)) {
		json_decref(name);
		return fail(m, EINVAL, "rope.scaling.type", "is no text");
	}
	if (!strcmp(json_string_value(name), "none")) {
		json_decref(name);
		return 0;
	}
	scaling = json_pack("{s:o}", "rope_type", name);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct gguf_key *k = find(m, keys[i][0]);

		if (k && json_object_set_new(scaling, keys[i][1], gguf_json(k)) < 0) {
			json_decref(scaling);
			return fail(m, EINVAL, keys[i][0], "has a value that cannot be used");
		}
	}
	return set(m, "rope_scaling", "rope.scaling.type", scaling);
}

uint32_t gguf_score_size(uint64_t n_layers, uint64_t hidden, uint64_t heads, uint64_t head_dim)
{
	return (uint32_t)(n_layers == 62 ? hidden / heads : head_dim);
}

/* Writes query_pre_attn_scalar, the number whose square root divides attention's scores. A file may have attention.scale,
 * which is what scores are multiplied by. */
static int set_score_size(const struct maker *m, uint64_t hidden, uint64_t heads, uint64_t size)
{
	static const char key[] = "attention.scale";
	const struct gguf_key *k = find(m, key);
	json_t *v = k ? gguf_json(k) : NULL;
	double scale = json_number_value(v), n;

	json_decref(v);
	size = gguf_score_size((uint64_t)json_integer_value(
				       json_object_get(m->top, "num_hidden_layers")),
			       hidden, heads, size);
	if (k && scale != 0) {
		n = round(1 / (scale * scale));
		if (!(scale > 0) || !(n >= 1 && n <= 1 << 20) || fabs(scale * sqrt(n) - 1) > 1e-6)
			return fail(m, ENOTSUP, key,
				    "is not 1 divided by the square root of a whole number");
		size = (uint64_t)n;
	}
	return set(m, "query_pre_attn_scalar", key, json_integer((json_int_t)size));
}

static int set_attention(const struct maker *m)
{
	uint64_t hidden = 0, heads = 0, size = 0, value = 0, rotary;
	const struct gguf_key *kv = find(m, "attention.head_count_kv");
	int error = whole(m, "attention.head_count", false, &heads);

	if (error == 0)
		error = whole(m, "embedding_length", false, &hidden);
	size = heads ? hidden / heads : 0;
	if (error == 0)
		error = whole(m, "attention.key_length", true, &size);
	value = rotary = size;
	if (error == 0)
		error = whole(m, "attention.value_length", true, &value);
	if (error == 0)
		error = whole(m, "rope.dimension_count", true, &rotary);
	if (error < 0)
		return error;
	if (value != size)
		return fail(m, ENOTSUP, "attention.value_length",
			    "differs from attention.key_length, which is not supported");
	if (!size || !rotary || rotary > size)
		return fail(m, EINVAL, "rope.dimension_count",
			    "is not from 1 to the size of a head");
	if (!find(m, "rope.freq_base"))
		error = set(m, "rope_theta", "rope.freq_base", json_real(10000));
	if (error == 0)
		error = set(m, "num_key_value_heads", "attention.head_count_kv",
			    kv ? gguf_json(kv) : json_integer((json_int_t)heads));
	if (error == 0)
		error = set(m, "head_dim", "attention.key_length", json_integer((json_int_t)size));
	if (error == 0)
		error = set(m, "partial_rotary_factor", "rope.dimension_count",
			    json_real(rotary_share(rotary, size)));
	if (error == 0 && m->a->parts & SLIDING)
		error = set_score_size(m, hidden, heads, size);
	return error < 0 ? error : set_rope_scaling(m, rotary);
}

/* ---- the vocabulary ---- */

static int set_vocabulary(const struct maker *m)
{
	const struct gguf_source *s = m->s;
	const struct tensor *embed = tensor_find(s->tensors, s->n_tensors, "token_embd.weight");
	const struct gguf_key *tokens = gguf_find(s->keys, "tokenizer.ggml.tokens");
	uint64_t n = tokens ? tokens->n : 0;
	int error = 0;

	if (embed && embed->n_dims == 2)
		n = embed->shape[0];
	if (n)
		error = set(m, "vocab_size", "vocab_size",
			    n <= INT32_MAX ? json_integer((json_int_t)n) : NULL);
	if (error == 0)
		error = set(m, "tie_word_embeddings", "vocab_size",
			    json_boolean(!tensor_find(s->tensors, s->n_tensors, "output.weight")));
	return error;
}

/* ---- whole texts ---- */

static int find_architecture(struct maker *m)
{
	static const char key[] = "general.architecture";
	const struct gguf_file *f = m->s->keys;
	char name[64], names[128] = "";
	bool text = gguf_text(gguf_find(f, key), name, sizeof(name));
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(architectures); i++) {
		if (!strcmp(name, architectures[i].name))
			m->a = &architectures[i];
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
				       i == 0				   ? ""
				       : i + 1 < ARRAY_SIZE(architectures) ? ", "
									   : " or ",
				       architectures[i].name);
	}
	if (m->a)
		return 0;
	if (!text)
		return err_set(m->e, EINVAL, "%s: key %s is missing, or no text", f->shown, key);
	return err_set(m->e, ENOTSUP, "%s: key %s is \"%s\", but must be %s", f->shown, key, name,
		       names);
}

int gguf_dump(json_t *json, const struct gguf_source *s, struct buf *out, struct err *e)
{
	char *text = json ? json_dumps(json, JSON_REAL_PRECISION(17)) : NULL;

	json_decref(json);
	if (text)
		buf_puts(out, text);
	free(text);
	return text && !out->failed ? 0 : err_set(e, ENOMEM, "%s: out of memory", s->keys->shown);
}

int gguf_config(const struct gguf_source *s, struct buf *out, struct err *e)
{
	struct maker m = {.s = s, .e = e};
	int error = find_architecture(&m);

	if (error < 0)
		return error;
	m.top = json_pack("{s:s}", "model_type", m.a->model_type);
	if (!m.top)
		return err_set(e, ENOMEM, "%s: out of memory", s->keys->shown);
	error = rename_keys(&m);
	if (error == 0)
		error = refuse_keys(&m);
	if (error == 0)
		error = set_layers(&m);
	if (error == 0)
		error = set_attention(&m);
	if (error == 0 && m.a->parts & DELTA)
		error = set_value_heads(&m);
	/* llama.cpp normalises the weights of the chosen experts in all of these models */
	if (error == 0 && m.a->parts & EXPERTS)
		error = set(&m, "norm_topk_prob", "expert_used_count", json_true());
	if (error == 0)
		error = set_vocabulary(&m);
	if (error == 0)
		return gguf_dump(m.top, s, out, e);
	json_decref(m.top);
	return error;
}

/* ---- generation_config.json ---- */

/* Adds a number to the list, unless it is there already. */
static void add_end(json_t *list, int64_t id)
{
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v) if (json_integer_value(v) == id) return;
	json_array_append_new(list, json_integer(id));
}

/* Makes the list of end tokens: those of three keys, and control tokens with which models are known to end an answer.
 * Files have no key for the list that Hugging Face's have, and llama.cpp looks for these texts, too. */
static json_t *end_tokens(const struct gguf_source *s, const struct gguf_vocab *v)
{
	static const char *const keys[] = {"tokenizer.ggml.eos_token_id",
					   "tokenizer.ggml.eot_token_id",
					   "tokenizer.ggml.eom_token_id"};
	static const char *const ends[] = {"<|im_end|>", "<|endoftext|>",   "<|eot_id|>",
					   "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>"};
	const uint8_t *at = v->tokens->value;
	json_t *list = json_array();
	size_t len;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		int64_t id = gguf_token_id(s, v, keys[i]);

		if (id >= 0)
			add_end(list, id);
	}
	for (uint64_t id = 0; id < v->tokens->n; id++) {
		const char *text = gguf_next_string(&at, &len);

		for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
			if (len == strlen(ends[i]) && !memcmp(text, ends[i], len) &&
			    gguf_token_type(v, id) == GGUF_TOKEN_CONTROL)
				add_end(list, (int64_t)id);
	}
	return list;
}

int gguf_generation(const struct gguf_source *s, struct buf *out, struct err *e)
{
	static const char *const sampling[][2] = {
		{"general.sampling.temp", "temperature"},
		{"general.sampling.top_k", "top_k"},
		{"general.sampling.top_p", "top_p"},
		{"general.sampling.min_p", "min_p"},
		{"general.sampling.penalty_repeat", "repetition_penalty"},
	};
	json_t *top = json_object();
	struct gguf_vocab v;
	int error = gguf_vocab(s, &v, e);

	if (error == 0)
		json_object_set_new(top, "eos_token_id", end_tokens(s, &v));
	error = error == -ENOENT ? 0 : error;
	for (size_t i = 0; error == 0 && i < ARRAY_SIZE(sampling); i++) {
		const struct gguf_key *k = gguf_find(s->keys, sampling[i][0]);

		if (k && json_object_set_new(top, sampling[i][1], gguf_json(k)) < 0)
			error = err_set(e, EINVAL, "%s: key %s has a value that cannot be used",
					s->keys->shown, k->name);
	}
	if (error == 0)
		return gguf_dump(top, s, out, e);
	json_decref(top);
	return error;
}
