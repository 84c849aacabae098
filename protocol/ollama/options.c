#include "protocol/ollama/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "protocol/openai/fields.h"

/* The names of the members of a chat, and those of the options and members that they are made of. */
static const struct name {
	const char *chat, *own;
} names[] = {
	{"temperature", "options.temperature"},
	{"top_p", "options.top_p"},
	{"top_k", "options.top_k"},
	{"min_p", "options.min_p"},
	{"seed", "options.seed"},
	{"stop", "options.stop"},
	{"presence_penalty", "options.presence_penalty"},
	{"frequency_penalty", "options.frequency_penalty"},
	{"repetition_penalty", "options.repeat_penalty"},
	{"max_tokens", "options.num_predict"},
	/* members of the body */
	{"response_format.schema", "format"},
	{"response_format", "format"},
	{"enable_thinking", "think"},
	{"reasoning_effort", "think"},
};

static const char options_dot[] = "options.";

static bool is_penalty(const char *chat)
{
	return strstr(chat, "_penalty") != NULL;
}

/* Returns whether an option has this number. */
static bool has(const json_t *options, const char *name, double number)
{
	const json_t *v = field_get(options, name);

	return json_is_number(v) && json_number_value(v) == number;
}

/* Refuses samplers that would change the answer and are not supported. */
static int check_samplers(const json_t *options, struct err *e)
{
	static const char no_sampler[] = "the draw has no such sampler";
	/* With the numbers `none` they do nothing. */
	static const struct {
		struct refused_field field;
		double none;
	} samplers[] = {{{"mirostat", no_sampler}, 0},
			{{"tfs_z", no_sampler}, 1},
			{{"typical_p", no_sampler}, 1}};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(samplers); i++)
		if (!has(options, samplers[i].field.name, samplers[i].none))
			r = fields_refuse(options, options_dot, &samplers[i].field, 1, e);
	return r;
}

/* Returns whether the value of an option stands for its absence. A fraction does not, so that it is refused. */
static bool stands_for_none(const char *chat, const json_t *v)
{
	const double number = json_number_value(v);

	if (!json_is_number(v) || number != trunc(number))
		return false;
	/* Ollama limits an answer with numbers above 0 alone. */
	return (!strcmp(chat, "max_tokens") && number <= 0) ||
	       (!strcmp(chat, "seed") && number < 0);
}

int ollama_options_convert(const json_t *body, json_t *chat, struct err *e)
{
	const json_t *options = field_get(body, "options");
	const size_t skip = sizeof(options_dot) - 1;
	int r;

	if (!options)
		return 0;
	if (!json_is_object(options))
		return field_wrong(e, "", "options", options, "an object");
	r = check_samplers(options, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
		const struct name *n = &names[i];
		json_t *v;

		if (strncmp(n->own, options_dot, skip) != 0)
			continue;
		v = field_get(options, n->own + skip);
		if (!v || stands_for_none(n->chat, v) ||
		    (is_penalty(n->chat) && has(options, "repeat_last_n", 0)))
			continue;
		r = field_set_new(chat, n->chat, json_incref(v), e);
	}
	return r;
}

void ollama_options_name(struct err *e)
{
	char rest[ERR_TEXT_MAX];

	for (size_t i = 0; e && i < ARRAY_SIZE(names); i++) {
		const char *chat = names[i].chat, *own = names[i].own;
		const size_t len = strlen(chat);

		if (strncmp(e->param, chat, len) != 0 ||
		    (e->param[len] && !strchr(".[", e->param[len])))
			continue;
		if (!strncmp(e->text, chat, len)) {
			snprintf(rest, sizeof(rest), "%s", e->text + len);
			snprintf(e->text, sizeof(e->text), "%s%.*s", own,
				 (int)(sizeof(e->text) - 1 - strlen(own)), rest);
		}
		snprintf(rest, sizeof(rest), "%s", e->param + len);
		snprintf(e->param, sizeof(e->param), "%s%.*s", own,
			 (int)(sizeof(e->param) - 1 - strlen(own)), rest);
		return;
	}
}
