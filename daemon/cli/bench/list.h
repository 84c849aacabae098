/* Options of the benches that are lists of numbers: "1,8,32". */
#pragma once

#include "base/options.h"

enum { BENCH_LIST_MAX = 32 };

struct bench_list {
	uint32_t v[BENCH_LIST_MAX];
	uint32_t n;
};

/* Reads an option's text (option_def.take) into a struct bench_list: 1 to BENCH_LIST_MAX numbers from d->min to
 * d->max. */
int bench_list_take(const struct option_def *d, const char *text, void *member, struct err *e);

/* Does the work of bench_list_take, but if d->min is above 0, reads the text "0" as the empty list. */
int bench_list_take_none(const struct option_def *d, const char *text, void *member, struct err *e);
