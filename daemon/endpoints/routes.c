#include "daemon/endpoints/routes.h"

#include <string.h>

#include "daemon/request/text.h"
#include "protocol/openai/models.h"

static int get_health(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	openai_body_health(out);
	return 0;
}

static int get_version(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	openai_body_version(TIGON_VERSION, out);
	return 0;
}

static int get_metrics(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	metrics_write(&s->metrics, out);
	return 0;
}

static struct openai_model model_of(const struct server *s)
{
	return (struct openai_model){.id = s->name,
				     .created = s->started,
				     .max_model_len = s->info.max_model_len};
}

static int get_models(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	struct openai_model m = model_of(s);

	openai_body_models(&m, 1, out);
	return 0;
}

static int get_model(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	struct openai_model m = model_of(s);
	int r = prepare_model(s, rest, e);

	if (!r)
		openai_body_model(&m, out);
	return r;
}

static const char type_json[] = "application/json";
static const char type_metrics[] = "text/plain; version=0.0.4; charset=utf-8";

static const struct route routes[] = {
	{.path = "/v1/chat/completions", .content_type = type_json, .call = CALL_CHAT},
	{.path = "/v1/completions", .content_type = type_json, .call = CALL_COMPLETION},
	{.path = "/tokenize", .content_type = type_json, .call = CALL_TOKENIZE},
	{.path = "/detokenize", .content_type = type_json, .call = CALL_DETOKENIZE},
	{.path = "/cache",
	 .guarded = true,
	 .worker = true,
	 .fetch = true,
	 .content_type = type_json,
	 .call = CALL_CACHE},
	{.path = "/cache/flush",
	 .guarded = true,
	 .worker = true,
	 .bodiless = true,
	 .content_type = type_json,
	 .call = CALL_FLUSH},
	{.path = "/v1/models", .content_type = type_json, .get = get_models},
	{.path = "/v1/models/", .prefix = true, .content_type = type_json, .get = get_model},
	{.path = "/health", .worker = true, .content_type = type_json, .get = get_health},
	{.path = "/version",
	 .worker = true,
	 .while_loading = true,
	 .content_type = type_json,
	 .get = get_version},
	{.path = "/metrics",
	 .worker = true,
	 .while_loading = true,
	 .content_type = type_metrics,
	 .get = get_metrics},
};

const struct route *routes_find(const char *path, const char **ret_rest)
{
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *r = &routes[i];
		size_t len = strlen(r->path);

		if (r->prefix ? !strncmp(path, r->path, len) && path[len]
			      : !strcmp(path, r->path)) {
			*ret_rest = path + len;
			return r;
		}
	}
	return NULL;
}

bool routes_has_body(const struct route *r)
{
	return !r->get && !r->fetch && !r->bodiless;
}

const char *routes_methods(const struct route *r)
{
	return r->get || r->fetch ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

bool routes_allow(const struct route *r, const char *method)
{
	if (!strcmp(method, "OPTIONS"))
		return true;
	if (r->get || r->fetch)
		return !strcmp(method, "GET") || !strcmp(method, "HEAD");
	return !strcmp(method, "POST");
}
