/* Python's str on UTF-8: broken bytes, characters, white space; and case, compared with that of a Python.
 *
 *     test_jinja PYTHON      an interpreter, for tests/casing.py */
#include <stdlib.h>

#include "base/macros.h"
#include "base/utf8.h"
#include "protocol/jinja/text.h"
#include "tests/tap.h"

TEST(bytes)
{
	static const char broken[] = "a\xff\xc3(\xe2\x82z\xed\xa0\x80\xf4\x90\x80\x80\xc0\xafx";
	size_t n = sizeof(broken) - 1, count = 0, back = 0;
	char text[] = "ok \xe2\x82";
	uint32_t cp;

	for (size_t i = 0; i < n; count++)
		i += text_next(broken + i, n - i, &cp);
	for (size_t left = n; left; back++)
		left -= text_prev(broken, left, &cp);
	is_int(count, n, "a byte that belongs to nothing counts as one character");
	is_int(back, n, "from behind too");
	text_clean(text);
	is_str(text, "ok ??", "cleaned of half a character");
	is_int(text_next("", 0, &cp), 0, "nothing");
	is_int(text_length("a\xc3\xa9\xf0\x9f\x98\x80", 7), 3, "a length in characters");
	is_int(text_offset("\xc3\xa9\xc3\xa9", 4, 1), 2, "an offset in bytes");
	is_int(text_offset("\xc3\xa9", 2, 9), 2, "at most the end");
	for (uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
		char bytes[4];
		size_t len = utf8_encode(c, bytes);

		if (c >= 0xd800 && c < 0xe000)
			continue;
		check(text_next(bytes, len, &cp) == len && cp == c);
		check(text_prev(bytes, len, &cp) == len && cp == c);
		for (size_t cut = 1; cut < len; cut++)
			check(text_next(bytes, cut, &cp) == 1 && cp == 0xfffd);
	}
	ok_all("characters survive a round trip, and cut ones are broken bytes");
}

TEST(search)
{
	is_int(text_find("abc", 3, "", 0), 0, "an empty needle is found at the beginning");
	is_int(text_find("abcb", 4, "b", 1), 1, "the first occurrence");
	ok(text_find("abc", 3, "abcd", 4) == SIZE_MAX, "a longer needle is not there");
}

TEST(classes)
{
	ok(text_is('a', TEXT_LOWER) && text_is(0xdf, TEXT_LOWER), "small letters");
	ok(text_is(0x1c5, TEXT_CASED) && !text_is(0x1c5, TEXT_LOWER),
	   "a titlecase letter has case");
	ok(!text_is(0xaa, TEXT_LOWER), "a sign without case has none");
	ok(text_is('_', TEXT_NAME_START) && !text_is('1', TEXT_NAME_START), "a name begins");
	ok(text_is('1', TEXT_NAME) && text_is(0xe9, TEXT_NAME), "and goes on");
	ok(text_is(0x2003, TEXT_SPACE) && text_is(0x1f, TEXT_SPACE), "white space");
	ok(!text_is(0x200b, TEXT_SPACE) && !text_is(0x200b, TEXT_PRINTABLE), "no white space");
	ok(text_is(' ', TEXT_PRINTABLE) && !text_is(0xa0, TEXT_PRINTABLE), "printable");
}

static void is_line(const char *s, size_t want, size_t want_break, const char *name)
{
	size_t end, n = text_line(s, strlen(s), &end);

	ok(n == want && end == want_break, "a line: %s", name);
}

TEST(lines)
{
	is_line("ab", 2, 0, "the last one");
	is_line("ab\ncd", 2, 1, "newline");
	is_line("ab\r\ncd", 2, 2, "both");
	is_line("\rcd", 0, 1, "empty");
	is_line("a\xe2\x80\xa8"
		"b",
		1, 3, "U+2028");
	is_line("a\x1d"
		"b",
		1, 1, "U+001D");
}

/* Decodes a hexadecimal text in place. Returns the number of its bytes. */
static size_t take_hex(char *text)
{
	size_t n = strlen(text) / 2;
	unsigned byte;

	for (size_t i = 0; i < n; i++) {
		check(sscanf(text + 2 * i, "%2x", &byte) == 1);
		text[i] = (char)byte;
	}
	return n;
}

/* Ends the first field of a line, and moves *line behind it. Returns the field. */
static char *next_field(char **line)
{
	char *field = *line, *end = field + strcspn(field, " \n");

	*line = *end ? end + 1 : end;
	*end = 0;
	return field;
}

/* A line of casing.py has a text and that text in four other cases. Returns whether text_recase makes the four of the
 * first. Changes the line. */
static bool is_like_python(char *line)
{
	static const enum casing casings[] = {CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE};
	char *text = next_field(&line);
	size_t n = take_hex(text);
	bool same = n > 0;
	struct buf b;

	buf_init(&b, 1 << 10);
	for (size_t i = 0; same && i < ARRAY_SIZE(casings); i++) {
		char *want = next_field(&line);
		size_t n_want = take_hex(want);

		buf_reset(&b);
		text_recase(&b, text, n, casings[i]);
		same = b.len == n_want && !memcmp(b.data, want, n_want);
	}
	buf_release(&b);
	return same;
}

static void test_casing(const char *python)
{
	char command[4200], line[256], shown[256];
	unsigned long n = 0, differ = 0;
	FILE *f;

	snprintf(command, sizeof(command), "'%s' tests/casing.py", python);
	f = popen(command, "r");
	while (f && fgets(line, sizeof(line), f)) {
		memcpy(shown, line, sizeof(line));
		n++;
		if (!is_like_python(line) && differ++ < 20)
			printf("# %s", shown);
	}
	ok(f && pclose(f) == 0 && n > 100000, "Python recases %lu texts", n);
	is_int(differ, 0, "and so does text_recase");
}

int main(int argc, char **argv)
{
	run_tests();
	test_casing(argc > 1 ? argv[1] : "python3");
	return done();
}
