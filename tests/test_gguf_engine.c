/* The forward pass from GGUF files. lexis gives the tokens of Hugging Face's files, with log-probabilities within 1e-5 for
 * the tokens that are drawn and 1e-4 for the five best ones: its value heads are in turn, so sums over them have another
 * order. Tiny models give the answers of transformers, and those without such heads the bits of Hugging Face's files. Files
 * of `tigon quantize` give the bits of those that the tests' own converter writes, and in Q8_0 and Q4_K_M the answers of
 * transformers with the same numbers as floats. In float32, and where launches are compared in bf16:
 *
 *     test_gguf_engine [auto|generic] */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/gguf_convert.h"
#include "tests/gguf_write.h"
#include "tests/golden.h"
#include "tests/quantised_write.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { CASES = 8 }; /* of lexis */

static enum engine_kernels kernels = ENGINE_KERNELS_AUTO;

/* How an engine runs a model. */
struct way {
	const char *dtype;
	bool separate;	  /* no decode step in one launch */
	bool unoptimised; /* the driver compiles faster */
};

/* Unoptimised kernels compile faster, and compute slower. For all cases of lexis the optimised ones take less time. */
static const struct way shipped = {"float32", false, false}, quick = {"float32", true, true},
			optimised = {"float32", true, false};
static uint64_t weight_bytes; /* of the last model that ran */

/* Runs the first n cases with the model at a path. */
static bool run_model(const char *path, struct way way, const struct golden *golden,
		      struct run **ret)
{
	struct engine_options o = run_options(path, way.dtype, 4, 64);
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};
	bool good;

	o.kernels = kernels;
	o.separate_launches = way.separate;
	o.unoptimised = way.unoptimised;
	setup = run_setup_of(&o);
	*ret = golden_runs(golden);
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s\n", e.text);
		return false;
	}
	good = run_all(g, &setup, *ret, golden->n);
	weight_bytes = engine_info(g)->weight_bytes;
	engine_close(g);
	return good;
}

static void test_lexis(void)
{
	const struct gguf_conversion how = {.type = GGML_BF16, .mtp = 1, .pre = "qwen2"};
	struct golden golden = {0};
	struct run *folder, *gguf;
	float worst = 0, apart = 0, drawn = 0;
	size_t tokens = 0;

	if (!ok(golden_open("models/lexis", &golden) &&
			gguf_convert("models/lexis", scratch_path("lexis.gguf"), &how),
		"lexis as GGUF"))
		return;
	golden.n = CASES;
	if (!ok(run_model("models/lexis", shipped, &golden, &folder) &&
			run_model(scratch_path("lexis.gguf"), shipped, &golden, &gguf),
		"%zu cases ran from both", golden.n))
		return;
	for (size_t i = 0; i < golden.n; i++) {
		const struct run *a = &folder[i], *b = &gguf[i];
		bool same = a->out[0].len == b->out[0].len &&
			    !memcmp(a->out[0].v, b->out[0].v, a->out[0].len * sizeof(int32_t));

		check(golden_matches(&golden.cases[i], b, &worst));
		check(same);
		for (size_t k = 0; same && k < a->out[0].len; k++, tokens++) {
			drawn = fmaxf(drawn,
				      fabsf(a->draws[0][k].logprob - b->draws[0][k].logprob));
			for (uint32_t j = 0; j < a->draws[0][k].n_top; j++)
				apart = fmaxf(apart, fabsf(a->draws[0][k].top_logprobs[j] -
							   b->draws[0][k].top_logprobs[j]));
		}
	}
	check(tokens > 100 && drawn <= 1e-5f && apart <= 1e-4f);
	ok_all("lexis: %zu tokens are the folder's, log-probabilities within %.2g, all listed within %.2g",
	       tokens, (double)drawn, (double)apart);
}

