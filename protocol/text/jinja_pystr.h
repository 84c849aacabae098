/*
 * Python's str, on UTF-8 bytes: what a chat template counts, slices, strips and maps is code
 * points, while everything here is stored as UTF-8. Classes and case mappings are Python's
 * (str.isspace, str.upper with "ß" -> "SS", str.lower with the final sigma, str.splitlines).
 *
 * No call reads behind s + n, whatever the bytes are. A byte that starts no valid sequence counts
 * as one character, U+FFFD; texts that passed jansson or the lexer hold none.
 */
#ifndef PROTOCOL_TEXT_JINJA_PYSTR_H
#define PROTOCOL_TEXT_JINJA_PYSTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The code point at s and how many bytes it takes (1 to 4; 0 only when n is 0). */
size_t pystr_next(const char *s, size_t n, uint32_t *ret_cp);

/* The last code point of s and how many bytes it takes. */
size_t pystr_prev(const char *s, size_t n, uint32_t *ret_cp);

/* Appends a code point. */
void pystr_put(struct buf *b, uint32_t cp);

/* Puts "?" for each byte that belongs to no character: texts that were cut somewhere. */
void pystr_clean(char *s);

/* Number of code points, and the byte offset of code point `index` (n when there are fewer). */
size_t pystr_length(const char *s, size_t n);
size_t pystr_offset(const char *s, size_t n, size_t index);

/* First and last occurrence of a needle as a byte offset, SIZE_MAX when there is none. An empty
 * needle is found at 0 and at n. */
size_t pystr_find(const char *s, size_t n, const char *needle, size_t m);
size_t pystr_rfind(const char *s, size_t n, const char *needle, size_t m);

/* str.is...() of one character, by its category: upper and lower leave out the few signs that
 * Unicode counts as such though they are no letters with case ("ª", "Ⅷ"). */
bool pystr_isspace(uint32_t cp);
bool pystr_isalpha(uint32_t cp);
bool pystr_isdecimal(uint32_t cp);
bool pystr_isdigit(uint32_t cp);
bool pystr_isnumeric(uint32_t cp);
bool pystr_isalnum(uint32_t cp);
bool pystr_isprintable(uint32_t cp);
bool pystr_isupper(uint32_t cp);
bool pystr_islower(uint32_t cp);
bool pystr_istitle(uint32_t cp); /* titlecase letters such as U+01C5 */

/* May start, or continue, an identifier (str.isidentifier; close to Unicode's XID). */
bool pystr_id_start(uint32_t cp);
bool pystr_id_continue(uint32_t cp);

/* Where a run of white space at the front ends, and where the one at the back begins. */
size_t pystr_skip_space(const char *s, size_t n);
size_t pystr_trim_space(const char *s, size_t n);

/* Length in bytes of the first line of s without its line break, and of the break (0 at the end),
 * as str.splitlines cuts. */
size_t pystr_line(const char *s, size_t n, size_t *ret_break);

enum pystr_case { PYSTR_UPPER, PYSTR_LOWER, PYSTR_TITLE, PYSTR_CAPITALIZE, PYSTR_SWAPCASE };

/* Appends s in another case: upper(), lower(), title(), capitalize(), swapcase(). */
void pystr_recase(struct buf *b, const char *s, size_t n, enum pystr_case to);

#endif
