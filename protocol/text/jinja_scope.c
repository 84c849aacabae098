/*
 * Decides what each name of a template means: which slot of which activation. This follows
 * jinja2's idtracking.py and compiler.py step by step, because their decisions can be seen from a
 * template:
 *
 * - A scope is looked at as a whole before it runs. A name that is read in it before it was ever
 *   assigned there comes from the scope around, or from the context. A name that is only assigned
 *   begins as undefined, even where the context has one of that name.
 * - An assignment in a loop, macro or block belongs to that scope. The variable starts each time
 *   with the value of the scope around, if that has one.
 * - The branches of an `if` are no scopes. What one of them assigns is, before that, what the
 *   scope around or the context has.
 *
 * It also finds the filters and tests. An unknown one is an error, except below an `if`, where
 * jinja2 (and so the evaluator) complains only when it is used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/text/jinja_ast.h"
#include "protocol/text/jinja_builtin.h"

enum action {
	LOAD_PARAMETER, /* filled by who enters the scope */
	LOAD_CONTEXT,
	LOAD_OUTER, /* a copy of the scope around's */
	LOAD_NOTHING,
};

struct state {
	bool present, stored;
	enum action action;
};

struct symbol {
	const char *name;
	size_t len;
	struct state state;
	unsigned slot;
	struct symbol *chain; /* of the same bucket */
	struct symbol *next;  /* in the order of their making */
};

enum { BUCKETS = 32 };

struct scope {
	struct scope *parent;
	struct function *function;
	unsigned depth; /* of the function */
	struct symbol *bucket[BUCKETS];
	struct symbol *first, **last;
};

struct change {
	struct symbol *symbol;
	struct state before;
};

struct resolver {
	struct template *t;
	struct arena arena; /* scopes and symbols, dropped at the end */
	struct change *log; /* what the branches of an `if` did */
	size_t nlog, log_cap;
	unsigned names_cap;
	int rc;
	struct err *err;
};

static void no_memory(struct resolver *r)
{
	r->rc = err_set(r->err, ENOMEM, "template %.80s: out of memory", r->t->name);
}

#define scope_error(r, n, ...) \
	((r)->rc = jinja_syntax_error((r)->t->name, (n)->line, (r)->err, __VA_ARGS__))

/* ---- symbols ---- */

static unsigned bucket_of(const char *name, size_t len)
{
	unsigned h = 5381;

	for (size_t i = 0; i < len; i++)
		h = h * 33 + (unsigned char)name[i];
	return h % BUCKETS;
}

static struct symbol *find_symbol(const struct scope *s, const char *name, size_t len)
{
	struct symbol *y = s->bucket[bucket_of(name, len)];

	while (y && (y->len != len || memcmp(y->name, name, len)))
		y = y->chain;
	return y;
}

/* The scope, from s outwards, that has a variable of this name. */
static struct symbol *find_reference(const struct scope *s, const char *name, size_t len,
				     const struct scope **ret_scope)
{
	for (; s; s = s->parent) {
		struct symbol *y = find_symbol(s, name, len);

		if (y && y->state.present) {
			*ret_scope = s;
			return y;
		}
	}
	return NULL;
}

static struct symbol *get_symbol(struct resolver *r, struct scope *s, const char *name, size_t len)
{
	struct symbol *y = find_symbol(s, name, len);
	unsigned b;

	if (y)
		return y;
	y = arena_alloc(&r->arena, sizeof(*y));
	if (!y) {
		no_memory(r);
		return NULL;
	}
	b = bucket_of(name, len);
	*y = (struct symbol){.name = name, .len = len, .chain = s->bucket[b]};
	s->bucket[b] = y;
	*s->last = y;
	s->last = &y->next;
	return y;
}

static void set_state(struct resolver *r, struct symbol *y, struct state to)
{
	if (r->nlog == r->log_cap) {
		size_t cap = r->log_cap ? r->log_cap * 2 : 64;
		struct change *p = realloc(r->log, cap * sizeof(*p));

		if (!p) {
			no_memory(r);
			return;
		}
		r->log = p;
		r->log_cap = cap;
	}
	r->log[r->nlog++] = (struct change){y, y->state};
	y->state = to;
}

