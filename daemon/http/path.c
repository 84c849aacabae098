#include "daemon/http/path.h"

#include <string.h>
#include <strings.h>

#include "base/macros.h"

/* Returns the number of bytes of the scheme and "://" in front of a host; 0: there are none. */
static size_t scheme_length(const char *target)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (!strncasecmp(target, schemes[i], strlen(schemes[i])))
			return strlen(schemes[i]);
	return 0;
}

bool path_has_host(const char *target)
{
	return scheme_length(target);
}

const char *path_behind_host(const char *target, const char **ret_host, size_t *ret_len)
{
	*ret_host = target + scheme_length(target);
	*ret_len = strcspn(*ret_host, "/");
	target = *ret_host + *ret_len;
	return *target ? target : "/";
}

/* Returns the value of a hexadecimal digit, or -1. */
static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool needs_no_escape(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("-._~", c));
}

/* Returns the character whose escape begins the text; -1: the text does not begin with an escape, or the escape is
 * malformed. */
static int escaped(const char *text)
{
	int high = text[0] == '%' ? digit(text[1]) : -1, low = high < 0 ? -1 : digit(text[2]);

	return low < 0 ? -1 : high << 4 | low;
}

static size_t decode(char *text, bool all)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int c = escaped(from);

		if (c > 0 && (all || needs_no_escape(c))) {
			*to++ = (char)c;
			from += 2;
		} else {
			*to++ = *from;
		}
	}
	*to = 0;
	return (size_t)(to - text);
}

size_t path_normalise(char *text)
{
	return decode(text, false);
}

void path_decode(char *text)
{
	decode(text, true);
}
