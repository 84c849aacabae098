/* protocol/grammar/constraint: choices, GBNF and regular expressions. Random regular expressions are compared with
 * PCRE2. */
#include "protocol/grammar/constraint.h"

#include <errno.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/regex.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { MAX_BYTES = 64 << 20 };

/* The grammar that was built last. */
static struct grammar *grammar;
static struct automaton *automaton;
static struct err why;

static int keep(int r)
{
	if (!r && automaton_new(grammar, MAX_BYTES, NULL, &automaton) < 0)
		abort();
	return r;
}

static void drop(void)
{
	automaton_free(automaton);
	grammar_free(grammar);
	automaton = NULL;
	grammar = NULL;
}

static bool reads_bytes(const char *text, size_t len)
{
	return automaton_may_end(automaton, automaton_read(automaton, AUTOMATON_START, text, len));
}

/* Checks which of two lists of texts the grammar has: all of `yes`, none of `no`. A list is separated by bars. */
static void has(const char *name, const char *yes, const char *no)
{
	for (int list = 0; list < 2; list++) {
		for (const char *at = list ? no : yes; at;
		     at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
			size_t len = strcspn(at, "|");

			if (reads_bytes(at, len) != !list) {
				tap_quiet++;
				printf("# %s: %.*s\n", list ? "accepted" : "not accepted", (int)len,
				       at);
			}
		}
	}
	ok_all("%.*s", (int)strcspn(name, "\n"), name);
	drop();
}

static void gbnf(const char *text, const char *yes, const char *no)
{
	if (keep(constraint_gbnf(text, strlen(text), &grammar, &why)) < 0) {
		ok(false, "%s: %s", text, why.text);
		return;
	}
	has(text, yes, no);
}

static void gbnf_wrong(const char *text, const char *sentence)
{
	is_int(constraint_gbnf(text, strlen(text), &grammar, &why) < 0, 1, "refused");
	is_str(why.text, sentence, "%s", sentence);
}

static void regex(const char *text, const char *yes, const char *no)
{
	if (keep(constraint_regex(text, strlen(text), &grammar, &why)) < 0) {
		ok(false, "%s: %s", text, why.text);
		return;
	}
	has(text, yes, no);
}

static void regex_wrong(const char *text, int code, const char *sentence)
{
	is_int(constraint_regex(text, strlen(text), &grammar, &why), -code, "%s is refused", text);
	is_str(why.text, sentence, "%s", sentence);
}

TEST(choice)
{
	static const struct constraint_text texts[] = {{"yes", 3},
						       {"no", 2},
						       {"yes, but", 8},
						       {"\xff\0", 2}};

	is_int(keep(constraint_choice(texts, 4, &grammar, &why)), 0, "a choice");
	ok(reads_bytes("\xff\0", 2) && !reads_bytes("\xff", 1), "any bytes");
	has("choices", "yes|no|yes, but", "|y|yes,|yesno");
	is_int(constraint_choice(texts, 0, &grammar, &why), -EINVAL, "no choice at all");
}

