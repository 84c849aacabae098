/* Expressions as nodes of the graph: each use of an expression is a copy of its nodes, made from the end to the
 * beginning, since a node knows the one behind it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "protocol/grammar/grammar_builder.h"

enum { WORK_MAX = 1 << 23, PACE = 1 << 12 /* expressions between two questions */ };

struct build {
	struct grammar_builder *b;
	struct grammar *g;
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
	if (!array_grow(g->nodes, g->nodes_cap, g->n_nodes + 1))
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
	else if (!array_grow(g->edges, x->g->edges_cap, g->n_edges + 1))
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
	if (x->work % PACE == 0 && pace_gives_up(x->b->pace))
		give_up(x, err_set(x->e, ECANCELED, "the grammar is not wanted any more"));
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

		if (!array_grow(g->rules, g->rules_cap, i + 1))
			return err_no_memory(x->e);
		g->rules[i] = (struct grammar_rule){.entry = entry};
	}
	return x->r;
}

int grammar_emit(struct grammar_builder *b, uint32_t root, struct grammar *g, uint32_t **ret_order,
		 struct err *e)
{
	struct build x = {.b = b, .g = g, .e = e};
	int r = emit_rules(&x, root);

	for (uint32_t i = 0; i < b->n_rules; i++)
		b->rules[i].number = 0;
	*ret_order = x.order;
	return r;
}
