#include "daemon/http/framing.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/problem.h"

bool framing_in_token(char c)
{
	bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

	return letter || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Returns whether a name is a token: one character or more, all of them allowed. */
static bool is_token(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!framing_in_token(name[i]))
			return false;
	return len;
}

/* Returns whether the name is `want`, case aside. *ret_bad becomes true if the name begins with `want` and goes on. */
static bool is_name(const char *name, size_t len, const char *want, bool *ret_bad)
{
	size_t n = strlen(want);

	if (len < n || strncasecmp(name, want, n))
		return false;
	*ret_bad |= len > n;
	return len == n;
}

/* Returns whether the bytes between `from` and `to` can be `lines` ends of lines, each LF or CR LF: there are as many
 * bytes, and all are zeros, because libmicrohttpd overwrites the ends of lines with zeros. The addresses are compared
 * as numbers, because those of a folded header are in no order. */
static bool only_ends(const char *from, const char *to, uintptr_t lines)
{
	uintptr_t n = (uintptr_t)to - (uintptr_t)from;

	if (n < lines || n > 2 * lines)
		return false;
	for (; from < to; from++)
		if (*from)
			return false;
	return true;
}

/* Returns whether a version and the zero byte behind it begin at p. */
static bool is_version(const char *p)
{
	return !strncmp(p, "HTTP/", 5) && p[5] >= '0' && p[5] <= '9' && p[6] == '.' &&
	       p[7] >= '0' && p[7] <= '9' && !p[8];
}

void framing_target(struct framing *f, char *target)
{
	char *end = target, *query;

	/* A zero byte within the target could have a version of its own behind it. framing_line finds this. */
	while (*end || !is_version(end + 1))
		end++;
	query = memchr(target, '?', (size_t)(end - target));
	f->target = target;
	f->target_end = end;
	f->target_len = (size_t)(end - target);
	f->cut_line = strlen(target) < f->target_len;
	f->bare_cr = memchr(target, '\r', f->target_len);
	for (const char *at = query; at && at < end; at++)
		f->n_arguments += at == query || *at == '&';
	if (query && (f->cut_line || f->target_len > FRAMING_TARGET_MAX ||
		      f->n_arguments > FRAMING_ARGUMENTS_MAX))
		query[1] = 0;
}

void framing_line(struct framing *f, const char *method, const char *version)
{
	const size_t len = strlen(method);

	f->bad_method = !is_token(method, len);
	for (const char *at = method + len + 1; at < f->target; at++)
		f->cut_line |= *at != ' ';
	f->cut_line |= version != f->target_end + 1;
	f->end = version + strlen(version);
}

void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
		 size_t value_len)
{
	bool unused = false;

	f->bytes += name_len + value_len;
	f->cut_value |= f->end && !only_ends(f->end, name, 1);
	f->end = value + value_len;
	f->bare_cr |= value_len && memchr(value, '\r', value_len);
	f->bad_name |= !is_token(name, name_len) || (uintptr_t)value < (uintptr_t)name;
	f->n_hosts += is_name(name, name_len, "Host", &unused);
	f->n_lengths += is_name(name, name_len, "Content-Length", &f->bad_name);
	if (is_name(name, name_len, "Content-Encoding", &unused))
		f->content_encoding |= value_len != 8 || strncasecmp(value, "identity", 8);
	if (is_name(name, name_len, "Transfer-Encoding", &f->bad_name)) {
		f->n_codings++;
		f->not_chunked |= value_len != 7 || strncasecmp(value, "chunked", 7);
	}
}

void framing_end(struct framing *f, const char *end)
{
	f->cut_value |= f->end && !only_ends(f->end, end, 2);
}

int framing_check_trailers(const struct framing *f, struct err *e)
{
	if (f->bad_name || f->cut_value || f->bare_cr || f->n_lengths || f->n_codings || f->n_hosts)
		return err_set(e, PROBLEM_FRAMING,
			       "a trailer of the body is malformed or not allowed");
	return 0;
}

int framing_check(const struct framing *f, const char *version, struct err *e)
{
	const bool old = !strcmp(version, "HTTP/1.0");

	if (f->cut_line)
		return err_set(e, PROBLEM_FRAMING, "the request line has a zero byte");
	if (f->bad_method)
		return err_set(e, PROBLEM_FRAMING,
			       "the method has a character that is not allowed");
	if (f->target_len > FRAMING_TARGET_MAX)
		return err_set(e, PROBLEM_HEADERS_TOO_LARGE,
			       "path and query have %zu bytes; at most %d are allowed",
			       f->target_len, FRAMING_TARGET_MAX);
	if (f->n_arguments > FRAMING_ARGUMENTS_MAX)
		return err_set(e, PROBLEM_FRAMING,
			       "the query has %zu arguments; at most %d are allowed",
			       f->n_arguments, FRAMING_ARGUMENTS_MAX);
	if (f->bytes > FRAMING_HEADERS_MAX)
		return err_set(e, PROBLEM_HEADERS_TOO_LARGE,
			       "the headers have %zu bytes; at most %d are allowed", f->bytes,
			       FRAMING_HEADERS_MAX);
	if (f->bad_name)
		return err_set(e, PROBLEM_FRAMING,
			       "a header's name has a character that is not allowed, or its value "
			       "has several lines");
	if (f->cut_value)
		return err_set(e, PROBLEM_FRAMING, "a header's value has a zero byte");
	if (f->bare_cr)
		return err_set(e, PROBLEM_FRAMING,
			       "the request line or a header has a CR without an LF behind it");
	if (f->n_lengths > 1)
		return err_set(e, PROBLEM_FRAMING, "there are %u Content-Length headers",
			       f->n_lengths);
	if (f->n_lengths && f->n_codings)
		return err_set(e, PROBLEM_FRAMING,
			       "there is a Content-Length and a Transfer-Encoding");
	if (f->n_codings && (old || f->n_codings > 1 || f->not_chunked))
		return err_set(e, PROBLEM_FRAMING,
			       "the only Transfer-Encoding that is supported is \"chunked\", with "
			       "HTTP/1.1");
	if (f->n_hosts > 1 || (!f->n_hosts && !old))
		return err_set(e, PROBLEM_FRAMING, "there are %u Host headers; one is needed",
			       f->n_hosts);
	if (f->content_encoding)
		return err_set(e, PROBLEM_MEDIA_TYPE,
			       "a body with a Content-Encoding is not supported; send it as it is");
	return 0;
}