TEST(gbnf)
{
	gbnf("root ::= \"a\" [b-d]* (\"x\" | \"y\")?", "a|ab|abcdx|ay", "|x|axy|ae");
	gbnf("# first\nroot ::= item (\",\" item)* # all\n\nitem ::= [0-9]+ |\n  \"(\" root \")\"\n",
	     "1|12,3|(1,2),(3)|((((4))))", "|,|(|1,|((1)");
	gbnf("root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\"", "A\u00e9\U0001F600\n\"\\", "A");
	gbnf("root ::= [^a-c\\]é]", "d|\u00e8|-|^", "a|b|c|]|\u00e9|dd");
	gbnf("root ::= [a\\-]{2} . {1,2} \"z\"{,1} [-x]{0}", "a-\u00e9|aabb|--xxz", "a-|a-xxx|az");
	gbnf("root ::=\n  a\n  | b\na ::= \"1\"\nb ::= \"2\" | ", "1|2|", "3");
	gbnf("root ::= [^]", "a|\u00e9", "|ab");
	gbnf("root ::= \"a\" root \"b\" | \"\"", "|ab|aaabbb", "a|aab|abb");
	gbnf("root ::= w [ \\t\\n]+ w\nw ::= [a-zA-Z_-]+", "a b|a_\t\n -b", "a|a |ab");
	gbnf_wrong("root = \"a\"",
		   "the grammar is wrong in line 1: a rule has no ::= behind its name");
	gbnf_wrong("root ::= a\n", "the grammar does not define the rule \"a\"");
	gbnf_wrong("a ::= \"b\"\n", "the grammar does not define the rule \"root\"");
	gbnf_wrong("root ::= \"a\"\n\nroot ::= \"b\"",
		   "the grammar is wrong in line 3: a rule is defined twice");
	gbnf_wrong("root ::= \"a", "the grammar is wrong in line 1: a text has no closing quote");
	gbnf_wrong("root ::= [a", "the grammar is wrong in line 1: a class has no closing bracket");
	gbnf_wrong("root ::= [z-a]",
		   "the grammar is wrong in line 1: a range of a class goes backwards");
	gbnf_wrong("root ::= (\"a\"",
		   "the grammar is wrong in line 1: a group has no closing parenthesis");
	gbnf_wrong(
		"root ::= \"a\"{2,1}",
		"the grammar is wrong in line 1: the minimum of a quantifier is above its maximum");
	gbnf_wrong("root ::= \"a\" )",
		   "the grammar is wrong in line 1: a rule is followed by something else");
	gbnf_wrong("root ::= \"\\q\"",
		   "the grammar is wrong in line 1: a backslash is followed by no known escape");
	gbnf_wrong("root ::= \"\\ud800\"",
		   "the grammar is wrong in line 1: an escape names no code point");
	gbnf_wrong("root ::= root \"a\" | \"b\"",
		   "the rule \"root\" is left-recursive: it calls itself before it reads anything");
	gbnf_wrong("root ::= \"\xff\"", "the grammar is not UTF-8, or has a zero byte");
}

TEST(regex)
{
	regex("ab*c+d?", "ac|abbcc|abcd", "ab|acdd|");
	regex("(foo|ba[rz]){2}", "foofoo|barbaz", "foo|bafoo");
	regex("^\\d{3}-\\d{4}$", "123-4567", "123-456|1234567|\u0663\u0663\u0663-4567");
	regex("[^\\W\\d_]+", "abc|Z", "a1|_");
	regex("\\w+\\s\\S+", "ab_1 \u4e16|a\tb", "ab|a  ");
	regex("\\p{Lu}\\p{L}*", "\u00c9a\u00df|A", "a|1");
	regex("(?:a|)(?<name>b)??\\.\\/", "ab./|./|b./", "a|ab.");
	regex("\\u00e9\\u{1F600}\\x41\\ud83d\\ude00", "\u00e9\U0001F600A\U0001F600", "\u00e9");
	regex("[a-]|[-b]", "a|-|b", "]|ab");
	regex("", "", "a");
	regex("a{2,3}?b", "aab|aaab", "ab|aaaab");
	regex("(^a|b$)|^c$", "a|b|c", "ab");
}

