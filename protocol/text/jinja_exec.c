#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "protocol/text/jinja_eval.h"

/* ---- scopes ---- */

static void enter_frame(struct render *r, struct activation *act, const struct frame *f)
{
	memset(&act->slot[f->first], 0, f->n * sizeof(act->slot[0]));
	for (unsigned i = 0; i < f->nloads; i++) {
		const struct load *l = &f->loads[i];

		act->slot[l->slot] = l->from_context ? r->context_names[l->context_name]
						     : *activation_slot(act, l->outer);
	}
}

static void leave_frame(struct activation *act, const struct frame *f)
{
	memset(&act->slot[f->first], 0, f->n * sizeof(act->slot[0]));
}

static struct activation *new_activation(struct render *r, const struct function *f,
					 struct activation *outer)
{
	struct activation *act =
		render_alloc(r, 1, sizeof(*act) + f->nslots * sizeof(act->slot[0]));

	if (act)
		act->outer = outer;
	return act;
}

/* ---- output ---- */

static int write_out(struct render *r, const char *s, size_t n)
{
	int rc;

	if (n > r->out_max || r->out->len > r->out_max - n)
		return render_fail(r, E2BIG, "the output is longer than %zu bytes", r->out_max);
	rc = buf_reserve(r->out, n);
	if (rc == -ENOMEM)
		return render_fail(r, ENOMEM, "out of memory");
	if (rc < 0)
		return render_fail(r, E2BIG, "the output is longer than %zu bytes", r->out->max);
	buf_append(r->out, s, n);
	return render_charge_bytes(r, n);
}

/* What a block puts out must be a text: jinja2 converts only what stands in {{ }}. */
static int write_text(struct render *r, const struct value *v)
{
	if (v->type != V_STR)
		return render_fail(r, EINVAL, "a block must give a text, not '%s'",
				   value_type_name(v));
	return write_out(r, v->s, v->len);
}

static int exec_output(struct render *r, struct activation *act, const struct node *n)
{
	struct value v;
	size_t start;
	int rc = eval_expr(r, act, n->a, &v);

	if (rc < 0 || v.type == V_UNDEFINED)
		return rc;
	if (v.type == V_STR)
		return write_out(r, v.s, v.len);
	start = text_begin(r);
	rc = value_write_str(r, &r->scratch, &v);
	if (!rc)
		rc = write_out(r, r->scratch.data + start, r->scratch.len - start);
	r->scratch.len = start;
	return rc;
}

/* Runs a body and takes what it put out as a string. The output of a body that was left by break
 * or continue is dropped. */
static int capture(struct render *r, struct activation *act, const struct node *body,
		   struct value *ret)
{
	size_t start = r->out->len;
	int rc = exec_body(r, act, body);

	if (rc < 0)
		return rc;
	if (rc == 0)
		rc = value_copy_str(r, r->out->data ? r->out->data + start : "",
				    r->out->len - start, ret);
	r->out->len = start;
	return rc;
}

/* ---- assignments ---- */

static int assign_attribute(struct render *r, struct activation *act, const struct node *target,
			    const struct value *v)
{
	const struct value *ns = activation_slot(act, target->where);

	if (ns->type != V_NAMESPACE)
		return render_fail(r, EINVAL, "cannot assign attribute on non-namespace object");
	if (target->value.s[0] == '_')
		return render_fail(r, EINVAL, "a namespace's attribute may not begin with '_'");
	return dict_set(r, ns->dict, &target->value, v);
}

static int assign(struct render *r, struct activation *act, const struct node *target,
		  const struct value *v, unsigned shift);

/* a, b = v. All items are taken before the first is assigned. */
static int unpack(struct render *r, struct activation *act, const struct node *target,
		  const struct value *v, unsigned shift)
{
	struct value item, all;
	struct iter *it;
	size_t i = 0;
	int rc = value_try_iter(r, v, &it);

	if (!rc)
		return render_fail(r, EINVAL, "cannot unpack '%s' object", value_type_name(v));
	if (rc > 0)
		rc = value_new_list(r, V_TUPLE, 0, &all);
	for (const struct node *n = target->list; n && rc >= 0; n = n->next) {
		rc = iter_next(r, it, &item);
		if (!rc)
			return render_fail(r, EINVAL, "not enough values to unpack");
		if (rc > 0)
			rc = list_push(r, all.list, &item);
	}
	if (rc >= 0)
		rc = iter_next(r, it, &item);
	if (rc > 0)
		return render_fail(r, EINVAL, "too many values to unpack");
	for (const struct node *n = target->list; n && !rc; n = n->next)
		rc = assign(r, act, n, &all.list->v[i++], shift);
	return rc;
}

