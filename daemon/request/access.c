#include "daemon/request/access.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "protocol/openai/errors.h"

static bool is_printable(char c)
{
	return c >= ' ' && c <= '~';
}

static void put_escaped(char *out, size_t size, const char *text)
{
	size_t n = 0;

	for (; *text && n + 4 <= size; text++) {
		bool plain = is_printable(*text) && !strchr(" \"", *text);

		n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "%%%02X",
				      plain ? *text : (unsigned char)*text);
	}
}

void access_request(struct access *a, const char *method, const char *path)
{
	put_escaped(a->method, sizeof(a->method), method);
	put_escaped(a->path, sizeof(a->path), path);
}

void access_take_id(struct access *a, const char *id)
{
	size_t len = id ? strlen(id) : 0;

	if (!len || len > REQUEST_ID_MAX)
		return;
	for (size_t i = 0; i < len; i++)
		if (!is_printable(id[i]))
			return;
	memcpy(a->id, id, len + 1);
}

void access_make_id(const char *prefix, char *out)
{
	const time_t now = time(NULL);
	unsigned char random[16] = {0};
	size_t n = (size_t)snprintf(out, ACCESS_ID_SIZE, "%s", prefix);

	/* getrandom gives all 16 bytes, or fails where it is not allowed: then ids of one second are the same. */
	if (getrandom(random, sizeof(random), 0) < 0)
		memcpy(random, &now, sizeof(now));
	for (size_t i = 0; i < sizeof(random); i++)
		n += (size_t)snprintf(out + n, ACCESS_ID_SIZE - n, "%02x", random[i]);
}

void access_fail(struct access *a, const struct err *e)
{
	a->cause = openai_error_cause(openai_error_number(e->code));
	memcpy(a->param, e->param, sizeof(a->param));
}

void access_log(const struct access *a, const char *middle)
{
	char status[32] = "no answer", error[128] = "";

	if (a->status)
		snprintf(status, sizeof(status), "%u", a->status);
	if (a->cause)
		snprintf(error, sizeof(error), " %s%s%s", a->cause, a->param[0] ? " in " : "",
			 a->param);
	log_info("%s %s from %s: %s%s%s%s%s", a->method, a->path, a->peer, status, error, middle,
		 a->id[0] ? ", X-Request-Id " : "", a->id);
}
