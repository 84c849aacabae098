#include "daemon/cli/inspect/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Copies a name, but '*' in the place of each part between dots that has digits alone. */
static void write_pattern(const char *name, char out[TENSOR_NAME_MAX + 1])
{
	size_t at = 0, len;

	for (; *name && at < TENSOR_NAME_MAX; name += len) {
		len = strcspn(name, ".");
		if (len && strspn(name, "0123456789") == len) {
			out[at++] = '*';
		} else {
			size_t n = MIN(len, TENSOR_NAME_MAX - at);

			memcpy(out + at, name, n);
			at += n;
		}
		if (name[len] && at < TENSOR_NAME_MAX)
			out[at++] = name[len++];
	}
	out[at] = 0;
}

static int compare_groups(const void *a, const void *b)
{
	const struct tensor_group *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	if (!c)
		c = strcmp(x->first->type->name, y->first->type->name);
	if (!c)
		c = (x->first->n_dims > y->first->n_dims) - (x->first->n_dims < y->first->n_dims);
	return c ? c : memcmp(x->first->shape, y->first->shape, sizeof(x->first->shape));
}

static int compare_bytes(const void *a, const void *b)
{
	const struct tensor_group *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static uint64_t elements_of(const struct tensor *t)
{
	return t->bytes / t->type->bytes * t->type->elements;
}

/* Makes one of those groups that follow each other and have the same name, type and shape (`types`: the same name).
 * Returns the number of groups that are left. */
static size_t merge(struct tensor_group *g, size_t n, bool types)
{
	size_t at = 0;

	for (size_t i = 1; i < n; i++) {
		if (types ? strcmp(g[at].name, g[i].name) : compare_groups(&g[at], &g[i])) {
			g[++at] = g[i];
			continue;
		}
		g[at].n += g[i].n;
		g[at].elements += g[i].elements;
		g[at].bytes += g[i].bytes;
	}
	return n ? at + 1 : 0;
}

static int make(const struct tensor *list, size_t n, bool types, struct tensor_group **ret,
		size_t *ret_n, struct err *e)
{
	struct tensor_group *g = calloc(n ? n : 1, sizeof(*g));

	if (!g)
		return err_no_memory(e);
	for (size_t i = 0; i < n; i++) {
		g[i] = (struct tensor_group){.first = &list[i],
					     .n = 1,
					     .elements = elements_of(&list[i]),
					     .bytes = list[i].bytes};
		if (types)
			snprintf(g[i].name, sizeof(g[i].name), "%s", list[i].type->name);
		else
			write_pattern(list[i].name, g[i].name);
	}
	if (n)
		qsort(g, n, sizeof(*g), compare_groups);
	*ret_n = merge(g, n, types);
	*ret = g;
	return 0;
}

int tensor_groups(const struct tensor *list, size_t n, struct tensor_group **ret, size_t *ret_n,
		  struct err *e)
{
	return make(list, n, false, ret, ret_n, e);
}

int tensor_types(const struct tensor *list, size_t n, struct tensor_group **ret, size_t *ret_n,
		 struct err *e)
{
	int r = make(list, n, true, ret, ret_n, e);

	if (r == 0 && *ret_n)
		qsort(*ret, *ret_n, sizeof(**ret), compare_bytes);
	return r;
}
