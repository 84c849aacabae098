/* JSON Schemas that accept what several schemas accept. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Adds the keywords of `from` to the schema `to`, so that it accepts the values that both accept. Values are shared, not
 * copied. -PROBLEM_UNSUPPORTED, with the keyword's name: they cannot be merged; -ENOMEM. */
int json_merge(json_t *to, const json_t *from, struct err *e) MUST_CHECK;

/* Returns whether two values are equal by JSON Schema: 1 and 1.0 are. */
bool json_same(const json_t *a, const json_t *b);
