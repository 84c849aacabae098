/* The forward pass from safetensors that hold codes with scales: lexis, whose layers have several formats in turn,
 * gives the answers of the same numbers as floats, in memory near that of the file. In float32:
 *
 *     test_quantised_engine [auto|generic] */
#include <stdlib.h>

#include "tests/golden.h"
#include "tests/quantised_write.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { CASES = 2 };

static enum engine_kernels kernels = ENGINE_KERNELS_AUTO;

static bool run_model(const char *path, const struct golden *golden, struct run **ret,
		      uint64_t *ret_bytes)
{
	struct engine_options o = run_options(path, "float32", 4, 64);
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};
	bool good;

	o.kernels = kernels;
	o.unoptimised = o.separate_launches = true;
	setup = run_setup_of(&o);
	*ret = golden_runs(golden);
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s\n", e.text);
		return false;
	}
	good = run_all(g, &setup, *ret, golden->n);
	*ret_bytes = engine_info(g)->weight_bytes;
	engine_close(g);
	return good;
}

int main(int argc, char **argv)
{
	struct quantised_written bytes;
	struct golden golden = {0};
	uint64_t codes, floats;
	struct run *a, *b;
	float apart;
	size_t tokens;

	if (argc > 1 && !strcmp(argv[1], "generic"))
		kernels = ENGINE_KERNELS_GENERIC;
	if (!ok(golden_open("models/lexis", &golden) &&
			quantised_write("models/lexis", scratch_path("codes"),
					scratch_path("floats"), &bytes),
		"lexis is written, every matrix in a type of kernels"))
		return done();
	golden.n = CASES;
	if (!ok(run_model(scratch_path("codes"), &golden, &a, &codes) &&
			run_model(scratch_path("floats"), &golden, &b, &floats),
		"lexis runs as codes and as floats"))
		return done();
	apart = runs_apart(a, b, golden.n, &tokens);
	check(tokens > 20 && apart <= 1e-5f);
	ok_all("%zu tokens are those of floats, log-probabilities within %.2g", tokens,
	       (double)apart);
	codes -= floats - bytes.floats;
	ok(codes < bytes.codes + bytes.codes / 4,
	   "%.2f MiB of the file take %.2f MiB, as floats %.2f", (double)bytes.codes / (1 << 20),
	   (double)codes / (1 << 20), (double)bytes.floats / (1 << 20));
	return done();
}
