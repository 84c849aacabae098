/* An engine notes all its launches, with shapes, experts and times, while it is told to.
 *
 *     test_profile DIR      DIR: models/lexis */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/profile.h"
#include "engine/roofline.h"
#include "tests/tap.h"

enum { PROMPT = 192, STREAMS = 3 };

/* The most launches that a step without a prompt may take on a CPU, for its layers and its draws. */
enum { LAUNCHES_MAX = 4 };

/* Returns whether the device has a name of the kind that PoCL gives to CPUs. */
static bool is_cpu(const struct engine *g)
{
	const char *name = engine_info(g)->device_name;

	return strstr(name, "pthread") || strstr(name, "cpu");
}

static struct engine *open_engine(const char *dir, bool profile, struct err *e)
{
	const struct engine_options o = {
		.model_dir = dir,
		.dtype = ENGINE_BFLOAT16,
		.page_tokens = 64,
		.max_seqs = STREAMS,
		.max_prefill_tokens = PROMPT,
		.max_model_len = 256,
		.profile = profile,
	};
	struct engine *g = NULL;

	return engine_open(&o, &g, e) < 0 ? NULL : g;
}

/* Runs a step: a prompt of n tokens in stream 0; or, if `decode`, one token of each of n streams at position PROMPT. */
static bool step(struct engine *g, uint32_t n, bool decode)
{
	static const uint32_t pages[STREAMS][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
	const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};
	struct plan_row rows[STREAMS] = {0};
	struct plan_draw draws[STREAMS] = {0};
	struct draw_result results[STREAMS];
	int32_t tokens[PROMPT];
	struct plan plan = {.rows = rows, .draws = draws, .n_rows = decode ? n : 1};
	struct err e = {0};

	for (uint32_t i = 0; i < PROMPT; i++)
		tokens[i] = (int32_t)(i * 2654435761u >> 20);
	for (uint32_t i = 0; i < plan.n_rows; i++) {
		rows[i] = (struct plan_row){
			.tokens = tokens + i,
			.pages = pages[i],
			.n_tokens = decode ? 1 : n,
			.start = decode ? PROMPT : 0,
			.n_pages = 4,
			.state_src = decode ? (int32_t)i : STATE_ZERO,
			.state_dst = i,
			.decode = decode,
		};
		draws[i] = (struct plan_draw){.sampling = &greedy, .row = i, .seat = i};
	}
	plan.n_draws = plan.n_rows;
	plan.n_prefill_rows = !decode;
	plan.n_prefill_tokens = decode ? 0 : n;
	if (engine_step(g, &plan, results, &e) < 0) {
		printf("# %s\n", e.text);
		return false;
	}
	return true;
}

/* Returns the number of launches of a kernel among the n that were noted. */
static uint32_t count(const struct kernel_timing *t, size_t n, const char *kernel)
{
	uint32_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += !strcmp(t[i].kernel, kernel);
	return found;
}

static void test_decode(struct engine *g, bool timed)
{
	const struct model_config *c = &engine_info(g)->model;
	struct engine_counters before, after;
	const struct kernel_timing *t = NULL, *head;
	uint64_t start, wall, sum = 0;
	struct err e = {0};
	size_t n = 0, draws;

	engine_counters(g, &before);
	start = clock_now_ns();
	ok(step(g, 1, true) && kernels_profile_take(engine_kernels(g), &t, &n, &e) == 0, "a token");
	wall = clock_now_ns() - start;
	engine_counters(g, &after);
	is_int(n, after.launches - before.launches, "every launch was noted");
	is_int(count(t, n, "attention"), c->n_layers_of[LAYER_ATTENTION],
	       "an attention a layer that has one");
	is_int(count(t, n, "delta_decode"), c->n_layers_of[LAYER_DELTA],
	       "a recurrent step a layer that has one");
	is_int(count(t, n, "delta_prefill"), 0, "no prompt");
	is_int(count(t, n, "router"), c->n_layers, "the router's product has a name of its own");
	for (size_t i = 0; i < n; i++) {
		const struct kernel_timing *k = &t[i];

		sum += k->ns;
		check(timed ? k->ns > 0 : !k->ns);
		check(!strcmp(k->kernel, "moe_gate_up") || !strcmp(k->kernel, "moe_down") ||
				      !strcmp(k->kernel, "moe_sort")
			      ? k->experts == c->n_experts_per_token
			      : !k->experts);
		check(!k->k == !strstr("gemm_store gemm_add router", k->kernel));
	}
	ok_all("times, a token's %u experts, shapes of products", c->n_experts_per_token);
	ok(sum <= wall, "together they took no longer than the step");
	draws = strcmp(t[n - 1].kernel, "sample_blocks") ? 2 : 1; /* launches of a draw */
	check(!strncmp(t[n - draws].kernel, "sample", 6));
	head = &t[n - draws - 1];
	ok_all("the last launches are those of the draw");
	ok(!strcmp(head->kernel, "gemm_store") && head->m == 1 && head->n == c->vocab_size &&
		   head->k == c->hidden_size,
	   "before them lm_head, a row by the vocabulary");
	is_int(kernels_profile_take(engine_kernels(g), &t, &n, &e), 0, "nothing more");
	is_int(n, 0, "was launched");
}

