/*
 * A Hugging Face checkpoint from weights, so that other programs can run the same numbers.
 *
 * The layout is that which transformers, and the servers that follow it, take for a text-only model
 * of the family: names under "model.", flat config.json. Qwen3.5-MoE has packed experts and
 * separate projections; Qwen3-Next has one tensor an expert and the interleaved in_proj_qkvz and
 * in_proj_ba. Numbers are rounded to bf16, which changes nothing in synthetic weights and bf16
 * checkpoints.
 */
#include "engine/checkpoint/weights_internal.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/macros.h"
#include "base/file.h"

#define SHARD_BYTES ((uint64_t)4 << 30)

enum { NAMES_MAX = 1 << 30, SMALL_FILE_MAX = 256 << 20 };

/* How the rows of a tensor follow from the rows of weights. */
enum form {
	FORM_ROLE,    /* the rows of one weight */
	FORM_GATE_UP, /* for each expert gate, then up */
	FORM_DOWN,    /* for each expert down */
	FORM_QKVZ,    /* for each key head q, k, v, z */
	FORM_BA,      /* for each key head b, a */
};

struct item {
	enum form form;
	enum weight_role role;
	uint32_t layer, expert;
	uint64_t rows, cols; /* of the whole tensor */
};

struct export
{
	const struct weights *w;
	const struct model_config *c;
	const char *dir;
	struct arena names;
	struct tensor *tensors; /* owned, [n], in the order of the model */
	struct item *items;	/* owned, [n] */
	size_t n, cap;
	size_t first; /* of the file being written */
	float *row;   /* owned, the widest row */
	bool failed;  /* out of memory while listing */
};

static void add(struct export *x, struct item item, const uint64_t *shape, uint32_t n_dims,
		const char *fmt, ...) PRINTF(5, 6);
static void add(struct export *x, struct item item, const uint64_t *shape, uint32_t n_dims,
		const char *fmt, ...)
{
	char name[TENSOR_NAME_MAX + 1];
	struct tensor *t;
	va_list ap;

	if (x->n == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 256;
		struct tensor *tensors = reallocarray(x->tensors, cap, sizeof(*tensors));
		struct item *items;

		if (tensors)
			x->tensors = tensors;
		items = reallocarray(x->items, cap, sizeof(*items));
		if (items)
			x->items = items;
		if (!tensors || !items) {
			x->failed = true;
			return;
		}
		x->cap = cap;
	}
	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	t = &x->tensors[x->n];
	*t = (struct tensor){
		.name = arena_strdup(&x->names, name),
		.n_dims = n_dims,
		.bytes = 2,
		.dtype = TENSOR_BF16,
		.dtype_name = "BF16",
	};
	item.rows = 1;
	for (uint32_t i = 0; i < n_dims; i++) {
		t->shape[i] = shape[i];
		t->bytes *= shape[i];
		item.rows *= i + 1 < n_dims ? shape[i] : 1;
	}
	item.cols = shape[n_dims - 1];
	x->items[x->n++] = item;
	if (!t->name)
		x->failed = true;
}

static void add_role(struct export *x, enum weight_role role, uint32_t layer, uint32_t expert,
		     uint32_t n_dims, const char *name)
{
	uint64_t rows, cols;

	weights_shape(x->c, role, layer, &rows, &cols);
	{
		struct item item = {FORM_ROLE, role, layer, expert, 0, 0};
		uint64_t vector[1] = {cols}, matrix[2] = {rows, cols}, conv[3] = {rows, 1, cols};

		add(x, item,
		    n_dims == 1	  ? vector
		    : n_dims == 2 ? matrix
				  : conv,
		    n_dims, "%s", name);
	}
}

static void add_layer_role(struct export *x, enum weight_role role, uint32_t layer, uint32_t n_dims,
			   const char *name)
{
	char full[TENSOR_NAME_MAX + 1];

	snprintf(full, sizeof(full), "model.layers.%u.%s", layer, name);
	add_role(x, role, layer, 0, n_dims, full);
}

