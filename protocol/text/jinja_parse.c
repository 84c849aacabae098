/*
 * Statements of a template: tags and what stands between them. Expressions are in jinja_expr.c.
 */
#include "protocol/text/jinja_parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct node *parse_fail(struct parser *p, int line, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p->rc = jinja_syntax_error(p->t->name, line, p->err, "%s", text);
	return NULL;
}

/* ---- tokens ---- */

const char *parse_describe(const struct parser *p, const struct token *t, char out[64])
{
	static const char *const names[] = {
		[T_EOF] = "end of template",
		[T_DATA] = "template text",
		[T_BLOCK_BEGIN] = "{%",
		[T_BLOCK_END] = "end of statement block",
		[T_VARIABLE_BEGIN] = "{{",
		[T_VARIABLE_END] = "end of print statement",
		[T_NAME] = "name",
		[T_STRING] = "string",
		[T_INT] = "integer",
		[T_FLOAT] = "float",
		[T_ADD] = "+",
		[T_SUB] = "-",
		[T_MUL] = "*",
		[T_DIV] = "/",
		[T_FLOORDIV] = "//",
		[T_MOD] = "%",
		[T_POW] = "**",
		[T_TILDE] = "~",
		[T_EQ] = "==",
		[T_NE] = "!=",
		[T_LT] = "<",
		[T_LE] = "<=",
		[T_GT] = ">",
		[T_GE] = ">=",
		[T_ASSIGN] = "=",
		[T_DOT] = ".",
		[T_COLON] = ":",
		[T_PIPE] = "|",
		[T_COMMA] = ",",
		[T_SEMICOLON] = ";",
		[T_LPAREN] = "(",
		[T_RPAREN] = ")",
		[T_LBRACKET] = "[",
		[T_RBRACKET] = "]",
		[T_LBRACE] = "{",
		[T_RBRACE] = "}",
	};

	if (t->type == T_NAME && t->s) {
		size_t n = MIN(t->len, (size_t)48);

		memcpy(out, t->s, n);
		out[n] = 0;
		return out;
	}
	return names[t->type];
}

bool parse_is_name(const struct token *t, const char *name)
{
	return t->type == T_NAME && t->len == strlen(name) && !memcmp(t->s, name, t->len);
}

bool parse_skip(struct parser *p, enum token_type type)
{
	if (p->at->type != type)
		return false;
	p->at++;
	return true;
}

bool parse_skip_name(struct parser *p, const char *name)
{
	if (!parse_is_name(p->at, name))
		return false;
	p->at++;
	return true;
}

const struct token *parse_expect(struct parser *p, enum token_type type)
{
	char got[64], want[64];

	if (p->at->type == type)
		return p->at++;
	parse_fail(p, p->at->line, "expected '%s', got '%s'",
		   parse_describe(p, &(struct token){.type = type}, want),
		   parse_describe(p, p->at, got));
	return NULL;
}

bool parse_deeper(struct parser *p)
{
	if (p->depth++ < TEMPLATE_NESTING)
		return true;
	parse_fail(p, p->at->line, "nested too deeply");
	return false;
}

struct node *parse_new(struct parser *p, enum node_type type, int line)
{
	struct node *n = arena_alloc(&p->t->arena, sizeof(*n));

	if (!n) {
		p->rc = err_set(p->err, ENOMEM, "template %.80s: out of memory", p->t->name);
		return NULL;
	}
	n->type = type;
	n->line = line;
	return n;
}

/* ---- statements ---- */

static struct node *parse_body(struct parser *p, const char *const *ends);

/* A tag's ":" (which is optional), its end, and the statements up to one of the tags `ends`, whose
 * name is the current token then. */
static bool parse_statements(struct parser *p, const char *const *ends, struct node **ret)
{
	parse_skip(p, T_COLON);
	if (!parse_expect(p, T_BLOCK_END))
		return false;
	*ret = parse_body(p, ends);
	return p->rc == 0;
}

