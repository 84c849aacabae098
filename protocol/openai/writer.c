#include "protocol/openai/writer.h"

#include <stdio.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

enum utf8_kind writer_utf8(const unsigned char *s, size_t n, size_t *len)
{
	/* The second byte's range is narrower after some first ones: no overlong forms, no
	 * surrogates, nothing past U+10FFFF (Unicode, table 3-7). */
	unsigned char low = 0x80, high = 0xbf;
	size_t want;

	*len = 1;
	if (s[0] < 0x80)
		return UTF8_WHOLE;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return UTF8_BAD;
	want = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (s[0] == 0xe0)
		low = 0xa0;
	else if (s[0] == 0xed)
		high = 0x9f;
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;
	for (; *len < want; (*len)++) {
		if (*len == n)
			return UTF8_SHORT;
		if (s[*len] < low || s[*len] > high)
			return UTF8_BAD;
		low = 0x80;
		high = 0xbf;
	}
	return UTF8_WHOLE;
}

static void escape(struct buf *out, unsigned char c)
{
	static const char letters[] = "btn\0fr"; /* of 8 to 13 */

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
	const unsigned char *s = (const unsigned char *)text;
	size_t from = 0, i = 0, n;

	while (i < len) {
		if (s[i] >= 0x20 && s[i] < 0x80 && s[i] != '"' && s[i] != '\\') {
			i++;
			continue;
		}
		if (s[i] >= 0x80 && writer_utf8(s + i, len - i, &n) == UTF8_WHOLE) {
			i += n;
			continue;
		}
		buf_append(out, s + from, i - from);
		if (s[i] >= 0x80) {
			buf_puts(out, REPLACEMENT);
			i += n;
		} else {
			escape(out, s[i++]);
		}
		from = i;
	}
	if (len > from)
		buf_append(out, s + from, len - from);
}

void writer_string(struct buf *out, const char *text, size_t len)
{
	buf_putc(out, '"');
	writer_escaped(out, text, len);
	buf_putc(out, '"');
}

/* Decimal digits of v, right-aligned in the 12 bytes before `end`; gives their start. */
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
	if (logprob >= 0) { /* 0 and what rounding put above it */
		buf_puts(out, "0.0");
		return;
	}
	snprintf(text, sizeof(text), "%.9g", (double)logprob);
	buf_puts(out, text);
}

void writer_bool(struct buf *out, bool value)
{
	buf_puts(out, value ? "true" : "false");
}
