#include "protocol/grammar/regex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/problem.h"
#include "base/utf8.h"
#include "protocol/grammar/code_points.h"
#include "protocol/grammar/constraint_internal.h"
#include "protocol/grammar/parts.h"

enum { NESTED_MAX = 100, PATTERN_MAX = 1 << 16, RANGES_MAX = 1 << 18 };

enum kind { SET, SEQUENCE, CHOICE, REPEAT, BEGIN, END };

struct node {
	enum kind kind;
	struct node *first, *last, *next; /* parts, and the next part of the same node */
	uint32_t min, max;		  /* REPEAT */
	struct grammar_range *ranges;	  /* SET */
	size_t n_ranges;
	bool anchored; /* the node is an anchor or has one inside */
};

struct regex {
	struct arena arena;
	struct grammar_builder *b;
	struct regex_form form;
	const char *at, *end;
	int depth;
	size_t n_ranges; /* of all sets */
	struct err *e;
	int r; /* negative: it has failed */
};

static void no_memory(struct regex *x)
{
	if (!x->r)
		x->r = err_no_memory(x->e);
}

static void wrong(struct regex *x, const char *why)
{
	if (!x->r)
		x->r = err_set(x->e, EINVAL, "the regular expression is wrong: %s", why);
}

static void unsupported(struct regex *x, const char *what)
{
	if (!x->r)
		x->r = err_set(x->e, PROBLEM_UNSUPPORTED,
			       "%s in a regular expression is not supported", what);
}

static bool more(const struct regex *x)
{
	return x->at < x->end && !x->r;
}

static bool next_is(const struct regex *x, char c)
{
	return more(x) && *x->at == c;
}

static bool skip(struct regex *x, const char *text)
{
	size_t n = strlen(text);

	if (x->r || (size_t)(x->end - x->at) < n || memcmp(x->at, text, n) != 0)
		return false;
	x->at += n;
	return true;
}

static struct node *add_node(struct regex *x, struct node node)
{
	struct node *n = arena_alloc(&x->arena, sizeof(*n));

	if (n)
		*n = node;
	else
		no_memory(x);
	return n;
}

static void add_part(struct node *to, struct node *part)
{
	if (!to || !part)
		return;
	if (to->last)
		to->last->next = part;
	else
		to->first = part;
	to->last = part;
	to->anchored = to->anchored || part->anchored;
}

/* ---- sets ---- */

static struct node *set_node(struct regex *x, struct code_points *s)
{
	struct node n = {.kind = SET, .n_ranges = s->n};

	if (s->failed)
		no_memory(x);
	x->n_ranges += s->n;
	if (x->n_ranges > RANGES_MAX && !x->r)
		x->r = err_set(x->e, E2BIG,
			       "the classes of a regular expression have more than %d ranges",
			       RANGES_MAX);
	if (x->r)
		return NULL;
	n.ranges = arena_array(&x->arena, s->n + 1, sizeof(*n.ranges));
	if (n.ranges && s->n)
		memcpy(n.ranges, s->v, s->n * sizeof(*s->v));
	else if (!n.ranges)
		no_memory(x);
	return x->r ? NULL : add_node(x, n);
}

static uint32_t hex(struct regex *x, int digits)
{
	uint32_t v = 0;

	for (int i = 0; i < digits; i++) {
		char c = more(x) ? *x->at++ : 0;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
		else
			wrong(x, "an escape has too few hexadecimal digits");
	}
	return v;
}

