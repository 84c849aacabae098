/* engine/checkpoint: synthetic weights, and their export, of which every row comes back. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "base/hash.h"
#include "base/macros.h"
#include "engine/checkpoint/export.h"
#include "engine/checkpoint/synthetic.h"
#include "kernels/generic/synthetic.clh"
#include "tests/scratch.h"
#include "tests/weights_fixture.h"

static const char config_dense[] =
	"{'model_type':'qwen3_5_text','intermediate_size':48," COMMON "}";
static const char config_unshared[] =
	"{'model_type':'qwen3_moe','mlp_only_layers':[1],'intermediate_size':48," COMMON EXPERTS
	"}";
static const char config_biased[] = "{'model_type':'qwen2','intermediate_size':48," COMMON "}";
static const char config_gemma[] =
	"{'model_type':'gemma3_text','intermediate_size':48,'sliding_window_pattern':3," COMMON "}";
static const char config_attention[] = "{'model_type':'qwen3','intermediate_size':48," COMMON "}";

/* Exports synthetic weights to a directory `name`, in files of up to shard_bytes (0: 4 GiB), and reads them back. */
static void round_trip(const char *json, const char *name, uint64_t shard_bytes)
{
	struct model_config c = parse(json), again;
	struct weights *w = make(7, &c), *back;
	struct err e = {0};

	ok(weights_export(w, &c, quoted(json), scratch_path(name), shard_bytes, &e) == 0,
	   "exports %s", e.text);
	if (ok(model_config_open(scratch_path(name), &again, &e) == 0, "its config.json reads %s",
	       e.text))
		ok(!memcmp(&again, &c, sizeof(c)), "and says the same");
	if (ok(open_weights(scratch_path(name), &c, &back, &e) == 0, "it opens %s", e.text))
		ok(same_rows(&c, w, back), "%s: every row comes back", name);
}

TEST(round_trips)
{
	round_trip(config_moe, "moe", 0);
	round_trip(config_moe, "moe-sharded", 50000);
	round_trip(config_tied, "tied", 0);
	round_trip(config_dense, "dense", 100000);
	round_trip(config_next, "next", 0);
	round_trip(config_attention, "attention", 0);
	round_trip(config_unshared, "unshared", 0);
	round_trip(config_biased, "biased", 0);
	round_trip(config_gemma, "gemma", 0);
}

/* Key, scale and offset of synthetic weights are those that another program computed. */
TEST(synthesis)
{
	const struct weight matrix = {.role = WEIGHT_DELTA_QKV, .cols = 256, .gain = 1, .layer = 3};
	const struct weight embedding = {.role = WEIGHT_EMBED, .cols = 1000, .gain = 0.7f};
	const struct weight vector = {.role = WEIGHT_EMBED,
				      .cols = 1000,
				      .offset = 1,
				      .range = 0.125f};
	struct weight_synthesis s;

	synthetic_weight(7, &matrix, 2, &s);
	ok(s.key == 0x3aeefe7b7ffb92b4 && s.scale == 0x1.bcp-19f && s.offset == 0, "a matrix");
	synthetic_weight(7, &embedding, 0, &s);
	ok(s.key == 0x74b5abcc66b8bdc1 && s.scale == 0x1.3ap-20f && s.offset == 0, "an embedding");
	synthetic_weight(7, &vector, 0, &s);
	ok(s.key == 0x74b5abcc66b8bdc1 && s.scale == 0x1p-18f && s.offset == 1, "a vector");
}

/* Hashes all elements of a model's synthetic weights. */
static uint64_t hash_of(const struct weights *w, const struct model_config *c)
{
	static float row[1 << 16];
	struct hash128 h = HASH128_INIT;

	for (int role = 0; role < WEIGHT_ROLES; role++)
		for (uint32_t layer = 0; layer < c->n_layers; layer++) {
			const struct weight *of = weights_find(w, role, layer);

			for (uint32_t i = 0; of && i < of->experts; i++)
				for (uint64_t r = 0; r < of->rows; r++) {
					weights_row(w, role, layer, i, r, false, row);
					hash128_update(&h, row, of->cols * sizeof(*row));
				}
		}
	return (uint64_t)h.value;
}

/* A seed gives the same weights in every version of the program. */
TEST(recorded)
{
	static const struct {
		const char *config;
		uint64_t hash;
	} models[] = {
		{config_moe, 0x29274f409c3071db},      {config_dense, 0x86518f1c5fe328a8},
		{config_next, 0xd729b20eb494e1eb},     {config_attention, 0x3518b9010e8469d7},
		{config_unshared, 0x5c3a095e64b159a6}, {config_biased, 0xbeb397e1f5c82954},
		{config_gemma, 0x9a52304be2f41faa},
	};

	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		struct model_config c = parse(models[i].config);
		uint64_t hash = hash_of(make(1, &c), &c);

		if (!ok(hash == models[i].hash, "all weights of model %zu are as recorded", i))
			printf("#   0x%016" PRIx64 "\n", hash);
	}
}

