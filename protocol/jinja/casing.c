/* Upper, lower and title case. utf8proc maps one character to one. Unicode's SpecialCasing.txt adds mappings of one
 * to several. Those to upper and title case, but for "ß", follow from decompositions:
 *
 *     "ŉ" (U+0149) has no capital: it is "ʼ" and "n", so its upper case is "ʼN"
 *     "ᾳ" (U+1FB3) ends with an iota below: its upper case is "Α" and a capital iota, "ΑΙ"
 *
 * Python has two more rules, both for lower case: a capital sigma at the end of a word, and the dotted capital I. */
#include <utf8proc.h>

#include "protocol/jinja/text.h"

enum { PARTS = 8, SHARP_S = 0xdf, IOTA_BELOW = 0x345, CAPITAL_IOTA = 0x399 };

/* Fills part[] with the characters of which cp is composed. Returns their number; 1: cp is not composed of several
 * characters, or of more than PARTS. */
static int decompose(utf8proc_int32_t cp, utf8proc_option_t how, utf8proc_int32_t part[PARTS])
{
	int last_class = 0;
	utf8proc_ssize_t n = utf8proc_decompose_char(cp, part, PARTS, how, &last_class);

	return n > 1 && n <= PARTS ? (int)n : 1;
}

/* Appends the characters part[0, n). With `all` each of them is put into upper case, otherwise only the first that has
 * an upper case. With `compose`, characters that Unicode has as one are joined. */
static void put_parts(struct buf *b, utf8proc_int32_t *part, int n, bool all, bool compose)
{
	bool done = false;

	for (int i = 0; i < n && !done; i++) {
		utf8proc_int32_t upper = utf8proc_toupper(part[i]);

		done = !all && upper != part[i];
		part[i] = upper;
	}
	if (compose)
		n = (int)utf8proc_normalize_utf32(part, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	for (int i = 0; i < n; i++)
		text_put(b, (uint32_t)part[i]);
}

static void put_capital(struct buf *b, uint32_t c, bool all)
{
	utf8proc_int32_t cp = (utf8proc_int32_t)c, part[PARTS] = {0};
	utf8proc_int32_t simple = all ? utf8proc_toupper(cp) : utf8proc_totitle(cp);
	bool unmapped = c >= 0x80 && simple == cp && text_is(c, TEXT_LOWER);
	int n = c < 0x80 ? 1 : decompose(cp, UTF8PROC_DECOMPOSE, part);

	if (c == SHARP_S) {
		buf_puts(b, all ? "SS" : "Ss");
	} else if (n > 1 && part[n - 1] == IOTA_BELOW && (all || unmapped)) {
		put_parts(b, part, n - 1, all, true);
		text_put(b, all ? CAPITAL_IOTA : IOTA_BELOW);
	} else if (unmapped &&
		   (n = decompose(cp, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, part)) > 1) {
		put_parts(b, part, n, all, false);
	} else {
		text_put(b, (uint32_t)simple);
	}
}

/* Returns whether the sigma at s[before, after) ends a word. */
static bool is_final_sigma(const char *s, size_t n, size_t before, size_t after)
{
	uint32_t cp = 0;
	size_t len;

	for (; before; before -= len) {
		len = text_prev(s, before, &cp);
		if (!text_is(cp, TEXT_IGNORABLE))
			break;
	}
	if (!before || !text_is(cp, TEXT_CASED))
		return false;
	for (; after < n; after += len) {
		len = text_next(s + after, n - after, &cp);
		if (!text_is(cp, TEXT_IGNORABLE))
			return !text_is(cp, TEXT_CASED);
	}
	return true;
}

static void put_lower(struct buf *b, uint32_t cp, const char *s, size_t n, size_t at, size_t len)
{
	if (cp == 0x3a3)
		text_put(b, is_final_sigma(s, n, at, at + len) ? 0x3c2 : 0x3c3);
	else if (cp == 0x130)
		buf_append(b, "i\xcc\x87", 3);
	else
		text_put(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

void text_recase(struct buf *b, const char *s, size_t n, enum casing to)
{
	bool in_word = false;
	uint32_t cp;
	size_t len;

	for (size_t i = 0; i < n; i += len) {
		len = text_next(s + i, n - i, &cp);
		if (to == CASE_UPPER)
			put_capital(b, cp, true);
		else if (to == CASE_LOWER || in_word)
			put_lower(b, cp, s, n, i, len);
		else
			put_capital(b, cp, false);
		in_word = to == CASE_CAPITALIZE || (to == CASE_TITLE && text_is(cp, TEXT_CASED));
	}
}
