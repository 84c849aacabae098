/* Decides which slot of which activation each name of a template means. This file follows jinja2's idtracking.py and
 * compiler.py step by step, because a template can see their decisions:
 *
 * - A scope is analysed as a whole before it runs. If the scope reads a name before it assigns the name, the value
 *   comes from a scope around, or from the context. If the scope assigns the name first, and no scope around has the
 *   name, the variable begins as undefined, even if the context has a value of that name.
 * - An assignment in a loop, a macro, or a block of set, filter or generation belongs to the scope of that loop, macro
 *   or block. Each time the scope is entered, the variable starts with the value that a scope around has for the name,
 *   if one has it.
 * - The branches of an `if` are no scopes. A name that was not assigned before the `if` has, until a branch assigns it,
 *   the value of the scope around or of the context.
 *
 * This file also finds the filters, tests and methods. An unknown or refused filter or test is an error, unless it
 * stands in an `if` (a tag, or a if b else c) of the same scope: inside an `if`, jinja2 (and so eval.c) fails only when
 * the filter or test is used. */
#include "protocol/jinja/scope.h"

#include <string.h>

#include "protocol/jinja/tables.h"

/* The value with which a variable begins when its scope is entered. */
enum action {
	LOAD_PARAMETER, /* set by the code that enters the scope */
	LOAD_CONTEXT,
	LOAD_OUTER,   /* a copy of the variable in a scope around */
	LOAD_NOTHING, /* undefined */
};

/* How the statements analysed so far use a symbol, which is a name in one scope. */
struct state {
	bool present; /* the scope has a variable of this name */
	bool stored;  /* the name was assigned, or is a parameter */
	enum action action;
};

struct symbol {
	struct value name;
	struct state state;
	unsigned slot;
	struct symbol *chain; /* next symbol of the same hash bucket */
	struct symbol *next;  /* next symbol in the order of creation */
};

enum { BUCKETS = 32 };

struct scope {
	struct scope *parent;
	struct function *function;
	unsigned depth; /* nesting level of the function: 0 for the template */
	struct symbol *bucket[BUCKETS];
	struct symbol *first, **last;
};

/* A list of symbols, each with a state that it had or shall get. */
struct changes {
	struct change {
		struct symbol *symbol;
		struct state state;
	} * v;
	size_t n, cap;
};

struct resolver {
	struct reader *rd;
	/* the state before each change, so that branches of an `if` can be undone */
	struct changes log;
	size_t names_cap;
};

/* ---- symbols ---- */

static unsigned bucket_of(struct value name)
{
	unsigned h = 5381;

	for (uint32_t i = 0; i < name.len; i++)
		h = h * 33 + (unsigned char)name.s[i];
	return h % BUCKETS;
}

static struct symbol *find_symbol(const struct scope *s, struct value name)
{
	struct symbol *y = s->bucket[bucket_of(name)];

	while (y && !value_same(y->name, name))
		y = y->chain;
	return y;
}

/* Returns the symbol of this name in the nearest scope, from s outwards, that has a variable of this name; NULL: none
 * has. */
static struct symbol *find_reference(const struct scope *s, struct value name,
				     const struct scope **ret_scope)
{
	for (; s; s = s->parent) {
		struct symbol *y = find_symbol(s, name);

		if (y && y->state.present) {
			*ret_scope = s;
			return y;
		}
	}
	return NULL;
}

static void note(struct resolver *r, struct changes *c, struct symbol *y)
{
	struct change *p = reader_grow(r->rd, c->v, c->n, &c->cap, sizeof(*p));

	if (!p)
		return;
	c->v = p;
	c->v[c->n++] = (struct change){y, y->state};
}

static void set_state(struct resolver *r, struct symbol *y, struct state to)
{
	note(r, &r->log, y);
	y->state = to;
}

static bool outer_has(const struct scope *s, struct value name)
{
	const struct scope *where;

	return s->parent && find_reference(s->parent, name, &where);
}

/* Notes that a scope reads a name, assigns it, or has it as a parameter (`use`). A name that is read, and that this
 * scope or one around it has already, needs no symbol of its own. */
