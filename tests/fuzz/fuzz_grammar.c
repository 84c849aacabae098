/* Any bytes as a grammar in GBNF or as a regular expression: it is refused with a sentence, or its automaton reads what
 * it says that it can read, and its states lead to an end. The first byte chooses. */
#include <stdint.h>
#include <stdlib.h>

#include "protocol/grammar/automaton.h"
#include "protocol/grammar/constraint.h"

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

enum { STEPS = 200, MAX_BYTES = 4 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t state = AUTOMATON_START, random;
	struct grammar *g = NULL;
	struct automaton *a = NULL;
	struct err e = {0};
	const char *text;
	int r;

	if (!size || size > 4096)
		return 0;
	random = data[0];
	text = (const char *)data + 1;
	r = random & 1 ? constraint_gbnf(text, size - 1, &g, &e)
		       : constraint_regex(text, size - 1, &g, &e);
	CHECK((r < 0) == (g == NULL) && (r < 0) == (e.code != 0) && -r == e.code);
	CHECK(!e.code || e.text[0]);
	if (r < 0)
		return 0;
	if (automaton_new(g, MAX_BYTES, NULL, &a) < 0) {
		grammar_free(g);
		return 0;
	}
	for (int i = 0; i < STEPS && automaton_work(a) < 1 << 20; i++) {
		uint32_t next = AUTOMATON_DEAD;

		for (unsigned k = 0; k < 256 && next == AUTOMATON_DEAD; k++) {
			random = random * 1664525 + 1013904223;
			next = automaton_next(a, state, (uint8_t)(k ^ random >> 24));
		}
		if (next == AUTOMATON_DEAD)
			break;
		state = next;
	}
	automaton_free(a);
	grammar_free(g);
	return 0;
}
