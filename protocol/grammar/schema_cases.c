/* The cases of a place: the ways in which its schemas can all be satisfied. */
#include <errno.h>
#include <string.h>

#include "protocol/grammar/schema.h"

/* A schema that is still to be added to a case. */
struct waiting {
	json_t *schema;
	const struct schema_node *from;
	const struct waiting *next;
	bool aside;
};

/* A keyword one of whose branches is to be added. */
struct fork {
	const json_t *branches;
	const struct schema_node *from;
	const struct fork *next;
	bool aside;
};

struct search {
	bool loose;
	bool (*each)(struct schemas *s, const struct schema_case *c, void *arg);
	void *arg;
	unsigned n_cases;
	bool cut; /* there were too many cases */
};

/* A case that grows: its nodes are a list, the last one first. */
struct growing {
	const struct schema_node *nodes;
	size_t n;
	const struct waiting *waiting;
	const struct fork *forks;
	unsigned types, about;
	bool typed;
};

static bool has(const json_t *schema, const char *keyword)
{
	return json_object_get(schema, keyword);
}

static void push(struct schemas *s, struct growing *g, json_t *schema,
		 const struct schema_node *from, bool aside)
{
	struct waiting *t = arena_alloc(&s->cases, sizeof(*t));

	if (!t) {
		schema_no_memory(s);
		return;
	}
	*t = (struct waiting){schema, from, g->waiting, aside};
	g->waiting = t;
}

static void push_list(struct schemas *s, struct growing *g, const json_t *list,
		      const struct schema_node *from, bool aside)
{
	/* The first schema is taken first. */
	for (size_t i = json_array_size(list); i-- > 0 && !s->r;)
		push(s, g, json_array_get(list, i), from, aside);
}

static void push_fork(struct schemas *s, struct growing *g, const json_t *branches,
		      const struct schema_node *from, bool aside)
{
	struct fork *f = arena_alloc(&s->cases, sizeof(*f));

	if (!f) {
		schema_no_memory(s);
		return;
	}
	*f = (struct fork){branches, from, g->forks, aside};
	g->forks = f;
}

/* Returns whether a case has the schema already. */
static bool has_node(struct schemas *s, const struct growing *g, const struct waiting *t)
{
	unsigned depth = 0;

	for (const struct schema_node *n = t->from; n; n = n->from, depth++) {
		if (n->schema == t->schema && !s->r)
			s->r = err_set(
				s->e, EINVAL,
				"a JSON schema refers to itself without a property or an element between");
	}
	if (depth > SCHEMA_DEPTH_MAX && !s->r)
		s->r = err_set(
			s->e, E2BIG,
			"the JSON schema has $ref, allOf or anyOf more than %d deep in each other",
			SCHEMA_DEPTH_MAX);
	for (const struct schema_node *n = g->nodes; n; n = n->next) {
		if (n->schema == t->schema)
			return true;
	}
	return false;
}

/* Adds the branches of a keyword. */
static void fork_keyword(struct schemas *s, struct growing *g, json_t *schema, const char *keyword,
			 const struct schema_node *node)
{
	if (has(schema, keyword) && !s->r)
		push_fork(s, g, schema_branches(s, schema, keyword), node, !strcmp(keyword, "not"));
}

static void take_not(struct schemas *s, struct growing *g, json_t *schema,
		     const struct schema_node *node, bool loose)
{
	const json_t *type = schema_not(schema, "type");

	if (type) {
		g->types &= ~schema_types(s, json_object_get(schema, "not"));
	} else if (schema_not(schema, "required")) {
		g->types &= T_OBJECT;
		g->typed = true;
	} else if (schema_not(schema, "pattern")) {
		g->types &= T_STRING;
		g->typed = true;
	} else if (schema_not(schema, "multipleOf")) {
		g->types &= T_INTEGER | T_NUMBER;
		g->typed = true;
	} else if (!loose && !schema_not(schema, "const") && !schema_not(schema, "enum")) {
		fork_keyword(s, g, schema, "not", node);
	}
}

