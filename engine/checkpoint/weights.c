/*
 * Weights by role: shapes, opening a checkpoint, and rows as floats. Which tensor a row lies in was
 * decided when the checkpoint was opened (weights_names.c); a row costs one table lookup.
 */
#include "engine/checkpoint/weights_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

void weights_shape(const struct model_config *c, enum weight_role role, uint32_t layer,
		   uint64_t *ret_rows, uint64_t *ret_cols)
{
	uint64_t d = c->hidden_size;
	uint64_t key = (uint64_t)c->n_key_heads * c->key_head_dim;
	uint64_t value = (uint64_t)c->n_value_heads * c->value_head_dim;
	uint64_t q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
	bool attention = c->layers[layer].mixer == LAYER_ATTENTION;
	bool dense = c->layers[layer].mlp == LAYER_DENSE;
	uint64_t mlp = dense ? c->mlp_size : c->shared_expert_size;
	uint64_t rows = 0, cols = 0;

	switch (role) {
	case WEIGHT_EMBED:
	case WEIGHT_LM_HEAD: rows = c->vocab_size, cols = d; break;
	case WEIGHT_FINAL_NORM:
	case WEIGHT_INPUT_NORM:
	case WEIGHT_POST_NORM: rows = 1, cols = d; break;

	case WEIGHT_DELTA_QKV: rows = 2 * key + value, cols = d; break;
	case WEIGHT_DELTA_Z: rows = value, cols = d; break;
	case WEIGHT_DELTA_B:
	case WEIGHT_DELTA_A: rows = c->n_value_heads, cols = d; break;
	case WEIGHT_DELTA_CONV: rows = 2 * key + value, cols = c->conv_kernel; break;
	case WEIGHT_DELTA_A_LOG:
	case WEIGHT_DELTA_DT_BIAS: rows = 1, cols = c->n_value_heads; break;
	case WEIGHT_DELTA_NORM: rows = 1, cols = c->value_head_dim; break;
	case WEIGHT_DELTA_OUT: rows = d, cols = value; break;

	case WEIGHT_ATTN_Q: rows = 2 * q, cols = d; break;
	case WEIGHT_ATTN_K:
	case WEIGHT_ATTN_V: rows = kv, cols = d; break;
	case WEIGHT_ATTN_O: rows = d, cols = q; break;
	case WEIGHT_ATTN_Q_NORM:
	case WEIGHT_ATTN_K_NORM: rows = 1, cols = c->head_dim; break;

	case WEIGHT_ROUTER: rows = c->n_experts, cols = d; break;
	case WEIGHT_EXPERT_GATE:
	case WEIGHT_EXPERT_UP: rows = c->expert_size, cols = d; break;
	case WEIGHT_EXPERT_DOWN: rows = d, cols = c->expert_size; break;
	case WEIGHT_SHARED_GATE:
	case WEIGHT_SHARED_UP: rows = mlp, cols = d; break;
	case WEIGHT_SHARED_DOWN: rows = d, cols = mlp; break;
	case WEIGHT_SHARED_ROUTER: rows = 1, cols = d; break;
	case WEIGHT_ROLES: assert(!"a role"); break;
	}
	if ((role >= WEIGHT_DELTA_QKV && role <= WEIGHT_DELTA_OUT && attention) ||
	    (role >= WEIGHT_ATTN_Q && role <= WEIGHT_ATTN_K_NORM && !attention) ||
	    (role >= WEIGHT_ROUTER && role <= WEIGHT_EXPERT_DOWN && dense) ||
	    (role == WEIGHT_SHARED_ROUTER && dense))
		rows = cols = 0;
	*ret_rows = rows;
	*ret_cols = cols;
}

int weights_open(const char *dir, const struct model_config *c, struct weights **ret, struct err *e)
{
	struct weights *w;
	int r;

	w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	w->config = *c;
	w->sources = calloc((size_t)c->n_layers * WEIGHT_ROLES, sizeof(*w->sources));
	w->experts = calloc((size_t)c->n_layers * MAX(c->n_experts, 1u) * WEIGHT_EXPERT_ROLES,
			    sizeof(*w->experts));
	if (!w->sources || !w->experts)
		r = err_set(e, ENOMEM, "%s: out of memory for the table of weights", dir);
	else
		r = safetensors_open(dir, &w->files, e);
	if (r == 0)
		r = weights_resolve(w, dir, e);
	if (r < 0) {
		weights_close(w);
		return r;
	}
	*ret = w;
	return 0;
}

