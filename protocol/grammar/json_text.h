/* JSON as expressions of a grammar: how values are written.
 *
 * Between the parts of arrays and objects there may be nothing, one space, or a line's end with up to 32 spaces or
 * tabs. This is less than JSON allows, so a model cannot write blanks without end; nothing is before or behind the
 * whole value. Numbers have at most 15 digits before the point, 6 behind it and 2 in the exponent, so that every reader
 * gets the same value, which is finite. Strings have the escapes of JSON; two \u escapes make a code point above
 * 0xffff, and half a code point is not written. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/grammar/grammar.h"

struct json_text {
	struct grammar_builder *b;
	bool escape_less; /* strings have '<' only as \u003c, for JSON between tags */
	/* Rules: blanks between parts, one code point of a string, a string, a number, any value, any array, any
	 * object. */
	uint32_t blank, character, string, number, value, array, object;
};

/* Adds the rules to the builder. */
void json_text_init(struct json_text *t, struct grammar_builder *b, bool escape_less);

/* A part with blanks behind it. */
uint32_t json_text_spaced(const struct json_text *t, uint32_t part);

/* A value, as it stands; only blanks are free. */
uint32_t json_text_literal(const struct json_text *t, const json_t *value);

/* The name of a member, with the colon and blanks. */
uint32_t json_text_name(const struct json_text *t, const char *name);

/* A name of a member, with the colon and blanks, that is none of the n names. It has no escapes. */
uint32_t json_text_other_name(const struct json_text *t, const char *const *names, size_t n);

/* Whole numbers from lo to hi, which have at most 15 digits. */
uint32_t json_text_integers(struct grammar_builder *b, int64_t lo, int64_t hi);

/* Numbers from lo to hi millionths, both less than 10^15 in size, with up to 6 digits behind the point and no
 * exponent. */
uint32_t json_text_decimals(struct grammar_builder *b, int64_t lo, int64_t hi);
