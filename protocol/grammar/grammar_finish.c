/* Properties of the nodes and rules of a graph: which ones end, which rules have the empty text, the order of the
 * rules, the classes of bytes. All of it is linear in the graph. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "protocol/grammar/grammar_builder.h"

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

static const char no_text[] = "the grammar has no text that ends";

bool grammar_is_empty(int r, const struct err *e)
{
	return r == -EINVAL && !strcmp(e->text, no_text);
}

/* Removes the edges to nodes from which no finite text leads to the end of their rule. */
static int prune(struct grammar *g, bool *marked, struct err *e)
{
	if (mark_nodes(g, true, marked) < 0)
		return err_no_memory(e);
	if (!marked[g->rules[g->root].entry])
		return err_set(e, EINVAL, "%s", no_text);
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
static int sort_rules(struct grammar *g, const struct grammar_builder *b, const uint32_t *order,
		      const bool *alive, struct err *e)
{
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
		/* Every rule that waits has a caller that waits, so going back ends in a circle: at a rule that comes
		 * again. Rules that wait have no number yet, and get 1 as a mark. */
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
			e, EINVAL,
			"the rule \"%s\" is left-recursive: it calls itself before it reads anything",
			b->rules[order[rule]].name);
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
	return r == -ENOMEM ? err_no_memory(e) : r;
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

int grammar_finish(struct grammar *g, const struct grammar_builder *b, const uint32_t *order,
		   struct err *e)
{
	bool *alive = calloc(g->n_nodes, sizeof(*alive));
	bool *empty = calloc(g->n_nodes, sizeof(*empty));
	int r = -ENOMEM;

	if (!alive || !empty)
		goto out;
	r = prune(g, alive, e);
	if (r < 0)
		goto out;
	r = mark_nodes(g, false, empty);
	if (r < 0)
		goto out;
	for (uint32_t i = 0; i < g->n_rules; i++)
		g->rules[i].nullable = empty[g->rules[i].entry];
	r = sort_rules(g, b, order, alive, e);
	if (!r)
		make_classes(g);
out:
	free(alive);
	free(empty);
	return r == -ENOMEM ? err_no_memory(e) : r;
}