static bool outer_has(const struct scope *s, const char *name, size_t len)
{
	const struct scope *where;

	return s->parent && find_reference(s->parent, name, len, &where);
}

static void declare_parameter(struct resolver *r, struct scope *s, const char *name, size_t len)
{
	struct symbol *y = get_symbol(r, s, name, len);

	if (y)
		set_state(r, y, (struct state){true, true, LOAD_PARAMETER});
}

static void store_name(struct resolver *r, struct scope *s, const char *name, size_t len)
{
	struct symbol *y = get_symbol(r, s, name, len);
	struct state to;

	if (!y)
		return;
	to = y->state;
	to.stored = true;
	if (!to.present) {
		to.present = true;
		to.action = outer_has(s, name, len) ? LOAD_OUTER : LOAD_NOTHING;
	}
	set_state(r, y, to);
}

static void load_name(struct resolver *r, struct scope *s, const char *name, size_t len)
{
	const struct scope *where;
	struct symbol *y;

	if (find_reference(s, name, len, &where))
		return;
	y = get_symbol(r, s, name, len);
	if (y)
		set_state(r, y, (struct state){true, false, LOAD_CONTEXT});
}

/* ---- what the statements of one scope do to its symbols ---- */

static void look(struct resolver *r, struct scope *s, const struct node *n);

static void look_all(struct resolver *r, struct scope *s, const struct node *n)
{
	for (; n && !r->rc; n = n->next)
		look(r, s, n);
}

/*
 * The branches are looked at side by side, each from the state before the `if`: after each the log
 * is played back, and the changes of all are made again at the end. Then a name that a branch
 * assigned, and that was not assigned before, gets its value from outside in the other branches.
 */
static void look_branches(struct resolver *r, struct scope *s, const struct node *n)
{
	const struct node *branch[3] = {n->list, n->b, n->list2};
	struct change *changes = NULL;
	size_t begin = r->nlog, count = 0;

	for (int i = 0; i < 3 && !r->rc; i++) {
		size_t more;
		struct change *p;

		look_all(r, s, branch[i]);
		more = r->nlog - begin;
		p = realloc(changes, (count + more + 1) * sizeof(*p));
		if (!p) {
			no_memory(r);
			break;
		}
		changes = p;
		for (size_t k = begin; k < r->nlog; k++)
			changes[count++] =
				(struct change){r->log[k].symbol, r->log[k].symbol->state};
		while (r->nlog > begin) {
			r->nlog--;
			r->log[r->nlog].symbol->state = r->log[r->nlog].before;
		}
	}
	for (size_t k = 0; k < count && !r->rc; k++) {
		struct symbol *y = changes[k].symbol;
		struct state to = changes[k].before; /* here: the state after the branch */

		if (to.stored && !y->state.stored)
			to.action = outer_has(s, y->name, y->len) ? LOAD_OUTER : LOAD_CONTEXT;
		else if (y->state.stored)
			to = (struct state){true, true, y->state.action};
		set_state(r, y, to);
	}
	free(changes);
}

static void look(struct resolver *r, struct scope *s, const struct node *n)
{
	switch (n->type) {
	case N_NAME:
		if (n->op == NAME_LOAD)
			load_name(r, s, n->name, n->name_len);
		else if (n->op == NAME_STORE)
			store_name(r, s, n->name, n->name_len);
		else
			declare_parameter(r, s, n->name, n->name_len);
		return;
	case N_NSREF: load_name(r, s, n->name, n->name_len); return;
	case N_IF:
		look(r, s, n->a);
		look_branches(r, s, n);
		return;
	case N_MACRO: store_name(r, s, n->name, n->name_len); return;
	case N_SET:
		look(r, s, n->b);
		look(r, s, n->a);
		return;
	case N_FOR: look(r, s, n->b); return;
	case N_SET_BLOCK: look(r, s, n->a); return;
	case N_CALL_BLOCK:
		if (n->a)
			look(r, s, n->a);
		return;
	case N_WITH:
		for (const struct node *target = n->list2; target; target = target->next->next)
			look(r, s, target->next);
		return;
	case N_FILTER_BLOCK: look(r, s, n->a); return;
	default: break;
	}
	if (n->a)
		look(r, s, n->a);
	if (n->b)
		look(r, s, n->b);
	if (n->c)
		look(r, s, n->c);
	look_all(r, s, n->list);
	look_all(r, s, n->list2);
}

