#include "protocol/responses/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

enum { METADATA_MAX = 16, METADATA_KEY_MAX = 64, METADATA_VALUE_MAX = 512 };

/* ---- parameters that are refused, or have no effect but to be repeated ---- */

static int check_refused(const json_t *body, struct err *e)
{
	static const struct refused_field refused[] = {
		{"background", "an answer is computed while its client waits"},
		{"conversation", "a conversation goes on by previous_response_id"},
		{"prompt", "the server keeps no prompts"},
		{"return_token_ids", "a response has no place for them"},
		{"prompt_logprobs", "a response has no place for them"},
	};
	static const char *const moved[][2] = {{"response_format", "text.format"},
					       {"messages", "input"},
					       {"reasoning_effort", "reasoning.effort"}};

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		const json_t *v = field_get(body, refused[i].name);

		/* A 0 may ask for something: prompt_logprobs 0 are those of the prompt's tokens alone. */
		if (v && (json_is_number(v) || !field_asks_nothing(v)))
			return field_refuse(e, "", &refused[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(moved); i++)
		if (field_get(body, moved[i][0]))
			return err_param(e, PROBLEM_UNSUPPORTED, moved[i][0],
					 "%s is a parameter of chat: in responses it is %s",
					 moved[i][0], moved[i][1]);
	return 0;
}

static int check_strings(const json_t *body, struct err *e)
{
	static const char *const names[] = {"instructions",	"previous_response_id",
					    "prompt_cache_key", "safety_identifier",
					    "service_tier",	"user"};
	const json_t *v;
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(names); i++)
		r = field_string(body, "", names[i], &v, e);
	return r;
}

static int check_metadata(const json_t *body, struct err *e)
{
	json_t *map = field_get(body, "metadata"), *v;
	const char *name;

	if (map && !json_is_object(map))
		return field_wrong(e, "", "metadata", map, "an object of strings");
	if (json_object_size(map) > METADATA_MAX)
		return err_param(e, EINVAL, "metadata",
				 "metadata has %zu members, but may have at most %d",
				 json_object_size(map), METADATA_MAX);
	json_object_foreach(map, name, v)
	{
		if (!json_is_string(v))
			return field_wrong(e, "", "metadata", v, "an object of strings");
		if (strlen(name) > METADATA_KEY_MAX || json_string_length(v) > METADATA_VALUE_MAX)
			return err_param(e, EINVAL, "metadata",
					 "the member \"%.20s\" of metadata is too long: a name may "
					 "have %d bytes and a value %d",
					 name, METADATA_KEY_MAX, METADATA_VALUE_MAX);
	}
	return 0;
}

static int check_text(const json_t *body, struct err *e)
{
	static const char *const words[] = {"low", "medium", "high", NULL};
	const json_t *text = field_get(body, "text");
	size_t verbosity;

	/* constraint.c reads its format. */
	if (text && !json_is_object(text))
		return field_wrong(e, "", "text", text, "an object");
	return field_word(text, "text.", "verbosity", words, "low, medium or high", &verbosity, e);
}

/* include: *logprobs and *encrypted are set if it has the names of these. */
static int parse_include(const json_t *body, bool *logprobs, bool *encrypted, struct err *e)
{
	const json_t *list = field_get(body, "include");

	*logprobs = *encrypted = false;
	if (list && !json_is_array(list))
		return field_wrong(e, "", "include", list, "an array of strings");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *name = json_array_get(list, i);

		if (!json_is_string(name))
			return field_wrong(e, "", "include", name, "an array of strings");
		*logprobs |= field_is(name, "message.output_text.logprobs");
		*encrypted |= field_is(name, "reasoning.encrypted_content");
	}
	return 0;
}

static int responses_logprobs(const json_t *body, struct openai_request *r, struct err *e)
{
	bool encrypted;
	int ret = parse_include(body, &r->sampling.want_logprobs, &encrypted, e);

	if (ret < 0)
		return ret;
	return chat_top_logprobs(body, "include has message.output_text.logprobs", r, e);
}

/* ---- tools ---- */