/* A model in blocks gives the answers of the same numbers as floats. */
static void test_blocks(void)
{
	const struct gguf_conversion blocks = {.type = GGML_Q8_0, .pre = "qwen2"};
	const struct gguf_conversion floats = {.type = GGML_Q8_0, .rounded = true, .pre = "qwen2"};
	struct golden golden = {0};
	struct run *a, *b;
	float apart;
	size_t tokens;

	if (!ok(golden_open("models/lexis", &golden) &&
			gguf_convert("models/lexis", scratch_path("blocks.gguf"), &blocks) &&
			gguf_convert("models/lexis", scratch_path("floats.gguf"), &floats),
		"lexis as Q8_0, and its numbers as floats"))
		return;
	golden.n = 2;
	if (!ok(run_model(scratch_path("blocks.gguf"), shipped, &golden, &a) &&
			run_model(scratch_path("floats.gguf"), shipped, &golden, &b),
		"%zu cases ran from both", golden.n))
		return;
	apart = runs_apart(a, b, golden.n, &tokens);
	check(tokens > 20 && apart <= 1e-5f);
	ok_all("Q8_0: %zu tokens are those of floats, log-probabilities within %.2g", tokens,
	       (double)apart);
}

/* In bf16, in one launch and in separate ones: the value heads are in turn in both, so the bits are the same. */
static void test_launches(void)
{
	const struct gguf_conversion how = {.type = GGML_BF16, .pre = "qwen2"};
	struct golden golden = {0};
	struct run *one, *separate;

	if (!ok(golden_open("models/lexis", &golden) &&
			gguf_convert("models/lexis", scratch_path("launches.gguf"), &how),
		"lexis as GGUF"))
		return;
	golden.n = 2;
	if (ok(run_model(scratch_path("launches.gguf"), (struct way){"bfloat16"}, &golden, &one) &&
		       run_model(scratch_path("launches.gguf"),
				 (struct way){"bfloat16", .separate = true}, &golden, &separate),
	       "%zu cases ran in bf16, in one launch and in separate ones", golden.n))
		for (size_t i = 0; i < golden.n; i++)
			check(run_same(&one[i], &separate[i], "one launch, and separate ones"));
	ok_all("one launch gives the bits of separate ones");
}

/* A quantised embedding is the head's matrix too, if the head is tied to it: the bits are those of a file that has both. */
static void test_shared_head(void)
{
	const struct gguf_conversion tied = {.type = GGML_Q8_0, .pre = "qwen2"};
	const struct gguf_conversion both = {.type = GGML_Q8_0, .pre = "qwen2", .head = true};
	struct golden golden = {0};
	struct run *a, *b;
	uint64_t once;

	if (!ok(golden_open("models/lexis", &golden) &&
			gguf_convert("models/lexis", scratch_path("tied.gguf"), &tied) &&
			gguf_convert("models/lexis", scratch_path("both.gguf"), &both),
		"lexis as Q8_0, with a tied head and with one of its own"))
		return;
	golden.n = 2;
	if (!ok(run_model(scratch_path("tied.gguf"), shipped, &golden, &a), "the tied head runs"))
		return;
	once = weight_bytes;
	if (!ok(run_model(scratch_path("both.gguf"), shipped, &golden, &b), "the other head runs"))
		return;
	for (size_t i = 0; i < golden.n; i++)
		check(run_same(&a[i], &b[i], "a tied head, and one of its own"));
	check(weight_bytes > once + once / 20);
	ok_all("a tied head gives the same bits in %.1f MiB as one of its own in %.1f",
	       (double)once / (1 << 20), (double)weight_bytes / (1 << 20));
}

/* lexis in a recipe of `tigon quantize`, whose numbers transformers had as floats: its answers. */
static void test_recipe(const char *recipe)
{
	const char *path = scratch_path("recipe.gguf");
	struct golden golden = {0};
	struct run *gguf;
	char from[64];
	float worst = 0;

	snprintf(from, sizeof(from), "tests/golden/lexis/%s", recipe);
	if (!ok(golden_open(from, &golden) && quantised_gguf("models/lexis", path, recipe) &&
			run_model(path, optimised, &golden, &gguf),
		"%s ran", recipe))
		return;
	for (size_t i = 0; i < golden.n; i++)
		check(golden_matches(&golden.cases[i], &gguf[i], &worst));
	ok_all("%s: %zu prompts, log-probabilities within %.2g", recipe, golden.n, (double)worst);
}

/* lexis in recipes that have, with those above, all types that are written but F16 and Q5_0: the first tokens of some
 * cases, and how far their log-probabilities are from those of the folder, on average. */
