/* The forward pass from safetensors that hold codes with scales: lexis, whose layers have several formats in turn,
 * gives the answers of the same numbers as floats, in memory near that of the file. So does lexis in FP8, where also
 * bf16 is tested: a request's answer has the same bits alone and among others. In float32:
 *
 *     test_quantised_engine [auto|generic] */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tests/golden.h"
#include "tests/quantised_write.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { CASES = 2 };

static enum engine_kernels kernels = ENGINE_KERNELS_AUTO;

/* Runs the cases, all together, or one after the other and with decode steps in one launch. */
static bool run_cases(const char *path, const char *dtype, const struct golden *golden, bool alone,
		      struct run **ret, struct engine_info *ret_info)
{
	struct engine_options o = run_options(path, dtype, 4, 64);
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};
	bool good = true;

	o.kernels = kernels;
	o.unoptimised = true;
	o.separate_launches = !alone;
	setup = run_setup_of(&o);
	*ret = golden_runs(golden);
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s\n", e.text);
		return false;
	}
	for (size_t i = 0; alone && good && i < golden->n; i++)
		good = run_all(g, &setup, *ret + i, 1);
	good = good && (alone || run_all(g, &setup, *ret, golden->n));
	*ret_info = *engine_info(g);
	engine_close(g);
	return good;
}

/* The answers of the two models in float32. *ret_bytes: that of the matrices as codes. */
static bool compare(const struct golden *golden, const struct quantised_written *bytes,
		    uint64_t *ret_bytes)
{
	struct engine_info codes, floats;
	struct run *a, *b;
	float apart;
	size_t tokens;

	if (!ok(run_cases(scratch_path("codes"), "float32", golden, false, &a, &codes) &&
			run_cases(scratch_path("floats"), "float32", golden, false, &b, &floats),
		"lexis runs as codes and as floats"))
		return false;
	apart = runs_apart(a, b, golden->n, &tokens);
	check(tokens > 20 && apart <= 1e-5f);
	ok_all("%zu tokens are those of floats, log-probabilities within %.2g", tokens,
	       (double)apart);
	/* An embedding of floats that is the head too is kept twice, one of codes once. */
	*ret_bytes = codes.weight_bytes - (floats.weight_bytes - bytes->floats - bytes->embedding);
	return true;
}

static void test_formats(const struct golden *golden)
{
	struct quantised_written bytes;
	uint64_t codes;

	if (!ok(quantised_write("models/lexis", scratch_path("codes"), scratch_path("floats"),
				&bytes),
		"lexis is written, every matrix in a type of kernels") ||
	    !compare(golden, &bytes, &codes))
		return;
	ok(codes < bytes.codes + bytes.codes / 4,
	   "%.2f MiB of the file take %.2f MiB, as floats %.2f", (double)bytes.codes / (1 << 20),
	   (double)codes / (1 << 20), (double)bytes.floats / (1 << 20));
}

static void test_fp8(const struct golden *golden)
{
	struct quantised_written bytes;
	struct engine_info info;
	struct run *a, *b;
	uint64_t codes;
	size_t tokens;
	float apart;

	if (!ok(quantised_write_fp8("models/lexis", scratch_path("codes"), scratch_path("floats"),
				    &bytes),
		"lexis is written in FP8") ||
	    !compare(golden, &bytes, &codes))
		return;
	ok(codes < bytes.floats / 2 * 6 / 10, "%.2f MiB of the file take %.2f MiB, as bf16 %.2f",
	   (double)bytes.codes / (1 << 20), (double)codes / (1 << 20),
	   (double)bytes.floats / (2 << 20));
	if (!ok(run_cases(scratch_path("codes"), "bfloat16", golden, false, &a, &info) &&
			run_cases(scratch_path("codes"), "bfloat16", golden, true, &b, &info),
		"and in bf16"))
		return;
	apart = runs_apart(a, b, golden->n, &tokens);
	ok(tokens > 20 && apart == 0, "%zu tokens have the same bits alone and together", tokens);
	ok(!info.int8, "and no inputs in int8");
}

/* Sets the first byte of a tensor in the file that quantised_write_fp8 wrote. */
static bool poke(const char *name, uint8_t byte)
{
	struct buf file;
	struct err e = {0};
	char path[512];
	const char *at;
	uint64_t header, offset;
	bool good;

	snprintf(path, sizeof(path), "%s/model.safetensors", scratch_path("codes"));
	buf_init(&file, SIZE_MAX);
	good = file_read(AT_FDCWD, path, path, &file, &e) == 0 && file.len > 8;
	if (good) {
		memcpy(&header, file.data, 8);
		at = memmem(file.data + 8, header, name, strlen(name));
		at = at ? strstr(at, "\"data_offsets\":[") : NULL;
		good = at && sscanf(at, "\"data_offsets\":[%" SCNu64, &offset) == 1;
	}
	if (good) {
		file.data[8 + header + offset] = (char)byte;
		good = file_write(path, file.data, file.len, &e) == 0;
	}
	buf_release(&file);
	return good;
}

/* FP8 has two codes that are no numbers. */
static void test_nan(void)
{
	static const char name[] = "model.layers.2.mlp.experts.5.up_proj.weight";
	struct engine_options o = run_options(scratch_path("codes"), "bfloat16", 4, 64);
	struct engine *g;
	struct err e = {0};
	char sentence[128];

	o.kernels = kernels;
	o.unoptimised = o.separate_launches = true;
	snprintf(sentence, sizeof(sentence), "tensor %s has a weight that is NaN or infinite",
		 name);
	if (!ok(poke(name, 0xff), "a code becomes a NaN"))
		return;
	is_int(engine_open(&o, &g, &e), -EINVAL, "the model is refused");
	is_str(e.text, sentence, "and the tensor named");
}

int main(int argc, char **argv)
{
	struct golden golden = {0};

	if (argc > 1 && !strcmp(argv[1], "generic"))
		kernels = ENGINE_KERNELS_GENERIC;
	if (!ok(golden_open("models/lexis", &golden), "golden answers"))
		return done();
	golden.n = CASES;
	test_formats(&golden);
	test_fp8(&golden);
	test_nan();
	return done();
}
