#include "protocol/jinja/eval.h"

#include "protocol/jinja/attr.h"
#include "protocol/jinja/builtin.h"
#include "protocol/jinja/dict.h"
#include "protocol/jinja/ops.h"
#include "protocol/jinja/seq.h"
#include "protocol/jinja/write.h"

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

/* ---- calls ---- */

enum { FEW_ARGS = 4 }; /* on the stack: up to 4 arguments by position, 4 by keyword */

struct few_args {
	struct value v[FEW_ARGS];
	struct kwarg kw[FEW_ARGS];
};

static struct args eval_args(struct render *r, struct activation *act, const struct node *n,
			     struct few_args *few)
{
	size_t nargs = chain_length(n->list), nkw = chain_length(n->list2), i = 0;
	struct value *v = nargs > FEW_ARGS ? render_alloc(r, nargs, sizeof(*v)) : few->v;
	struct kwarg *kw = nkw > FEW_ARGS ? render_alloc(r, nkw, sizeof(*kw)) : few->kw;

	if (!v || !kw)
		return (struct args){0};
	for (const struct node *a = n->list; a; a = a->next)
		v[i++] = eval(r, act, a);
	i = 0;
	for (const struct node *k = n->list2; k; k = k->next)
		kw[i++] = (struct kwarg){k->name, eval(r, act, k->a)};
	r->line = n->line;
	return (struct args){nargs, nkw, v, kw};
}

static struct value eval_call(struct render *r, struct activation *act, const struct node *n)
{
	struct value callee = eval(r, act, n->a);
	struct few_args few;
	struct args args = eval_args(r, act, n, &few);

	if (callee.type == V_CALLABLE && !r->rc)
		return callee.callable->call(r, callee.callable, &args);
	if (!value_fail_undefined(r, callee))
		value_fail(r, "'%s' object is not callable", value_type_name(callee));
	return NOTHING;
}

/* Calls a filter or a test. */
static struct value eval_builtin(struct render *r, struct activation *act, const struct node *n)
{
	struct value self = eval(r, act, n->a);
	struct few_args few;
	struct args args = eval_args(r, act, n, &few);

	if (r->rc)
		return NOTHING;
	if (!n->builtin || !n->builtin->call) /* looking the name up again sets the error */
		builtin_named(r, n->type == N_FILTER ? FILTER : TEST, n->name);
	return r->rc ? NOTHING : builtin_call(r, n->builtin, self, &args);
}

/* ---- the other expressions ---- */

static struct value eval_items(struct render *r, struct activation *act, const struct node *n)
{
	struct list *l = list_new(r, chain_length(n->list));
	size_t i = 0;

	for (const struct node *item = n->list; l && item; item = item->next)
		l->v[i++] = eval(r, act, item);
	return value_of_list(n->type == N_TUPLE ? V_TUPLE : V_LIST, l);
}

/* Makes a dict. All keys and values are computed before the first entry is added. */
static struct value eval_dict(struct render *r, struct activation *act, const struct node *n)
{
	struct value all = eval_items(r, act, n);
	struct dict *d = dict_new(r, chain_length(n->list) / 2);

	for (size_t i = 0; !r->rc && i < all.list->n; i += 2)
		dict_set(r, d, all.list->v[i], all.list->v[i + 1]);
	return r->rc ? NOTHING : (struct value){.type = V_DICT, .dict = d};
}

static bool compare(struct render *r, enum compare_op op, struct value a, struct value b)
{
	static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
	int c;

	switch (op) {
	case CMP_EQ: return value_equal(r, a, b);
	case CMP_NE: return !value_equal(r, a, b);
	case CMP_IN: return value_contains(r, b, a);
	case CMP_NOT_IN: return !value_contains(r, b, a);
	default: break;
	}
	c = value_compare(r, a, b, signs[op]);
	return c != 2 && (op == CMP_LT	 ? c < 0
			  : op == CMP_LE ? c <= 0
			  : op == CMP_GT ? c > 0
					 : c >= 0);
}

static struct value eval_compare(struct render *r, struct activation *act, const struct node *n)
{
	struct value a = eval(r, act, n->a), b = eval(r, act, n->b);

	r->line = n->line;
	return value_bool(compare(r, (enum compare_op)n->op, a, b));
}

