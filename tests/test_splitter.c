/*
 * The splitter: the patterns that have code of their own ("by hand") are compared with PCRE2 on random
 * text; the rest is tested by example.
 *
 * PCRE2 may know another version of Unicode. Code points that it puts into another class than our table
 * does are kept out of the random texts. (TEST(classes) of test_tokenizer.c checks our table.)
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "protocol/tokenizer/splitter.h"
#include "protocol/tokenizer/unicode.h"
#include "tests/random.h"
#include "tests/tap.h"

static uint32_t *agreed; /* [n_agreed] code points on which PCRE2 and our table agree */
static size_t n_agreed;

static void find_agreed(void)
{
	static const char *const patterns[] = {
		[UNICODE_LETTER] = "^\\p{L}$",
		[UNICODE_NUMBER] = "^\\p{N}$",
		[UNICODE_MARK] = "^\\p{M}$",
		[UNICODE_SPACE] = "^\\p{White_Space}$",
	};
	const struct unicode *u = unicode_table();
	pcre2_match_data *match = pcre2_match_data_create(1, NULL);
	pcre2_code *codes[ARRAY_SIZE(patterns)] = {NULL};
	enum { LAST = 0x33480 };

	for (size_t k = 1; k < ARRAY_SIZE(patterns); k++) {
		int error;
		PCRE2_SIZE at;

		codes[k] = pcre2_compile((PCRE2_SPTR)patterns[k], PCRE2_ZERO_TERMINATED,
					 PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &at,
					 NULL);
		pcre2_jit_compile(codes[k], PCRE2_JIT_COMPLETE);
	}
	agreed = malloc(LAST * sizeof(*agreed));
	for (uint32_t c = 1; c < LAST; c++) {
		unsigned class = unicode_entry(u, c) & UNICODE_CLASS;
		char text[4];
		size_t len;
		bool same = true;

		if (c >= 0xd800 && c <= 0xdfff)
			continue;
		len = utf8_encode(c, text);
		class = class == UNICODE_NEWLINE ? UNICODE_SPACE : class;
		for (size_t k = 1; k < ARRAY_SIZE(patterns); k++)
			same = same && (pcre2_match(codes[k], (PCRE2_SPTR)text, len, 0, 0, match,
						    NULL) > 0) == (class == k);
		if (same)
			agreed[n_agreed++] = c;
	}
	for (size_t k = 1; k < ARRAY_SIZE(patterns); k++)
		pcre2_code_free(codes[k]);
	pcre2_match_data_free(match);
}

/* ---- helpers ---- */

static int join(void *arg, const char *text, size_t len)
{
	buf_append(arg, text, len);
	buf_putc(arg, '|');
	return 0;
}

/* Writes the words to `out`, with a bar behind each; or "error N", if splitter_run returns N < 0. */
static void split(const struct splitter *s, const char *text, size_t len, struct buf *out)
{
	int r;

	buf_reset(out);
	r = splitter_run(s, text, len, join, out);
	if (r < 0) {
		buf_reset(out);
		buf_printf(out, "error %d", r);
	}
}

static size_t random_text(char *out, size_t size)
{
	static const char *const pieces[] = {"'",	 "'",	   "s",	     "S",      "t",
					     "re",	 "VE",	   "m",	     "l",      "ll",
					     "d",	 "\u017f", "\u212a", "a",      "x",
					     " ",	 " ",	   "  ",     "\t",     "\n",
					     "\r",	 "\r\n",   "\u00a0", "\u2028", "\u3000",
					     "\xc2\x85", "\u180e", "1",	     "22",     "\u0663",
					     "\u00bd",	 "!",	   "--",     "\u0301", "\u20dd",
					     "\u4e2d",	 "_"};
	size_t n = 1 + random_below(30), len = 0;

	while (n-- > 0 && len + 8 < size) {
		if (random_below(4)) {
			const char *p = pieces[random_below(ARRAY_SIZE(pieces))];

			memcpy(out + len, p, strlen(p));
			len += strlen(p);
		} else {
			len += utf8_encode(agreed[random_below(n_agreed)], out + len);
		}
	}
	return len;
}

/* ---- the patterns that have code of their own ---- */

