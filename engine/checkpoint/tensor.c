#include "engine/checkpoint/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_name(const void *key, const void *element)
{
	const struct tensor *t = element;

	return strcmp(key, t->name);
}

const struct tensor *tensor_find(const struct tensor *list, size_t n, const char *name)
{
	return n ? bsearch(name, list, n, sizeof(*list), compare_name) : NULL;
}

bool name_ends_in(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n >= m && !strcmp(name + n - m, end);
}

void tensor_print_shape(char *out, size_t size, const uint64_t *shape, uint32_t n)
{
	size_t at = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%llu", i ? ", " : "",
				       (unsigned long long)shape[i]);
}
