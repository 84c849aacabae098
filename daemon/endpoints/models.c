/* GET /v1/models and /v1/models/{id}: in OpenAI's shape, or in Anthropic's if the request has anthropic-version. */
#include <string.h>

#include "daemon/request/endpoint.h"
#include "daemon/request/text.h"
#include "protocol/anthropic/models.h"
#include "protocol/openai/models.h"

static struct openai_model model_of(const struct server *s, const char *id)
{
	return (struct openai_model){.id = id,
				     .created = s->started,
				     .max_model_len = s->info.max_model_len};
}

/* Makes the list of the model's names, and returns their number. */
static size_t names_of(const struct server *s, struct openai_model models[SERVED_NAMES_MAX])
{
	const struct option_names *names = &s->options.served_model_name;

	models[0] = model_of(s, s->name);
	for (size_t i = 1; i < names->n; i++)
		models[i] = model_of(s, names->v[i]);
	return MAX(names->n, (size_t)1);
}

/* Finds the model by one of its names. */
static int find(const struct server *s, const char *name, struct openai_model *ret, struct err *e)
{
	const struct option_names *names = &s->options.served_model_name;
	int r = prepare_model(s, name, e);

	if (r < 0)
		return r;
	*ret = model_of(s, s->name);
	for (size_t i = 0; i < names->n; i++)
		if (!strcmp(name, names->v[i]))
			ret->id = names->v[i];
	return 0;
}

static int list(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	struct openai_model models[SERVED_NAMES_MAX];

	openai_body_models(models, names_of(s, models), out);
	return 0;
}

static int show(struct server *s, const char *name, struct buf *out, struct err *e)
{
	struct openai_model m;
	int r = find(s, name, &m, e);

	if (!r)
		openai_body_model(&m, out);
	return r;
}

static int list_anthropic(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	struct openai_model models[SERVED_NAMES_MAX];

	anthropic_body_models(models, names_of(s, models), out);
	return 0;
}

static int show_anthropic(struct server *s, const char *name, struct buf *out, struct err *e)
{
	struct openai_model m;
	int r = find(s, name, &m, e);

	if (!r)
		anthropic_body_model(&m, out);
	return r;
}

static const struct endpoint models_anthropic = {
	.path = "/v1/models",
	.dialect = &dialect_anthropic,
	.get = list_anthropic,
};

static const struct endpoint model_anthropic = {
	.path = "/v1/models/",
	.named = true,
	.dialect = &dialect_anthropic,
	.get = show_anthropic,
};

const struct endpoint endpoint_models = {
	.path = "/v1/models",
	.anthropic = &models_anthropic,
	.get = list,
};

const struct endpoint endpoint_model = {
	.path = "/v1/models/",
	.named = true,
	.anthropic = &model_anthropic,
	.get = show,
};
