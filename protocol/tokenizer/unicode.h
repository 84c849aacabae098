/* The tokenizer's Unicode: the classes of splitting patterns, and NFC. Everything is linear in the text, also if the
 * text is hostile.
 *
 * The data are utf8proc's, corrected where they are older or younger than those that made the ids of existing models
 * (see unicode.c). A tokenizer is right if it agrees with the one with which a model was trained, not if it knows the
 * newest letters. */
#pragma once

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

/* A code point's row: its class and two flags for NFC. A code point without flags starts a new unit of normalization:
 * the text before it cannot change with the text behind it. */
enum {
	UNICODE_CLASS = 7,
	UNICODE_NFC_MAYBE = 8,	/* may change, or join the character before it */
	UNICODE_COMBINING = 16, /* has a combining class: may be reordered */
};

enum { UNICODE_END = 0x110000 };

struct unicode {
	/* The row of code point c: rows[page[c >> 8]][c & 255]; page[0] = 0. */
	uint16_t page[UNICODE_END >> 8];
	uint8_t (*rows)[256];
};

/* The table, built at the first call, the same for all threads and never freed. NULL: out of memory. */
const struct unicode *unicode_table(void);

static inline uint8_t unicode_row(const struct unicode *u, uint32_t c)
{
	return u->rows[u->page[c >> 8]][c & 255];
}

/* Normalizes valid UTF-8 to NFC. 0 and out unchanged: the text is in NFC already, which costs one pass. 1: the
 * normalized text was appended to out. -ENOMEM. */
int unicode_nfc(const struct unicode *u, const char *text, size_t len, struct buf *out) MUST_CHECK;

/* Rust's regex \w: added tokens with "single_word" must not stand beside such a character. */
bool unicode_is_word(const struct unicode *u, uint32_t c);
