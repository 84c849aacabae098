/* POST /v1/chat/completions and POST /v1/chat/completions/input_tokens, the number of tokens of its prompt, which
 * llama.cpp's server has, too. */
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "protocol/openai/tokenize.h"

static int count(struct call *c, struct buf *out, struct err *e)
{
	size_t n = 0;
	int r = prepare_count(c, openai_parse_chat, &n, e);

	if (!r)
		openai_body_count(n, out);
	return r;
}

const struct endpoint endpoint_chat_count = {
	.path = "/v1/chat/completions/input_tokens",
	.post = true,
	.id = "count-",
	.reply = count,
};

const struct endpoint endpoint_chat = {
	.path = "/v1/chat/completions",
	.post = true,
	.id = "chatcmpl-",
	.parse = openai_parse_chat,
	.shape = &openai_chat,
	.reasoning = true,
	.chunks = openai_chunks,
	.whole = openai_body,
	.end = openai_stream_end,
};
