/* Python's str on UTF-8: searching, broken bytes, case. */
#include <stdlib.h>

#include "base/utf8.h"
#include "protocol/text/jinja_pystr.h"
#include "tests/tap.h"

static size_t naive_rfind(const char *s, size_t n, const char *needle, size_t m)
{
	for (size_t at = n - m + 1; m <= n && at-- > 0;)
		if (!memcmp(s + at, needle, m))
			return at;
	return SIZE_MAX;
}

/* Texts of two letters, so that needles nearly fit in many places. */
static void test_search(void)
{
	uint32_t seed = 1;
	char s[300];

	for (int round = 0; round < 20000; round++) {
		size_t n, m, from;

		for (size_t i = 0; i < sizeof(s); i++) {
			seed = seed * 1664525 + 1013904223;
			s[i] = "ab"[seed >> 24 & (round % 3 ? 1 : (seed >> 28) == 0)];
		}
		n = seed % 250;
		m = 1 + (seed >> 8) % 60;
		from = (seed >> 16) % (sizeof(s) - m);
		check(pystr_rfind(s, n, s + from, m) == naive_rfind(s, n, s + from, m));
	}
	ok_all("the last occurrence, of short and of long needles");
	is_int(pystr_rfind("abc", 3, "", 0), 3, "an empty needle is found at the end");
	is_int(pystr_find("abc", 3, "", 0), 0, "and at the beginning");
	ok(pystr_find("abc", 3, "abcd", 4) == SIZE_MAX, "a longer one is not");
	ok(pystr_rfind("abc", 3, "abcd", 4) == SIZE_MAX, "nor from behind");
}

static void test_bytes(void)
{
	static const char broken[] = "a\xff\xc3(\xe2\x82z\xed\xa0\x80\xf4\x90\x80\x80\xc0\xafx";
	size_t n = sizeof(broken) - 1, count = 0, back = 0;
	char text[] = "ok \xe2\x82";
	uint32_t cp;

	for (size_t i = 0; i < n; count++)
		i += pystr_next(broken + i, n - i, &cp);
	for (size_t left = n; left; back++)
		left -= pystr_prev(broken, left, &cp);
	is_int(count, n, "a byte that belongs to nothing counts as one character");
	is_int(back, n, "from behind too");
	is_int(pystr_length(broken, n), count, "the length counts the same");
	pystr_clean(text);
	is_str(text, "ok ??", "cleaned of half a character");
	is_int(pystr_next("", 0, &cp), 0, "nothing");
	is_int(pystr_offset("\xc3\xa9\xc3\xa9", 4, 1), 2, "an offset in bytes");
	is_int(pystr_offset("\xc3\xa9", 2, 9), 2, "at most the end");
	for (uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
		char bytes[4];
		size_t len = utf8_encode(c, bytes);

		if (c >= 0xd800 && c < 0xe000)
			continue;
		check(pystr_next(bytes, len, &cp) == len && cp == c);
		check(pystr_prev(bytes, len, &cp) == len && cp == c);
		for (size_t cut = 1; cut < len; cut++)
			check(pystr_next(bytes, cut, &cp) == 1 && cp == 0xfffd);
	}
	ok_all("characters survive a round trip, and cut ones are broken bytes");
}

static const char *recased(const char *s, enum pystr_case to)
{
	static struct buf b;

	if (!b.max)
		buf_init(&b, 1 << 20);
	buf_reset(&b);
	pystr_recase(&b, s, strlen(s), to);
	return buf_str(&b);
}

static void test_case(void)
{
	is_str(recased("stra\xc3\x9f"
		       "e \xef\xac\x81",
		       PYSTR_UPPER),
	       "STRASSE FI", "one character becomes several");
	is_str(recased("\xce\x9f\xce\xa3 \xce\xa3\xce\x9f", PYSTR_LOWER),
	       "\xce\xbf\xcf\x82 \xcf\x83\xce\xbf", "a sigma at the end of a word is another");
	is_str(recased("they're \xc7\x86", PYSTR_TITLE), "They'Re \xc7\x85", "title");
	is_str(recased("\xc3\x9f"
		       "A",
		       PYSTR_CAPITALIZE),
	       "Ssa", "capitalize");
	is_str(recased("aB1", PYSTR_SWAPCASE), "Ab1", "swapcase");
}

int main(void)
{
	test_search();
	test_bytes();
	test_case();
	return done();
}