/* Makes a tool of chat, new: {"type", "function": {name, description, parameters, strict}}. */
static int one_tool(const json_t *tool, size_t index, json_t **ret, struct err *e)
{
	static const char *const members[] = {"name", "description", "parameters", "strict"};
	const json_t *type = field_get(tool, "type"), *name = NULL, *v;
	const char *text = word_of(type);
	json_t *function CLEANUP_JSON = NULL;
	char where[ERR_PARAM_MAX];
	bool strict;
	int r;

	field_path(where, "tools[%zu]", index);
	if (!json_is_object(tool))
		return field_wrong(e, where, "", tool, "an object with type and name");
	if (text && strcmp(text, "function"))
		return err_param(e, PROBLEM_UNSUPPORTED, where,
				 "%s is of type \"%.40s\", and this server takes functions alone",
				 where, text);
	field_path(where, "tools[%zu].", index);
	if (!text)
		return field_wrong(e, where, "type", type, "\"function\"");
	r = tools_function_name(tool, where, &name, e);
	if (r == 0)
		r = field_string(tool, where, "description", &v, e);
	if (r == 0)
		r = field_bool(tool, where, "strict", &strict, e);
	if (r < 0)
		return r;
	v = field_get(tool, "parameters");
	if (v && !json_is_object(v))
		return field_wrong(e, where, "parameters", v, "an object");
	function = json_object();
	r = fields_copy(tool, function, members, ARRAY_SIZE(members), e);
	if (r < 0)
		return r;
	*ret = json_pack("{s:s, s:O}", "type", "function", "function", function);
	return *ret ? 0 : err_no_memory(e);
}

/* Makes chat's form of a function that tool_choice names, {"type":"function","name"}, new. `where`: the path of its
 * members. */
static int named_function(const json_t *v, const char *where, json_t **ret, struct err *e)
{
	const json_t *name;
	int r = tools_function_name(v, where, &name, e);

	if (r < 0)
		return r;
	*ret = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
	return *ret ? 0 : err_no_memory(e);
}

/* Makes chat's form of {"type":"allowed_tools","mode","tools"}, new. */
static int allowed_tools(const json_t *choice, json_t **ret, struct err *e)
{
	static const char *const modes[] = {"auto", "required", NULL};
	const json_t *tools = field_get(choice, "tools");
	json_t *list CLEANUP_JSON = json_array();
	char where[ERR_PARAM_MAX];
	size_t mode = 0;
	int r = field_word(choice, "tool_choice.", "mode", modes, "auto or required", &mode, e);

	if (r == 0 && !json_is_array(tools))
		r = field_wrong(e, "tool_choice.", "tools", tools, "an array of tools");
	for (size_t i = 0; r == 0 && i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i), *type = field_get(tool, "type");
		json_t *one;

		field_path(where, "tool_choice.tools[%zu]", i);
		if (!json_is_object(tool))
			return field_wrong(e, where, "", tool, "an object with type and name");
		if (type && !field_is(type, "function"))
			return err_param(e, PROBLEM_UNSUPPORTED, where,
					 "%s is no function, and this server has functions alone",
					 where);
		field_path(where, "tool_choice.tools[%zu].", i);
		r = named_function(tool, where, &one, e);
		if (r == 0 && json_array_append_new(list, one) < 0)
			r = err_no_memory(e);
	}
	if (r < 0)
		return r;
	*ret = json_pack("{s:s, s:{s:s, s:O}}", "type", "allowed_tools", "allowed_tools", "mode",
			 modes[mode], "tools", list);
	return *ret ? 0 : err_no_memory(e);
}

/* Makes chat's tool_choice, new; NULL: absent. */
static int tool_choice(const json_t *body, json_t **ret, struct err *e)
{
	json_t *choice = field_get(body, "tool_choice");
	const char *type = word_of(json_object_get(choice, "type"));

	if (!choice || json_is_string(choice)) {
		*ret = json_incref(choice);
		return 0;
	}
	if (!type)
		return field_wrong(e, "", "tool_choice", choice,
				   "\"none\", \"auto\", \"required\", a function or allowed_tools");
	if (!strcmp(type, "function"))
		return named_function(choice, "tool_choice.", ret, e);
	if (!strcmp(type, "allowed_tools"))
		return allowed_tools(choice, ret, e);
	return err_param(e, PROBLEM_UNSUPPORTED, "tool_choice",
			 "tool_choice is of type \"%.40s\", and this server has functions alone",
			 type);
}

static int put_tools(const json_t *body, json_t *chat, struct err *e)
{
	const json_t *tools = field_get(body, "tools");
	json_t *choice = NULL, *list;
	int r = tool_choice(body, &choice, e);

	if (r < 0)
		return r;
	if (choice && field_set_new(chat, "tool_choice", choice, e) < 0)
		return -ENOMEM;
	if (tools && !json_is_array(tools))
		return field_wrong(e, "", "tools", tools, "an array");
	list = json_array();
	r = field_set_new(chat, "tools", list, e);
	for (size_t i = 0; !r && i < json_array_size(tools); i++) {
		json_t *tool = NULL;

		r = one_tool(json_array_get(tools, i), i, &tool, e);
		if (!r && json_array_append_new(list, tool) < 0)
			r = err_no_memory(e);
	}
	return r;
}

/* ---- messages ---- */

