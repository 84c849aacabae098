/* A request's answer does not depend on the requests that share its steps: the same bits alone and in a batch.
 *
 *     test_invariance MODEL float32|bfloat16[,int8] [full|few|RECIPE]
 *
 * Thirty-two requests of different lengths (whole chunks, one token more and one less, prompts that the budget cuts),
 * greedy, drawn and penalised, some with several choices. Each runs alone; and they run in batches of 8 and 32, arriving
 * at different steps, with several prefill budgets, with pages, slots and seats renamed, and again and again in the
 * same memory. Some request scores of their prompt, and some a vector of its hidden states. Every token, every bit of
 * every log-probability and of every vector must be the same as alone, with every kernel variant that runs here, with a
 * decode step in one launch and in many, and for
 * pages of 64 and 128 tokens; and the variants must agree with one another, except nvidia, which must agree with
 * itself. In float32 the x86 kernels are the generic ones, so one engine there has them. `full` runs every combination
 * and more orders of pages; without it only the large batches run with pages renamed, and only the small ones without.
 * `few` runs two engines alone, with the smallest and the largest budget: for files whose weights have other types than
 * those of a model that is tested in full. RECIPE: the model has synthetic weights of these types.
 * With ",int8" the KV cache is in int8.
 * Environment: SYNTHETIC for weights made up from MODEL's config.json, VARIANT for the engines whose names begin with it
 * alone. */
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/golden.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { REQUESTS = 32, SMALL_BATCH = 8, LONGEST = 700, PREFILL_MAX = 1024, SEATS = 64 };

enum extent { FEW, SOME, ALL }; /* `few`, without an argument, and `full` */

/* The first SMALL_BATCH are the small batch. Each choice of a request takes a seat. */
static const struct {
	uint32_t n_prompt, max_tokens, n_choices;
	enum pooling pooling;
} sizes[REQUESTS] = {
	{1, 40, 1},
	{63, 24, 1},
	{64, 0, 1, POOLING_LAST},
	{65, 24, 3},
	{127, 20, 1},
	{700, 0, 1, POOLING_MEAN},
	{129, 20, 4},
	{128, 70, 1},
	{2, 40, 1},
	{3, 30, 1},
	{17, 25, 1},
	{31, 24, 2},
	{62, 20, 1},
	{66, 20, 1},
	{100, 24, 1},
	{126, 20, 1},
	{130, 0, 1, POOLING_MEAN},
	{190, 9, 1},
	{191, 30, 2},
	{192, 30, 2},
	{193, 20, 1},
	{255, 20, 1},
	{256, 0, 1, POOLING_LAST},
	{257, 0, 1, POOLING_MEAN},
	{320, 15, 1},
	{383, 66, 1},
	{448, 20, 1},
	{500, 12, 1},
	{5, 130, 1},
	{9, 30, 1},
	{40, 3, 1},
	{48, 1, 1},
};

struct steps {
	uint32_t mixed;	    /* steps with prefill and decode rows */
	uint32_t cut;	    /* windows that do not begin at 0 */
	uint32_t most_rows; /* of one step */
	uint32_t copies;
	uint32_t scored_beside; /* steps that score prompts and run other rows, too */
};

static void count_step(void *arg, const struct plan *p, const struct draw_result *results)
{
	struct steps *s = arg;

	s->mixed += p->n_prefill_rows && p->n_rows > p->n_prefill_rows;
	for (uint32_t i = 0; i < p->n_prefill_rows; i++)
		s->cut += p->rows[i].start > 0;
	s->most_rows = MAX(s->most_rows, p->n_rows);
	s->copies += p->n_state_copies;
	s->scored_beside += p->n_scores && p->n_rows > p->n_scores;
}

/* Makes the same requests each time. Every third, and all with several choices, are drawn at random; every sixth is
 * penalised. */
