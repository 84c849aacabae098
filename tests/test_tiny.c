/* Random tiny checkpoints of every layout against the answers of transformers, in float32:
 *
 *     test_tiny DIR [auto|generic|x86] [NAME...]
 *
 * Each DIR/NAME/ has a model and its golden.json (tests/golden/tiny_models.py). All prompts run together, with a budget
 * that cuts them, so that every chunk and every carried state matters. The tokens have to be the same, and every listed
 * log-probability within 2e-4. Then each prompt runs twice with the prefix cache, which has all full pages the second
 * time, and twice in little memory: the bits stay. Some models are compiled with optimisation, others without. Pages and
 * states are copied to the host and back. Nothing in the engine may be shaped for one model. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/golden.h"
#include "tests/tap.h"

enum { AGAIN = 1000 }; /* the step in which all requests come again: they have ended by then */

/* Runs every request twice: the second time all full pages in front of the prompt's last token are cached. If
 * setup.n_pages is set, both come at once. */
static void check_hits(struct engine *g, struct run_setup setup, const struct run *cold, size_t n)
{
	struct run *runs = calloc(2 * n, sizeof(*runs));

	for (size_t i = 0; i < 2 * n; i++) {
		runs[i] = run_of(cold[i % n].prompt, cold[i % n].n_prompt, cold[i % n].max_tokens);
		runs[i].arrival = i < n || setup.n_pages ? 0 : AGAIN;
	}
	setup.cache = true;
	check(run_all(g, &setup, runs, 2 * n));
	for (size_t i = 0; i < 2 * n; i++) {
		uint32_t pages = (cold[i % n].n_prompt - 1) / setup.page_tokens;

		check(run_same(&cold[i % n], &runs[i], "without a cache, and with one"));
		if (!setup.n_pages)
			check(runs[i].hit.n_cached == (i < n ? 0 : pages * setup.page_tokens));
	}
	free(runs);
}

/* Runs with no more pages than the longest request has, and with one slot more than there are seats. */
static void check_tight(struct engine *g, struct run_setup setup, const struct run *cold, size_t n)
{
	for (size_t i = 0; i < n; i++)
		setup.n_pages = MAX(setup.n_pages, CEIL_DIV(cold[i].n_prompt + cold[i].max_tokens,
							    setup.page_tokens));
	setup.n_slots = setup.max_seqs + 1;
	check_hits(g, setup, cold, n);
}

/* Waits for the copy that is under way. */
static void *wait_item(struct engine *g)
{
	struct err e = {0};
	uint32_t n = 0;
	void *tag = NULL;

	while (n == 0)
		if (engine_items_done(g, &tag, 1, &n, &e) < 0)
			abort();
	return tag;
}

/* Copies page 0 to the host, from there to page 1, and page 1 to the host; slots likewise. The content has not the same
 * byte everywhere. A model without recurrent layers has no slots. */
static void check_items(struct engine *g)
{
	for (int kind = 0; kind <= TIER_STATE; kind++) {
		uint64_t size =
			kind == TIER_PAGE ? engine_info(g)->page_bytes : engine_info(g)->slot_bytes;
		char *there = calloc(2, size + 1), *back = there + size + 1;
		struct err e = {0};

		if (size == 0) {
			check(engine_read_item(g, kind, 0, there, there, &e) == -EINVAL);
			check(engine_info(g)->n_slots == 0);
			free(there);
			continue;
		}
		check(engine_read_item(g, kind, 0, there, there, &e) == 0 && wait_item(g) == there);
		check(engine_write_item(g, kind, 1, there, there, &e) == 0 &&
		      wait_item(g) == there);
		check(engine_read_item(g, kind, 1, back, back, &e) == 0 && wait_item(g) == back);
		check(!memcmp(there, back, size) && memcmp(there, back + 1, size - 1) != 0);
		free(there);
	}
}