static void list_delta(struct export *x, uint32_t layer)
{
	const struct model_config *c = x->c;
	uint64_t key = (uint64_t)c->n_key_heads * c->key_head_dim;
	uint64_t value = (uint64_t)c->n_value_heads * c->value_head_dim;

	add_layer_role(x, WEIGHT_DELTA_A_LOG, layer, 1, "linear_attn.A_log");
	add_layer_role(x, WEIGHT_DELTA_DT_BIAS, layer, 1, "linear_attn.dt_bias");
	add_layer_role(x, WEIGHT_DELTA_CONV, layer, 3, "linear_attn.conv1d.weight");
	add_layer_role(x, WEIGHT_DELTA_NORM, layer, 1, "linear_attn.norm.weight");
	add_layer_role(x, WEIGHT_DELTA_OUT, layer, 2, "linear_attn.out_proj.weight");
	if (c->family == MODEL_QWEN3_NEXT) {
		uint64_t qkvz[2] = {2 * key + 2 * value, c->hidden_size};
		uint64_t ba[2] = {2 * (uint64_t)c->n_value_heads, c->hidden_size};

		add(x, (struct item){.form = FORM_QKVZ, .layer = layer}, qkvz, 2,
		    "model.layers.%u.linear_attn.in_proj_qkvz.weight", layer);
		add(x, (struct item){.form = FORM_BA, .layer = layer}, ba, 2,
		    "model.layers.%u.linear_attn.in_proj_ba.weight", layer);
		return;
	}
	add_layer_role(x, WEIGHT_DELTA_QKV, layer, 2, "linear_attn.in_proj_qkv.weight");
	add_layer_role(x, WEIGHT_DELTA_Z, layer, 2, "linear_attn.in_proj_z.weight");
	add_layer_role(x, WEIGHT_DELTA_B, layer, 2, "linear_attn.in_proj_b.weight");
	add_layer_role(x, WEIGHT_DELTA_A, layer, 2, "linear_attn.in_proj_a.weight");
}

static void list_attention(struct export *x, uint32_t layer)
{
	add_layer_role(x, WEIGHT_ATTN_Q, layer, 2, "self_attn.q_proj.weight");
	add_layer_role(x, WEIGHT_ATTN_K, layer, 2, "self_attn.k_proj.weight");
	add_layer_role(x, WEIGHT_ATTN_V, layer, 2, "self_attn.v_proj.weight");
	add_layer_role(x, WEIGHT_ATTN_O, layer, 2, "self_attn.o_proj.weight");
	add_layer_role(x, WEIGHT_ATTN_Q_NORM, layer, 1, "self_attn.q_norm.weight");
	add_layer_role(x, WEIGHT_ATTN_K_NORM, layer, 1, "self_attn.k_norm.weight");
}

static void list_experts(struct export *x, uint32_t layer)
{
	static const char *const projections[WEIGHT_EXPERT_ROLES] = {"gate", "up", "down"};
	const struct model_config *c = x->c;
	uint64_t n = c->n_experts, size = c->expert_size, d = c->hidden_size;
	uint64_t gate_up[3] = {n, 2 * size, d}, down[3] = {n, d, size};
	char name[TENSOR_NAME_MAX + 1];

	if (c->family != MODEL_QWEN3_NEXT) {
		add(x, (struct item){.form = FORM_GATE_UP, .layer = layer}, gate_up, 3,
		    "model.layers.%u.mlp.experts.gate_up_proj", layer);
		add(x, (struct item){.form = FORM_DOWN, .layer = layer}, down, 3,
		    "model.layers.%u.mlp.experts.down_proj", layer);
		return;
	}
	for (uint32_t i = 0; i < c->n_experts; i++) {
		for (int k = 0; k < WEIGHT_EXPERT_ROLES; k++) {
			snprintf(name, sizeof(name),
				 "model.layers.%u.mlp.experts.%u.%s_proj.weight", layer, i,
				 projections[k]);
			add_role(x, WEIGHT_EXPERT_GATE + k, layer, i, 2, name);
		}
	}
}

static void list_mlp(struct export *x, uint32_t layer)
{
	if (x->c->layers[layer].mlp == LAYER_DENSE) {
		add_layer_role(x, WEIGHT_SHARED_GATE, layer, 2, "mlp.gate_proj.weight");
		add_layer_role(x, WEIGHT_SHARED_UP, layer, 2, "mlp.up_proj.weight");
		add_layer_role(x, WEIGHT_SHARED_DOWN, layer, 2, "mlp.down_proj.weight");
		return;
	}
	add_layer_role(x, WEIGHT_ROUTER, layer, 2, "mlp.gate.weight");
	list_experts(x, layer);
	add_layer_role(x, WEIGHT_SHARED_GATE, layer, 2, "mlp.shared_expert.gate_proj.weight");
	add_layer_role(x, WEIGHT_SHARED_UP, layer, 2, "mlp.shared_expert.up_proj.weight");
	add_layer_role(x, WEIGHT_SHARED_DOWN, layer, 2, "mlp.shared_expert.down_proj.weight");
	add_layer_role(x, WEIGHT_SHARED_ROUTER, layer, 2, "mlp.shared_expert_gate.weight");
}

