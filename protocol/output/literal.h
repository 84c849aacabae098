/* Reads one value of JSON, or of Python, byte by byte, and writes it as JSON while it comes.
 *
 * JSON passes through unchanged, but for the repairs that tools.h names. Of Python the values are read that have a
 * counterpart in JSON: strings in either quotes, numbers, True, False, None, lists, and dictionaries with strings as
 * keys; JSON's true, false and null are read as well. They are written with ", " and ": ". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { LITERAL_DEPTH_MAX = 512 }; /* the most objects and arrays inside each other */

enum literal_status {
	LITERAL_MORE,	/* the value goes on */
	LITERAL_END,	/* the byte was its last one */
	LITERAL_BEHIND, /* a number had ended before this byte, which does not belong to it */
	LITERAL_WRONG,	/* the byte cannot follow what was read */
};

struct literal {
	bool python;
	bool key;      /* the string is the key of a member */
	bool comma;    /* Python: a comma was read that is not written yet */
	char quote;    /* that ends the string */
	uint8_t state; /* enum state of literal.c */
	uint8_t n_held;
	char held[12]; /* an escape sequence or literal that is not complete */
	uint32_t depth;
	uint64_t objects[LITERAL_DEPTH_MAX / 64]; /* a bit for each level: it is an object */
};

void literal_init(struct literal *v, bool python);

/* Takes a byte, and appends to out what is certain then. Blanks before the value are dropped. */
enum literal_status literal_byte(struct literal *v, char c, struct buf *out);

/* The text has ended within the value: appends what is held back as it stands. */
void literal_cut(struct literal *v, struct buf *out);

/* Appends to out the JSON of a text that is one value and blanks around it. False: it is no such text, and nothing was
 * appended. */
bool literal_convert(const char *text, size_t len, bool python, struct buf *out);

/* Appends the text of a JSON string that literal_byte has written in whole, quotes included. */
void literal_text(const char *json, struct buf *out);

/* Appends a byte of a string as JSON has it. */
void literal_escape(char c, struct buf *out);

static inline bool literal_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
