/*
 * Expressions, by recursive descent in jinja2's order of precedence, which is not quite Python's:
 *
 *     a if b else c  <  or  <  and  <  not  <  == != < <= > >= in, not in  <  + -  <  ~
 *                    <  * / // %  <  ** (left to right)  <  unary + -  <  .x [x] (x)  <  |f, is t
 */
#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_builtin.h"
#include "protocol/text/jinja_parse.h"

/* Sets a finished node's height; refuses trees that would take too much stack to walk. */
static struct node *seal(struct parser *p, struct node *n)
{
	const struct node *kids[] = {n->a, n->b, n->c}, *lists[] = {n->list, n->list2};
	unsigned height = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kids); i++)
		if (kids[i])
			height = MAX(height, kids[i]->height);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (const struct node *k = lists[i]; k; k = k->next)
			height = MAX(height, k->height);
	n->height = height + 1;
	if (n->height > TEMPLATE_HEIGHT)
		return parse_fail(p, n->line, "the expression is too long");
	return n;
}

static struct node *unary(struct parser *p, enum node_type type, struct node *a, int line)
{
	struct node *n = a ? parse_new(p, type, line) : NULL;

	if (!n)
		return NULL;
	n->a = a;
	return seal(p, n);
}

static struct node *binary(struct parser *p, enum node_type type, int op, struct node *a,
			   struct node *b, int line)
{
	struct node *n = a && b ? parse_new(p, type, line) : NULL;

	if (!n)
		return NULL;
	n->op = op;
	n->a = a;
	n->b = b;
	return seal(p, n);
}

static struct node *constant(struct parser *p, struct value v, int line)
{
	struct node *n = parse_new(p, N_CONST, line);

	if (n)
		n->value = v;
	return n ? seal(p, n) : NULL;
}

/* ---- literals and names ---- */

static struct node *parse_string(struct parser *p)
{
	int line = p->at->line;
	size_t len = 0;
	const struct token *t;
	char *s;

	if (p->at[1].type != T_STRING) {
		t = p->at++;
		return constant(p, value_str(t->s, t->len), line);
	}
	for (t = p->at; t->type == T_STRING; t++)
		len += t->len;
	s = arena_alloc(&p->t->arena, len + 1);
	if (!s) {
		p->rc = err_set(p->err, ENOMEM, "template %.80s: out of memory", p->t->name);
		return NULL;
	}
	for (len = 0; p->at->type == T_STRING; p->at++) {
		memcpy(s + len, p->at->s, p->at->len);
		len += p->at->len;
	}
	return constant(p, value_str(s, len), line);
}

static struct node *parse_list(struct parser *p)
{
	struct node *n = parse_new(p, N_LIST, p->at++->line), **last;

	if (!n)
		return NULL;
	for (last = &n->list; p->at->type != T_RBRACKET; last = &(*last)->next) {
		if (n->list && !parse_expect(p, T_COMMA))
			return NULL;
		if (p->at->type == T_RBRACKET)
			break;
		*last = parse_expression(p);
		if (!*last)
			return NULL;
	}
	p->at++;
	return seal(p, n);
}

static struct node *parse_dict(struct parser *p)
{
	struct node *n = parse_new(p, N_DICT, p->at++->line), **last;

	if (!n)
		return NULL;
	for (last = &n->list; p->at->type != T_RBRACE; last = &(*last)->next->next) {
		if (n->list && !parse_expect(p, T_COMMA))
			return NULL;
		if (p->at->type == T_RBRACE)
			break;
		*last = parse_expression(p);
		if (!*last || !parse_expect(p, T_COLON))
			return NULL;
		(*last)->next = parse_expression(p);
		if (!(*last)->next)
			return NULL;
	}
	p->at++;
	return seal(p, n);
}

static struct node *parse_name(struct parser *p, bool namespaces)
{
	const struct token *t = p->at++;
	struct node *n;

	if (parse_is_name(t, "true") || parse_is_name(t, "True"))
		return constant(p, value_bool(true), t->line);
	if (parse_is_name(t, "false") || parse_is_name(t, "False"))
		return constant(p, value_bool(false), t->line);
	if (parse_is_name(t, "none") || parse_is_name(t, "None"))
		return constant(p, value_none(), t->line);
	n = parse_new(p, N_NAME, t->line);
	if (!n)
		return NULL;
	n->name = t->s;
	n->name_len = t->len;
	if (namespaces && parse_skip(p, T_DOT)) {
		t = parse_expect(p, T_NAME);
		if (!t)
			return NULL;
		n->type = N_NSREF;
		n->value = value_str(t->s, t->len);
	}
	return seal(p, n);
}