TEST(regex_refusals)
{
	static const char end[] = " in a regular expression is not supported";
	static const struct {
		const char *pattern, *what;
	} unsupported[] = {
		{"a(?=b)", "lookahead"},
		{"a(?!b)", "lookahead"},
		{"(?<=a)b", "lookbehind"},
		{"(?<!a)b", "lookbehind"},
		{"(a)\\1", "the reference to a group"},
		{"(?<n>a)\\k<n>", "the reference to a group \\k"},
		{"\\bfoo", "the word boundary \\b"},
		{"\\Boo", "\\B"},
		{"(?i)a", "a group with flags"},
		{"a$b", "an anchor within the text"},
		{"a^", "an anchor within the text"},
		{"(a|^)*", "a repeated anchor"},
		{"\\q", "an unknown escape"},
		{"\\p{Greek}", "a property that is not a general category"},
		{"[]a]", "a class that begins with ]"},
		{"a{,2}", "a quantifier without a minimum"},
		{"[a-\\d]", "a range that begins or ends with a class"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(unsupported); i++) {
		char text[200];

		snprintf(text, sizeof(text), "%s%s", unsupported[i].what, end);
		regex_wrong(unsupported[i].pattern, PROBLEM_UNSUPPORTED, text);
	}
	regex_wrong("a)", EINVAL, "the regular expression is wrong: a parenthesis closes no group");
	regex_wrong("(a", EINVAL,
		    "the regular expression is wrong: a group has no closing parenthesis");
	regex_wrong("[a", EINVAL,
		    "the regular expression is wrong: a class has no closing bracket");
	regex_wrong("*a", EINVAL,
		    "the regular expression is wrong: a quantifier has nothing to repeat");
	regex_wrong("{2}a", EINVAL,
		    "the regular expression is wrong: a quantifier has nothing to repeat");
	regex_wrong("a**", EINVAL,
		    "the regular expression is wrong: a quantifier follows a quantifier");
	regex_wrong(
		"a{3,2}", EINVAL,
		"the regular expression is wrong: the minimum of a quantifier is above its maximum");
	regex_wrong("\\", EINVAL, "the regular expression is wrong: it ends with a backslash");
	regex_wrong("a{70000}", E2BIG, "the grammar has a repetition of more than 65536 times");
	regex_wrong("((((a{60000}){60000}){60000}){60000})", E2BIG,
		    "the grammar is too large: it has more than 262144 nodes");
}

/* ---- random expressions ---- */

enum { LEN = 4 };

static const char letters[] = "ab\"\n";

static unsigned long matching, other;

/* Compares all texts of up to LEN letters. */
static void compare(pcre2_code *code, struct regex_form form, struct regex_lengths lengths)
{
	pcre2_match_data *data = pcre2_match_data_create(1, NULL);

	for (size_t len = 0; len <= LEN; len++) {
		for (unsigned n = 0; n < 1u << 2 * len; n++) {
			char text[LEN], encoded[2 * LEN];
			size_t at = 0;
			bool want, got;

			for (size_t i = 0; i < len; i++) {
				char c = text[i] = letters[n >> 2 * i & 3];

				if (form.json && (c == '"' || c == '\n'))
					encoded[at++] = '\\';
				encoded[at++] = form.json && c == '\n' ? 'n' : c;
			}
			want = pcre2_match(code, (PCRE2_SPTR)text, len, 0,
					   form.search ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED,
					   data, NULL) >= 0;
			got = reads_bytes(encoded, at);
			check(got == want);
			check(!got || (len >= lengths.min && len <= lengths.max));
			if (want)
				matching++;
			else
				other++;
		}
	}
	pcre2_match_data_free(data);
}

/* Texts that are large because they say the same again and again. */
TEST(large)
{
	struct buf text;

	buf_init(&text, (size_t)4 << 20);
	buf_puts(&text, "root ::= [");
	for (int i = 0; i < 1100000; i++)
		buf_putc(&text, 'a');
	buf_puts(&text, "]");
	is_int(keep(constraint_gbnf(text.data, text.len, &grammar, &why)), 0,
	       "a class that names one letter 1,100,000 times");
	has("the letter", "a", "b|aa");
	buf_release(&text);

	buf_init(&text, (size_t)4 << 20);
	while (text.len < 60000)
		buf_puts(&text, "\\p{L}");
	is_int(constraint_regex(text.data, text.len, &grammar, &why), -E2BIG,
	       "12,000 times all letters");
	is_str(why.text, "the classes of a regular expression have more than 262144 ranges", "%s",
	       why.text);
	buf_release(&text);
}

static bool give_up(void *arg)
{
	++*(unsigned *)arg;
	return true;
}

/* Each description as a value, and with a pace that gives up at its first question. */
TEST(values)
{
	static const struct constraint_text texts[] = {{"a", 1}, {"bb", 2}};
	struct constraint all[] = {
		{.kind = CONSTRAINT_CHOICE, .texts = texts, .n_texts = 2},
		{.kind = CONSTRAINT_GBNF, .text = {"root ::= \"a\" | \"bb\"", 19}},
		{.kind = CONSTRAINT_REGEX, .text = {"a|bb", 4}},
	};
	unsigned asked = 0;
	struct pace pace = {give_up, &asked};
	struct buf text;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		is_int(keep(constraint_grammar(&all[i], NULL, &grammar, &why)), 0, "kind %d",
		       (int)all[i].kind);
		has("two texts", "a|bb", "|b|ab");
	}
	all[0] = (struct constraint){.kind = CONSTRAINT_JSON_OBJECT};
	is_int(keep(constraint_grammar(&all[0], NULL, &grammar, &why)), 0, "any object");
	has("objects", "{}|{\"a\": 1}", "[]|1");
	buf_init(&text, 1 << 20);
	buf_puts(&text, "root ::= a1\n");
	for (int i = 0; i < 4000; i++)
		buf_printf(&text, "a%d ::= \"x\" | \"y\"\n", i);
	all[1].text = (struct constraint_text){text.data, text.len};
	is_int(constraint_grammar(&all[1], &pace, &grammar, &why), -ECANCELED, "a long grammar");
	is_int(asked, 1, "which is not wanted any more at the first question");
	buf_release(&text);
}

