/* What the files of engine/weights*.c share. */
#ifndef ENGINE_CHECKPOINT_WEIGHTS_INTERNAL_H
#define ENGINE_CHECKPOINT_WEIGHTS_INTERNAL_H

#include <stdbool.h>

#include "engine/checkpoint/formats/safetensors.h"
#include "engine/checkpoint/weights.h"

/* Rows inside one tensor. Row r lies at data + size of a row * ((r / group) * stride + r % group):
 * groups of `group` rows, `stride` rows apart. group 0: rows lie one behind another. */
struct weight_rows {
	const uint8_t *data; /* borrowed: first row */
	uint64_t group, stride;
	enum tensor_dtype dtype;
};

/* One weight of a layer: up to three stretches of rows, the second from row `starts[1]` on, and so
 * on. Only Qwen3-Next's interleaved projection needs more than one (q, k and v). */
enum { WEIGHT_PARTS_MAX = 3 };
struct weight_source {
	struct weight_rows parts[WEIGHT_PARTS_MAX];
	uint64_t starts[WEIGHT_PARTS_MAX];
	uint32_t n_parts; /* 0: the layer has no such weight */
};

enum { WEIGHT_EXPERT_ROLES = 3 }; /* gate, up, down */

struct weights {
	struct model_config config;
	bool synthetic;
	uint64_t seed;
	/* Of a checkpoint; NULL when synthetic. */
	struct safetensors *files;
	struct weight_source
		*sources;	     /* [n_layers][WEIGHT_ROLES]; whole-model weights in layer 0 */
	struct weight_rows *experts; /* [n_layers][n_experts][WEIGHT_EXPERT_ROLES] */
};

static inline bool weight_is_expert(enum weight_role role)
{
	return role >= WEIGHT_EXPERT_GATE && role <= WEIGHT_EXPERT_DOWN;
}

/* Fills sources and experts from w->files: weights_names.c. */
int weights_resolve(struct weights *w, const char *dir, struct err *e) MUST_CHECK;

/* One row of a synthetic weight [cols]: weights_synthetic.c. */
void weights_synthesize_row(const struct weights *w, enum weight_role role, uint32_t layer,
			    uint32_t expert, uint64_t row, uint64_t cols, float *out);

#endif
