#include "daemon/request/dialect.h"

#include "protocol/anthropic/errors.h"
#include "protocol/anthropic/response.h"
#include "protocol/ollama/answer.h"
#include "protocol/ollama/errors.h"
#include "protocol/openai/response.h"

static const char events[] = "text/event-stream; charset=utf-8";

const struct dialect dialect_openai = {
	.stream_type = events,
	.error = openai_error,
	.stream_error = openai_stream_error,
	.idle = openai_stream_comment,
};

const struct dialect dialect_anthropic = {
	.id_header = "request-id",
	.stream_type = events,
	.error = anthropic_error,
	.stream_error = anthropic_stream_error,
	.idle = anthropic_stream_ping,
};

/* curl -d sends the type of forms, and so do the examples of this API. */
const struct dialect dialect_ollama = {
	.stream_type = "application/x-ndjson",
	.any_type = true,
	.error = ollama_error,
	.stream_error = ollama_stream_error,
	.idle = ollama_stream_blank,
};
