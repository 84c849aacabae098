/*
 * Where the rows of weights lie in a tensor, once a configuration gives the sizes.
 *
 * The rows of a tensor are `groups` groups of `stride` rows; each section is `rows` rows of every
 * group, from its row `first` on. A tensor of one plain weight is one group. Reading and exporting
 * both follow this.
 */
#ifndef ENGINE_CHECKPOINT_LAYOUT_H
#define ENGINE_CHECKPOINT_LAYOUT_H

#include "engine/checkpoint/families/family.h"

struct layout_section {
	const struct weight *weight; /* borrowed */
	uint64_t first, rows;
	uint64_t start; /* the weight's row that is the first one of group 0 */
};

struct layout {
	uint64_t groups, stride, cols;
	bool experts; /* a group is an expert's; else the groups of a section follow each other */
	struct layout_section sections[TENSOR_SECTIONS_MAX];
	uint32_t n_sections;
	uint64_t shape[3]; /* of the tensor */
	uint32_t n_dims;
};

/* False: this layer has none of the tensor's weights. `table`: see weights.h. */
bool layout_of(const struct family_tensor *t, const struct model_config *c,
	       const struct weight *table, uint32_t layer, struct layout *ret);

/* Whether the layer may hold tensors of the set. */
bool layout_has_set(const struct tensor_set *set, const struct model_config *c, uint32_t layer);

/* The name of a tensor into out [size]: behind prefix, in a layer when in_layer, of an expert where
 * there is one tensor each. */
void layout_name(const struct family_tensor *t, const char *prefix, bool in_layer, uint32_t layer,
		 uint32_t expert, char *out, size_t size);

#endif
