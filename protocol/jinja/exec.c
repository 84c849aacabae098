#include "protocol/jinja/exec.h"

#include <string.h>

#include "protocol/jinja/dict.h"
#include "protocol/jinja/eval.h"
#include "protocol/jinja/loop.h"
#include "protocol/jinja/write.h"

/* The ways in which a body ends. After a failure they mean nothing. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec_body(struct render *r, struct activation *act, const struct node *first);

/* ---- scopes ---- */

static void leave_frame(struct activation *act, const struct frame *f)
{
	memset(&act->slot[f->first], 0, f->n * sizeof(act->slot[0]));
}

static void enter_frame(struct activation *act, const struct frame *f)
{
	leave_frame(act, f);
	for (unsigned i = 0; i < f->nloads; i++) {
		const struct slot_load *l = &f->loads[i];

		act->slot[l->slot] = l->from_context ? act->context[l->context_name]
						     : *activation_slot(act, l->outer);
	}
}

static struct activation *new_activation(struct render *r, const struct function *f,
					 struct activation *outer, const struct value *context)
{
	struct activation *act =
		render_alloc(r, 1, sizeof(*act) + f->nslots * sizeof(act->slot[0]));

	if (!act)
		return NULL;
	act->outer = outer;
	act->context = context;
	enter_frame(act, &f->frame);
	return act;
}

/* ---- output ---- */

static void write_out(struct render *r, const char *s, size_t n)
{
	int rc;

	if (r->rc)
		return;
	rc = n > r->out_max || r->out->len > r->out_max - n ? -E2BIG : buf_reserve(r->out, n);
	if (rc == -ENOMEM)
		render_fail(r, ENOMEM, "out of memory");
	else if (rc < 0)
		render_fail(r, E2BIG, "the output is longer than %zu bytes",
			    MIN(r->out_max, r->out->max));
	else if (render_charge_bytes(r, n))
		buf_append(r->out, s, n);
}

static void exec_output(struct render *r, struct value v)
{
	size_t start = r->scratch.len;

	if (v.type == V_STR) {
		write_out(r, v.s, v.len);
		return;
	}
	value_write_str(r, &r->scratch, v);
	write_out(r, buf_str(&r->scratch) + start, r->scratch.len - start);
	r->scratch.len = start;
}

/* Runs the body of a block in its frame and makes a text of its output. Sets *ret to the result of the block's filters
 * for that text, or to the text itself if the block has no filters. The output of a body that was left by break or
 * continue is dropped. */
static enum flow capture(struct render *r, struct activation *act, const struct node *n,
			 struct value *ret)
{
	size_t start = r->out->len;
	enum flow flow;

	enter_frame(act, &n->frame);
	flow = exec_body(r, act, n->list);
	if (r->rc)
		return flow;
	*ret = value_copy(r, buf_str(r->out) + start, r->out->len - start);
	r->out->len = start;
	if (flow != FLOW_ON)
		return flow;
	act->captured = *ret;
	if (n->b)
		*ret = eval(r, act, n->b);
	leave_frame(act, &n->frame);
	return FLOW_ON;
}

/* ---- assignments ---- */

static void assign(struct render *r, struct activation *act, const struct node *target,
		   struct value v, unsigned shift);

/* ns.name = v */
static void assign_attribute(struct render *r, struct value ns, struct value name, struct value v)
{
	if (ns.type != V_NAMESPACE)
		render_fail(r, EINVAL, "cannot assign attribute on non-namespace object");
	else if (name.s[0] == '_')
		render_fail(r, EINVAL, "a namespace's attribute may not begin with '_'");
	else
		dict_set(r, ns.dict, name, v);
}

/* Assigns a, b = v. All items are taken before the first is assigned. */
static void unpack(struct render *r, struct activation *act, const struct node *target,
		   struct value v, unsigned shift)
{
	const struct list *items = value_items(r, v);
	size_t i = 0, wanted = 0;

	for (const struct node *n = target->list; n; n = n->next)
		wanted++;
	if (items && items->n != wanted)
		render_fail(r, EINVAL, "%s values to unpack",
			    items->n < wanted ? "not enough" : "too many");
	for (const struct node *n = target->list; n && !r->rc; n = n->next)
		assign(r, act, n, items->v[i++], shift);
}

/* Assigns v to a target. `shift` is added to the numbers of the target's slots: the test of a loop has variables of
 * its own for the loop's target. */
