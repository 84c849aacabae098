#include "engine/layers/inputs.h"

#include <stdlib.h>

#include "base/macros.h"
#include "engine/checkpoint/importance.h"
#include "engine/checkpoint/stored_type.h"

/* Rows of a buffer. */
struct rows {
	uint8_t *data;	 /* owned; NULL: they could not be read */
	float *row;	 /* owned, [cols]: one of them */
	uint64_t stride; /* bytes */
	uint32_t cols;
	bool narrow; /* numbers are bf16 */
};

/* Reads n rows, whose stride is ld numbers. */
static struct rows read_rows(const struct layer_run *r, cl_mem buffer, uint64_t n, uint32_t cols,
			     uint64_t ld, bool narrow)
{
	struct rows s = {.stride = ld * (narrow ? 2 : 4), .cols = cols, .narrow = narrow};

	s.data = malloc(n * s.stride);
	s.row = calloc(cols, sizeof(*s.row));
	if (!s.data || !s.row || !kernels_read(r->kernels, buffer, n * s.stride, s.data)) {
		importance_fail(r->importance);
		free(s.data);
		s.data = NULL;
	}
	return s;
}

static void release(struct rows *s)
{
	free(s->data);
	free(s->row);
}

/* Rows of elements are inputs of a product; blocks of int8 stand behind them (kernels/generic/input.clh). */
static struct rows read_elements(const struct layer_run *r, cl_mem buffer, uint64_t n,
				 uint32_t cols, uint64_t most)
{
	const struct kernel_shape *s = kernels_shape(r->kernels);

	return read_rows(r, buffer, n, cols, kernels_input_ld(s, most), s->bf16);
}

/* Adds row i. */
static void add(const struct layer_run *r, const struct rows *s, uint64_t i, uint32_t cols,
		enum weight_role role, uint32_t experts, uint32_t expert)
{
	const uint8_t *at = s->data + i * s->stride;

	stored_type_find(s->narrow ? "BF16" : "F32")->to_float(at, s->row, cols);
	importance_add(r->importance, role, r->layer, experts, expert, s->row, cols);
}

static void add_all(const struct layer_run *r, struct rows *s, enum weight_role role)
{
	for (uint32_t i = 0; s->data && i < r->step->n_tokens; i++)
		add(r, s, i, s->cols, role, 1, 0);
	release(s);
}

/* Reads the normed rows, in float. */
static struct rows read_normed(const struct layer_run *r)
{
	uint32_t D = kernels_shape(r->kernels)->hidden;

	return read_rows(r, r->all[AT_H32], r->step->n_tokens, D, KERNEL_LD(D), false);
}

void inputs_of_mixer(const struct layer_run *r, uint32_t width)
{
	bool delta = r->own[AT_CONV];
	struct rows in = read_normed(r);
	struct rows out = read_elements(r, r->all[AT_MIXED], r->step->n_tokens, width, width);

	add_all(r, &in, delta ? WEIGHT_DELTA_QKV : WEIGHT_ATTN_Q);
	add_all(r, &out, delta ? WEIGHT_DELTA_OUT : WEIGHT_ATTN_O);
}

void inputs_of_head(const struct layer_run *r)
{
	struct rows in = read_normed(r);

	add_all(r, &in, WEIGHT_LM_HEAD);
}

/* Adds the inputs of row i of the activations, which are sorted by expert (kernels/generic/moe_route.cl). choice: its
 * token and slot, as one number. */
static void add_choice(const struct layer_run *r, const struct kernel_mlp *m, const struct rows *in,
		       const struct rows *act, uint32_t i, uint32_t choice, const int32_t *experts)
{
	uint32_t slots = kernel_mlp_slots(m), token = choice / slots, slot = choice % slots;

	if (slot < m->topk) {
		uint32_t expert = (uint32_t)experts[token * m->topk + slot];

		add(r, in, token, in->cols, WEIGHT_EXPERT_GATE, m->experts, expert);
		add(r, act, i, m->expert_size, WEIGHT_EXPERT_DOWN, m->experts, expert);
		return;
	}
	add(r, in, token, in->cols, WEIGHT_SHARED_GATE, 1, 0);
	add(r, act, i, m->shared_size, WEIGHT_SHARED_DOWN, 1, 0);
}

void inputs_of_mlp(const struct layer_run *r, const struct kernel_mlp *m)
{
	uint32_t T = r->step->n_tokens, n = T * kernel_mlp_slots(m);
	uint32_t width = MAX(m->expert_size, m->shared_size);
	struct rows in = read_normed(r);
	struct rows act = read_elements(r, r->all[AT_ACT], n, width, KERNEL_LD(width));
	int32_t *rows = calloc(n, sizeof(*rows));
	int32_t *experts = calloc((size_t)T * MAX(m->topk, 1u), sizeof(*experts));
	bool good = in.data && act.data && rows && experts &&
		    kernels_read(r->kernels, r->all[AT_ROWS], n * sizeof(*rows), rows);

	if (good && m->topk)
		good = kernels_read(r->kernels, r->all[AT_EXPERTS],
				    (size_t)T * m->topk * sizeof(*experts), experts);
	if (!good)
		importance_fail(r->importance);
	for (uint32_t i = 0; good && i < n; i++)
		add_choice(r, m, &in, &act, i, (uint32_t)rows[i], experts);
	release(&in);
	release(&act);
	free(rows);
	free(experts);
}
