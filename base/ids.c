#include "base/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

int ids_reserve(struct ids *a, size_t n)
{
	return n <= SIZE_MAX - a->len && array_grow(a->v, a->cap, a->len + n) ? 0 : -ENOMEM;
}

int ids_push(struct ids *a, int32_t id)
{
	return ids_append(a, &id, 1);
}

int ids_append(struct ids *a, const int32_t *v, size_t n)
{
	int r = ids_reserve(a, n);

	if (r < 0)
		return r;
	if (n)
		memcpy(a->v + a->len, v, n * sizeof(*v));
	a->len += n;
	return 0;
}

void ids_keep_last(struct ids *a, size_t n)
{
	int32_t *smaller;

	if (a->len <= n)
		return;
	memmove(a->v, a->v + (a->len - n), n * sizeof(*a->v));
	a->len = n;
	smaller = n ? realloc(a->v, n * sizeof(*a->v)) : NULL;
	if (!smaller)
		return;
	a->v = smaller;
	a->cap = n;
}

void ids_release(struct ids *a)
{
	free(a->v);
	*a = (struct ids){0};
}