static struct node *parse_primary(struct parser *p, bool namespaces)
{
	const struct token *t = p->at;
	struct node *n;
	char got[64];

	switch (t->type) {
	case T_NAME: return parse_name(p, namespaces);
	case T_STRING: return parse_string(p);
	case T_INT: p->at++; return constant(p, value_int(t->i), t->line);
	case T_FLOAT: p->at++; return constant(p, value_float(t->f), t->line);
	case T_LBRACKET: return parse_list(p);
	case T_LBRACE: return parse_dict(p);
	case T_LPAREN:
		p->at++;
		n = parse_tuple(p, &(struct tuple_rules){.explicit_end = true});
		return n && parse_expect(p, T_RPAREN) ? n : NULL;
	default: return parse_fail(p, t->line, "unexpected '%s'", parse_describe(p, t, got));
	}
}

static bool at_tuple_end(const struct parser *p, const struct tuple_rules *rules)
{
	return p->at->type == T_VARIABLE_END || p->at->type == T_BLOCK_END ||
	       p->at->type == T_RPAREN || (rules->end && parse_is_name(p->at, rules->end));
}

static struct node *parse_or(struct parser *p);

struct node *parse_tuple(struct parser *p, const struct tuple_rules *rules)
{
	struct node *first = NULL, **last = &first, *n;
	int line = p->at->line;
	bool tuple = false;
	char got[64];

	for (;;) {
		if (first && !parse_expect(p, T_COMMA))
			return NULL;
		if (at_tuple_end(p, rules))
			break;
		n = rules->simple	  ? parse_primary(p, rules->namespaces)
		    : rules->no_condition ? parse_or(p)
					  : parse_expression(p);
		if (!n)
			return NULL;
		*last = n;
		last = &n->next;
		if (p->at->type != T_COMMA)
			break;
		tuple = true;
	}
	if (!tuple && first)
		return first;
	if (!tuple && !rules->explicit_end)
		return parse_fail(p, p->at->line, "expected an expression, got '%s'",
				  parse_describe(p, p->at, got));
	n = parse_new(p, N_TUPLE, line);
	if (!n)
		return NULL;
	n->list = first;
	return seal(p, n);
}

/* ---- targets of assignments ---- */

static bool make_target(struct parser *p, struct node *n, enum name_use use)
{
	static const char *const kinds[] = {
		[N_CONST] = "a constant", [N_LIST] = "a list", [N_DICT] = "a dict"};

	if (n->type == N_NSREF)
		return true;
	if (n->type == N_NAME) {
		n->op = (int)use;
		if (use == NAME_STORE && p->for_depth && n->name_len == 4 &&
		    !memcmp(n->name, "loop", 4)) {
			parse_fail(p, n->line, "can't assign to the special variable 'loop'");
			return false;
		}
		return true;
	}
	if (n->type != N_TUPLE) {
		bool known = (size_t)n->type < ARRAY_SIZE(kinds) && kinds[n->type];

		parse_fail(p, n->line, "can't assign to %s",
			   known ? kinds[n->type] : "an expression");
		return false;
	}
	for (struct node *item = n->list; item; item = item->next)
		if (!make_target(p, item, use))
			return false;
	return true;
}

struct node *parse_target(struct parser *p, const struct target_rules *rules)
{
	enum name_use use = rules->use == NAME_LOAD ? NAME_STORE : rules->use;
	const struct token *t;
	struct node *n;

	if (rules->name_only) {
		t = parse_expect(p, T_NAME);
		if (!t)
			return NULL;
		p->at = t;
		n = parse_name(p, false);
		if (n && rules->macro && n->type == N_NAME)
			return n;
	} else {
		n = parse_tuple(p, &(struct tuple_rules){.end = rules->end,
							 .simple = true,
							 .namespaces = rules->namespaces});
	}
	return n && make_target(p, n, use) ? n : NULL;
}

/* ---- what stands behind a value: .x [x] (x) |f is t ---- */