static void test_recipes(void)
{
	static const struct {
		const char *name;
		float most;
		const struct way *way;
	} recipes[] = {{"F32", 1e-5f, &shipped}, {"MXFP4_MOE", 0.02f, &quick}};
	struct golden golden = {0};
	struct run *folder, *gguf;

	if (!ok(golden_open("models/lexis", &golden), "the cases of lexis"))
		return;
	golden.n = CASES;
	if (!ok(run_model("models/lexis", shipped, &golden, &folder), "lexis ran"))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(recipes); i++) {
		const char *path = scratch_path("recipe.gguf");
		size_t same = 0;
		float sum = 0;

		if (!ok(quantised_gguf("models/lexis", path, recipes[i].name) &&
				run_model(path, *recipes[i].way, &golden, &gguf),
			"%s ran", recipes[i].name))
			continue;
		for (size_t k = 0; k < golden.n; k++) {
			const struct draw_result *a = &folder[k].draws[0][0];
			const struct draw_result *b = &gguf[k].draws[0][0];

			same += a->token == b->token;
			sum += a->token == b->token ? fabsf(a->logprob - b->logprob) : 0;
		}
		sum /= (float)golden.n;
		ok(same + 1 >= golden.n && sum <= recipes[i].most,
		   "%s: %zu of %zu first tokens, log-probabilities within %.2g on average",
		   recipes[i].name, same, golden.n, (double)sum);
	}
}

/* in_turn: the GGUF file has another order of value heads. */
static void test_tiny(const char *name, bool in_turn, struct gguf_conversion how)
{
	struct golden golden = {0};
	struct run *folder, *gguf, *written;
	char from[256], to[256];
	float worst = 0;

	snprintf(from, sizeof(from), "tests/golden/tiny/%s", name);
	snprintf(to, sizeof(to), "%s%s.gguf", name, how.parts ? "-00001-of-00003" : "");
	if (!ok(golden_open(from, &golden) &&
			gguf_convert(from, scratch_path(how.parts ? name : to), &how) &&
			run_model(from, quick, &golden, &folder) &&
			run_model(scratch_path(to), quick, &golden, &gguf) &&
			quantised_gguf(from, scratch_path("written.gguf"), "F32") &&
			run_model(scratch_path("written.gguf"), quick, &golden, &written),
		"%s ran from all", name))
		return;
	for (size_t i = 0; i < golden.n; i++) {
		check(golden_matches(&golden.cases[i], &gguf[i], &worst));
		check(in_turn || run_same(&folder[i], &gguf[i], "a folder, and GGUF"));
		check(run_same(&gguf[i], &written[i], "converted, and written by quantize"));
	}
	ok_all("%s: %zu prompts, log-probabilities within %.2g%s", name, golden.n, (double)worst,
	       in_turn ? "" : ", the same bits");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "generic"))
		kernels = ENGINE_KERNELS_GENERIC;
	test_lexis();
	test_blocks();
	test_shared_head();
	test_launches();
	test_recipe("Q8_0");
	test_recipe("Q4_K_M");
	test_recipes();
	test_tiny("03-ratio-3", true, (struct gguf_conversion){.fused = true});
	test_tiny("04-next", false, (struct gguf_conversion){.interval = true});
	test_tiny("04-next", false, (struct gguf_conversion){.interleaved = true});
	test_tiny("08-dense", false, (struct gguf_conversion){.parts = 3, .mtp = 1});
	test_tiny("21-qwen3", false, (struct gguf_conversion){0});
	test_tiny("22-qwen3-tied", false, (struct gguf_conversion){.fused = true});
	test_tiny("23-qwen3-moe", false, (struct gguf_conversion){0});
	test_tiny("25-llama", false, (struct gguf_conversion){0});
	test_tiny("27-qwen2", false, (struct gguf_conversion){0});
	test_tiny("29-gemma3", false, (struct gguf_conversion){.interval = true});
	test_tiny("30-gemma3-nested", false, (struct gguf_conversion){.fused = true});
	test_tiny("31-gemma3-window-2", false, (struct gguf_conversion){0});
	return done();
}
