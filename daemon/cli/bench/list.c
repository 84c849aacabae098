#include "daemon/cli/bench/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parses a list. also: text for the end of an error's sentence, to name a further value that is allowed. */
static int parse(const struct option_def *d, const char *text, const char *also,
		 struct bench_list *ret, struct err *e)
{
	struct bench_list l = {0};
	const char *p = text;

	for (;;) {
		uint64_t v = 0;
		char *end;

		errno = 0;
		if (*p >= '0' && *p <= '9')
			v = strtoull(p, &end, 10);
		if (*p < '0' || *p > '9' || errno || v < d->min || v > d->max ||
		    (*end && *end != ','))
			return err_set(e, EINVAL,
				       "--%s: \"%s\" is not a list of numbers from %llu to %llu%s",
				       d->name, text, (unsigned long long)d->min,
				       (unsigned long long)d->max, also);
		if (l.n == BENCH_LIST_MAX)
			return err_set(e, EINVAL, "--%s: there are more than %d numbers", d->name,
				       BENCH_LIST_MAX);
		l.v[l.n++] = (uint32_t)v;
		if (!*end)
			break;
		p = end + 1;
	}
	*ret = l;
	return 0;
}

int bench_list_take(const struct option_def *d, const char *text, void *member, struct err *e)
{
	return parse(d, text, "", member, e);
}

int bench_list_take_none(const struct option_def *d, const char *text, void *member, struct err *e)
{
	if (!d->min || strcmp(text, "0") != 0)
		return parse(d, text, d->min ? ", nor 0 for none" : "", member, e);
	*(struct bench_list *)member = (struct bench_list){0};
	return 0;
}
