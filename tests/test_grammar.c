/* protocol/grammar: the builder and the automaton. First single constructions and refusals; then random grammars, whose
 * texts of up to 6 letters are compared with those of a naive matcher. */
#include "protocol/grammar/automaton.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/random.h"
#include "tests/tap.h"

enum { MAX_BYTES = 64 << 20 };

struct subject {
	struct grammar *g;
	struct automaton *a;
};

/* Builds the grammar of rule `root`, and frees the builder. */
static int begin(struct grammar_builder *b, uint32_t root, struct subject *s, struct err *e)
{
	int r = grammar_build(b, root, &s->g, e);

	grammar_builder_free(b);
	if (!r && automaton_new(s->g, MAX_BYTES, NULL, &s->a) < 0)
		abort();
	return r;
}

static void end(struct subject *s)
{
	automaton_free(s->a);
	grammar_free(s->g);
}

static bool reads(struct subject *s, const char *text)
{
	return automaton_may_end(s->a, automaton_read(s->a, AUTOMATON_START, text, strlen(text)));
}

static bool begins(struct subject *s, const char *text)
{
	return automaton_read(s->a, AUTOMATON_START, text, strlen(text)) != AUTOMATON_DEAD;
}

static struct grammar_builder *builder(void)
{
	struct grammar_builder *b = grammar_builder_new();

	if (!b)
		abort();
	return b;
}

static int begin_expression(struct grammar_builder *b, uint32_t x, struct subject *s)
{
	uint32_t root = grammar_rule(b, "root");

	grammar_define(b, root, x);
	return begin(b, root, s, NULL);
}

TEST(expressions)
{
	struct grammar_builder *b = builder();
	uint32_t empty = 0;
	struct subject s;

	begin_expression(b,
			 grammar_seq(b, grammar_text(b, "ab"),
				     grammar_repeat(b, grammar_text(b, "x"), 2, 4),
				     grammar_alt(b, grammar_text(b, "1"), grammar_text(b, "22")),
				     grammar_repeat(b, grammar_text(b, "y"), 0, GRAMMAR_NO_LIMIT)),
			 &s);
	ok(reads(&s, "abxx1") && reads(&s, "abxxxx22") && reads(&s, "abxxx1yyyyy"), "texts");
	ok(!begins(&s, "abx1") && !begins(&s, "abxxxxx") && !begins(&s, "b"), "other texts");
	ok(begins(&s, "") && begins(&s, "abxx2") && !reads(&s, "abxx2"), "beginnings");
	end(&s);
	b = builder();
	begin_expression(b, 0, &s);
	ok(reads(&s, "") && !begins(&s, "a"), "the empty text");
	end(&s);
	b = builder();
	for (int i = 0; i < 6; i++)
		empty = grammar_repeat(b, grammar_seq(b, empty, empty), 60000, GRAMMAR_NO_LIMIT);
	begin_expression(b, empty, &s);
	ok(reads(&s, "") && !begins(&s, "a"), "the empty text, repeated without end");
	end(&s);
}

