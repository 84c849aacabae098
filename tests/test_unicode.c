/* UTF-8 and NFC, compared with utf8proc and by example; classes by example. */
#include <stdlib.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "protocol/tokenizer/unicode.h"
#include "tests/random.h"
#include "tests/tap.h"

static const struct unicode *table;

TEST(code_points)
{
	for (uint32_t c = 0; c < UNICODE_END; c++) {
		char text[4];
		size_t n, len;
		bool cut;

		if (c >= 0xd800 && c <= 0xdfff)
			continue;
		n = utf8_encode(c, text);
		check(utf8_decode(text, &len) == c && len == n);
		check(utf8_valid(text, n) == n);
		check(utf8_sequence(text, n, &cut) == (int)n && !cut);
		for (size_t k = 1; k < n; k++) {
			check(utf8_sequence(text, k, &cut) == -(int)k && cut);
			check(utf8_valid(text, k) == 0);
		}
	}
	ok_all("every scalar value is written, read, and known when it is cut");
}

/* Returns the number of bytes of the UTF-8 sequence at p, as utf8proc says; 0: there is none. */
static size_t strict_sequence(const unsigned char *p, size_t len)
{
	utf8proc_int32_t c;
	utf8proc_ssize_t n = utf8proc_iterate(p, (utf8proc_ssize_t)len, &c);

	return n > 0 && c >= 0 ? (size_t)n : 0;
}

TEST(valid)
{
	static const char *const pieces[] = {"a",	   "\xc3",
					     "\xa9",	   "\xe2",
					     "\x82",	   "\xac",
					     "\xf0",	   "\x9f",
					     "\x98",	   "\x82",
					     "\xed",	   "\xa0",
					     "\xf4",	   "\x90",
					     "\xc0",	   "\xff",
					     "\xe0",	   "\x80",
					     "\xc3\xa9",   "\xe2\x82\xac",
					     "bcdefghijk", "\xf0\x9f\x98\x82"};

	for (int i = 0; i < 200000; i++) {
		char text[64];
		size_t len = random_pieces(pieces, ARRAY_SIZE(pieces), 12, text, sizeof(text));
		size_t at = 0, n;

		while (at < len && (n = strict_sequence((unsigned char *)text + at, len - at)))
			at += n;
		check(utf8_valid(text, len) == at);
	}
	ok_all("valid prefixes are those that utf8proc sees");
}

static void is_replaced(const char *text, const char *want, const char *what)
{
	struct buf out;

	buf_init(&out, 1000);
	utf8_replace(text, strlen(text), &out);
	is_str(buf_str(&out), want, "%s", what);
	buf_release(&out);
}

#define R "\xef\xbf\xbd"

TEST(replace)
{
	is_replaced("a\xf1\x80\x80\xe1\x80\xc2"
		    "b\x80"
		    "c\x80\xbf"
		    "d",
		    "a" R R R "b" R "c" R R "d", "maximal parts, as in table 3-8 of the standard");
	is_replaced("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
		    "A",
		    R R R R R R R R "A", "overlong forms");
	is_replaced("\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
		    "A",
		    R R R R R R R R "A", "surrogates");
	is_replaced("\xf4\x91\x92\x93\xff"
		    "A\x80\xbf"
		    "B",
		    R R R R R "A" R R "B", "too large");
	is_replaced("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
		    "A",
		    R R R R "A", "cut sequences");
	is_replaced("\xe2\x82", R, "cut at the end");
	is_replaced("whole \xe2\x82\xac", "whole \xe2\x82\xac", "valid text stays as it is");
}

/* ---- NFC ---- */

/* Returns whether c is in a range with code points that are younger than this project's NFC table, or is U+11A7, with
 * which utf8proc 2.8 makes a mistake behind a syllable. */
static bool is_known_difference(uint32_t c)
{
	static const uint32_t first_last[][2] = {
		{0x11a7, 0x11a7},   {0x07fd, 0x07fd}, {0x0897, 0x089f}, {0x08ca, 0x08d3},
		{0x09fe, 0x09fe},   {0x0c3c, 0x0c3c}, {0x0d3b, 0x0d3c}, {0x0eba, 0x0eba},
		{0x1715, 0x1715},   {0x1abf, 0x1aff}, {0x1df6, 0x1dfa}, {0xa82c, 0xa82c},
		{0x10500, 0x1ffff},
	};

	for (size_t i = 0; i < ARRAY_SIZE(first_last); i++)
		if (c >= first_last[i][0] && c <= first_last[i][1])
			return true;
	return false;
}

static uint32_t random_code_point(void)
{
	static const uint32_t blocks[][2] = {
		{'A', 'z'},	  {0xc0, 0x24f},    {0x300, 0x36f},   {0x300, 0x345},
		{0x370, 0x3ff},	  {0x591, 0x5c7},   {0x610, 0x6ff},   {0x900, 0xdff},
		{0xf71, 0xf84},	  {0x1100, 0x11ff}, {0x1100, 0x1112}, {0x1161, 0x1175},
		{0x11a8, 0x11c2}, {0xac00, 0xac70}, {0x1e00, 0x1fff}, {0x2126, 0x212b},
		{0x3040, 0x30ff}, {0xf900, 0xfaff}, {0xfb1d, 0xfb4f}, {0x0, 0xd7ff},
	};
	uint32_t c;

	do {
		size_t b = random_below(ARRAY_SIZE(blocks));

		c = blocks[b][0] + (uint32_t)random_below(blocks[b][1] - blocks[b][0] + 1);
	} while (!c || is_known_difference(c));
	return c;
}