/* Appends the text of an expression to r->scratch. For a ~ b ~ c, which is (a ~ b) ~ c, it appends the texts of
 * a, b and c one after another. */
static void write_concat(struct render *r, struct activation *act, const struct node *n)
{
	if (n->type == N_CONCAT && render_enter(r)) {
		write_concat(r, act, n->a);
		write_concat(r, act, n->b);
		r->depth--;
	} else {
		value_write_str(r, &r->scratch, eval(r, act, n));
	}
}

static struct value eval_concat(struct render *r, struct activation *act, const struct node *n)
{
	size_t start = r->scratch.len;

	write_concat(r, act, n);
	return value_take(r, start);
}

static struct value eval_condition(struct render *r, struct activation *act, const struct node *n)
{
	if (value_truth(eval(r, act, n->a)))
		return eval(r, act, n->b);
	if (n->c)
		return eval(r, act, n->c);
	return value_undefined_hint(r, "an inline if evaluated to false and has no else");
}

static struct value eval_item(struct render *r, struct activation *act, const struct node *n)
{
	struct value obj = eval(r, act, n->a), key, bound[3];

	if (n->b->type == N_SLICE) {
		const struct node *part[3] = {n->b->a, n->b->b, n->b->c};

		for (int i = 0; i < 3; i++)
			bound[i] = part[i] ? eval(r, act, part[i]) : value_none();
		r->line = n->line;
		return value_slice(r, obj, bound);
	}
	key = eval(r, act, n->b);
	r->line = n->line;
	return value_getitem(r, obj, key);
}

static struct value eval_binary(struct render *r, struct activation *act, const struct node *n)
{
	struct value a = eval(r, act, n->a), b = eval(r, act, n->b);

	r->line = n->line;
	return value_binary(r, (enum binary_op)n->op, a, b);
}

static struct value eval_unary(struct render *r, struct activation *act, const struct node *n)
{
	struct value a = eval(r, act, n->a);

	r->line = n->line;
	if (n->type == N_NOT)
		return value_bool(!value_truth(a));
	return value_negate(r, a, n->type == N_NEG);
}

static struct value eval_logic(struct render *r, struct activation *act, const struct node *n)
{
	struct value v = eval(r, act, n->a);

	return value_truth(v) == (n->type == N_OR) ? v : eval(r, act, n->b);
}

static struct value eval_attribute(struct render *r, struct activation *act, const struct node *n)
{
	struct value obj = eval(r, act, n->a);

	r->line = n->line;
	return value_getattr(r, obj, n->name, (unsigned)n->op);
}

static struct value eval_node(struct render *r, struct activation *act, const struct node *n)
{
	switch (n->type) {
	case N_CAPTURED: return act->captured;
	case N_LIST:
	case N_TUPLE: return eval_items(r, act, n);
	case N_DICT: return eval_dict(r, act, n);
	case N_NOT:
	case N_NEG:
	case N_POS: return eval_unary(r, act, n);
	case N_BINARY: return eval_binary(r, act, n);
	case N_AND:
	case N_OR: return eval_logic(r, act, n);
	case N_COMPARE: return eval_compare(r, act, n);
	case N_CONCAT: return eval_concat(r, act, n);
	case N_COND: return eval_condition(r, act, n);
	case N_ATTR: return eval_attribute(r, act, n);
	case N_ITEM: return eval_item(r, act, n);
	case N_CALL: return eval_call(r, act, n);
	case N_FILTER:
	case N_TEST: return eval_builtin(r, act, n);
	default: return value_fail(r, "not an expression");
	}
}

struct value eval(struct render *r, struct activation *act, const struct node *n)
{
	struct value v;

	if (n->type == N_CONST)
		return render_charge(r, 1) ? n->value : NOTHING;
	r->line = n->line;
	if (!render_charge(r, 1))
		return NOTHING;
	if (n->type == N_NAME) {
		v = *activation_slot(act, n->where);
		if (v.type == V_MISSING)
			v = value_undefined_name(r, n->name.s, n->name.len);
		return v;
	}
	if (!render_enter(r))
		return NOTHING;
	v = eval_node(r, act, n);
	r->depth--;
	return v;
}