/* Adds the next schema. False: the case accepts nothing. */
static bool take(struct schemas *s, const struct search *x, struct growing *g)
{
	const struct waiting *t = g->waiting;
	json_t *schema = t->schema, *all;
	struct schema_node *node;

	g->waiting = t->next;
	if (!schema_works(s, SCHEMA_WORK + g->n) || json_is_false(schema))
		return false;
	if (json_is_true(schema) || has_node(s, g, t))
		return !s->r;
	g->about |= schema_check(s, schema);
	node = arena_alloc(&s->cases, sizeof(*node));
	if (!node) {
		schema_no_memory(s);
		return false;
	}
	*node = (struct schema_node){schema, t->from, g->nodes, t->aside};
	g->nodes = node;
	g->n++;
	g->types &= schema_types(s, schema);
	g->typed = g->typed || has(schema, "type") || has(schema, "const") || has(schema, "enum");
	if (has(schema, "not"))
		take_not(s, g, schema, node, x->loose);
	if (x->loose) {
		if (has(schema, "oneOf"))
			push_fork(s, g, schema_list(s, schema, "oneOf"), node, false);
	} else {
		fork_keyword(s, g, schema, "oneOf", node);
		fork_keyword(s, g, schema, "if", node);
		if (has(schema, "dependentSchemas") && !s->r)
			push_list(s, g, schema_dependent(s, schema, "dependentSchemas"), node,
				  false);
		if (has(schema, "dependentRequired") && !s->r)
			push_list(s, g, schema_dependent(s, schema, "dependentRequired"), node,
				  false);
	}
	fork_keyword(s, g, schema, "anyOf", node);
	all = schema_list(s, schema, "allOf");
	push_list(s, g, all, node, false);
	if (has(schema, "$dynamicRef"))
		push(s, g, schema_target(s, schema, "$dynamicRef"), node, false);
	if (has(schema, "$ref"))
		push(s, g, schema_target(s, schema, "$ref"), node, false);
	return !s->r && g->types;
}

static bool finish(struct schemas *s, struct search *x, const struct growing *g)
{
	struct schema_case c = {.n = g->n, .types = g->types, .about = g->about, .typed = g->typed};
	const struct schema_node **v = arena_array(&s->cases, g->n + 1, sizeof(*v));
	size_t i = g->n;

	if (!v) {
		schema_no_memory(s);
		return false;
	}
	if (++x->n_cases > SCHEMA_CASES_MAX) {
		if (!s->r && !x->loose)
			s->r = err_set(
				s->e, E2BIG,
				"the JSON schema has more than %d combinations of alternatives at one place",
				SCHEMA_CASES_MAX);
		x->cut = true;
		return false;
	}
	for (const struct schema_node *n = g->nodes; n; n = n->next)
		v[--i] = n;
	c.nodes = v;
	return x->each(s, &c, x->arg);
}

/* Returns false if there is enough. */
static bool search(struct schemas *s, struct search *x, struct growing g, unsigned depth)
{
	const struct fork *f;
	json_t *branch;
	size_t i;

	while (g.waiting) {
		if (!take(s, x, &g))
			return !s->r;
	}
	f = g.forks;
	if (!f)
		return finish(s, x, &g);
	if (depth == SCHEMA_DEPTH_MAX) {
		x->cut = true;
		if (!s->r && !x->loose)
			s->r = err_set(
				s->e, E2BIG,
				"the JSON schema has more than %d alternatives inside one another at one place",
				SCHEMA_DEPTH_MAX);
		return false;
	}
	g.forks = f->next;
	json_array_foreach(f->branches, i, branch)
	{
		struct growing next = g;

		push(s, &next, branch, f->from, f->aside);
		if (s->r || !search(s, x, next, depth + 1))
			return false;
	}
	return true;
}

bool schema_cases(struct schemas *s, const struct schema_set *set, bool loose,
		  bool (*each)(struct schemas *s, const struct schema_case *c, void *arg),
		  void *arg)
{
	struct search x = {.loose = loose, .each = each, .arg = arg};
	struct growing g = {.types = T_ALL};

	for (size_t i = set->n; i-- > 0;)
		push(s, &g, set->v[i], NULL, false);
	if (!s->r && !set->never)
		search(s, &x, g, 0);
	return !x.cut;
}

