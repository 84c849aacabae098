/* Parses expressions by recursive descent in jinja2's order of precedence, which is not quite Python's. From the
 * weakest to the strongest:
 *
 *     a if b else c
 *     or
 *     and
 *     not
 *     == != < <= > >= in, not in
 *     + -
 *     ~
 *     * / // %
 *     |f, is t
 *     unary + -
 *     .x [x] (x) */
#include "protocol/jinja/expr.h"

#include <string.h>

#include "protocol/jinja/ops.h"

/* Sets a finished node's height and returns the node. Refuses trees that would take too much stack to walk. */
static struct node *seal(struct parser *p, struct node *n)
{
	const struct node *kids[] = {n->a, n->b, n->c}, *lists[] = {n->list, n->list2};

	n->height = 0;
	for (size_t i = 0; i < ARRAY_SIZE(kids); i++)
		if (kids[i])
			n->height = MAX(n->height, kids[i]->height + 1);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (const struct node *k = lists[i]; k && !p->rd->rc; k = k->next)
			n->height = MAX(n->height, k->height + 1);
	if (n->height > TEMPLATE_HEIGHT)
		return parser_fail(p, n->line, "the expression is too long");
	return n;
}

static struct node *new_node(struct parser *p, enum node_type type, int op, struct node *a,
			     struct node *b, int line)
{
	struct node *n = parser_node(p, type, line);

	n->op = op;
	n->a = a;
	n->b = b;
	return seal(p, n);
}

static struct node *constant(struct parser *p, struct value v, int line)
{
	struct node *n = parser_node(p, N_CONST, line);

	n->value = v;
	return n;
}

/* Returns whether a list has another element before the token `end`. If the list has begun and does not end at the
 * current token, skips the comma that must stand there. */
static bool more(struct parser *p, bool begun, int end)
{
	if (begun && p->at->type != end)
		parser_expect(p, ',');
	return p->at->type != end && !p->rd->rc;
}

/* Adds n at the end of a chain, and moves the end on. */
static void append(struct node ***last, struct node *n)
{
	**last = n;
	*last = &n->next;
}

/* ---- literals and names ---- */

static struct node *parse_string(struct parser *p)
{
	const struct token *t = p->at++;
	struct node *n = constant(p, t->value, t->line);

	for (; p->at->type == T_STRING; p->at++) /* 'a' 'b' is 'ab' */
		n = new_node(p, N_CONCAT, 0, n, constant(p, p->at->value, t->line), t->line);
	return n;
}

/* Parses a list, or a dict as a list of keys and values, up to the token `end`. */
static struct node *parse_items(struct parser *p, enum node_type type, int end)
{
	struct node *n = parser_node(p, type, p->at++->line), **last = &n->list;

	while (more(p, n->list, end)) {
		append(&last, parse_expression(p));
		if (type == N_DICT) {
			parser_expect(p, ':');
			append(&last, parse_expression(p));
		}
	}
	parser_expect(p, end);
	return seal(p, n);
}

static struct node *parse_name(struct parser *p)
{
	const struct token *t = parser_expect(p, T_NAME);
	struct node *n;

	if (value_is(t->value, "true") || value_is(t->value, "True"))
		return constant(p, value_bool(true), t->line);
	if (value_is(t->value, "false") || value_is(t->value, "False"))
		return constant(p, value_bool(false), t->line);
	if (value_is(t->value, "none") || value_is(t->value, "None"))
		return constant(p, value_none(), t->line);
	n = parser_node(p, N_NAME, t->line);
	n->name = t->value;
	return n;
}

/* The elements that parse_elements reads: expressions, conditions (parse_condition in expr.h), names that are assigned
 * to, or such names and namespace.attribute. */
enum element { EXPRESSION, CONDITION, TARGET, NAMESPACE_TARGET };

static struct node *parse_elements(struct parser *p, enum element what, const char *end,
				   bool may_be_empty);

static struct node *parse_parentheses(struct parser *p, enum element what)
{
	struct node *n;

	p->at++;
	n = parse_elements(p, what, NULL, true);
	parser_expect(p, ')');
	return n;
}

static struct node *parse_primary(struct parser *p)
{
	const struct token *t = p->at;
	char got[64];

