#include "engine/layers/mlp.h"

#include <string.h>

#include "base/macros.h"
#include "engine/layers/inputs.h"

/* In a decode step of up to so many tokens, one ticket chooses the experts of all tokens and sorts the rows by expert.
 * With so few tokens another phase, in which a ticket for each token chooses its experts, would cost more. */
enum { TOPK_SORT_TOKENS = 3 };

uint32_t mlp_scratch(const struct kernels *k, uint32_t T, uint32_t rows,
		     struct layer_scratch ret[LAYER_SCRATCH_MAX])
{
	const struct kernel_shape *s = kernels_shape(k);
	uint32_t n = 0;

	(void)rows;
	for (uint32_t i = 0; i < s->n_mlps; i++) {
		const struct kernel_mlp *m = &s->mlps[i];
		uint64_t choices = (uint64_t)T * kernel_mlp_slots(m), D = KERNEL_LD(s->hidden);
		uint64_t width = KERNEL_LD(MAX(m->expert_size, m->shared_size));
		const struct layer_scratch all[] = {
			{AT_ROUTER_LOGITS, "router logits",
			 (uint64_t)T * kernel_mlp_router_ld(m) * 4},
			{AT_EXPERTS, "experts chosen", choices * 4},
			{AT_WEIGHTS, "expert weights", choices * 4},
			{AT_ROWS, "expert rows", choices * 4},
			{AT_TASKS, "expert tasks", kernels_task_ints(m, T) * 4},
			{AT_ACT, "expert activations",
			 choices * kernels_input_ld(s, width) * (s->bf16 ? 2 : 4)},
			{AT_Y, "expert outputs", choices * D * 4},
		};

		for (n = 0; n < ARRAY_SIZE(all); n++)
			if (!i || all[n].bytes > ret[n].bytes)
				ret[n] = all[n];
	}
	return n;
}

void mlp_forward(const struct layer_run *r)
{
	const struct kernel_shape *s = kernels_shape(r->kernels);
	const cl_mem *all = r->all, *own = r->own;
	/* In a model with two kinds of MLPs, mlps[0] is the one with experts. */
	uint32_t mlp = own[AT_ROUTER] ? 0 : s->n_mlps - 1;
	const struct kernel_mlp *m = &s->mlps[mlp];
	uint32_t D = KERNEL_LD(s->hidden), E = kernel_mlp_router_ld(m), T = r->step->n_tokens;

	if (!s->out_norms) /* otherwise the mixer has done it (layer_output) */
		kernel_rms_norm(r->kernels, all[BUFFER_STEP], -1, all[AT_X], own[AT_POST_NORM],
				all[AT_H], all[AT_H32], T);
	if (m->experts)
		kernel_gemm_store(r->kernels, true, all[AT_H32], D, own[AT_ROUTER],
				  all[AT_ROUTER_LOGITS], E, T, E, D);
	kernel_moe_route(r->kernels, mlp, all[AT_ROUTER_LOGITS], all[AT_EXPERTS], all[AT_WEIGHTS],
			 all[AT_ROWS], all[AT_TASKS], T);
	kernel_moe_gate_up(r->kernels, mlp, all[AT_H], own[AT_EXPERTS_GATE_UP],
			   own[AT_SHARED_GATE_UP], all[AT_TASKS], all[AT_ROWS], all[AT_ACT], T);
	kernel_moe_down(r->kernels, mlp, all[AT_ACT], own[AT_EXPERTS_DOWN], own[AT_SHARED_DOWN],
			all[AT_TASKS], all[AT_ROWS], all[AT_Y], T);
	if (r->importance)
		inputs_of_mlp(r, m);
	kernel_combine_norm(r->kernels, mlp, all[AT_X], all[AT_Y], all[AT_WEIGHTS],
			    all[AT_ROUTER_LOGITS], own[AT_MLP_NORM], own[AT_NEXT_NORM], all[AT_H],
			    all[AT_H32], all[BUFFER_DUMP], T);
}

