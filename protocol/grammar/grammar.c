#include "protocol/grammar/grammar_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/utf8.h"

enum { NAME_MAX_BYTES = 60, WORK_MAX = 1 << 23 };
static const size_t texts_max = (size_t)64 << 20;

enum kind { EMPTY, LITERAL, CLASS, BYTE, SEQUENCE, CHOICE, REPEAT, CALL };

struct expression {
	enum kind kind;
	uint32_t depth;
	uint32_t n;    /* bytes, ranges or parts; REPEAT: the minimum; CALL: the rule; BYTE: lo */
	uint32_t most; /* REPEAT: the maximum; BYTE: hi */
	union {
		const char *text;
		const struct grammar_range *ranges;
		const uint32_t *parts;
		uint32_t part;
	};
};

struct rule {
	const char *name;
	uint32_t expression;
	bool defined;
	uint32_t number; /* in the graph, plus 1; 0: the graph does not have it */
};

struct grammar_builder {
	struct arena arena;
	struct expression *expressions; /* owned; [0] is the empty text */
	struct rule *rules;		/* owned */
	uint32_t n_expressions, expressions_cap, n_rules, rules_cap;
	struct err failed; /* code 0: nothing has failed */
};

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

static uint32_t add(struct grammar_builder *b, struct expression x)
{
	if (b->failed.code)
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

	if (!p)
		grammar_no_memory(b);
	else
		memcpy(p, from, n * size);
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

/* ---- expressions to nodes ---- */

struct build {
	struct grammar_builder *b;
	struct grammar *g;
	uint32_t nodes_cap, edges_cap, rules_cap;
	uint32_t *order; /* [g->n_rules]: the builder's number of each rule of the graph; owned */
	uint32_t order_cap;
	uint64_t work;
	struct err *e;
	int r; /* negative: the build has failed */
};

static uint32_t give_up(struct build *x, int r)
{
	if (!x->r)
		x->r = r;
	return GRAMMAR_RETURN;
}

static uint32_t too_large(struct build *x)
{
	return x->r ? GRAMMAR_RETURN
		    : give_up(x, err_set(x->e, E2BIG,
					 "the grammar is too large: it has more than %d nodes",
					 GRAMMAR_NODES_MAX));
}

static uint32_t add_node(struct build *x, struct grammar_node node)
{
	struct grammar *g = x->g;

	if (x->r)
		return GRAMMAR_RETURN;
	if (g->n_nodes == GRAMMAR_NODES_MAX)
		return too_large(x);
	if (!array_grow(g->nodes, x->nodes_cap, g->n_nodes + 1))
		return give_up(x, err_no_memory(x->e));
	g->nodes[g->n_nodes] = node;
	return g->n_nodes++;
}

/* Adds an edge for the node that is added next. */
static void add_edge(struct build *x, uint8_t lo, uint8_t hi, uint32_t next)
{
	struct grammar *g = x->g;

	if (x->r)
		return;
	if (g->n_edges == GRAMMAR_EDGES_MAX)
		too_large(x);
	else if (!array_grow(g->edges, x->edges_cap, g->n_edges + 1))
		give_up(x, err_no_memory(x->e));
	else
		g->edges[g->n_edges++] = (struct grammar_edge){lo, hi, next};
}

static uint32_t add_byte(struct build *x, uint8_t lo, uint8_t hi, uint32_t next)
{
	uint32_t first = x->g->n_edges;

	add_edge(x, lo, hi, next);
	return add_node(x, (struct grammar_node){NODE_BYTES, first, 1});
}

/* A sequence of 1 to 4 ranges of bytes: the UTF-8 of some code points. */
struct sequence {
	uint8_t lo[4], hi[4];
	size_t n;
	uint32_t behind; /* the node behind the first byte */
};

struct sequences {
	struct sequence *v; /* owned */
	size_t n, cap;
	bool failed;
};

/* Cuts code points into sequences: first where the length of UTF-8 changes and at the surrogates, then so that all
 * bytes behind the first different one have their whole range. */
static void cut_range(struct sequences *s, uint32_t lo, uint32_t hi)
{
	static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xffff, 0x10ffff};
	char a[4], z[4];
	struct sequence *q;

	if (lo > hi || lo > 0x10ffff)
		return;
	hi = MIN(hi, 0x10ffffu);
	if (lo >= 0xd800 && lo <= 0xdfff)
		lo = 0xe000;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		if (lo <= ends[i] && hi > ends[i]) {
			cut_range(s, lo, ends[i]);
			cut_range(s, ends[i] + 1, hi);
			return;
		}
	}
	if (lo > hi)
		return;
	for (uint32_t low = 0x3f; lo >= 0x80 && low < hi; low = low << 6 | 0x3f) {
		if ((lo & ~low) == (hi & ~low))
			break;
		if (lo & low) {
			cut_range(s, lo, lo | low);
			cut_range(s, (lo | low) + 1, hi);
			return;
		}
		if ((hi & low) != low) {
			cut_range(s, lo, (hi & ~low) - 1);
			cut_range(s, hi & ~low, hi);
			return;
		}
	}
	if (!array_grow(s->v, s->cap, s->n + 1)) {
		s->failed = true;
		return;
	}
	q = &s->v[s->n++];
	q->n = utf8_encode(lo, a);
	utf8_encode(hi, z);
	memcpy(q->lo, a, 4);
	memcpy(q->hi, z, 4);
}

