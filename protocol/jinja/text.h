/*
 * Python's str on UTF-8 bytes: a template counts, slices, strips and maps code points, while every
 * text here is stored as UTF-8. Classes of characters are Python's (str.isspace, str.splitlines).
 *
 * No call reads behind s + n, whatever the bytes are. A byte that belongs to no character counts
 * as one character, U+FFFD; texts that passed jansson or the lexer have no such bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The code point at s and how many bytes it takes (1 to 4; 0 only when n is 0). */
size_t text_next(const char *s, size_t n, uint32_t *ret_cp);

/* The last code point of s and how many bytes it takes. */
size_t text_prev(const char *s, size_t n, uint32_t *ret_cp);

/* Appends a code point. */
void text_put(struct buf *b, uint32_t cp);

/* Puts "?" for each byte that belongs to no character: a message may be cut inside of one. */
void text_clean(char *s);

/* Number of code points, and the byte offset of code point `index` (n when there are fewer), in
 * valid UTF-8. */
size_t text_length(const char *s, size_t n);
size_t text_offset(const char *s, size_t n, size_t index);

/* First occurrence of a needle as a byte offset, SIZE_MAX when there is none. An empty needle is
 * found at 0. */
size_t text_find(const char *s, size_t n, const char *needle, size_t m);

/* Classes of characters. Upper and lower leave out the few signs that Unicode counts as such
 * though they are no letters with case ("ª", "Ⅷ"). */
enum text_class {
	TEXT_SPACE, /* str.isspace(), str.isprintable() of one character */
	TEXT_PRINTABLE,
	TEXT_LOWER,
	TEXT_CASED,	/* upper, lower, or a titlecase letter such as U+01C5 */
	TEXT_IGNORABLE, /* the search for a word's end passes over it: marks, apostrophes */
	TEXT_NAME_START,
	TEXT_NAME, /* may continue an identifier */
};

bool text_is(uint32_t cp, enum text_class class);

/* Where a run of white space at the front ends, and where the one at the back begins. */
size_t text_skip_space(const char *s, size_t n);
size_t text_trim_space(const char *s, size_t n);

/* Length in bytes of the first line of s without its line break, and of the break (0 at the end),
 * as str.splitlines cuts. */
size_t text_line(const char *s, size_t n, size_t *ret_break);

enum casing { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE };

/* Appends s in another case: str.upper(), lower(), title(), capitalize(). "ß".upper() is "SS", and a
 * sigma at the end of a word has a small letter of its own. In casing.c. */
void text_recase(struct buf *b, const char *s, size_t n, enum casing to);
