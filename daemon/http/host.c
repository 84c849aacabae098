#include "daemon/http/host.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "base/commas.h"
#include "base/macros.h"
#include "daemon/http/address.h"

/* Reads an address. An IPv6 address must have brackets: "[::1]". False: the text is not an address. */
static bool read_address(const char *text, size_t len, struct address *ret)
{
	const bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
	char one[INET6_ADDRSTRLEN];

	if (len >= sizeof(one))
		return false;
	memcpy(one, text + brackets, len - 2 * brackets);
	one[len - 2 * brackets] = 0;
	return !strchr(one, ':') == !brackets && address_parse(one, ret);
}

/* Returns whether two texts name the same host. An IPv6 address can be written in several ways. */
static bool same_host(const char *x, size_t n, const char *y, size_t m)
{
	struct address a, b;

	return (n == m && !strncasecmp(x, y, n)) ||
	       (read_address(x, n, &a) && read_address(y, m, &b) && address_equal(&a, &b));
}

static bool is_in_list(const char *name, size_t len, const char *list)
{
	const char *one;
	size_t n;

	while (commas_next(&list, &one, &n))
		if (n && ((n == 1 && *one == '*') || same_host(name, len, one, n)))
			return true;
	return false;
}

/* Returns whether a request may have the name as its host, or the name is "*". */
static bool is_host(const char *name, size_t n)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	struct address a;

	return (n == 1 && *name == '*') || strspn(name, plain) >= n || read_address(name, n, &a);
}

int host_list_check(const char *list, struct err *e)
{
	const char *name;
	size_t n;

	while (commas_next(&list, &name, &n)) {
		if (!n)
			return err_set(e, EINVAL, "a name is empty");
		if (!is_host(name, n))
			return err_set(e, EINVAL,
				       "\"%.*s\" is not the name of a host without a port, nor *",
				       (int)MIN(n, (size_t)256), name);
	}
	return 0;
}

/* Returns the number of bytes of the name, in front of a port and its colon. With a port that has other characters than
 * digits all of the text counts as the name. */
static size_t name_length(const char *value)
{
	const char *port = strrchr(value, ':');

	return port && !port[1 + strspn(port + 1, "0123456789")] ? (size_t)(port - value)
								 : strlen(value);
}

bool host_is_valid(const char *value)
{
	const size_t len = name_length(value);
	const bool brackets = *value == '[' && value[len - 1] == ']';

	return len && !strchr(value, '@') && (brackets || !memchr(value, ':', len));
}

bool host_is_allowed(const char *value, const char *allowed)
{
	const size_t len = name_length(value);
	struct address a;

	return (len == 9 && !strncasecmp(value, "localhost", len)) ||
	       (read_address(value, len, &a) && address_is_loopback(&a)) ||
	       (allowed && is_in_list(value, len, allowed));
}
