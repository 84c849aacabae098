/* An answer of one stream among many has the bits that it has alone.
 *
 *     test_crowd MODEL float32|bfloat16 [RECIPE]
 *
 * 256 streams with short prompts, every third of them drawn. Each runs alone, which is steps of one row; then the first 64
 * and all 256 run together, which is steps of 64 and 256 rows. test_invariance has longer prompts and odd orders, but no
 * step of so many rows: there the tiles are full, and a device may take another kernel. RECIPE: the model has synthetic
 * weights of these types. */
#include <string.h>

#include "base/macros.h"
#include "tests/golden.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { STREAMS = 256, LONGEST = 5, TOKENS = 6 };

static void make_streams(struct run *runs, int32_t prompts[STREAMS][LONGEST], uint32_t vocab)
{
	random_state = 7;
	for (uint32_t i = 0; i < STREAMS; i++) {
		for (uint32_t k = 0; k < LONGEST; k++)
			prompts[i][k] = (int32_t)random_below(vocab);
		runs[i] = run_of(prompts[i], 1 + i % LONGEST, TOKENS);
		if (i % 3 == 0) {
			runs[i].sampling.temperature = 1;
			runs[i].sampling.seed = i;
		}
	}
}

/* Notes the most rows of a step that only decodes. */
static void count_rows(void *arg, const struct plan *p, const struct draw_result *results)
{
	uint32_t *most = arg;

	if (!p->n_prefill_rows)
		*most = MAX(*most, p->n_rows);
}

static void test_together(struct engine *g, struct run_setup setup, const struct run *alone,
			  uint32_t n)
{
	static struct run runs[STREAMS];
	uint32_t most = 0;

	memcpy(runs, alone, n * sizeof(*runs));
	setup.watch = count_rows;
	setup.arg = &most;
	check(run_all(g, &setup, runs, n));
	for (uint32_t i = 0; i < n; i++)
		check(run_same(&alone[i], &runs[i], "alone and in a crowd"));
	check(most == n);
	ok_all("%u streams, %u rows in a step: the bits of each alone", n, most);
}

int main(int argc, char **argv)
{
	static int32_t prompts[STREAMS][LONGEST];
	static struct run alone[STREAMS];
	struct engine_options o;
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};

	if (argc < 3)
		return 2;
	o = run_options(argv[1], argv[2], STREAMS, STREAMS * LONGEST);
	o.synthetic = argc > 3;
	o.synthetic_types = argc > 3 ? argv[3] : NULL;
	o.synthetic_seed = 1;
	if (engine_open(&o, &g, &e) < 0) {
		ok(false, "no engine: %s", e.text);
		return done();
	}
	setup = run_setup_of(&o);
	make_streams(alone, prompts, engine_info(g)->model.vocab_size);
	for (uint32_t i = 0; i < STREAMS; i++)
		check(run_all(g, &setup, &alone[i], 1));
	ok_all("%u streams alone", STREAMS);
	test_together(g, setup, alone, 64);
	test_together(g, setup, alone, STREAMS);
	engine_close(g);
	return done();
}
