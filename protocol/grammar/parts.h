/* A list of expressions that grows, for sequences and choices. */
#pragma once

#include <stdlib.h>

#include "base/array.h"
#include "protocol/grammar/grammar.h"

struct parts {
	uint32_t *v; /* owned */
	size_t n, cap;
	bool failed; /* out of memory */
};

static inline void parts_add(struct parts *p, uint32_t expression)
{
	if (array_grow(p->v, p->cap, p->n + 1))
		p->v[p->n++] = expression;
	else
		p->failed = true;
}

static inline void parts_release(struct parts *p)
{
	free(p->v);
	*p = (struct parts){0};
}
