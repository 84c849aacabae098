#include "tests/quantised_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/macros.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "engine/checkpoint/quantised/quantised.h"
#include "engine/checkpoint/quantize.h"
#include "engine/checkpoint/types/float8.h"
#include "engine/layers/weights.h"

enum { TENSORS = 16384, FP8_BLOCK = 128 };

/* A way to write a matrix: the values of its codes, and its tensors. */
struct way {
	const char *name;
	uint32_t bits, group;	 /* group: the most columns that share a scale; 0: all */
	uint32_t rows;		 /* neighbours that share a scale; 0: none do */
	bool e2m1, e4m3, powers; /* powers: scales are powers of two */
	float least;		 /* of whole numbers: the value of code 0, before the zero */
	void (*put)(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		    const float *scales, uint64_t groups);
};

struct model {
	struct tensor list[TENSORS];
	size_t n;
};

static struct model codes_model, floats_model;

static void add_tensor(struct model *m, const char *name, const char *type, uint64_t rows,
		       uint64_t cols, const void *data)
{
	struct tensor *t = &m->list[m->n++];

	*t = (struct tensor){.name = strdup(name),
			     .file = "file",
			     .data = data,
			     .n_dims = 2,
			     .type = stored_type_find(type)};
	t->shape[0] = rows;
	t->shape[1] = cols;
	t->bytes = stored_bytes(t->type, rows * cols);
}

static void add_part(const char *layer, const char *suffix, const char *type, uint64_t rows,
		     uint64_t cols, const void *data)
{
	char name[300];

	snprintf(name, sizeof(name), "%s%s", layer, suffix);
	add_tensor(&codes_model, name, type, rows, cols, data);
}

static void *narrowed(const float *x, uint64_t n)
{
	uint16_t *out = malloc(n * 2);

	stored_narrow(x, n, out);
	return out;
}

