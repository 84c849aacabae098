#include "engine/checkpoint/quantised/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/config_source.h"

/* Notes an error unless the key is missing or has one of the words, which commas separate. */
static void only_words(struct config_source *s, const char *key, const char *words)
{
	const json_t *v = config_value(s, key);
	const char *word = json_string_value(v);
	char text[512];
	size_t n = word ? strlen(word) : 0;

	if (s->error < 0 || !v)
		return;
	for (const char *at = words; n && (at = strstr(at, word)); at++)
		if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ','))
			return;
	snprintf(text, sizeof(text), "is \"%.60s\", but must be %s%s", word ? word : "",
		 strchr(words, ',') ? "one of " : "", words);
	config_fail(s, ENOTSUP, key, word ? text : "must be a text");
}

/* Reads a pair of sizes: of blocks that share a scale. */
static void read_block(struct config_source *s, const char *key, struct quantised_config *c)
{
	const json_t *v = config_value(s, key);
	json_int_t rows = json_integer_value(json_array_get(v, 0));
	json_int_t cols = json_integer_value(json_array_get(v, 1));

	if (!v)
		return;
	if (json_array_size(v) != 2 || rows < 1 || cols < 1 || rows > 65536 || cols > 65536) {
		config_fail(s, EINVAL, key, "must be two sizes from 1 to 65536");
		return;
	}
	c->block_rows = (uint32_t)rows;
	c->block_cols = (uint32_t)cols;
}

/* Has the value of a key as a source of its own, whose path is written to `path`. NULL: it is no object. */
static bool inner(struct config_source *s, const char *key, char *path, size_t size,
		  struct config_source *ret)
{
	const json_t *v = config_value(s, key);

	snprintf(path, size, "%s%s.", s->path, key);
	*ret = *s;
	ret->object = v;
	ret->path = path;
	if (v && !json_is_object(v))
		config_fail(s, EINVAL, key, "must be an object");
	return s->error == 0 && v;
}

static void read_fp8(struct config_source *s, struct quantised_config *c)
{
	only_words(s, "fmt", "e4m3");
	read_block(s, "weight_block_size", c);
}

#define COMPRESSED                                                                                       \
	"dense, pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized, " \
	"mxfp4-pack-quantized, mxfp8-quantized"

/* Reads one of the config_groups. */
static void read_group(struct config_source *s, struct quantised_config *c)
{
	struct config_source weights;
	char path[256];

	only_words(s, "format", COMPRESSED);
	if (!inner(s, "weights", path, sizeof(path), &weights))
		return;
	read_block(&weights, "block_structure", c);
	s->error = weights.error;
}

static void read_compressed(struct config_source *s, struct quantised_config *c)
{
	const json_t *transforms = config_value(s, "transform_config"), *v;
	struct config_source groups, group, sparsity;
	char path[128], group_path[192];
	const char *key;

	only_words(s, "format", COMPRESSED ", mixed-precision");
	if (json_object_size(json_object_get(transforms, "config_groups")))
		config_fail(s, ENOTSUP, "transform_config",
			    "has transforms of activations, which are not supported");
	if (inner(s, "sparsity_config", path, sizeof(path), &sparsity)) {
		only_words(&sparsity, "format", "dense");
		s->error = sparsity.error;
	}
	if (!inner(s, "config_groups", path, sizeof(path), &groups))
		return;
	json_object_foreach((json_t *)groups.object, key, v)
	{
		if (groups.error == 0 &&
		    inner(&groups, key, group_path, sizeof(group_path), &group)) {
			read_group(&group, c);
			groups.error = group.error;
		}
	}
	s->error = groups.error;
}

static void read_awq(struct config_source *s, struct quantised_config *c)
{
	only_words(s, "version", "gemm, GEMM");
	if (config_whole(s, "bits", 1, 32, 4) != 4)
		config_fail(s, ENOTSUP, "bits", "must be 4");
}

static void read_gptq(struct config_source *s, struct quantised_config *c)
{
	only_words(s, "checkpoint_format", "gptq, gptq_v2");
	config_only_truth(s, "is_marlin_format", false);
	if (s->error == 0 && config_value(s, "checkpoint_format"))
		c->gptq_v2 =
			!strcmp(json_string_value(config_value(s, "checkpoint_format")), "gptq_v2");
}

/* AutoRound packs as other tools do, and says as which; "auto_round" alone is GPTQ with zeros as they are. */
static void read_auto_round(struct config_source *s, struct quantised_config *c)
{
	const char *packing = json_string_value(config_value(s, "packing_format"));

	only_words(s, "packing_format",
		   "auto_round, auto_round:gptqmodel, auto_round:auto_gptq, auto_round:gptq, "
		   "auto_round:auto_awq, auto_round:awq, auto_round:llm_compressor");
	c->gptq_v2 = packing && (!strcmp(packing, "auto_round") || strstr(packing, "gptqmodel"));
}

static void read_nothing(struct config_source *s, struct quantised_config *c)
{
}

static const struct {
	const char *method; /* of quant_method */
	void (*read)(struct config_source *s, struct quantised_config *c);
} methods[] = {
	{"fp8", read_fp8},
	{"compressed-tensors", read_compressed},
	{"awq", read_awq},
	{"gptq", read_gptq},
	{"auto-round", read_auto_round},
	{"modelopt", read_nothing},
	{"mxfp4", read_nothing},
};

void quantised_config_read(struct config_source *s, struct quantised_config *ret)
{
	const char *key = config_value(s, "quantization_config") ? "quantization_config"
								 : "compression_config";
	struct config_source q;
	const char *method;
	char path[64], text[192];

	if (s->error < 0 || !inner(s, key, path, sizeof(path), &q))
		return;
	method = json_string_value(config_value(&q, "quant_method"));
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (method && !strcmp(method, methods[i].method)) {
			methods[i].read(&q, ret);
			s->error = q.error;
			return;
		}
	snprintf(
		text, sizeof(text),
		"is \"%.40s\", which is not supported: fp8, compressed-tensors, awq, gptq, auto-round, "
		"modelopt and mxfp4 are",
		method ? method : "");
	config_fail(&q, ENOTSUP, "quant_method", method ? text : "is missing");
	s->error = q.error;
}