	switch (t->type) {
	case T_NAME: return parse_name(p);
	case T_STRING: return parse_string(p);
	case T_INT:
	case T_FLOAT: p->at++; return constant(p, t->value, t->line);
	case '[': return parse_items(p, N_LIST, ']');
	case '{': return parse_items(p, N_DICT, '}');
	case '(': return parse_parentheses(p, EXPRESSION);
	default: return parser_fail(p, t->line, "unexpected '%s'", parser_describe(p, t, got));
	}
}

/* ---- targets of assignments ---- */

struct node *parse_target_name(struct parser *p, enum name_use use)
{
	struct node *n = parse_name(p);

	if (n->type != N_NAME)
		return parser_fail(p, n->line, "can only assign to names");
	n->op = use;
	return n;
}

static struct node *parse_store(struct parser *p, bool namespaces)
{
	struct node *n;

	if (p->at->type == '(') {
		parser_deeper(p);
		n = p->rd->rc ? &p->spare
			      : parse_parentheses(p, namespaces ? NAMESPACE_TARGET : TARGET);
		p->depth--;
		return n;
	}
	n = parse_target_name(p, NAME_STORE);
	if (namespaces && parser_skip(p, '.')) {
		n->type = N_NSREF;
		n->value = parser_expect(p, T_NAME)->value;
	} else if (p->for_depth && value_is(n->name, "loop")) {
		return parser_fail(p, n->line, "can't assign to the special variable 'loop'");
	}
	return n;
}

struct node *parse_target(struct parser *p, const char *end, bool namespaces)
{
	return parse_elements(p, namespaces ? NAMESPACE_TARGET : TARGET, end, false);
}

/* ---- after a value: .x [x] (x) |f is t ---- */

static struct node *parse_bound(struct parser *p)
{
	return p->at->type == ':' || p->at->type == ']' ? NULL : parse_expression(p);
}

/* Parses [x] or [start:stop:step] behind the value a. */
static struct node *parse_item(struct parser *p, struct node *a)
{
	int line = p->at++->line;
	struct node *n = parse_bound(p), *slice;

	if (p->at->type == ':') {
		p->at++;
		slice = new_node(p, N_SLICE, 0, n, NULL, line);
		slice->b = parse_bound(p);
		slice->c = parser_skip(p, ':') ? parse_bound(p) : NULL;
		n = seal(p, slice);
	} else if (!n) {
		parser_fail(p, line, "expected an index");
	}
	if (p->at->type == ',')
		parser_fail(p, line,
			    "an index of several parts is not supported in chat templates");
	parser_expect(p, ']');
	return new_node(p, N_ITEM, 0, a, n, line);
}

static struct node *parse_attribute(struct parser *p, struct node *a)
{
	int line = p->at++->line;
	const struct token *t = p->at;
	struct node *n;

	if (t->type != T_INT && t->type != T_NAME)
		return parser_fail(p, t->line, "expected a name or number behind '.'");
	p->at++;
	if (t->type == T_INT)
		return new_node(p, N_ITEM, 0, a, constant(p, t->value, line), line);
	n = new_node(p, N_ATTR, 0, a, NULL, line);
	n->name = t->value;
	return n;
}

static void parse_keyword(struct parser *p, struct node *n)
{
	struct node *k = parser_node(p, N_KEYWORD, p->at->line), **last;

	k->name = p->at->value;
	p->at += 2;
	k->a = parse_expression(p);
	for (last = &n->list2; *last; last = &(*last)->next)
		if (value_same((*last)->name, k->name))
			parser_fail(p, k->line, "keyword argument '%.*s' is repeated",
				    (int)MIN(k->name.len, 64u), k->name.s);
	*last = seal(p, k);
}

/* Parses "(" arguments ")" into n->list and n->list2. */
static void parse_arguments(struct parser *p, struct node *n)
{
	struct node **last = &n->list;

	parser_expect(p, '(');
	while (more(p, n->list || n->list2, ')')) {
		if (p->at->type == '*' || p->at->type == T_POW)
			parser_fail(p, p->at->line,
				    "arguments with * or ** are not supported in chat templates");
		else if (p->at->type == T_NAME && p->at[1].type == '=')
			parse_keyword(p, n);
		else if (n->list2)
			parser_fail(p, p->at->line, "invalid order of arguments in a call");
		else
			append(&last, parse_expression(p));
	}
	parser_expect(p, ')');
}

static struct node *parse_call(struct parser *p, struct node *a)
{
	struct node *n = parser_node(p, N_CALL, p->at->line);

