/* GET /tokenizer_info: the tokenizer's configuration, and the model's chat template. */
#include "daemon/request/endpoint.h"

static int tokenizer_info(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	buf_append(out, s->tokenizer_info.data, s->tokenizer_info.len);
	return 0;
}

const struct endpoint endpoint_tokenizer_info = {
	.path = "/tokenizer_info",
	.get = tokenizer_info,
};
