/*
 * What the tokenizer must know of Unicode: the classes that splitting patterns ask for, and NFC. All
 * of it linear in the text, also when the text is hostile.
 *
 * The rows behind it are utf8proc's, corrected where they are older or newer than those that made
 * the ids of existing models (see unicode.c): a tokenizer is right when it agrees with the one a
 * model was trained with, not when it knows the newest letters.
 */
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

/* A code point's row: its class and two flags for NFC. A code point with neither flag starts a new
 * unit of normalization: nothing before it can change with what follows. */
enum {
	UNICODE_CLASS = 7,
	UNICODE_NFC_MAYBE = 8,	/* may change, or join the character before it */
	UNICODE_COMBINING = 16, /* has a combining class: may change places */
};

enum { UNICODE_END = 0x110000 };

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

/* Normalizes valid UTF-8 to NFC. Text that is in NFC costs one look: 0 and out untouched.
 * 1: the normalized text was appended to out. -ENOMEM. */
int unicode_nfc(const struct unicode *u, const char *text, size_t len, struct buf *out) MUST_CHECK;

/* Rust's regex \w, which guards added tokens with "single_word". */
bool unicode_is_word(const struct unicode *u, uint32_t c);
