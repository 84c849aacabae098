/* An MLP of experts, of which a router chooses some for each token. If the model has a shared expert, every token goes
 * through the shared expert too (kernels/generic/moe_route.cl, moe_gemm.cl). */
#include "base/macros.h"
#include "engine/layers/mlp.h"

static void shape(const struct model_config *c, struct kernel_shape *k)
{
	k->mlps[k->n_mlps++] = (struct kernel_mlp){
		.experts = c->n_experts,
		.topk = c->n_experts_per_token,
		.expert_size = c->expert_size,
		.shared_size = c->shared_expert_size,
		.norm_topk = c->norm_topk_prob,
		.shared_gate = c->shared_expert_size > 0,
	};
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, I = c->expert_size, S = c->shared_expert_size;
	uint32_t E = c->n_experts;
	const struct weight all[] = {
		layer_norm(c, WEIGHT_POST_NORM, D, AT_POST_NORM),
		layer_norm(c, WEIGHT_MLP_NORM, c->out_norms ? D : 0, AT_MLP_NORM),
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

const struct layer_ops layer_moe = {
	.shape = shape,
	.weights = weights,
	.scratch = mlp_scratch,
	.forward = mlp_forward,
	.phases = mlp_phases,
	.order = mlp_order,
	.resident_order = mlp_resident_order,
	.kernel = mlp_kernel,
};
