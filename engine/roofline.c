#include "engine/roofline.h"

#include <string.h>

#include "base/macros.h"
#include "engine/layers/layer.h"
#include "kernels/sample.h"

/* Returns the pairs of a query and a key that it attends to, for the first n positions of a sequence. */
static double keys_up_to(double n, double window)
{
	double inside = MIN(n, window);

	return inside * (inside + 1) / 2 + (n - inside) * window;
}

/* Returns the sums over n rows of the step, from row `first` on. */
static struct cost_step sums_of(const struct model_config *c, const struct roofline_step *s,
				bool bf16, uint32_t first, uint32_t n_rows)
{
	const double window = c->sliding_window;
	struct cost_step t = {
		.element = bf16 ? 2 : 4,
		.kv_number = s->kv_number ? s->kv_number
			     : bf16	  ? 2
					  : 4,
		.weight = s->weight > 0 ? s->weight
			  : bf16	? 2
					: 4,
		.rows = n_rows,
		.tensor = s->tensor,
	};

	for (uint32_t i = first; i < first + n_rows; i++) {
		double start = s->rows[i].start, n = s->rows[i].n_tokens;
		double keys = n * start + n * (n + 1) / 2;
		double window_keys = keys_up_to(start + n, window) - keys_up_to(start, window);

		t.tokens += n;
		t.resumed += start > 0;
		t.context += start + n;
		t.keys += keys;
		t.window_context += MIN(start + n, window + n - 1);
		t.window_keys += window_keys;
		if (i < s->n_prefill_rows) {
			t.prefill_rows++;
			t.prefill_tokens += n;
			t.prefill_resumed += start > 0;
			t.prefill_keys += keys;
			t.prefill_window_keys += window_keys;
		}
	}
	return t;
}

/* ---- a step ---- */

/* Adds one weight: the bytes that are read of it, and the FLOP of its products. If the weight belongs to experts, it is
 * read for as many experts as the step uses, but each token is multiplied with its own experts only. */
static void add_weight(struct roofline *sum, const struct model_config *c, const struct weight *w,
		       const struct cost_step *t, const struct roofline_step *s)
{
	double size = (double)w->rows * (double)w->cols, products = t->tokens;
	double *flops = w->form == PACK_FLOATS ? &sum->flops.floats
			: s->int8	       ? &sum->flops.int8
			: t->element == 2      ? &sum->flops.bf16
					       : &sum->flops.floats;

	switch (w->form) {
	case PACK_LOOKUP: sum->weight_bytes += t->tokens * (double)w->cols * t->weight; return;
	case PACK_STACKED:
	case PACK_TURNS:
	case PACK_FLOATS: break;
	default: sum->weight_bytes += size * 4; return;
	}
	if (w->role == WEIGHT_LM_HEAD)
		products = s->n_logits;
	*flops += 2 * products * size * (w->experts > 1 ? c->n_experts_per_token : 1);
	if (products > 0)
		sum->weight_bytes += size * (w->experts > 1 ? s->experts : 1) *
				     (w->form == PACK_FLOATS ? 4 : t->weight);
}

static void add_weights(struct roofline *sum, const struct model_config *c,
			const struct layer_weights *w, const struct cost_step *t,
			const struct roofline_step *s)
{
	for (uint32_t i = 0; i < w->n; i++)
		add_weight(sum, c, &w->list[i], t, s);
}

/* Adds a mixer or an MLP. A row reads the KV of all its tokens up to its last one, and writes the KV of its new tokens.
 * A row writes a state, and reads one unless its sequence begins. */
static void add_kind(struct roofline *sum, const struct model_config *c,
		     const struct layer_ops *ops, const struct cost_step *t,
		     const struct roofline_step *s)
{
	struct layer_part parts[LAYER_PARTS_MAX];
	struct layer_weights w;
	uint32_t n = ops->parts ? ops->parts(c, t->kv_number, 1, parts) : 0;

	ops->weights(c, &w);
	add_weights(sum, c, &w, t, s);
	for (uint32_t i = 0; i < n; i++)
		if (parts[i].kind == TIER_PAGE)
			sum->kv_bytes +=
				((ops->window ? t->window_context : t->context) + t->tokens) *
				(double)parts[i].bytes;
		else
			sum->state_bytes += (t->rows + t->resumed) * (double)parts[i].bytes;
	if (ops->flops)
		ops->flops(c, t, &sum->flops);
}

