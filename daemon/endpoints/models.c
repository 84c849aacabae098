/* GET /v1/models and /v1/models/{id}. */
#include "daemon/request/endpoint.h"
#include "daemon/request/text.h"
#include "protocol/openai/models.h"

static struct openai_model model_of(const struct server *s)
{
	return (struct openai_model){.id = s->name,
				     .created = s->started,
				     .max_model_len = s->info.max_model_len};
}

static int list(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	struct openai_model m = model_of(s);

	openai_body_models(&m, 1, out);
	return 0;
}

static int show(struct server *s, const char *name, struct buf *out, struct err *e)
{
	struct openai_model m = model_of(s);
	int r = prepare_model(s, name, e);

	if (!r)
		openai_body_model(&m, out);
	return r;
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
