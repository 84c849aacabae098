/*
 * What the tokenizer must know of Unicode: UTF-8, the classes that splitting patterns ask for, and
 * NFC. All of it linear in the text, also when the text is hostile.
 *
 * The rows behind it are utf8proc's, corrected where they are older or newer than those that made
 * the ids of existing models (see unicode.c): a tokenizer is right when it agrees with the one a
 * model was trained with, not when it knows the newest letters.
 */
#ifndef PROTOCOL_TOKENIZER_UNICODE_H
#define PROTOCOL_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* \p{L}, \p{N}, \p{M}, the two halves of \s ([\r\n] apart), and all the rest. */
enum unicode_class {
	UNICODE_OTHER,
	UNICODE_LETTER,
	UNICODE_NUMBER,
	UNICODE_MARK,
	UNICODE_SPACE,
	UNICODE_NEWLINE,
};

/* A code point's row: its class and two flags for NFC. A code point with neither flag starts a new
 * unit of normalization: nothing before it can change with what follows. */
enum {
	UNICODE_CLASS = 7,
	UNICODE_NFC_MAYBE = 8,	/* may change, or join the character before it */
	UNICODE_COMBINING = 16, /* has a combining class: may change places */
};

enum { UNICODE_END = 0x110000, UNICODE_REPLACEMENT = 0xfffd };

struct unicode {
	/* Of code point c: rows[page[c >> 8]][c & 255]; page[0] = 0. */
	uint16_t page[UNICODE_END >> 8];
	uint8_t (*rows)[256];
};

/* The table, built at the first call, the same for all threads and never freed. NULL when out of
 * memory. */
const struct unicode *unicode_table(void);

static inline uint8_t unicode_row(const struct unicode *u, uint32_t c)
{
	return u->rows[u->page[c >> 8]][c & 255];
}

/* The code point at p, in text that is valid UTF-8, and its length in bytes. */
static inline uint32_t unicode_decode(const char *p, size_t *len)
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

/* Writes c as UTF-8 and returns how many bytes that took, 1 to 4. c is a scalar value. */
size_t unicode_encode(uint32_t c, char out[4]);

/* What stands at p, len > 0 bytes of anything: the length of the whole sequence there (> 0), or
 * minus the length of the longest part of one, at least 1, that is to become one U+FFFD. Sets
 * *ret_cut when that part is good as far as it goes and only the end of the bytes cuts it. */
int unicode_sequence(const char *p, size_t len, bool *ret_cut);

/* The number of leading bytes that are valid UTF-8. */
size_t unicode_valid(const char *text, size_t len);

/* Appends text with each maximal part of a broken sequence replaced by U+FFFD (what Rust's
 * from_utf8_lossy and Python's errors="replace" do). */
void unicode_replace(const char *text, size_t len, struct buf *out);

/* Normalizes valid UTF-8 to NFC. Text that is in NFC costs one look: 0 and out untouched.
 * 1: the normalized text was appended to out. -ENOMEM. */
int unicode_nfc(const struct unicode *u, const char *text, size_t len, struct buf *out) MUST_CHECK;

/* Rust's regex \w, which guards added tokens with "single_word". */
bool unicode_is_word(const struct unicode *u, uint32_t c);

#endif
