/* A dense MLP: down(f(gate(x)) * up(x)), f the activation (kernels/generic/activation.clh). */
#include "base/macros.h"
#include "engine/layers/mlp.h"

static void shape(const struct model_config *c, struct kernel_shape *k)
{
	k->mlps[k->n_mlps++] = (struct kernel_mlp){.shared_size = c->mlp_size};
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, I = c->mlp_size;
	const struct weight all[] = {
		layer_norm(c, WEIGHT_POST_NORM, D, AT_POST_NORM),
		layer_norm(c, WEIGHT_MLP_NORM, c->out_norms ? D : 0, AT_MLP_NORM),
		{WEIGHT_SHARED_GATE, AT_SHARED_GATE_UP, PACK_TURNS, I, D, .gain = 1},
		{WEIGHT_SHARED_UP, AT_SHARED_GATE_UP, PACK_TURNS, I, D, .gain = 1},
		{WEIGHT_SHARED_DOWN, AT_SHARED_DOWN, PACK_STACKED, D, I, .gain = 0.5f},
	};

	layer_weights_set(ret, all, ARRAY_SIZE(all));
}

const struct layer_ops layer_dense = {
	.shape = shape,
	.weights = weights,
	.scratch = mlp_scratch,
	.forward = mlp_forward,
	.phases = mlp_phases,
	.order = mlp_order,
	.resident_order = mlp_resident_order,
	.kernel = mlp_kernel,
};
