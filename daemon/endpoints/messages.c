/* POST /v1/messages and POST /v1/messages/count_tokens: the Messages API of Anthropic. */
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "protocol/anthropic/models.h"
#include "protocol/anthropic/request.h"
#include "protocol/anthropic/response.h"

static int count(struct call *c, struct buf *out, struct err *e)
{
	struct openai_request ask;
	struct ids ids = {0};
	const struct pace pace = prepare_pace(c);
	int r = anthropic_parse_count(buf_str(&c->text.body), c->text.body.len, &pace,
				      &c->server->limits, &c->text.arena, &ask, e);

	if (r < 0)
		return r;
	r = prepare_model(c->server, ask.model, e);
	if (!r)
		r = prepare_chat_prompt(c, ask.context, ask.prefill, ask.prefill_len, SIZE_MAX,
					&ids, e);
	if (!r)
		anthropic_body_count(ids.len, out);
	ids_release(&ids);
	openai_request_release(&ask);
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