static void make_requests(struct run *runs, int32_t *prompts, uint32_t vocab, uint32_t max_len)
{
	random_state = 1;
	for (size_t i = 0; i < REQUESTS * LONGEST; i++)
		prompts[i] = (int32_t)random_below(vocab);
	for (size_t i = 0; i < REQUESTS; i++) {
		struct run *r = &runs[i];

		*r = run_of(prompts + i * LONGEST, MIN(sizes[i].n_prompt, max_len / 2),
			    MIN(sizes[i].max_tokens, max_len / 4));
		r->n_choices = sizes[i].n_choices;
		r->pooling = sizes[i].pooling;
		r->prompt_logprobs = i % 4 == 1;
		if (i % 3 == 0 || r->n_choices > 1) {
			r->sampling.temperature = 1;
			r->sampling.seed = 1000 + i;
			r->sampling.top_p = i % 2 ? 0.9f : 1;
		}
		if (i % 6 == 0) {
			r->sampling.repetition_penalty = 1.2f;
			r->sampling.frequency_penalty = 0.3f;
		}
	}
}

/* Every request on its own: the answers that batches are held to. */
static bool run_alone(struct engine *g, const struct run_setup *setup, struct run *runs)
{
	bool good = true;

	for (size_t i = 0; i < REQUESTS && good; i++)
		good = run_all(g, setup, &runs[i], 1);
	return good;
}

/* Runs the first n requests together. Their order of arrival changes with the budget. */
static void run_together(struct engine *g, struct run_setup setup, const struct run *alone,
			 size_t n)
{
	struct run runs[REQUESTS];
	struct steps steps = {0};
	uint32_t rows = 0;

	setup.watch = count_step;
	setup.arg = &steps;
	for (size_t i = 0; i < n; i++) {
		runs[i] = alone[i];
		runs[i].arrival = (uint32_t)(i * setup.budget / 64 % 11);
		rows += runs[i].n_choices;
	}
	check(run_all(g, &setup, runs, n));
	for (size_t i = 0; i < n; i++)
		check(run_same(&alone[i], &runs[i], "alone and in a batch"));
	/* Steps mixed prompts with other rows, copied states if there are any, scored beside others and cut prompts. */
	check(steps.mixed > 0);
	check(steps.copies > 0 || !engine_info(g)->n_slots);
	check(steps.scored_beside > 0);
	check(setup.budget > 128 || steps.cut > 0);
	check(steps.most_rows >= (setup.budget < PREFILL_MAX ? n / 4 : n));
	ok_all("%zu requests (%u sequences, %u rows in a step), budget %u, pages %u%s: the bits of each alone",
	       n, rows, steps.most_rows, setup.budget, setup.page_tokens,
	       setup.shuffle ? ", shuffled" : "");
}

/* All batches in one engine: later ones find its memory used. */
static void run_batches(struct engine *g, const struct engine_options *o, const struct run *alone,
			enum extent extent)
{
	static const uint32_t budgets[] = {64, 128, PREFILL_MAX};
	struct run_setup setup = run_setup_of(o);
	uint64_t seeds = extent == ALL ? 4 : 1;

	for (size_t b = 0; b < ARRAY_SIZE(budgets); b++) {
		setup.budget = budgets[b];
		if (setup.budget < o->page_tokens || (extent == FEW && setup.budget == 128))
			continue;
		for (uint64_t seed = 0; seed <= seeds; seed++) {
			setup.shuffle = seed ? seed * 77 + b : 0;
			if (extent == ALL || !seed)
				run_together(g, setup, alone, SMALL_BATCH);
			if (extent == ALL || seed)
				run_together(g, setup, alone, REQUESTS);
		}
	}
}

static const char *dtype_name(enum engine_dtype t)
{
	return t == ENGINE_BFLOAT16 ? "bfloat16" : "float32";
}

/* Runs all requests in one engine, in batches and alone. others: the answers of each request alone in another engine;
 * NULL: they run alone in this one first. ret_alone gets the answers of each request alone in this engine, in used
 * memory. False: the engine does not open. */