/* Assigns to a target's variables, `shift` slots on. */
static int assign(struct render *r, struct activation *act, const struct node *target,
		  const struct value *v, unsigned shift)
{
	struct variable where = target->where;

	if (target->type == N_TUPLE)
		return unpack(r, act, target, v, shift);
	if (target->type == N_NSREF)
		return assign_attribute(r, act, target, v);
	where.slot += shift;
	*activation_slot(act, where) = *v;
	return 0;
}

/* Before a value is assigned to a namespace's attribute, that must be one. */
static int check_namespaces(struct render *r, struct activation *act, const struct node *target)
{
	int rc = 0;

	if (target->type == N_NSREF && activation_slot(act, target->where)->type != V_NAMESPACE)
		return render_fail(r, EINVAL, "cannot assign attribute on non-namespace object");
	for (const struct node *n = target->list; n && !rc; n = n->next)
		rc = check_namespaces(r, act, n);
	return rc;
}

static int exec_set(struct render *r, struct activation *act, const struct node *n)
{
	struct value v;
	int rc = check_namespaces(r, act, n->a);

	if (!rc)
		rc = eval_expr(r, act, n->b, &v);
	r->line = n->line;
	return rc < 0 ? rc : assign(r, act, n->a, &v, 0);
}

static int exec_set_block(struct render *r, struct activation *act, const struct node *n)
{
	struct value text;
	int rc;

	enter_frame(r, act, n->frame);
	rc = capture(r, act, n->list, &text);
	if (!rc && n->b)
		rc = eval_filter(r, act, n->b, &text, &text);
	if (rc)
		return rc;
	leave_frame(act, n->frame);
	return assign(r, act, n->a, &text, 0);
}

/* ---- loops ---- */

static int loop_next(struct render *r, struct loop *l, struct value *ret)
{
	int rc = 1;

	if (l->has_after)
		*ret = l->after;
	else
		rc = l->at_end ? 0 : iter_next(r, l->it, ret);
	l->has_after = false;
	if (rc > 0) {
		l->index0++;
		l->before = l->current;
		l->current = *ret;
	}
	return rc;
}

int loop_step(struct render *r, struct iter *it, struct value *ret)
{
	struct value item;
	int rc = loop_next(r, it->from.loop, &item);

	if (rc > 0 && value_new_pair(r, item, it->from, ret) < 0)
		return -r->err->code;
	return rc;
}

/* 1 when there is a next item, which is in l->after then. */
static int loop_peek(struct render *r, struct loop *l)
{
	int rc;

	if (l->has_after)
		return 1;
	if (l->at_end)
		return 0;
	rc = iter_next(r, l->it, &l->after);
	l->has_after = rc > 0;
	l->at_end = rc == 0;
	return rc;
}

/* len() of what is walked; a generator is walked to its end for it. */
static int loop_length(struct render *r, struct loop *l)
{
	struct value rest, it = {.type = V_ITER, .iter = l->it};
	int rc;

	if (l->length >= 0)
		return 0;
	rc = value_to_list(r, &it, &rest);
	if (rc < 0)
		return rc;
	l->length = (int64_t)rest.list->n + l->index0 + 1 + l->has_after;
	return value_iter(r, &rest, &l->it);
}

static bool is_name(const char *name, size_t len, const char *want)
{
	return len == strlen(want) && !memcmp(name, want, len);
}

static int loop_neighbour(struct render *r, struct loop *l, bool next, struct value *ret)
{
	int rc;

	if (!next) {
		if (!l->index0)
			return value_undefined_hint(r, "there is no previous item", ret);
		*ret = l->before;
		return 0;
	}
	rc = loop_peek(r, l);
	if (!rc)
		return value_undefined_hint(r, "there is no next item", ret);
	*ret = l->after;
	return rc < 0 ? rc : 0;
}

