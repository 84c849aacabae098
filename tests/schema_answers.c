/* Draws answers of JSON schemas, for tests/schema_suite.py. Each line of standard input is an object of JSON:
 *
 *     {"schema": S, "answers": N, "texts": [T, ...], "seed": K}
 *
 * and each line of standard output says what became of it: {"ms": time to compile, "code": C, "error": sentence} if the
 * schema is refused, else {"ms": ..., "nodes": size of the grammar, "answers": [N texts of the grammar], "accepts":
 * [for each T, whether it is a text of the grammar]}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/constraint.h"
#include "tests/random.h"

enum { MAX_BYTES = 256 << 20, TEXT_MAX = 1 << 20, WALK_MAX = 400, SEARCH_MAX = 1 << 16 };

/* A state that the search for an end has reached. */
struct step {
	uint32_t state, from; /* from: the place of the step before it */
	uint8_t byte;
};

/* Appends the shortest text that leads from `state` to an end. False: there is none within SEARCH_MAX states. */
static bool complete(struct automaton *a, uint32_t state, struct buf *text)
{
	struct step *queue = calloc(SEARCH_MAX, sizeof(*queue));
	uint8_t *seen = NULL, path[SEARCH_MAX];
	size_t cap = 0, n_path = 0;
	uint32_t n = 0, at = 0;
	bool found = false;

	if (!queue)
		abort();
	queue[n++] = (struct step){state, 0, 0};
	for (; at < n && !found; at += !found) {
		if (automaton_may_end(a, queue[at].state)) {
			found = true;
			break;
		}
		for (unsigned c = 0; c < 256 && n < SEARCH_MAX; c++) {
			uint32_t next = automaton_next(a, queue[at].state, (uint8_t)c);
			size_t old = cap;

			if (next == AUTOMATON_DEAD)
				continue;
			if (!array_grow(seen, cap, next + 1))
				abort();
			memset(seen + old, 0, cap - old);
			if (seen[next])
				continue;
			seen[next] = 1;
			queue[n++] = (struct step){next, at, (uint8_t)c};
		}
	}
	for (; found && at; at = queue[at].from)
		path[n_path++] = queue[at].byte;
	while (n_path)
		buf_append(text, &path[--n_path], 1);
	free(queue);
	free(seen);
	return found;
}

/* Returns a byte that may come in a state: often a letter, a digit or a sign of JSON. */
static bool choose(struct automaton *a, uint32_t state, uint8_t *ret)
{
	uint8_t any[256], usual[256];
	size_t n_any = 0, n_usual = 0;

	for (unsigned c = 0; c < 256; c++) {
		if (automaton_next(a, state, (uint8_t)c) == AUTOMATON_DEAD)
			continue;
		any[n_any++] = (uint8_t)c;
		if (strchr("\"{}[]:,-.019abxyz", (int)c) && c)
			usual[n_usual++] = (uint8_t)c;
	}
	if (!n_any)
		return false;
	*ret = n_usual && random_below(8) ? usual[random_below(n_usual)] : any[random_below(n_any)];
	return true;
}

/* Appends a random text of the grammar. */
static bool draw(struct automaton *a, struct buf *text)
{
	uint32_t state = AUTOMATON_START;
	size_t most = 1 + random_below(WALK_MAX);

	for (size_t i = 0; i < most; i++) {
		uint8_t byte;

		if (automaton_may_end(a, state) && !random_below(3))
			return true;
		if (!choose(a, state, &byte))
			return automaton_may_end(a, state);
		buf_append(text, &byte, 1);
		state = automaton_next(a, state, byte);
	}
	return complete(a, state, text);
}

static void answer(json_t *line, json_t *out)
{
	struct err e = {0};
	struct grammar *g = NULL;
	struct automaton *a = NULL;
	uint64_t begin = clock_now_ns();
	int r = constraint_json_schema(json_object_get(line, "schema"), &g, &e);
	json_t *answers = json_array(), *accepts = json_array(), *text;
	size_t i, lost = 0;

	json_object_set_new(out, "ms", json_real((double)(clock_now_ns() - begin) / 1e6));
	if (!r) {
		json_object_set_new(out, "nodes", json_integer(grammar_size(g)));
		r = automaton_new(g, MAX_BYTES, NULL, &a);
		if (r)
			snprintf(e.text, sizeof(e.text), "no automaton");
	}
	if (r) {
		json_object_set_new(out, "code", json_integer(-r));
		json_object_set_new(out, "error", json_string(e.text));
		goto out;
	}
	random_state = (uint64_t)json_integer_value(json_object_get(line, "seed")) + 1;
	for (json_int_t k = json_integer_value(json_object_get(line, "answers")); k > 0; k--) {
		struct buf drawn;

		buf_init(&drawn, TEXT_MAX);
		if (draw(a, &drawn))
			json_array_append_new(answers, json_stringn(drawn.data, drawn.len));
		else
			lost++;
		buf_release(&drawn);
	}
	json_array_foreach(json_object_get(line, "texts"), i, text)
	{
		uint32_t state = automaton_read(a, AUTOMATON_START, json_string_value(text),
						json_string_length(text));

		json_array_append_new(accepts, json_boolean(automaton_may_end(a, state)));
	}
	if (automaton_failed(a, &e) < 0)
		json_object_set_new(out, "error", json_string(e.text));
	json_object_set_new(out, "lost", json_integer((json_int_t)lost));
	json_object_set(out, "answers", answers);
	json_object_set(out, "accepts", accepts);
out:
	json_decref(answers);
	json_decref(accepts);
	automaton_free(a);
	grammar_free(g);
}

int main(void)
{
	char *line = NULL;
	size_t cap = 0;

	while (getline(&line, &cap, stdin) > 0) {
		json_t *in = json_loads(line, JSON_ALLOW_NUL, NULL), *out = json_object();

		if (!in || !out)
			abort();
		answer(in, out);
		if (json_dumpf(out, stdout, JSON_COMPACT) < 0)
			abort();
		putchar('\n');
		fflush(stdout);
		json_decref(in);
		json_decref(out);
	}
	free(line);
	return 0;
}
