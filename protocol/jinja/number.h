/* Numbers as Python writes and reads them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* repr(float): the shortest decimals that give the same double. */
enum { FLOAT_REPR_MAX = 40 };
void float_repr(double f, char out[FLOAT_REPR_MAX]);

/* int(text) and float(text): white space around it, underscores between digits. */
enum parse_int { PARSE_INT_OK, PARSE_INT_BAD, PARSE_INT_BIG };
enum parse_int text_to_int(const char *s, size_t n, int64_t *ret);
bool text_to_float(const char *s, size_t n, double *ret);
