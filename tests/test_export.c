/* Synthetic weights give the same bits when they are made on the device and when they are read from the checkpoint to
 * which they were exported. Other tests of `tigon export` follow.
 *
 *     test_export TIGON MODEL TINY      the program, a model directory, a directory of tiny checkpoints */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/file.h"
#include "engine/checkpoint/export.h"
#include "engine/layers/weights.h"
#include "tests/golden.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { REQUESTS = 4, FILE_MAX = 64 << 20, SEED = 11 };

extern char **environ;

/* The shape of models/lexis, whose programs are compiled already, with experts of other sizes and a head. */
static const char small_config[] =
	"{\"model_type\": \"qwen3_5_moe_text\", \"dtype\": \"bfloat16\", \"hidden_act\": \"silu\","
	" \"rms_norm_eps\": 1e-06, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 64,"
	" \"linear_value_head_dim\": 64, \"full_attention_interval\": 4, \"tie_word_embeddings\": false,"
	" \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000.0,"
	" \"partial_rotary_factor\": 0.25}, \"vocab_size\": 8192, \"hidden_size\": 256,"
	" \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
	" \"head_dim\": 64, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4,"
	" \"num_experts\": 32, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 48,"
	" \"shared_expert_intermediate_size\": 80, \"max_position_embeddings\": 32768,"
	" \"eos_token_id\": 2}";

/* ---- running ---- */

/* Which programs an engine takes. The host's code is tested here, so it takes those that other tests have left in PoCL's
 * cache: in SHIPPED those of lexis, in SEPARATE the same without that of whole decode steps, in PLAIN those of most of
 * the tiny models (test_tiny.c). */
enum programs { SHIPPED, SEPARATE, PLAIN };

static bool run_model(struct engine_options o, enum programs programs, struct run runs[REQUESTS])
{
	static const uint32_t lengths[REQUESTS] = {1, 64, 100, 131};
	static int32_t prompt[256];
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};
	bool good;

	o.program_cache = getenv("TIGON_PROGRAM_CACHE");
	o.page_tokens = 64;
	o.max_seqs = REQUESTS;
	o.max_prefill_tokens = 128;
	o.max_model_len = 512;
	o.separate_launches = programs != SHIPPED;
	o.unoptimised = programs == PLAIN;
	setup = run_setup_of(&o);
	memset(runs, 0, REQUESTS * sizeof(*runs));
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s: %s\n", o.model_dir, e.text);
		return false;
	}
	for (uint32_t i = 0; i < 256; i++)
		prompt[i] = (int32_t)(i * 2654435761u % engine_info(g)->model.vocab_size);
	for (size_t i = 0; i < REQUESTS; i++)
		runs[i] = run_of(prompt + i, lengths[i], 12);
	good = run_all(g, &setup, runs, REQUESTS);
	engine_close(g);
	return good;
}

static bool same(const struct run *a, const struct run *b, const char *name)
{
	for (size_t i = 0; i < REQUESTS; i++)
		if (!a[i].out[0].len || !run_same(&a[i], &b[i], name))
			return false;
	return true;
}

/* Exports config.json of `dir` with synthetic weights to `out`, in files of at most shard_bytes (0: 4 GiB). */
static bool export_model(const char *dir, const char *out, uint64_t shard_bytes)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct weight *table = NULL;
	struct weights *w = NULL;
	struct err e = {0};
	struct buf json;
	char path[4096];
	bool good;

	snprintf(path, sizeof(path), "%s/config.json", dir);
	buf_init(&json, FILE_MAX);
	good = c && model_config_open(dir, c, &e) == 0 &&
	       file_read(AT_FDCWD, path, path, &json, &e) == 0 && (table = layers_weights(c)) &&
	       weights_synthetic(SEED, NULL, c, table, &w) == 0 &&
	       weights_export(w, c, buf_str(&json), out, shard_bytes, &e) == 0;
	if (!good)
		printf("# %s: %s\n", dir, e.text);
	weights_close(w);
	free(table);
	buf_release(&json);
	free(c);
	return good;
}

static void test_same_bits(const char *dir, const char *name, uint64_t shard_bytes,
			   enum programs programs)
{
	static const struct engine_options options[] = {
		{.dtype = ENGINE_BFLOAT16, .kernels = ENGINE_KERNELS_AUTO},
		{.dtype = ENGINE_FLOAT32, .kernels = ENGINE_KERNELS_GENERIC},
	};
	struct run made[REQUESTS], read[REQUESTS], other[REQUESTS];
	const char *out = scratch_path(name);

	if (!ok(export_model(dir, out, shard_bytes), "%s: exported", name))
		return;
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		struct engine_options o = options[i];

		o.model_dir = dir;
		o.synthetic = true;
		o.synthetic_seed = SEED;
		check(run_model(o, programs, made));
		o.synthetic_seed = SEED + 1;
		check(run_model(o, programs, other));
		o.model_dir = out;
		o.synthetic = false;
		check(run_model(o, programs, read));
		check(same(made, read, "made on the device and read from files"));
		check(made[0].out[0].len && other[0].out[0].len &&
		      made[0].draws[0][0].logprob != other[0].draws[0][0].logprob);
		ok_all("%s, %s: from files the same bits as made on the device, of another seed others",
		       name, o.dtype == ENGINE_BFLOAT16 ? "bfloat16" : "float32");
	}
}

