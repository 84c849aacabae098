/* Weights for tests: small configurations, their synthetic weights, and checkpoints that are open until a TEST ends. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"
#include "tests/quoted.h"
#include "tests/tap.h"

/* Small configurations; vocab_size x hidden_size is 65536, so that an embedding holds every 16-bit number, and few
 * sizes are equal, so that most mix-ups change a shape. */
#define COMMON                                                                                       \
	"'hidden_size':32,'num_hidden_layers':4,'vocab_size':2048,'num_attention_heads':4,"          \
	"'num_key_value_heads':2,'head_dim':16,'linear_num_key_heads':2,'linear_num_value_heads':6," \
	"'linear_key_head_dim':16,'linear_value_head_dim':32,'linear_conv_kernel_dim':3"
#define EXPERTS                                                                \
	",'num_experts':5,'num_experts_per_tok':2,'moe_intermediate_size':24," \
	"'shared_expert_intermediate_size':40"

static const char config_moe[] = "{'model_type':'qwen3_5_moe_text'," COMMON EXPERTS "}";
static const char config_tied[] =
	"{'model_type':'qwen3_5_moe_text','tie_word_embeddings':true," COMMON EXPERTS "}";
static const char config_next[] =
	"{'model_type':'qwen3_next','mlp_only_layers':[1],'intermediate_size':48," COMMON EXPERTS
	"}";

/* Reads one of these configurations (quoted.h). */
static inline struct model_config parse(const char *json)
{
	struct model_config c;
	struct err e = {0};

	json = quoted(json);
	if (model_config_parse("config.json", json, strlen(json), NULL, 0, &c, &e) < 0) {
		printf("Bail out! %s\n", e.text);
		exit(1);
	}
	return c;
}

/* The weights and the checkpoint of a TEST are closed when it ends, in the reverse order of their registration.
 * Weights borrow their checkpoint, so the checkpoint is registered before them. */
static inline void close_weights(void *w)
{
	weights_close(w);
}

static inline void close_checkpoint(void *c)
{
	checkpoint_close(c);
}

/* Returns the synthetic weights of a seed. */
static inline struct weights *make(uint64_t seed, const struct model_config *c)
{
	struct weight *table = layers_weights(c);
	struct weights *w;

	if (!table || weights_synthetic(seed, NULL, c, table, &w) < 0) {
		printf("Bail out! out of memory\n");
		exit(1);
	}
	free(table);
	after_test(close_weights, w);
	return w;
}

/* Opens the weights of a checkpoint. Returns 0, or the error of checkpoint_open or weights_open. */
static inline int open_weights(const char *dir, const struct model_config *c, struct weights **ret,
			       struct err *e)
{
	struct weight *table = layers_weights(c);
	struct checkpoint *from;
	int r = checkpoint_open(dir, &from, e);

	if (r == 0) {
		after_test(close_checkpoint, from);
		r = weights_open(from, c, table, ret, e);
	}
	if (r == 0)
		after_test(close_weights, *ret);
	free(table);
	return r;
}

/* Returns whether x and y have the same rows, more than 1000 elements in all. Both are for the configuration. */
static inline bool same_rows(const struct model_config *c, const struct weights *x,
			     const struct weights *y)
{
	static float a[4096], b[4096];
	uint64_t compared = 0, different = 0;

	for (uint32_t layer = 0; layer < c->n_layers; layer++) {
		for (int role = 0; role < WEIGHT_ROLES; role++) {
			const struct weight *s = weights_find(x, role, layer);

			for (uint32_t i = 0; s && i < s->experts; i++) {
				for (uint64_t row = 0; row < s->rows; row++) {
					weights_row(x, role, layer, i, row, false, a);
					weights_row(y, role, layer, i, row, false, b);
					compared += s->cols;
					different += memcmp(a, b, s->cols * sizeof(*a)) != 0;
				}
			}
		}
	}
	if (different)
		printf("# %llu rows differ\n", (unsigned long long)different);
	return compared > 1000 && !different;
}
