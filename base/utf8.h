/* UTF-8: reads and writes code points, finds and replaces invalid bytes. Linear in the text, also if the text is
 * hostile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The code point that stands for invalid bytes, and its UTF-8. */
enum { UTF8_REPLACEMENT = 0xfffd };
#define UTF8_REPLACEMENT_TEXT "\xef\xbf\xbd"

/* Returns the code point at p, in text that is valid UTF-8; *len is its length in bytes. */
static inline uint32_t utf8_decode(const char *p, size_t *len)
{
	const unsigned char *s = (const unsigned char *)p;

	if (s[0] < 0x80) {
		*len = 1;
		return s[0];
	}
	if (s[0] < 0xe0) {
		*len = 2;
		return (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
	}
	if (s[0] < 0xf0) {
		*len = 3;
		return (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
	}
	*len = 4;
	return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
	       (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
}

/* Writes c, a scalar value, as UTF-8 and returns the number of bytes, 1 to 4. */
size_t utf8_encode(uint32_t c, char out[4]);

/* Reads the first sequence of the len > 0 bytes at p, which may be any bytes. If it is valid, returns its length, 1 to
 * 4. Otherwise returns -n if one U+FFFD is to replace the first n bytes, 1 to 3: they are the longest beginning of a
 * valid sequence, or one byte that begins none. *ret_cut: the bytes end within a sequence that is valid so far. */
int utf8_sequence(const char *p, size_t len, bool *ret_cut);

/* Returns the number of bytes at the text's beginning that are whole, valid sequences. */
size_t utf8_valid(const char *text, size_t len);

/* Appends the text, with one U+FFFD in the place of each n bytes for which utf8_sequence returns -n. Rust's
 * from_utf8_lossy and Python's errors="replace" give the same text. */
void utf8_replace(const char *text, size_t len, struct buf *out);
