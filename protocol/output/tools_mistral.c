/* Mistral's models, the older ones in the first form and the newer ones in the second:
 *
 *     [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"}, {...}]
 *     [TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Paris"}[TOOL_CALLS]...
 *
 * The model's own ids are dropped; [CALL_ID] may be missing, and so may [ARGS]. Blanks may be before the name and
 * behind it.
 *
 * Source: mistral-common, its tokenizers v3 to v13. */
#include <string.h>

#include "protocol/output/tools_internal.h"
#include "protocol/output/tools_writer.h"

enum {
	FIRST = TOOLS_INSIDE, /* behind [TOOL_CALLS] */
	OBJECT,
	BEHIND_OBJECT,
	NAME,
	MARKS, /* behind a name: blanks, [CALL_ID], an id and [ARGS] */
	ARGUMENTS,
};

static const char opening[] = "[TOOL_CALLS]";

enum { MARKS_MAX = 64 }; /* the most bytes between a name and its arguments */

static void enter(struct tools *t, size_t number)
{
	t->state = FIRST;
	t->object.called = false;
	tools_clear(t, &t->name);
	tools_clear(t, &t->text);
}

static bool object_byte(struct tools *t, char c)
{
	enum literal_status s = tools_object_byte(t, c);

	if (s == LITERAL_END)
		t->state = BEHIND_OBJECT;
	return s != LITERAL_WRONG;
}

/* A comma and blanks are held, because they belong to the text if no call follows. */
static bool behind_object(struct tools *t, char c)
{
	if (c == ']') {
		tools_close(t);
		return true;
	}
	if (c == ',') {
		tools_object_init(t, false);
		t->state = OBJECT;
	} else if (!literal_blank(c)) {
		return false;
	}
	buf_putc(&t->held, c);
	return true;
}

/* Begins the call that t->name names, with the '{' of its arguments. */
static bool begin(struct tools *t, char c)
{
	const struct tool *tool = tools_find(t, buf_str(&t->name), t->name.len);

	if (!tool)
		return false;
	tools_begin(t, tool->name);
	literal_init(&t->value, false);
	t->state = ARGUMENTS;
	tools_clear(t, &t->text);
	literal_byte(&t->value, c, &t->text);
	tools_arguments(t, buf_str(&t->text), t->text.len);
	return true;
}

static bool name_byte(struct tools *t, char c)
{
	if (c == '{')
		return begin(t, c);
	t->state = c == '[' || literal_blank(c) ? MARKS : NAME;
	buf_putc(t->state == MARKS ? &t->text : &t->name, c);
	buf_putc(&t->held, c);
	return true;
}

/* Returns whether a text ends with the opening but for its last byte. */
static bool ends_with_opening(const struct buf *text)
{
	size_t n = strlen(opening) - 1;

	return text->len >= n && !memcmp(text->data + text->len - n, opening, n);
}

/* Behind blanks only marks may follow. Another opening begins a call afresh. */
static bool marks_byte(struct tools *t, char c)
{
	if (c == '{')
		return begin(t, c);
	if (t->text.len == MARKS_MAX ||
	    (c != '[' && !literal_blank(c) && !strchr(buf_str(&t->text), '[')))
		return false;
	if (c == ']' && ends_with_opening(&t->text)) {
		tools_wrong(t, TOOLS_OUTSIDE, strlen(opening) - 1, c);
		return true;
	}
	buf_putc(&t->text, c);
	buf_putc(&t->held, c);
	return true;
}

static bool first_byte(struct tools *t, char c)
{
	if (literal_blank(c)) {
		buf_putc(&t->held, c);
		return true;
	}
	if (c != '[')
		return name_byte(t, c);
	tools_object_init(t, false);
	t->state = OBJECT;
	buf_putc(&t->held, c);
	return true;
}

static bool argument_byte(struct tools *t, char c)
{
	enum literal_status s;

	tools_clear(t, &t->text);
	s = literal_byte(&t->value, c, &t->text);
	tools_arguments(t, buf_str(&t->text), t->text.len);
	if (s != LITERAL_END)
		return s != LITERAL_WRONG;
	tools_end(t);
	tools_close(t);
	return true;
}

static void byte(struct tools *t, char c)
{
	bool good = false;

	switch (t->state) {
	case FIRST: good = first_byte(t, c); break;
	case OBJECT: good = object_byte(t, c); break;
	case BEHIND_OBJECT: good = behind_object(t, c); break;
	case NAME: good = name_byte(t, c); break;
	case MARKS: good = marks_byte(t, c); break;
	case ARGUMENTS: good = argument_byte(t, c); break;
	default:;
	}
	if (!good)
		tools_wrong(t, TOOLS_OUTSIDE, 0, c);
}

static void cut(struct tools *t)
{
	if (t->state == OBJECT) {
		tools_object_cut(t);
	} else {
		tools_clear(t, &t->text);
		literal_cut(&t->value, &t->text);
		tools_arguments(t, buf_str(&t->text), t->text.len);
	}
}

static uint32_t write_object(struct tools_writer *w, size_t tool)
{
	return tools_writer_object(w, tool, "", "arguments", "");
}

static uint32_t write_named(struct tools_writer *w, size_t tool)
{
	const char *name = tools_writer_name(w, tool);

	if (strpbrk(name, "[{ \t\r\n"))
		tools_cannot_write(w, tool, "its name has a bracket or a blank");
	return grammar_seq(w->b, grammar_text(w->b, opening), grammar_text(w->b, name),
			   grammar_text(w->b, "[ARGS]"), tools_writer_arguments(w, tool));
}

/* Both forms: the model chooses the one that it has learned. */
static uint32_t write(struct tools_writer *w)
{
	uint32_t list = tools_writer_list(w, tools_writer_any(w, write_object), ", ");

	return grammar_alt(w->b, tools_writer_list(w, tools_writer_any(w, write_named), ""),
			   grammar_seq(w->b, grammar_text(w->b, opening), grammar_text(w->b, "["),
				       list, grammar_text(w->b, "]")));
}

const struct tools_format tools_mistral = {
	.openings = {opening},
	.signs = {opening},
	.brief_ids = true,
	.marks = {opening, "[CALL_ID]", "[ARGS]"},
	.enter = enter,
	.byte = byte,
	.write = write,
	.cut = cut,
};
