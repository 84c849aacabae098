/*
 * Where the rows of weights lie in a tensor, once a configuration gives the sizes.
 *
 * The rows of a tensor are `groups` groups of `stride` rows; each section is `rows` rows of every
 * group, from its row `first` on. A tensor of one plain weight is one group. Reading and exporting
 * both follow this.
 */
#pragma once

#include "engine/checkpoint/families/family.h"
#include "engine/checkpoint/tensor.h"

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
	uint32_t n_tensors; /* one, or one for each expert */
};

/* False: this layer has none of the tensor's weights. `table`: see weights.h. */
bool layout_of(const struct family_tensor *t, const struct model_config *c,
	       const struct weight *table, uint32_t layer, struct layout *ret);

/* Whether the layer may hold tensors of the set. */
bool layout_has_set(const struct tensor_set *set, const struct model_config *c, uint32_t layer);

/* The name of a tensor behind a prefix, into out [TENSOR_NAME_MAX + 1]; cut where it is too long. */
void layout_name(const struct family_tensor *t, const char *prefix, uint32_t expert, char *out);
