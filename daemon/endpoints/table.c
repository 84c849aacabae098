#include "daemon/endpoints/table.h"

#include <string.h>

/* A row for each endpoint: row(NAME) stands for `endpoint_NAME`, which a file of this directory defines. */
/* clang-format off */
#define ENDPOINTS(row) \
	row(chat) \
	row(completions) \
	row(messages) \
	row(count_tokens) \
	row(responses) \
	row(response_input_items) \
	row(response_cancel) \
	row(response) \
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

/* Returns whether `path` is `own`, the path of endpoint e. If e is named: returns whether `path` begins with `own`, and
 * a name and e->behind follow. *ret_rest: the rest of `path` behind `own`. */
static bool is_path(const char *path, const char *own, const struct endpoint *e,
		    const char **ret_rest)
{
	const char *behind = e->behind ? e->behind : "";
	size_t len = strlen(own), rest, n = strlen(behind);

	*ret_rest = path + MIN(len, strlen(path));
	if (!e->named)
		return !strcmp(path, own);
	rest = strlen(*ret_rest);
	return !strncmp(path, own, len) && rest > n && !strcmp(*ret_rest + rest - n, behind);
}

const struct endpoint *endpoints_find(const char *path, const char **ret_rest)
{
	static const char version[] = "/v1";
	const size_t skip = sizeof(version) - 1;

	for (size_t i = 0; i < ARRAY_SIZE(endpoints); i++) {
		const struct endpoint *e = endpoints[i];
		bool versioned = !strncmp(e->path, version, skip);

		if (is_path(path, e->path, e, ret_rest) ||
		    (versioned && is_path(path, e->path + skip, e, ret_rest)))
			return e;
	}
	return NULL;
}
