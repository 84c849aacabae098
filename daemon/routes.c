#include "daemon/routes.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "daemon/lifecycle.h"
#include "protocol/openai/writer.h"

static int get_health(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	buf_puts(out, "{\"status\":\"ok\"}");
	return 0;
}

static int get_version(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	buf_puts(out, "{\"version\":\"" TIGON_VERSION "\"}");
	return 0;
}

static int get_metrics(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	metrics_write(&s->metrics, out);
	return 0;
}

static void write_model(struct server *s, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, s->name, strlen(s->name));
	buf_printf(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"tigon\",", s->started);
	buf_printf(out, "\"max_model_len\":%u}", s->info.max_model_len);
}

static int get_models(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	write_model(s, out);
	buf_puts(out, "]}");
	return 0;
}

static int get_model(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	if (strcmp(rest, s->name) != 0 && strcmp(rest, s->base_name) != 0)
		return err_param(e, ENOENT, "model",
				 "the model \"%.100s\" does not exist; this server has \"%s\"", rest,
				 s->name);
	write_model(s, out);
	return 0;
}

static const char type_json[] = "application/json";
static const char type_metrics[] = "text/plain; version=0.0.4; charset=utf-8";

static const struct route routes[] = {
	{.path = "/v1/chat/completions", .content_type = type_json, .call = CALL_CHAT},
	{.path = "/v1/completions", .content_type = type_json, .call = CALL_COMPLETION},
	{.path = "/tokenize", .content_type = type_json, .call = CALL_TOKENIZE},
	{.path = "/detokenize", .content_type = type_json, .call = CALL_DETOKENIZE},
	{.path = "/v1/models", .content_type = type_json, .get = get_models},
	{.path = "/v1/models/", .prefix = true, .content_type = type_json, .get = get_model},
	{.path = "/health", .content_type = type_json, .get = get_health},
	{.path = "/version", .while_loading = true, .content_type = type_json, .get = get_version},
	{.path = "/metrics", .while_loading = true, .content_type = type_metrics, .get = get_metrics},
};

const struct route *routes_find(const char *path, const char **ret_rest)
{
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *r = &routes[i];
		size_t len = strlen(r->path);

		if (r->prefix ? !strncmp(path, r->path, len) && path[len] : !strcmp(path, r->path)) {
			*ret_rest = path + len;
			return r;
		}
	}
	return NULL;
}

const char *routes_methods(const struct route *r)
{
	return r->get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

bool routes_allow(const struct route *r, const char *method)
{
	if (!strcmp(method, "OPTIONS"))
		return true;
	if (r->get)
		return !strcmp(method, "GET") || !strcmp(method, "HEAD");
	return !strcmp(method, "POST");
}