static bool test_engine(const struct engine_options *o, const char *variant, enum extent extent,
			int32_t *prompts, const struct run *others, struct run *ret_alone)
{
	struct run first[REQUESTS];
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};
	int r = engine_open(o, &g, &e);

	if (r < 0) {
		if (r != -ENOTSUP)
			ok(false, "%s %s: %s", variant, dtype_name(o->dtype), e.text);
		else
			printf("# %s\n", e.text);
		return false;
	}
	setup = run_setup_of(o);
	make_requests(ret_alone, prompts, engine_info(g)->model.vocab_size,
		      engine_info(g)->max_model_len);
	if (others) {
		memcpy(first, others, sizeof(first));
	} else {
		memcpy(first, ret_alone, sizeof(first));
		ok(run_alone(g, &setup, first), "%s %s: each request alone", variant,
		   dtype_name(o->dtype));
	}
	run_batches(g, o, first, extent);
	setup.shuffle = 5;
	check(run_alone(g, &setup, ret_alone));
	for (size_t i = 0; i < REQUESTS; i++)
		check(run_same(&first[i], &ret_alone[i], "alone, and alone afterwards"));
	ok_all("%s %s: each alone after the batches, in other and used memory", variant,
	       dtype_name(o->dtype));
	engine_close(g);
	return true;
}

/* Cuts that change with the size, none of them the built-in one. */
#define CUTS_OF(kernels, dtype)                                                                 \
	"*\t*\t*\t" kernels "\t" dtype                                                          \
	"\tproduct\t*\t*\t*\ttile_rows=3 tile_blocks=4 blocks=6 row_block=16\tsame\t-\t-\n"     \
	"*\t*\t*\t" kernels "\t" dtype                                                          \
	"\tproduct\t*\t*\t64\ttile_rows=6 tile_blocks=2 blocks=2\tsame\t-\t-\n"                 \
	"*\t*\t*\t" kernels "\t" dtype                                                          \
	"\texperts\t*\t*\t*\ttile_rows=12 tile_blocks=2 blocks=4 ahead=128\tsame\t-\t-\n"       \
	"*\t*\t*\t" kernels "\t" dtype "\tattention\t*\t*\t*\tqueries=32\tsame\t-\t-\n"         \
	"*\t*\t*\t" kernels "\t" dtype "\tattention\t*\t*\t128\tqueries=1\tsame\t-\t-\n"        \
	"*\t*\t*\t" kernels "\t" dtype                                                          \
	"\tdecode_step\t*\t*\t*\ttile_rows=5 tile_blocks=4 blocks=6 row_block=16\tsame\t-\t-\n" \
	"*\t*\t*\t" kernels "\t" dtype "\tdecode_step\t*\t*\t4\tblocks=16\tsame\t-\t-\n"
static const char cuts[] = "tigon tuning 1\n" CUTS_OF("generic", "float32")
	CUTS_OF("generic", "bfloat16") CUTS_OF("x86", "float32") CUTS_OF("x86", "bfloat16");

/* Tests the engines of a table. The answers of each, in batches and alone, are compared with those that the first that
 * runs gives to each request alone (of nvidia: the first of nvidia that runs). So only the first runs each request alone
 * before its batches. */