static void list_model(struct export *x)
{
	add_role(x, WEIGHT_EMBED, 0, 0, 2, "model.embed_tokens.weight");
	for (uint32_t i = 0; i < x->c->n_layers; i++) {
		add_layer_role(x, WEIGHT_INPUT_NORM, i, 1, "input_layernorm.weight");
		if (x->c->layers[i].mixer == LAYER_ATTENTION)
			list_attention(x, i);
		else
			list_delta(x, i);
		add_layer_role(x, WEIGHT_POST_NORM, i, 1, "post_attention_layernorm.weight");
		list_mlp(x, i);
	}
	add_role(x, WEIGHT_FINAL_NORM, 0, 0, 1, "model.norm.weight");
	if (!x->c->tie_word_embeddings)
		add_role(x, WEIGHT_LM_HEAD, 0, 0, 2, "lm_head.weight");
}

/* The weight and its row that row `row` of a tensor is. */
static void locate(const struct model_config *c, const struct item *item, uint64_t row,
		   enum weight_role *role, uint32_t *expert, uint64_t *ret)
{
	uint64_t dk = c->key_head_dim, ratio = c->n_value_heads / c->n_key_heads;
	uint64_t dv = ratio * c->value_head_dim, key = dk * c->n_key_heads, head, at;

	*role = item->role;
	*expert = item->expert;
	*ret = row;
	switch (item->form) {
	case FORM_ROLE: break;
	case FORM_GATE_UP:
		*expert = (uint32_t)(row / (2 * c->expert_size));
		*ret = row % (2 * c->expert_size);
		*role = *ret < c->expert_size ? WEIGHT_EXPERT_GATE : WEIGHT_EXPERT_UP;
		*ret %= c->expert_size;
		break;
	case FORM_DOWN:
		*role = WEIGHT_EXPERT_DOWN;
		*expert = (uint32_t)(row / c->hidden_size);
		*ret = row % c->hidden_size;
		break;
	case FORM_QKVZ:
		head = row / (2 * dk + 2 * dv);
		at = row % (2 * dk + 2 * dv);
		*role = at < 2 * dk + dv ? WEIGHT_DELTA_QKV : WEIGHT_DELTA_Z;
		if (at < dk)
			*ret = head * dk + at;
		else if (at < 2 * dk)
			*ret = key + head * dk + at - dk;
		else if (at < 2 * dk + dv)
			*ret = 2 * key + head * dv + at - 2 * dk;
		else
			*ret = head * dv + at - 2 * dk - dv;
		break;
	case FORM_BA:
		head = row / (2 * ratio);
		at = row % (2 * ratio);
		*role = at < ratio ? WEIGHT_DELTA_B : WEIGHT_DELTA_A;
		*ret = head * ratio + at % ratio;
		break;
	}
}

