#include "engine/roofline.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"

/* The widths that everything below is a product of. */
struct sizes {
	double e, D, V;
	double key, value, channels, Hv, dk, dv, conv; /* Gated DeltaNet */
	double query, kv;			       /* attention: H hd, G hd */
};

static struct sizes sizes_of(const struct model_config *c, bool bf16)
{
	double key = (double)c->n_key_heads * c->key_head_dim;
	double value = (double)c->n_value_heads * c->value_head_dim;

	return (struct sizes){
		.e = bf16 ? 2 : 4,
		.D = c->hidden_size,
		.V = c->vocab_size,
		.key = key,
		.value = value,
		.channels = 2 * key + value,
		.Hv = c->n_value_heads,
		.dk = c->key_head_dim,
		.dv = c->value_head_dim,
		.conv = c->conv_kernel,
		.query = (double)c->n_heads * c->head_dim,
		.kv = (double)c->n_kv_heads * c->head_dim,
	};
}

/* What the rows of a step sum up to. */
struct sums {
	double tokens, prefill_tokens;
	double rows, resumed; /* resumed: rows that read a state */
	double prefill_rows, prefill_resumed;
	double context; /* tokens whose KV is read */
	double keys;	/* pairs of a query and a key it sees */
};

static struct sums sums_of(const struct roofline_step *s)
{
	struct sums t = {.rows = s->n_rows, .prefill_rows = s->n_prefill_rows};

	for (uint32_t i = 0; i < s->n_rows; i++) {
		double start = s->rows[i].start, n = s->rows[i].n_tokens;

		t.tokens += n;
		t.resumed += start > 0;
		t.context += start + n;
		t.keys += n * start + n * (n + 1) / 2;
		if (i < s->n_prefill_rows) {
			t.prefill_tokens += n;
			t.prefill_resumed += start > 0;
		}
	}
	return t;
}

double roofline_experts(const struct model_config *c, uint32_t n_tokens)
{
	double E = c->n_experts;

	return E > 0 ? E * (1 - pow(1 - c->n_experts_per_token / E, n_tokens)) : 0;
}

/* ---- a step ---- */

static double delta_weights(const struct sizes *z)
{
	double in = z->channels + z->value + 2 * z->Hv;

	return (in * z->D + z->value * z->D) * z->e +
	       (z->channels * z->conv + 2 * z->Hv + z->dv) * 4;
}

static double attention_weights(const struct sizes *z, const struct model_config *c)
{
	double in = 2 * z->query + 2 * z->kv;

	return (in * z->D + z->query * z->D) * z->e + 2.0 * c->head_dim * 4;
}

/* Bytes of a state with its last inputs, read or written. */
static double state_bytes(const struct sizes *z)
{
	return (z->value * z->dk + z->channels * z->conv) * 4;
}

static double delta_flops(const struct sizes *z)
{
	return 7 * z->value * z->dk + 2 * z->channels * z->conv;
}

void roofline_add(struct roofline *sum, const struct model_config *c, bool bf16,
		  const struct roofline_step *s)
{
	const struct sizes z = sizes_of(c, bf16);
	const struct sums t = sums_of(s);
	double I = c->expert_size, Is = c->shared_expert_size, D = z.D;

	sum->weight_bytes += t.tokens * D * z.e;	      /* embedding rows */
	sum->weight_bytes += (2.0 * c->n_layers + 1) * D * 4; /* norms */
	if (s->n_logits)
		sum->weight_bytes += z.V * D * z.e;
	sum->product_flops += 2 * s->n_logits * z.V * D;
	for (uint32_t i = 0; i < c->n_layers; i++) {
		if (c->layers[i].mixer == LAYER_ATTENTION) {
			sum->weight_bytes += attention_weights(&z, c);
			sum->kv_bytes += (t.context + t.tokens) * 2 * z.kv * z.e;
			sum->product_flops += 2 * t.tokens * (3 * z.query + 2 * z.kv) * D;
			sum->attention_flops += 4 * z.query * t.keys;
		} else {
			sum->weight_bytes += delta_weights(&z);
			sum->state_bytes += (t.rows + t.resumed) * state_bytes(&z);
			sum->product_flops +=
				2 * t.tokens * (z.channels + 2 * z.value + 2 * z.Hv) * D;
			sum->delta_flops += t.tokens * delta_flops(&z);
		}
		if (c->layers[i].mlp == LAYER_DENSE) {
			sum->weight_bytes += 3.0 * c->mlp_size * D * z.e;
			sum->product_flops += 2 * t.tokens * 3 * c->mlp_size * D;
		} else {
			/* The router and the shared expert's gate are in float. */
			sum->weight_bytes +=
				(c->n_experts + 1.0) * D * 4 + 3 * (s->experts * I + Is) * D * z.e;
			sum->product_flops +=
				2 * t.tokens *
				(c->n_experts + 1 + 3 * (c->n_experts_per_token * I + Is)) * D;
		}
	}
}

double roofline_bytes(const struct roofline *r)
{
	return r->weight_bytes + r->kv_bytes + r->state_bytes;
}

double roofline_flops(const struct roofline *r)
{
	return r->product_flops + r->attention_flops + r->delta_flops;
}

double roofline_seconds(const struct roofline *r, double read, double dot, double flops,
			bool *ret_by_bytes)
{
	double moving = roofline_bytes(r) / read;
	double computing = r->product_flops / dot + (r->attention_flops + r->delta_flops) / flops;

	*ret_by_bytes = moving >= computing;
	return MAX(moving, computing);
}

