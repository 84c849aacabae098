#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/utf8.h"
#include "protocol/grammar/code_points.h"
#include "protocol/grammar/constraint_internal.h"
#include "protocol/grammar/parts.h"

/* NAMES_MAX bounds the work for names whose hashes were made equal. */
enum { NESTED_MAX = 100, NAME_MAX_BYTES = 60, NAMES_MAX = 8192 };

/* A rule by its name. */
struct named {
	struct map_node node;
	const char *name; /* borrowed from the text */
	size_t len;
	uint32_t rule;
};

struct gbnf {
	struct grammar_builder *b;
	const char *text, *at, *end;
	struct map names;
	int depth;
	struct err *e;
	int r; /* negative: parsing has failed */
};

__attribute__((format(printf, 3, 4))) static void fail(struct gbnf *g, int code, const char *fmt,
						       ...)
{
	unsigned line = 1;
	va_list ap;
	char why[200];

	if (g->r)
		return;
	for (const char *p = g->text; p < g->at; p++)
		line += *p == '\n';
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	g->r = err_set(g->e, code, "the grammar is wrong in line %u: %s", line, why);
}

static bool more(const struct gbnf *g)
{
	return g->at < g->end && !g->r;
}

static bool next_is(const struct gbnf *g, char c)
{
	return more(g) && *g->at == c;
}

static void skip_blanks(struct gbnf *g, bool lines)
{
	while (more(g)) {
		if (*g->at == '#') {
			while (more(g) && *g->at != '\n')
				g->at++;
		} else if (*g->at == ' ' || *g->at == '\t' ||
			   (lines && (*g->at == '\n' || *g->at == '\r'))) {
			g->at++;
		} else {
			break;
		}
	}
}

static bool in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '_';
}

static size_t name_length(const struct gbnf *g)
{
	size_t n = 0;

	while (g->at + n < g->end && in_name(g->at[n]))
		n++;
	return n;
}

/* Returns the rule with the name at the present place, which may be defined later, and skips the name. */
static uint32_t rule_here(struct gbnf *g)
{
	const char *name = g->at;
	size_t len = name_length(g);
	struct hash128 h = HASH128_INIT;
	uint64_t hash;
	struct named *found;
	char copy[NAME_MAX_BYTES + 1];

	if (len > NAME_MAX_BYTES)
		fail(g, EINVAL, "a name has more than %d letters", NAME_MAX_BYTES);
	if (g->r)
		return 0;
	g->at += len;
	hash128_update(&h, name, len);
	hash = (uint64_t)h.value;
	for (struct map_node *n = map_first(&g->names, hash); n; n = map_next(n)) {
		found = container_of(n, struct named, node);
		if (found->len == len && !memcmp(found->name, name, len))
			return found->rule;
	}
	if (g->names.n == NAMES_MAX) {
		fail(g, E2BIG, "there are more than %d rules", NAMES_MAX);
		return 0;
	}
	found = calloc(1, sizeof(*found));
	if (!found || map_reserve(&g->names) < 0) {
		free(found);
		g->r = err_no_memory(g->e);
		return 0;
	}
	memcpy(copy, name, len);
	copy[len] = 0;
	*found = (struct named){.name = name, .len = len, .rule = grammar_rule(g->b, copy)};
	map_insert(&g->names, &found->node, hash);
	return found->rule;
}

static uint32_t hex(struct gbnf *g, int digits)
{
	uint32_t v = 0;

	for (int i = 0; i < digits; i++) {
		char c = more(g) ? *g->at++ : 0;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
		else
			fail(g, EINVAL, "an escape needs %d hexadecimal digits", digits);
	}
	return v;
}

/* Reads one code point of a text or a class, perhaps escaped. */
static uint32_t code_point(struct gbnf *g)
{
	uint32_t c;
	size_t len;
	char escape;

	if (!more(g))
		return 0;
	if (*g->at != '\\') {
		c = utf8_decode(g->at, &len);
		g->at += len;
		return c;
	}
	g->at++;
	escape = more(g) ? *g->at++ : 0;
	switch (escape) {
	case 'n': return '\n';
	case 'r': return '\r';
	case 't': return '\t';
	case '\\':
	case '"':
	case '[':
	case ']':
	case '-':
	case '^':
	case '/': return (uint32_t)escape;
	case 'x': return hex(g, 2);
	case 'u': c = hex(g, 4); break;
	case 'U': c = hex(g, 8); break;
	default: fail(g, EINVAL, "a backslash is followed by no known escape"); return 0;
	}
	if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		fail(g, EINVAL, "an escape names no code point");
	return c;
}