static struct node *parse_subscript_bound(struct parser *p, bool *ok)
{
	struct node *n;

	if (p->at->type == T_COLON || p->at->type == T_RBRACKET || p->at->type == T_COMMA)
		return NULL;
	n = parse_expression(p);
	*ok = n != NULL;
	return n;
}

/* x or a:b:c */
static struct node *parse_subscript(struct parser *p)
{
	int line = p->at->line;
	struct node *start = NULL, *n;
	bool ok = true;

	if (p->at->type != T_COLON) {
		start = parse_expression(p);
		if (!start || p->at->type != T_COLON)
			return start;
	}
	p->at++;
	n = parse_new(p, N_SLICE, line);
	if (!n)
		return NULL;
	n->a = start;
	n->b = parse_subscript_bound(p, &ok);
	if (ok && parse_skip(p, T_COLON))
		n->c = parse_subscript_bound(p, &ok);
	return ok ? seal(p, n) : NULL;
}

static struct node *parse_item(struct parser *p, struct node *a)
{
	int line = p->at++->line;
	struct node *first = NULL, **last = &first, *n;

	for (; p->at->type != T_RBRACKET; last = &(*last)->next) {
		if (first && !parse_expect(p, T_COMMA))
			return NULL;
		*last = parse_subscript(p);
		if (!*last)
			return NULL;
		if ((first != *last || p->at->type == T_COMMA) &&
		    (first->type == N_SLICE || (*last)->type == N_SLICE))
			return parse_fail(p, line, "a slice may not be part of a tuple");
	}
	p->at++;
	if (first && !first->next)
		return binary(p, N_ITEM, 0, a, first, line);
	n = parse_new(p, N_TUPLE, line);
	if (!n)
		return NULL;
	n->list = first;
	return binary(p, N_ITEM, 0, a, seal(p, n), line);
}

static struct node *parse_attribute(struct parser *p, struct node *a)
{
	int line = p->at++->line;
	const struct token *t = p->at++;
	struct node *n;

	if (t->type == T_INT)
		return binary(p, N_ITEM, 0, a, constant(p, value_int(t->i), line), line);
	if (t->type != T_NAME) {
		p->at = t;
		return parse_fail(p, t->line, "expected a name or number behind '.'");
	}
	n = unary(p, N_ATTR, a, line);
	if (!n)
		return NULL;
	n->name = t->s;
	n->name_len = t->len;
	return n;
}

static bool parse_keyword(struct parser *p, struct node *n)
{
	struct node *k = parse_new(p, N_KEYWORD, p->at->line), **last;

	if (!k)
		return false;
	k->name = p->at->s;
	k->name_len = p->at->len;
	p->at += 2;
	k->a = parse_expression(p);
	if (!k->a || !seal(p, k))
		return false;
	for (last = &n->list2; *last; last = &(*last)->next)
		if ((*last)->name_len == k->name_len &&
		    !memcmp((*last)->name, k->name, k->name_len)) {
			parse_fail(p, k->line, "keyword argument '%.*s' is repeated",
				   (int)k->name_len, k->name);
			return false;
		}
	*last = k;
	return true;
}

/* One argument of a call; false once the error is set. */
static bool parse_argument(struct parser *p, struct node *n, struct node ***last)
{
	if (p->at->type == T_MUL && !n->b && !n->c) {
		p->at++;
		n->b = parse_expression(p);
		return n->b != NULL;
	}
	if (p->at->type == T_POW && !n->c) {
		p->at++;
		n->c = parse_expression(p);
		return n->c != NULL;
	}
	if (p->at->type == T_NAME && p->at[1].type == T_ASSIGN && !n->c)
		return parse_keyword(p, n);
	if (p->at->type == T_MUL || p->at->type == T_POW || n->b || n->c || n->list2) {
		parse_fail(p, p->at->line, "invalid order of arguments in a call");
		return false;
	}
	**last = parse_expression(p);
	if (!**last)
		return false;
	*last = &(**last)->next;
	return true;
}

/* "(" arguments ")" into n. */
static bool parse_arguments(struct parser *p, struct node *n)
{
	struct node **last = &n->list;
	bool comma = false;

	if (!parse_expect(p, T_LPAREN))
		return false;
	while (p->at->type != T_RPAREN) {
		if (comma && !parse_expect(p, T_COMMA))
			return false;
		if (comma && p->at->type == T_RPAREN)
			break;
		if (!parse_argument(p, n, &last))
			return false;
		comma = true;
	}
	p->at++;
	return true;
}