static void test_prefill(struct engine *g)
{
	const struct model_config *c = &engine_info(g)->model;
	const struct roofline_row row = {0, PROMPT};
	const struct roofline_step s = {.rows = &row,
					.n_rows = 1,
					.n_prefill_rows = 1,
					.n_logits = 1};
	const struct kernel_timing *t = NULL;
	struct roofline_work w;
	uint32_t most = 0;
	struct err e = {0};
	size_t n = 0;

	ok(step(g, PROMPT, false) && kernels_profile_take(engine_kernels(g), &t, &n, &e) == 0,
	   "a prompt");
	is_int(count(t, n, "delta_prefill"), c->n_layers_of[LAYER_DELTA], "chunks a layer");
	is_int(count(t, n, "delta_decode"), 0, "and no recurrent step");
	for (size_t i = 0; i < n; i++) {
		most = MAX(most, t[i].experts);
		check(roofline_kernel(c, true, &s, &t[i], &w) ==
		      (strcmp(t[i].kernel, "moe_sort") != 0));
		check(strcmp(t[i].kernel, "router") != 0 || t[i].m == PROMPT);
	}
	ok_all("the roofline knows every kernel but the sort");
	ok(most > 2 * c->n_experts_per_token && most <= c->n_experts,
	   "a prompt touches many experts (%u)", most);
}

int main(int argc, char **argv)
{
	const struct kernel_timing *t = NULL;
	struct err e = {0};
	struct engine *g;
	size_t n = 1;

	g = argc > 1 ? open_engine(argv[1], true, &e) : NULL;
	if (!g)
		return skip_all(e.text);
	ok(step(g, 1, true) && kernels_profile_take(engine_kernels(g), &t, &n, &e) == 0 && n == 0,
	   "off at first");
	is_int(engine_profile(g, true, &e), 0, "on");
	test_decode(g, true);
	test_prefill(g);
	ok(step(g, STREAMS, true) && kernels_profile_take(engine_kernels(g), &t, &n, &e) == 0 &&
		   count(t, n, "delta_decode"),
	   "again");
	ok(step(g, STREAMS, true) && engine_profile(g, false, &e) == 0,
	   "off while something is noted");
	ok(step(g, 1, true) && kernels_profile_take(engine_kernels(g), &t, &n, &e) == 0 && n == 0,
	   "nothing is noted");
	engine_close(g);
	g = open_engine(argv[1], false, &e);
	ok(g && engine_profile(g, true, &e) == 0, "an engine without the option");
	if (g) {
		struct engine_counters before, noted, after;

		test_decode(g, false);
		engine_counters(g, &before);
		ok(step(g, 1, true), "a token that is noted");
		engine_counters(g, &noted);
		ok(engine_profile(g, false, &e) == 0 && step(g, 1, true), "and one that is not");
		engine_counters(g, &after);
		ok(after.launches - noted.launches <=
			   (is_cpu(g) ? LAUNCHES_MAX : noted.launches - before.launches),
		   "a generated token takes %llu launches, and %llu while they are noted",
		   (unsigned long long)(after.launches - noted.launches),
		   (unsigned long long)(noted.launches - before.launches));
	}
	engine_close(g);
	ok(profile_is_small(799, 100) && !profile_is_small(800, 100) && !profile_is_small(1, 0),
	   "a model is small below eight times the cache");
	return done();
}
