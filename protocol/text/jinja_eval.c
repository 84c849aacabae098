#include "protocol/text/jinja_eval.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FEW_ARGS = 4 }; /* so many arguments take no memory from the arena */

struct few_args {
	struct value v[FEW_ARGS];
	struct kwarg kw[FEW_ARGS];
};

struct value *activation_slot(struct activation *act, struct variable v)
{
	for (unsigned i = 0; i < v.hops; i++)
		act = act->outer;
	return &act->slot[v.slot];
}

static size_t chain_length(const struct node *n)
{
	size_t count = 0;

	for (; n; n = n->next)
		count++;
	return count;
}

/* ---- arguments ---- */

/* f(*v): one argument an item. */
static int unpack_args(struct render *r, const struct value *v, struct args *args)
{
	struct value all;
	struct value *p;
	int rc = value_to_list(r, v, &all);

	if (rc < 0)
		return rc;
	p = render_alloc(r, args->n + all.list->n, sizeof(*p));
	if (!p)
		return -r->err->code;
	if (args->n)
		memcpy(p, args->v, args->n * sizeof(*p));
	if (all.list->n)
		memcpy(p + args->n, all.list->v, all.list->n * sizeof(*p));
	args->v = p;
	args->n += all.list->n;
	return 0;
}

/* f(**v): one keyword argument an entry. */
static int unpack_kwargs(struct render *r, const struct value *v, struct args *args)
{
	struct dict_cursor c = {0};
	struct value key, value;
	struct kwarg *p;

	if (v->type != V_DICT)
		return render_fail(r, EINVAL, "argument after ** must be a dict, not '%s'",
				   value_type_name(v));
	p = render_alloc(r, args->nkw + (size_t)value_len(v), sizeof(*p));
	if (!p)
		return -r->err->code;
	if (args->nkw)
		memcpy(p, args->kw, args->nkw * sizeof(*p));
	args->kw = p;
	while (dict_next(v, &c, &key, &value)) {
		if (key.type != V_STR)
			return render_fail(r, EINVAL, "keywords must be strings");
		for (size_t i = 0; i < args->nkw; i++)
			if (p[i].len == key.len && !memcmp(p[i].name, key.s, key.len))
				return render_fail(r, EINVAL,
						   "keyword argument '%.*s' is given twice",
						   (int)MIN(key.len, (size_t)64), key.s);
		p[args->nkw++] = (struct kwarg){key.s, key.len, value};
	}
	return 0;
}

static int eval_args(struct render *r, struct activation *act, const struct node *n,
		     const struct value *caller, struct few_args *few, struct args *args)
{
	size_t nargs = chain_length(n->list), nkw = chain_length(n->list2) + (caller != NULL);
	struct value *v = few->v, dyn;
	struct kwarg *kw = few->kw;
	int rc = 0;

	*args = (struct args){0};
	if (nargs > FEW_ARGS)
		v = render_alloc(r, nargs, sizeof(*v));
	if (nkw > FEW_ARGS)
		kw = render_alloc(r, nkw, sizeof(*kw));
	if (!v || !kw)
		return -r->err->code;
	args->v = v;
	args->kw = kw;
	for (const struct node *a = n->list; a && !rc; a = a->next)
		rc = eval_expr(r, act, a, &v[args->n++]);
	for (const struct node *k = n->list2; k && !rc; k = k->next) {
		kw[args->nkw] = (struct kwarg){k->name, k->name_len, {0}};
		rc = eval_expr(r, act, k->a, &kw[args->nkw++].value);
	}
	if (caller)
		kw[args->nkw++] = (struct kwarg){"caller", 6, *caller};
	if (n->b && !rc) {
		rc = eval_expr(r, act, n->b, &dyn);
		if (!rc)
			rc = unpack_args(r, &dyn, args);
	}
	if (n->c && !rc) {
		rc = eval_expr(r, act, n->c, &dyn);
		if (!rc)
			rc = unpack_kwargs(r, &dyn, args);
	}
	r->line = n->line;
	return rc;
}

int eval_call(struct render *r, struct activation *act, const struct node *n,
	      const struct value *caller, struct value *ret)
{
	struct value callee;
	struct few_args few;
	struct args args;
	int rc = eval_expr(r, act, n->a, &callee);

	if (!rc)
		rc = eval_args(r, act, n, caller, &few, &args);
	return rc < 0 ? rc : value_call(r, &callee, &args, ret);
}