static uint32_t unicode_escape(struct regex *x)
{
	uint32_t c = 0, low;

	if (skip(x, "{")) {
		if (next_is(x, '}'))
			wrong(x, "an escape has too few hexadecimal digits");
		while (more(x) && *x->at != '}' && c <= 0x10ffff)
			c = c << 4 | hex(x, 1);
		if (!skip(x, "}") || c > 0x10ffff)
			wrong(x, "an escape names no code point");
		return c;
	}
	c = hex(x, 4);
	if (c >= 0xd800 && c <= 0xdbff && skip(x, "\\u")) {
		low = hex(x, 4);
		if (low < 0xdc00 || low > 0xdfff)
			wrong(x, "an escape names half a code point");
		return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	if (c >= 0xd800 && c <= 0xdfff)
		wrong(x, "an escape names half a code point");
	return c;
}

static void add_property(struct regex *x, struct code_points *s, bool inverted)
{
	const char *from = x->at, *close;
	struct code_points own = {0};

	if (!skip(x, "{")) {
		wrong(x, "\\p has no name in braces");
		return;
	}
	from++;
	close = memchr(from, '}', (size_t)(x->end - from));
	if (!close) {
		wrong(x, "\\p has no closing brace");
		return;
	}
	x->at = close + 1;
	if (!code_points_add_category(&own, from, (size_t)(close - from)))
		unsupported(x, "a property that is not a general category");
	code_points_move(s, &own, inverted);
}

/* Adds what an escape stands for. Returns the code point, if it is a single one; UINT32_MAX: it is a class. most: see
 * code_points.h. */
static uint32_t escape(struct regex *x, struct code_points *s, bool in_class, bool most)
{
	uint32_t c = 0;

	if (!more(x)) {
		wrong(x, "it ends with a backslash");
		return 0;
	}
	switch (*x->at++) {
	case 'd':
	case 'D':
	case 's':
	case 'S':
	case 'w':
	case 'W':
		if (!x->r)
			code_points_add_class(s, x->at[-1], most);
		return UINT32_MAX;
	case 'p': add_property(x, s, false); return UINT32_MAX;
	case 'P': add_property(x, s, true); return UINT32_MAX;
	case 't': c = '\t'; break;
	case 'n': c = '\n'; break;
	case 'r': c = '\r'; break;
	case 'v': c = '\v'; break;
	case 'f': c = '\f'; break;
	case '0':
		if (more(x) && *x->at >= '0' && *x->at <= '9')
			unsupported(x, "an octal escape");
		break;
	case 'c':
		if (!more(x) || (*x->at | 32) < 'a' || (*x->at | 32) > 'z')
			wrong(x, "\\c has no letter");
		else
			c = *x->at++ & 31;
		break;
	case 'x': c = hex(x, 2); break;
	case 'u': c = unicode_escape(x); break;
	case 'b':
		if (!in_class)
			unsupported(x, "the word boundary \\b");
		c = '\b';
		break;
	case 'B': unsupported(x, "\\B"); break;
	case 'k': unsupported(x, "the reference to a group \\k"); break;
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
	case '7':
	case '8':
	case '9': unsupported(x, "the reference to a group"); break;
	default:
		c = (uint8_t)x->at[-1];
		if (c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c < 0x20)
			unsupported(x, "an unknown escape");
	}
	if (!x->r)
		code_points_add(s, c, c);
	return c;
}

static uint32_t plain(struct regex *x)
{
	size_t len;
	uint32_t c = utf8_decode(x->at, &len);

	x->at += len;
	return c;
}

static struct node *class_node(struct regex *x)
{
	bool inverted = skip(x, "^");
	struct code_points s = {0};
	struct node *n;

	/* Dialects differ: a class without members, or a class with a bracket. */
	if (next_is(x, ']'))
		unsupported(x, "a class that begins with ]");
	while (more(x) && *x->at != ']') {
		uint32_t lo, hi;

		lo = skip(x, "\\") ? escape(x, &s, true, inverted != x->form.most) : plain(x);
		hi = lo;
		if (!x->r && next_is(x, '-') && x->at + 1 < x->end && x->at[1] != ']') {
			x->at++;
			hi = skip(x, "\\") ? escape(x, &s, true, inverted != x->form.most)
					   : plain(x);
			if (lo == UINT32_MAX || hi == UINT32_MAX)
				unsupported(x, "a range that begins or ends with a class");
			else if (hi < lo)
				wrong(x, "a range of a class goes backwards");
		}
		if (lo != UINT32_MAX && !x->r)
			code_points_add(&s, lo, hi);
	}
	if (!skip(x, "]"))
		wrong(x, "a class has no closing bracket");
	code_points_settle(&s);
	if (inverted)
		code_points_invert(&s);
	n = set_node(x, &s);
	code_points_release(&s);
	return n;
}

static struct node *dot_node(struct regex *x)
{
	struct code_points s = {0};
	struct node *n;

	code_points_add(&s, '\n', '\n');
	if (!x->form.most) {
		code_points_add(&s, '\r', '\r');
		code_points_add(&s, 0x2028, 0x2029);
	}
	code_points_settle(&s);
	code_points_invert(&s);
	n = set_node(x, &s);
	code_points_release(&s);
	return n;
}

/* ---- parsing ---- */

static struct node *alternatives(struct regex *x);

static struct node *group(struct regex *x)
{
	struct node *n;

	if (x->depth == NESTED_MAX)
		wrong(x, "groups are nested too deep");
	if (skip(x, "?")) {
		if (skip(x, "=") || skip(x, "!"))
			unsupported(x, "lookahead");
		else if (skip(x, "<=") || skip(x, "<!"))
			unsupported(x, "lookbehind");
		else if (skip(x, "<") || skip(x, "P<")) {
			while (more(x) && *x->at != '>' && *x->at != ')')
				x->at++;
			if (!skip(x, ">"))
				wrong(x, "the name of a group has no end");
		} else if (!skip(x, ":"))
			unsupported(x, "a group with flags");
	}
	x->depth++;
	n = x->r ? NULL : alternatives(x);
	x->depth--;
	if (!skip(x, ")"))
		wrong(x, "a group has no closing parenthesis");
	return n;
}

/* Reads digits; false: there are none. */
static bool number(const struct regex *x, const char **at, uint32_t *ret)
{
	const char *from = *at;

	*ret = 0;
	for (; *at < x->end && **at >= '0' && **at <= '9'; ++*at)
		*ret = MIN(*ret * 10 + (uint32_t)(**at - '0'), (uint32_t)GRAMMAR_REPEAT_MAX + 1);
	return *at > from;
}

/* Reads {n}, {n,} or {n,m}. False: the brace is none of these, and stands for itself. */
static bool braces(struct regex *x, uint32_t *min, uint32_t *max)
{
	const char *at = x->at + 1;

	/* {,3} is {0,3} in Python and newer PCRE, and six letters in ECMAScript. */
	if (at < x->end && *at == ',' && at + 1 < x->end && at[1] >= '0' && at[1] <= '9')
		unsupported(x, "a quantifier without a minimum");
	if (!number(x, &at, min))
		return false;
	*max = *min;
	if (at < x->end && *at == ',') {
		at++;
		if (!number(x, &at, max))
			*max = GRAMMAR_NO_LIMIT;
	}
	if (at >= x->end || *at != '}')
		return false;
	x->at = at + 1;
	return true;
}

static struct node *atom(struct regex *x)
{
	struct code_points s = {0};
	struct node *n;
	uint32_t min, max;

	switch (*x->at) {
	case '(': x->at++; return group(x);
	case '[': x->at++; return class_node(x);
	case '.': x->at++; return dot_node(x);
	case '^': x->at++; return add_node(x, (struct node){.kind = BEGIN, .anchored = true});
	case '$': x->at++; return add_node(x, (struct node){.kind = END, .anchored = true});
	case '*':
	case '+':
	case '?': wrong(x, "a quantifier has nothing to repeat"); return NULL;
	case '{':
		if (braces(x, &min, &max)) {
			wrong(x, "a quantifier has nothing to repeat");
			return NULL;
		}
	}
	if (skip(x, "\\")) {
		escape(x, &s, false, x->form.most);
	} else {
		uint32_t c = plain(x);

		code_points_add(&s, c, c);
	}
	code_points_settle(&s);
	n = set_node(x, &s);
	code_points_release(&s);
	return n;
}

static struct node *quantified(struct regex *x, struct node *n)
{
	struct node repeat = {.kind = REPEAT, .max = GRAMMAR_NO_LIMIT};
	struct node *to;

	if (skip(x, "+"))
		repeat.min = 1;
	else if (skip(x, "?"))
		repeat.max = 1;
	else if (!skip(x, "*") && (!next_is(x, '{') || !braces(x, &repeat.min, &repeat.max)))
		return n;
	skip(x, "?");
	if (more(x) && (strchr("*+?", *x->at) && *x->at))
		wrong(x, "a quantifier follows a quantifier");
	if (n && n->anchored)
		unsupported(x, "a repeated anchor");
	if (repeat.min > repeat.max)
		wrong(x, "the minimum of a quantifier is above its maximum");
	to = add_node(x, repeat);
	add_part(to, n);
	return to;
}

static struct node *sequence(struct regex *x)
{
	struct node *n = add_node(x, (struct node){.kind = SEQUENCE});

	while (more(x) && *x->at != '|' && *x->at != ')')
		add_part(n, quantified(x, atom(x)));
	return n;
}

static struct node *alternatives(struct regex *x)
{
	struct node *n = add_node(x, (struct node){.kind = CHOICE});

	do
		add_part(n, sequence(x));
	while (skip(x, "|"));
	return n;
}

/* ---- expressions ---- */

static const char shorts[][2] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
				 {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

/* Returns the letter of a short escape; 0: there is none. */
static char short_escape(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_SIZE(shorts); i++) {
		if ((uint32_t)shorts[i][0] == c)
			return shorts[i][1];
	}
	return 0;
}

static bool is_escaped(uint32_t c, bool escape_less)
{
	return c < 0x20 || c == '"' || c == '\\' || (escape_less && c == '<');
}

/* Returns the escapes of the code points of a set that are escaped: after the backslash one of some letters, or u00 and
 * two digits. */
static uint32_t json_escapes(struct grammar_builder *b, const struct code_points *set,
			     bool escape_less)
{
	struct grammar_range letters[ARRAY_SIZE(shorts)], digits[4][16];
	uint32_t codes[4], kinds[2];
	size_t n_letters = 0, n_digits[4] = {0}, n_codes = 0, n_kinds = 0;

	for (uint32_t c = 0; c <= '\\'; c++) {
		char letter = short_escape(c), digit = "0123456789abcdef"[c & 15];

		if (!is_escaped(c, escape_less) || !code_points_have(set, c))
			continue;
		if (letter)
			letters[n_letters++] =
				(struct grammar_range){(uint32_t)letter, (uint32_t)letter};
		else
			digits[c >> 4][n_digits[c >> 4]++] =
				(struct grammar_range){(uint32_t)digit, (uint32_t)digit};
	}
	for (size_t k = 0; k < ARRAY_SIZE(codes); k++) {
		char high[] = {(char)('0' + k), 0};

		if (n_digits[k])
			codes[n_codes++] = grammar_seq(b, grammar_text(b, high),
						       grammar_class(b, digits[k], n_digits[k]));
	}
	if (n_letters)
		kinds[n_kinds++] = grammar_class(b, letters, n_letters);
	if (n_codes)
		kinds[n_kinds++] =
			grammar_seq(b, grammar_text(b, "u00"), grammar_choice(b, codes, n_codes));
	return grammar_seq(b, grammar_text(b, "\\"), grammar_choice(b, kinds, n_kinds));
}

uint32_t regex_class(struct grammar_builder *b, const struct code_points *set,
		     struct regex_form form)
{
	static const struct grammar_range plain_ranges[] = {{0x20, '"' - 1},
							    {'"' + 1, '<' - 1},
							    {'<', '<'},
							    {'<' + 1, '\\' - 1},
							    {'\\' + 1, 0x10ffff}};
	struct code_points own = {0};
	uint32_t parts[2], n = 0;
	bool less = form.escape_less;

	if (!form.json)
		return grammar_class(b, set->v, set->n);
	for (size_t i = 0; i < set->n; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(plain_ranges); k++) {
			uint32_t lo = MAX(set->v[i].lo, plain_ranges[k].lo);
			uint32_t hi = MIN(set->v[i].hi, plain_ranges[k].hi);

			if (lo <= hi && !is_escaped(lo, less))
				code_points_add(&own, lo, hi);
		}
	}
	if (own.failed)
		grammar_no_memory(b);
	if (own.n)
		parts[n++] = grammar_class(b, own.v, own.n);
	code_points_release(&own);
	if ((set->n && set->v[0].lo < 0x20) || code_points_have(set, '"') ||
	    code_points_have(set, '\\') || (less && code_points_have(set, '<')))
		parts[n++] = json_escapes(b, set, less);
	return grammar_choice(b, parts, n);
}