/* Returns a node that reads the bytes; uses one that was added from `since` on, if there is one. */
static uint32_t shared_byte(struct build *x, uint32_t since, uint8_t lo, uint8_t hi, uint32_t next)
{
	struct grammar *g = x->g;

	for (uint32_t i = g->n_nodes; i > since && i + 64 > g->n_nodes; i--) {
		const struct grammar_edge *edge = &g->edges[g->nodes[i - 1].a];

		if (edge->lo == lo && edge->hi == hi && edge->next == next)
			return i - 1;
	}
	return add_byte(x, lo, hi, next);
}

static uint32_t emit_class(struct build *x, const struct expression *c, uint32_t next)
{
	struct sequences s = {0};
	uint32_t since = x->g->n_nodes, first;

	for (uint32_t i = 0; i < c->n; i++)
		cut_range(&s, c->ranges[i].lo, c->ranges[i].hi);
	if (s.failed)
		give_up(x, err_no_memory(x->e));
	x->work += s.n;
	for (size_t i = 0; i < s.n && !x->r; i++) {
		uint32_t to = next;

		for (size_t k = s.v[i].n; k-- > 1;)
			to = shared_byte(x, since, s.v[i].lo[k], s.v[i].hi[k], to);
		s.v[i].behind = to;
	}
	first = x->g->n_edges;
	for (size_t i = 0; i < s.n; i++)
		add_edge(x, s.v[i].lo[0], s.v[i].hi[0], s.v[i].behind);
	free(s.v);
	return add_node(x, (struct grammar_node){NODE_BYTES, first, x->g->n_edges - first});
}

static uint32_t emit(struct build *x, uint32_t expression, uint32_t next);

static uint32_t add_fork(struct build *x, uint32_t one, uint32_t other)
{
	uint32_t first = x->g->n_edges;

	add_edge(x, 0, 0, one);
	add_edge(x, 0, 0, other);
	return add_node(x, (struct grammar_node){NODE_FORK, first, 2});
}

static uint32_t emit_repeat(struct build *x, const struct expression *c, uint32_t next)
{
	uint32_t min = c->n, part = c->part, at = next;

	if (c->most == GRAMMAR_NO_LIMIT) {
		uint32_t loop = add_fork(x, next, next), body = emit(x, part, loop);

		if (!x->r && body != loop) { /* the part has other texts than the empty one */
			x->g->edges[x->g->nodes[loop].a].next = body;
			at = loop;
		}
	} else {
		for (uint32_t i = min; i < c->most && !x->r; i++) {
			uint32_t body = emit(x, part, at);

			if (body == at)
				break;
			at = add_fork(x, body, next);
		}
	}
	for (uint32_t i = 0; i < min && !x->r; i++) {
		uint32_t body = emit(x, part, at);

		if (body == at)
			break;
		at = body;
	}
	return at;
}

static uint32_t number_of(struct build *x, uint32_t rule)
{
	struct rule *r = &x->b->rules[rule];

	if (r->number)
		return r->number - 1;
	if (!r->defined) {
		give_up(x, err_set(x->e, EINVAL, "the rule \"%s\" is not defined", r->name));
		return 0;
	}
	if (!array_grow(x->order, x->order_cap, x->g->n_rules + 1)) {
		give_up(x, err_no_memory(x->e));
		return 0;
	}
	x->order[x->g->n_rules] = rule;
	r->number = ++x->g->n_rules;
	return r->number - 1;
}