/* The same up to the one tag `end`, which is passed. */
static bool parse_until(struct parser *p, const char *end, struct node **ret)
{
	const char *const ends[] = {end, NULL};

	if (!parse_statements(p, ends, ret))
		return false;
	p->at++;
	return true;
}

static struct node *parse_for(struct parser *p)
{
	static const char *const ends[] = {"endfor", "else", NULL};
	struct node *n = parse_new(p, N_FOR, p->at++->line);

	if (!n)
		return NULL;
	p->for_depth++;
	n->a = parse_target(p, &(struct target_rules){.end = "in", .tuple = true});
	if (!n->a)
		return NULL;
	if (!parse_skip_name(p, "in"))
		return parse_fail(p, p->at->line, "expected 'in' in for");
	n->b = parse_tuple(p, &(struct tuple_rules){.end = "recursive", .no_condition = true});
	if (!n->b)
		return NULL;
	if (parse_skip_name(p, "if")) {
		n->c = parse_expression(p);
		if (!n->c)
			return NULL;
	}
	if (parse_is_name(p->at, "recursive"))
		return parse_fail(p, n->line, "recursive loops are not supported");
	p->loops++;
	if (!parse_statements(p, ends, &n->list))
		return NULL;
	p->loops--;
	if (parse_is_name(p->at++, "else") && !parse_until(p, "endfor", &n->list2))
		return NULL;
	p->for_depth--;
	return n;
}

static struct node *parse_if(struct parser *p)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct node *first = NULL, **last = &first;

	for (;;) {
		struct node *n = parse_new(p, N_IF, p->at++->line);

		if (!n)
			return NULL;
		n->a = parse_tuple(p, &(struct tuple_rules){.no_condition = true});
		if (!n->a || !parse_statements(p, ends, &n->list))
			return NULL;
		*last = n;
		last = n == first ? &n->b : &n->next;
		if (parse_is_name(p->at, "elif"))
			continue;
		if (parse_is_name(p->at++, "else") && !parse_until(p, "endif", &first->list2))
			return NULL;
		return first;
	}
}

static struct node *parse_set(struct parser *p)
{
	int line = p->at++->line;
	struct node *n, *target;

	target = parse_target(p, &(struct target_rules){.tuple = true, .namespaces = true});
	if (!target)
		return NULL;
	n = parse_new(p, p->at->type == T_ASSIGN ? N_SET : N_SET_BLOCK, line);
	if (!n)
		return NULL;
	n->a = target;
	if (parse_skip(p, T_ASSIGN)) {
		n->b = parse_tuple(p, &(struct tuple_rules){0});
		return n->b ? n : NULL;
	}
	if (p->at->type == T_PIPE) {
		n->b = parse_filters(p, NULL);
		if (!n->b)
			return NULL;
	}
	return parse_until(p, "endset", &n->list) ? n : NULL;
}

/* "(" parameters ")" of a macro or call block. */
static bool parse_signature(struct parser *p, struct function *f)
{
	struct node **param = &f->params, **value = &f->defaults;

	if (!parse_expect(p, T_LPAREN))
		return false;
	while (p->at->type != T_RPAREN) {
		struct node *n;

		if (f->nparams && !parse_expect(p, T_COMMA))
			return false;
		n = parse_target(p, &(struct target_rules){.name_only = true, .use = NAME_PARAM});
		if (!n)
			return false;
		for (struct node *q = f->params; q; q = q->next)
			if (q->name_len == n->name_len && !memcmp(q->name, n->name, n->name_len)) {
				parse_fail(p, n->line, "duplicate parameter '%.*s'",
					   (int)n->name_len, n->name);
				return false;
			}
		*param = n;
		param = &n->next;
		f->nparams++;
		if (parse_skip(p, T_ASSIGN)) {
			*value = parse_expression(p);
			if (!*value)
				return false;
			value = &(*value)->next;
			f->ndefaults++;
		} else if (f->ndefaults) {
			parse_fail(p, n->line, "a parameter without default follows one with");
			return false;
		}
	}
	p->at++;
	return true;
}