/* ---- a kernel: besides weights and caches also what it reads and writes of activations ---- */

static struct roofline_work product(const struct roofline_launch *l, double element, bool add)
{
	double M = l->m, N = l->n, K = l->k;

	return (struct roofline_work){
		.bytes = (N * K + M * K) * element + M * N * 4 * (add ? 2 : 1),
		.flops = 2 * M * N * K,
		.elements = element == 2,
		.int8 = element == 1,
	};
}

/* Both products of an MLP; matrices: 2 of gate and up, 1 of down. */
static struct roofline_work mlp(const struct model_config *c, const struct sizes *z, double T,
				const struct roofline_launch *l, double matrices)
{
	double topk = l->dense ? 0 : c->n_experts_per_token;
	double I = l->dense ? 0 : c->expert_size, experts = l->dense ? 0 : l->experts;
	double Is = l->dense ? c->mlp_size : c->shared_expert_size;
	double weights = matrices * (experts * I + Is) * z->D * z->e;
	double act = T * (topk * I + Is) * z->e;
	double rows = matrices == 2 ? T * z->D * z->e : T * (topk + 1) * z->D * 4;

	return (struct roofline_work){
		.bytes = weights + act + rows,
		.flops = 2 * T * matrices * (topk * I + Is) * z->D,
		.elements = true,
	};
}

static struct roofline_work attention(const struct sizes *z, const struct sums *t)
{
	return (struct roofline_work){
		.bytes = t->context * 2 * z->kv * z->e + t->tokens * z->query * (4 + 4 + z->e),
		.flops = 4 * z->query * t->keys,
	};
}

static struct roofline_work delta_prefill(const struct sizes *z, const struct sums *t)
{
	double T = t->prefill_tokens;
	double states = (t->prefill_rows + t->prefill_resumed) * state_bytes(z);

	return (struct roofline_work){
		.bytes = states + T * ((z->channels + z->value + 2 * z->Hv) * 4 + z->value * z->e),
		.flops = T * 7 * z->value * z->dk,
	};
}

static struct roofline_work delta_decode(const struct sizes *z, const struct sums *t)
{
	double rows = t->rows - t->prefill_rows;
	double states = (rows + t->resumed - t->prefill_resumed) * state_bytes(z);

	return (struct roofline_work){
		.bytes = states +
			 rows * ((z->channels + z->value + 2 * z->Hv) * 4 + z->value * z->e),
		.flops = rows * delta_flops(z),
	};
}

/* Kernels that only move activations, by bytes a row; delta_conv's rows are (token, head of q, k or v). */
static double bytes_a_row(const struct model_config *c, const struct sizes *z,
			  const struct roofline_launch *l)
{
	double topk = l->dense ? 0 : c->n_experts_per_token, D = z->D;
	double rot = c->n_layers_of[LAYER_ATTENTION] ? c->rotary_dim : 0;
	double units = MAX(2 * z->key / z->dk + z->Hv, 1.0);
	const struct {
		const char *kernel;
		double bytes;
	} rows[] = {
		{"embed", D * (z->e + 4) + rot * 4},
		{"rms_norm", D * (4 + z->e + 4)},
		{"combine_norm", D * (4 + (topk + 1) * 4 + 4 + z->e + 4)},
		{"attention_prepare", (z->query + 2 * z->kv) * 4 + z->query * 4 + 2 * z->kv * z->e},
		{"delta_conv", (z->channels * 8 + z->Hv * 16) / units},
		{"moe_topk", (c->n_experts + 1.0) * 4 + topk * 8},
		{"sample", z->V * 4},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].kernel, l->kernel))
			return rows[i].bytes;
	return 0;
}

bool roofline_kernel(const struct model_config *c, bool bf16, const struct roofline_step *s,
		     const struct roofline_launch *l, struct roofline_work *ret)
{
	const struct sizes z = sizes_of(c, bf16);
	const struct sums t = sums_of(s);
	struct roofline_work w = {0};

	if (!strcmp(l->kernel, "router"))
		w = product(l, 4, false);
	else if (!strcmp(l->kernel, "gemm_store"))
		w = product(l, z.e, false);
	else if (!strcmp(l->kernel, "gemm_add"))
		w = product(l, z.e, true);
	else if (!strcmp(l->kernel, "gemm_int8_store"))
		w = product(l, 1, false);
	else if (!strcmp(l->kernel, "gemm_int8_add"))
		w = product(l, 1, true);
	else if (!strcmp(l->kernel, "quantize_rows"))
		w.bytes = (double)l->m * l->n * (z.e + 1);
	else if (!strcmp(l->kernel, "moe_gate_up"))
		w = mlp(c, &z, t.tokens, l, 2);
	else if (!strcmp(l->kernel, "moe_down"))
		w = mlp(c, &z, t.tokens, l, 1);
	else if (!strcmp(l->kernel, "attention"))
		w = attention(&z, &t);
	else if (!strcmp(l->kernel, "delta_prefill"))
		w = delta_prefill(&z, &t);
	else if (!strcmp(l->kernel, "delta_decode"))
		w = delta_decode(&z, &t);
	else
		w.bytes = l->m * bytes_a_row(c, &z, l);
	if (w.bytes <= 0)
		return false;
	w.elements = w.elements && bf16;
	*ret = w;
	return true;
}
