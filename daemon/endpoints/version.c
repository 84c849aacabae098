/* GET /version. */
#include "daemon/request/endpoint.h"
#include "protocol/openai/models.h"

static int version(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	openai_body_version(TIGON_VERSION, out);
	return 0;
}

const struct endpoint endpoint_version = {
	.path = "/version",
	.worker = true,
	.while_loading = true,
	.get = version,
};
