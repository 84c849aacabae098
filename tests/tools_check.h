/* The events of a parser of tool calls as one text, and rules that hold for any text. For the unit tests and the
 * fuzzer.
 *
 * A call is «name|arguments», one that was cut «name|arguments~». Text stands between calls as it is. */
#pragma once

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "protocol/output/tools.h"

static const struct tool_parameter look_up_parameters[] = {
	{"n", TOOLS_NUMBER},
	{"all", TOOLS_BOOLEAN},
	{"how", TOOLS_OBJECT | TOOLS_ARRAY},
	{"maybe", TOOLS_STRING | TOOLS_NULL},
};

static const struct tool tool_rows[] = {
	{"look_up", look_up_parameters, ARRAY_SIZE(look_up_parameters)},
	{"f", NULL, 0},
};

static const struct tool_list test_tools = {tool_rows, ARRAY_SIZE(tool_rows)};

struct seen {
	struct tools *tools;
	struct buf all, text, arguments;
	bool open, string;	 /* string: the arguments that were read end within a string */
	size_t read;		 /* bytes of the arguments that within_escape has read */
	size_t n_wrong;		 /* rules that did not hold */
	size_t n_calls, n_whole; /* n_whole: complete calls, as long as none was cut */
};

#define RULE(s, holds) ((s)->n_wrong += !(holds))

/* Reads on in the arguments. Returns whether they end within an escape sequence of a JSON string, or between the halves
 * of a pair. */
static bool within_escape(struct seen *s)
{
	const char *json = buf_str(&s->arguments);
	const size_t len = s->arguments.len;

	while (s->read < len) {
		const char *at = json + s->read;
		size_t n = 1, left = len - s->read;

		if (*at == '"')
			s->string = !s->string;
		if (*at == '\\' && s->string)
			n = left > 1 && at[1] == 'u' ? 6 : 2;
		if (n > left)
			return true;
		if (n == 6 && left == 6 && (at[2] | 32) == 'd' && strchr("89abAB", at[3]))
			return true;
		s->read += n;
	}
	return false;
}

__attribute__((unused)) static void see_event(void *to, const struct tools_event *e)
{
	struct seen *s = to;

	switch (e->type) {
	case TOOLS_TEXT:
		RULE(s, !s->open && e->len);
		buf_append(&s->all, e->text, e->len);
		buf_append(&s->text, e->text, e->len);
		break;
	case TOOLS_BEGIN:
		RULE(s, !s->open);
		buf_reset(&s->arguments);
		s->read = 0;
		s->string = false;
		s->open = true;
		s->n_calls++;
		buf_printf(&s->all, "«%s|", e->text);
		break;
	case TOOLS_ARGUMENTS:
		RULE(s, s->open && e->len);
		buf_append(&s->arguments, e->text, e->len);
		buf_append(&s->all, e->text, e->len);
		break;
	case TOOLS_END:
		RULE(s, s->open);
		s->open = false;
		buf_puts(&s->all, tools_cut(s->tools) ? "~»" : "»");
		if (!tools_cut(s->tools)) {
			json_error_t error;
			json_t *object = json_loadb(buf_str(&s->arguments), s->arguments.len,
						    JSON_ALLOW_NUL, &error);

			/* jansson takes no NUL in a key and no number beyond its range, which JSON has */
			RULE(s, json_is_object(object) ||
					json_error_code(&error) == json_error_null_byte_in_key ||
					json_error_code(&error) == json_error_numeric_overflow);
			json_decref(object);
			s->n_whole++;
		}
		break;
	}
}

/* Checks what must hold after each piece of a text that is valid UTF-8. */
__attribute__((unused)) static void see_pause(struct seen *s)
{
	RULE(s, !s->open || tools_cut(s->tools));
	RULE(s, !s->open || !within_escape(s));
}

__attribute__((unused)) static void seen_begin(struct seen *s, size_t format, bool one)
{
	*s = (struct seen){0};
	buf_init(&s->all, 1 << 24);
	buf_init(&s->text, 1 << 24);
	buf_init(&s->arguments, 1 << 24);
	s->tools = tools_new(tools_format_at(format), &test_tools, one, see_event, s);
	if (!s->tools)
		abort();
}

__attribute__((unused)) static void seen_end(struct seen *s)
{
	tools_finish(s->tools);
	RULE(s, !s->open && !tools_failed(s->tools) && tools_calls(s->tools) == s->n_calls);
	RULE(s, !tools_held(s->tools));
}

__attribute__((unused)) static void seen_release(struct seen *s)
{
	tools_free(s->tools);
	buf_release(&s->all);
	buf_release(&s->text);
	buf_release(&s->arguments);
}
