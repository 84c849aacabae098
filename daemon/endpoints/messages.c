/* POST /v1/messages and POST /v1/messages/count_tokens: the Messages API of Anthropic. */
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "protocol/anthropic/models.h"
#include "protocol/anthropic/request.h"
#include "protocol/anthropic/response.h"

static int count(struct call *c, struct buf *out, struct err *e)
{
	size_t n = 0;
	int r = prepare_count(c, anthropic_parse_count, &n, e);

	if (!r)
		anthropic_body_count(n, out);
	return r;
}

const struct endpoint endpoint_messages = {
	.path = "/v1/messages",
	.post = true,
	.id = "msg_",
	.dialect = &dialect_anthropic,
	.parse = anthropic_parse_messages,
	.shape = &anthropic_message,
	.reasoning = true,
	.chunks = anthropic_chunks,
	.whole = anthropic_body,
	.end = anthropic_stream_end,
};

const struct endpoint endpoint_count_tokens = {
	.path = "/v1/messages/count_tokens",
	.post = true,
	.id = "count-",
	.dialect = &dialect_anthropic,
	.reply = count,
};
