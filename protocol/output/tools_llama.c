/* Llama 3.1 and 3.2 write calls in one of two forms, and nothing but reasoning before them:
 *
 *     {"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": ...}
 *     [get_weather(city='Paris', days=2), get_time()]
 *
 * Behind an object may stand "; " and another one. Values of the second form are Python.
 *
 * Source: Meta, Llama 3.1 and 3.2 model cards and prompt formats; the models' chat templates. */
#include <string.h>

#include "protocol/grammar/json_text.h"
#include "protocol/grammar/schema_part.h"
#include "protocol/output/tools_internal.h"
#include "protocol/output/tools_writer.h"

static void enter_object(struct tools *t, size_t opening)
{
	t->state = TOOLS_INSIDE;
	tools_object_init(t, true);
}

static uint32_t write_object(struct tools_writer *w, size_t tool)
{
	return tools_writer_object(w, tool, "", "parameters", "");
}

static uint32_t write_objects(struct tools_writer *w)
{
	return tools_writer_list(w, tools_writer_any(w, write_object), "; ");
}

const struct tools_format tools_llama_json = {
	.openings = {"{"},
	.closing = ";",
	.at_start = true,
	.signs = {"<|start_header_id|>", "\"parameters\""},
	.enter = enter_object,
	.byte = tools_object_step,
	.write = write_objects,
	.cut = tools_object_cut,
};

enum {
	NAME = TOOLS_INSIDE, /* of a call */
	ARGUMENT,	     /* in an argument's name, or before it, or at the end */
	VALUE,
	BEHIND_VALUE,
	BEHIND_CALL,
};

static bool in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-' || c == '.';
}

static void begin_name(struct tools *t, unsigned state)
{
	t->state = state;
	tools_clear(t, &t->name);
}

static void enter_list(struct tools *t, size_t opening)
{
	begin_name(t, NAME);
}

/* Before the '(' of a call: all bytes are held. */
static bool name_byte(struct tools *t, char c)
{
	const struct tool *tool;

	if (in_name(c) || (!t->name.len && literal_blank(c))) {
		if (in_name(c))
			buf_putc(&t->name, c);
		buf_putc(&t->held, c);
		return true;
	}
	tool = c == '(' ? tools_find(t, buf_str(&t->name), t->name.len) : NULL;
	if (!tool)
		return false;
	tools_begin(t, tool->name);
	t->n_arguments = 0;
	begin_name(t, ARGUMENT);
	return true;
}

static bool end_call(struct tools *t)
{
	tools_end_members(t);
	t->state = BEHIND_CALL;
	return true;
}

/* An argument's name is held, with blanks behind it: it is text if no '=' follows. */
static bool argument_byte(struct tools *t, char c)
{
	if (literal_blank(c)) {
		if (t->name.len)
			buf_putc(&t->held, c);
		return true;
	}
	if (c == ')' && !t->name.len)
		return end_call(t);
	if (in_name(c) && t->held.len == t->name.len) {
		buf_putc(&t->name, c);
		buf_putc(&t->held, c);
		return true;
	}
	if (c != '=' || !t->name.len)
		return false;
	tools_put(t, t->n_arguments++ ? ", \"" : "{\"");
	tools_arguments(t, buf_str(&t->name), t->name.len);
	tools_put(t, "\": ");
	tools_clear(t, &t->held);
	literal_init(&t->value, true);
	t->state = VALUE;
	return true;
}

static bool behind_value(struct tools *t, char c)
{
	if (literal_blank(c))
		return true;
	if (c == ')')
		return end_call(t);
	begin_name(t, ARGUMENT);
	return c == ',';
}

static void give_value(struct tools *t)
{
	tools_arguments(t, buf_str(&t->text), t->text.len);
	tools_clear(t, &t->text);
}

static bool value_text_byte(struct tools *t, char c)
{
	enum literal_status s = literal_byte(&t->value, c, &t->text);

	give_value(t);
	if (s == LITERAL_END || s == LITERAL_BEHIND)
		t->state = BEHIND_VALUE;
	return s == LITERAL_BEHIND ? behind_value(t, c) : s != LITERAL_WRONG;
}

