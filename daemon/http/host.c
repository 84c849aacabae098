#include "daemon/http/host.h"

#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "daemon/http/address.h"

/* Returns whether a text is a loopback address. An IPv6 address must have brackets: "[::1]". */
static bool is_loopback(const char *text, size_t len)
{
	const bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
	struct address a;
	char one[INET6_ADDRSTRLEN];

	if (len >= sizeof(one))
		return false;
	memcpy(one, text + brackets, len - 2 * brackets);
	one[len - 2 * brackets] = 0;
	return !strchr(one, ':') == !brackets && address_parse(one, &a) && address_is_loopback(&a);
}

static bool is_in_list(const char *name, size_t len, const char *list)
{
	while (*list) {
		size_t n = strcspn(list, ",");

		if ((n == 1 && *list == '*') || (n == len && !strncasecmp(list, name, n)))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

bool host_is_allowed(const char *value, const char *allowed)
{
	const char *port = strrchr(value, ':'), *bracket = strrchr(value, ']');
	const bool has_port = port && (!bracket || port > bracket);
	size_t len = has_port ? (size_t)(port - value) : strlen(value);

	return (len == 9 && !strncasecmp(value, "localhost", len)) || is_loopback(value, len) ||
	       (allowed && is_in_list(value, len, allowed));
}
