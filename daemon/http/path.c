#include "daemon/http/path.h"

#include <stdbool.h>
#include <string.h>

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
