#include "daemon/endpoints/table.h"

#include <string.h>

/* A row for each endpoint: row(NAME) stands for `endpoint_NAME`, which a file of this directory defines. */
/* clang-format off */
#define ENDPOINTS(row) \
	row(chat) \
	row(completions) \
	row(messages) \
	row(count_tokens) \
	row(apply_template) \
	row(tokenize) \
	row(detokenize) \
	row(cache) \
	row(flush) \
	row(abort) \
	row(models) \
	row(model) \
	row(health) \
	row(ready) \
	row(ping) \
	row(live) \
	row(version) \
	row(metrics)

/* clang-format on */

#define DECLARE(name) extern const struct endpoint endpoint_##name;
#define ADDRESS(name) &endpoint_##name,

ENDPOINTS(DECLARE)

static const struct endpoint *const endpoints[] = {ENDPOINTS(ADDRESS)};

/* Returns whether `path` is `own`, the path of an endpoint. With `named`: returns whether `path` begins with `own` and
 * goes on. *ret_rest: the rest of `path` behind `own`. */
static bool is_path(const char *path, const char *own, bool named, const char **ret_rest)
{
	size_t len = strlen(own);

	*ret_rest = path + MIN(len, strlen(path));
	return named ? !strncmp(path, own, len) && path[len] : !strcmp(path, own);
}

const struct endpoint *endpoints_find(const char *path, const char **ret_rest)
{
	static const char version[] = "/v1";
	const size_t skip = sizeof(version) - 1;

	for (size_t i = 0; i < ARRAY_SIZE(endpoints); i++) {
		const struct endpoint *e = endpoints[i];
		bool versioned = !strncmp(e->path, version, skip);

		if (is_path(path, e->path, e->named, ret_rest) ||
		    (versioned && is_path(path, e->path + skip, e->named, ret_rest)))
			return e;
	}
	return NULL;
}