/* Returns the node at which the expression begins, if `next` is the node behind it. */
static uint32_t emit(struct build *x, uint32_t expression, uint32_t next)
{
	const struct expression *c = &x->b->expressions[expression];
	uint32_t at = next, first;

	if (++x->work > WORK_MAX)
		return too_large(x);
	if (x->r)
		return GRAMMAR_RETURN;
	switch (c->kind) {
	case EMPTY: break;
	case LITERAL:
		for (uint32_t i = c->n; i-- > 0;)
			at = add_byte(x, (uint8_t)c->text[i], (uint8_t)c->text[i], at);
		break;
	case CLASS: return emit_class(x, c, next);
	case BYTE: return add_byte(x, (uint8_t)c->n, (uint8_t)c->most, next);
	case SEQUENCE:
		for (uint32_t i = c->n; i-- > 0 && !x->r;)
			at = emit(x, c->parts[i], at);
		break;
	case CHOICE: {
		uint32_t *entries = calloc(MAX(c->n, 1u), sizeof(*entries));

		if (!entries)
			return give_up(x, err_no_memory(x->e));
		for (uint32_t i = 0; i < c->n && !x->r; i++)
			entries[i] = emit(x, c->parts[i], next);
		first = x->g->n_edges;
		for (uint32_t i = 0; i < c->n; i++)
			add_edge(x, 0, 0, entries[i]);
		free(entries);
		return add_node(x, (struct grammar_node){NODE_FORK, first, c->n});
	}
	case REPEAT: return emit_repeat(x, c, next);
	case CALL: return add_node(x, (struct grammar_node){NODE_CALL, number_of(x, c->n), next});
	}
	return at;
}

static int emit_rules(struct build *x, uint32_t root)
{
	struct grammar *g = x->g;

	add_node(x, (struct grammar_node){NODE_RETURN, 0, 0});
	add_node(x, (struct grammar_node){NODE_ACCEPT, 0, 0});
	if (x->r)
		return x->r;
	g->root = number_of(x, root);
	/* A rule's first call numbers it, so the list grows meanwhile. */
	for (uint32_t i = 0; i < g->n_rules && !x->r; i++) {
		uint32_t entry = emit(x, x->b->rules[x->order[i]].expression, GRAMMAR_RETURN);

		if (!array_grow(g->rules, x->rules_cap, i + 1))
			return err_no_memory(x->e);
		g->rules[i] = (struct grammar_rule){.entry = entry};
	}
	return x->r;
}

/* ---- properties of nodes and rules ---- */

/* Lists by number: list i is at[first[i]] to at[first[i + 1]], exclusive. */
struct lists {
	uint32_t *first, *at; /* owned */
};

static void lists_release(struct lists *l)
{
	free(l->first);
	free(l->at);
}

/* The pairs (list, value) in any order; pairs: 2 * n numbers. */
static int lists_make(struct lists *l, uint32_t n_lists, const uint32_t *pairs, size_t n)
{
	l->first = calloc((size_t)n_lists + 2, sizeof(*l->first));
	l->at = calloc(n + 1, sizeof(*l->at));
	if (!l->first || !l->at)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		l->first[pairs[2 * i] + 2]++;
	for (uint32_t i = 0; i < n_lists; i++)
		l->first[i + 2] += l->first[i + 1];
	for (size_t i = 0; i < n; i++)
		l->at[l->first[pairs[2 * i] + 1]++] = pairs[2 * i + 1];
	return 0;
}

struct pairs {
	uint32_t *v; /* owned */
	size_t n, cap;
	bool failed;
};

static void add_pair(struct pairs *p, uint32_t list, uint32_t value)
{
	if (!array_grow(p->v, p->cap, 2 * p->n + 2)) {
		p->failed = true;
		return;
	}
	p->v[2 * p->n] = list;
	p->v[2 * p->n++ + 1] = value;
}

/* Marks each node from which RETURN can be reached, with or without reading bytes; a call takes part if the called
 * rule's entry is marked as well. Each edge is looked at once. */
