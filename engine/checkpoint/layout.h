/* Says where the rows of weights are in a tensor, for the sizes of a configuration.
 *
 * The rows of a tensor are `groups` groups of `stride` rows. A section is a part of the tensor with rows of one weight
 * (families/family.h): it has `rows` rows of every group, from the group's row `first` on. A tensor of one plain weight
 * is one group. Reading and exporting both use these layouts. */
#pragma once

#include "engine/checkpoint/families/family.h"
#include "engine/checkpoint/tensor.h"

struct layout_section {
	const struct weight *weight; /* borrowed */
	uint64_t first, rows;
	uint64_t start; /* the section begins with this row of the weight */
};

struct layout {
	uint64_t groups, stride, cols;
	uint64_t
		pairs; /* rows i and i + pairs of each 2 pairs rows are neighbours in the tensor; 0: no rows are moved */
	/* true: group i has the rows of expert i. false: in a section's weight, the section's rows of group i + 1
	 * follow those of group i */
	bool experts;
	struct layout_section sections[TENSOR_SECTIONS_MAX];
	uint32_t n_sections;
	uint64_t shape[3]; /* [n_dims] shape of the tensor */
	uint32_t n_dims;
	uint32_t n_tensors; /* number of tensors: one, or one for each expert */
};

/* Computes the layout of a tensor. False: this layer has none of the tensor's weights. `table`: the weights of all
 * layers (weights.h). */
bool layout_of(const struct family_tensor *t, const struct model_config *c,
	       const struct weight *table, uint32_t layer, struct layout *ret);

/* Returns whether the layer is of a kind that has tensors of the set. */
bool layout_has_set(const struct tensor_set *set, const struct model_config *c, uint32_t layer);

/* Writes the name of a tensor to out [TENSOR_NAME_MAX + 1]: prefix, then t->name with the expert's number in place of
 * '*'. A name that is too long is cut. */
void layout_name(const struct family_tensor *t, const char *prefix, uint32_t expert, char *out);

/* Visits the tensors of a model's checkpoint, in the order of the model: embedding, layers, final norm, head. Of
 * sets that have the same weights it takes the first, because the family's own files have that one. A head that is
 * tied to the embedding has no tensor. prefix: one of the naming's. The name lives until the visit ends. `expert`:
 * the number of the expert, if the tensor belongs to one; else 0. */
typedef void layout_visit(void *user, const char *name, const struct layout *l, uint32_t expert);
void layout_each(const struct naming *naming, const struct tensor_set *const *sets,
		 const char *prefix, const struct model_config *c, const struct weight *table,
		 layout_visit *visit, void *user);