static void use_name(struct resolver *r, struct scope *s, struct value name, enum name_use use)
{
	const struct scope *where;
	struct symbol *y = find_symbol(s, name);
	struct state to = y ? y->state : (struct state){0};

	if (use == NAME_LOAD && find_reference(s, name, &where))
		return;
	if (!y) {
		unsigned b = bucket_of(name);

		y = reader_alloc(r->rd, 1, sizeof(*y));
		if (!y)
			return;
		*y = (struct symbol){.name = name, .chain = s->bucket[b]};
		s->bucket[b] = y;
		*s->last = y;
		s->last = &y->next;
	}
	if (use == NAME_LOAD)
		to = (struct state){true, false, LOAD_CONTEXT};
	else if (use == NAME_PARAM)
		to = (struct state){true, true, LOAD_PARAMETER};
	else if (to.present)
		to.stored = true;
	else
		to = (struct state){true, true, outer_has(s, name) ? LOAD_OUTER : LOAD_NOTHING};
	set_state(r, y, to);
}

/* ---- how the statements of one scope use its symbols ---- */

static void look(struct resolver *r, struct scope *s, const struct node *n);

static void look_all(struct resolver *r, struct scope *s, const struct node *n)
{
	for (; n && !r->rd->rc; n = n->next)
		look(r, s, n);
}

/* Each branch is analysed from the state before the `if`. When a branch is done, its changes are noted in `after` and
 * undone. At the end the changes of all branches are made again. A name that a branch assigns, and that was not
 * assigned before, begins with the value of the scope around, or of the context. */
static void look_branches(struct resolver *r, struct scope *s, const struct node *n)
{
	const struct node *branch[3] = {n->list, n->b, n->list2};
	struct changes after = {0};
	size_t begin = r->log.n;

	for (int i = 0; i < 3 && !r->rd->rc; i++) {
		look_all(r, s, branch[i]);
		for (size_t k = begin; k < r->log.n; k++)
			note(r, &after, r->log.v[k].symbol);
		while (r->log.n > begin) {
			r->log.n--;
			r->log.v[r->log.n].symbol->state = r->log.v[r->log.n].state;
		}
	}
	for (size_t k = 0; k < after.n; k++) {
		struct symbol *y = after.v[k].symbol;
		struct state to = after.v[k].state;

		if (to.stored && !y->state.stored)
			to.action = outer_has(s, y->name) ? LOAD_OUTER : LOAD_CONTEXT;
		else if (y->state.stored)
			to = (struct state){true, true, y->state.action};
		set_state(r, y, to);
	}
}

static void look(struct resolver *r, struct scope *s, const struct node *n)
{
	switch (n->type) {
	case N_NAME: use_name(r, s, n->name, (enum name_use)n->op); return;
	case N_NSREF: use_name(r, s, n->name, NAME_LOAD); return;
	case N_IF:
		look(r, s, n->a);
		look_branches(r, s, n);
		return;
	case N_MACRO: use_name(r, s, n->name, NAME_STORE); return;
	case N_SET:
		look(r, s, n->b);
		look(r, s, n->a);
		return;
	case N_FOR: look(r, s, n->b); return;
	case N_SET_BLOCK: look(r, s, n->a); return;
	case N_FILTER_BLOCK: look(r, s, n->b); return;
	case N_GENERATION: return;
	default: break;
	}
	look_all(r, s, n->a);
	look_all(r, s, n->b);
	look_all(r, s, n->c);
	look_all(r, s, n->list);
	look_all(r, s, n->list2);
}

/* Declares the names of a target as parameters of the scope. */
static void look_as_parameters(struct resolver *r, struct scope *s, const struct node *target)
{
	if (target->type == N_NAME)
		use_name(r, s, target->name, NAME_PARAM);
	for (const struct node *n = target->list; n; n = n->next)
		look_as_parameters(r, s, n);
}

/* ---- scopes become frames ---- */

