#include "protocol/jinja/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "protocol/jinja/text.h"

/* Whether digits * 10^exponent is read as f. */
static bool reads_as(long long digits, int exponent, double f)
{
	char text[48];

	snprintf(text, sizeof(text), "%llde%d", digits, exponent);
	return strtod(text, NULL) == f;
}

/* The fewest digits that are read as f >= 0: d.ddd * 10^exponent. */
static void shortest(double f, char digits[24], int *ret_exponent)
{
	char text[32];

	for (int count = 1; count <= 17; count++) {
		long long value = 0;

		snprintf(text, sizeof(text), "%.*e", count - 1, f);
		for (const char *p = text; *p != 'e'; p++)
			if (*p != '.')
				value = value * 10 + (*p - '0');
		*ret_exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
		if (!reads_as(value, *ret_exponent - count + 1, f)) {
			/* Above a power of two, doubles lie further apart than below it. So the decimal next to the
			 * nearest may be read as f although the nearest is not. */
			value++;
			if (!reads_as(value, *ret_exponent - count + 1, f))
				continue;
		}
		snprintf(digits, 24, "%lld", value);
		return;
	}
}

void float_repr(double f, char out[FLOAT_REPR_MAX])
{
	int exponent = 0, n;
	char digits[24] = "0";

	if (isnan(f) || isinf(f)) {
		snprintf(out, FLOAT_REPR_MAX, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	shortest(fabs(f), digits, &exponent);
	n = (int)strlen(digits);
	if (signbit(f))
		*out++ = '-';
	if (exponent < -4 || exponent >= 16)
		snprintf(out, FLOAT_REPR_MAX - 1, "%c%s%.17se%c%02d", digits[0], n > 1 ? "." : "",
			 digits + 1, exponent < 0 ? '-' : '+', abs(exponent) % 1000);
	else if (exponent < 0)
		snprintf(out, FLOAT_REPR_MAX - 1, "0.%.*s%.17s", -exponent - 1, "000", digits);
	else if (n <= exponent + 1)
		snprintf(out, FLOAT_REPR_MAX - 1, "%.17s%.*s.0", digits, exponent + 1 - n,
			 "0000000000000000");
	else
		snprintf(out, FLOAT_REPR_MAX - 1, "%.*s.%.17s", exponent + 1, digits,
			 digits + exponent + 1);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Copies a number's text without the white space around it and the underscores between digits. 0: it is empty, too
 * long, or has an underscore elsewhere. */
static size_t trim_number(const char *s, size_t n, char *out, size_t size)
{
	size_t i = text_skip_space(s, n), len = 0;

	n = MAX(text_trim_space(s, n), i);
	if (n - i >= size)
		return 0;
	for (; i < n; i++) {
		if (s[i] != '_')
			out[len++] = s[i];
		else if (!len || !is_digit(s[i - 1]) || i + 1 >= n || !is_digit(s[i + 1]))
			return 0;
	}
	out[len] = 0;
	return len;
}

enum parse_int text_to_int(const char *s, size_t n, int64_t *ret)
{
	char text[512], *end;
	size_t len = trim_number(s, n, text, sizeof(text));

	if (!len)
		return PARSE_INT_BAD;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	return end != text + len ? PARSE_INT_BAD : errno ? PARSE_INT_BIG : PARSE_INT_OK;
}

bool text_to_float(const char *s, size_t n, double *ret)
{
	char text[512], *end;
	size_t len = trim_number(s, n, text, sizeof(text)), word;

	if (!len)
		return false;
	word = text[0] == '+' || text[0] == '-';
	/* strtod also reads hexadecimal numbers and "nan(...)"; Python does not. */
	if (strspn(text + word, "0123456789.eE+-") != len - word &&
	    strcasecmp(text + word, "inf") && strcasecmp(text + word, "infinity") &&
	    strcasecmp(text + word, "nan"))
		return false;
	*ret = strtod(text, &end);
	return end == text + len;
}
