/* POST /v1/completions. */
#include "daemon/request/endpoint.h"

const struct endpoint endpoint_completions = {
	.path = "/v1/completions",
	.post = true,
	.id = "cmpl-",
	.parse = openai_parse_completion,
	.shape = &openai_completion,
	.begin = openai_stream_role,
	.token = openai_stream_delta,
	.end = openai_stream_end,
	.whole = openai_body,
};