int weights_synthetic(uint64_t seed, const struct model_config *c, struct weights **ret)
{
	struct weights *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->config = *c;
	w->synthetic = true;
	w->seed = seed;
	*ret = w;
	return 0;
}

void weights_close(struct weights *w)
{
	if (!w)
		return;
	safetensors_close(w->files);
	free(w->sources);
	free(w->experts);
	free(w);
}

/*
 * The conversions below go in blocks of constant length, so that compilers make vector code of them
 * at -O2 too, and through memcpy, since the format does not align its data.
 */
enum { BLOCK = 32 };

static inline float float_of_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline float float_of_bf16(uint16_t bits)
{
	return float_of_bits((uint32_t)bits << 16);
}

/* Exact for every f16 number: the exponent is rebased by a multiplication, which also turns
 * subnormal numbers into normal ones; infinities and NaN get the largest exponent. */
static inline float float_of_f16(uint16_t bits)
{
	uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000)
								     << 16;
	float f = float_of_bits(magnitude) * 0x1p112f;
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	u |= magnitude >= 0x0f800000 ? 0x7f800000 : 0;
	return float_of_bits(u | sign);
}

static void widen_bf16(const uint8_t *from, float *out, size_t n)
{
	uint16_t part[BLOCK];
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		memcpy(part, from + 2 * i, sizeof(part));
		for (int k = 0; k < BLOCK; k++)
			out[i + k] = float_of_bf16(part[k]);
	}
	memcpy(part, from + 2 * i, 2 * (n - i));
	for (size_t k = 0; i + k < n; k++)
		out[i + k] = float_of_bf16(part[k]);
}

static void widen_f16(const uint8_t *from, float *out, size_t n)
{
	uint16_t part[BLOCK];
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		memcpy(part, from + 2 * i, sizeof(part));
		for (int k = 0; k < BLOCK; k++)
			out[i + k] = float_of_f16(part[k]);
	}
	memcpy(part, from + 2 * i, 2 * (n - i));
	for (size_t k = 0; i + k < n; k++)
		out[i + k] = float_of_f16(part[k]);
}

static void read_row(const struct weight_rows *rows, uint64_t row, uint64_t cols, float *out)
{
	if (rows->group)
		row = row / rows->group * rows->stride + row % rows->group;
	switch (rows->dtype) {
	case TENSOR_F32: memcpy(out, rows->data + 4 * row * cols, 4 * cols); break;
	case TENSOR_F16: widen_f16(rows->data + 2 * row * cols, out, cols); break;
	case TENSOR_BF16: widen_bf16(rows->data + 2 * row * cols, out, cols); break;
	case TENSOR_OTHER: assert(!"dtype was checked when the file was opened"); break;
	}
}

void weights_row(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		 uint64_t row, float *out)
{
	const struct model_config *c = &w->config;
	const struct weight_source *s;
	uint64_t rows, cols;
	uint32_t part = 0;

	weights_shape(c, role, layer, &rows, &cols);
	assert(layer < c->n_layers && row < rows);
	if (w->synthetic) {
		weights_synthesize_row(w, role, layer, expert, row, cols, out);
	} else if (weight_is_expert(role)) {
		size_t i = (layer * (size_t)c->n_experts + expert) * WEIGHT_EXPERT_ROLES;

		assert(expert < c->n_experts);
		read_row(&w->experts[i + (role - WEIGHT_EXPERT_GATE)], row, cols, out);
	} else {
		s = &w->sources[(size_t)layer * WEIGHT_ROLES + role];
		while (part + 1 < s->n_parts && row >= s->starts[part + 1])
			part++;
		read_row(&s->parts[part], row - s->starts[part], cols, out);
	}
}