/* Synthetic elements: known answers of another program; mean and deviation by role; what they depend on. */
TEST(synthetic)
{
	static const uint32_t first[] = {0xbcf4, 0xbce0, 0xbcd4, 0xbc26,
					 0xbc0d, 0x3b10, 0xbca4, 0x3b88};
	static const struct {
		enum weight_role role;
		double deviation, mean;
	} sizes[] = {
		{WEIGHT_EMBED, 1, 0},
		{WEIGHT_LM_HEAD, 2.5 / 5.65685, 0},
		{WEIGHT_ROUTER, 2 / 5.65685, 0},
		{WEIGHT_EXPERT_DOWN, 1 / 4.89898, 0},
		{WEIGHT_DELTA_OUT, 0.5 / 13.8564, 0},
		{WEIGHT_DELTA_CONV, 1 / 1.73205, 0},
		{WEIGHT_INPUT_NORM, 0.125 / 1.73205, 0},
	};
	static const struct {
		enum weight_role role;
		uint32_t layer, expert;
		const char *what;
	} others[] = {
		{WEIGHT_EXPERT_UP, 1, 2, "another seed"},
		{WEIGHT_EXPERT_UP, 1, 3, "another expert"},
		{WEIGHT_EXPERT_UP, 2, 2, "another layer"},
		{WEIGHT_EXPERT_GATE, 1, 2, "another role"},
	};
	struct model_config c = parse(config_moe);
	const uint64_t key = 0xdeadbeefcafef00d;
	struct weights *w = make(1, &c), *other = make(2, &c);
	struct weight_synthesis s;
	float row[4096], row_other[4096];

	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		check(synthetic_bf16(1, 0x1p-20f, 0, i) == first[i]);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, 0) == 0x3f3b);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, 5) == 0x3f08);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, ((uint64_t)1 << 33) + 3) == 0x3f7f);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, (uint64_t)1 << 40) == 0x3fcf);
	ok_all("elements are those that they have always been");

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct weight *of = weights_find(w, sizes[i].role, 0);
		uint64_t rows = of->rows, cols = of->cols;
		double sum = 0, squares = 0, n;

		for (uint64_t r = 0; r < rows; r++) {
			weights_row(w, sizes[i].role, 0, 0, r, false, row);
			for (uint64_t k = 0; k < cols; k++) {
				sum += row[k];
				squares += row[k] * (double)row[k];
			}
		}
		n = (double)(rows * cols);
		sum /= n;
		squares = sqrt(squares / n - sum * sum);
		if (!ok(fabs(squares / sizes[i].deviation - 1) < (n > 1000 ? 0.05 : 0.3) &&
				fabs(sum - sizes[i].mean) < 6 * sizes[i].deviation / sqrt(n),
			"role %d has the size of its recipe", sizes[i].role))
			printf("#   mean %g, deviation %g\n", sum, squares);
	}
	weights_row(w, WEIGHT_DELTA_A_LOG, 0, 0, 0, false, row);
	weights_row(w, WEIGHT_DELTA_DT_BIAS, 0, 0, 0, false, row_other);
	for (uint32_t i = 0; i < c.n_value_heads; i++) {
		check(expf(row[i]) >= 1 && expf(row[i]) <= 16);
		check(log1pf(expf(row_other[i])) > 0.0009f && log1pf(expf(row_other[i])) < 0.11f);
	}
	ok_all("decay rates are those of a fresh Mamba");

	/* Each row below differs from this one in one thing. */
	weights_row(w, WEIGHT_EXPERT_UP, 1, 2, 3, false, row);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		weights_row(i ? w : other, others[i].role, others[i].layer, others[i].expert, 3,
			    false, row_other);
		ok(memcmp(row, row_other, 32 * sizeof(*row)) != 0, "%s gives other weights",
		   others[i].what);
	}

	/* Rows agree with single elements, at every alignment of the row's first element. */
	for (uint64_t r = 0; r < 256; r++) {
		weights_row(w, WEIGHT_DELTA_CONV, 0, 0, r, false, row);
		check(weights_synthesis(w, WEIGHT_DELTA_CONV, 0, 0, &s));
		for (uint32_t k = 0; k < 3; k++) {
			uint32_t u = synthetic_bf16(s.key, s.scale, s.offset, r * 3 + k) << 16;

			check(!memcmp(&row[k], &u, 4));
		}
	}
	ok_all("a row is its elements");

	/* The promises on which synthetic.clh relies. */
	for (int role = 0; role < WEIGHT_ROLES; role++) {
		for (uint32_t layer = 0; layer < c.n_layers; layer++) {
			uint32_t u;

			if (!weights_find(w, role, layer))
				continue;
			check(weights_synthesis(w, role, layer, 0, &s));
			memcpy(&u, &s.scale, 4);
			check(s.scale >= 0x1p-40f && s.scale < 1 && !(u & 0xffff));
		}
	}
	ok_all("every scale is a bf16 number");

	c = parse(config_tied);
	w = make(1, &c);
	for (uint64_t r = 0; r < c.vocab_size; r++) {
		weights_row(w, WEIGHT_EMBED, 0, 0, r, false, row);
		weights_row(w, WEIGHT_LM_HEAD, 0, 0, r, false, row_other);
		check(!memcmp(row, row_other, c.hidden_size * sizeof(*row)));
	}
	ok_all("a tied head is the embedding");
}

TEST(export_refused)
{
	struct model_config c = parse(config_moe);
	struct weights *w = make(1, &c);
	struct err e = {0};
	char want[600];

	snprintf(want, sizeof(want), "%s: the directory is not empty", scratch_path("moe"));
	is_int(weights_export(w, &c, quoted(config_moe), scratch_path("moe"), 0, &e), -EEXIST,
	       "does not write into a full directory");
	is_str(e.text, want, "says so");
	is_int(weights_export(w, &c, quoted(config_moe), "/nonexistent/a/b", 0, &e), -ENOENT,
	       "needs the parent directory");
}

TEST_MAIN()