int loop_attribute(struct render *r, struct loop *l, const char *name, size_t len,
		   struct value *ret)
{
	bool length = is_name(name, len, "length"), revindex = is_name(name, len, "revindex");
	int rc;

	if (is_name(name, len, "index0"))
		*ret = value_int(l->index0);
	else if (is_name(name, len, "index"))
		*ret = value_int(l->index0 + 1);
	else if (is_name(name, len, "first"))
		*ret = value_bool(l->index0 == 0);
	else if (is_name(name, len, "depth"))
		*ret = value_int(1);
	else if (is_name(name, len, "depth0"))
		*ret = value_int(0);
	else if (is_name(name, len, "last")) {
		rc = loop_peek(r, l);
		*ret = value_bool(rc == 0);
		return rc < 0 ? rc : 1;
	} else if (is_name(name, len, "previtem") || is_name(name, len, "nextitem")) {
		rc = loop_neighbour(r, l, name[0] == 'n', ret);
		return rc < 0 ? rc : 1;
	} else if (length || revindex || is_name(name, len, "revindex0")) {
		rc = loop_length(r, l);
		if (rc < 0)
			return rc;
		*ret = value_int(length ? l->length : l->length - l->index0 - !revindex);
	} else {
		return 0;
	}
	return 1;
}

/* The items for which the test of `for x in y if test` holds. it->state is the for, it->scope the
 * activation. */
static int next_tested(struct render *r, struct iter *it, struct value *ret)
{
	const struct node *n = it->state;
	struct activation *act = (struct activation *)it->scope;
	unsigned shift = n->test_frame->first - n->frame->first - n->extended;
	struct value holds;
	int rc;

	while ((rc = iter_next(r, it->inner, ret)) > 0) {
		rc = assign(r, act, n->a, ret, shift);
		if (!rc)
			rc = eval_expr(r, act, n->c, &holds);
		if (rc < 0 || value_truth(&holds))
			return rc < 0 ? rc : 1;
	}
	return rc;
}

static int new_loop(struct render *r, struct activation *act, const struct node *n,
		    struct loop **ret)
{
	struct loop *l = render_alloc(r, 1, sizeof(*l));
	struct value v;
	struct iter *it;
	int rc = l ? eval_expr(r, act, n->b, &v) : -r->err->code;

	r->line = n->line;
	if (!rc)
		rc = value_iter(r, &v, &it);
	if (rc < 0)
		return rc;
	*l = (struct loop){.it = it, .index0 = -1, .length = n->c ? -1 : value_len(&v)};
	*ret = l;
	if (!n->c)
		return 0;
	enter_frame(r, act, n->test_frame);
	l->it = render_alloc(r, 1, sizeof(*l->it));
	if (!l->it)
		return -r->err->code;
	*l->it = (struct iter){.next = next_tested, .inner = it, .state = n, .scope = act};
	return 0;
}

static int exec_for(struct render *r, struct activation *act, const struct node *n)
{
	bool complete = false; /* some iteration reached its end: no else then */
	struct value item;
	struct loop *l;
	int rc = new_loop(r, act, n, &l);

	if (rc < 0)
		return rc;
	while ((rc = loop_next(r, l, &item)) > 0) {
		r->line = n->line;
		enter_frame(r, act, n->frame);
		if (n->extended)
			act->slot[n->frame->first] = (struct value){.type = V_LOOP, .loop = l};
		rc = assign(r, act, n->a, &item, 0);
		if (!rc)
			rc = exec_body(r, act, n->list);
		if (rc < 0)
			return rc;
		if (rc == FLOW_BREAK)
			break;
		complete |= rc == 0;
	}
	if (rc < 0)
		return rc;
	leave_frame(act, n->frame);
	if (complete || !n->list2)
		return 0;
	enter_frame(r, act, n->else_frame);
	rc = exec_body(r, act, n->list2);
	leave_frame(act, n->else_frame);
	return rc;
}

/* ---- macros ---- */

struct binding {
	struct render *r;
	const struct macro *m;
	const struct args *args;
	struct activation *act;
	bool *used; /* keyword arguments that found their parameter */
};

