#include "base/utf8.h"
#include "protocol/openai/writer.h"

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

void writer_escaped(struct buf *out, const char *text, size_t len)
{
	size_t from = 0, i = 0;
	bool cut;

	while (i < len) {
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
	if (len > from)
		buf_append(out, text + from, len - from);
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

void writer_ids(struct buf *out, const int32_t *ids, size_t n)
{
	buf_putc(out, '[');
	for (size_t i = 0; i < n; i++)
		number(out, ids[i], i > 0);
	buf_putc(out, ']');
}

void writer_bytes(struct buf *out, const unsigned char *bytes, size_t n)
{
	buf_putc(out, '[');
	for (size_t i = 0; i < n; i++)
		number(out, bytes[i], i > 0);
	buf_putc(out, ']');
}

void writer_logprob(struct buf *out, float logprob)
{
	char text[32];

	if (!(logprob > -9999.0f)) {
		buf_puts(out, "-9999.0");
		return;
	}
	if (logprob >= 0) { /* 0, and values that rounding put above it */
		buf_puts(out, "0.0");
		return;
	}
	snprintf(text, sizeof(text), "%.9g", (double)logprob);
	buf_puts(out, text);
	if (!strpbrk(text, ".e")) /* so that every client reads a float */
		buf_puts(out, ".0");
}