int eval_filter(struct render *r, struct activation *act, const struct node *n,
		const struct value *text, struct value *ret)
{
	struct few_args few;
	struct value self;
	struct args args;
	int rc = 0;

	if (!n->a)
		self = *text;
	else if (text && n->a->type == N_FILTER)
		rc = eval_filter(r, act, n->a, text, &self);
	else
		rc = eval_expr(r, act, n->a, &self);
	if (!rc)
		rc = eval_args(r, act, n, NULL, &few, &args);
	if (rc < 0)
		return rc;
	if (!n->builtin)
		return render_fail(r, EINVAL, "no filter named '%.*s'",
				   (int)MIN(n->name_len, (size_t)64), n->name);
	return builtin_call(r, n->builtin, &self, &args, ret);
}

static int eval_test(struct render *r, struct activation *act, const struct node *n,
		     struct value *ret)
{
	struct few_args few;
	struct value self;
	struct args args;
	int rc = eval_expr(r, act, n->a, &self);

	if (!rc)
		rc = eval_args(r, act, n, NULL, &few, &args);
	if (rc < 0)
		return rc;
	if (!n->builtin)
		return render_fail(r, EINVAL, "no test named '%.*s'",
				   (int)MIN(n->name_len, (size_t)64), n->name);
	return builtin_call(r, n->builtin, &self, &args, ret);
}

/* ---- the other expressions ---- */

static int eval_items(struct render *r, struct activation *act, const struct node *n,
		      struct value *ret)
{
	size_t i = 0;
	int rc = value_new_list(r, n->type == N_TUPLE ? V_TUPLE : V_LIST, chain_length(n->list),
				ret);

	for (const struct node *item = n->list; item && !rc; item = item->next)
		rc = eval_expr(r, act, item, &ret->list->v[i++]);
	return rc;
}

static int eval_dict(struct render *r, struct activation *act, const struct node *n,
		     struct value *ret)
{
	struct value all; /* keys and values: all are there before the first is put in */
	int rc = eval_items(r, act, n, &all);

	if (!rc)
		rc = value_new_dict(r, V_DICT, ret);
	for (size_t i = 0; !rc && i < all.list->n; i += 2)
		rc = dict_set(r, ret->dict, &all.list->v[i], &all.list->v[i + 1]);
	return rc;
}

static int compare(struct render *r, enum compare_op op, const struct value *a,
		   const struct value *b, bool *ret)
{
	static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
	int c, rc;

	switch (op) {
	case CMP_EQ:
	case CMP_NE:
		rc = value_equal(r, a, b, ret);
		*ret ^= op == CMP_NE;
		return rc;
	case CMP_IN:
	case CMP_NOT_IN:
		rc = value_contains(r, b, a, ret);
		*ret ^= op == CMP_NOT_IN;
		return rc;
	default: break;
	}
	rc = value_compare(r, a, b, signs[op], &c);
	*ret = c != 2 && (op == CMP_LT	 ? c < 0
			  : op == CMP_LE ? c <= 0
			  : op == CMP_GT ? c > 0
					 : c >= 0);
	return rc;
}

static int eval_compare(struct render *r, struct activation *act, const struct node *n,
			struct value *ret)
{
	struct value left, right;
	bool holds = true;
	int rc = eval_expr(r, act, n->a, &left);

	for (const struct node *o = n->list; o && holds && !rc; o = o->next) {
		rc = eval_expr(r, act, o->a, &right);
		r->line = o->line;
		if (!rc)
			rc = compare(r, (enum compare_op)o->op, &left, &right, &holds);
		left = right;
	}
	*ret = value_bool(holds);
	return rc;
}

static int eval_concat(struct render *r, struct activation *act, const struct node *n,
		       struct value *ret)
{
	size_t start = text_begin(r);
	struct value v;
	int rc = 0;

	for (const struct node *item = n->list; item && !rc; item = item->next) {
		rc = eval_expr(r, act, item, &v);
		if (!rc)
			rc = value_write_str(r, &r->scratch, &v);
	}
	return rc < 0 ? rc : text_end(r, start, ret);
}

static int eval_condition(struct render *r, struct activation *act, const struct node *n,
			  struct value *ret)
{
	struct value test;
	char hint[128];
	int rc = eval_expr(r, act, n->a, &test);

	if (rc < 0)
		return rc;
	if (value_truth(&test))
		return eval_expr(r, act, n->b, ret);
	if (n->c)
		return eval_expr(r, act, n->c, ret);
	snprintf(hint, sizeof(hint),
		 "the inline if-expression on line %d evaluated to false and has no else", n->line);
	rc = value_copy_str(r, hint, strlen(hint), &test);
	return rc < 0 ? rc : value_undefined_hint(r, test.s, ret);
}

