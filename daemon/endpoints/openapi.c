/* GET /openapi.json: the description of all paths (docs/openapi.json), as it was when the program was built. */
#include "daemon/request/endpoint.h"

/* The document's text, which tools/embed.c makes a source of. */
extern const char openapi_text[];

static int openapi(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	buf_puts(out, openapi_text);
	return 0;
}

const struct endpoint endpoint_openapi = {
	.path = "/openapi.json",
	.while_loading = true,
	.get = openapi,
};
