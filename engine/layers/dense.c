/* A dense MLP: down(silu(gate(x)) * up(x)). */
#include "base/macros.h"
#include "engine/layers/mlp.h"

static uint32_t last_mlp(const struct kernel_shape *k)
{
	return k->n_mlps - 1;
}

static void shape(const struct model_config *c, struct kernel_shape *k)
{
	k->mlps[k->n_mlps++] = (struct kernel_mlp){.shared_size = c->mlp_size};
}

static void weights(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, I = c->mlp_size;
	const struct weight all[] = {
		layer_norm(c, WEIGHT_POST_NORM, D, AT_POST_NORM),
		{WEIGHT_SHARED_GATE, AT_SHARED_GATE_UP, PACK_TURNS, I, D, .gain = 1},
		{WEIGHT_SHARED_UP, AT_SHARED_GATE_UP, PACK_TURNS, I, D, .gain = 1},
		{WEIGHT_SHARED_DOWN, AT_SHARED_DOWN, PACK_STACKED, D, I, .gain = 0.5f},
	};

	layer_weights_set(ret, all, ARRAY_SIZE(all));
}

static uint32_t scratch(const struct kernels *k, uint32_t T,
			struct layer_scratch ret[LAYER_SCRATCH_MAX])
{
	return mlp_scratch(k, last_mlp(kernels_shape(k)), T, ret);
}

static void forward(const struct layer_run *r)
{
	mlp_forward(r, last_mlp(kernels_shape(r->kernels)));
}

static void phases(struct phase_list *l, uint32_t layer)
{
	mlp_phases(l, layer, last_mlp(l->shape));
}

const struct layer_ops layer_dense = {
	.shape = shape,
	.weights = weights,
	.scratch = scratch,
	.forward = forward,
	.phases = phases,
	.order = mlp_order,
	.kernel = mlp_kernel,
};
