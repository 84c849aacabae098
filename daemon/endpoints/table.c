#include "daemon/endpoints/table.h"

#include <string.h>

/* A row for each endpoint: row(NAME) stands for `endpoint_NAME`, which a file of this directory defines. */
/* clang-format off */
#define ENDPOINTS(row) \
	row(chat) \
	row(completions) \
	row(messages) \
	row(count_tokens) \
	row(chat_count) \
	row(responses) \
	row(responses_count) \
	row(response_input_items) \
	row(response_cancel) \
	row(response) \
	row(embeddings) \
	row(score) \
	row(rerank) \
	row(apply_template) \
	row(tokenize) \
	row(detokenize) \
	row(tokenizer_info) \
	row(cache) \
	row(flush) \
	row(abort) \
	row(models) \
	row(model) \
	row(ollama_chat) \
	row(ollama_generate) \
	row(ollama_embed) \
	row(ollama_embeddings) \
	row(ollama_show) \
	row(ollama_tags) \
	row(ollama_ps) \
	row(ollama_version) \
	row(ollama_root) \
	row(health) \
	row(ready) \
	row(ping) \
	row(live) \
	row(version) \
	row(openapi) \
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

const struct dialect *endpoints_dialect(const char *path)
{
	static const struct {
		const char *below;
		const struct dialect *dialect;
	} apis[] = {
		{"/api/", &dialect_ollama},
		{"/v1/messages/", &dialect_anthropic},
		{"/messages/", &dialect_anthropic},
	};

	for (size_t i = 0; i < ARRAY_SIZE(apis); i++)
		if (!strncmp(path, apis[i].below, strlen(apis[i].below)))
			return apis[i].dialect;
	return &dialect_openai;
}