static void begin_scope(struct scope *s, struct scope *parent, struct function *f, unsigned depth)
{
	*s = (struct scope){.parent = parent, .function = f, .depth = depth};
	s->last = &s->first;
}

static unsigned context_name(struct resolver *r, struct value name)
{
	struct template *t = r->rd->t;
	struct value *p;

	for (unsigned i = 0; i < t->ncontext_names; i++)
		if (value_same(t->context_names[i], name))
			return i;
	p = reader_grow(r->rd, t->context_names, t->ncontext_names, &r->names_cap, sizeof(*p));
	if (!p)
		return 0;
	t->context_names = p;
	t->context_names[t->ncontext_names] = name;
	return t->ncontext_names++;
}

/* Gives the symbols of an analysed scope their slots. Fills the scope's frame: its slots, and which of them get a value
 * when the scope is entered (struct slot_load). */
static void end_scope(struct resolver *r, struct scope *s, struct frame *ret)
{
	struct slot_load *loads;
	const struct scope *where;
	struct symbol *outer;

	*ret = (struct frame){.first = s->function->nslots};
	for (struct symbol *y = s->first; y; y = y->next)
		y->slot = s->function->nslots++;
	ret->n = s->function->nslots - ret->first;
	r->log.n = 0;
	loads = reader_alloc(r->rd, ret->n, sizeof(*loads));
	ret->loads = loads;
	for (struct symbol *y = s->first; y && loads; y = y->next) {
		struct slot_load *l = &loads[ret->nloads];

		l->slot = y->slot;
		if (y->state.action == LOAD_CONTEXT) {
			l->from_context = true;
			l->context_name = context_name(r, y->name);
			ret->nloads++;
		} else if (y->state.action == LOAD_OUTER &&
			   (outer = find_reference(s->parent, y->name, &where))) {
			l->outer = (struct variable){s->depth - where->depth, outer->slot};
			ret->nloads++;
		}
	}
}

/* ---- names become variables ---- */

static void resolve(struct resolver *r, struct scope *s, struct node *n, bool soft);

static void resolve_all(struct resolver *r, struct scope *s, struct node *n, bool soft)
{
	for (; n && !r->rd->rc; n = n->next)
		resolve(r, s, n, soft);
}

/* Returns whether jinja2 gives the name a special meaning: it does so for caller, kwargs and varargs in a macro that
 * reads them before it assigns them, and has no parameter of that name. No published chat template uses the special
 * meaning. */
static bool is_special(const struct scope *s, const struct scope *where, const struct symbol *y)
{
	return (where->depth < s->depth || (s->depth && y->state.action == LOAD_CONTEXT)) &&
	       (value_is(y->name, "caller") || value_is(y->name, "kwargs") ||
		value_is(y->name, "varargs"));
}

static void resolve_name(struct resolver *r, struct scope *s, struct node *n)
{
	const struct scope *where = NULL;
	struct symbol *y = find_reference(s, n->name, &where);

	if (r->rd->rc)
		return;
	if (!y) /* cannot be: every name was analysed before */
		reader_fail(r->rd, n->line, "name '%.*s' cannot be resolved",
			    (int)MIN(n->name.len, 64u), n->name.s);
	else if (is_special(s, where, y))
		reader_fail(r->rd, n->line, "'%.*s' in a macro is not supported in chat templates",
			    (int)n->name.len, n->name.s);
	else
		n->where = (struct variable){s->depth - where->depth, y->slot};
}

static void resolve_builtin(struct resolver *r, struct node *n, bool soft)
{
	const char *what = n->type == N_FILTER ? "filter" : "test";
	int len = (int)MIN(n->name.len, 64u);

	n->builtin = builtin_find(n->type == N_FILTER ? FILTER : TEST, n->name.s, n->name.len);
	if (soft || r->rd->rc)
		return;
	if (!n->builtin)
		reader_fail(r->rd, n->line, "no %s named '%.*s'", what, len, n->name.s);
	else if (!n->builtin->call)
		reader_fail(r->rd, n->line, "%s '%.*s' is not supported in chat templates", what,
			    len, n->name.s);
}

