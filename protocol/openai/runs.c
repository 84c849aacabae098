#include "protocol/openai/runs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

int openai_runs_add(struct openai_runs *r, enum openai_kind kind, size_t len)
{
	if (!len)
		return 0;
	if (r->n && r->v[r->n - 1].kind == kind) {
		r->v[r->n - 1].len += len;
		return 0;
	}
	if (!array_grow(r->v, r->cap, r->n + 1))
		return -ENOMEM;
	r->v[r->n++] = (struct openai_run){kind, len};
	return 0;
}

void openai_runs_release(struct openai_runs *r)
{
	free(r->v);
	*r = (struct openai_runs){0};
}