uint32_t regex_text(struct grammar_builder *b, const char *text, size_t len, bool escape_less)
{
	struct parts p = {0};
	uint32_t x;

	for (size_t at = 0, n; at < len; at += n) {
		uint32_t c = utf8_decode(text + at, &n);

		if (is_escaped(c, escape_less)) {
			struct grammar_range one = {c, c};

			parts_add(&p, json_escapes(b, &(struct code_points){.v = &one, .n = 1},
						   escape_less));
		} else {
			parts_add(&p, grammar_literal(b, text + at, n));
		}
	}
	if (p.failed)
		grammar_no_memory(b);
	x = grammar_sequence(b, p.v, p.n);
	parts_release(&p);
	return x;
}

struct built {
	uint32_t x;
	struct regex_lengths n;
};

static uint32_t plus(uint32_t a, uint32_t b)
{
	return a >= GRAMMAR_NO_LIMIT - b ? GRAMMAR_NO_LIMIT : a + b;
}

static uint32_t times(uint32_t a, uint32_t b)
{
	return a && b > GRAMMAR_NO_LIMIT / a ? GRAMMAR_NO_LIMIT : a * b;
}

/* Returns the texts that may stand before or behind the match. */
static struct built anything(struct regex *x)
{
	struct grammar_range all = {0, 0x10ffff};
	struct code_points s = {.v = &all, .n = 1};