/* Whether the kernels are compiled as they are shipped, and decode steps are one launch. For the other models the driver
 * does not optimise, and each kernel is a launch of its own: PoCL takes 25 seconds to compile a model, and then 10. One
 * model of each kind is enough. */
static bool is_shipped(const char *name)
{
	static const char *const names[] = {"01-moe",	    "05-next-ratio-3", "08-dense",
					    "19-wide-keys", "21-qwen3",	       "23-qwen3-moe",
					    "27-qwen2",	    "29-gemma3"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Runs all requests in an engine whose kernels are not optimised: the same bits from PoCL's compiler. */
static void check_unoptimised(struct engine_options o, const struct run *optimised, size_t n)
{
	struct run_setup setup = run_setup_of(&o);
	struct run *runs;
	struct engine *g;
	struct err e = {0};

	o.unoptimised = o.separate_launches = true;
	if (engine_open(&o, &g, &e) < 0) {
		ok(false, "%s", e.text);
		return;
	}
	runs = calloc(n, sizeof(*runs));
	memcpy(runs, optimised, n * sizeof(*runs));
	check(run_all(g, &setup, runs, n));
	for (size_t i = 0; i < n; i++)
		check(run_same(&optimised[i], &runs[i], "optimised, and not"));
	free(runs);
	engine_close(g);
}

static void test_model(const char *dir, const char *name, enum engine_kernels kernels)
{
	struct engine_options o;
	struct run_setup setup;
	struct golden golden = {0};
	struct engine *g;
	struct err e = {0};
	struct run *runs;
	char path[4096], variant[32];
	float worst = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	o = run_options(path, "float32", 4, 64);
	o.kernels = kernels;
	o.unoptimised = o.separate_launches = !is_shipped(name);
	setup = run_setup_of(&o);
	if (!golden_open(path, &golden)) {
		ok(false, "%s", name);
		return;
	}
	if (engine_open(&o, &g, &e) < 0) {
		ok(false, "%s: %s", name, e.text);
		return;
	}
	runs = golden_runs(&golden);
	check(golden.n > 0);
	check(run_all(g, &setup, runs, golden.n));
	for (size_t i = 0; i < golden.n; i++)
		check(golden_matches(&golden.cases[i], &runs[i], &worst));
	check_hits(g, setup, runs, golden.n);
	check_tight(g, setup, runs, golden.n);
	check_items(g);
	snprintf(variant, sizeof(variant), "%s", engine_info(g)->kernels);
	engine_close(g); /* of a GPU's memory, it takes most */
	/* NVIDIA's compiler gives other bits when it does not optimise: tests alone ask for that. */
	if (strcmp(variant, "nvidia") != 0 &&
	    (!strcmp(name, "01-moe") || !strcmp(name, "21-qwen3")))
		check_unoptimised(o, runs, golden.n);
	ok_all("%s: %zu prompts, log-probabilities within %.2g, after hits the same bits (%s)",
	       name, golden.n, (double)worst, variant);
}

static int is_model(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

int main(int argc, char **argv)
{
	enum engine_kernels kernels = ENGINE_KERNELS_AUTO;
	struct dirent **names;
	int n;

	if (argc < 2)
		return 2;
	if (argc > 2 && strcmp(argv[2], "auto"))
		kernels = strcmp(argv[2], "x86") ? ENGINE_KERNELS_GENERIC : ENGINE_KERNELS_X86;
	for (int i = 3; i < argc; i++)
		test_model(argv[1], argv[i], kernels);
	if (argc > 3)
		return done();
	n = scandir(argv[1], &names, is_model, alphasort);
	if (n < 0) {
		printf("# %s: %s\n", argv[1], strerror(errno));
		return 2;
	}
	for (int i = 0; i < n; i++) {
		test_model(argv[1], names[i]->d_name, kernels);
		free(names[i]);
	}
	free(names);
	is_int(n, 31, "thirty-one models");
	return done();
}
