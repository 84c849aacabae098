#include "protocol/jinja/parse.h"

#include <stdio.h>
#include <string.h>

#include "protocol/jinja/expr.h"

static struct node *parse_body(struct parser *p, const char *const *ends);

/* Reads a tag's ":" (which is optional), its end, and the statements up to one of the tags `ends`, whose name is then
 * the current token. */
static struct node *parse_statements(struct parser *p, const char *const *ends)
{
	parser_skip(p, ':');
	parser_expect(p, T_BLOCK_END);
	return parse_body(p, ends);
}

/* As parse_statements, up to the one tag `end`; the current token is then the one behind that tag's name. */
static struct node *parse_until(struct parser *p, const char *end)
{
	const char *const ends[] = {end, NULL};
	struct node *n = parse_statements(p, ends);

	parser_skip_name(p, end);
	return n;
}

static struct node *parse_for(struct parser *p)
{
	static const char *const ends[] = {"endfor", "else", NULL};
	struct node *n = parser_node(p, N_FOR, p->at++->line);

	p->for_depth++;
	n->a = parse_target(p, "in", false);
	if (!parser_skip_name(p, "in"))
		return parser_fail(p, p->at->line, "expected 'in' in for");
	n->b = parse_condition(p, "recursive");
	if (parser_skip_name(p, "if"))
		n->c = parse_expression(p);
	if (parser_is_name(p, "recursive"))
		return parser_fail(p, n->line, "recursive loops are not supported");
	p->loops++;
	n->list = parse_statements(p, ends);
	p->loops--;
	if (parser_skip_name(p, "else"))
		n->list2 = parse_until(p, "endfor");
	else
		parser_skip_name(p, "endfor");
	p->for_depth--;
	return n;
}

static struct node *parse_if(struct parser *p)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct node *first = NULL, **last = &first, *n;

	do {
		n = parser_node(p, N_IF, p->at++->line);
		n->a = parse_condition(p, NULL);
		n->list = parse_statements(p, ends);
		*last = n;
		last = n == first ? &n->b : &n->next;
	} while (parser_is_name(p, "elif"));
	if (parser_skip_name(p, "else"))
		first->list2 = parse_until(p, "endif");
	else
		parser_skip_name(p, "endif");
	return first;
}

/* Parses the filters that are applied to a block's text: "name(...) | ..." or "| name(...) ...". */
static struct node *parse_block_filters(struct parser *p)
{
	struct node *text = parser_node(p, N_CAPTURED, p->at->line);

	return parse_filters(p, p->at->type == '|' ? text : parse_filter(p, text));
}

static struct node *parse_set(struct parser *p)
{
	int line = p->at++->line;
	struct node *target = parse_target(p, NULL, true);
	struct node *n = parser_node(p, p->at->type == '=' ? N_SET : N_SET_BLOCK, line);

	n->a = target;
	if (parser_skip(p, '=')) {
		n->b = parse_tuple(p);
		return n;
	}
	if (p->at->type == '|')
		n->b = parse_block_filters(p);
	n->list = parse_until(p, "endset");
	return n;
}

static struct node *parse_filter_block(struct parser *p)
{
	struct node *n = parser_node(p, N_FILTER_BLOCK, p->at++->line);

	n->b = parse_block_filters(p);
	n->list = parse_until(p, "endfilter");
	return n;
}

/* Parses the "(" parameters ")" of a macro. */
static void parse_signature(struct parser *p, struct function *f)
{
	struct node **param = &f->params, **value = &f->defaults, *n;

	parser_expect(p, '(');
	while (p->at->type != ')' && !p->rd->rc) {
		if (f->nparams++)
			parser_expect(p, ',');
		n = parse_target_name(p, NAME_PARAM);
		for (const struct node *q = f->params; q; q = q->next)
			if (value_same(q->name, n->name))
				parser_fail(p, n->line, "duplicate parameter '%.*s'",
					    (int)MIN(n->name.len, 64u), n->name.s);
		*param = n;
		param = &n->next;
		if (parser_skip(p, '=')) {
			*value = parse_expression(p);
			value = &(*value)->next;
			f->ndefaults++;
		} else if (f->ndefaults) {
			parser_fail(p, n->line, "a parameter without default follows one with");
		}
	}
	parser_expect(p, ')');
}

/* Parses a body that is a function of its own in jinja2: break and continue cannot leave it. */
static struct node *parse_function_body(struct parser *p, const char *end)
{
	unsigned loops = p->loops;
	struct node *n;

	p->loops = 0;
	n = parse_until(p, end);
	p->loops = loops;
	return n;
}