	if (!x->form.search)
		return (struct built){0};
	return (struct built){grammar_repeat(x->b, regex_class(x->b, &s, x->form), 0,
					     GRAMMAR_NO_LIMIT),
			      {0, GRAMMAR_NO_LIMIT}};
}

static struct built build(struct regex *x, const struct node *n, bool first, bool last);

/* first, last: the sequence begins, or ends, at the beginning or the end of the whole expression. There it takes care
 * of the text before or behind it, unless an anchor forbids such text. */
static struct built build_sequence(struct regex *x, const struct node *n, bool first, bool last)
{
	struct parts p = {0};
	struct built all = {0}, one;
	const struct node *part = n->first, *stop = NULL;
	bool before = first, behind = last;

	while (first && part && part->kind == BEGIN) {
		before = false;
		part = part->next;
	}
	/* Where the anchors at the end begin. */
	for (const struct node *q = part; last && q; q = q->next) {
		if (q->kind == END && !stop)
			stop = q;
		else if (q->kind != END)
			stop = NULL;
	}
	if (stop)
		behind = false;
	if (before && !(part && part != stop && part->kind == CHOICE && part->anchored)) {
		one = anything(x);
		parts_add(&p, one.x);
		all.n.max = one.n.max;
		before = false;
	}
	for (; part && part != stop && !x->r && !grammar_failed(x->b); part = part->next) {
		bool is_last = behind && (!part->next || part->next == stop) &&
			       part->kind == CHOICE && part->anchored;

		one = build(x, part, before, is_last);
		before = false;
		if (is_last)
			behind = false;
		parts_add(&p, one.x);
		all.n.min = plus(all.n.min, one.n.min);
		all.n.max = plus(all.n.max, one.n.max);
	}
	if (behind) {
		one = anything(x);
		parts_add(&p, one.x);
		all.n.max = plus(all.n.max, one.n.max);
	} else if (stop && x->form.most && x->form.search) {
		/* In some dialects $ is also before a line's end that ends the text. */
		parts_add(&p, grammar_repeat(x->b, grammar_text(x->b, x->form.json ? "\\n" : "\n"),
					     0, 1));
		all.n.max = plus(all.n.max, 1);
	}
	if (p.failed)
		no_memory(x);
	else
		all.x = grammar_sequence(x->b, p.v, p.n);
	parts_release(&p);
	return all;
}