/* Parses the items of the earlier response, new. */
static int recall(const json_t *body, const struct openai_limits *limits, const struct pace *pace,
		  json_t **ret, struct err *e)
{
	const json_t *given = field_get(body, "previous_response_id");
	const char *id = word_of(given);
	size_t values = FIELDS_VALUES_MAX;
	json_error_t error;
	struct buf text;
	int r;

	if (!given)
		return 0;
	if (!id)
		return field_wrong(e, "", "previous_response_id", given, "the id of a response");
	if (!limits->recall)
		return err_param(e, PROBLEM_UNKNOWN_PREVIOUS, "previous_response_id",
				 "this server keeps no responses");
	buf_init(&text, SIZE_MAX / 2);
	buf_putc(&text, '[');
	r = limits->recall(limits->recall_arg, id, &text, e);
	buf_putc(&text, ']');
	if (!r && text.failed)
		r = err_no_memory(e);
	if (!r && (r = fields_check_bounds(buf_str(&text), text.len, pace, &values, e)) == -EINVAL)
		err_param(e, EINVAL, "previous_response_id",
			  "the conversation of previous_response_id has more than %d values",
			  FIELDS_VALUES_MAX);
	if (!r) {
		*ret = fields_parse(buf_str(&text), text.len, JSON_ALLOW_NUL, pace, &error);
		if (!*ret)
			r = pace_gives_up(pace) ? err_set(e, ECANCELED, "the items are not read")
						: err_no_memory(e);
	}
	buf_release(&text);
	return r;
}

/* Makes the list of the request's own items, new: a text is a message of the user. */
static int own_items(const json_t *body, json_t **ret, struct err *e)
{
	json_t *input = field_get(body, "input");

	if (json_is_array(input))
		*ret = json_incref(input);
	else if (json_is_string(input))
		*ret = json_pack("[{s:s, s:s, s:[{s:s, s:O}]}]", "type", "message", "role", "user",
				 "content", "type", "input_text", "text", input);
	else if (!input && field_get(body, "previous_response_id"))
		*ret = json_array();
	else
		return field_wrong(e, "", "input", input, "a string or an array of items");
	return *ret ? 0 : err_no_memory(e);
}

static int put_messages(const json_t *body, const json_t *before, const json_t *own, json_t *chat,
			struct err *e)
{
	const json_t *instructions = field_get(body, "instructions");
	json_t *messages = json_array(), *system;
	int r = field_set_new(chat, "messages", messages, e);

	if (!r && instructions) {
		system = json_pack("{s:s, s:O}", "role", "system", "content", instructions);
		if (json_array_append_new(messages, system) < 0)
			r = err_no_memory(e);
	}
	if (!r)
		r = responses_messages(before, own, messages, e);
	if (!r && !json_array_size(messages))
		return err_param(e, EINVAL, "input",
				 "input is empty, but must have at least one item");
	return r;
}

/* Reads reasoning, and copies members that chat has under the same names. */
static int put_settings(const json_t *body, json_t *chat, struct err *e)
{
	static const char *const summaries[] = {"auto", "concise", "detailed", "none", NULL};
	static const char *const same[] = {"enable_thinking", "chat_template_kwargs",
					   "add_generation_prompt", "parallel_tool_calls"};
	const json_t *reasoning = field_get(body, "reasoning"), *effort = NULL;
	bool thinks;
	size_t i;
	int r;

	if (reasoning && !json_is_object(reasoning))
		return field_wrong(e, "", "reasoning", reasoning, "an object");
	r = field_word(reasoning, "reasoning.", "summary", summaries, "auto, concise or detailed",
		       &i, e);
	if (r == 0)
		r = chat_effort(reasoning, "reasoning.", "effort", &effort, &thinks, e);
	if (r == 0 && effort)
		r = field_set_new(chat, "reasoning_effort", json_incref((json_t *)effort), e);
	return r < 0 ? r : fields_copy(body, chat, same, ARRAY_SIZE(same), e);
}

/* ---- what the response repeats ---- */

/* Sets a member to that of the body, or to `other`, which is taken over. */
static int repeat(json_t *fields, const json_t *body, const char *name, json_t *other,
		  struct err *e)
{
	json_t *v = field_get(body, name);

	if (v) {
		json_decref(other);
		other = json_incref(v);
	}
	return field_set_new(fields, name, other, e);
}

/* Copies the members of an object or the items of an array as JSON, without the brackets, into the arena. */
static int copy_inside(const json_t *v, struct arena *arena, const char **ret, size_t *ret_len,
		       struct err *e)
{
	char *text = json_dumps(v, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0;

	*ret = len ? arena_strndup(arena, text + 1, len - 2) : NULL;
	*ret_len = len - 2;
	free(text);
	return *ret ? 0 : err_no_memory(e);
}

/* Makes a number of a float with the digits that it has, 0.7 and not 0.699999988. */
static json_t *real_of(float v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.7g", (double)v);
	return json_real(strtod(text, NULL));
}

static int put_fields(const json_t *body, const struct openai_request *r, bool store,
		      struct arena *arena, struct responses_request *ret, struct err *e)
{
	static const char *const nullable[] = {"instructions",
					       "max_output_tokens",
					       "max_tool_calls",
					       "previous_response_id",
					       "prompt_cache_key",
					       "safety_identifier",
					       "user"};
	json_t *fields CLEANUP_JSON = json_object(), *text;
	int x = 0;