/* Takes a keyword argument: true and its value. */
static bool take_kwarg(struct binding *b, const char *name, size_t len, struct value *ret)
{
	for (size_t i = 0; i < b->args->nkw; i++) {
		const struct kwarg *k = &b->args->kw[i];

		if (!b->used[i] && k->len == len && !memcmp(k->name, name, len)) {
			b->used[i] = true;
			*ret = k->value;
			return true;
		}
	}
	return false;
}

/* kwargs and varargs, for a macro that uses them; else there may be none left. */
static int bind_rest(struct binding *b, struct value *slot)
{
	const struct function *f = b->m->function;
	const struct args *args = b->args;
	size_t n = args->n > f->nparams ? args->n - f->nparams : 0;
	int rc = 0;

	if (f->kwargs)
		rc = value_new_dict(b->r, V_DICT, slot);
	for (size_t i = 0; i < args->nkw && !rc; i++) {
		const struct kwarg *k = &args->kw[i];
		struct value key = value_str(k->name, k->len);

		if (b->used[i])
			continue;
		if (!f->kwargs)
			return render_fail(b->r, EINVAL,
					   "macro '%.64s' takes no keyword argument '%.*s'",
					   f->name, (int)MIN(k->len, (size_t)64), k->name);
		rc = dict_set(b->r, slot->dict, &key, &k->value);
	}
	if (rc < 0)
		return rc;
	if (!f->varargs && n)
		return render_fail(b->r, EINVAL, "macro '%.64s' takes at most %u arguments",
				   f->name, f->nparams);
	if (!f->varargs)
		return 0;
	slot += f->kwargs;
	rc = value_new_list(b->r, V_TUPLE, n, slot);
	if (!rc && n)
		memcpy(slot->list->v, args->v + f->nparams, n * sizeof(*slot));
	return rc;
}

static int bind_default(struct binding *b, const struct node *param, const struct node *value,
			struct value *slot)
{
	char hint[160];
	struct value text;
	int rc;

	if (value)
		return eval_expr(b->r, b->act, value, slot);
	snprintf(hint, sizeof(hint), "parameter '%.*s' was not provided",
		 (int)MIN(param->name_len, (size_t)100), param->name);
	rc = value_copy_str(b->r, hint, strlen(hint), &text);
	return rc < 0 ? rc : value_undefined_hint(b->r, text.s, slot);
}

static int bind_macro(struct binding *b)
{
	const struct function *f = b->m->function;
	const struct args *args = b->args;
	const struct node *p, *value = f->defaults;
	struct value *slot = b->act->slot;
	unsigned i = 0;
	int rc = 0;

	for (p = f->params; p; p = p->next, i++) {
		if (i < args->n)
			slot[i] = args->v[i];
		else if (!take_kwarg(b, p->name, p->name_len, &slot[i]))
			slot[i] = (struct value){0};
	}
	if (f->caller && !f->explicit_caller) {
		if (!take_kwarg(b, "caller", 6, &slot[i]) || slot[i].type == V_NONE)
			rc = value_undefined_hint(b->r, "no caller defined", &slot[i]);
		i++;
	}
	if (!rc)
		rc = bind_rest(b, &slot[i]);
	i = 0;
	for (p = f->params; p && !rc; p = p->next, i++) {
		bool has_default = i >= f->nparams - f->ndefaults;

		if (slot[i].type == V_MISSING)
			rc = bind_default(b, p, has_default ? value : NULL, &slot[i]);
		if (has_default)
			value = value->next;
	}
	return rc;
}

int macro_call(struct render *r, const struct macro *m, const struct args *args, struct value *ret)
{
	struct binding b = {.r = r, .m = m, .args = args};
	int rc = render_enter(r);

	if (rc < 0)
		return rc;
	b.act = new_activation(r, m->function, m->outer);
	b.used = render_alloc(r, args->nkw + 1, sizeof(*b.used));
	if (!b.act || !b.used)
		return -r->err->code;
	enter_frame(r, b.act, &m->function->frame);
	rc = bind_macro(&b);
	if (!rc)
		rc = capture(r, b.act, m->body, ret);
	render_leave(r);
	return rc;
}

static int new_macro(struct render *r, struct activation *act, const struct node *n,
		     struct value *ret)
{
	struct macro *m = render_alloc(r, 1, sizeof(*m));