static uint32_t quoted(struct gbnf *g)
{
	uint32_t x;
	struct buf text;

	buf_init(&text, (size_t)(g->end - g->at) * 4 + 1);
	g->at++;
	while (more(g) && *g->at != '"') {
		char bytes[4];

		if (*g->at == '\n')
			break;
		buf_append(&text, bytes, utf8_encode(code_point(g), bytes));
	}
	if (!next_is(g, '"'))
		fail(g, EINVAL, "a text has no closing quote");
	g->at++;
	if (text.failed && !g->r)
		g->r = err_no_memory(g->e);
	x = g->r ? 0 : grammar_literal(g->b, text.data, text.len);
	buf_release(&text);
	return x;
}

static uint32_t class_of(struct gbnf *g)
{
	struct code_points s = {0};
	uint32_t x = 0;
	bool negated;

	g->at++;
	negated = next_is(g, '^');
	g->at += negated;
	while (more(g) && *g->at != ']') {
		uint32_t lo = code_point(g), hi = lo;

		if (next_is(g, '-') && g->at + 1 < g->end && g->at[1] != ']') {
			g->at++;
			hi = code_point(g);
			if (hi < lo)
				fail(g, EINVAL, "a range of a class goes backwards");
		}
		if (!g->r)
			code_points_add(&s, lo, hi);
	}
	if (!next_is(g, ']'))
		fail(g, EINVAL, "a class has no closing bracket");
	g->at++;
	code_points_settle(&s);
	if (negated)
		code_points_invert(&s);
	if (s.failed && !g->r)
		g->r = err_no_memory(g->e);
	if (!g->r)
		x = grammar_class(g->b, s.v, s.n);
	code_points_release(&s);
	return x;
}

static uint32_t number(struct gbnf *g)
{
	uint32_t v = 0;

	if (!more(g) || *g->at < '0' || *g->at > '9')
		fail(g, EINVAL, "a quantifier needs a number");
	while (more(g) && *g->at >= '0' && *g->at <= '9') {
		v = v * 10 + (uint32_t)(*g->at++ - '0');
		if (v > GRAMMAR_REPEAT_MAX)
			fail(g, E2BIG, "a repetition of more than %d times", GRAMMAR_REPEAT_MAX);
	}
	return v;
}

static uint32_t quantified(struct gbnf *g, uint32_t x)
{
	uint32_t min = 0, max = GRAMMAR_NO_LIMIT;

	switch (*g->at++) {
	case '*': break;
	case '+': min = 1; break;
	case '?': max = 1; break;
	default:
		skip_blanks(g, true);
		if (!next_is(g, ','))
			min = number(g);
		skip_blanks(g, true);
		max = min;
		if (next_is(g, ',')) {
			g->at++;
			skip_blanks(g, true);
			max = next_is(g, '}') ? GRAMMAR_NO_LIMIT : number(g);
		}
		skip_blanks(g, true);
		if (!next_is(g, '}'))
			fail(g, EINVAL, "a quantifier has no closing brace");
		g->at++;
		if (min > max)
			fail(g, EINVAL, "the minimum of a quantifier is above its maximum");
	}
	return g->r ? 0 : grammar_repeat(g->b, x, min, max);
}

static uint32_t alternatives(struct gbnf *g, bool nested);

static uint32_t element(struct gbnf *g)
{
	static const struct grammar_range all = {0, 0x10ffff};
	uint32_t x;

	switch (*g->at) {
	case '"': return quoted(g);
	case '[': return class_of(g);
	case '.': g->at++; return grammar_class(g->b, &all, 1);
	case '(':
		if (g->depth++ == NESTED_MAX)
			fail(g, E2BIG, "groups are nested more than %d deep", NESTED_MAX);
		g->at++;
		x = alternatives(g, true);
		if (!next_is(g, ')'))
			fail(g, EINVAL, "a group has no closing parenthesis");
		g->at++;
		g->depth--;
		return x;
	}
	return grammar_call(g->b, rule_here(g));
}