static struct node *parse_macro(struct parser *p)
{
	struct node *n = parser_node(p, N_MACRO, p->at++->line);
	struct value name = parse_target_name(p, NAME_STORE)->name;
	char *copy = reader_alloc(p->rd, name.len + 1, 1);

	n->name = name;
	n->function = reader_alloc(p->rd, 1, sizeof(*n->function));
	if (!copy || !n->function)
		return n;
	n->function->name = memcpy(copy, name.s, name.len);
	parse_signature(p, n->function);
	n->list = parse_function_body(p, "endmacro");
	return n;
}

/* {% generation %} marks the model's answers for training. For a rendering it is only a scope. */
static struct node *parse_generation(struct parser *p)
{
	struct node *n = parser_node(p, N_GENERATION, p->at++->line);

	n->list = parse_function_body(p, "endgeneration");
	return n;
}

static struct node *parse_break(struct parser *p)
{
	enum node_type type = parser_is_name(p, "break") ? N_BREAK : N_CONTINUE;

	if (!p->loops)
		return parser_fail(p, p->at->line, "'%s' outside of a loop",
				   type == N_BREAK ? "break" : "continue");
	return parser_node(p, type, p->at++->line);
}

/* Tags without a function exist in jinja2, and no published chat template uses them. */
static const struct {
	const char *name;
	struct node *(*parse)(struct parser *p);
} tags[] = {
	{"for", parse_for},
	{"if", parse_if},
	{"set", parse_set},
	{"macro", parse_macro},
	{"filter", parse_filter_block},
	{"break", parse_break},
	{"continue", parse_break},
	{"generation", parse_generation},
	{"autoescape", NULL},
	{"block", NULL},
	{"call", NULL},
	{"extends", NULL},
	{"from", NULL},
	{"import", NULL},
	{"include", NULL},
	{"print", NULL},
	{"raw", NULL},
	{"with", NULL},
};

static struct node *unknown_tag(struct parser *p, const char *const *ends)
{
	char name[64], wanted[96] = "";
	size_t n = 0;

	for (size_t i = 0; ends && ends[i] && n < sizeof(wanted); i++) {
		int m = snprintf(wanted + n, sizeof(wanted) - n, "%s'%s'",
				 i ? " or " : "; the open block wants ", ends[i]);

		n += m > 0 ? (size_t)m : 0;
	}
	return parser_fail(p, p->at->line, "unknown tag '%s'%s", parser_describe(p, p->at, name),
			   wanted);
}

/* Parses one statement, from the name behind "{%" to the end of its last tag. */
static struct node *parse_statement(struct parser *p, const char *const *ends)
{
	struct node *n;
	size_t i = 0;

	if (p->at->type != T_NAME)
		return parser_fail(p, p->at->line, "expected the name of a tag");
	while (i < ARRAY_SIZE(tags) && !parser_is_name(p, tags[i].name))
		i++;
	if (i == ARRAY_SIZE(tags))
		return unknown_tag(p, ends);
	if (!tags[i].parse)
		return parser_fail(p, p->at->line, "tag '%s' is not supported in chat templates",
				   tags[i].name);
	parser_deeper(p);
	n = p->rd->rc ? &p->spare : tags[i].parse(p);
	p->depth--;
	parser_expect(p, T_BLOCK_END);
	return n;
}

static bool is_end(const struct parser *p, const char *const *ends)
{
	for (; ends && *ends; ends++)
		if (parser_is_name(p, *ends))
			return true;
	return false;
}

/* Parses statements up to a tag of `ends`, whose name is then the current token. ends NULL: parses up to the end of the
 * template. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
	struct node *first = NULL, **last = &first, *n;

	while (p->at->type != T_EOF) {
		if (p->at->type == T_DATA) {
			n = parser_node(p, N_DATA, p->at->line);
			n->value = p->at->value;
			parser_skip(p, T_DATA);
		} else if (parser_skip(p, T_VARIABLE_BEGIN)) {
			n = parser_node(p, N_OUTPUT, p->at->line);
			n->a = parse_tuple(p);
			parser_expect(p, T_VARIABLE_END);
		} else {
			p->at++;
			if (is_end(p, ends))
				return first;
			n = parse_statement(p, ends);
		}
		*last = n;
		last = &n->next;
	}
	if (ends)
		parser_fail(p, p->at->line, "unexpected end of template, expected '%s'", ends[0]);
	return first;
}

void parse(struct reader *rd, const struct token *tokens)
{
	struct parser p = {.rd = rd, .at = tokens};

	rd->t->body = parse_body(&p, NULL);
}
