/* A pull scanner over untrusted JSON text: no tree, no allocation, time linear in the text. It reads the headers and
 * the index of safetensors files. These may have 100 MB, and a tree of 100 MB of hostile JSON takes gigabytes.
 *
 * The scanner is strict (RFC 8259 without extensions), and stricter than JSON in two points. Values are nested at most
 * JSON_SCAN_DEPTH deep. A string that the caller reads must be printable ASCII once unescaped, because such strings, as
 * names of tensors and files, end up in paths and log lines. Strings that are skipped may hold all characters that JSON
 * allows; that they are UTF-8 is not checked.
 *
 * A failed call leaves the scanner at the error or just behind it; `json_scan_offset` returns the place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct json_scan {
	const char *start, *at, *end;
};

void json_scan_init(struct json_scan *s, const char *text, size_t len);
size_t json_scan_offset(const struct json_scan *s);

/* Skips white space; if the next character is c, skips it too and returns true. */
bool json_scan_is(struct json_scan *s, char c);

/* Skips white space and returns whether the text ends there. */
bool json_scan_end(struct json_scan *s);

/* Reads a string into out [size], 0-terminated. If out is NULL, skips a string of any length. -EINVAL: it is no string,
 * or not printable ASCII; -ENAMETOOLONG: longer than size - 1. */
int json_scan_string(struct json_scan *s, char *out, size_t size) MUST_CHECK;

/* Reads a whole number from 0 to 2^64 - 1 without sign, fraction or exponent. -ERANGE: the number is larger; -EINVAL:
 * it is no such number. */
int json_scan_uint(struct json_scan *s, uint64_t *ret) MUST_CHECK;

/* Skips any value, nested at most JSON_SCAN_DEPTH deep. -EINVAL: it is no such value. */
enum { JSON_SCAN_DEPTH = 32 };
int json_scan_skip(struct json_scan *s) MUST_CHECK;