static void test_by_hand(const char *name, const char *pattern)
{
	struct splitter *hand = splitter_new(), *pcre = splitter_new();
	struct buf got, want;
	struct err e = {0};

	buf_init(&got, 1 << 20);
	buf_init(&want, 1 << 20);
	check(splitter_add_pattern(hand, pattern, SPLITTER_ISOLATED, false, &e) == 0);
	check(splitter_add_pcre(pcre, pattern, SPLITTER_ISOLATED, false, &e) == 0);
	for (int i = 0; i < 150000; i++) {
		char text[512];
		size_t len = random_text(text, sizeof(text));

		split(hand, text, len, &got);
		split(pcre, text, len, &want);
		if (strcmp(buf_str(&got), buf_str(&want)) && tap_quiet++ < 5)
			printf("# text [%.*s]\n# got  %s\n# want %s\n", (int)len, text,
			       buf_str(&got), buf_str(&want));
	}
	ok_all("%s by hand cuts as PCRE2 does", name);
	buf_release(&got);
	buf_release(&want);
	splitter_free(hand);
	splitter_free(pcre);
}

/* ---- by example ---- */

static void cuts(const char *pattern, enum splitter_behavior behavior, bool invert,
		 const char *text, const char *want)
{
	struct splitter *s = splitter_new();
	struct err e = {0};
	struct buf got;

	buf_init(&got, 1 << 20);
	if (splitter_add_pattern(s, pattern, behavior, invert, &e) < 0)
		buf_puts(&got, e.text);
	else
		split(s, text, strlen(text), &got);
	is_str(buf_str(&got), want, "%s, behaviour %d%s", pattern, behavior,
	       invert ? ", inverted" : "");
	buf_release(&got);
	splitter_free(s);
}

TEST(examples)
{
	cuts("x*", SPLITTER_ISOLATED, false, "aaxxb", "a|a|xx|b|");
	cuts("x*", SPLITTER_REMOVED, false, "aaxxb", "a|a|b|");
	cuts("\\s+", SPLITTER_REMOVED, false, " a b  c", "a|b|c|");
	cuts("\\s+", SPLITTER_REMOVED, true, " a b  c", " | |  |");
	cuts("\\s+", SPLITTER_ISOLATED, true, "a b", "a| |b|");
	cuts("\\s", SPLITTER_ISOLATED, false, "a\u180eb\u2003c\u200bd",
	     "a\u180eb|\u2003|c\u200bd|");
	cuts("[^\\S]", SPLITTER_ISOLATED, false, "a\u180eb\u2003c", "a\u180eb|\u2003|c|");
	cuts("^b", SPLITTER_ISOLATED, false, "a\nb", "a\n|b|");
	cuts("\\d+", SPLITTER_ISOLATED, false, "a12\uff13b\u00bd", "a|12\uff13|b\u00bd|");
	cuts("\\p{L}++|[]a]", SPLITTER_ISOLATED, false, "ab]c", "ab|]|c|");
	cuts("\\p{N}{1,3}", SPLITTER_ISOLATED, false, "1234567", "123|456|7|");
	cuts("(?i:k)", SPLITTER_ISOLATED, false, "ak\u212aK", "a|k|\u212a|K|");
	cuts(SPLITTER_GPT2, SPLITTER_ISOLATED, false, "it's  a b1\n", "it|'s| | a| b|1|\n|");
	cuts(SPLITTER_QWEN2, SPLITTER_REMOVED, true, "a b", "a| b|");
	cuts(SPLITTER_QWEN2, SPLITTER_REMOVED, false, "a b", "");
}

TEST(stages)
{
	struct splitter *s = splitter_new();
	struct err e = {0};
	struct buf got;

	buf_init(&got, 1 << 20);
	split(s, "all one", 7, &got);
	is_str(buf_str(&got), "all one|", "without stages a text is a word");
	split(s, "", 0, &got);
	is_str(buf_str(&got), "", "and no text is none");
	check(splitter_add_literal(s, ".*", SPLITTER_REMOVED, false, &e) == 0);
	check(splitter_add_pattern(s, SPLITTER_LLAMA3, SPLITTER_ISOLATED, false, &e) == 0);
	check(splitter_add_prefix_space(s, &e) == 0);
	ok_all("stages are added");
	split(s, "ab 1234.*  x.*", 14, &got);
	is_str(buf_str(&got), " ab| | 123| 4| | x|", "each sees a piece as a whole text");
	for (int i = 3; i < 16; i++)
		check(splitter_add_prefix_space(s, &e) == 0);
	check(splitter_add_prefix_space(s, &e) == -ENOTSUP);
	check(splitter_add_pattern(s, "a", SPLITTER_ISOLATED, false, &e) == -ENOTSUP);
	ok_all("too many are refused");
	splitter_free(s);
	buf_release(&got);
}

