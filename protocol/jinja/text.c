#include "protocol/jinja/text.h"

#include <string.h>
#include <utf8proc.h>

#include "base/macros.h"
#include "base/utf8.h"

/* Returns whether a byte continues a character. */
static bool is_inside(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

size_t text_next(const char *s, size_t n, uint32_t *ret_cp)
{
	size_t len;
	bool cut;

	if (!n || utf8_sequence(s, n, &cut) < 0) {
		*ret_cp = UTF8_REPLACEMENT;
		return n != 0;
	}
	*ret_cp = utf8_decode(s, &len);
	return len;
}

size_t text_prev(const char *s, size_t n, uint32_t *ret_cp)
{
	size_t back = 1;

	*ret_cp = UTF8_REPLACEMENT;
	if (!n)
		return 0;
	while (back < 4 && back < n && is_inside(s[n - back]))
		back++;
	if (text_next(s + n - back, back, ret_cp) == back)
		return back;
	*ret_cp = UTF8_REPLACEMENT;
	return 1;
}

void text_put(struct buf *b, uint32_t cp)
{
	char bytes[4];

	buf_append(b, bytes, utf8_encode(cp, bytes));
}

void text_clean(char *s)
{
	size_t n = strlen(s), len;
	uint32_t cp;

	for (size_t i = 0; i < n; i += len) {
		len = text_next(s + i, n - i, &cp);
		if (len == 1 && (unsigned char)s[i] >= 0x80)
			s[i] = '?';
	}
}

size_t text_length(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += !is_inside(s[i]);
	return count;
}

size_t text_offset(const char *s, size_t n, size_t index)
{
	size_t i = 0;

	for (; index && i < n; index--)
		for (i++; i < n && is_inside(s[i]); i++)
			;
	return i;
}

size_t text_find(const char *s, size_t n, const char *needle, size_t m)
{
	const char *p = m ? memmem(s, n, needle, m) : s;

	return p ? (size_t)(p - s) : SIZE_MAX;
}

static bool is_space(uint32_t cp)
{
	if (cp < 0x80)
		return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20);
	return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Sets of Unicode's general categories, one bit each. */
#define C(category) (1u << UTF8PROC_CATEGORY_##category)
#define LETTERS	    (C(LU) | C(LL) | C(LT) | C(LM) | C(LO))
#define INVISIBLE   (C(CN) | C(CC) | C(CF) | C(CS) | C(CO) | C(ZL) | C(ZP) | C(ZS))

/* Returns whether a punctuation mark may stand inside a word: Unicode's Word_Break is MidLetter, MidNumLet or
 * Single_Quote. */
static bool is_inside_words(uint32_t cp)
{
	static const uint32_t marks[] = {'\'',	 '.',	 ':',	 0xb7,	 0x387,	 0x55f,
					 0x5f4,	 0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
					 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (marks[i] == cp)
			return true;
	return false;
}

bool text_is(uint32_t cp, enum text_class class)
{
	static const uint32_t categories[] = {
		[TEXT_PRINTABLE] = ~(INVISIBLE),
		[TEXT_LOWER] = C(LL),
		[TEXT_CASED] = C(LU) | C(LL) | C(LT),
		[TEXT_IGNORABLE] = C(MN) | C(ME) | C(CF) | C(LM) | C(SK),
		[TEXT_NAME_START] = LETTERS | C(NL),
		[TEXT_NAME] = LETTERS | C(NL) | C(MN) | C(MC) | C(ND) | C(PC),
	};

	if (class == TEXT_SPACE)
		return is_space(cp);
	if (1u << utf8proc_category((utf8proc_int32_t)cp) & categories[class])
		return true;
	switch (class) {
	case TEXT_PRINTABLE: return cp == ' ';
	case TEXT_NAME_START: return cp == '_';
	case TEXT_IGNORABLE: return is_inside_words(cp);
	default: return false;
	}
}

size_t text_skip_space(const char *s, size_t n)
{
	size_t i = 0, len;
	uint32_t cp;

	for (; i < n; i += len) {
		len = text_next(s + i, n - i, &cp);
		if (!is_space(cp))
			break;
	}
	return i;
}

size_t text_trim_space(const char *s, size_t n)
{
	uint32_t cp;
	size_t len;

	for (; n; n -= len) {
		len = text_prev(s, n, &cp);
		if (!is_space(cp))
			break;
	}
	return n;
}

size_t text_line(const char *s, size_t n, size_t *ret_break)
{
	size_t i = 0, len = 0;
	uint32_t cp;

	for (; i < n; i += len) {
		len = text_next(s + i, n - i, &cp);
		if (cp == '\r' && i + 1 < n && s[i + 1] == '\n') {
			*ret_break = 2;
			return i;
		}
		if ((cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
		    cp == 0x2028 || cp == 0x2029) {
			*ret_break = len;
			return i;
		}
	}
	*ret_break = 0;
	return n;
}
