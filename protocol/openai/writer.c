#include "base/utf8.h"
#include "protocol/openai/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void escape(struct buf *out, unsigned char c)
{
	static const char letters[] = "btn\0fr"; /* for the characters 8 to 13 */

	if (c == '"' || c == '\\') {
		char pair[2] = {'\\', (char)c};

		buf_append(out, pair, 2);
	} else if (c >= 8 && c <= 13 && c != 11) {
		char pair[2] = {'\\', letters[c - 8]};

		buf_append(out, pair, 2);
	} else {
		buf_printf(out, "\\u%04x", c);
	}
}

size_t writer_escaped_part(struct buf *out, const char *text, size_t len, size_t most)
{
	size_t from = 0, i = 0;
	bool cut;

	most = MIN(len, most);
	while (i < most) {
		unsigned char c = (unsigned char)text[i];
		int n = 1;

		if (c >= 0x80)
			n = utf8_sequence(text + i, len - i, &cut);
		if (n > 0 && c >= 0x20 && c != '"' && c != '\\') {
			i += (size_t)n;
			continue;
		}
		if (i > from)
			buf_append(out, text + from, i - from);
		if (n < 0)
			buf_puts(out, UTF8_REPLACEMENT_TEXT);
		else
			escape(out, c);
		i += (size_t)abs(n);
		from = i;
	}
	if (i > from)
		buf_append(out, text + from, i - from);
	return i;
}

void writer_escaped(struct buf *out, const char *text, size_t len)
{
	writer_escaped_part(out, text, len, len);
}

void writer_string(struct buf *out, const char *text, size_t len)
{
	buf_putc(out, '"');
	writer_escaped(out, text, len);
	buf_putc(out, '"');
}

void writer_nullable(struct buf *out, const char *text)
{
	if (text)
		writer_string(out, text, strlen(text));
	else
		buf_puts(out, "null");
}

/* Writes v in decimal, at most 11 bytes, so that the text ends at `end`. Returns the text's start. */
static char *digits(char *end, int32_t v)
{
	uint32_t u = v < 0 ? 0u - (uint32_t)v : (uint32_t)v;

	do {
		*--end = (char)('0' + u % 10);
		u /= 10;
	} while (u);
	if (v < 0)
		*--end = '-';
	return end;
}

static void number(struct buf *out, int32_t v, bool comma)
{
	char text[16], *end = text + sizeof(text), *p = digits(end, v);

	if (comma)
		*--p = ',';
	buf_append(out, p, (size_t)(end - p));
}

void writer_number(struct buf *out, int32_t v)
{
	number(out, v, false);
}

void writer_ids_part(struct buf *out, const int32_t *ids, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		number(out, ids[i], i > 0);
}

void writer_ids(struct buf *out, const int32_t *ids, size_t n)
{
	buf_putc(out, '[');
	writer_ids_part(out, ids, 0, n);
	buf_putc(out, ']');
}

void writer_bytes(struct buf *out, const unsigned char *bytes, size_t n)
{
	buf_putc(out, '[');
	for (size_t i = 0; i < n; i++)
		number(out, bytes[i], i > 0);
	buf_putc(out, ']');
}

/* Writes x, above 0.0001 and below 9999, as printf's "%.9g" does (a whole number with ".0"), but ten times as fast: an
 * answer may have millions of numbers. All is exact: x is an integer of 24 bits times a power of two, and that integer
 * times 10^12 fits into 64 bits. */
static void write_fixed(struct buf *out, float x)
{
	static const uint64_t powers[] = {
		1,	  10,	     100,	 1000,	      10000,	    100000,	  1000000,
		10000000, 100000000, 1000000000, 10000000000, 100000000000, 1000000000000};
	const uint64_t one = powers[8]; /* the smallest number of nine digits */
	uint64_t n, half, rest, product;
	int exponent, point = 3; /* the first digit stands for 10^point */
	char text[16], *end = text + sizeof(text), *p = end;
	uint32_t m = (uint32_t)ldexpf(frexpf(x, &exponent), 24);
	int shift = 24 - exponent;

	while ((product = m * powers[8 - point]) >> shift < one)
		point--;
	n = product >> shift;
	half = UINT64_C(1) << (shift - 1);
	rest = product & (2 * half - 1);
	n += rest > half || (rest == half && n & 1);
	if (n == 10 * one) {
		n = one;
		point++;
	}
	for (int i = 8; i >= 0; i--, n /= 10) {
		if (p != end || n % 10 || i <= point)
			*--p = (char)('0' + n % 10);
		if (point >= 0 && i == point + 1 && p != end)
			*--p = '.';
	}
	if (point < 0)
		buf_append(out, "0.000", (size_t)(1 - point));
	buf_append(out, p, (size_t)(end - p));
	if (point >= 0 && !memchr(p, '.', (size_t)(end - p)))
		buf_puts(out, ".0");
}

void writer_float(struct buf *out, float x)
{
	char text[32];

	if (fabsf(x) > 0.0001f && fabsf(x) < 9999.0f) {
		if (x < 0)
			buf_putc(out, '-');
		write_fixed(out, fabsf(x));
		return;
	}
	snprintf(text, sizeof(text), "%.9g", (double)x);
	buf_puts(out, text);
	if (!strpbrk(text, ".e")) /* so that every client reads a float */
		buf_puts(out, ".0");
}

void writer_logprob(struct buf *out, float logprob)
{
	if (!(logprob > -9999.0f)) {
		buf_puts(out, "-9999.0");
		return;
	}
	if (logprob >= 0) { /* 0, and values that rounding put above it */
		buf_puts(out, "0.0");
		return;
	}
	writer_float(out, logprob);
}