static int third(void *arg, const char *text, size_t len)
{
	int *n = arg;

	return ++*n == 3 ? 77 : 0;
}

TEST(early_end)
{
	static const char *const patterns[] = {SPLITTER_QWEN35, SPLITTER_GPT2};

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		struct splitter *s = splitter_new();
		int n = 0;

		check(splitter_add_pattern(s, patterns[i], SPLITTER_ISOLATED, false, NULL) == 0);
		check(splitter_run(s, "a b c d e", 9, third, &n) == 77 && n == 3);
		splitter_free(s);
	}
	ok_all("what the word's taker returns ends the run");
}

TEST(refused)
{
	static const struct {
		const char *pattern;
		int code;
	} bad[] = {
		{"(a", -EINVAL},	   {"a\\", -EINVAL},	  {"[a", -EINVAL},
		{"\\w", -ENOTSUP},	   {"\\ba", -ENOTSUP},	  {"\\h", -ENOTSUP},
		{"[a[b]]", -ENOTSUP},	   {"[a&&b]", -ENOTSUP},  {"(?m:.)", -ENOTSUP},
		{"(?im:a)", -ENOTSUP},	   {"a{1,2}+", -ENOTSUP}, {"(*UTF)a", -ENOTSUP},
		{"[[:alpha:]]", -ENOTSUP}, {"\\xff", -ENOTSUP},	  {"\\p{Nonsense}", -EINVAL},
		{"(?", -ENOTSUP},	   {"\\C", -ENOTSUP},	  {"\\c[a", -ENOTSUP},
	};
	enum splitter_behavior b;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct splitter *s = splitter_new();
		struct err e = {0};
		int r = splitter_add_pattern(s, bad[i].pattern, SPLITTER_ISOLATED, false, &e);

		if (r != bad[i].code || !e.text[0]) {
			printf("# %s: %d %s\n", bad[i].pattern, r, e.text);
			tap_quiet++;
		}
		splitter_free(s);
	}
	ok_all("patterns that are wrong, or read differently elsewhere, are refused");
	ok(splitter_behavior_parse("Contiguous", &b) == -ENOTSUP &&
		   splitter_behavior_parse("Removed", &b) == 0 && b == SPLITTER_REMOVED,
	   "behaviours have names");
}

static int count(void *arg, const char *text, size_t len)
{
	*(size_t *)arg += len;
	return 0;
}

TEST(hostile)
{
	static const char *const patterns[] = {SPLITTER_QWEN2, SPLITTER_LLAMA3};
	enum { LEN = 4 << 20 };
	char *text = malloc(LEN);
	struct splitter *s;
	size_t n;

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
		for (const char *c = " \na1!'"; *c; c++) {
			struct splitter *pcre = splitter_new();

			memset(text, *c, LEN);
			s = splitter_new();
			check(splitter_add_pattern(s, patterns[i], SPLITTER_ISOLATED, false,
						   NULL) == 0);
			check(splitter_add_pcre(pcre, patterns[i], SPLITTER_ISOLATED, false,
						NULL) == 0);
			n = 0;
			check(splitter_run(s, text, LEN, count, &n) == 0 && n == LEN);
			n = 0;
			check(splitter_run(pcre, text, LEN, count, &n) == 0 && n == LEN);
			splitter_free(s);
			splitter_free(pcre);
		}
	ok_all("four megabytes of one character, by hand and by PCRE2");
	s = splitter_new();
	memset(text, 'a', LEN);
	check(splitter_add_pcre(s, "(?:a|aa)+(?<!a)", SPLITTER_ISOLATED, false, NULL) == 0);
	n = 0;
	is_int(splitter_run(s, text, 4096, count, &n), -E2BIG, "a pattern that explodes gives up");
	splitter_free(s);
	free(text);
}

int main(void)
{
	find_agreed();
	ok(n_agreed > 190000, "PCRE2 agrees on %zu code points", n_agreed);
	test_by_hand("Qwen2", SPLITTER_QWEN2);
	test_by_hand("Qwen3.5", SPLITTER_QWEN35);
	test_by_hand("Llama 3", SPLITTER_LLAMA3);
	run_tests();
	free(agreed);
	return done();
}