TEST(random_expressions)
{
	static const char *const pieces[] = {"a",   "b",     "[ab]", "[^a]", ".",      "(",
					     ")",   "(",     ")",    "|",    "*",      "+",
					     "?",   "{1,2}", "{2}",  "^",    "$",      "\"",
					     "\\n", "\\w",   "\\W",  "\\s",  "[^\\s]", "(?:",
					     "a*?", "[\"b]"};
	unsigned compared = 0;

	for (int round = 0; round < 40000 && compared < 1000; round++) {
		struct grammar_builder *b;
		struct regex_form form = {random_below(2), random_below(2)};
		struct regex_lengths lengths;
		char pattern[80];
		size_t len = random_pieces(pieces, ARRAY_SIZE(pieces), 9, pattern, sizeof(pattern));
		pcre2_code *code;
		uint32_t x, root;
		PCRE2_SIZE offset;
		int error;

		b = grammar_builder_new();
		if (!b)
			abort();
		if (regex_expression(b, pattern, len, form, &x, &lengths, &why) < 0) {
			grammar_builder_free(b);
			continue;
		}
		root = grammar_rule(b, "root");
		grammar_define(b, root, x);
		code = pcre2_compile((PCRE2_SPTR)pattern, len, PCRE2_UTF | PCRE2_DOLLAR_ENDONLY,
				     &error, &offset, NULL);
		check(code != NULL);
		if (code && keep(grammar_build(b, root, &grammar, &why)) == 0) {
			int before = tap_quiet;

			compared++;
			compare(code, form, lengths);
			if (tap_quiet > before && tap_quiet < 10)
				printf("# pattern: %s (search %d, json %d)\n", pattern, form.search,
				       form.json);
			drop();
		} else {
			check(strstr(why.text, "no text that ends"));
		}
		pcre2_code_free(code);
		grammar_builder_free(b);
	}
	ok_all("%u random expressions", compared);
	ok(compared == 1000 && matching > 10000 && other > 10000, "%lu matches, %lu other texts",
	   matching, other);
}

TEST_MAIN()
