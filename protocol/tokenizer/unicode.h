/* The tokenizer's Unicode: the classes of splitting patterns, and NFC. NFC takes time linear in the text, even if the
 * text is hostile.
 *
 * The data are utf8proc's. Corrections bring them near to those of Hugging Face's tokenizers (unicode.c). A tokenizer
 * is right if it agrees with the one with which a model was trained, not if it knows the newest letters. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum unicode_class {
	UNICODE_OTHER,	 /* in none of the other classes */
	UNICODE_LETTER,	 /* \p{L} */
	UNICODE_NUMBER,	 /* \p{N} */
	UNICODE_MARK,	 /* \p{M} */
	UNICODE_SPACE,	 /* \s without [\r\n] */
	UNICODE_NEWLINE, /* [\r\n] */
};

/* A code point's entry: its class and two flags for NFC. A code point without flags starts a new unit of
 * normalization: NFC changes the text before it and the text from it on independently of each other. */
enum {
	UNICODE_CLASS = 7,	/* the bits of the class */
	UNICODE_NFC_MAYBE = 8,	/* may change, or join the character before it */
	UNICODE_COMBINING = 16, /* has a combining class other than 0: may be reordered */
};

enum { UNICODE_END = 0x110000 };

struct unicode {
	/* The entry of code point c: pages[page_of[c >> 8]][c & 255]; page_of[0] is 0. */
	uint16_t page_of[UNICODE_END >> 8];
	uint8_t (*pages)[256];
};

/* Returns the table, which is built at the first call, is the same for all threads and is never freed. NULL: out of
 * memory. */
const struct unicode *unicode_table(void);

static inline uint8_t unicode_entry(const struct unicode *u, uint32_t c)
{
	return u->pages[u->page_of[c >> 8]][c & 255];
}

/* Normalizes valid UTF-8 to NFC. 0: the text is in NFC already, and out is unchanged. 1: the normalized text was
 * appended to out. -ENOMEM: nothing was appended. */
int unicode_nfc(const struct unicode *u, const char *text, size_t len, struct buf *out) MUST_CHECK;

/* Returns whether c is a \w of Rust's regex. An added token with "single_word" is not found beside such a character. */
bool unicode_is_word(const struct unicode *u, uint32_t c);
