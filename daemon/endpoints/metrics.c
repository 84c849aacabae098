/* GET /metrics, for Prometheus. */
#include "daemon/request/endpoint.h"

static int metrics(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	metrics_write(&s->metrics, out);
	return 0;
}

const struct endpoint endpoint_metrics = {
	.path = "/metrics",
	.type = "text/plain; version=0.0.4; charset=utf-8",
	.admin = true,
	.guarded = true,
	.worker = true,
	.while_loading = true,
	.get = metrics,
};
