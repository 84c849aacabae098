/* Llama 3.1 and 3.2 write calls in one of two forms, and nothing before them:
 *
 *     {"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": ...}
 *     [get_weather(city='Paris', days=2), get_time()]
 *
 * Behind an object may stand "; " and another one. Values of the second form are Python.
 *
 * Source: Meta, Llama 3.1 and 3.2 model cards and prompt formats; the models' chat templates. */
#include "protocol/output/tools_internal.h"

static void enter_object(struct tools *t, size_t opening)
{
	t->state = TOOLS_INSIDE;
	tools_object_init(t, true);
}

const struct tools_format tools_llama_json = {
	.openings = {"{"},
	.closing = ";",
	.at_start = true,
	.signs = {"<|start_header_id|>", "\"parameters\""},
	.enter = enter_object,
	.byte = tools_object_step,
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

const struct tools_format tools_pythonic = {
	.openings = {"["},
	.at_start = true,
	.signs = {"[func_name1("},
	.enter = enter_list,
	.byte = list_byte,
	.cut = cut_list,
};
