/* GET /health: status 200 while requests are served, else 503. check_state (http/receive.c) decides which. */
#include "daemon/request/endpoint.h"
#include "protocol/openai/models.h"

static int health(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	openai_body_health(out);
	return 0;
}

const struct endpoint endpoint_health = {
	.path = "/health",
	.worker = true,
	.get = health,
};