static struct node *parse_call(struct parser *p, struct node *a)
{
	struct node *n = parse_new(p, N_CALL, p->at->line);

	if (!n || !parse_arguments(p, n))
		return NULL;
	n->a = a;
	return seal(p, n);
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
	while (n) {
		if (p->at->type == T_DOT)
			n = parse_attribute(p, n);
		else if (p->at->type == T_LBRACKET)
			n = parse_item(p, n);
		else if (p->at->type == T_LPAREN)
			n = parse_call(p, n);
		else
			break;
	}
	return n;
}

/* The name of a filter or test; may have dots. */
static bool parse_dotted(struct parser *p, struct node *n)
{
	const struct token *t = parse_expect(p, T_NAME);

	if (!t)
		return false;
	n->name = t->s;
	n->name_len = t->len;
	while (parse_skip(p, T_DOT)) {
		t = parse_expect(p, T_NAME);
		if (!t)
			return false;
		n->name_len = (size_t)(t->s + t->len - n->name);
	}
	return true;
}

struct node *parse_filter_name(struct parser *p, struct node *a)
{
	struct node *n = parse_new(p, N_FILTER, p->at->line);

	if (!n || !parse_dotted(p, n))
		return NULL;
	n->a = a;
	if (p->at->type == T_LPAREN && !parse_arguments(p, n))
		return NULL;
	return seal(p, n);
}

struct node *parse_filters(struct parser *p, struct node *n)
{
	while (parse_skip(p, T_PIPE)) {
		n = parse_filter_name(p, n);
		if (!n)
			return NULL;
	}
	return n;
}

static bool begins_test_argument(const struct parser *p)
{
	switch (p->at->type) {
	case T_NAME:
		return !parse_is_name(p->at, "else") && !parse_is_name(p->at, "or") &&
		       !parse_is_name(p->at, "and");
	case T_STRING:
	case T_INT:
	case T_FLOAT:
	case T_LBRACKET:
	case T_LBRACE: return true;
	default: return false;
	}
}

static struct node *parse_test(struct parser *p, struct node *a)
{
	int line = p->at++->line;
	bool negated = parse_skip_name(p, "not");
	struct node *n = parse_new(p, N_TEST, line);

	if (!n || !parse_dotted(p, n))
		return NULL;
	n->a = a;
	if (p->at->type == T_LPAREN) {
		if (!parse_arguments(p, n))
			return NULL;
	} else if (begins_test_argument(p)) {
		if (parse_is_name(p->at, "is"))
			return parse_fail(p, p->at->line, "tests with 'is' cannot be chained");
		n->list = parse_postfix(p, parse_primary(p, false));
		if (!n->list)
			return NULL;
	}
	n = seal(p, n);
	return negated ? unary(p, N_NOT, n, line) : n;
}

/* ---- operators ---- */

static struct node *parse_unary(struct parser *p, bool filters)
{
	int line = p->at->line;
	struct node *n;

	if (p->at->type == T_SUB || p->at->type == T_ADD) {
		enum node_type type = p->at++->type == T_SUB ? N_NEG : N_POS;

		if (!parse_deeper(p))
			return NULL;
		n = unary(p, type, parse_unary(p, false), line);
		p->depth--;
	} else {
		n = parse_primary(p, false);
	}
	n = parse_postfix(p, n);
	while (n && filters) {
		if (p->at->type == T_PIPE)
			n = parse_filters(p, n);
		else if (parse_is_name(p->at, "is"))
			n = parse_test(p, n);
		else if (p->at->type == T_LPAREN)
			n = parse_call(p, n);
		else
			break;
	}
	return n;
}

static struct node *parse_pow(struct parser *p)
{
	int line = p->at->line;
	struct node *n = parse_unary(p, true);

	while (n && parse_skip(p, T_POW))
		n = binary(p, N_BINARY, OP_POW, n, parse_unary(p, true), line);
	return n;
}

static struct node *parse_product(struct parser *p)
{
	int line = p->at->line, op;
	struct node *n = parse_pow(p);

