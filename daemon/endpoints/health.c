/* GET /health, with two more names, /readyz and /ping: status 200 while requests are served, else 503. check_state
 * (http/receive.c) decides which. GET /livez: status 200 as long as the process answers. */
#include "daemon/request/endpoint.h"
#include "protocol/openai/models.h"

static int health(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	openai_body_health(out);
	return 0;
}

const struct endpoint endpoint_health = {
	.path = "/health",
	.health = true,
	.worker = true,
	.get = health,
};

const struct endpoint endpoint_ready = {
	.path = "/readyz",
	.health = true,
	.worker = true,
	.get = health,
};

/* The path that Amazon SageMaker asks for. */
const struct endpoint endpoint_ping = {
	.path = "/ping",
	.health = true,
	.worker = true,
	.get = health,
};

const struct endpoint endpoint_live = {
	.path = "/livez",
	.health = true,
	.worker = true,
	.while_loading = true,
	.get = health,
};