static void look_as_parameters(struct resolver *r, struct scope *s, const struct node *target)
{
	if (target->type == N_NAME)
		declare_parameter(r, s, target->name, target->name_len);
	for (const struct node *n = target->list; n; n = n->next)
		look_as_parameters(r, s, n);
}

/* ---- names that make a loop or macro special: loop; caller, kwargs, varargs ---- */

struct search {
	const char *const *names;
	unsigned count;
	unsigned active; /* bits: still looked for */
	unsigned found;
};

static void search(struct search *q, const struct node *n);

static void search_all(struct search *q, const struct node *n)
{
	for (; n; n = n->next)
		search(q, n);
}

static void search_name(struct search *q, const struct node *n)
{
	for (unsigned i = 0; i < q->count; i++) {
		if (!(q->active & 1u << i) || strlen(q->names[i]) != n->name_len ||
		    memcmp(q->names[i], n->name, n->name_len))
			continue;
		if (n->op == NAME_LOAD)
			q->found |= 1u << i;
		else
			q->active &= ~(1u << i); /* from here on an ordinary variable */
	}
}

/* Goes everywhere below n, in jinja2's order. */
static void search(struct search *q, const struct node *n)
{
	if (n->type == N_NAME)
		search_name(q, n);
	if (n->type == N_FILTER_BLOCK || n->type == N_WITH) {
		search_all(q, n->list2);
		search_all(q, n->list);
		if (n->a)
			search(q, n->a);
		return;
	}
	if (n->a)
		search(q, n->a);
	if (n->function) {
		search_all(q, n->function->params);
		search_all(q, n->function->defaults);
	}
	if (n->type == N_IF)
		search_all(q, n->list);
	if (n->b)
		search_all(q, n->b);
	if (n->type != N_IF)
		search_all(q, n->list);
	search_all(q, n->list2);
	if (n->c)
		search(q, n->c);
}

/* ---- scopes become frames ---- */

static void begin_scope(struct scope *s, struct scope *parent, struct function *f, unsigned depth)
{
	*s = (struct scope){.parent = parent, .function = f, .depth = depth};
	s->last = &s->first;
}

static unsigned context_name(struct resolver *r, const struct symbol *y)
{
	struct template *t = r->t;
	struct text_ref *p;

	for (unsigned i = 0; i < t->ncontext_names; i++)
		if (t->context_names[i].len == y->len &&
		    !memcmp(t->context_names[i].s, y->name, y->len))
			return i;
	if (t->ncontext_names == r->names_cap) {
		unsigned cap = r->names_cap ? r->names_cap * 2 : 32;

		p = arena_array(&t->arena, cap, sizeof(*p));
		if (!p) {
			no_memory(r);
			return 0;
		}
		if (t->ncontext_names)
			memcpy(p, t->context_names, t->ncontext_names * sizeof(*p));
		t->context_names = p;
		r->names_cap = cap;
	}
	t->context_names[t->ncontext_names] = (struct text_ref){y->name, y->len};
	return t->ncontext_names++;
}

/* Gives the symbols of a scope that was looked at their slots, and the frame its loads. */
static void end_scope(struct resolver *r, struct scope *s, struct frame *ret)
{
	struct load *loads;
	unsigned count = 0;

	*ret = (struct frame){.first = s->function->nslots};
	for (struct symbol *y = s->first; y; y = y->next) {
		y->slot = s->function->nslots++;
		count += y->state.action == LOAD_CONTEXT || y->state.action == LOAD_OUTER;
	}
	ret->n = s->function->nslots - ret->first;
	r->nlog = 0;
	if (!count || r->rc)
		return;
	loads = arena_array(&r->t->arena, count, sizeof(*loads));
	if (!loads) {
		no_memory(r);
		return;
	}
	ret->loads = loads;
	for (struct symbol *y = s->first; y; y = y->next) {
		const struct scope *where;
		struct symbol *outer;

		if (y->state.action == LOAD_CONTEXT) {
			loads[ret->nloads++] = (struct load){
				.slot = y->slot,
				.from_context = true,
				.context_name = context_name(r, y),
			};
		} else if (y->state.action == LOAD_OUTER &&
			   (outer = find_reference(s->parent, y->name, y->len, &where))) {
			loads[ret->nloads++] = (struct load){
				.slot = y->slot,
				.outer = {s->depth - where->depth, outer->slot},
			};
		}
	}
}

