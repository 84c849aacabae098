/*
 * A pull scanner over untrusted JSON text: no tree, no allocation, time linear in the text. The
 * headers of checkpoints are read with it: they may be 100 MB large, and a tree of 100 MB of hostile
 * JSON takes gigabytes.
 *
 * It is strict (RFC 8259 without extensions), and stricter than JSON in one point: a string that is
 * asked for must be printable ASCII once unescaped, since these strings are names of tensors and
 * files that end up in paths and log lines. Strings that are skipped may hold anything valid.
 *
 * A failed call leaves the scanner at the place of the error; `json_scan_offset` tells it.
 */
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

/* Passes white space; then, if the next character is c, passes it too and returns true. */
bool json_scan_is(struct json_scan *s, char c);

/* True when nothing but white space is left. */
bool json_scan_end(struct json_scan *s);

/* A string into out [size], 0-terminated. -EINVAL: no string, or not printable ASCII;
 * -ENAMETOOLONG: longer than size - 1. */
int json_scan_string(struct json_scan *s, char *out, size_t size) MUST_CHECK;

/* A whole number 0 to 2^64 - 1 without sign, fraction or exponent. -EINVAL, -ERANGE. */
int json_scan_uint(struct json_scan *s, uint64_t *ret) MUST_CHECK;

/* Any value, nested at most JSON_SCAN_DEPTH deep. */
enum { JSON_SCAN_DEPTH = 32 };
int json_scan_skip(struct json_scan *s) MUST_CHECK;
