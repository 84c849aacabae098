#include "daemon/endpoints/table.h"

#include <string.h>

/* A row for each endpoint: row(NAME) stands for `endpoint_NAME`, which a file of this directory defines. */
/* clang-format off */
#define ENDPOINTS(row) \
	row(chat) \
	row(completions) \
	row(apply_template) \
	row(tokenize) \
	row(detokenize) \
	row(cache) \
	row(flush) \
	row(models) \
	row(model) \
	row(health) \
	row(version) \
	row(metrics)

/* clang-format on */

#define DECLARE(name) extern const struct endpoint endpoint_##name;
#define ADDRESS(name) &endpoint_##name,

ENDPOINTS(DECLARE)

static const struct endpoint *const endpoints[] = {ENDPOINTS(ADDRESS)};

const struct endpoint *endpoints_find(const char *path, const char **ret_rest)
{
	for (size_t i = 0; i < ARRAY_SIZE(endpoints); i++) {
		const struct endpoint *e = endpoints[i];
		size_t len = strlen(e->path);

		if (e->named ? !strncmp(path, e->path, len) && path[len] : !strcmp(path, e->path)) {
			*ret_rest = path + len;
			return e;
		}
	}
	return NULL;
}