/* Analyses and resolves a scope within the same function: a body, and the filters applied to it (NULL: none). */
static void resolve_block(struct resolver *r, struct scope *s, struct node *body,
			  struct node *filter, struct frame *ret)
{
	struct scope inner;

	begin_scope(&inner, s, s->function, s->depth);
	look_all(r, &inner, body);
	look_all(r, &inner, filter);
	end_scope(r, &inner, ret);
	resolve_all(r, &inner, body, false);
	resolve_all(r, &inner, filter, false);
}

static void resolve_for(struct resolver *r, struct scope *s, struct node *n)
{
	struct scope inner;

	begin_scope(&inner, s, s->function, s->depth);
	if (n->c) {
		/* The target's variables have slots of their own for the test, in the same order as for the body. */
		look_as_parameters(r, &inner, n->a);
		look(r, &inner, n->c);
		end_scope(r, &inner, &n->test_frame);
		resolve(r, &inner, n->c, false);
		begin_scope(&inner, s, s->function, s->depth);
	}
	use_name(r, &inner, value_cstr("loop"), NAME_PARAM);
	look_as_parameters(r, &inner, n->a);
	look_all(r, &inner, n->list);
	end_scope(r, &inner, &n->frame);
	resolve(r, &inner, n->a, false);
	resolve_all(r, &inner, n->list, false);
	if (n->list2)
		resolve_block(r, s, n->list2, NULL, &n->else_frame);
}

static void resolve_macro(struct resolver *r, struct scope *s, struct node *n)
{
	struct function *f = n->function;
	struct scope inner;

	begin_scope(&inner, s, f, s->depth + 1);
	look_all(r, &inner, f->params);
	look_all(r, &inner, f->defaults);
	look_all(r, &inner, n->list);
	end_scope(r, &inner, &f->frame);
	resolve_all(r, &inner, f->params, false);
	resolve_all(r, &inner, f->defaults, false);
	resolve_all(r, &inner, n->list, false);
}

/* Gives the names in a node their variables, and finds its filters, tests and methods. soft: the node stands in an
 * `if`, where unknown and refused filters and tests are no error yet. */
static void resolve(struct resolver *r, struct scope *s, struct node *n, bool soft)
{
	switch (n->type) {
	case N_NAME:
	case N_NSREF: resolve_name(r, s, n); return;
	case N_FILTER:
	case N_TEST: resolve_builtin(r, n, soft); break;
	case N_ATTR:
		for (int kind = METHOD_STR; kind <= METHOD_LOOP; kind++)
			if (builtin_find((enum builtin_kind)kind, n->name.s, n->name.len))
				n->op |= 1 << kind;
		break;
	case N_COND:
	case N_IF: soft = true; break;
	case N_FOR:
		resolve(r, s, n->b, soft);
		resolve_for(r, s, n);
		return;
	case N_MACRO:
		resolve_name(r, s, n);
		resolve_macro(r, s, n);
		return;
	case N_SET_BLOCK:
		resolve(r, s, n->a, soft);
		resolve_block(r, s, n->list, n->b, &n->frame);
		return;
	case N_FILTER_BLOCK:
	case N_GENERATION: resolve_block(r, s, n->list, n->b, &n->frame); return;
	default: break;
	}
	resolve_all(r, s, n->a, soft);
	resolve_all(r, s, n->b, soft);
	resolve_all(r, s, n->c, soft);
	resolve_all(r, s, n->list, soft);
	resolve_all(r, s, n->list2, soft);
}

void scope(struct reader *rd)
{
	struct resolver r = {.rd = rd};
	struct template *t = rd->t;
	struct value *names;
	struct scope root;

	begin_scope(&root, NULL, &t->root, 0);
	t->root.name = t->name;
	look_all(&r, &root, t->body);
	end_scope(&r, &root, &t->root.frame);
	resolve_all(&r, &root, t->body, false);
	names = reader_alloc(rd, t->ncontext_names, sizeof(*names));
	if (names && t->ncontext_names)
		memcpy(names, t->context_names, t->ncontext_names * sizeof(*names));
	t->context_names = names;
}