static int eval_item(struct render *r, struct activation *act, const struct node *n,
		     struct value *ret)
{
	const struct node *part[3];
	struct value obj, key, bound[3];
	int rc = eval_expr(r, act, n->a, &obj);

	if (rc < 0)
		return rc;
	if (n->b->type != N_SLICE) {
		rc = eval_expr(r, act, n->b, &key);
		r->line = n->line;
		return rc < 0 ? rc : value_getitem(r, &obj, &key, ret);
	}
	part[0] = n->b->a;
	part[1] = n->b->b;
	part[2] = n->b->c;
	for (int i = 0; i < 3 && !rc; i++) {
		bound[i] = value_none();
		if (part[i])
			rc = eval_expr(r, act, part[i], &bound[i]);
	}
	r->line = n->line;
	return rc < 0 ? rc : value_slice(r, &obj, bound, ret);
}

static int eval_binary(struct render *r, struct activation *act, const struct node *n,
		       struct value *ret)
{
	struct value a, b;
	int rc = eval_expr(r, act, n->a, &a);

	if (!rc)
		rc = eval_expr(r, act, n->b, &b);
	r->line = n->line;
	return rc < 0 ? rc : value_binary(r, (enum binary_op)n->op, &a, &b, ret);
}

static int eval_unary(struct render *r, struct activation *act, const struct node *n,
		      struct value *ret)
{
	struct value a;
	int rc = eval_expr(r, act, n->a, &a);

	if (rc < 0)
		return rc;
	r->line = n->line;
	if (n->type != N_NOT)
		return value_negate(r, &a, n->type == N_NEG, ret);
	*ret = value_bool(!value_truth(&a));
	return 0;
}

static int eval_logic(struct render *r, struct activation *act, const struct node *n,
		      struct value *ret)
{
	int rc = eval_expr(r, act, n->a, ret);

	if (rc < 0 || value_truth(ret) == (n->type == N_OR))
		return rc;
	return eval_expr(r, act, n->b, ret);
}

static int eval_attribute(struct render *r, struct activation *act, const struct node *n,
			  struct value *ret)
{
	struct value obj;
	int rc = eval_expr(r, act, n->a, &obj);

	r->line = n->line;
	return rc < 0 ? rc : value_getattr(r, &obj, n->name, n->name_len, ret);
}

static int eval_name(struct render *r, struct activation *act, const struct node *n,
		     struct value *ret)
{
	*ret = *activation_slot(act, n->where);
	if (ret->type == V_MISSING)
		return value_undefined_name(r, n->name, n->name_len, ret);
	return 0;
}

static int eval_node(struct render *r, struct activation *act, const struct node *n,
		     struct value *ret)
{
	switch (n->type) {
	case N_LIST:
	case N_TUPLE: return eval_items(r, act, n, ret);
	case N_DICT: return eval_dict(r, act, n, ret);
	case N_NOT:
	case N_NEG:
	case N_POS: return eval_unary(r, act, n, ret);
	case N_BINARY: return eval_binary(r, act, n, ret);
	case N_AND:
	case N_OR: return eval_logic(r, act, n, ret);
	case N_COMPARE: return eval_compare(r, act, n, ret);
	case N_CONCAT: return eval_concat(r, act, n, ret);
	case N_COND: return eval_condition(r, act, n, ret);
	case N_ATTR: return eval_attribute(r, act, n, ret);
	case N_ITEM: return eval_item(r, act, n, ret);
	case N_CALL: return eval_call(r, act, n, NULL, ret);
	case N_FILTER: return eval_filter(r, act, n, NULL, ret);
	case N_TEST: return eval_test(r, act, n, ret);
	default: return render_fail(r, EINVAL, "not an expression");
	}
}

int eval_expr(struct render *r, struct activation *act, const struct node *n, struct value *ret)
{
	int rc = render_charge(r, 1);

	if (rc < 0)
		return rc;
	if (n->type == N_CONST) {
		*ret = n->value;
		return 0;
	}
	r->line = n->line;
	if (n->type == N_NAME)
		return eval_name(r, act, n, ret);
	rc = render_enter(r);
	if (rc < 0)
		return rc;
	rc = eval_node(r, act, n, ret);
	render_leave(r);
	return rc;
}