/* A class accepts exactly the UTF-8 of its code points. */
TEST(classes)
{
	static const struct grammar_range ranges[][2] = {
		{{'a', 'f'}, {0x80, 0x90}},	{{0, 0x10ffff}, {0, 0}},
		{{0x7ff, 0x801}, {0, 5}},	{{0xd000, 0xe005}, {0xfffe, 0x10001}},
		{{0x3041, 0x3096}, {'z', 'z'}}, {{0x1f300, 0x1faff}, {0x100000, 0x7fffffff}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		struct grammar_builder *b = builder();
		struct subject s;

		begin_expression(b, grammar_class(b, ranges[i], 2), &s);
		for (uint32_t c = 0; c < 0x110000; c++) {
			uint8_t text[4] = {(uint8_t)c};
			size_t len = 1;
			bool in = (c >= ranges[i][0].lo && c <= ranges[i][0].hi) ||
				  (c >= ranges[i][1].lo && c <= ranges[i][1].hi);

			if (c >= 0x80 && c < 0x800) {
				text[0] = (uint8_t)(0xc0 | c >> 6);
				text[1] = (uint8_t)(0x80 | (c & 0x3f));
				len = 2;
			} else if (c >= 0x800 && c < 0x10000) {
				text[0] = (uint8_t)(0xe0 | c >> 12);
				text[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
				text[2] = (uint8_t)(0x80 | (c & 0x3f));
				len = 3;
			} else if (c >= 0x10000) {
				text[0] = (uint8_t)(0xf0 | c >> 18);
				text[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
				text[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
				text[3] = (uint8_t)(0x80 | (c & 0x3f));
				len = 4;
			}
			if (c >= 0xd800 && c <= 0xdfff)
				in = false;
			check(automaton_may_end(s.a, automaton_read(s.a, AUTOMATON_START, text,
								    len)) == in);
		}
		/* Overlong forms and bytes that begin nothing. */
		check(!begins(&s, "\xc0") && !begins(&s, "\xc1") && !begins(&s, "\xe0\x80") &&
		      !begins(&s, "\xf0\x80") && !begins(&s, "\xf4\x90") && !begins(&s, "\xff") &&
		      !begins(&s, "\xed\xa0"));
		end(&s);
	}
	ok_all("classes of code points");
}

/* n nested pairs of brackets take a frame each; a list that is written with recursion takes none. */
TEST(recursion)
{
	struct grammar_builder *b = builder();
	uint32_t nest = grammar_rule(b, "nest"), list = grammar_rule(b, "list"), size;
	uint32_t state = AUTOMATON_START;
	struct subject s;
	char text[4001];

	grammar_define(b, nest,
		       grammar_alt(b, grammar_text(b, ""),
				   grammar_seq(b, grammar_text(b, "["), grammar_call(b, nest),
					       grammar_text(b, "]"))));
	begin(b, nest, &s, NULL);
	memset(text, '[', 2000);
	memset(text + 2000, ']', 2000);
	text[4000] = 0;
	ok(reads(&s, text) && !reads(&s, text + 1), "2000 brackets are closed");
	end(&s);
	b = builder();
	list = grammar_rule(b, "list");
	grammar_define(b, list,
		       grammar_seq(b, grammar_text(b, "x"),
				   grammar_alt(b, grammar_text(b, ""),
					       grammar_seq(b, grammar_text(b, ","),
							   grammar_call(b, list)))));
	begin(b, list, &s, NULL);
	state = automaton_read(s.a, AUTOMATON_START, "x,x,", 4);
	size = automaton_size(s.a);
	for (int i = 0; i < 1000; i++)
		state = automaton_read(s.a, state, "x,", 2);
	ok(state != AUTOMATON_DEAD && automaton_size(s.a) == size, "a list makes no new states");
	end(&s);
}

/* Checks the sentence with which the grammar root ::= x is refused. */
static void refused(struct grammar_builder *b, uint32_t root, int code, const char *why)
{
	struct subject s = {0};
	struct err e = {0};

	is_int(begin(b, root, &s, &e), -code, "refused");
	is_str(e.text, why, "%s", why);
}

TEST(refusals)
{
	struct grammar_builder *b = builder();
	uint32_t root = grammar_rule(b, "root"), one = grammar_rule(b, "one"), x;

	grammar_define(b, root, grammar_call(b, one));
	refused(b, root, EINVAL, "the rule \"one\" is not defined");

	b = builder();
	root = grammar_rule(b, "root");
	one = grammar_rule(b, "one");
	grammar_define(b, root, grammar_seq(b, grammar_text(b, "a"), grammar_call(b, one)));
	grammar_define(b, one,
		       grammar_alt(b, grammar_text(b, "b"),
				   grammar_seq(b, grammar_repeat(b, grammar_text(b, "x"), 0, 1),
					       grammar_call(b, one), grammar_text(b, "c"))));
	refused(b, root, EINVAL,
		"the rule \"one\" is left-recursive: it calls itself before it reads anything");

	b = builder();
	root = grammar_rule(b, "root");
	grammar_define(b, root, grammar_seq(b, grammar_text(b, "a"), grammar_call(b, root)));
	refused(b, root, EINVAL, "the grammar has no text that ends");

	b = builder();
	root = grammar_rule(b, "root");
	x = grammar_text(b, "abcdefgh");
	for (int i = 0; i < 4; i++)
		x = grammar_repeat(b, x, 1000, 1000);
	grammar_define(b, root, x);
	refused(b, root, E2BIG, "the grammar is too large: it has more than 262144 nodes");

	b = builder();
	root = grammar_rule(b, "root");
	x = grammar_text(b, "a");
	for (int i = 0; i < 500; i++)
		x = grammar_repeat(b, x, 0, 1);
	grammar_define(b, root, x);
	refused(b, root, E2BIG, "the grammar is nested more than 400 deep");
}

/* A branch without finite texts is removed, so no state leads to it. */
TEST(dead_branches)
{
	struct grammar_builder *b = builder();
	uint32_t root = grammar_rule(b, "root"), never = grammar_rule(b, "never");
	struct subject s;

	grammar_define(b, never, grammar_seq(b, grammar_text(b, "b"), grammar_call(b, never)));
	grammar_define(b, root,
		       grammar_seq(b, grammar_text(b, "a"),
				   grammar_alt(b, grammar_call(b, never), grammar_text(b, "c"),
					       grammar_class(b, NULL, 0))));
	begin(b, root, &s, NULL);
	ok(begins(&s, "a") && !begins(&s, "ab") && reads(&s, "ac"),
	   "only the finite branch is left");
	end(&s);
}

/* Of an extremely ambiguous grammar every step does bounded work. */
TEST(ambiguity)
{
	struct grammar_builder *b = builder();
	uint32_t root = grammar_rule(b, "root"), state = AUTOMATON_START;
	uint64_t most = 0;
	struct subject s;

	grammar_define(b, root,
		       grammar_seq(b, grammar_text(b, "a"),
				   grammar_repeat(b, grammar_call(b, root), 0, 3),
				   grammar_repeat(b, grammar_repeat(b, grammar_text(b, "a"), 0, 1),
						  0, GRAMMAR_NO_LIMIT)));
	begin(b, root, &s, NULL);
	for (int i = 0; i < 300 && state != AUTOMATON_DEAD; i++) {
		uint64_t before = automaton_work(s.a);

		state = automaton_next(s.a, state, 'a');
		most = MAX(most, automaton_work(s.a) - before);
	}
	ok(most < 16 * AUTOMATON_ITEMS_MAX * 4, "work of a step is bounded: %llu",
	   (unsigned long long)most);
	ok(!automaton_failed(s.a, NULL), "the automaton has not failed");
	end(&s);
}

#define TEN	"[[[[[[[[[["
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

TEST(memory)
{
	struct grammar_builder *b = builder();
	uint32_t nest = grammar_rule(b, "nest"), state = AUTOMATON_START;
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	struct err e;

	grammar_define(b, nest,
		       grammar_alt(b, grammar_text(b, "x"),
				   grammar_seq(b, grammar_text(b, "["), grammar_call(b, nest),
					       grammar_text(b, "]"))));
	if (grammar_build(b, nest, &g, NULL) < 0 || automaton_new(g, 100000, NULL, &a) < 0)
		abort();
	for (int i = 0; i < 1000000 && state != AUTOMATON_DEAD; i++)
		state = automaton_next(a, state, '[');
	is_int(automaton_failed(a, &e), -ENOBUFS, "memory is bounded");
	is_str(e.text, "the automaton of the grammar needs more than 100000 bytes",
	       "with a sentence");
	ok(automaton_bytes(a) <= 100000, "no array grows beyond it: %zu", automaton_bytes(a));
	/* The state behind many brackets has as many frames, the one behind a hundred has few. */
	state = automaton_read(a, AUTOMATON_START, HUNDRED, 100);
	is_int(automaton_forget(a, &state, 1), 0, "it forgets");
	ok(automaton_bytes(a) < 20000 && !automaton_failed(a, NULL), "and goes on with %zu bytes",
	   automaton_bytes(a));
	state = automaton_read(a, state, "x", 1);
	for (int i = 0; i < 99; i++)
		state = automaton_next(a, state, ']');
	ok(!automaton_may_end(a, state) && automaton_may_end(a, automaton_next(a, state, ']')),
	   "from the state that was left");
	automaton_free(a);
	grammar_free(g);
	grammar_builder_free(b);
}

/* ---- random grammars ---- */

enum { RULES = 4, TREES = 200, LETTERS = 2, LEN = 6 };

struct tree {
	enum { TEXT, SEQ, ALT, REPEAT, RULE } kind;
	uint32_t parts[3];
	uint32_t n, min, max; /* RULE: n is the rule */
	char text[3];
};

static struct tree trees[TREES];
static uint32_t n_trees, rule_trees[RULES];

static uint32_t grow_tree(int depth)
{
	uint32_t i = n_trees++;
	struct tree *t = &trees[i];

	*t = (struct tree){.kind = random_below(depth > 3 || n_trees > TREES / 2 ? 2 : 6)};
	if (depth > 3 || n_trees > TREES / 2)
		t->kind = t->kind ? TEXT : RULE;
	else
		t->kind = ((const unsigned[]){TEXT, SEQ, ALT, REPEAT, RULE, SEQ})[t->kind];
	switch (t->kind) {
	case TEXT:
		t->n = random_below(8) ? 1 + random_below(2) : 0;
		for (uint32_t k = 0; k < t->n; k++)
			t->text[k] = (char)('a' + random_below(LETTERS));
		break;
	case SEQ:
	case ALT:
		t->n = 1 + random_below(3);
		for (uint32_t k = 0; k < t->n; k++) {
			uint32_t part = grow_tree(depth + 1);

			t->parts[k] = part;
		}
		break;
	case REPEAT:
		t->parts[0] = grow_tree(depth + 1);
		t->min = random_below(3);
		t->max = random_below(2) ? GRAMMAR_NO_LIMIT : t->min + random_below(3);
		break;
	case RULE: t->n = random_below(RULES); break;
	}
	return i;
}

static uint32_t expression_of(struct grammar_builder *b, uint32_t i)
{
	const struct tree *t = &trees[i];
	uint32_t parts[3];

	switch (t->kind) {
	case TEXT: return grammar_literal(b, t->text, t->n);
	case REPEAT: return grammar_repeat(b, expression_of(b, t->parts[0]), t->min, t->max);
	case RULE: return grammar_call(b, t->n);
	default: break;
	}
	for (uint32_t k = 0; k < t->n; k++)
		parts[k] = expression_of(b, t->parts[k]);
	return t->kind == SEQ ? grammar_sequence(b, parts, t->n) : grammar_choice(b, parts, t->n);
}

/* The naive matcher: the places (bits) where a tree may end that begins at any of the places `from`. The table of the
 * rules is completed by repetition until nothing changes. */
static unsigned rule_ends[RULES][LEN + 1];

static unsigned ends_of(uint32_t i, const char *text, size_t len, unsigned from)
{
	const struct tree *t = &trees[i];
	unsigned to = 0, now;

	switch (t->kind) {
	case TEXT:
		for (size_t at = 0; at + t->n <= len; at++) {
			if (from >> at & 1 && !memcmp(text + at, t->text, t->n))
				to |= 1u << (at + t->n);
		}
		return to;
	case SEQ:
		for (uint32_t k = 0; k < t->n; k++)
			from = ends_of(t->parts[k], text, len, from);
		return from;
	case ALT:
		for (uint32_t k = 0; k < t->n; k++)
			to |= ends_of(t->parts[k], text, len, from);
		return to;
	case REPEAT:
		for (uint32_t k = 0; k < t->min; k++)
			from = ends_of(t->parts[0], text, len, from);
		to = from;
		for (uint32_t k = t->min; k < t->max && k < t->min + 20; k++) {
			from = ends_of(t->parts[0], text, len, from);
			now = to | from;
			if (now == to && t->max == GRAMMAR_NO_LIMIT)
				break;
			to = now;
		}
		return to;
	case RULE:
		for (size_t at = 0; at <= len; at++) {
			if (from >> at & 1)
				to |= rule_ends[t->n][at];
		}
		return to;
	}
	return 0;
}

static bool naive(const char *text, size_t len)
{
	bool changed = true;

	memset(rule_ends, 0, sizeof(rule_ends));
	while (changed) {
		changed = false;
		for (uint32_t rule = 0; rule < RULES; rule++) {
			for (size_t at = 0; at <= len; at++) {
				unsigned to = ends_of(rule_trees[rule], text, len, 1u << at);

				changed = changed || to != rule_ends[rule][at];
				rule_ends[rule][at] = to;
			}
		}
	}
	return rule_ends[0][0] >> len & 1;
}

/* Calls f(text, len) for all texts of up to LEN letters. */
static void each_text(void (*f)(struct subject *s, const char *text, size_t len), struct subject *s)
{
	for (size_t len = 0; len <= LEN; len++) {
		for (unsigned bits = 0; bits < 1u << len; bits++) {
			char text[LEN + 1] = "";

			for (size_t i = 0; i < len; i++)
				text[i] = (char)('a' + (bits >> i & 1));
			f(s, text, len);
		}
	}
}

static unsigned long accepted, rejected;

/* Reads the text by an automaton that forgets, at a random place, all but the states there and at another place. */
static bool reads_forgetting(struct subject *s, const char *text, size_t len)
{
	size_t at = random_below((uint32_t)len + 1), other = random_below((uint32_t)len + 1);
	uint32_t states[] = {automaton_read(s->a, AUTOMATON_START, text, other),
			     automaton_read(s->a, AUTOMATON_START, text, at)};
	bool same;

	if (automaton_forget(s->a, states, 2) < 0)
		return false;
	same = automaton_may_end(s->a, automaton_read(s->a, states[0], text + other,
						      len - other)) == reads(s, text);
	check(same);
	return automaton_may_end(s->a, automaton_read(s->a, states[1], text + at, len - at));
}

static void compare_text(struct subject *s, const char *text, size_t len)
{
	bool want = naive(text, len);

	check(reads(s, text) == want);
	check(reads_forgetting(s, text, len) == want);
	if (want)
		accepted++;
	else
		rejected++;
}

TEST(random_grammars)
{
	unsigned built = 0, recursive = 0, endless = 0;

	for (int round = 0; round < 1500; round++) {
		struct grammar_builder *b = builder();
		struct subject s;
		struct err e;

		n_trees = 0;
		for (uint32_t i = 0; i < RULES; i++) {
			grammar_rule(b, "rule");
			rule_trees[i] = grow_tree(0);
		}
		for (uint32_t i = 0; i < RULES; i++)
			grammar_define(b, i, expression_of(b, rule_trees[i]));
		if (begin(b, 0, &s, &e) < 0) {
			if (strstr(e.text, "left-recursive"))
				recursive++;
			else if (strstr(e.text, "no text that ends"))
				endless++;
			else
				check(!"refused for another reason");
			continue;
		}
		built++;
		each_text(compare_text, &s);
		check(!automaton_failed(s.a, NULL));
		end(&s);
	}
	ok_all("%u random grammars (%u left-recursive, %u without finite texts are refused)", built,
	       recursive, endless);
	ok(built > 300 && accepted > 1000 && rejected > 1000, "%lu texts and %lu other texts",
	   accepted, rejected);
}

TEST_MAIN()
