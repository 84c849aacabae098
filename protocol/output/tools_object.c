#include <string.h>

#include "protocol/output/tools_internal.h"

enum stage { OPEN, KEY, KEY_TEXT, COLON, VALUE_FIRST, VALUE, COMMA };

enum member { OTHER, NAME, ARGUMENTS };

void tools_object_init(struct tools *t, bool opened)
{
	struct tools_object *o = &t->object;

	o->stage = opened ? KEY : OPEN;
	o->any = o->named = o->argued = o->called = o->as_text = false;
	tools_clear(t, &o->key);
	tools_clear(t, &o->name);
	tools_clear(t, &o->arguments);
}

/* Replaces the JSON of a string by the string's text. False: memory ran out. */
static bool decode(struct buf *b)
{
	struct buf text;

	if (b->failed)
		return false;
	buf_init(&text, b->max);
	literal_text(buf_str(b), &text);
	buf_release(b);
	*b = text;
	return !text.failed;
}

static enum member member_of(const struct tools_object *o)
{
	const char *key = buf_str(&o->key);

	if (!strcmp(key, "\"name\"") && !o->named)
		return NAME;
	if ((!strcmp(key, "\"arguments\"") || !strcmp(key, "\"parameters\"")) && !o->argued)
		return ARGUMENTS;
	return OTHER;
}

static void begin(struct tools *t)
{
	t->object.called = true;
	tools_begin(t, buf_str(&t->object.name));
}

static void give_arguments(struct tools *t)
{
	struct buf *a = &t->object.arguments;

	tools_arguments(t, buf_str(a), a->len);
	tools_clear(t, a);
}

static void end(struct tools *t)
{
	if (!t->object.called)
		begin(t);
	give_arguments(t);
	tools_end(t);
}

static bool blank(const struct buf *text)
{
	return strspn(buf_str(text), " \t\n\r") == text->len;
}

/* Replaces arguments that are null, or a string with JSON or blanks alone, by the JSON of an object. False: they are
 * anything else. */
static bool take_arguments(struct tools *t)
{
	struct buf *arguments = &t->object.arguments, object;
	bool good = true;

	if (!t->object.as_text)
		return true;
	if (!strcmp(buf_str(arguments), "null"))
		tools_clear(t, arguments);
	else if (!decode(arguments))
		return false;
	buf_init(&object, arguments->max);
	if (blank(arguments))
		buf_puts(&object, "{}");
	else
		good = literal_convert(buf_str(arguments), arguments->len, false, &object) &&
		       buf_str(&object)[0] == '{';
	buf_release(arguments);
	*arguments = object;
	return good;
}

/* A member's value has ended. */
static bool end_member(struct tools *t)
{
	struct tools_object *o = &t->object;

	o->stage = COMMA;
	o->any = true;
	if (o->member == NAME) {
		if (!decode(&o->name) || !tools_find(t, buf_str(&o->name), o->name.len))
			return false;
		o->named = true;
		if (o->argued)
			end(t);
	} else if (o->member == ARGUMENTS) {
		if (!take_arguments(t))
			return false;
		o->argued = true;
		if (o->named)
			end(t);
	}
	return true;
}

/* Takes the first byte of a member's value, or a blank before it. */
static bool begin_member(struct tools *t, char c)
{
	struct tools_object *o = &t->object;

	if (literal_blank(c))
		return true;
	o->stage = VALUE;
	if (o->member == NAME)
		return c == '"';
	if (o->member != ARGUMENTS)
		return true;
	o->as_text = c == '"' || c == 'n';
	if (c == '{' && o->named)
		begin(t);
	return c == '{' || o->as_text;
}

static enum literal_status value_of_member(struct tools *t, char c)
{
	struct tools_object *o = &t->object;
	struct buf *out = o->member == NAME	   ? &o->name
			  : o->member == ARGUMENTS ? &o->arguments
						   : &o->key;
	enum literal_status s;

	if (o->stage == VALUE_FIRST && !begin_member(t, c))
		return LITERAL_WRONG;
	if (o->stage == VALUE_FIRST)
		return LITERAL_MORE;
	s = literal_byte(&o->value, c, out);
	if (t->open)
		give_arguments(t);
	if (o->member == OTHER)
		tools_clear(t, &o->key);
	if (s == LITERAL_MORE || s == LITERAL_WRONG)
		return s;
	if (!end_member(t))
		return LITERAL_WRONG;
	return s == LITERAL_END ? LITERAL_MORE : LITERAL_BEHIND;
}

static enum literal_status end_object(struct tools *t)
{
	struct tools_object *o = &t->object;

	if (!o->named)
		return LITERAL_WRONG;
	if (o->called)
		return LITERAL_END;
	buf_puts(&o->arguments, "{}");
	end(t);
	return LITERAL_END;
}

static enum literal_status object_byte(struct tools *t, char c)
{
	struct tools_object *o = &t->object;
	enum literal_status s;

	switch (o->stage) {
	case KEY_TEXT:
		s = literal_byte(&o->value, c, &o->key);
		if (s != LITERAL_END)
			return s;
		o->member = member_of(o);
		tools_clear(t, &o->key);
		o->stage = COLON;
		return LITERAL_MORE;
	case VALUE_FIRST:
	case VALUE:
		s = value_of_member(t, c);
		if (s != LITERAL_BEHIND)
			return s;
		break;
	default:;
	}
	if (literal_blank(c))
		return LITERAL_MORE;
	if (o->stage == OPEN && c == '{') {
		o->stage = KEY;
	} else if (o->stage == KEY && c == '"') {
		literal_init(&o->value, false);
		literal_byte(&o->value, c, &o->key);
		o->stage = KEY_TEXT;
	} else if (o->stage == COLON && c == ':') {
		literal_init(&o->value, false);
		o->stage = VALUE_FIRST;
	} else if (o->stage == COMMA && c == ',') {
		o->stage = KEY;
	} else if (c == '}' && (o->stage == COMMA || (o->stage == KEY && !o->any))) {
		return end_object(t);
	} else {
		return LITERAL_WRONG;
	}
	return LITERAL_MORE;
}

enum literal_status tools_object_byte(struct tools *t, char c)
{
	enum literal_status s = object_byte(t, c);

	if (s != LITERAL_WRONG && !t->object.called)
		buf_putc(&t->held, c);
	return s;
}

void tools_object_cut(struct tools *t)
{
	literal_cut(&t->object.value, &t->object.arguments);
	give_arguments(t);
}

void tools_object_step(struct tools *t, char c)
{
	switch (tools_object_byte(t, c)) {
	case LITERAL_END: tools_close(t); break;
	case LITERAL_WRONG:
		tools_wrong(t, t->object.called ? TOOLS_CLOSING : TOOLS_OUTSIDE, 0, c);
		break;
	default:;
	}
}