	parse_arguments(p, n);
	n->a = a;
	return seal(p, n);
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
	for (;;) {
		if (p->at->type == '.')
			n = parse_attribute(p, n);
		else if (p->at->type == '[')
			n = parse_item(p, n);
		else if (p->at->type == '(')
			n = parse_call(p, n);
		else
			return n;
	}
}

struct node *parse_filter(struct parser *p, struct node *a)
{
	struct node *n = parser_node(p, N_FILTER, p->at->line);

	n->name = parser_expect(p, T_NAME)->value;
	if (p->at->type == '(')
		parse_arguments(p, n);
	n->a = a;
	return seal(p, n);
}

struct node *parse_filters(struct parser *p, struct node *n)
{
	while (parser_skip(p, '|'))
		n = parse_filter(p, n);
	return n;
}

static bool begins_test_argument(const struct parser *p)
{
	switch (p->at->type) {
	case T_NAME:
		return !parser_is_name(p, "else") && !parser_is_name(p, "or") &&
		       !parser_is_name(p, "and");
	case T_STRING:
	case T_INT:
	case T_FLOAT:
	case '[':
	case '{': return true;
	default: return false;
	}
}

static struct node *parse_test(struct parser *p, struct node *a)
{
	int line = p->at++->line;
	bool negated = parser_skip_name(p, "not");
	struct node *n = parser_node(p, N_TEST, line);

	n->name = parser_expect(p, T_NAME)->value;
	n->a = a;
	if (p->at->type == '(')
		parse_arguments(p, n);
	else if (parser_is_name(p, "is"))
		return parser_fail(p, p->at->line, "tests with 'is' cannot be chained");
	else if (begins_test_argument(p))
		n->list = parse_postfix(p, parse_primary(p));
	n = seal(p, n);
	return negated ? new_node(p, N_NOT, 0, n, NULL, line) : n;
}

/* ---- operators ---- */

static struct node *parse_unary(struct parser *p, bool filters)
{
	int line = p->at->line, sign = p->at->type;
	struct node *n;

	if (sign == '-' || sign == '+') {
		p->at++;
		parser_deeper(p);
		n = parse_unary(p, false);
		n = new_node(p, sign == '-' ? N_NEG : N_POS, 0, n, NULL, line);
		p->depth--;
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	while (filters) {
		if (p->at->type == '|')
			n = parse_filters(p, n);
		else if (parser_is_name(p, "is"))
			n = parse_test(p, n);
		else if (p->at->type == '(')
			n = parse_call(p, n);
		else
			break;
	}
	if (p->at->type == T_POW)
		parser_fail(p, p->at->line, "the operator ** is not supported in chat templates");
	return n;
}

/* Levels of precedence, the weakest first. */
enum {
	LEVEL_OR,
	LEVEL_AND,
	LEVEL_NOT,
	LEVEL_COMPARE,
	LEVEL_SUM,
	LEVEL_CONCAT,
	LEVEL_PRODUCT,
	LEVELS
};

static const struct {
	int token; /* T_NAME: `name` */
	const char *name;
	int level;
	enum node_type type;
	int op;
} operators[] = {
	{T_NAME, "or", LEVEL_OR, N_OR, 0},
	{T_NAME, "and", LEVEL_AND, N_AND, 0},
	{T_EQ, NULL, LEVEL_COMPARE, N_COMPARE, CMP_EQ},
	{T_NE, NULL, LEVEL_COMPARE, N_COMPARE, CMP_NE},
	{'<', NULL, LEVEL_COMPARE, N_COMPARE, CMP_LT},
	{T_LE, NULL, LEVEL_COMPARE, N_COMPARE, CMP_LE},
	{'>', NULL, LEVEL_COMPARE, N_COMPARE, CMP_GT},
	{T_GE, NULL, LEVEL_COMPARE, N_COMPARE, CMP_GE},
	{T_NAME, "in", LEVEL_COMPARE, N_COMPARE, CMP_IN},
	{T_NAME, "not", LEVEL_COMPARE, N_COMPARE, CMP_NOT_IN}, /* and "in" */
	{'+', NULL, LEVEL_SUM, N_BINARY, OP_ADD},
	{'-', NULL, LEVEL_SUM, N_BINARY, OP_SUB},
	{'~', NULL, LEVEL_CONCAT, N_CONCAT, 0},
	{'*', NULL, LEVEL_PRODUCT, N_BINARY, OP_MUL},
	{'/', NULL, LEVEL_PRODUCT, N_BINARY, OP_DIV},
	{T_FLOORDIV, NULL, LEVEL_PRODUCT, N_BINARY, OP_FLOORDIV},
	{'%', NULL, LEVEL_PRODUCT, N_BINARY, OP_MOD},
};

/* If the current token is an operator of this level, skips it and returns its index in `operators`; -1: it is not. */
static int skip_operator(struct parser *p, int level)
{
	for (int i = 0; i < (int)ARRAY_SIZE(operators); i++) {
		if (operators[i].level != level || operators[i].token != p->at->type)
			continue;
		if (operators[i].name && !parser_is_name(p, operators[i].name))
			continue;
		if (operators[i].type == N_COMPARE && operators[i].op == CMP_NOT_IN) {
			if (p->at[1].type != T_NAME || !value_is(p->at[1].value, "in"))
				continue;
			p->at++;
		}
		p->at++;
		return i;
	}
	return -1;
}

static struct node *parse_level(struct parser *p, int level);

/* Parses a comparison such as a < b or a not in b. */
static struct node *parse_compare(struct parser *p)
{
	int line = p->at->line, op;
	struct node *n = parse_level(p, LEVEL_SUM);

