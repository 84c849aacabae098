#include "protocol/anthropic/errors.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/problem.h"
#include "protocol/openai/errors.h"
#include "protocol/openai/writer.h"

static const char *type_of(int code, int status)
{
	static const struct {
		int status;
		const char *type;
	} types[] = {{401, "authentication_error"}, {403, "permission_error"},
		     {404, "not_found_error"},	    {413, "request_too_large"},
		     {429, "rate_limit_error"},	    {503, "overloaded_error"}};

	if (code == EIO) /* a failed device: waiting for it does not help */
		return "api_error";
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].status == status)
			return types[i].type;
	return status < 500 ? "invalid_request_error" : "api_error";
}

int anthropic_error(const struct err *e, struct buf *out)
{
	int status = openai_status(e->code);

	buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"",
		   type_of(e->code, status));
	if (e->code == PROBLEM_CONTEXT_LENGTH)
		buf_puts(out, "prompt is too long: ");
	writer_escaped(out, e->text, strlen(e->text));
	buf_putc(out, '"');
	if (e->code == PROBLEM_UNSUPPORTED && strcmp(e->param, "thread") == 0)
		buf_puts(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\","
			      "\"unsupported\":[\"thread\"]}");
	buf_puts(out, "}}");
	return status;
}
