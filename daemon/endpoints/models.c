/* GET /v1/models and /v1/models/{id}. */
#include <string.h>

#include "daemon/request/endpoint.h"
#include "daemon/request/text.h"
#include "protocol/openai/models.h"

static struct openai_model model_of(const struct server *s, const char *id)
{
	return (struct openai_model){.id = id,
				     .created = s->started,
				     .max_model_len = s->info.max_model_len};
}

static int list(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	const struct option_names *names = &s->options.served_model_name;
	struct openai_model models[SERVED_NAMES_MAX] = {model_of(s, s->name)};

	for (size_t i = 1; i < names->n; i++)
		models[i] = model_of(s, names->v[i]);
	openai_body_models(models, MAX(names->n, (size_t)1), out);
	return 0;
}

static int show(struct server *s, const char *name, struct buf *out, struct err *e)
{
	const struct option_names *names = &s->options.served_model_name;
	struct openai_model m = model_of(s, s->name);
	int r = prepare_model(s, name, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < names->n; i++)
		if (!strcmp(name, names->v[i]))
			m.id = names->v[i];
	openai_body_model(&m, out);
	return 0;
}

const struct endpoint endpoint_models = {
	.path = "/v1/models",
	.get = list,
};

const struct endpoint endpoint_model = {
	.path = "/v1/models/",
	.named = true,
	.get = show,
};
