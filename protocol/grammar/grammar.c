#include "protocol/grammar/grammar_builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/mix.h"

enum { NAME_MAX_BYTES = 60, PACE = 1024 /* expressions between two questions */ };
static const size_t texts_max = (size_t)64 << 20;

struct grammar_builder *grammar_builder_new(void)
{
	struct grammar_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	arena_init(&b->arena, texts_max);
	if (!array_grow(b->expressions, b->expressions_cap, 1)) {
		free(b);
		return NULL;
	}
	b->expressions[b->n_expressions++] = (struct expression){.kind = EMPTY};
	return b;
}

void grammar_builder_free(struct grammar_builder *b)
{
	if (!b)
		return;
	arena_release(&b->arena);
	free(b->expressions);
	free(b->rules);
	free(b);
}

void grammar_no_memory(struct grammar_builder *b)
{
	if (!b->failed.code)
		err_no_memory(&b->failed);
}

void grammar_set_pace(struct grammar_builder *b, const struct pace *pace)
{
	b->pace = pace;
}

bool grammar_goes_on(struct grammar_builder *b)
{
	if (!b->failed.code && pace_gives_up(b->pace))
		err_set(&b->failed, ECANCELED, "the grammar is not wanted any more");
	return !b->failed.code;
}

static uint32_t add(struct grammar_builder *b, struct expression x)
{
	if (b->failed.code || (b->n_expressions % PACE == 0 && !grammar_goes_on(b)))
		return 0;
	if (b->n_expressions == GRAMMAR_EXPRESSIONS_MAX) {
		err_set(&b->failed, E2BIG, "the grammar has more than %d expressions",
			GRAMMAR_EXPRESSIONS_MAX);
		return 0;
	}
	if (x.depth > GRAMMAR_DEPTH_MAX) {
		err_set(&b->failed, E2BIG, "the grammar is nested more than %d deep",
			GRAMMAR_DEPTH_MAX);
		return 0;
	}
	if (!array_grow(b->expressions, b->expressions_cap, b->n_expressions + 1)) {
		grammar_no_memory(b);
		return 0;
	}
	b->expressions[b->n_expressions] = x;
	return b->n_expressions++;
}

/* Returns a copy of the n elements in the arena; NULL: the builder has failed. */
static void *keep(struct grammar_builder *b, const void *from, size_t n, size_t size)
{
	void *p = b->failed.code ? NULL : arena_array(&b->arena, n, size);

	if (p)
		memcpy(p, from, n * size);
	else if (b->arena.used + n * size > texts_max && !b->failed.code)
		err_set(&b->failed, E2BIG,
			"the grammar's texts and classes take more than %zu bytes", texts_max);
	else
		grammar_no_memory(b);
	return p;
}

uint32_t grammar_literal(struct grammar_builder *b, const void *text, size_t len)
{
	struct expression x = {.kind = LITERAL, .n = (uint32_t)len};

	if (!len)
		return 0;
	if (len > GRAMMAR_NODES_MAX) {
		if (!b->failed.code)
			err_set(&b->failed, E2BIG, "the grammar has a text of %zu bytes", len);
		return 0;
	}
	x.text = keep(b, text, len, 1);
	return x.text ? add(b, x) : 0;
}

uint32_t grammar_text(struct grammar_builder *b, const char *text)
{
	return grammar_literal(b, text, strlen(text));
}

uint32_t grammar_class(struct grammar_builder *b, const struct grammar_range *ranges, size_t n)
{
	struct expression x = {.kind = CLASS, .n = (uint32_t)n};

	if (!n)
		return grammar_choice(b, NULL, 0);
	x.ranges = keep(b, ranges, n, sizeof(*ranges));
	return x.ranges ? add(b, x) : 0;
}

uint32_t grammar_byte(struct grammar_builder *b, uint8_t lo, uint8_t hi)
{
	return add(b, (struct expression){.kind = BYTE, .n = lo, .most = hi});
}

static uint32_t add_parts(struct grammar_builder *b, enum kind kind, const uint32_t *parts,
			  size_t n)
{
	struct expression x = {.kind = kind, .n = (uint32_t)n};

	for (size_t i = 0; i < n; i++)
		x.depth = MAX(x.depth, b->expressions[parts[i]].depth + 1);
	if (n) {
		x.parts = keep(b, parts, n, sizeof(*parts));
		if (!x.parts)
			return 0;
	}
	return add(b, x);
}

uint32_t grammar_sequence(struct grammar_builder *b, const uint32_t *parts, size_t n)
{
	return n == 1 ? parts[0] : n ? add_parts(b, SEQUENCE, parts, n) : 0;
}

uint32_t grammar_choice(struct grammar_builder *b, const uint32_t *parts, size_t n)
{
	return n == 1 ? parts[0] : add_parts(b, CHOICE, parts, n);
}

