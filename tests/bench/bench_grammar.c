/*
 * How long masks take, on one core.
 *
 *     bench_grammar TOKENIZER_JSON SCHEMAS_JSON...
 *
 * SCHEMAS_JSON is an object of schemas by name, as tests/bench/schemas.json. Each schema is compiled, and answers are
 * drawn: after each mask one of its tokens is chosen at random; one of six has a quote, so that strings end, and the
 * others end with a letter or a digit, if there are such tokens. A row has the time to compile in milliseconds, then the
 * times of masks in microseconds, those that were kept included. Times are processor time of the thread. A fresh
 * automaton and fresh masks begin each row.
 *
 * "forced" is the share of tokens that were the only one of their masks, first of the drawn answers, then of the schema's
 * `examples`, whose texts are encoded: so a model writes them that has learned from such texts.
 *
 * The last line has the figures of all rows together. gguf_tokenizer.py makes TOKENIZER_JSON of a real vocabulary.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "protocol/grammar/constraint.h"
#include "protocol/grammar/token_mask.h"
#include "protocol/tokenizer/tokenizer.h"
#include "tests/random.h"

enum {
	MASKS = 3000,
	ROWS_MAX = 100,
	ANSWER_MAX = 300,
	AUTOMATON_BYTES = 256 << 20,
	MASKS_BYTES = 64 << 20
};

static const char *bytes_of(const void *arg, int32_t id, size_t *len)
{
	const struct tokenizer *t = arg;

	return tokenizer_is_special(t, id) ? NULL : tokenizer_bytes(t, id, len);
}

static int by_size(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

	return a < b ? -1 : a > b;
}

static int32_t choose(const struct tokenizer *t, const uint32_t *mask, size_t words)
{
	bool quote = !random_below(6);
	int32_t last = -1;

	for (int i = 0; i < 20000; i++) {
		int32_t id = (int32_t)random_below(words * 32);
		const char *bytes;
		size_t len;

		if (!(mask[id / 32] >> id % 32 & 1))
			continue;
		bytes = bytes_of(t, id, &len);
		last = id;
		if (!bytes || (quote ? memchr(bytes, '"', len) != NULL
				     : isalnum((unsigned char)bytes[len - 1])))
			return id;
	}
	for (size_t w = 0; last < 0 && w < words; w++) {
		if (mask[w])
			last = (int32_t)(w * 32) + __builtin_ctz(mask[w]);
	}
	return last;
}

struct forced {
	size_t n, tokens;
};

struct times {
	uint64_t ns[MASKS * ROWS_MAX];
	size_t n;
	struct forced drawn, examples;
};

static uint64_t now(void)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Prints the percentiles of times, which it sorts. */
static void percentiles(uint64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), by_size);
	printf("p50 %8.2f us, p90 %8.2f, p99 %8.2f, most %8.2f", (double)ns[n / 2] / 1e3,
	       (double)ns[n * 9 / 10] / 1e3, (double)ns[n * 99 / 100] / 1e3,
	       (double)ns[n - 1] / 1e3);
}

static void count(struct forced *f, const struct automaton *a, uint32_t state, const uint32_t *mask,
		  size_t words)
{
	int n = 0;

	for (size_t w = 0; w < words && n < 2; w++)
		n += __builtin_popcount(mask[w]);
	f->n += n == 1 && !automaton_may_end(a, state);
	f->tokens++;
}

/* Returns the state after a token; an end token leads nowhere. */
static uint32_t next_state(const struct tokenizer *t, struct automaton *a, uint32_t state,
			   int32_t id)
{
	size_t len;
	const char *bytes = id < 0 ? NULL : bytes_of(t, id, &len);

	return bytes ? automaton_read(a, state, bytes, len) : AUTOMATON_DEAD;
}

static void print_forced(const struct forced *drawn, const struct forced *examples)
{
	printf(", forced %.1f %% and %.1f %%\n", 100 * (double)drawn->n / (double)drawn->tokens,
	       100 * (double)examples->n / (double)MAX(examples->tokens, (size_t)1));
}

/* Walks along the text of an example. */
static int walk(const struct tokenizer *t, struct token_masks *m, size_t words, struct automaton *a,
		const json_t *example, struct forced *f, struct err *e)
{
	char *text = json_dumps(example, JSON_ENCODE_ANY);
	uint32_t state = AUTOMATON_START;
	const uint32_t *mask;
	struct ids ids = {0};
	int r = text ? tokenizer_encode(t, text, strlen(text), false, NULL, &ids) : -ENOMEM;

	for (size_t i = 0; !r && i < ids.len; i++) {
		r = token_mask(m, state, &mask, e);
		if (!r)
			count(f, a, state, mask, words);
		state = next_state(t, a, state, ids.v[i]);
	}
	if (!r && !automaton_may_end(a, state))
		r = err_set(e, EINVAL, "no text of the grammar: %.300s", text);
	ids_release(&ids);
	free(text);
	return r;
}