static void assign(struct render *r, struct activation *act, const struct node *target,
		   struct value v, unsigned shift)
{
	struct variable where = target->where;

	if (r->rc)
		return;
	if (target->type == N_TUPLE) {
		unpack(r, act, target, v, shift);
		return;
	}
	where.slot += shift;
	if (target->type == N_NSREF)
		assign_attribute(r, *activation_slot(act, where), target->value, v);
	else
		*activation_slot(act, where) = v;
}

/* Checks that all attributes of a target belong to namespaces. As in jinja2 the check comes before the assigned value
 * is evaluated. */
static void check_namespaces(struct render *r, struct activation *act, const struct node *target)
{
	if (target->type == N_NSREF && activation_slot(act, target->where)->type != V_NAMESPACE)
		render_fail(r, EINVAL, "cannot assign attribute on non-namespace object");
	for (const struct node *n = target->list; n; n = n->next)
		check_namespaces(r, act, n);
}

static void exec_set(struct render *r, struct activation *act, const struct node *n)
{
	struct value v;

	check_namespaces(r, act, n->a);
	v = eval(r, act, n->b);
	r->line = n->line;
	assign(r, act, n->a, v, 0);
}

/* ---- loops ---- */

/* An iterator over the items that pass the test of `for x in y if test`. */
struct tested {
	struct iter it; /* first, because a pointer to it is cast to struct tested */
	struct activation *act;
	const struct node *n; /* the N_FOR */
};

static bool holds(struct render *r, struct iter *it, struct value item)
{
	const struct tested *t = (const struct tested *)it;
	unsigned body = t->n->frame.first + 1; /* behind the slot of `loop` */

	assign(r, t->act, t->n->a, item, t->n->test_frame.first - body);
	return value_truth(eval(r, t->act, t->n->c));
}

static struct loop *new_loop(struct render *r, struct activation *act, const struct node *n)
{
	struct loop *l = render_alloc(r, 1, sizeof(*l));
	struct value v = eval(r, act, n->b);
	struct tested *t;

	r->line = n->line;
	if (!l)
		return NULL;
	*l = (struct loop){.index0 = -1, .length = -1};
	l->it = value_iter(r, v, &l->own);
	if (n->c) {
		t = render_alloc(r, 1, sizeof(*t));
		if (!t)
			return NULL;
		*t = (struct tested){{.items = value_items(r, v), .keep = holds}, act, n};
		l->it = &t->it;
		enter_frame(act, &n->test_frame);
	}
	return r->rc ? NULL : l;
}

static enum flow exec_for(struct render *r, struct activation *act, const struct node *n)
{
	struct loop *l = new_loop(r, act, n);
	bool complete = false; /* an iteration reached its end, so else does not run */
	enum flow flow = FLOW_ON;
	struct value item;

	while (l && flow != FLOW_BREAK && loop_next(r, l, &item)) {
		r->line = n->line;
		enter_frame(act, &n->frame);
		act->slot[n->frame.first] = (struct value){.type = V_LOOP, .loop = l};
		assign(r, act, n->a, item, 0);
		flow = exec_body(r, act, n->list);
		complete |= flow == FLOW_ON;
	}
	if (r->rc)
		return FLOW_ON;
	leave_frame(act, &n->frame);
	if (complete || !n->list2)
		return FLOW_ON;
	enter_frame(act, &n->else_frame);
	flow = exec_body(r, act, n->list2);
	leave_frame(act, &n->else_frame);
	return flow;
}

/* ---- macros ---- */

struct macro {
	struct callable callable; /* first, because a pointer to it is cast to struct macro */
	const struct node *n;
	struct activation *outer;
};

/* Returns the keyword argument for a parameter, and counts it in *taken; NOTHING: it was not given. */
static struct value take_keyword(const struct args *args, struct value name, size_t *taken)
{
	for (size_t i = 0; i < args->nkw; i++) {
		if (!value_same(args->kw[i].name, name))
			continue;
		++*taken;
		return args->kw[i].value;
	}
	return NOTHING;
}

static void bind(struct render *r, const struct function *f, const struct args *args,
		 struct activation *act)
{
	const struct node *value = f->defaults;
	size_t taken = 0;
	unsigned i = 0;

