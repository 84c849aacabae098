#include "daemon/http/framing.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/problem.h"

/* Returns whether a name is a token (RFC 9110, section 5.6.2): one character or more, all of them allowed. */
static bool is_token(const char *name, size_t len)
{
	static const char marks[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < len; i++) {
		char c = name[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		if (!letter && !(c >= '0' && c <= '9') && (!c || !strchr(marks, c)))
			return false;
	}
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

void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
		 size_t value_len)
{
	bool unused = false;

	f->bytes += name_len + value_len;
	f->cut_value |= f->end && !only_ends(f->end, name, 1);
	f->end = value + value_len;
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

int framing_check(const struct framing *f, const char *version, struct err *e)
{
	const bool old = !strcmp(version, "HTTP/1.0");

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
