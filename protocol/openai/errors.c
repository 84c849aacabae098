#include "protocol/openai/errors.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/writer.h"

struct row {
	int code, status;
	const char *type, *name; /* name: "code" on the wire; NULL: null */
};

static const struct row rows[] = {
	{EINVAL, 400, "invalid_request_error", NULL},
	{PROBLEM_UNSUPPORTED, 400, "invalid_request_error", "unsupported_parameter"},
	{PROBLEM_CONSTRAINT, 400, "invalid_request_error", "constraint_failed"},
	{PROBLEM_TEMPLATE, 400, "invalid_request_error", "chat_template_error"},
	{PROBLEM_FRAMING, 400, "invalid_request_error", "bad_framing"},
	{PROBLEM_CONTEXT_LENGTH, 400, "invalid_request_error", "context_length_exceeded"},
	{PROBLEM_UNKNOWN_PREVIOUS, 400, "invalid_request_error", "previous_response_not_found"},
	{PROBLEM_API_KEY, 401, "authentication_error", "invalid_api_key"},
	{PROBLEM_CROSS_ORIGIN, 403, "invalid_request_error", "cross_origin"},
	{PROBLEM_HOST, 403, "invalid_request_error", "host_not_allowed"},
	{PROBLEM_UNKNOWN_MODEL, 404, "invalid_request_error", "model_not_found"},
	{PROBLEM_UNKNOWN_PATH, 404, "invalid_request_error", "unknown_url"},
	{PROBLEM_UNKNOWN_REQUEST, 404, "invalid_request_error", "request_not_found"},
	{PROBLEM_UNKNOWN_RESPONSE, 404, "invalid_request_error", "response_not_found"},
	{PROBLEM_METHOD, 405, "invalid_request_error", "method_not_allowed"},
	{PROBLEM_REQUESTS_RUNNING, 409, "invalid_request_error", "requests_running"},
	{PROBLEM_ABORTED, 410, "invalid_request_error", "request_aborted"},
	{PROBLEM_BODY_TOO_LARGE, 413, "invalid_request_error", "request_too_large"},
	{PROBLEM_MEDIA_TYPE, 415, "invalid_request_error", "unsupported_media_type"},
	{PROBLEM_QUEUE_FULL, 429, "rate_limit_error", "queue_full"},
	{PROBLEM_CONSTRAINT_MEMORY, 429, "rate_limit_error", "constraint_memory_full"},
	{PROBLEM_BODY_MEMORY, 429, "rate_limit_error", "body_memory_full"},
	{PROBLEM_HEADERS_TOO_LARGE, 431, "invalid_request_error", "headers_too_large"},
	{PROBLEM_MODEL_LOADING, 503, "server_error", "model_loading"},
	{PROBLEM_UNREAD, 503, "server_error", "answers_unread"},
	{ESHUTDOWN, 503, "server_error", "shutting_down"},
	{EIO, 503, "server_error", "device_error"},
	{ENOMEM, 503, "server_error", "out_of_memory"},
	/* the last row: also for every code that has no row */
	{PROBLEM_INTERNAL, 500, "server_error", "internal_error"},
};

static_assert(ARRAY_SIZE(rows) == OPENAI_ERRORS, "errors.h has the number of rows");

size_t openai_error_number(int code)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(rows) && rows[i].code != abs(code))
		i++;
	return i;
}

const char *openai_error_type(size_t i)
{
	return rows[i].type;
}

const char *openai_error_cause(size_t i)
{
	return rows[i].name ? rows[i].name : "invalid_value";
}

int openai_status(int code)
{
	return rows[openai_error_number(code)].status;
}

int openai_error(const struct err *e, struct buf *out)
{
	const struct row *row = &rows[openai_error_number(e->code)];

	buf_puts(out, "{\"error\":{\"message\":");
	writer_string(out, e->text, strlen(e->text));
	buf_printf(out, ",\"type\":\"%s\",\"param\":", row->type);
	writer_nullable(out, e->param[0] ? e->param : NULL);
	buf_puts(out, ",\"code\":");
	writer_nullable(out, row->name);
	buf_puts(out, "}}");
	return row->status;
}
