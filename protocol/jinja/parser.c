#include "protocol/jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>

/* Ends the reading after a failure: goes to the last token. Returns `spare`. */
static struct node *stop(struct parser *p)
{
	while (p->at->type != T_EOF)
		p->at++;
	p->spare = (struct node){0};
	return &p->spare;
}

struct node *parser_fail(struct parser *p, int line, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	reader_fail(p->rd, line, "%s", text);
	return stop(p);
}

const char *parser_describe(const struct parser *p, const struct token *t, char out[64])
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
		[T_FLOORDIV] = "//",
		[T_POW] = "**",
		[T_EQ] = "==",
		[T_NE] = "!=",
		[T_LE] = "<=",
		[T_GE] = ">=",
	};

	if (t->type == T_NAME && t->value.s)
		snprintf(out, 64, "%.*s", (int)MIN(t->value.len, 48u), t->value.s);
	else if (t->type < T_EOF)
		snprintf(out, 64, "%c", t->type);
	else
		return names[t->type];
	return out;
}

bool parser_is_name(const struct parser *p, const char *name)
{
	return p->at->type == T_NAME && value_is(p->at->value, name);
}

bool parser_skip(struct parser *p, int type)
{
	if (p->at->type != type)
		return false;
	p->at++;
	return true;
}

bool parser_skip_name(struct parser *p, const char *name)
{
	if (!parser_is_name(p, name))
		return false;
	p->at++;
	return true;
}

const struct token *parser_expect(struct parser *p, int type)
{
	char got[64], want[64];

	if (p->at->type == type)
		return p->at++;
	parser_fail(p, p->at->line, "expected '%s', got '%s'",
		    parser_describe(p, &(struct token){.type = type}, want),
		    parser_describe(p, p->at, got));
	return p->at;
}

void parser_deeper(struct parser *p)
{
	if (p->depth++ >= TEMPLATE_NESTING)
		parser_fail(p, p->at->line, "nested too deeply");
}

struct node *parser_node(struct parser *p, enum node_type type, int line)
{
	struct node *n = reader_alloc(p->rd, 1, sizeof(*n));

	if (!n)
		n = stop(p);
	n->type = type;
	n->line = line;
	return n;
}
