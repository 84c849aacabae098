/*
 * How long masks take, on one core.
 *
 *     bench_grammar TOKENIZER_JSON SCHEMA_JSON...
 *
 * Each schema is compiled, and answers are drawn: after each mask one of its tokens is chosen at random; one of six has
 * a quote, so that strings end, and the others end with a letter or a digit, if there are such tokens. A row has the time to compile, then the times of masks in
 * microseconds: median, 99th percentile, the longest. Masks that were kept count as well; "made" are those that were
 * not. A fresh automaton and fresh masks begin each row.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "protocol/grammar/constraint.h"
#include "protocol/grammar/token_mask.h"
#include "protocol/tokenizer/tokenizer.h"
#include "tests/random.h"

enum { MASKS = 3000, ANSWER_MAX = 300, AUTOMATON_BYTES = 256 << 20, MASKS_BYTES = 64 << 20 };

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

static int32_t choose(const struct tokenizer *t, const struct token_mask *mask, size_t words)
{
	bool quote = !random_below(6);
	int32_t last = -1;

	for (int i = 0; i < 20000; i++) {
		int32_t id = (int32_t)random_below(words * 32);
		const char *bytes;
		size_t len;

		if (!(mask->bits[id / 32] >> id % 32 & 1))
			continue;
		bytes = bytes_of(t, id, &len);
		last = id;
		if (!bytes || (quote ? memchr(bytes, '"', len) != NULL
				     : isalnum((unsigned char)bytes[len - 1])))
			return id;
	}
	for (size_t w = 0; last < 0 && w < words; w++) {
		if (mask->bits[w])
			last = (int32_t)(w * 32) + __builtin_ctz(mask->bits[w]);
	}
	return last;
}

static int bench(const struct tokenizer *t, const struct token_trie *trie, const char *path)
{
	static uint64_t ns[MASKS];
	json_t *schema = json_load_file(path, JSON_DECODE_ANY, NULL);
	struct automaton *a = NULL;
	struct token_masks *m = NULL;
	struct grammar *g = NULL;
	struct token_mask mask;
	struct err e = {0};
	uint64_t start, compiled;
	uint32_t state = AUTOMATON_START;
	int n = 0, length = 0;

	if (!schema) {
		fprintf(stderr, "%s: is no JSON\n", path);
		return -1;
	}
	start = clock_now_ns();
	if (constraint_json_schema(schema, &g, &e) < 0) {
		fprintf(stderr, "%s: %s\n", path, e.text);
		return -1;
	}
	compiled = clock_now_ns() - start;
	if (automaton_new(g, AUTOMATON_BYTES, NULL, &a) < 0 ||
	    token_masks_new(trie, a, MASKS_BYTES, &m) < 0)
		return -1;
	while (n < MASKS) {
		int32_t id;

		start = clock_now_ns();
		if (token_mask(m, state, &mask, &e) < 0) {
			fprintf(stderr, "%s: %s\n", path, e.text);
			return -1;
		}
		ns[n++] = clock_now_ns() - start;
		id = choose(t, &mask, token_trie_words(trie));
		state = token_next(m, state, id);
		if (state == AUTOMATON_DEAD || ++length == ANSWER_MAX) {
			state = AUTOMATON_START;
			length = 0;
		}
	}
	qsort(ns, MASKS, sizeof(*ns), by_size);
	printf("%-40s compile %8.2f ms, %6u nodes, %6u states; mask p50 %8.2f us, p90 %8.2f, p99 %8.2f, most %8.2f\n",
	       path, (double)compiled / 1e6, grammar_size(g), automaton_size(a),
	       (double)ns[MASKS / 2] / 1e3, (double)ns[MASKS * 9 / 10] / 1e3,
	       (double)ns[MASKS * 99 / 100] / 1e3, (double)ns[MASKS - 1] / 1e3);
	token_masks_free(m);
	automaton_free(a);
	grammar_free(g);
	json_decref(schema);
	return 0;
}

int main(int argc, char **argv)
{
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
		fprintf(stderr, "usage: bench_grammar TOKENIZER_JSON SCHEMA_JSON...\n");
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
	start = clock_now_ns();
	if (token_trie_new(&source, &trie) < 0)
		return 1;
	printf("%d tokens, trie made in %.0f ms\n", source.n,
	       (double)(clock_now_ns() - start) / 1e6);
	for (int i = 2; i < argc; i++)
		r |= bench(t, trie, argv[i]);
	token_trie_free(trie);
	tokenizer_free(t);
	return r < 0;
}
