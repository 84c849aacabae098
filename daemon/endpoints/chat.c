/* POST /v1/chat/completions. */
#include "daemon/request/endpoint.h"

const struct endpoint endpoint_chat = {
	.path = "/v1/chat/completions",
	.post = true,
	.id = "chatcmpl-",
	.parse = openai_parse_chat,
	.shape = &openai_chat,
	.reasoning = true,
	.begin = openai_stream_role,
	.token = openai_stream_delta,
	.end = openai_stream_end,
	.whole = openai_body,
};