static int walk_all(const struct tokenizer *t, const struct token_trie *trie, struct automaton *a,
		    const json_t *examples, struct forced *f, struct err *e)
{
	struct token_masks *m = NULL;
	const json_t *example;
	size_t i;
	int r = token_masks_new(trie, a, MASKS_BYTES, &m);

	json_array_foreach(examples, i, example)
	{
		if (!r)
			r = walk(t, m, token_trie_words(trie), a, example, f, e);
	}
	token_masks_free(m);
	return r;
}

/* Draws answers until there are MASKS masks, whose times it writes to ns. */
static int draw(const struct tokenizer *t, const struct token_trie *trie, struct automaton *a,
		uint64_t *ns, struct forced *f, struct err *e)
{
	uint32_t state = AUTOMATON_START;
	struct token_masks *m = NULL;
	const uint32_t *mask;
	int length = 0, r = token_masks_new(trie, a, MASKS_BYTES, &m);

	for (int n = 0; !r && n < MASKS; n++) {
		uint64_t start = now();

		r = token_mask(m, state, &mask, e);
		ns[n] = now() - start;
		if (r < 0)
			break;
		count(f, a, state, mask, token_trie_words(trie));
		state = next_state(t, a, state, choose(t, mask, token_trie_words(trie)));
		if (state == AUTOMATON_DEAD || ++length == ANSWER_MAX) {
			state = AUTOMATON_START;
			length = 0;
		}
	}
	token_masks_free(m);
	return r;
}

static int bench(const struct tokenizer *t, const struct token_trie *trie, const char *name,
		 const json_t *schema, struct times *all)
{
	uint64_t *ns = all->ns + all->n, start = now(), compiled;
	struct forced drawn = {0}, examples = {0};
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	struct err e = {0};
	int r = constraint_json_schema(schema, &g, &e);

	compiled = now() - start;
	if (!r)
		r = automaton_new(g, AUTOMATON_BYTES, NULL, &a);
	if (!r)
		r = draw(t, trie, a, ns, &drawn, &e);
	if (!r)
		r = walk_all(t, trie, a, json_object_get(schema, "examples"), &examples, &e);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", name, e.text);
	} else {
		printf("%-16s compile %8.2f ms, %6u nodes, %6u states; mask ", name,
		       (double)compiled / 1e6, grammar_size(g), automaton_size(a));
		percentiles(ns, MASKS);
		print_forced(&drawn, &examples);
		all->n += MASKS;
		all->drawn.n += drawn.n;
		all->drawn.tokens += drawn.tokens;
		all->examples.n += examples.n;
		all->examples.tokens += examples.tokens;
	}
	automaton_free(a);
	grammar_free(g);
	return r;
}

/* Benches all schemas of a file. */
static int bench_file(const struct tokenizer *t, const struct token_trie *trie, const char *path,
		      struct times *all)
{
	json_t *schemas = json_load_file(path, 0, NULL), *schema;
	const char *name;
	int r = 0;

	if (!json_is_object(schemas)) {
		fprintf(stderr, "%s: is no JSON of an object\n", path);
		r = -1;
	}
	json_object_foreach(schemas, name, schema)
	{
		if (all->n < ARRAY_SIZE(all->ns))
			r |= bench(t, trie, name, schema, all);
	}
	json_decref(schemas);
	return r;
}

int main(int argc, char **argv)
{
	static struct times all;
	struct token_source source = {.bytes = bytes_of};
	struct tokenizer *t = NULL;
	struct token_trie *trie = NULL;
	struct err e = {0};
	char *text = NULL;
	size_t len = 0;
	uint64_t start;
	FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
	int r = 0;

	if (!f || getdelim(&text, &len, 0, f) < 0) {
		fprintf(stderr, "usage: bench_grammar TOKENIZER_JSON SCHEMAS_JSON...\n");
		return 2;
	}
	fclose(f);
	if (tokenizer_parse(argv[1], text, strlen(text), &t, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	free(text);
	source.n = tokenizer_size(t);
	source.arg = t;
	start = now();
	if (token_trie_new(&source, &trie) < 0)
		return 1;
	printf("%d tokens, trie made in %.0f ms\n", source.n, (double)(now() - start) / 1e6);
	for (int i = 2; i < argc; i++)
		r |= bench_file(t, trie, argv[i], &all);
	if (all.n) {
		printf("all              mask ");
		percentiles(all.ns, all.n);
		print_forced(&all.drawn, &all.examples);
	}
	token_trie_free(trie);
	tokenizer_free(t);
	return r < 0;
}
