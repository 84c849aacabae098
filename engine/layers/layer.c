#include "engine/layers/layer.h"

const struct layer_ops *const layer_ops[LAYER_KINDS] = {
	[LAYER_ATTENTION] = &layer_attention,
	[LAYER_DELTA] = &layer_delta,
	[LAYER_MOE] = &layer_moe,
	[LAYER_DENSE] = &layer_dense,
};

void layers_shape(const struct model_config *c, struct kernel_shape *k)
{
	for (int kind = 0; kind < LAYER_KINDS; kind++)
		if (c->n_layers_of[kind])
			layer_ops[kind]->shape(c, k);
}

uint32_t layer_parts(const struct model_config *c, uint32_t layer, uint32_t element,
		     uint32_t page_tokens, struct layer_part ret[LAYER_PARTS_MAX])
{
	const struct layer_ops *mixer = layer_ops[c->layers[layer].mixer];

	return mixer->parts ? mixer->parts(c, element, page_tokens, ret) : 0;
}

uint64_t layer_part_bytes(const struct model_config *c, uint32_t element, uint32_t page_tokens,
			  enum tier_kind kind)
{
	struct layer_part parts[LAYER_PARTS_MAX];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < c->n_layers; i++) {
		uint32_t n = layer_parts(c, i, element, page_tokens, parts);

		for (uint32_t k = 0; k < n; k++)
			bytes += parts[k].kind == kind ? parts[k].bytes : 0;
	}
	return bytes;
}
