/* Any JSON as a schema: it is refused with a sentence, or random answers that the automaton takes are JSON. The bytes
 * behind the first zero byte choose the answers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/grammar/automaton.h"
#include "protocol/grammar/constraint.h"

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

enum { STEPS = 2000, MAX_BYTES = 4 << 20 };

/* Draws one answer, and prefers what closes strings, arrays and objects. */
static void answer(struct automaton *a, uint32_t *random)
{
	uint32_t state = AUTOMATON_START;
	char text[STEPS];
	size_t len = 0;
	json_error_t e;
	json_t *value;

	while (len < STEPS && automaton_work(a) < 1 << 20) {
		uint32_t next = AUTOMATON_DEAD;
		uint8_t byte = 0;

		if (automaton_may_end(a, state) && *random >> 30) {
			value = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
			/* jansson has no names with zero bytes. */
			CHECK(value || json_error_code(&e) == json_error_null_byte_in_key);
			json_decref(value);
			return;
		}
		for (unsigned k = 0; k < 260 && next == AUTOMATON_DEAD; k++) {
			*random = *random * 1664525 + 1013904223;
			byte = k < 4 && *random >> 31 ? (uint8_t) "\"]}1"[k]
						      : (uint8_t)(k ^ *random >> 24);
			next = automaton_next(a, state, byte);
		}
		if (next == AUTOMATON_DEAD)
			return;
		text[len++] = (char)byte;
		state = next;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = strnlen((const char *)data, size);
	uint32_t random = 1;
	struct grammar *g = NULL;
	struct automaton *a = NULL;
	struct err e = {0};
	json_t *schema;
	int r;

	for (size_t i = len; i < size; i++)
		random = random * 31 + data[i];
	schema = json_loadb((const char *)data, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (!schema)
		return 0;
	r = constraint_json_schema(schema, &g, &e);
	json_decref(schema);
	CHECK((r < 0) == (g == NULL) && -r == e.code);
	CHECK(!e.code || e.text[0]);
	if (r < 0)
		return 0;
	if (automaton_new(g, MAX_BYTES, NULL, &a) == 0) {
		for (int i = 0; i < 5; i++)
			answer(a, &random);
		automaton_free(a);
	}
	grammar_free(g);
	return 0;
}
