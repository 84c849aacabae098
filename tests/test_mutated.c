/* Files of quantised models with bytes changed, spans copied over others, or their ends cut off: each of them is refused
 * with one sentence, or all that it has can be read; some of the latter an engine opens, which refuses them with one
 * sentence or draws tokens.
 *
 *     test_mutated [COUNT [SERVED]]     files of each kind, 300 by default; the engines of each kind, 4 by default */
#include <fcntl.h>
#include <stdlib.h>

#include "base/file.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"
#include "tests/golden.h"
#include "tests/quantised_write.h"
#include "tests/random.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { COUNT = 300, SERVED = 4, FILE_MAX = 8 << 20 };

static unsigned count = COUNT, served = SERVED;

/* What became of the files of a kind. */
struct outcome {
	unsigned refused, read, opened, drew;
};

static bool is_sentence(const struct err *e, int r)
{
	return e->code == -r && e->text[0] && !strchr(e->text, '\n');
}

/* Reads all numbers of all weights. */
static void read_weights(const struct weights *w, const struct model_config *c)
{
	for (uint32_t layer = 0; layer < c->n_layers; layer++)
		for (int role = 0; role < WEIGHT_ROLES; role++) {
			const struct weight *one = weights_find(w, role, layer);
			float *rows = one ? malloc(one->rows * one->cols * sizeof(*rows)) : NULL;

			for (uint32_t i = 0; one && i < one->experts; i++)
				weights_rows(w, role, layer, i, 0, one->rows, false, rows,
					     one->cols);
			free(rows);
		}
}

/* Reads the texts and the weights of a model. Returns 0 or an error with its sentence. */
static int read_model(const char *path, struct err *e)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct weight *table = NULL;
	struct checkpoint *k = NULL;
	struct weights *w = NULL;
	int r = checkpoint_open(path, &k, e);

	for (int part = CHECKPOINT_CONFIG; r == 0 && part <= CHECKPOINT_TEMPLATE; part++) {
		struct checkpoint_text text = {0};
		struct err none = {0};
		int rc = checkpoint_read(k, part, &text, &none);

		check(rc == 0 || is_sentence(&none, rc));
		checkpoint_text_release(&text);
	}
	if (r == 0)
		r = model_config_read(k, c, e);
	if (r == 0) {
		table = layers_weights(c);
		r = weights_open(k, c, table, &w, e);
	}
	if (r == 0)
		read_weights(w, c);
	weights_close(w);
	checkpoint_close(k);
	free(table);
	free(c);
	return r;
}

/* Has an engine open a model and draw some tokens, which it may refuse. */
static void serve(const char *path, struct outcome *out)
{
	static const int32_t prompt[] = {1, 2, 3, 5, 8};
	struct engine_options o = run_options(path, "bfloat16", 1, 64);
	struct run run = run_of(prompt, ARRAY_SIZE(prompt), 2);
	struct run_setup setup;
	struct engine *g;
	struct err e = {0};
	int r;

	o.max_model_len = 128;
	o.separate_launches = o.unoptimised = true;
	setup = run_setup_of(&o);
	r = engine_open(&o, &g, &e);
	check(r == 0 || is_sentence(&e, r));
	if (r < 0)
		return;
	out->opened++;
	/* logits that are not finite fail the request or the step, with a line of output */
	out->drew += run_all(g, &setup, &run, 1);
	engine_close(g);
}

/* Changes up to four places of a file. Returns its new length. */
static size_t mutate(char *p, size_t len, size_t head)
{
	static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff};
	unsigned n = 1 + random_below(4);

	while (n-- > 0) {
		/* half of them where the file says what it has */
		size_t at = random_below(random_below(2) ? head : len), size, from;

		switch (random_below(8)) {
		case 0: /* another number of 32 or 64 bits */
			for (size_t i = 0; i < 8 && at + i < len; i++)
				p[at + i] = (char)odd[random_below(ARRAY_SIZE(odd))];
			break;
		case 1: /* a span of the file instead of another */
			size = MIN(1 + random_below(64), len - at);
			from = random_below(len - size + 1);
			memmove(p + at, p + from, size);
			break;
		case 2: /* all ones: scales that are NaN, numbers that are too large */
			memset(p + at, 0xff, MIN(1 + random_below(256), len - at));
			break;
		case 3: /* the rest is missing */
			if (random_below(3) == 0)
				len = MAX(at, (size_t)1);
			break;
		default: p[at] = (char)odd[random_below(ARRAY_SIZE(odd))];
		}
		head = MIN(head, len);
	}
	return len;
}

/* Returns the bytes of a model's tensors. */
static size_t bytes_of_tensors(const char *path)
{
	const struct tensor *list;
	struct checkpoint *k;
	struct err e = {0};
	size_t n, bytes = 0;

	if (checkpoint_open(path, &k, &e) < 0)
		return 0;
	if (checkpoint_tensors(k, &list, &n, &e) < 0)
		n = 0;
	for (size_t i = 0; i < n; i++)
		bytes += list[i].bytes;
	checkpoint_close(k);
	return bytes;
}

/* Mutates the file of a model, of which it is the only one with tensors. */
static void test_file(const char *model, const char *file, const char *name)
{
	struct outcome out = {0};
	struct buf whole;
	struct err e = {0};
	char *copy = NULL;
	size_t head;

	buf_init(&whole, FILE_MAX);
	check(file_read(AT_FDCWD, scratch_path(file), file, &whole, &e) == 0);
	check(read_model(scratch_path(model), &e) == 0);
	head = whole.len - bytes_of_tensors(scratch_path(model));
	copy = malloc(whole.len);
	if (!ok(copy && head < whole.len, "%s: %zu KiB behind a header of %zu", name,
		(whole.len - head) >> 10, head >> 10))
		goto done;
	random_state = 7;
	for (unsigned i = 0; i < count; i++) {
		int r;

		memcpy(copy, whole.data, whole.len);
		scratch_write(file, copy, mutate(copy, whole.len, head));
		e = (struct err){0};
		r = read_model(scratch_path(model), &e);
		check(r == 0 || is_sentence(&e, r));
		out.refused += r != 0;
		if (r == 0 && out.read++ < served)
			serve(scratch_path(model), &out);
	}
	ok_all("%s: of %u mutated files %u are refused, %u are read; engines open %u and %u draw tokens",
	       name, count, out.refused, out.read, out.opened, out.drew);
	check(out.refused > count / 5 && out.read > count / 10);
	check(!served || out.drew > 0);
	ok_all("all of this happens often");
done:
	free(copy);
	buf_release(&whole);
}

int main(int argc, char **argv)
{
	/* The rows of this one's output projections are whole blocks of 256. */
	static const char heads[] = "tests/golden/tiny/20-heads-256";
	struct quantised_written bytes;

	if (argc > 1)
		count = (unsigned)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		served = (unsigned)strtoul(argv[2], NULL, 10);
	if (ok(quantised_gguf(heads, scratch_path("q4.gguf"), "Q4_K_M"), "a file in Q4_K_M"))
		test_file("q4.gguf", "q4.gguf", "GGUF of Q4_K_M");
	if (ok(quantised_gguf(heads, scratch_path("q8.gguf"), "Q8_0"), "a file in Q8_0"))
		test_file("q8.gguf", "q8.gguf", "GGUF of Q8_0");
	if (ok(quantised_write("tests/golden/tiny/28-qwen2-files", scratch_path("codes"), NULL,
			       &bytes),
	       "a folder with codes and scales"))
		test_file("codes", "codes/model.safetensors", "safetensors with codes and scales");
	return done();
}
