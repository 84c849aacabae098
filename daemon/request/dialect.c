#include "daemon/request/dialect.h"

#include "protocol/anthropic/errors.h"
#include "protocol/anthropic/response.h"
#include "protocol/openai/response.h"

const struct dialect dialect_openai = {
	.error = openai_error,
	.stream_error = openai_stream_error,
	.idle = openai_stream_comment,
};

const struct dialect dialect_anthropic = {
	.id_header = "request-id",
	.error = anthropic_error,
	.stream_error = anthropic_stream_error,
	.idle = anthropic_stream_ping,
};