	if (!m)
		return -r->err->code;
	*m = (struct macro){n->function, n->list, act};
	*ret = (struct value){.type = V_MACRO, .macro = m};
	return 0;
}

static int exec_call_block(struct render *r, struct activation *act, const struct node *n)
{
	struct value caller, v;
	int rc = new_macro(r, act, n, &caller);

	if (rc < 0)
		return rc;
	if (n->a)
		rc = eval_call(r, act, n->a, &caller, &v);
	else
		rc = macro_call(r, caller.macro, &(struct args){0}, &v);
	return rc < 0 ? rc : write_text(r, &v);
}

/* ---- the other statements ---- */

static int exec_if(struct render *r, struct activation *act, const struct node *n)
{
	const struct node *branch = n, *next = n->b;
	struct value test;
	int rc;

	while (branch) {
		rc = eval_expr(r, act, branch->a, &test);
		if (rc < 0)
			return rc;
		if (value_truth(&test))
			return exec_body(r, act, branch->list);
		branch = next;
		next = next ? next->next : NULL;
	}
	return exec_body(r, act, n->list2);
}

static int exec_filter_block(struct render *r, struct activation *act, const struct node *n)
{
	struct value text;
	int rc;

	enter_frame(r, act, n->frame);
	rc = capture(r, act, n->list, &text);
	if (!rc)
		rc = eval_filter(r, act, n->a, &text, &text);
	if (rc)
		return rc;
	leave_frame(act, n->frame);
	return write_text(r, &text);
}

static int exec_with(struct render *r, struct activation *act, const struct node *n)
{
	struct value v;
	int rc = 0;

	enter_frame(r, act, n->frame);
	for (const struct node *target = n->list2; target && !rc; target = target->next->next) {
		rc = eval_expr(r, act, target->next, &v);
		if (!rc)
			rc = assign(r, act, target, &v, 0);
	}
	if (!rc)
		rc = exec_body(r, act, n->list);
	leave_frame(act, n->frame);
	return rc;
}

static int exec_node(struct render *r, struct activation *act, const struct node *n)
{
	switch (n->type) {
	case N_DATA: return write_out(r, n->value.s, n->value.len);
	case N_OUTPUT: return exec_output(r, act, n);
	case N_IF: return exec_if(r, act, n);
	case N_FOR: return exec_for(r, act, n);
	case N_SET: return exec_set(r, act, n);
	case N_SET_BLOCK: return exec_set_block(r, act, n);
	case N_MACRO: return new_macro(r, act, n, activation_slot(act, n->where));
	case N_CALL_BLOCK: return exec_call_block(r, act, n);
	case N_FILTER_BLOCK: return exec_filter_block(r, act, n);
	case N_WITH: return exec_with(r, act, n);
	case N_BREAK: return FLOW_BREAK;
	case N_CONTINUE: return FLOW_CONTINUE;
	default: return render_fail(r, EINVAL, "not a statement");
	}
}

int exec_body(struct render *r, struct activation *act, const struct node *first)
{
	int rc = render_enter(r);

	if (rc < 0)
		return rc;
	for (const struct node *n = first; n && !rc; n = n->next) {
		r->line = n->line;
		rc = render_charge(r, 1);
		if (!rc)
			rc = exec_node(r, act, n);
	}
	render_leave(r);
	return rc;
}

static struct value look_up(const struct render *r, const struct text_ref *name)
{
	const json_t *j = json_object_getn(r->context, name->s, name->len);
	const struct builtin *global;

	if (j)
		return value_json(j);
	global = global_find(name->s, name->len);
	return (struct value){.type = global ? V_FUNCTION : V_MISSING, .function = global};
}

int exec_template(struct render *r, const struct template *t)
{
	struct value *names = render_alloc(r, t->ncontext_names, sizeof(*names));
	struct activation *act = new_activation(r, &t->root, NULL);

	if (!names || !act)
		return -r->err->code;
	for (unsigned i = 0; i < t->ncontext_names; i++)
		names[i] = look_up(r, &t->context_names[i]);
	r->context_names = names;
	enter_frame(r, act, &t->root.frame);
	return exec_body(r, act, t->body);
}