/* Only a model with one kind of MLPs has decode steps in one launch, so mlps[0] is the only one. */
void mlp_phases(struct phase_list *l, uint32_t layer)
{
	const struct kernel_mlp *m = &l->shape->mlps[0];
	uint64_t D = KERNEL_LD(l->shape->hidden), tasks = kernels_max_tasks(m, l->n_tokens);
	uint64_t width = KERNEL_LD(MAX(m->expert_size, m->shared_size));
	uint64_t router = CEIL_DIV(kernel_mlp_router_ld(m), l->cut->router_columns);
	bool topk_apart = l->n_tokens > TOPK_SORT_TOKENS;

	if (l->cut->resident) {
		phase_add(l, OP_ROUTER, layer, 1, 1, 1);
		phase_add(l, OP_GATE_UP, layer, 1, 1, 1);
		phase_add(l, OP_DOWN, layer, 1, 1, 1);
		return;
	}
	if (!l->shape->out_norms ||
	    m->experts) /* without experts OP_ROUTER would only norm rows again */
		phase_add(l, OP_ROUTER, layer, router, l->n_tokens, 1);
	if (m->experts && topk_apart)
		phase_add(l, OP_TOPK, layer, 1, l->n_tokens, 1);
	phase_add(l, m->experts && !topk_apart ? OP_TOPK_SORT : OP_SORT, layer, 1, 1, 1);
	phase_add_product(l, OP_GATE_UP, layer, width, 2 * D, tasks);
	phase_add_product(l, OP_DOWN, layer, D, width, tasks);
	phase_add(l, OP_COMBINE, layer, 1, l->n_tokens, 1);
}

#define B(at) (1u << AT_##at)
const struct phase_order mlp_order[] = {
	{OP_ROUTER, B(X), B(H) | B(H32) | B(ROUTER_LOGITS)},
	{OP_TOPK, B(ROUTER_LOGITS), B(EXPERTS) | B(WEIGHTS)},
	{OP_SORT, B(EXPERTS), B(ROWS) | B(TASKS)},
	{OP_TOPK_SORT, B(ROUTER_LOGITS), B(EXPERTS) | B(WEIGHTS) | B(ROWS) | B(TASKS)},
	{OP_GATE_UP, B(H) | B(TASKS) | B(ROWS), B(ACT)},
	{OP_DOWN, B(ACT) | B(TASKS) | B(ROWS), B(Y)},
	{OP_COMBINE, B(X) | B(Y) | B(WEIGHTS) | B(ROUTER_LOGITS), B(X) | B(H) | B(H32)},
	{OP_END, 0, 0},
};
const struct phase_order mlp_resident_order[] = {
	{OP_ROUTER, B(X), B(ROUTER_LOGITS)},
	{OP_GATE_UP, B(X) | B(ROUTER_LOGITS), B(ACT)},
	{OP_DOWN, B(X) | B(ACT), B(X)},
	{OP_END, 0, 0},
};
#undef B

/* Returns how many of the n terms of a sum the launch adds up. */
static double terms_of(const struct kernel_timing *l, double n)
{
	if (!l->n_terms)
		return n;
	return MAX(MIN(n, (double)l->first_term + l->n_terms) - l->first_term, 0);
}

/* Computes the work of one of an MLP's two products: gate and up together (matrices: 2), or down (matrices: 1). */
static void product_cost(const struct model_config *c, const struct cost_step *s,
			 const struct kernel_timing *l, double matrices, struct roofline_work *ret)
{
	double D = c->hidden_size, topk = l->dense ? 0 : c->n_experts_per_token;
	double I = l->dense ? 0 : terms_of(l, c->expert_size), experts = l->dense ? 0 : l->experts;
	double Is = terms_of(l, l->dense ? c->mlp_size : c->shared_expert_size);
	double slots = (I > 0 ? topk : 0) + (Is > 0);
	double weights = matrices * (experts * I + Is) * D * s->weight;
	double act = s->tokens * (topk * I + Is) * s->element;
	double rows = matrices == 2 ? s->tokens * D * s->element : s->tokens * slots * D * 4;

	ret->bytes = weights + act + rows;
	ret->flops = 2 * s->tokens * matrices * (topk * I + Is) * D;
	ret->elements = true;
}

bool mlp_kernel(const struct model_config *c, const struct cost_step *s,
		const struct kernel_timing *l, struct roofline_work *ret)
{
	double topk = l->dense ? 0 : c->n_experts_per_token, D = c->hidden_size;
	double shared = l->dense || c->shared_expert_size;

	if (!strcmp(l->kernel, "moe_gate_up"))
		product_cost(c, s, l, 2, ret);
	else if (!strcmp(l->kernel, "moe_down"))
		product_cost(c, s, l, 1, ret);
	else if (!strcmp(l->kernel, "moe_topk"))
		ret->bytes = l->m * ((c->n_experts + shared) * 4 + topk * 8);
	else if (!strcmp(l->kernel, "combine_norm"))
		ret->bytes = l->m * D * (4 + (topk + shared) * 4 + 4 + s->element + 4);
	else
		return false;
	return true;
}
