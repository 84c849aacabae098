#include "base/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ids_reserve(struct ids *a, size_t n)
{
	size_t cap;
	int32_t *v;

	if (n <= a->cap - a->len)
		return 0;
	if (n > SIZE_MAX / sizeof(*v) / 2 - a->len)
		return -ENOMEM;
	cap = MAX(a->cap * 2, (size_t)64);
	cap = MAX(cap, a->len + n);
	v = realloc(a->v, cap * sizeof(*v));
	if (!v)
		return -ENOMEM;
	a->v = v;
	a->cap = cap;
	return 0;
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

void ids_release(struct ids *a)
{
	free(a->v);
	*a = (struct ids){0};
}