static struct built build(struct regex *x, const struct node *n, bool first, bool last)
{
	struct built all = {0}, one;
	struct parts p = {0};
	struct code_points set;

	/* A builder that has failed says why at the end. */
	if (x->r || grammar_failed(x->b))
		return all;
	switch (n->kind) {
	case SET:
		set = (struct code_points){.v = n->ranges, .n = n->n_ranges};
		return (struct built){regex_class(x->b, &set, x->form), {1, 1}};
	case BEGIN:
	case END: unsupported(x, "an anchor within the text"); return all;
	case SEQUENCE: return build_sequence(x, n, first, last);
	case REPEAT:
		one = build(x, n->first, false, false);
		all.n = (struct regex_lengths){times(one.n.min, n->min), times(one.n.max, n->max)};
		all.x = grammar_repeat(x->b, one.x, n->min, n->max);
		return all;
	case CHOICE:
		all.n.min = GRAMMAR_NO_LIMIT;
		for (const struct node *part = n->first; part && !x->r && !grammar_failed(x->b);
		     part = part->next) {
			one = build(x, part, first, last);
			parts_add(&p, one.x);
			all.n.min = MIN(all.n.min, one.n.min);
			all.n.max = MAX(all.n.max, one.n.max);
		}
		if (p.failed)
			no_memory(x);
		else
			all.x = grammar_choice(x->b, p.v, p.n);
		parts_release(&p);
		return all;
	}
	return all;
}

