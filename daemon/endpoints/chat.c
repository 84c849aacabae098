/* POST /v1/chat/completions. */
#include "daemon/request/endpoint.h"

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