static void test_engines(struct engine_options o, enum extent extent, int32_t *prompts)
{
	static const struct row {
		enum engine_kernels kernels;
		const char *name;
		uint32_t page_tokens;
		bool separate; /* no step in one launch */
		bool plain;    /* weights are not coded */
		bool tuned;    /* with the cuts above */
		enum {
			ALWAYS,
			BFLOAT16, /* in float32 another row has the same kernels and weights, or the same cuts */
			FULL
		} when;	  /* without `full`: always, in bfloat16 alone, or never */
		bool few; /* also with `few` */
	} engines[] = {
		{ENGINE_KERNELS_GENERIC, "generic", 64, .few = true},
		{ENGINE_KERNELS_X86, "x86", 64, .when = BFLOAT16, .few = true},
		{ENGINE_KERNELS_GENERIC, "generic", 128, .when = FULL},
		{ENGINE_KERNELS_X86, "x86", 128},
		{ENGINE_KERNELS_GENERIC, "separate launches", 64, .separate = true},
		{ENGINE_KERNELS_X86, "x86 with plain weights", 64, .plain = true, .when = BFLOAT16},
		{ENGINE_KERNELS_GENERIC, "generic, tuned,", 64, .tuned = true, .when = BFLOAT16},
		{ENGINE_KERNELS_X86, "x86, tuned,", 64, .tuned = true, .when = BFLOAT16},
		{ENGINE_KERNELS_X86, "x86, tuned, plain,", 64, .plain = true, .tuned = true,
		 .when = FULL},
		{ENGINE_KERNELS_X86, "x86, tuned, separate launches,", 64, .separate = true,
		 .tuned = true, .when = FULL},
		{ENGINE_KERNELS_NVIDIA, "nvidia", 64, .few = true},
		{ENGINE_KERNELS_NVIDIA, "nvidia, separate launches,", 64, .separate = true},
		{ENGINE_KERNELS_NVIDIA, "nvidia, longer pages,", 128, .when = FULL},
	};
	const char *variant = getenv("VARIANT");
	struct tuning_table *table;
	struct err e = {0};
	/* of the rows that ran, the first with other kernels than nvidia, and the first of nvidia */
	const struct row *first[2] = {NULL, NULL};
	struct run answers[ARRAY_SIZE(engines)][REQUESTS];

	memset(answers, 0, sizeof(answers));
	if (!ok(tuning_parse("cuts", cuts, strlen(cuts), &table, &e) == 0, "a table %s", e.text))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(engines); i++) {
		bool nvidia = engines[i].kernels == ENGINE_KERNELS_NVIDIA;
		const struct run *others = first[nvidia] ? answers[first[nvidia] - engines] : NULL;

		if (variant && strncmp(engines[i].name, variant, strlen(variant)) != 0)
			continue;
		if (extent != ALL && (engines[i].when == FULL ||
				      (engines[i].when == BFLOAT16 && o.dtype != ENGINE_BFLOAT16)))
			continue;
		if (extent == FEW && !engines[i].few)
			continue;
		o.kernels = engines[i].kernels;
		o.page_tokens = engines[i].page_tokens;
		o.separate_launches = engines[i].separate;
		o.plain_weights = engines[i].plain;
		o.tuning.table = engines[i].tuned ? table : NULL;
		if (!test_engine(&o, engines[i].name, extent, prompts, others, answers[i]))
			continue;
		if (!others) {
			first[nvidia] = &engines[i];
			continue;
		}
		for (size_t k = 0; k < REQUESTS; k++)
			check(run_same(&others[k], &answers[i][k], "two engines"));
		ok_all("%s: %s with pages of %u gives the bits of %s with pages of %u",
		       dtype_name(o.dtype), engines[i].name, engines[i].page_tokens,
		       first[nvidia]->name, first[nvidia]->page_tokens);
	}
	tuning_free(table);
}

int main(int argc, char **argv)
{
	struct engine_options o;
	int32_t *prompts = calloc((size_t)REQUESTS * LONGEST, sizeof(*prompts));
	enum extent extent = SOME;

	if (argc < 3 || !prompts)
		return 2;
	o = run_options(argv[1], argv[2], SEATS, PREFILL_MAX);
	o.synthetic = getenv("SYNTHETIC");
	o.synthetic_seed = 1;
	if (argc > 3 && !strcmp(argv[3], "full")) {
		extent = ALL;
	} else if (argc > 3 && !strcmp(argv[3], "few")) {
		extent = FEW;
	} else if (argc > 3) {
		o.synthetic = true;
		o.synthetic_types = argv[3];
	}
	test_engines(o, extent, prompts);
	free(prompts);
	return done();
}
