#include "protocol/jinja/tables.h"

#include <string.h>

static const struct builtin_table *const tables[] = {
	&dict_methods,	&str_methods,	&loop_methods,	   &list_methods,
	&text_filters,	&value_filters, &item_filters,	   &value_tests,
	&tuple_methods, &range_methods, &global_functions,
};

static bool among(const char *names, const char *name, size_t len)
{
	size_t n;

	for (const char *p = names; p && *p; p += n + (p[n] == ' ')) {
		n = strcspn(p, " ");
		if (n == len && !memcmp(p, name, len))
			return true;
	}
	return false;
}

const struct builtin *builtin_find(enum builtin_kind kind, const char *name, size_t len)
{
	static const struct builtin refused = {.name = "refused"};
	static const struct builtin changes = {.name = "changes", .flags = BUILTIN_CHANGES};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		const struct builtin_table *t = tables[i];

		if (t->kind != kind)
			continue;
		for (size_t k = 0; k < t->n; k++)
			if (!strncmp(t->rows[k].name, name, len) && !t->rows[k].name[len])
				return &t->rows[k];
		if (among(t->refused, name, len))
			return &refused;
		if (among(t->changes, name, len))
			return &changes;
	}
	return NULL;
}
