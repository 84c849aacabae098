/* Qwen3-Coder and Qwen3.5:
 *
 *     <tool_call>
 *     <function=get_weather>
 *     <parameter=city>
 *     Paris
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * The model may leave out <tool_call>, </function>, and a </parameter> before the next tag at the start of a line. A
 * function that is only mentioned is no call: a call begins when its first parameter's name is complete, or its end.
 * One line end is dropped at either end of a value. A value has no type of its own: it is a string if the tool's schema
 * allows only strings, or does not say. Else it is JSON, or Python (the template writes True), if that has a type which
 * the schema allows, and a string if not. Strings are given out while they come, other values when they are whole.
 *
 * Source: the chat templates of Qwen3-Coder and Qwen3.5. */
#include <string.h>

#include "protocol/output/tools_internal.h"
#include "protocol/output/tools_writer.h"

enum {
	FUNCTION = TOOLS_INSIDE, /* behind <tool_call> */
	NAME,			 /* behind <function= */
	BODY,			 /* before a parameter, or the end */
	PARAMETER,		 /* behind <parameter= */
	VALUE_START,
	VALUE,
};

/* Names with more bytes are none. LONGEST: the most code points of a string with a maxLength that must not look like
 * other values: its automaton has some states for each. */
enum { NAME_MAX_BYTES = 256, LONGEST = 128 };

static const char function[] = "<function=", parameter[] = "<parameter=",
		  end_function[] = "</function>", end_call_tag[] = "</tool_call>";

/* The texts with which a value ends, and the state behind each. */
static const struct {
	const char *text;
	unsigned next;
	bool ends; /* the call ends, too */
} ends[] = {
	{"</parameter>", BODY},	       {"\n</parameter>", BODY},       {"\n<parameter=", PARAMETER},
	{"\n</function>", BODY, true}, {"\n</tool_call>", BODY, true},
};

static void enter(struct tools *t, size_t opening)
{
	t->state = opening == 0 ? FUNCTION : NAME;
	tools_clear(t, &t->text);
	tools_clear(t, &t->name);
}

static void begin_call(struct tools *t)
{
	if (!t->open)
		tools_begin(t, t->tool->name);
}

static void end_call(struct tools *t)
{
	begin_call(t);
	tools_end_members(t);
	tools_close(t);
}

/* Behind <tool_call>: blanks and <function= */
static void function_byte(struct tools *t, char c)
{
	if ((t->text.len || !literal_blank(c)) && !tools_match(&t->text, function, c)) {
		tools_wrong(t, TOOLS_OUTSIDE, t->text.len, c);
		return;
	}
	buf_putc(&t->held, c);
	if (t->text.len == strlen(function))
		t->state = NAME;
}

/* Reads a name that ends with '>' into t->name. True: c is in it or ends it. No client could send back a call with a zero
 * byte in a name. */
static bool name_byte(struct tools *t, char c)
{
	if (c == '<' || c == '\n' || !c || t->name.len == NAME_MAX_BYTES)
		return false;
	if (c != '>')
		buf_putc(&t->name, c);
	return true;
}

static void call_name_byte(struct tools *t, char c)
{
	bool good = name_byte(t, c);

	if (good && c == '>') {
		t->tool = tools_find(t, buf_str(&t->name), t->name.len);
		good = t->tool;
	}
	if (!good) {
		tools_wrong(t, TOOLS_OUTSIDE, 0, c);
		return;
	}
	buf_putc(&t->held, c);
	if (c == '>') {
		t->n_arguments = 0;
		t->state = BODY;
		tools_clear(t, &t->text);
	}
}

/* Before a parameter or the end: blanks and the beginning of a tag, which is in t->text and held. Blanks are held until
 * the call has begun. */
static void body_byte(struct tools *t, char c)
{
	struct buf *tag = &t->text;

	if (!tag->len && literal_blank(c)) {
		if (!t->open)
			buf_putc(&t->held, c);
		return;
	}
	if (!tools_match(tag, parameter, c) && !tools_match(tag, end_function, c) &&
	    !tools_match(tag, end_call_tag, c)) {
		tools_wrong(t, TOOLS_OUTSIDE, tag->len, c);
		return;
	}
	buf_putc(&t->held, c);
	if (!strcmp(buf_str(tag), parameter)) {
		t->state = PARAMETER;
		tools_clear(t, &t->name);
	} else if (!strcmp(buf_str(tag), end_function) || !strcmp(buf_str(tag), end_call_tag)) {
		end_call(t);
	}
}

