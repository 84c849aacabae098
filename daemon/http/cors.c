#include "daemon/http/cors.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/commas.h"
#include "base/macros.h"

/* Returns whether the port of an origin is one that browsers write: a number, and not the scheme's own. scheme_len:
 * bytes of the text in front of "://". */
static bool is_port(const char *text, size_t scheme_len, const char *port, size_t n)
{
	const bool http = scheme_len == 4 && !strncasecmp(text, "http", 4);
	const bool https = scheme_len == 5 && !strncasecmp(text, "https", 5);

	return n && strspn(port, "0123456789") >= n &&
	       !(http && n == 2 && !strncmp(port, "80", 2)) &&
	       !(https && n == 3 && !strncmp(port, "443", 3));
}

/* Returns whether a browser can send the text as an origin: SCHEME://, then a host and perhaps a port. */
static bool is_origin(const char *text, size_t n)
{
	static const char scheme[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
	static const char name[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	const size_t before = strspn(text, scheme), begin = before + 3;
	size_t end = begin;

	if (!before || begin >= n || strncmp(text + before, "://", 3) != 0)
		return false;
	if (text[begin] == '[') { /* an IPv6 address */
		end += 1 + strspn(text + begin + 1, "0123456789abcdefABCDEF:.");
		if (end == begin + 1 || text[end++] != ']')
			return false;
	} else {
		end += strspn(text + begin, name);
	}
	return end > begin && (end == n || (end < n && text[end] == ':' &&
					    is_port(text, before, text + end + 1, n - end - 1)));
}

int cors_check(const char *list, struct err *e)
{
	const char *origin;
	size_t n;

	if (!strcmp(list, "*") || !strcmp(list, "none"))
		return 0;
	while (commas_next(&list, &origin, &n)) {
		if (!n)
			return err_set(e, EINVAL, "an origin is empty");
		if (!is_origin(origin, n))
			return err_set(
				e, EINVAL,
				"\"%.*s\" is no origin as browsers send it: SCHEME://HOST, or "
				"SCHEME://HOST:PORT if the port is not the scheme's own",
				(int)MIN(n, (size_t)256), origin);
	}
	return 0;
}

bool cors_is_open(const char *list)
{
	return !list || !strcmp(list, "*");
}

bool cors_names(const char *list, const char *origin)
{
	const size_t len = origin ? strlen(origin) : 0;
	const char *one;
	size_t n;

	/* Scheme and host have no case. "none" has no scheme, so no origin equals it. */
	if (!len || cors_is_open(list) || !is_origin(origin, len))
		return false;
	while (commas_next(&list, &one, &n))
		if (n == len && !strncasecmp(one, origin, n))
			return true;
	return false;
}