static int mark_nodes(const struct grammar *g, bool reading, bool *marked)
{
	struct pairs before = {0}, calls = {0}, entries = {0};
	struct lists from = {0}, callers = {0}, rules = {0};
	uint32_t *queue = calloc(g->n_nodes, sizeof(*queue)), head = 0, n = 0;
	int r = -ENOMEM;

	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct grammar_node *node = &g->nodes[i];

		if (node->kind == NODE_CALL) {
			add_pair(&before, node->b, i);
			add_pair(&calls, node->a, i);
		} else if (node->kind == NODE_FORK || (node->kind == NODE_BYTES && reading)) {
			for (uint32_t k = 0; k < node->b; k++) {
				if (g->edges[node->a + k].next != GRAMMAR_GONE)
					add_pair(&before, g->edges[node->a + k].next, i);
			}
		}
	}
	for (uint32_t i = 0; i < g->n_rules; i++)
		add_pair(&entries, g->rules[i].entry, i);
	if (!queue || before.failed || calls.failed || entries.failed ||
	    lists_make(&from, g->n_nodes, before.v, before.n) < 0 ||
	    lists_make(&callers, g->n_rules, calls.v, calls.n) < 0 ||
	    lists_make(&rules, g->n_nodes, entries.v, entries.n) < 0)
		goto out;
	marked[GRAMMAR_RETURN] = true;
	queue[n++] = GRAMMAR_RETURN;
	while (head < n) {
		uint32_t at = queue[head++];

		for (uint32_t i = from.first[at]; i < from.first[at + 1]; i++) {
			const struct grammar_node *node = &g->nodes[from.at[i]];

			if (marked[from.at[i]] ||
			    (node->kind == NODE_CALL && !marked[g->rules[node->a].entry]))
				continue;
			marked[from.at[i]] = true;
			queue[n++] = from.at[i];
		}
		for (uint32_t i = rules.first[at]; i < rules.first[at + 1]; i++) {
			uint32_t rule = rules.at[i];

			for (uint32_t k = callers.first[rule]; k < callers.first[rule + 1]; k++) {
				uint32_t call = callers.at[k];

				if (marked[call] || !marked[g->nodes[call].b])
					continue;
				marked[call] = true;
				queue[n++] = call;
			}
		}
	}
	r = 0;
out:
	free(queue);
	free(before.v);
	free(calls.v);
	free(entries.v);
	lists_release(&from);
	lists_release(&callers);
	lists_release(&rules);
	return r;
}

/* Removes the edges to nodes from which no finite text leads to the end of their rule. */
static int prune(struct build *x, bool *marked)
{
	struct grammar *g = x->g;

	if (mark_nodes(g, true, marked) < 0)
		return err_no_memory(x->e);
	if (!marked[g->rules[g->root].entry])
		return err_set(x->e, EINVAL, "the grammar has no text that ends");
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct grammar_node *node = &g->nodes[i];

		if (node->kind != NODE_BYTES && node->kind != NODE_FORK)
			continue;
		for (uint32_t k = 0; k < node->b; k++) {
			struct grammar_edge *edge = &g->edges[node->a + k];

			if (!marked[edge->next])
				*edge = (struct grammar_edge){1, 0, GRAMMAR_GONE};
		}
	}
	return 0;
}

/* Collects the calls that a rule may make before it reads a byte, as pairs (called rule, rule). stack and seen have
 * room for every node. */
static void left_calls(const struct grammar *g, uint32_t rule, const bool *alive, uint32_t *stack,
		       bool *seen, struct pairs *ret)
{
	uint32_t n = 0, at = g->rules[rule].entry;

	if (!alive[at] || seen[at])
		return;
	seen[at] = true;
	stack[n++] = at;
	while (n) {
		const struct grammar_node *node = &g->nodes[stack[--n]];

		if (node->kind == NODE_CALL) {
			add_pair(ret, node->a, rule);
			if (g->rules[node->a].nullable && !seen[node->b]) {
				seen[node->b] = true;
				stack[n++] = node->b;
			}
		}
		for (uint32_t k = 0; node->kind == NODE_FORK && k < node->b; k++) {
			uint32_t next = g->edges[node->a + k].next;

			if (next != GRAMMAR_GONE && !seen[next]) {
				seen[next] = true;
				stack[n++] = next;
			}
		}
	}
}