static struct frame *new_frame(struct resolver *r)
{
	struct frame *f = arena_alloc(&r->t->arena, sizeof(*f));

	if (!f)
		no_memory(r);
	return f;
}

/* ---- names become variables ---- */

static void resolve(struct resolver *r, struct scope *s, struct node *n, bool soft);

static void resolve_all(struct resolver *r, struct scope *s, struct node *n, bool soft)
{
	for (; n && !r->rc; n = n->next)
		resolve(r, s, n, soft);
}

static void resolve_name(struct resolver *r, struct scope *s, struct node *n)
{
	const struct scope *where;
	struct symbol *y = find_reference(s, n->name, n->name_len, &where);

	if (!y) { /* every name was looked at */
		scope_error(r, n, "name '%.*s' cannot be resolved", (int)n->name_len, n->name);
		return;
	}
	n->where = (struct variable){s->depth - where->depth, y->slot};
}

static void resolve_builtin(struct resolver *r, struct node *n, bool soft)
{
	bool filter = n->type == N_FILTER;

	n->builtin = filter ? filter_find(n->name, n->name_len) : test_find(n->name, n->name_len);
	if (!n->builtin && !soft)
		scope_error(r, n, "no %s named '%.*s'", filter ? "filter" : "test",
			    (int)MIN(n->name_len, (size_t)64), n->name);
}

static void resolve_for(struct resolver *r, struct scope *s, struct node *n, bool soft)
{
	static const char *const loop[] = {"loop"};
	struct search q = {.names = loop, .count = 1, .active = 1};
	struct scope inner;

	resolve(r, s, n->b, soft);
	n->frame = new_frame(r);
	n->test_frame = n->c ? new_frame(r) : NULL;
	n->else_frame = n->list2 ? new_frame(r) : NULL;
	if (r->rc)
		return;
	search_all(&q, n->list);
	n->extended = q.found;
	if (n->c) {
		/* Its target has the same slots as the body's, only elsewhere. */
		begin_scope(&inner, s, s->function, s->depth);
		look_as_parameters(r, &inner, n->a);
		look(r, &inner, n->c);
		end_scope(r, &inner, n->test_frame);
		resolve(r, &inner, n->c, false);
	}
	begin_scope(&inner, s, s->function, s->depth);
	if (n->extended)
		declare_parameter(r, &inner, "loop", 4);
	look_as_parameters(r, &inner, n->a);
	look_all(r, &inner, n->list);
	end_scope(r, &inner, n->frame);
	if (r->rc)
		return;
	resolve(r, &inner, n->a, false);
	resolve_all(r, &inner, n->list, false);
	if (!n->list2 || r->rc)
		return;
	begin_scope(&inner, s, s->function, s->depth);
	look_all(r, &inner, n->list2);
	end_scope(r, &inner, n->else_frame);
	resolve_all(r, &inner, n->list2, false);
}

/* The `caller` parameter of a macro that uses it, if it is declared, needs a default. */
static bool check_caller(struct resolver *r, const struct node *n)
{
	const struct function *f = n->function;
	unsigned i = 0;

	for (const struct node *p = f->params; p; p = p->next, i++) {
		if (p->name_len != 6 || memcmp(p->name, "caller", 6))
			continue;
		if (f->caller && i < f->nparams - f->ndefaults)
			scope_error(r, n, "the parameter 'caller' needs a default");
		return true;
	}
	return false;
}

static bool has_parameter(const struct function *f, const char *name)
{
	for (const struct node *p = f->params; p; p = p->next)
		if (p->name_len == strlen(name) && !memcmp(p->name, name, p->name_len))
			return true;
	return false;
}

