#include "protocol/openai/errors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/openai/writer.h"

struct row {
	int number, status;
	const char *type, *code; /* code NULL: null */
};

static const struct row rows[] = {
	{EINVAL, 400, "invalid_request_error", NULL},
	{ENOTSUP, 400, "invalid_request_error", "unsupported_parameter"},
	{EBADMSG, 400, "invalid_request_error", "chat_template_error"},
	{E2BIG, 400, "invalid_request_error", "chat_template_error"},
	{EOVERFLOW, 400, "invalid_request_error", "context_length_exceeded"},
	{EACCES, 401, "authentication_error", "invalid_api_key"},
	{EXDEV, 403, "invalid_request_error", "cross_origin"},
	{ENOENT, 404, "invalid_request_error", "model_not_found"},
	{ENOSYS, 404, "invalid_request_error", "unknown_url"},
	{EPERM, 405, "invalid_request_error", "method_not_allowed"},
	{EINPROGRESS, 409, "invalid_request_error", "requests_running"},
	{EMSGSIZE, 413, "invalid_request_error", "request_too_large"},
	{EPROTONOSUPPORT, 415, "invalid_request_error", "unsupported_media_type"},
	{EAGAIN, 429, "rate_limit_error", "queue_full"},
	{EBUSY, 503, "server_error", "model_loading"},
	{ESHUTDOWN, 503, "server_error", "shutting_down"},
	{EIO, 503, "server_error", "device_error"},
	{ENOMEM, 503, "server_error", "out_of_memory"},
};

static const struct row other = {0, 500, "server_error", "internal_error"};

static const struct row *row_of(int code)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].number == abs(code))
			return &rows[i];
	return &other;
}

int openai_status(int code)
{
	return row_of(code)->status;
}

int openai_error(const struct err *e, struct buf *out)
{
	const struct row *row = row_of(e->code);

	buf_puts(out, "{\"error\":{\"message\":");
	writer_string(out, e->text, strlen(e->text));
	buf_printf(out, ",\"type\":\"%s\",\"param\":", row->type);
	if (e->param[0])
		writer_string(out, e->param, strlen(e->param));
	else
		buf_puts(out, "null");
	if (row->code)
		buf_printf(out, ",\"code\":\"%s\"}}", row->code);
	else
		buf_puts(out, ",\"code\":null}}");
	return row->status;
}
