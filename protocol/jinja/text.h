/* Python's str on UTF-8 bytes: a template counts, slices, strips and maps code points, while every text here is stored
 * as UTF-8. White space and line breaks are Python's (str.isspace, str.splitlines).
 *
 * A function that is given n reads nothing behind s + n, whatever the bytes are. text_next and text_prev take a byte
 * outside any valid sequence for one character, U+FFFD; texts that jansson or the lexer accepted have no such bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Sets *ret_cp to the code point at s. Returns its number of bytes (1 to 4; 0 only if n is 0). */
size_t text_next(const char *s, size_t n, uint32_t *ret_cp);

/* Sets *ret_cp to the last code point of s. Returns its number of bytes (1 to 4; 0 only if n is 0). */
size_t text_prev(const char *s, size_t n, uint32_t *ret_cp);

/* Appends a code point. */
void text_put(struct buf *b, uint32_t cp);

/* Replaces each byte outside any valid sequence by "?": a message may be cut inside a character. */
void text_clean(char *s);

/* text_length returns the number of code points, text_offset the byte offset of code point `index` (n: there are not so
 * many). Both are for valid UTF-8. */
size_t text_length(const char *s, size_t n);
size_t text_offset(const char *s, size_t n, size_t index);

/* Returns the byte offset of the first occurrence of a needle; SIZE_MAX: there is none.
 * An empty needle is found at 0. */
size_t text_find(const char *s, size_t n, const char *needle, size_t m);

/* Classes of characters. TEXT_LOWER and TEXT_CASED leave out the few signs that Unicode counts as lower or upper case
 * although they are not letters with case ("ª", "Ⅷ"). */
enum text_class {
	TEXT_SPACE,	/* str.isspace() of one character */
	TEXT_PRINTABLE, /* str.isprintable() of one character */
	TEXT_LOWER,
	TEXT_CASED,	 /* upper, lower, or a titlecase letter such as U+01C5 */
	TEXT_IGNORABLE,	 /* marks, apostrophes...: skipped in the search for a word's end */
	TEXT_NAME_START, /* may begin an identifier */
	TEXT_NAME,	 /* may continue an identifier */
};

bool text_is(uint32_t cp, enum text_class class);

/* text_skip_space returns the byte offset where the white space at the front of s ends, text_trim_space the one where
 * the white space at its back begins. */
size_t text_skip_space(const char *s, size_t n);
size_t text_trim_space(const char *s, size_t n);

/* Returns the length in bytes of the first line of s without its line break, and sets *ret_break to the length of the
 * break (0: s ends without one). Breaks are those of str.splitlines. */
size_t text_line(const char *s, size_t n, size_t *ret_break);

enum casing { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE };

/* Appends s in another case: str.upper(), lower(), title(), capitalize(). "ß".upper() is "SS", and a capital sigma at
 * the end of a word becomes another small letter than elsewhere. In casing.c. */
void text_recase(struct buf *b, const char *s, size_t n, enum casing to);