static unsigned types_of(const struct tool *tool, const char *name, size_t len)
{
	for (size_t i = 0; i < tool->n_parameters; i++) {
		const struct tool_parameter *p = &tool->parameters[i];

		if (strlen(p->name) == len && !memcmp(p->name, name, len))
			return p->types;
	}
	return 0;
}

/* Returns whether the value is a string, whatever its text is. */
static bool is_string(const struct tools *t)
{
	return !(t->types & ~(unsigned)TOOLS_STRING);
}

static void put_string(struct tools *t, const char *text, size_t len)
{
	struct buf *out = tools_arguments_out(t);

	for (size_t i = 0; i < len; i++)
		literal_escape(text[i], out);
}

static void parameter_byte(struct tools *t, char c)
{
	if (!name_byte(t, c)) {
		tools_wrong(t, TOOLS_OUTSIDE, 0, c);
		return;
	}
	if (c != '>') {
		buf_putc(&t->held, c);
		return;
	}
	begin_call(t);
	tools_clear(t, &t->held);
	t->types = types_of(t->tool, buf_str(&t->name), t->name.len);
	tools_put(t, t->n_arguments++ ? ", \"" : "{\"");
	put_string(t, buf_str(&t->name), t->name.len);
	tools_put(t, is_string(t) ? "\": \"" : "\": ");
	t->state = VALUE_START;
	tools_clear(t, &t->text);
}

static unsigned type_of(const char *json)
{
	switch (*json) {
	case '"': return TOOLS_STRING;
	case '{': return TOOLS_OBJECT;
	case '[': return TOOLS_ARRAY;
	case 't':
	case 'f': return TOOLS_BOOLEAN;
	case 'n': return TOOLS_NULL;
	default: return TOOLS_NUMBER;
	}
}

/* Gives out a value whose text is whole. */
static void put_value(struct tools *t)
{
	struct buf json;

	buf_init(&json, t->text.max);
	t->failed |= t->text.failed;
	if (literal_convert(buf_str(&t->text), t->text.len, true, &json) &&
	    t->types & ~(unsigned)TOOLS_STRING & type_of(buf_str(&json))) {
		tools_arguments(t, buf_str(&json), json.len);
	} else {
		tools_put(t, "\"");
		put_string(t, buf_str(&t->text), t->text.len);
		tools_put(t, "\"");
	}
	t->failed |= json.failed;
	buf_release(&json);
}

/* Takes a part of a value's text. */
static void add_value(struct tools *t, const char *text, size_t len)
{
	if (is_string(t))
		put_string(t, text, len);
	else
		buf_append(&t->text, text, len);
}

/* Returns the number of the text in `ends` that begins with what is held. ARRAY_SIZE: there is none. */
static size_t match_end(const struct tools *t)
{
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (!strncmp(ends[i].text, buf_str(&t->held), t->held.len))
			return i;
	return ARRAY_SIZE(ends);
}

static void value_text_byte(struct tools *t, char c)
{
	struct buf *held = &t->held;
	size_t i;

	if (t->state == VALUE_START) {
		t->state = VALUE;
		if (c == '\n')
			return;
	}
	buf_putc(held, c);
	while (held->len && (i = match_end(t)) == ARRAY_SIZE(ends)) {
		add_value(t, held->data, 1);
		buf_consume(held, 1);
	}
	if (!held->len || held->len < strlen(ends[i].text))
		return;
	tools_clear(t, &t->held);
	if (is_string(t))
		tools_put(t, "\"");
	else
		put_value(t);
	tools_clear(t, &t->text);
	tools_clear(t, &t->name);
	t->state = ends[i].next;
	if (t->state == PARAMETER)
		buf_puts(held, parameter);
	if (ends[i].ends)
		end_call(t);
}

static void byte(struct tools *t, char c)
{
	switch (t->state) {
	case FUNCTION: function_byte(t, c); break;
	case NAME: call_name_byte(t, c); break;
	case BODY: body_byte(t, c); break;
	case PARAMETER: parameter_byte(t, c); break;
	default: value_text_byte(t, c);
	}
}

/* The bytes of a value that were read so far belong to it, also those that look like the beginning of a tag. */
static void cut(struct tools *t)
{
	if (t->state != VALUE)
		return;
	add_value(t, buf_str(&t->held), t->held.len);
	if (!is_string(t))
		tools_arguments(t, buf_str(&t->text), t->text.len);
	tools_clear(t, &t->held);
}

/* A string as it is, in which no value ends. */
static uint32_t write_text(struct tools_writer *w)
{
	static const char *const words[] = {"</parameter>", "\n<parameter=", "\n</function>",
					    "\n</tool_call>"};

	return tools_writer_without(w, words, ARRAY_SIZE(words));
}

