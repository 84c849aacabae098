/*
 * Experts, of which a router chooses some for each token, beside a shared expert that all tokens take
 * (kernels/generic/moe_route.cl, gemm.cl).
 */
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
	.scratch = scratch,
	.forward = forward,
	.phases = phases,
	.order = mlp_order,
};