/* To nearest, ties to even; NaN stays NaN. */
static uint16_t bf16_of_float(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static int produce(size_t index, void *data, void *user, struct err *e)
{
	struct export *x = user;
	const struct item *item = &x->items[x->first + index];
	uint16_t *out = data;

	for (uint64_t i = 0; i < item->rows; i++) {
		enum weight_role role;
		uint32_t expert;
		uint64_t row;

		locate(x->c, item, i, &role, &expert, &row);
		weights_row(x->w, role, item->layer, expert, row, x->row);
		for (uint64_t k = 0; k < item->cols; k++)
			*out++ = bf16_of_float(x->row[k]);
	}
	return 0;
}

/* The tensors [first, end) that go into one file. */
static size_t end_of_shard(const struct export *x, size_t first, uint64_t shard_bytes)
{
	uint64_t bytes = x->tensors[first].bytes;
	size_t i = first + 1;

	while (i < x->n && x->tensors[i].bytes <= shard_bytes &&
	       bytes <= shard_bytes - x->tensors[i].bytes)
		bytes += x->tensors[i++].bytes;
	return i;
}

static int write_shards(struct export *x, uint64_t shard_bytes, struct err *e)
{
	size_t n_shards = 0, shard = 0, end;
	uint64_t total = 0;
	struct buf index;
	int r = 0;

	for (size_t i = 0; i < x->n; i = end_of_shard(x, i, shard_bytes))
		n_shards++;
	buf_init(&index, SMALL_FILE_MAX);
	for (size_t i = 0; i < x->n; i++)
		total += x->tensors[i].bytes;
	buf_printf(&index, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
		   (unsigned long long)total);
	for (x->first = 0; r == 0 && x->first < x->n; x->first = end) {
		char file[64], *path;

		end = end_of_shard(x, x->first, shard_bytes);
		if (n_shards == 1)
			snprintf(file, sizeof(file), "model.safetensors");
		else
			snprintf(file, sizeof(file), "model-%05zu-of-%05zu.safetensors", ++shard,
				 n_shards);
		for (size_t i = x->first; i < end; i++)
			buf_printf(&index, "%s\n    \"%s\": \"%s\"", i ? "," : "",
				   x->tensors[i].name, file);
		if (asprintf(&path, "%s/%s", x->dir, file) < 0) {
			r = err_set(e, ENOMEM, "%s: out of memory", x->dir);
			break;
		}
		r = safetensors_write(path, x->tensors + x->first, end - x->first, produce, x, e);
		free(path);
	}
	buf_puts(&index, "\n  }\n}\n");
	if (r == 0 && index.failed)
		r = err_set(e, ENOMEM, "%s: out of memory for the index", x->dir);
	if (r == 0 && n_shards > 1) {
		char *path;

		if (asprintf(&path, "%s/model.safetensors.index.json", x->dir) < 0) {
			r = err_set(e, ENOMEM, "%s: out of memory", x->dir);
		} else {
			r = file_write(path, index.data, index.len, e);
			free(path);
		}
	}
	buf_release(&index);
	return r;
}

/* config.json of the language model alone. */
static char *flat_config(const struct model_config *c, const char *config_json)
{
	static const char *const types[] = {
		[MODEL_QWEN3_5] = "qwen3_5_text",
		[MODEL_QWEN3_5_MOE] = "qwen3_5_moe_text",
		[MODEL_QWEN3_NEXT] = "qwen3_next",
	};
	static const char *const classes[] = {
		[MODEL_QWEN3_5] = "Qwen3_5ForCausalLM",
		[MODEL_QWEN3_5_MOE] = "Qwen3_5MoeForCausalLM",
		[MODEL_QWEN3_NEXT] = "Qwen3NextForCausalLM",
	};
	json_t *top = json_loads(config_json, JSON_REJECT_DUPLICATES, NULL);
	json_t *text = json_object_get(top, "text_config"),
	       *eos = json_object_get(top, "eos_token_id");
	char *out = NULL;

	if (!json_is_object(text))
		text = top;
	if (!json_is_object(text))
		goto end;
	if (text != top && eos && !json_object_get(text, "eos_token_id"))
		json_object_set(text, "eos_token_id", eos);
	/* None of these can fail but for memory, which the dump below finds out. */
	json_object_set_new(text, "model_type", json_string(types[c->family]));
	json_object_set_new(text, "architectures", json_pack("[s]", classes[c->family]));
	json_object_set_new(text, "dtype", json_string("bfloat16"));
	json_object_set_new(text, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
	json_object_del(text, "torch_dtype");
	json_object_del(text, "mtp_num_hidden_layers");
	json_object_del(text, "num_nextn_predict_layers");
	out = json_dumps(text, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
end:
	json_decref(top);
	return out;
}

static int make_directory(const char *dir, struct err *e)
{
	struct dirent *entry;
	DIR *d;

	if (mkdir(dir, 0777) == 0)
		return 0;
	if (errno != EEXIST)
		return err_set(e, errno, "%s: cannot create the directory: %s", dir,
			       strerror(errno));
	d = opendir(dir);
	if (!d)
		return err_set(e, errno, "%s: cannot open the directory: %s", dir, strerror(errno));
	do {
		entry = readdir(d);
	} while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
	closedir(d);
	return entry ? err_set(e, EEXIST, "%s: the directory is not empty", dir) : 0;
}

static int write_config(const char *dir, const char *config, struct err *e)
{
	char *path;
	int r;

	if (asprintf(&path, "%s/config.json", dir) < 0)
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	r = file_write(path, config, strlen(config), e);
	free(path);
	return r;
}

int weights_export(const struct weights *w, const struct model_config *c, const char *config_json,
		   const char *out_dir, uint64_t shard_bytes, struct err *e)
{
	struct export x = {.w = w, .c = c, .dir = out_dir};
	uint64_t widest = 1;
	char *config;
	int r;

	config = flat_config(c, config_json);
	if (!config)
		return err_set(e, EINVAL, "%s: config.json cannot be made from the given one",
			       out_dir);
	arena_init(&x.names, NAMES_MAX);
	list_model(&x);
	for (size_t i = 0; i < x.n; i++)
		widest = MAX(widest, x.items[i].cols);
	x.row = calloc(widest, sizeof(*x.row));
	r = x.failed || !x.row ? err_set(e, ENOMEM, "%s: out of memory", out_dir) : 0;
	if (r == 0)
		r = make_directory(out_dir, e);
	if (r == 0)
		r = write_shards(&x, shard_bytes ? shard_bytes : SHARD_BYTES, e);
	/* Last: a directory with a config.json is a whole checkpoint. */
	if (r == 0)
		r = write_config(out_dir, config, e);
	arena_release(&x.names);
	free(x.tensors);
	free(x.items);
	free(x.row);
	free(config);
	return r;
}