/* Takes the word that begins a block that is a function. name: of the function, or NULL to set it later. */
static struct node *parse_new_function(struct parser *p, enum node_type type, const char *name)
{
	struct node *n = parse_new(p, type, p->at++->line);

	if (!n)
		return NULL;
	n->function = arena_alloc(&p->t->arena, sizeof(*n->function));
	if (!n->function) {
		p->rc = err_set(p->err, ENOMEM, "template %.80s: out of memory", p->t->name);
		return NULL;
	}
	n->function->name = name;
	return n;
}

/* A body that is a function of its own: break and continue do not reach out of it. */
static bool parse_function_body(struct parser *p, const char *end, struct node **ret)
{
	unsigned loops = p->loops;

	p->loops = 0;
	if (!parse_until(p, end, ret))
		return false;
	p->loops = loops;
	return true;
}

static struct node *parse_macro(struct parser *p)
{
	struct node *n = parse_new_function(p, N_MACRO, NULL), *name;

	if (!n)
		return NULL;
	name = parse_target(p, &(struct target_rules){.name_only = true, .macro = true});
	if (!name)
		return NULL;
	n->name = name->name;
	n->name_len = name->name_len;
	n->function->name = arena_strndup(&p->t->arena, name->name, name->name_len);
	if (!n->function->name) {
		p->rc = err_set(p->err, ENOMEM, "template %.80s: out of memory", p->t->name);
		return NULL;
	}
	if (!parse_signature(p, n->function))
		return NULL;
	return parse_function_body(p, "endmacro", &n->list) ? n : NULL;
}

static struct node *parse_call_block(struct parser *p)
{
	struct node *n = parse_new_function(p, N_CALL_BLOCK, "caller");

	if (!n)
		return NULL;
	if (p->at->type == T_LPAREN && !parse_signature(p, n->function))
		return NULL;
	n->a = parse_expression(p);
	if (!n->a)
		return NULL;
	if (n->a->type != N_CALL)
		return parse_fail(p, n->line, "expected a call in a call block");
	return parse_function_body(p, "endcall", &n->list) ? n : NULL;
}

/* {% generation %} marks what the model said, for training; here it is only a scope. */
static struct node *parse_generation(struct parser *p)
{
	struct node *n = parse_new_function(p, N_CALL_BLOCK, "generation");

	return n && parse_function_body(p, "endgeneration", &n->list) ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p)
{
	struct node *n = parse_new(p, N_FILTER_BLOCK, p->at++->line);

	if (!n)
		return NULL;
	n->a = parse_filter_name(p, NULL);
	if (n->a && p->at->type == T_PIPE)
		n->a = parse_filters(p, n->a);
	return n->a && parse_until(p, "endfilter", &n->list) ? n : NULL;
}

static struct node *parse_with(struct parser *p)
{
	struct node *n = parse_new(p, N_WITH, p->at++->line), **last;

	if (!n)
		return NULL;
	last = &n->list2;
	while (p->at->type != T_BLOCK_END) {
		struct node *target, *value;

		if (n->list2 && !parse_expect(p, T_COMMA))
			return NULL;
		target = parse_target(p, &(struct target_rules){.tuple = true, .use = NAME_PARAM});
		if (!target || !parse_expect(p, T_ASSIGN))
			return NULL;
		value = parse_expression(p);
		if (!value)
			return NULL;
		*last = target;
		target->next = value;
		last = &value->next;
	}
	return parse_until(p, "endwith", &n->list) ? n : NULL;
}

static struct node *parse_print(struct parser *p)
{
	struct node *first = NULL, **last = &first;
	int line = p->at++->line;

	while (p->at->type != T_BLOCK_END) {
		struct node *n;

		if (first && !parse_expect(p, T_COMMA))
			return NULL;
		n = parse_new(p, N_OUTPUT, line);
		if (!n)
			return NULL;
		n->a = parse_expression(p);
		if (!n->a)
			return NULL;
		*last = n;
		last = &n->next;
	}
	return first ? first : parse_new(p, N_DATA, line);
}