static uint32_t sequence(struct gbnf *g, bool nested)
{
	struct parts p = {0};
	uint32_t x;

	for (skip_blanks(g, nested); more(g); skip_blanks(g, nested)) {
		char c = *g->at;

		if (p.n && c && strchr("*+?{", c)) {
			p.v[p.n - 1] = quantified(g, p.v[p.n - 1]);
			continue;
		}
		if (c != '"' && c != '[' && c != '.' && c != '(' && !in_name(c))
			break;
		parts_add(&p, element(g));
	}
	if (p.failed && !g->r)
		g->r = err_no_memory(g->e);
	x = g->r ? 0 : grammar_sequence(g->b, p.v, p.n);
	parts_release(&p);
	return x;
}

static uint32_t alternatives(struct gbnf *g, bool nested)
{
	struct parts p = {0};
	uint32_t x;

	for (;;) {
		const char *here;

		parts_add(&p, sequence(g, nested));
		here = g->at;
		skip_blanks(g, true);
		if (!next_is(g, '|')) {
			g->at = here;
			break;
		}
		g->at++;
		skip_blanks(g, true);
	}
	if (p.failed && !g->r)
		g->r = err_no_memory(g->e);
	skip_blanks(g, nested);
	x = g->r ? 0 : grammar_choice(g->b, p.v, p.n);
	parts_release(&p);
	return x;
}

static void rules(struct gbnf *g)
{
	for (skip_blanks(g, true); more(g) && grammar_goes_on(g->b); skip_blanks(g, true)) {
		uint32_t rule, x;

		if (!in_name(*g->at)) {
			fail(g, EINVAL, "a rule does not begin with its name");
			return;
		}
		rule = rule_here(g);
		skip_blanks(g, false);
		if (g->end - g->at < 3 || memcmp(g->at, "::=", 3) != 0) {
			fail(g, EINVAL, "a rule has no ::= behind its name");
			return;
		}
		g->at += 3;
		skip_blanks(g, true);
		x = alternatives(g, false);
		if (more(g) && *g->at != '\n' && *g->at != '\r')
			fail(g, EINVAL, "a rule is followed by something else");
		if (!grammar_failed(g->b) && grammar_defined(g->b, rule))
			fail(g, EINVAL, "a rule is defined twice");
		grammar_define(g->b, rule, x);
	}
}

static void free_name(void *arg, struct map_node *node)
{
	free(container_of(node, struct named, node));
}

/* Names a rule that is used and not defined. */
static void check_names(struct gbnf *g)
{
	for (uint64_t i = 0; i < g->names.n_buckets && !g->r; i++) {
		for (struct map_node *n = g->names.buckets[i]; n && !g->r; n = n->next) {
			const struct named *x = container_of(n, struct named, node);

			if (!grammar_failed(g->b) && !grammar_defined(g->b, x->rule))
				g->r = err_set(g->e, EINVAL,
					       "the grammar does not define the rule \"%.*s\"",
					       (int)x->len, x->name);
		}
	}
}

int gbnf_grammar(struct grammar_builder *b, const char *text, size_t len, struct grammar **ret,
		 struct err *e)
{
	struct gbnf g = {.b = b, .text = text, .at = text, .end = text + len, .e = e};
	const char *const root_name = "root";
	uint32_t root = 0;

	if (utf8_valid(text, len) != len || memchr(text, 0, len))
		return err_set(e, EINVAL, "the grammar is not UTF-8, or has a zero byte");
	if (map_init(&g.names, 64) < 0)
		return err_no_memory(e);
	rules(&g);
	if (!g.r) {
		g.at = root_name;
		g.end = g.at + 4;
		root = rule_here(&g);
		check_names(&g);
	}
	if (!g.r)
		g.r = grammar_build(g.b, root, ret, e);
	map_drain(&g.names, free_name, NULL);
	map_release(&g.names);
	return g.r;
}