void roofline_add(struct roofline *sum, const struct model_config *c, bool bf16,
		  const struct roofline_step *s)
{
	const struct cost_step t = sums_of(c, s, bf16, 0, s->n_rows);
	struct layer_weights ends;

	layer_weights_of_ends(c, &ends);
	add_weights(sum, c, &ends, &t, s);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		add_kind(sum, c, layer_ops[c->layers[i].mixer], &t, s);
		add_kind(sum, c, layer_ops[c->layers[i].mlp], &t, s);
	}
}

double roofline_bytes(const struct roofline *r)
{
	return r->weight_bytes + r->kv_bytes + r->state_bytes;
}

double roofline_flops(const struct roofline *r)
{
	return r->flops.floats + r->flops.bf16 + r->flops.int8;
}

double roofline_seconds(const struct roofline *r, const struct peak *p, bool *ret_by_bytes)
{
	double moving = roofline_bytes(r) / p->read;
	double computing =
		r->flops.floats / p->flops + r->flops.bf16 / p->dot + r->flops.int8 / p->int8;

	*ret_by_bytes = moving >= computing;
	return MAX(moving, computing);
}

/* ---- one kernel: the weights, KV and states, and the activations that it reads and writes ---- */

/* weight, element: bytes of a weight and of a number of the other operand. */
static struct roofline_work product(const struct kernel_timing *l, double weight, double element,
				    bool add)
{
	double M = l->m, N = l->n, K = l->k;

	return (struct roofline_work){
		.bytes = N * K * weight + M * K * element + M * N * 4 * (add ? 2 : 1),
		.flops = 2 * M * N * K,
		.elements = element == 2,
	};
}

/* Returns the bytes that embed, rms_norm or a kernel of a draw moves for each row. 0: `kernel` is another one. */
static double bytes_a_row(const struct model_config *c, double element, const char *kernel)
{
	struct kernel_shape k = {0};
	double D = c->hidden_size;

	layers_shape(c, &k);
	if (!strcmp(kernel, "embed"))
		return D * (element + 4) + k.rotary_dim * 4.0;
	if (!strcmp(kernel, "rms_norm"))
		return D * (4 + element + 4);
	if (!strcmp(kernel, "sample_blocks"))
		return c->vocab_size * 4.0;
	/* two numbers of each block */
	return !strcmp(kernel, "sample") ? SAMPLE_BLOCKS(c->vocab_size) * 8.0 : 0;
}

/* Computes the work of a kernel that belongs to no single kind of layer; 0 bytes: the kernel is unknown. */
static void common_kernel(const struct model_config *c, const struct cost_step *s,
			  const struct kernel_timing *l, struct roofline_work *ret)
{
	static const struct {
		const char *kernel;
		uint32_t bytes; /* bytes of an element; 0: the model's */
		bool add;
	} products[] = {
		{"router", 4, false},
		{"gemm_store", 0, false},
		{"gemm_add", 0, true},
		/* the parts that it writes are left out: they are no more than a GPU's cache holds */
		{"gemm_split", 0, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(products); i++)
		if (!strcmp(products[i].kernel, l->kernel)) {
			double bytes = products[i].bytes;

			*ret = product(l, bytes > 0 ? bytes : s->weight,
				       bytes > 0 ? bytes : s->element, products[i].add);
			return;
		}
	if (!strcmp(l->kernel, "gemm_sum_parts")) /* k: the number of parts */
		ret->bytes = (double)l->m * l->n * 4 * (l->k + 2.0);
	else
		ret->bytes = l->m * bytes_a_row(c, s->element, l->kernel);
}

bool roofline_kernel(const struct model_config *c, bool bf16, const struct roofline_step *s,
		     const struct kernel_timing *l, struct roofline_work *ret)
{
	const struct cost_step t =
		sums_of(c, s, bf16, l->first_row, l->n_rows ? l->n_rows : s->n_rows);
	struct roofline_work w = {0};
	bool known = false;

	for (int kind = 0; !known && kind < LAYER_KINDS; kind++)
		known = layer_ops[kind]->kernel(c, &t, l, &w);
	if (!known)
		common_kernel(c, &t, l, &w);
	if (w.bytes <= 0)
		return false;
	w.int8 = w.elements && s->int8;
	w.elements = (w.elements && bf16 && !w.int8) || l->tensor;
	*ret = w;
	return true;
}