static struct node *parse_break(struct parser *p)
{
	enum node_type type = parse_is_name(p->at, "break") ? N_BREAK : N_CONTINUE;

	if (!p->loops)
		return parse_fail(p, p->at->line, "'%s' outside of a loop",
				  type == N_BREAK ? "break" : "continue");
	return parse_new(p, type, p->at++->line);
}

static const struct {
	const char *name;
	struct node *(*parse)(struct parser *p);
} tags[] = {
	{"for", parse_for},
	{"if", parse_if},
	{"set", parse_set},
	{"macro", parse_macro},
	{"call", parse_call_block},
	{"filter", parse_filter_block},
	{"with", parse_with},
	{"print", parse_print},
	{"break", parse_break},
	{"continue", parse_break},
	{"generation", parse_generation},
};

static const char *const foreign_tags[] = {"block",  "extends", "include",
					   "import", "from",	"autoescape"};

static struct node *unknown_tag(struct parser *p, const char *const *ends)
{
	char name[64], wanted[96] = "";
	size_t n = 0;

	parse_describe(p, p->at, name);
	for (size_t i = 0; i < ARRAY_SIZE(foreign_tags); i++)
		if (parse_is_name(p->at, foreign_tags[i]))
			return parse_fail(p, p->at->line,
					  "tag '%s' is not supported in chat templates", name);
	for (size_t i = 0; ends && ends[i] && n < sizeof(wanted); i++) {
		int m = snprintf(wanted + n, sizeof(wanted) - n, "%s'%s'",
				 i ? " or " : "; the open block wants ", ends[i]);

		n += m > 0 ? (size_t)m : 0;
	}
	return parse_fail(p, p->at->line, "unknown tag '%s'%s", name, wanted);
}

/* One statement behind "{%", and the tag's end. print gives several, chained. */
static struct node *parse_statement(struct parser *p, const char *const *ends)
{
	struct node *n = NULL;
	size_t i;

	if (p->at->type != T_NAME)
		return parse_fail(p, p->at->line, "expected the name of a tag");
	for (i = 0; i < ARRAY_SIZE(tags); i++)
		if (parse_is_name(p->at, tags[i].name))
			break;
	if (i == ARRAY_SIZE(tags))
		return unknown_tag(p, ends);
	if (!parse_deeper(p))
		return NULL;
	n = tags[i].parse(p);
	p->depth--;
	return n && parse_expect(p, T_BLOCK_END) ? n : NULL;
}

static bool is_end(const struct parser *p, const char *const *ends)
{
	for (; ends && *ends; ends++)
		if (parse_is_name(p->at, *ends))
			return true;
	return false;
}

static struct node *parse_output(struct parser *p)
{
	struct node *n = parse_new(p, N_OUTPUT, p->at++->line);

	if (!n)
		return NULL;
	n->a = parse_tuple(p, &(struct tuple_rules){0});
	return n->a && parse_expect(p, T_VARIABLE_END) ? n : NULL;
}

/* Statements up to the end of the template, or to a tag of `ends`. Errors are in p->rc. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
	struct node *first = NULL, **last = &first, *n;

	while (p->at->type != T_EOF) {
		if (p->at->type == T_DATA) {
			n = parse_new(p, N_DATA, p->at->line);
			if (n)
				n->value = value_str(p->at->s, p->at->len);
			p->at++;
		} else if (p->at->type == T_VARIABLE_BEGIN) {
			n = parse_output(p);
		} else {
			p->at++;
			if (is_end(p, ends))
				return first;
			n = parse_statement(p, ends);
		}
		if (!n)
			return NULL;
		for (*last = n; *last; last = &(*last)->next)
			;
	}
	if (ends)
		parse_fail(p, p->at->line, "unexpected end of template, expected '%s'", ends[0]);
	return first;
}

int jinja_parse(struct template *t, const struct token *tokens, struct err *e)
{
	struct parser p = {.t = t, .at = tokens, .err = e};

	t->body = parse_body(&p, NULL);
	return p.rc;
}
