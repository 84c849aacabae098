/*
 * Experts, of which a router chooses some for each token, beside a shared expert that all tokens take
 * (kernels/generic/moe_route.cl, gemm.cl).
 */
#include "base/macros.h"
#include "engine/layers/mlp.h"

enum { MLP = 0 }; /* in the kernels' shape, where a dense one is the last */

static void shape(const struct model_config *c, struct kernel_shape *k)
{
	k->mlps[MLP] = (struct kernel_mlp){
		.experts = c->n_experts,
		.topk = c->n_experts_per_token,
		.expert_size = c->expert_size,
		.shared_size = c->shared_expert_size,
		.norm_topk = c->norm_topk_prob,
		.shared_gate = true,
	};
	k->n_mlps++;
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, I = c->expert_size, S = c->shared_expert_size;
	uint32_t E = c->n_experts;
	const struct weight all[] = {
		layer_norm(c, WEIGHT_POST_NORM, D, AT_POST_NORM),
		{WEIGHT_ROUTER, AT_ROUTER, PACK_FLOATS, E, D, .gain = 2},
		{WEIGHT_SHARED_ROUTER, AT_ROUTER, PACK_FLOATS, S ? 1 : 0, D, .gain = 1},
		{WEIGHT_EXPERT_GATE, AT_EXPERTS_GATE_UP, PACK_TURNS, I, D, .gain = 1, .experts = E},
		{WEIGHT_EXPERT_UP, AT_EXPERTS_GATE_UP, PACK_TURNS, I, D, .gain = 1, .experts = E},
		{WEIGHT_EXPERT_DOWN, AT_EXPERTS_DOWN, PACK_STACKED, D, I, .gain = 1, .experts = E},
		{WEIGHT_SHARED_GATE, AT_SHARED_GATE_UP, PACK_TURNS, S, D, .gain = 1},
		{WEIGHT_SHARED_UP, AT_SHARED_GATE_UP, PACK_TURNS, S, D, .gain = 1},
		{WEIGHT_SHARED_DOWN, AT_SHARED_DOWN, PACK_STACKED, D, S, .gain = 0.5f},
	};

	layer_weights_set(ret, all, ARRAY_SIZE(all));
}

static uint32_t scratch(const struct kernels *k, uint32_t T,
			struct layer_scratch ret[LAYER_SCRATCH_MAX])
{
	return mlp_scratch(k, MLP, T, ret);
}

static void forward(const struct layer_run *r)
{
	mlp_forward(r, MLP);
}

static void phases(struct phase_list *l, uint32_t layer)
{
	mlp_phases(l, layer, MLP);
}

const struct layer_ops layer_moe = {
	.shape = shape,
	.weights = weights,
	.scratch = scratch,
	.forward = forward,
	.phases = phases,
	.order = mlp_order,
	.kernel = mlp_kernel,
};