	for (bool chained = false; (op = skip_operator(p, LEVEL_COMPARE)) >= 0; chained = true) {
		if (chained)
			return parser_fail(p, line,
					   "comparisons in a chain (a < b < c) are not "
					   "supported in chat templates");
		n = new_node(p, N_COMPARE, operators[op].op, n, parse_level(p, LEVEL_SUM), line);
	}
	return n;
}

static struct node *parse_not(struct parser *p)
{
	int line = p->at->line;
	struct node *n;

	if (!parser_skip_name(p, "not"))
		return parse_compare(p);
	parser_deeper(p);
	n = parse_not(p);
	p->depth--;
	return new_node(p, N_NOT, 0, n, NULL, line);
}

static struct node *parse_level(struct parser *p, int level)
{
	int line = p->at->line, i;
	struct node *n;

	if (level == LEVELS)
		return parse_unary(p, true);
	if (level == LEVEL_NOT)
		return parse_not(p);
	n = parse_level(p, level + 1);
	while ((i = skip_operator(p, level)) >= 0)
		n = new_node(p, operators[i].type, operators[i].op, n, parse_level(p, level + 1),
			     line);
	return n;
}

struct node *parse_expression(struct parser *p)
{
	int line = p->at->line;
	struct node *n, *cond;

	parser_deeper(p);
	n = parse_level(p, LEVEL_OR);
	while (parser_skip_name(p, "if")) {
		cond = new_node(p, N_COND, 0, parse_level(p, LEVEL_OR), n, line);
		cond->c = parser_skip_name(p, "else") ? parse_expression(p) : NULL;
		n = seal(p, cond);
	}
	p->depth--;
	return n;
}

/* ---- tuples ---- */

static bool at_tuple_end(const struct parser *p, const char *end)
{
	return p->at->type == T_VARIABLE_END || p->at->type == T_BLOCK_END || p->at->type == ')' ||
	       (end && parser_is_name(p, end));
}

static struct node *parse_elements(struct parser *p, enum element what, const char *end,
				   bool may_be_empty)
{
	struct node *first = NULL, **last = &first, *n;
	int line = p->at->line;
	bool tuple = false;
	char got[64];

	while (!at_tuple_end(p, end) && !p->rd->rc) {
		append(&last, what == EXPRESSION  ? parse_expression(p)
			      : what == CONDITION ? parse_level(p, LEVEL_OR)
						  : parse_store(p, what == NAMESPACE_TARGET));
		if (!parser_skip(p, ','))
			break;
		tuple = true;
	}
	if (!tuple && first)
		return first;
	if (!tuple && !may_be_empty)
		return parser_fail(p, p->at->line, "expected an expression, got '%s'",
				   parser_describe(p, p->at, got));
	n = parser_node(p, N_TUPLE, line);
	n->list = first;
	return seal(p, n);
}

struct node *parse_tuple(struct parser *p)
{
	return parse_elements(p, EXPRESSION, NULL, false);
}

struct node *parse_condition(struct parser *p, const char *end)
{
	return parse_elements(p, CONDITION, end, false);
}
