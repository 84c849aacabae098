#include "protocol/jinja/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "protocol/jinja/text.h"

/* Returns whether strtod reads digits * 10^exponent as f. */
static bool reads_as(long long digits, int exponent, double f)
{
	char text[48];

	snprintf(text, sizeof(text), "%llde%d", digits, exponent);
	return strtod(text, NULL) == f;
}

/* Finds the fewest digits that, written as d.ddd * 10^exponent, are read as f (f >= 0). */
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
			/* This matters only if f is a power of two: the doubles above f then lie twice as far apart as
			 * those below it. So the next larger decimal may be read as f although the nearest one is
			 * not. */
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

/* Returns whether the underscore s[i] stands between two digits. */
static bool joins_digits(const char *s, size_t n, size_t i)
{
	return i && is_digit(s[i - 1]) && i + 1 < n && is_digit(s[i + 1]);
}

enum parse_int text_to_int(const char *s, size_t n, int64_t *ret)
{
	size_t i = text_skip_space(s, n);
	bool minus, big = false;
	int64_t v = 0; /* minus the number, because -2^63 has no positive counterpart */

	n = MAX(text_trim_space(s, n), i);
	minus = i < n && s[i] == '-';
	i += i < n && (s[i] == '-' || s[i] == '+');
	if (i == n)
		return PARSE_INT_BAD;
	for (; i < n; i++) {
		if (s[i] == '_' && joins_digits(s, n, i))
			continue;
		if (!is_digit(s[i]))
			return PARSE_INT_BAD;
		big |= __builtin_mul_overflow(v, 10, &v);
		big |= __builtin_sub_overflow(v, s[i] - '0', &v);
	}
	if (big || (!minus && v == INT64_MIN))
		return PARSE_INT_BIG;
	*ret = minus ? v : -v;
	return PARSE_INT_OK;
}

/* Reads a float as Python does. False: the text is no float. The characters are checked because strtod would also take
 * hexadecimal numbers and "nan(...)". */
static bool read_float(const char *text, size_t len, double *ret)
{
	size_t sign = text[0] == '+' || text[0] == '-';
	char *end;

	if (!len)
		return false;
	if (strspn(text + sign, "0123456789.eE+-") != len - sign &&
	    strcasecmp(text + sign, "inf") && strcasecmp(text + sign, "infinity") &&
	    strcasecmp(text + sign, "nan"))
		return false;
	*ret = strtod(text, &end);
	return end == text + len;
}

bool text_to_float(const char *s, size_t n, struct buf *scratch, double *ret)
{
	size_t i = text_skip_space(s, n), start = scratch->len;
	bool good = true;

	n = MAX(text_trim_space(s, n), i);
	for (; i < n && good; i++)
		if (s[i] != '_')
			buf_putc(scratch, s[i]);
		else
			good = joins_digits(s, n, i);
	good = good && !scratch->failed &&
	       read_float(buf_str(scratch) + start, scratch->len - start, ret);
	scratch->len = start;
	return good;
}