	if (!fields)
		return err_no_memory(e);
	for (size_t i = 0; !x && i < ARRAY_SIZE(nullable); i++)
		x = repeat(fields, body, nullable[i], json_null(), e);
	if (!x)
		x = repeat(fields, body, "metadata", json_object(), e);
	if (!x)
		x = repeat(fields, body, "parallel_tool_calls", json_true(), e);
	if (!x)
		x = repeat(fields, body, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"),
			   e);
	if (!x)
		x = field_set_new(fields, "service_tier", json_string("default"), e);
	if (!x)
		x = field_set_new(fields, "store", json_boolean(store), e);
	if (!x)
		x = repeat(fields, body, "temperature", real_of(r->sampling.temperature), e);
	text = json_copy(field_get(body, "text"));
	if (!text)
		text = json_object();
	if (!x && !field_get(text, "format"))
		x = field_set_new(text, "format", json_pack("{s:s}", "type", "text"), e);
	if (!x)
		x = field_set_new(fields, "text", json_incref(text), e);
	json_decref(text);
	if (!x)
		x = repeat(fields, body, "tool_choice", json_string("auto"), e);
	if (!x)
		x = repeat(fields, body, "tools", json_array(), e);
	if (!x)
		x = field_set_new(fields, "top_logprobs", json_integer(r->sampling.n_logprobs), e);
	if (!x)
		x = repeat(fields, body, "top_p", real_of(r->sampling.top_p), e);
	if (!x)
		x = field_set_new(fields, "truncation",
				  json_string(r->truncate ? "auto" : "disabled"), e);
	return x ? x : copy_inside(fields, arena, &ret->fields, &ret->fields_len, e);
}

/* ---- the body ---- */

/* Reads the parameters that are neither of the prompt nor of drawing. */
static int parse_rest(const json_t *body, struct openai_request *r, struct responses_request *own,
		      struct err *e)
{
	static const char *const truncations[] = {"disabled", "auto", NULL};
	size_t truncation = 0;
	bool logprobs;
	int ret = check_refused(body, e);

	own->store = true;
	if (ret == 0 && r->n != 1)
		ret = err_param(e, PROBLEM_UNSUPPORTED, "n", "n must be 1 in responses");
	if (ret == 0)
		ret = check_strings(body, e);
	if (ret == 0)
		ret = check_metadata(body, e);
	if (ret == 0)
		ret = check_text(body, e);
	if (ret == 0)
		ret = field_word(body, "", "truncation", truncations, "auto or disabled",
				 &truncation, e);
	if (ret == 0)
		ret = field_bool(body, "", "store", &own->store, e);
	if (ret == 0)
		ret = parse_include(body, &logprobs, &own->encrypted, e);
	r->truncate = truncation;
	return ret;
}

static int responses_prompt(const json_t *body, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *r, struct err *e)
{
	struct responses_request *own = arena_alloc(arena, sizeof(*own));
	json_t *chat CLEANUP_JSON = json_object(), *before CLEANUP_JSON = NULL,
		     *items CLEANUP_JSON = NULL;
	int ret;

	if (!own || !chat)
		return err_no_memory(e);
	r->responses = own;
	ret = parse_rest(body, r, own, e);
	if (ret == 0)
		ret = own_items(body, &items, e);
	if (ret == 0)
		ret = recall(body, limits, pace, &before, e);
	if (ret == 0)
		ret = put_messages(body, before, items, chat, e);
	if (ret == 0)
		ret = put_tools(body, chat, e);
	if (ret == 0)
		ret = put_settings(body, chat, e);
	if (ret == 0)
		ret = chat_prompt(chat, pace, limits, arena, r, e);
	if (ret == 0)
		ret = put_fields(body, r, own->store, arena, own, e);
	if (ret == 0 && own->store)
		ret = copy_inside(items, arena, &own->input, &own->input_len, e);
	return ret;
}

int responses_parse(const char *body, size_t len, const struct pace *pace,
		    const struct openai_limits *limits, struct arena *arena,
		    struct openai_request *ret, struct err *e)
{
	static const struct request_kind kind = {
		.source = "input",
		.least_tokens = 1,
		.max_tokens = "max_output_tokens",
		.stop = "stop",
		.one_call = "parallel_tool_calls",
		.formats = {{"text", "format"}},
		.logprobs = responses_logprobs,
		.prompts = responses_prompt,
	};

	return request_parse(body, len, pace, &kind, limits, arena, ret, e);
}