	for (const struct node *p = f->params; p; p = p->next, i++)
		act->slot[i] = i < args->n ? args->v[i] : take_keyword(args, p->name, &taken);
	if (taken < args->nkw)
		render_fail(r, EINVAL,
			    "macro '%.64s' was given a keyword argument that it does not take",
			    f->name);
	if (args->n > f->nparams)
		render_fail(r, EINVAL, "macro '%.64s' takes at most %u arguments", f->name,
			    f->nparams);
	i = 0;
	for (const struct node *p = f->params; p && !r->rc; p = p->next, i++) {
		bool has_default = i >= f->nparams - f->ndefaults;

		if (act->slot[i].type == V_MISSING)
			act->slot[i] = has_default
					       ? eval(r, act, value)
					       : value_undefined_name(r, p->name.s, p->name.len);
		if (has_default)
			value = value->next;
	}
}

static struct value call_macro(struct render *r, const struct callable *c, const struct args *args)
{
	const struct macro *m = (const struct macro *)c;
	const struct function *f = m->n->function;
	struct value text = NOTHING;
	struct activation *act;
	size_t start = r->out->len;

	if (!render_enter(r))
		return NOTHING;
	act = new_activation(r, f, m->outer, m->outer->context);
	if (act) {
		bind(r, f, args, act);
		exec_body(r, act, m->n->list);
		if (!r->rc)
			text = value_copy(r, buf_str(r->out) + start, r->out->len - start);
		r->out->len = start;
	}
	r->depth--;
	return text;
}

static void exec_macro(struct render *r, struct activation *act, const struct node *n)
{
	struct macro *m = render_alloc(r, 1, sizeof(*m));

	if (!m)
		return;
	*m = (struct macro){{"macro", n->function->name, call_macro}, n, act};
	*activation_slot(act, n->where) =
		(struct value){.type = V_CALLABLE, .callable = &m->callable};
}

/* ---- the other statements ---- */

static enum flow exec_if(struct render *r, struct activation *act, const struct node *n)
{
	const struct node *branch = n, *next = n->b;

	while (branch) {
		if (value_truth(eval(r, act, branch->a)))
			return exec_body(r, act, branch->list);
		branch = next;
		next = next ? next->next : NULL;
	}
	return exec_body(r, act, n->list2);
}

/* Runs a block {% set x %} or {% filter f %}. */
static enum flow exec_captured(struct render *r, struct activation *act, const struct node *n)
{
	struct value text = NOTHING;
	enum flow flow = capture(r, act, n, &text);

	if (flow != FLOW_ON || r->rc)
		return flow;
	if (n->type == N_SET_BLOCK)
		assign(r, act, n->a, text, 0);
	else if (text.type == V_STR)
		write_out(r, text.s, text.len);
	else /* jinja2 fails here, too */
		value_fail_type(r, "a filter block", "a text", text);
	return FLOW_ON;
}

static enum flow exec_generation(struct render *r, struct activation *act, const struct node *n)
{
	enum flow flow;

	enter_frame(act, &n->frame);
	flow = exec_body(r, act, n->list);
	leave_frame(act, &n->frame);
	return flow;
}

static enum flow exec_node(struct render *r, struct activation *act, const struct node *n)
{
	switch (n->type) {
	case N_DATA: write_out(r, n->value.s, n->value.len); break;
	case N_OUTPUT: exec_output(r, eval(r, act, n->a)); break;
	case N_IF: return exec_if(r, act, n);
	case N_FOR: return exec_for(r, act, n);
	case N_SET: exec_set(r, act, n); break;
	case N_SET_BLOCK:
	case N_FILTER_BLOCK: return exec_captured(r, act, n);
	case N_GENERATION: return exec_generation(r, act, n);
	case N_MACRO: exec_macro(r, act, n); break;
	case N_BREAK: return FLOW_BREAK;
	case N_CONTINUE: return FLOW_CONTINUE;
	default: render_fail(r, EINVAL, "not a statement");
	}
	return FLOW_ON;
}

static enum flow exec_body(struct render *r, struct activation *act, const struct node *first)
{
	enum flow flow = FLOW_ON;

	if (!render_enter(r))
		return FLOW_ON;
	for (const struct node *n = first; n && flow == FLOW_ON && render_charge(r, 1);
	     n = n->next) {
		r->line = n->line;
		flow = exec_node(r, act, n);
	}
	r->depth--;
	return flow;
}

void exec(struct render *r, const struct template *t, const struct value *context)
{
	struct activation *act = new_activation(r, &t->root, NULL, context);

	if (act)
		exec_body(r, act, t->body);
}