/* Returns those of the types, but for strings, of which the schema may not accept each value. */
static unsigned limited(struct schemas *s, const json_t *schema, unsigned types)
{
	if (schema_part_accepts(s, schema, json_null()))
		types &= ~(unsigned)TOOLS_NULL;
	if (schema_part_accepts(s, schema, json_true()) &&
	    schema_part_accepts(s, schema, json_false()))
		types &= ~(unsigned)TOOLS_BOOLEAN;
	return types & ~(unsigned)TOOLS_STRING;
}

/* The strings of a parameter that the parser does not read as values of another type, which the schema may refuse. */
static uint32_t write_string(struct schemas *s, const json_t *schema, unsigned types, uint32_t text)
{
#define AMONG_BLANKS(pattern) "[ \\t\\n\\r]*(" pattern ")[ \\t\\n\\r]*"
	static const struct {
		unsigned types;
		const char *pattern;
	} others[] = {
		{TOOLS_NUMBER, AMONG_BLANKS("-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]+)?")},
		{TOOLS_BOOLEAN, AMONG_BLANKS("true|false|True|False")},
		{TOOLS_NULL, AMONG_BLANKS("null|None")},
		{TOOLS_ARRAY | TOOLS_OBJECT, AMONG_BLANKS("[\\[{][\\u0000-\\u{10ffff}]*")},
	};
	uint32_t x;

	types = limited(s, schema, types);
	x = schema_part_raw(s, schema, text, types ? LONGEST : GRAMMAR_NO_LIMIT);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (types & others[i].types)
			x = schema_part_without(s, x, others[i].pattern);
	return x;
#undef AMONG_BLANKS
}

/* The value of a parameter, as the parser reads it (types_of): a string as it is, or JSON of another type. */
static uint32_t write_value(struct tools_writer *w, size_t tool, struct schemas *s,
			    const struct tools_parameter *p, uint32_t text)
{
	const struct tool *list = &w->demand->list->v[tool];
	unsigned types = types_of(list, p->name, strlen(p->name));

	if (!p->schema)
		return text;
	if (!(types & ~(unsigned)TOOLS_STRING))
		return schema_part_raw(s, p->schema, text, GRAMMAR_NO_LIMIT);
	if (!(types & TOOLS_STRING))
		return schema_part_others(s, p->schema);
	return grammar_alt(w->b, schema_part_others(s, p->schema),
			   write_string(s, p->schema, types, text));
}

static bool is_name(const char *name)
{
	return !strpbrk(name, "<>\n") && strlen(name) < NAME_MAX_BYTES;
}

static uint32_t write_call(struct tools_writer *w, size_t tool)
{
	const char *name = tools_writer_name(w, tool);
	struct tools_parameters p = {0};
	struct schemas *s = NULL;
	uint32_t x = grammar_text(w->b, ""), text = write_text(w);

	if (!is_name(name))
		tools_cannot_write(w, tool,
				   "its name has a '<', a '>' or a line end, or is too long");
	if (tools_writer_parameters(w, tool, &p, &s)) {
		/* A value ends at a tag, also within a string of JSON. */
		if (s)
			schema_part_escape_less(s);
		for (size_t i = 0; i < p.n; i++) {
			uint32_t one = grammar_seq(w->b, grammar_text(w->b, parameter),
						   grammar_text(w->b, p.v[i].name),
						   grammar_text(w->b, ">\n"),
						   write_value(w, tool, s, &p.v[i], text),
						   grammar_text(w->b, "\n</parameter>\n"));

			if (!is_name(p.v[i].name))
				tools_cannot_write(w, tool,
						   "a parameter's name has a '<', a '>' or a line "
						   "end, or is too long");
			x = grammar_seq(w->b, x, grammar_repeat(w->b, one, p.v[i].required, 1));
		}
	}
	tools_parameters_end(w, tool, &p, s);
	return grammar_seq(w->b, grammar_text(w->b, "<tool_call>\n<function="),
			   grammar_text(w->b, name), grammar_text(w->b, ">\n"), x,
			   grammar_text(w->b, "</function>\n</tool_call>"));
}

static uint32_t write(struct tools_writer *w)
{
	return tools_writer_list(w, tools_writer_any(w, write_call), "\n");
}

const struct tools_format tools_qwen_xml = {
	.openings = {"<tool_call>", "<function="},
	.closing = end_call_tag,
	.signs = {"<tool_call>", "<function="},
	.marks = {"<tool_call>", end_call_tag},
	.enter = enter,
	.byte = byte,
	.write = write,
	.cut = cut,
};