static void put_packed(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		       const float *scales, uint64_t groups)
{
	uint8_t *words = malloc(rows * cols / 2);

	for (uint64_t i = 0; i < rows * cols / 2; i++)
		words[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
	add_part(layer, ".weight_packed", "I32", rows, cols / 8, words);
	add_part(layer, ".weight_scale", "BF16", rows, groups, narrowed(scales, rows * groups));
}

/* Zeros: 7 and 8 in turn. */
static uint8_t awq_zero(uint64_t row)
{
	return (uint8_t)(7 + row % 2);
}

static void put_awq(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		    const float *scales, uint64_t groups)
{
	static const uint8_t nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
	uint32_t *words = calloc(rows / 8 * cols, 4), *zeros = calloc(rows / 8 * groups, 4);
	float *turned = malloc(rows * groups * sizeof(*turned));

	for (uint64_t r = 0; r < rows; r++) {
		for (uint64_t c = 0; c < cols; c++)
			words[c * (rows / 8) + r / 8] |= (uint32_t)codes[r * cols + c]
							 << 4 * nibble[r % 8];
		for (uint64_t g = 0; g < groups; g++) {
			zeros[g * (rows / 8) + r / 8] |= (uint32_t)awq_zero(r) << 4 * nibble[r % 8];
			turned[g * rows + r] = scales[r * groups + g];
		}
	}
	add_part(layer, ".qweight", "I32", cols, rows / 8, words);
	add_part(layer, ".qzeros", "I32", groups, rows / 8, zeros);
	add_part(layer, ".scales", "BF16", groups, rows, narrowed(turned, rows * groups));
	free(turned);
}

static void put_int8(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		     const float *scales, uint64_t groups)
{
	uint8_t *bytes = malloc(rows * cols);
	float *copy = malloc(rows * groups * sizeof(*copy));

	for (uint64_t i = 0; i < rows * cols; i++)
		bytes[i] = codes[i] ^ 0x80;
	memcpy(copy, scales, rows * groups * sizeof(*copy));
	add_part(layer, ".weight", "I8", rows, cols, bytes);
	add_part(layer, ".weight_scale", "F32", rows, groups, copy);
}

/* Returns the code nearest to x. Codes of positive numbers ascend with them. */
static uint8_t e4m3_of(float x)
{
	float size = fabsf(x);
	uint8_t code = 0;

	for (uint8_t bit = 64; bit; bit /= 2)
		if ((code | bit) < 0x7f && float_of_e4m3(code | bit) <= size)
			code |= bit;
	if (code < 0x7e && float_of_e4m3(code + 1) - size < size - float_of_e4m3(code))
		code++;
	return code | (x < 0 ? 0x80 : 0);
}

enum { NVFP4_UP = 1024 }; /* the common scale is 3 / 4 of the reciprocal */

static void put_nvfp4(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		      const float *scales, uint64_t groups)
{
	uint8_t *bytes = malloc(rows * cols / 2), *small = malloc(rows * groups);
	static const float common = 0.75f / NVFP4_UP;

	for (uint64_t i = 0; i < rows * cols / 2; i++)
		bytes[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
	for (uint64_t i = 0; i < rows * groups; i++)
		small[i] = e4m3_of(scales[i] / common);
	add_part(layer, ".weight", "U8", rows, cols / 2, bytes);
	add_part(layer, ".weight_scale", "F8_E4M3", rows, groups, small);
	add_part(layer, ".weight_scale_2", "F32", 1, 1, &common);
}

static void put_mxfp4(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		      const float *scales, uint64_t groups)
{
	uint8_t *bytes = malloc(rows * cols / 2), *powers = malloc(rows * groups);
	int e;

	for (uint64_t i = 0; i < rows * cols / 2; i++)
		bytes[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
	for (uint64_t i = 0; i < rows * groups; i++) {
		frexpf(scales[i], &e);
		powers[i] = (uint8_t)(e + 126);
	}
	add_part(layer, ".weight_packed", "U8", rows, cols / 2, bytes);
	add_part(layer, ".weight_scale", "U8", rows, groups, powers);
}

static void put_fp8(const char *layer, uint64_t rows, uint64_t cols, const uint8_t *codes,
		    const float *scales, uint64_t groups)
{
	uint64_t blocks = CEIL_DIV(rows, (uint64_t)FP8_BLOCK);
	uint8_t *bytes = malloc(rows * cols);
	float *some = malloc(blocks * groups * sizeof(*some));

	memcpy(bytes, codes, rows * cols);
	for (uint64_t b = 0; b < blocks; b++)
		memcpy(some + b * groups, scales + b * FP8_BLOCK * groups, groups * sizeof(*some));
	add_part(layer, ".weight", "F8_E4M3", rows, cols, bytes);
	add_part(layer, ".weight_scale_inv", "F32", blocks, groups, some);
}

static const struct way ways[] = {
	{"pack-quantized", .bits = 4, .group = 128, .least = -8, .put = put_packed},
	{"AWQ", .bits = 4, .group = 64, .least = -7, .put = put_awq},
	{"int-quantized", .bits = 8, .least = -128, .put = put_int8},
	{"NVFP4", .bits = 4, .group = 16, .e2m1 = true, .put = put_nvfp4},
	{"MXFP4", .bits = 4, .group = 32, .e2m1 = true, .powers = true, .put = put_mxfp4},
};

static const struct way fp8 = {"FP8",	     .bits = 8,	    .group = FP8_BLOCK, .rows = FP8_BLOCK,
			       .e4m3 = true, .put = put_fp8};

/* Returns the code whose value is nearest to x, a number in units of the scale. */
static uint8_t nearest(const struct way *w, float x)
{
	uint8_t best = 0;

	if (w->e4m3)
		return e4m3_of(x);
	if (!w->e2m1)
		return (uint8_t)fminf(fmaxf(rintf(x) - w->least, 0), ldexpf(1, (int)w->bits) - 1);
	for (uint8_t i = 0; i < 16; i++)
		if (fabsf((float)e2m1_doubled[i] / 2 - x) <
		    fabsf((float)e2m1_doubled[best] / 2 - x))
			best = i;
	return best;
}

/* Writes a matrix in a way, and the numbers that its codes and scales make. False, with a line that says why: no format
 * has it, or kernels have no type for it. */
static bool put_matrix(const struct way *w, const struct tensor *t)
{
	uint64_t rows = t->shape[0], cols = t->shape[1];
	uint64_t group = w->group ? MIN((uint64_t)w->group, cols) : cols, groups = cols / group;
	float *x = malloc(rows * cols * sizeof(*x)),
	      *scales = malloc(rows * groups * sizeof(*scales));
	float most = w->e4m3 ? 448 : w->e2m1 ? 6 : ldexpf(1, (int)w->bits - 1) - 1;
	uint8_t *codes = malloc(rows * cols);
	struct quantised_config config = {.block_rows = w->rows, .block_cols = w->rows};
	size_t first = codes_model.n;
	bool used[8] = {false};
	struct quantised_want want;
	struct quantised q;
	char layer[300];
	struct err e = {0};
	int e2;

	stored_read(t->type, t->data, rows * cols, false, x);
	for (uint64_t g = 0; g < rows * groups; g++) {
		uint64_t row = g / groups, end = row + 1;
		float amax = 0;

		if (w->rows) {
			row -= row % w->rows;
			end = MIN(row + w->rows, rows);
		}
		for (; row < end; row++)
			for (uint64_t i = 0; i < group; i++)
				amax = fmaxf(amax, fabsf(x[row * cols + g % groups * group + i]));
		scales[g] = float_of_bf16(bf16_of_float(fmaxf(amax, 1e-4f) / most));
		frexpf(scales[g], &e2);
		if (w->powers)
			scales[g] = ldexpf(1, e2);
		for (uint64_t i = g * group; i < (g + 1) * group; i++)
			codes[i] = nearest(w, x[i] / scales[g]);
	}
	snprintf(layer, sizeof(layer), "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
	w->put(layer, rows, cols, codes, scales, groups);
	free(codes);
	free(scales);
	want = (struct quantised_want){.path = "model",
				       .list = codes_model.list + first,
				       .n = codes_model.n - first,
				       .name = t->name,
				       .rows = rows,
				       .cols = cols,
				       .config = &config};
	if (quantised_open(quantised_find(want.list, want.n, want.name), &want, used, &q, &e) < 0 ||
	    !quantised_type(&q)) {
		printf("# %s: %s\n", w->name, e.text[0] ? e.text : "kernels have no such type");
		free(x);
		return false;
	}
	quantised_read(&q, 0, rows, false, x, cols);
	add_tensor(&floats_model, t->name, "F32", rows, cols, x);
	return true;
}

static bool is_embedding(const struct tensor *t)
{
	return name_ends_in(t->name, "embed_tokens.weight");
}

static bool is_fp8(const struct tensor *t)
{
	return t->n_dims == 2 && (name_ends_in(t->name, "_proj.weight") || is_embedding(t)) &&
	       t->shape[0] % 16 == 0 && t->shape[1] % FP8_BLOCK == 0;
}

static bool is_coded(const struct tensor *t)
{
	return t->n_dims == 2 && name_ends_in(t->name, "_proj.weight") && t->shape[0] % 16 == 0 &&
	       t->shape[1] % 64 == 0;
}

static int produce(size_t index, void *data, void *user, struct err *e)
{
	const struct model *m = user;

	memcpy(data, m->list[index].data, m->list[index].bytes);
	return 0;
	(void)e;
}

/* Stands in place of a configuration's first character. */
static const char fp8_config[] =
	"{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]},";

static bool write_model(const struct model *m, const struct checkpoint *from, bool is_codes_of_fp8,
			const char *dir)
{
	struct checkpoint_text config;
	struct buf text;
	char path[512];
	struct err e = {0};
	bool good;

	mkdir(dir, 0755);
	good = checkpoint_read(from, CHECKPOINT_CONFIG, &config, &e) == 0;
	buf_init(&text, SIZE_MAX);
	buf_printf(&text, "%s%s", is_codes_of_fp8 ? fp8_config : "{", buf_str(&config.bytes) + 1);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	good = good && file_write(path, text.data, text.len, &e) == 0 &&
	       checkpoint_copy_texts(from, dir, &e) == 0;
	buf_release(&text);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	good = good &&
	       safetensors_write(path, m->list, m->n, produce, (void *)(uintptr_t)m, &e) == 0;
	checkpoint_text_release(&config);
	if (!good)
		printf("# %s\n", e.text);
	return good;
}

/* Returns the way of a matrix: the layers have them in turn. */
static const struct way *way_of(const char *name)
{
	const char *layer = strstr(name, "layers.");

	return &ways[strtoul(layer + strlen("layers."), NULL, 10) % ARRAY_SIZE(ways)];
}

static bool write_both(const char *from, bool all_fp8, const char *codes, const char *floats,
		       struct quantised_written *ret)
{
	struct checkpoint *k = NULL;
	const struct tensor *list;
	struct err e = {0};
	bool good = true;
	size_t n;

	if (checkpoint_open(from, &k, &e) < 0 || checkpoint_tensors(k, &list, &n, &e) < 0) {
		printf("# %s\n", e.text);
		checkpoint_close(k);
		return false;
	}
	*ret = (struct quantised_written){0};
	codes_model.n = floats_model.n = 0;
	for (size_t i = 0; i < n && good; i++) {
		size_t first = codes_model.n;
		uint64_t bytes;

		if (!strncmp(list[i].name, "mtp.", 4))
			continue;
		if (!(all_fp8 ? is_fp8 : is_coded)(&list[i])) {
			codes_model.list[codes_model.n++] = floats_model.list[floats_model.n++] =
				list[i];
			continue;
		}
		good = put_matrix(all_fp8 ? &fp8 : way_of(list[i].name), &list[i]);
		bytes = good ? floats_model.list[floats_model.n - 1].bytes : 0;
		ret->floats += bytes;
		ret->embedding += is_embedding(&list[i]) ? bytes : 0;
		for (; first < codes_model.n; first++)
			ret->codes += codes_model.list[first].bytes;
	}
	good = good && write_model(&codes_model, k, all_fp8, codes) &&
	       (!floats || write_model(&floats_model, k, false, floats));
	checkpoint_close(k);
	return good;
}

bool quantised_write(const char *from, const char *codes, const char *floats,
		     struct quantised_written *ret)
{
	return write_both(from, false, codes, floats, ret);
}

bool quantised_write_fp8(const char *from, const char *codes, const char *floats,
			 struct quantised_written *ret)
{
	return write_both(from, true, codes, floats, ret);
}

bool quantised_gguf(const char *from, const char *to, const char *recipe)
{
	const struct quantize_options o = {.recipe = recipe, .name = "test"};
	struct model_config *c = calloc(1, sizeof(*c));
	struct quantize_result result;
	struct weight *table = NULL;
	struct checkpoint *k = NULL;
	struct err e = {0};
	bool good = c && checkpoint_open(from, &k, &e) == 0 && model_config_read(k, c, &e) == 0 &&
		    (table = layers_weights(c)) && quantize(k, c, table, &o, to, &result, &e) == 0;

	if (!good)
		printf("# %s\n", e.text);
	checkpoint_close(k);
	free(table);
	free(c);
	return good;
}