/* Gives the rules their final numbers (struct grammar_rule). */
static int sort_rules(struct build *x, const bool *alive)
{
	struct grammar *g = x->g;
	struct pairs pairs = {0}, reverse = {0};
	struct lists by_called = {0}, by_caller = {0};
	uint32_t *stack = calloc(g->n_nodes, sizeof(*stack));
	uint32_t *waits = calloc(g->n_rules, sizeof(*waits));
	uint32_t *number = calloc(g->n_rules, sizeof(*number));
	struct grammar_rule *sorted = calloc(g->n_rules, sizeof(*sorted));
	bool *seen = calloc(g->n_nodes, sizeof(*seen));
	uint32_t n = 0, done = 0;
	int r = -ENOMEM;

	if (!stack || !waits || !number || !sorted || !seen)
		goto out;
	for (uint32_t i = 0; i < g->n_rules; i++) {
		/* Two rules share no node but RETURN, whose mark may stay. */
		left_calls(g, i, alive, stack, seen, &pairs);
		seen[GRAMMAR_RETURN] = false;
	}
	for (size_t i = 0; i < pairs.n; i++) {
		add_pair(&reverse, pairs.v[2 * i + 1], pairs.v[2 * i]);
		waits[pairs.v[2 * i]]++;
	}
	if (pairs.failed || reverse.failed ||
	    lists_make(&by_called, g->n_rules, pairs.v, pairs.n) < 0 ||
	    lists_make(&by_caller, g->n_rules, reverse.v, reverse.n) < 0)
		goto out;
	for (uint32_t i = 0; i < g->n_rules; i++) {
		if (!waits[i])
			stack[n++] = i;
	}
	while (n) {
		uint32_t rule = stack[--n];

		number[rule] = done;
		sorted[done++] = g->rules[rule];
		for (uint32_t i = by_caller.first[rule]; i < by_caller.first[rule + 1]; i++) {
			if (!--waits[by_caller.at[i]])
				stack[n++] = by_caller.at[i];
		}
	}
	if (done < g->n_rules) {
		/* Every rule that waits has a caller that waits, so going back ends in a circle: at a rule that comes again.
		 * Rules that wait have no number yet, and get 1 as a mark. */
		uint32_t rule = 0;

		while (!waits[rule])
			rule++;
		while (!number[rule]) {
			uint32_t i = by_called.first[rule];

			number[rule] = 1;
			while (!waits[by_called.at[i]])
				i++;
			rule = by_called.at[i];
		}
		r = err_set(
			x->e, EINVAL,
			"the rule \"%s\" is left-recursive: it calls itself before it reads anything",
			x->b->rules[x->order[rule]].name);
		goto out;
	}
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		if (g->nodes[i].kind == NODE_CALL)
			g->nodes[i].a = number[g->nodes[i].a];
	}
	g->root = number[g->root];
	memcpy(g->rules, sorted, g->n_rules * sizeof(*sorted));
	r = 0;
out:
	free(stack);
	free(waits);
	free(number);
	free(sorted);
	free(seen);
	free(pairs.v);
	free(reverse.v);
	lists_release(&by_called);
	lists_release(&by_caller);
	return r == -ENOMEM ? err_no_memory(x->e) : r;
}

static void make_classes(struct grammar *g)
{
	bool begins[257] = {false};

	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct grammar_node *node = &g->nodes[i];

		for (uint32_t k = 0; node->kind == NODE_BYTES && k < node->b; k++) {
			const struct grammar_edge *edge = &g->edges[node->a + k];

			if (edge->lo <= edge->hi) {
				begins[edge->lo] = true;
				begins[edge->hi + 1] = true;
			}
		}
	}
	for (unsigned c = 0; c < 256; c++) {
		if (!c || begins[c])
			g->of_class[g->n_classes++] = (uint8_t)c;
		g->class_of[c] = (uint8_t)(g->n_classes - 1);
	}
}

static int finish(struct build *x)
{
	struct grammar *g = x->g;
	bool *alive = calloc(g->n_nodes, sizeof(*alive));
	bool *empty = calloc(g->n_nodes, sizeof(*empty));
	int r = -ENOMEM;

	if (!alive || !empty)
		goto out;
	r = prune(x, alive);
	if (r < 0)
		goto out;
	r = mark_nodes(g, false, empty);
	if (r < 0)
		goto out;
	for (uint32_t i = 0; i < g->n_rules; i++)
		g->rules[i].nullable = empty[g->rules[i].entry];
	r = sort_rules(x, alive);
	if (!r)
		make_classes(g);
out:
	free(alive);
	free(empty);
	return r == -ENOMEM ? err_no_memory(x->e) : r;
}

int grammar_build(struct grammar_builder *b, uint32_t root, struct grammar **ret, struct err *e)
{
	struct build x = {.b = b, .e = e};
	int r;

	if (b->failed.code) {
		if (e)
			*e = b->failed;
		return -b->failed.code;
	}
	x.g = calloc(1, sizeof(*x.g));
	if (!x.g)
		return err_no_memory(e);
	r = emit_rules(&x, root);
	if (!r)
		r = finish(&x);
	for (uint32_t i = 0; i < b->n_rules; i++)
		b->rules[i].number = 0;
	free(x.order);
	if (r < 0)
		grammar_free(x.g);
	else
		*ret = x.g;
	return r;
}

void grammar_free(struct grammar *g)
{
	if (!g)
		return;
	free(g->nodes);
	free(g->edges);
	free(g->rules);
	free(g);
}

uint32_t grammar_size(const struct grammar *g)
{
	return g->n_nodes;
}