	while (n) {
		switch (p->at->type) {
		case T_MUL: op = OP_MUL; break;
		case T_DIV: op = OP_DIV; break;
		case T_FLOORDIV: op = OP_FLOORDIV; break;
		case T_MOD: op = OP_MOD; break;
		default: return n;
		}
		p->at++;
		n = binary(p, N_BINARY, op, n, parse_pow(p), line);
	}
	return n;
}

static struct node *parse_concat(struct parser *p)
{
	int line = p->at->line;
	struct node *first = parse_product(p), *n, **last;

	if (!first || p->at->type != T_TILDE)
		return first;
	n = parse_new(p, N_CONCAT, line);
	if (!n)
		return NULL;
	n->list = first;
	for (last = &first->next; parse_skip(p, T_TILDE); last = &(*last)->next) {
		*last = parse_product(p);
		if (!*last)
			return NULL;
	}
	return seal(p, n);
}

static struct node *parse_sum(struct parser *p)
{
	int line = p->at->line;
	struct node *n = parse_concat(p);

	while (n && (p->at->type == T_ADD || p->at->type == T_SUB)) {
		int op = p->at++->type == T_ADD ? OP_ADD : OP_SUB;

		n = binary(p, N_BINARY, op, n, parse_concat(p), line);
	}
	return n;
}

/* The comparison at the current token, which is passed; -1 when there is none. */
static int parse_compare_op(struct parser *p)
{
	int op;

	switch (p->at->type) {
	case T_EQ: op = CMP_EQ; break;
	case T_NE: op = CMP_NE; break;
	case T_LT: op = CMP_LT; break;
	case T_LE: op = CMP_LE; break;
	case T_GT: op = CMP_GT; break;
	case T_GE: op = CMP_GE; break;
	case T_NAME:
		if (parse_is_name(p->at, "in")) {
			op = CMP_IN;
			break;
		}
		if (!parse_is_name(p->at, "not") || !parse_is_name(p->at + 1, "in"))
			return -1;
		p->at++;
		op = CMP_NOT_IN;
		break;
	default: return -1;
	}
	p->at++;
	return op;
}

static struct node *parse_compare(struct parser *p)
{
	int line = p->at->line, op;
	struct node *first = parse_sum(p), *n = NULL, **last = NULL;

	while (first && (op = parse_compare_op(p)) >= 0) {
		struct node *operand = unary(p, N_OPERAND, parse_sum(p), p->at->line);

		if (!operand)
			return NULL;
		operand->op = op;
		if (!n) {
			n = parse_new(p, N_COMPARE, line);
			if (!n)
				return NULL;
			n->a = first;
			last = &n->list;
		}
		*last = operand;
		last = &operand->next;
	}
	return n ? seal(p, n) : first;
}

static struct node *parse_not(struct parser *p)
{
	int line = p->at->line;
	struct node *n;

	if (!parse_skip_name(p, "not"))
		return parse_compare(p);
	if (!parse_deeper(p))
		return NULL;
	n = unary(p, N_NOT, parse_not(p), line);
	p->depth--;
	return n;
}

static struct node *parse_and(struct parser *p)
{
	int line = p->at->line;
	struct node *n = parse_not(p);

	while (n && parse_skip_name(p, "and"))
		n = binary(p, N_AND, 0, n, parse_not(p), line);
	return n;
}

static struct node *parse_or(struct parser *p)
{
	int line = p->at->line;
	struct node *n = parse_and(p);

	while (n && parse_skip_name(p, "or"))
		n = binary(p, N_OR, 0, n, parse_and(p), line);
	return n;
}

static struct node *parse_conditional(struct parser *p)
{
	int line = p->at->line;
	struct node *n = parse_or(p), *cond;

	while (n && parse_skip_name(p, "if")) {
		cond = parse_new(p, N_COND, line);
		if (!cond)
			return NULL;
		cond->b = n;
		cond->a = parse_or(p);
		if (!cond->a)
			return NULL;
		if (parse_skip_name(p, "else")) {
			cond->c = parse_expression(p);
			if (!cond->c)
				return NULL;
		}
		n = seal(p, cond);
	}
	return n;
}

struct node *parse_expression(struct parser *p)
{
	struct node *n;

	if (!parse_deeper(p))
		return NULL;
	n = parse_conditional(p);
	p->depth--;
	return n;
}