/* A comma and blanks are held, because they belong to the text if no call follows. */
static bool behind_call(struct tools *t, char c)
{
	if (c == ']') {
		tools_close(t);
		return true;
	}
	if (c == ',')
		begin_name(t, NAME);
	else if (!literal_blank(c))
		return false;
	buf_putc(&t->held, c);
	return true;
}

static void list_byte(struct tools *t, char c)
{
	bool good = false;

	switch (t->state) {
	case NAME: good = name_byte(t, c); break;
	case ARGUMENT: good = argument_byte(t, c); break;
	case VALUE: good = value_text_byte(t, c); break;
	case BEHIND_VALUE: good = behind_value(t, c); break;
	case BEHIND_CALL: good = behind_call(t, c); break;
	default:;
	}
	if (!good)
		tools_wrong(t, TOOLS_OUTSIDE, 0, c);
}

static void cut_list(struct tools *t)
{
	if (t->state == VALUE)
		literal_cut(&t->value, &t->text);
	give_value(t);
}

static bool is_name(const char *name)
{
	if (!*name)
		return false;
	while (in_name(*name))
		name++;
	return !*name;
}

/* NAME=VALUE for a parameter; the value is JSON, which is read as well. schema NULL: any value. */
static uint32_t write_argument(struct tools_writer *w, struct schemas *s, const char *name,
			       const json_t *schema)
{
	return grammar_seq(w->b, grammar_text(w->b, name), grammar_text(w->b, "="),
			   schema ? schema_part_json(s, schema)
				  : grammar_call(w->b, w->text->value));
}

/* The arguments from the last parameter to the first: `behind` are those behind it with a comma before, `first` those
 * with none. */
static uint32_t write_arguments(struct tools_writer *w, struct schemas *s,
				const struct tools_parameters *p)
{
	uint32_t behind = grammar_text(w->b, ""), first = behind;

	for (size_t i = p->n; i--;) {
		uint32_t one = write_argument(w, s, p->v[i].name, p->v[i].schema), rule, next;

		next = grammar_seq(w->b, grammar_text(w->b, ", "), one, behind);
		first = p->v[i].required ? grammar_seq(w->b, one, behind)
					 : grammar_alt(w->b, grammar_seq(w->b, one, behind), first);
		rule = grammar_rule(w->b, "arguments");
		grammar_define(w->b, rule,
			       p->v[i].required ? next : grammar_alt(w->b, next, behind));
		behind = grammar_call(w->b, rule);
	}
	return first;
}

static uint32_t write_python(struct tools_writer *w, size_t tool)
{
	struct tools_parameters p = {0};
	struct schemas *s = NULL;
	uint32_t x = 0;

	if (!is_name(tools_writer_name(w, tool)))
		tools_cannot_write(w, tool, "its name is none of Python");
	if (tools_writer_parameters(w, tool, &p, &s)) {
		for (size_t i = 0; i < p.n; i++)
			if (!is_name(p.v[i].name))
				tools_cannot_write(w, tool, "a parameter's name is none of Python");
		x = grammar_seq(w->b, grammar_text(w->b, tools_writer_name(w, tool)),
				grammar_text(w->b, "("), write_arguments(w, s, &p),
				grammar_text(w->b, ")"));
	}
	tools_parameters_end(w, tool, &p, s);
	return x;
}

static uint32_t write_list(struct tools_writer *w)
{
	return grammar_seq(w->b, grammar_text(w->b, "["),
			   tools_writer_list(w, tools_writer_any(w, write_python), ", "),
			   grammar_text(w->b, "]"));
}

const struct tools_format tools_pythonic = {
	.openings = {"["},
	.at_start = true,
	.signs = {"[func_name1("},
	.enter = enter_list,
	.byte = list_byte,
	.write = write_list,
	.cut = cut_list,
};