bool schema_reaches(const struct schema_node *node, const struct schema_node *to)
{
	while (node && node != to && !node->aside)
		node = node->from;
	return node == to;
}

/* ---- whether anything is possible ---- */

/* Takes the constants of a schema, if they are fewer than the best so far. */
static void own_constants(struct schemas *s, json_t *schema, json_t **best)
{
	json_t *one = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");

	if (one && (!*best || json_array_size(*best) > 1))
		*best = schema_keep(s, json_pack("[O]", one));
	if (list && !json_is_array(list))
		schema_wrong(s, "enum", "a list");
	else if (list && (!*best || json_array_size(*best) > json_array_size(list)))
		*best = list;
}

/* Finds the shortest list of constants in a schema and those that it refers to. left: schemas that may be looked at;
 * constants that are not found are those of the cases. */
static void find_constants(struct schemas *s, json_t *schema, unsigned *left, json_t **best)
{
	json_t *all = json_object_get(schema, "allOf"), *part;
	size_t i;

	if (!*left || !schema_works(s, SCHEMA_WORK))
		return;
	--*left;
	own_constants(s, schema, best);
	if (json_object_get(schema, "$ref")) {
		part = schema_target(s, schema, "$ref");
		if (part)
			find_constants(s, part, left, best);
	}
	json_array_foreach(all, i, part) find_constants(s, part, left, best);
}

json_t *schema_constants(struct schemas *s, const struct schema_set *set)
{
	json_t *best = NULL;

	for (size_t i = 0; i < set->n; i++) {
		unsigned left = SCHEMA_DEPTH_MAX;

		find_constants(s, set->v[i], &left, &best);
	}
	return s->r ? NULL : best;
}

json_t *schema_case_constants(struct schemas *s, const struct schema_case *c)
{
	json_t *best = NULL;

	for (size_t i = 0; i < c->n; i++)
		own_constants(s, c->nodes[i]->schema, &best);
	return s->r ? NULL : best;
}

struct question {
	int depth;
	bool possible;
};

/* Returns whether the properties that a case requires are possible. */
static bool members_possible(struct schemas *s, const struct schema_case *c, int depth)
{
	for (size_t i = 0; i < c->n; i++) {
		const json_t *names = json_object_get(c->nodes[i]->schema, "required"), *name;
		size_t k;

		json_array_foreach(names, k, name)
		{
			struct schema_set set = {0};
			bool possible;

			if (!json_is_string(name) || !schema_works(s, c->n))
				return true;
			for (size_t j = 0; j < c->n; j++) {
				json_t *own = json_object_get(json_object_get(c->nodes[j]->schema,
									      "properties"),
							      json_string_value(name));

				if (own)
					schema_add(s, &set, own);
			}
			possible = schema_possible(s, &set, depth + 1);
			free(set.v);
			if (!possible)
				return false;
		}
	}
	return true;
}

static bool case_possible(struct schemas *s, const struct schema_case *c, void *arg)
{
	struct question *q = arg;
	unsigned types = c->types;
	int64_t lo, hi;

	if (types & (T_NUMBER | T_INTEGER) &&
	    schema_bounds(s, c, types & T_NUMBER ? 1e6 : 1, &lo, &hi) &&
	    lo > hi + (types & T_NUMBER ? 1
					: 0)) /* between two millionths there are more numbers */
		types &= ~(unsigned)(T_NUMBER | T_INTEGER);
	if (types & T_OBJECT && !members_possible(s, c, q->depth))
		types &= ~(unsigned)T_OBJECT;
	q->possible = types || s->r;
	return !q->possible;
}

bool schema_possible(struct schemas *s, const struct schema_set *set, int depth)
{
	struct question q = {.depth = depth};
	json_t *list, *value;
	size_t i;

	if (set->never)
		return false;
	if (depth == 4 || s->r)
		return true;
	list = schema_constants(s, set);
	if (list) {
		json_array_foreach(list, i, value)
		{
			enum verdict all = YES;

			for (size_t k = 0; k < set->n && all != NO; k++)
				all = verdict_all(all, schema_valid(s, set->v[k], value));
			if (all != NO || s->r)
				return true;
		}
		return false;
	}
	return !schema_cases(s, set, true, case_possible, &q) || q.possible || s->r;
}