TEST(nfc_like_utf8proc)
{
	struct buf out;
	size_t changed = 0;

	buf_init(&out, 1 << 20);
	for (int i = 0; i < 200000; i++) {
		char text[256];
		size_t len = 0, n = 1 + random_below(20);
		char *want;
		int r;

		while (n-- > 0)
			len += utf8_encode(random_code_point(), text + len);
		text[len] = 0;
		want = (char *)utf8proc_NFC((unsigned char *)text);
		buf_reset(&out);
		r = unicode_nfc(table, text, len, &out);
		check(r == (strcmp(text, want) != 0) || r == 1);
		check(!strcmp(r ? buf_str(&out) : text, want));
		changed += r == 1;
		if (r == 1) {
			char *again = strdup(buf_str(&out));

			buf_reset(&out);
			r = unicode_nfc(table, again, strlen(again), &out);
			check(r == 0 || !strcmp(buf_str(&out), again));
			free(again);
		}
		free(want);
	}
	check(changed > 50000);
	ok_all("NFC of random text is utf8proc's, and a second time changes nothing");
	buf_release(&out);
}

static void is_nfc(const char *text, const char *want, const char *what)
{
	struct buf out;
	int r;

	buf_init(&out, 1 << 20);
	buf_puts(&out, ">");
	r = unicode_nfc(table, text, strlen(text), &out);
	ok(r >= 0 && !strcmp(r ? buf_str(&out) + 1 : text, want), "%s", what);
	buf_release(&out);
}

TEST(nfc_by_hand)
{
	struct buf out;
	char *marks = calloc(1, 200001);

	buf_init(&out, 4);
	ok(unicode_nfc(table, "plain", 5, &out) == 0 && !out.data, "ASCII costs nothing");
	ok(unicode_nfc(table, "\u00e9\u4e2d\uac00", 8, &out) == 0 && !out.data, "nor does NFC");
	ok(unicode_nfc(table, "abcde\u0301", 7, &out) < 0 && out.len == 0,
	   "a result past the maximum is an error");
	buf_release(&out);
	is_nfc("e\u0301x", "\u00e9x", "what composes");
	is_nfc("abc d\u0307\u0323 e", "abc \u1e0d\u0307 e", "what changes places");
	is_nfc("\uac00\u11a8 \uac00\u11a7", "\uac01 \uac00\u11a7", "U+11A7 joins no syllable");
	is_nfc("a\u1df6\u0323", "a\u1df6\u0323", "a mark of Unicode 10 does not move");
	is_nfc("a\u1df6\u0323\u0301", "a\u1df6\u0323\u0301", "and nothing passes it");
	is_nfc("\U00011935\U00011930", "\U00011935\U00011930", "letters of Unicode 13 stay apart");
	is_nfc("\U00011938\u0301\u0323", "\U00011938\u0323\u0301", "and are not taken apart");
	is_nfc("\u0301\u0323", "\u0323\u0301", "marks without a starter");
	/* 50,000 pairs of marks are sorted in one go: all U+0323 (below a letter) then come before all U+0301 (above
	 * it). */
	for (int i = 0; i < 50000; i++)
		memcpy(marks + 4 * i, "\u0301\u0323", 4);
	buf_init(&out, 1 << 20);
	check(unicode_nfc(table, marks, 200000, &out) == 1 && out.len == 200000);
	for (int i = 0; i < 50000; i++)
		check(!memcmp(out.data + 2 * i, "\u0323", 2) &&
		      !memcmp(out.data + 100000 + 2 * i, "\u0301", 2));
	ok_all("a long run of marks");
	buf_release(&out);
	free(marks);
}

TEST(classes)
{
	ok(unicode_is_word(table, 'a') && unicode_is_word(table, '_') &&
		   unicode_is_word(table, 0x0301) && unicode_is_word(table, '7') &&
		   unicode_is_word(table, 0x2163) && unicode_is_word(table, 0x24b6),
	   "word characters");
	ok(!unicode_is_word(table, ' ') && !unicode_is_word(table, '-') &&
		   !unicode_is_word(table, 0xbd) && !unicode_is_word(table, '\n') &&
		   !unicode_is_word(table, 0x1f642),
	   "others");
	ok(unicode_table() == table, "the table is made once");
	is_int(unicode_entry(table, 0x10ffff) & UNICODE_CLASS, UNICODE_OTHER,
	       "the last code point");
	is_int(unicode_entry(table, 0xe0100) & UNICODE_CLASS, UNICODE_MARK, "a variation selector");
}

int main(void)
{
	table = unicode_table();
	if (!ok(table != NULL, "the table is built"))
		return done();
	run_tests();
	return done();
}
