/* POST /v1/completions. */
#include "daemon/request/endpoint.h"

const struct endpoint endpoint_completions = {
	.path = "/v1/completions",
	.post = true,
	.id = "cmpl-",
	.parse = openai_parse_completion,
	.shape = &openai_completion,
	.chunks = openai_chunks,
	.whole = openai_body,
	.end = openai_stream_end,
};
