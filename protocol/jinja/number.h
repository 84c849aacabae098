/* Numbers as Python writes and reads them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* float_repr writes Python's repr(f): the fewest decimal digits that are read as the same double. */
enum { FLOAT_REPR_MAX = 40 };
void float_repr(double f, char out[FLOAT_REPR_MAX]);

/* text_to_int reads an integer as Python's int(text) does, but knows only the digits of ASCII. White space may stand
 * before and behind the integer, and an underscore between two digits. PARSE_INT_OK: *ret is the integer.
 * PARSE_INT_BAD: the text is no integer. PARSE_INT_BIG: the integer does not fit into 64 bits. */
enum parse_int { PARSE_INT_OK, PARSE_INT_BAD, PARSE_INT_BIG };
enum parse_int text_to_int(const char *s, size_t n, int64_t *ret);

/* Reads a number as Python's float(text) does, but knows only the digits of ASCII. False: the text is no number, or
 * `scratch` failed. A copy of the text is behind the content of `scratch` during the call. */
bool text_to_float(const char *s, size_t n, struct buf *scratch, double *ret);