int regex_expression(struct grammar_builder *b, const char *pattern, size_t len,
		     struct regex_form form, uint32_t *ret, struct regex_lengths *ret_lengths,
		     struct err *e)
{
	struct regex x = {.b = b, .form = form, .at = pattern, .end = pattern + len, .e = e};
	struct node *n;
	struct built all;

	if (len > PATTERN_MAX)
		return err_set(e, E2BIG, "a regular expression has more than %d bytes",
			       PATTERN_MAX);
	if (utf8_valid(pattern, len) != len)
		return err_set(e, EINVAL, "the regular expression is not UTF-8");
	arena_init(&x.arena, (size_t)64 << 20);
	n = alternatives(&x);
	if (!x.r && x.at < x.end)
		wrong(&x, "a parenthesis closes no group");
	if (!x.r) {
		all = build(&x, n, true, true);
		*ret = all.x;
		*ret_lengths = all.n;
	}
	arena_release(&x.arena);
	return x.r;
}

int regex_grammar(struct grammar_builder *b, const char *pattern, size_t len, struct grammar **ret,
		  struct err *e)
{
	struct regex_lengths lengths;
	uint32_t root, x;
	int r = regex_expression(b, pattern, len, (struct regex_form){0}, &x, &lengths, e);

	if (r < 0)
		return r;
	root = grammar_rule(b, "root");
	grammar_define(b, root, x);
	return grammar_build(b, root, ret, e);
}