/* ---- the command ---- */

/* Runs a program (NULL-terminated argv) with its output in the scratch files out and err. Returns its exit status; -1:
 * it has none. */
static int command(const char *const argv[])
{
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, scratch_path("out"),
					 O_CREAT | O_TRUNC | O_WRONLY, 0600);
	posix_spawn_file_actions_addopen(&actions, 2, scratch_path("err"),
					 O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)argv, environ) == 0)
		waitpid(pid, &status, 0);
	posix_spawn_file_actions_destroy(&actions);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_whole(const char *path, struct buf *ret)
{
	struct err e = {0};

	buf_init(ret, FILE_MAX);
	if (file_read(AT_FDCWD, path, path, ret, &e) < 0)
		printf("# %s\n", e.text);
}

static bool same_files(const char *a, const char *b)
{
	struct buf x, y;
	bool equal;

	read_whole(a, &x);
	read_whole(b, &y);
	equal = x.len && x.len == y.len && !memcmp(x.data, y.data, x.len);
	buf_release(&x);
	buf_release(&y);
	return equal;
}

static bool same_in(const char *a, const char *b, const char *name)
{
	char x[4096], y[4096];

	snprintf(x, sizeof(x), "%s/%s", a, name);
	snprintf(y, sizeof(y), "%s/%s", b, name);
	return same_files(x, y);
}

/* Checks that the command ends with status 1 and one line on standard error, which has `part` in it. */
static void refuses(const char *const argv[], const char *part, const char *name)
{
	struct buf text;
	int status = command(argv);

	read_whole(scratch_path("err"), &text);
	ok(status == 1 && text.len > 1 &&
		   strchr(buf_str(&text), '\n') == buf_str(&text) + text.len - 1 &&
		   strstr(buf_str(&text), part),
	   "tigon export: %s", name);
	if (!strstr(buf_str(&text), part))
		printf("# status %d: %s\n", status, buf_str(&text));
	buf_release(&text);
}

static void test_command(const char *tigon, const char *model)
{
	static const char *const copied[] = {"tokenizer.json", "tokenizer_config.json",
					     "chat_template.jinja", "generation_config.json"};
	char small[512], out[512], seed[16];
	const char *make[] = {tigon, "export", "--model", small,	 "--synthetic-weights",
			      seed,  "--out",  out,	  "--tokenizer", model,
			      NULL};
	const char *no_out[] = {tigon, "export", "--model", small, NULL};
	const char *nowhere[] = {tigon, "export", "--model", "/nonexistent", "--out", out, NULL};
	const char *no_weights[] = {tigon, "export", "--model", small, "--out", out, NULL};
	const char *bad_seed[] = {
		tigon, "export", "--model", small, "--out", out, "--synthetic-weights", "x", NULL};

	snprintf(small, sizeof(small), "%s", scratch_path("small"));
	snprintf(out, sizeof(out), "%s", scratch_path("command"));
	snprintf(seed, sizeof(seed), "%d", SEED);
	check(command(make) == 0);
	check(export_model(small, scratch_path("whole"), 0));
	check(same_in(out, scratch_path("whole"), "model.safetensors"));
	check(same_in(out, scratch_path("whole"), "config.json"));
	for (size_t i = 0; i < sizeof(copied) / sizeof(copied[0]); i++)
		check(same_in(out, model, copied[i]));
	ok_all("tigon export writes what the server makes, and the tokenizer");
	refuses(make, "not empty", "a directory that is not empty");
	refuses(no_out, "--out", "no --out");
	snprintf(out, sizeof(out), "%s", scratch_path("other"));
	refuses(nowhere, "/nonexistent", "no model");
	refuses(no_weights, small, "a model without weights");
	refuses(bad_seed, "\"x\"", "a seed that is no number");
}

/* A checkpoint of bf16 weights, not synthetic ones, gives the same bits when it was exported again. */
static void test_again(const char *tigon, const char *tiny)
{
	struct run first[REQUESTS], again[REQUESTS];
	struct engine_options o = {.dtype = ENGINE_FLOAT32};
	char dir[4096], out[512];
	const char *argv[] = {tigon, "export", "--model", dir, "--out", out, NULL};

	snprintf(dir, sizeof(dir), "%s/04-next", tiny);
	snprintf(out, sizeof(out), "%s", scratch_path("again"));
	check(command(argv) == 0);
	o.model_dir = dir;
	check(run_model(o, PLAIN, first));
	o.model_dir = out;
	check(run_model(o, PLAIN, again));
	check(same(first, again, "a checkpoint and its copy"));
	ok_all("a checkpoint of bf16 exported again gives the same bits");
}

int main(int argc, char **argv)
{
	char next[4096], small[512];

	if (argc < 4)
		return 2;
	snprintf(small, sizeof(small), "%s", scratch_path("small"));
	mkdir(small, 0700);
	scratch_write("small/config.json", small_config, sizeof(small_config) - 1);
	snprintf(next, sizeof(next), "%s/17-next-mixed", argv[3]);
	test_command(argv[1], argv[2]);
	test_again(argv[1], argv[3]);
	test_same_bits(small, "small-moe", 5 << 20, SEPARATE);
	test_same_bits(next, "next-mixed", 0, PLAIN);
	test_same_bits(argv[2], "lexis", 0, SHIPPED);
	return done();
}