/* A macro, a call block or a generation block. */
static void resolve_function(struct resolver *r, struct scope *s, struct node *n)
{
	static const char *const special[] = {"caller", "kwargs", "varargs"};
	struct search q = {.names = special, .count = 3, .active = 7};
	struct function *f = n->function;
	struct scope inner;

	search_all(&q, n->list);
	f->caller = q.found & 1;
	f->kwargs = (q.found & 2) && !has_parameter(f, "kwargs");
	f->varargs = (q.found & 4) && !has_parameter(f, "varargs");
	f->explicit_caller = check_caller(r, n);
	begin_scope(&inner, s, f, s->depth + 1);
	look_all(r, &inner, f->params);
	if (f->caller && !f->explicit_caller)
		declare_parameter(r, &inner, "caller", 6);
	if (f->kwargs)
		declare_parameter(r, &inner, "kwargs", 6);
	if (f->varargs)
		declare_parameter(r, &inner, "varargs", 7);
	look_all(r, &inner, f->defaults);
	look_all(r, &inner, n->list);
	end_scope(r, &inner, &f->frame);
	resolve_all(r, &inner, f->params, false);
	resolve_all(r, &inner, f->defaults, false);
	resolve_all(r, &inner, n->list, false);
}

static void resolve_with(struct resolver *r, struct scope *s, struct node *n, bool soft)
{
	struct scope inner;

	for (struct node *target = n->list2; target && !r->rc; target = target->next->next)
		resolve(r, s, target->next, soft);
	begin_scope(&inner, s, s->function, s->depth);
	for (struct node *target = n->list2; target; target = target->next->next)
		look_as_parameters(r, &inner, target);
	look_all(r, &inner, n->list);
	end_scope(r, &inner, n->frame);
	for (struct node *target = n->list2; target && !r->rc; target = target->next->next)
		resolve(r, &inner, target, false);
	resolve_all(r, &inner, n->list, false);
}

/* A filter block or a set block: the body, and the filter that is applied to its text. */
static void resolve_captured(struct resolver *r, struct scope *s, struct node *n,
			     struct node *filter)
{
	struct scope inner;

	begin_scope(&inner, s, s->function, s->depth);
	look_all(r, &inner, n->list);
	if (filter)
		look(r, &inner, filter);
	end_scope(r, &inner, n->frame);
	resolve_all(r, &inner, n->list, false);
	if (filter && !r->rc)
		resolve(r, &inner, filter, false);
}

static void resolve(struct resolver *r, struct scope *s, struct node *n, bool soft)
{
	if (n->type == N_WITH || n->type == N_SET_BLOCK || n->type == N_FILTER_BLOCK) {
		n->frame = new_frame(r);
		if (r->rc)
			return;
	}
	switch (n->type) {
	case N_NAME:
	case N_NSREF: resolve_name(r, s, n); return;
	case N_FILTER:
	case N_TEST: resolve_builtin(r, n, soft); break;
	case N_COND:
	case N_IF: soft = true; break;
	case N_FOR: resolve_for(r, s, n, soft); return;
	case N_MACRO:
		resolve_name(r, s, n);
		resolve_function(r, s, n);
		return;
	case N_CALL_BLOCK:
		if (n->a)
			resolve(r, s, n->a, soft);
		if (!r->rc)
			resolve_function(r, s, n);
		return;
	case N_WITH: resolve_with(r, s, n, soft); return;
	case N_SET_BLOCK:
		resolve(r, s, n->a, soft);
		resolve_captured(r, s, n, n->b);
		return;
	case N_FILTER_BLOCK: resolve_captured(r, s, n, n->a); return;
	default: break;
	}
	if (n->a && !r->rc)
		resolve(r, s, n->a, soft);
	if (n->b && !r->rc)
		resolve_all(r, s, n->b, soft);
	if (n->c && !r->rc)
		resolve(r, s, n->c, soft);
	resolve_all(r, s, n->list, soft);
	resolve_all(r, s, n->list2, soft);
}

int jinja_scope(struct template *t, struct err *e)
{
	struct resolver r = {.t = t, .err = e};
	struct scope root;

	arena_init(&r.arena, TEMPLATE_ARENA_MAX);
	t->root.name = t->name;
	begin_scope(&root, NULL, &t->root, 0);
	look_all(&r, &root, t->body);
	end_scope(&r, &root, &t->root.frame);
	resolve_all(&r, &root, t->body, false);
	arena_release(&r.arena);
	free(r.log);
	return r.rc;
}