uint32_t grammar_repeat(struct grammar_builder *b, uint32_t part, uint32_t min, uint32_t max)
{
	if ((min > GRAMMAR_REPEAT_MAX || (max > GRAMMAR_REPEAT_MAX && max != GRAMMAR_NO_LIMIT)) &&
	    !b->failed.code)
		err_set(&b->failed, E2BIG, "the grammar has a repetition of more than %d times",
			GRAMMAR_REPEAT_MAX);
	if (min > max)
		return grammar_choice(b, NULL, 0);
	return add(b, (struct expression){.kind = REPEAT,
					  .depth = b->expressions[part].depth + 1,
					  .n = min,
					  .most = max,
					  .part = part});
}

uint32_t grammar_rule(struct grammar_builder *b, const char *name)
{
	const char *copy = arena_strndup(&b->arena, name, strnlen(name, NAME_MAX_BYTES));

	if (b->n_rules == GRAMMAR_RULES_MAX) {
		if (!b->failed.code)
			err_set(&b->failed, E2BIG, "the grammar has more than %d rules",
				GRAMMAR_RULES_MAX);
		return 0;
	}
	if (!copy || !array_grow(b->rules, b->rules_cap, b->n_rules + 1)) {
		grammar_no_memory(b);
		return 0;
	}
	b->rules[b->n_rules] = (struct rule){.name = copy};
	return b->n_rules++;
}

void grammar_define(struct grammar_builder *b, uint32_t rule, uint32_t expression)
{
	if (rule >= b->n_rules)
		return; /* the builder has failed */
	b->rules[rule].expression = expression;
	b->rules[rule].defined = true;
}

bool grammar_defined(const struct grammar_builder *b, uint32_t rule)
{
	return rule < b->n_rules && b->rules[rule].defined;
}

bool grammar_failed(const struct grammar_builder *b)
{
	return b->failed.code;
}

uint32_t grammar_call(struct grammar_builder *b, uint32_t rule)
{
	return add(b, (struct expression){.kind = CALL, .n = rule});
}

int grammar_build(struct grammar_builder *b, uint32_t root, struct grammar **ret, struct err *e)
{
	uint32_t *order = NULL;
	struct grammar *g;
	int r;

	if (b->failed.code) {
		if (e)
			*e = b->failed;
		return -b->failed.code;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_no_memory(e);
	r = grammar_emit(b, root, g, &order, e);
	if (!r)
		r = grammar_finish(g, b, order, e);
	free(order);
	if (r < 0)
		grammar_free(g);
	else
		*ret = g;
	return r;
}

struct grammar *grammar_share(struct grammar *g)
{
	g->shares++;
	return g;
}

void grammar_free(struct grammar *g)
{
	if (!g)
		return;
	if (g->shares) {
		g->shares--;
		return;
	}
	free(g->nodes);
	free(g->edges);
	free(g->rules);
	free(g);
}

uint32_t grammar_size(const struct grammar *g)
{
	return g->n_nodes;
}

size_t grammar_bytes(const struct grammar *g)
{
	return sizeof(*g) + g->nodes_cap * sizeof(*g->nodes) + g->edges_cap * sizeof(*g->edges) +
	       g->rules_cap * sizeof(*g->rules);
}

/* Not memcmp: between the members of an edge or a rule are bytes without a value. */
static bool equal_edges(const struct grammar_edge *a, const struct grammar_edge *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].lo != b[i].lo || a[i].hi != b[i].hi || a[i].next != b[i].next)
			return false;
	return true;
}

static bool equal_rules(const struct grammar_rule *a, const struct grammar_rule *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].entry != b[i].entry || a[i].nullable != b[i].nullable)
			return false;
	return true;
}

bool grammar_equal(const struct grammar *a, const struct grammar *b)
{
	if (a->n_nodes != b->n_nodes || a->n_edges != b->n_edges || a->n_rules != b->n_rules ||
	    a->root != b->root)
		return false;
	for (uint32_t i = 0; i < a->n_nodes; i++)
		if (a->nodes[i].kind != b->nodes[i].kind || a->nodes[i].a != b->nodes[i].a ||
		    a->nodes[i].b != b->nodes[i].b)
			return false;
	return equal_edges(a->edges, b->edges, a->n_edges) &&
	       equal_rules(a->rules, b->rules, a->n_rules);
}

uint64_t grammar_hash(const struct grammar *g)
{
	uint64_t h = mix_add(mix_add(g->n_nodes, g->n_rules), g->root);

	for (uint32_t i = 0; i < g->n_nodes; i++)
		h = mix_add(mix_add(h, (uint64_t)g->nodes[i].kind << 32 | g->nodes[i].a),
			    g->nodes[i].b);
	for (uint32_t i = 0; i < g->n_edges; i++)
		h = mix_add(h, (uint64_t)g->edges[i].lo << 40 | (uint64_t)g->edges[i].hi << 32 |
				       g->edges[i].next);
	for (uint32_t i = 0; i < g->n_rules; i++)
		h = mix_add(h, (uint64_t)g->rules[i].nullable << 32 | g->rules[i].entry);
	return h;
}
