/* Options of the benches that are lists of numbers: "1,8,32". */
#pragma once

#include "base/options.h"

enum { BENCH_LIST_MAX = 32 };

struct bench_list {
	uint32_t v[BENCH_LIST_MAX];
	uint32_t n;
};

/* For option_def.take; the member is a struct bench_list. The text is 1 to BENCH_LIST_MAX numbers from d->min to
 * d->max. */
int bench_list_take(const struct option_def *d, const char *text, void *member, struct err *e);

/* The same, but if d->min is above 0, the text "0" is the empty list. */
int bench_list_take_none(const struct option_def *d, const char *text, void *member, struct err *e);
