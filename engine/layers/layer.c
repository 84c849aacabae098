#include "engine/layers/layer.h"

#include "engine/layers/inputs.h"

const struct layer_ops *const layer_ops[LAYER_KINDS] = {
	[LAYER_ATTENTION] = &layer_attention,
	[LAYER_DELTA] = &layer_delta,
	[LAYER_MOE] = &layer_moe,
	[LAYER_DENSE] = &layer_dense,
	[LAYER_SLIDING] = &layer_sliding,
};

void layers_shape(const struct model_config *c, struct kernel_shape *k)
{
	for (int kind = 0; kind < LAYER_KINDS; kind++)
		if (c->n_layers_of[kind])
			layer_ops[kind]->shape(c, k);
}

uint32_t layer_ring_pages(const struct model_config *c, uint32_t page_tokens)
{
	return c->n_layers_of[LAYER_SLIDING] ? CEIL_DIV(c->sliding_window, page_tokens) + 1 : 0;
}

uint32_t layer_parts(const struct model_config *c, uint32_t layer, uint32_t number,
		     uint32_t page_tokens, struct layer_part ret[LAYER_PARTS_MAX])
{
	const struct layer_ops *mixer = layer_ops[c->layers[layer].mixer];

	return mixer->parts ? mixer->parts(c, number, page_tokens, ret) : 0;
}

uint64_t layer_part_bytes(const struct model_config *c, uint32_t number, uint32_t page_tokens,
			  enum tier_kind kind)
{
	struct layer_part parts[LAYER_PARTS_MAX];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < c->n_layers; i++) {
		uint32_t n = layer_parts(c, i, number, page_tokens, parts);

		for (uint32_t k = 0; k < n; k++)
			bytes += parts[k].kind == kind ? parts[k].bytes : 0;
	}
	return bytes;
}

void layer_output(const struct layer_run *r, uint32_t width)
{
	const struct kernel_shape *s = kernels_shape(r->kernels);
	const cl_mem *all = r->all, *own = r->own;
	uint32_t D = KERNEL_LD(s->hidden), T = r->step->n_tokens;
	uint32_t generating = T - r->step->n_prefill_tokens;

	if (r->importance)
		inputs_of_mixer(r, width);
	if (!s->out_norms) {
		kernel_project(r->kernels, true, all[AT_MIXED],
			       (uint32_t)kernels_input_ld(s, width), own[AT_OUT_PROJ], all[AT_X], D,
			       T, generating, D, width, all[BUFFER_DUMP], all[AT_PARTIAL]);
		return;
	}
	kernel_project(r->kernels, false, all[AT_MIXED], (uint32_t)kernels_input_ld(s, width),
		       own[AT_OUT_PROJ], all[AT_Y], D, T, generating, D, width, NULL, NULL);
	kernel_add_norm(r->kernels, all[AT_X], all[AT_Y], own[AT_MIXER_NORM], own[AT_POST_NORM],
			all[AT_H], all[AT_H32], all[BUFFER_DUMP], T);
}

void layer_output_phases(struct phase_list *l, int op, uint32_t layer, uint64_t width)
{
	phase_add_product(l, op, layer, KERNEL_LD(l->shape->hidden), width,
			  phase_row_blocks(l, l->n_tokens));
	if (l->shape->out_norms)
		phase_add(l, OP_ADD_NORM, layer, 1, l->n_tokens, 1);
}
