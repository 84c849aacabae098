/* Makes the context for the model's template from the messages, tools (tools.c) and template arguments of a chat
 * request. request.h says how messages are normalised. This file also reads logprobs (a bool in chat) and top_logprobs.
 *
 * Of a message the template sees only role, name, content, reasoning_content, tool_calls and tool_call_id, so that
 * other members of a client's messages do not change the prompt. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/open_message.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

#define TEXT_MAX ((size_t)1 << 30)

/* Returns the bytes of the billing line with which a system prompt begins, 0: it has none. An agent puts a line such as
 * "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;" there, and it is another one with each request. So no prompt
 * would begin like the one before. */
static size_t billing_line(const char *text, size_t len)
{
	static const char begins[] = "x-anthropic-billing-header:";
	const char *end;

	if (len < sizeof(begins) - 1 || memcmp(text, begins, sizeof(begins) - 1) != 0)
		return 0;
	end = memchr(text, '\n', len);
	return end ? (size_t)(end - text) + 1 : len;
}

/* The texts of a message. */
struct texts {
	struct buf content, thinking;
	const char *role;
	bool billing; /* a billing line was left out */
};

/* Adds text to the content. Each text of a system message may begin with a billing line. */
static void add_text(struct texts *out, const json_t *string)
{
	const char *text = json_string_value(string);
	size_t len = json_string_length(string);
	size_t skip = strcmp(out->role, "system") ? 0 : billing_line(text, len);

	out->billing |= skip > 0;
	buf_append(&out->content, text + skip, len - skip);
}

/* Adds the text of one part of a content array to *out. An assistant's message may have refusal and thinking parts
 * too. */
static int part_text(const json_t *part, const char *where, struct texts *out, struct err *e)
{
	const bool assistant = !strcmp(out->role, "assistant");
	const json_t *type = field_get(part, "type"), *text;
	const char *name = word_of(type);
	char path[ERR_PARAM_MAX];
	int r;

	if (!json_is_object(part))
		return field_wrong(e, where, "", part, "an object with a type");
	field_path(path, "%s.", where);
	if (!name)
		return field_wrong(e, path, "type", type, "\"text\"");
	if (strcmp(name, "text") &&
	    !(assistant && (!strcmp(name, "refusal") || !strcmp(name, "thinking"))))
		return field_wrong(e, path, "type", type,
				   assistant ? "\"text\", \"refusal\" or \"thinking\""
					     : "\"text\": this server takes no other parts");
	/* The member with the text has the type's name. */
	r = field_needed(part, path, name, &text, e);
	if (r < 0)
		return r;
	if (strcmp(name, "thinking"))
		add_text(out, text);
	else
		buf_append(&out->thinking, json_string_value(text), json_string_length(text));
	return 0;
}

/* Makes a JSON string of a text, new. NULL: out of memory. */
static json_t *text_string(const struct buf *text)
{
	return text->failed ? NULL : json_stringn_nocheck(buf_str(text), text->len);
}

/* Makes one string of a message's content, new. The content is a string, an array of parts, null or absent. *thinking:
 * the texts of thinking parts, new; NULL: there are none. *billing: a billing line was left out; else unchanged. */
static int content_string(const json_t *message, const char *where, const char *role, json_t **ret,
			  json_t **thinking, bool *billing, struct err *e)
{
	const json_t *content = field_get(message, "content");
	struct texts texts = {.role = role};
	char path[ERR_PARAM_MAX];
	int r = 0;

	*thinking = NULL;
	if (content && !json_is_string(content) && !json_is_array(content))
		return field_wrong(e, where, "content", content,
				   "a string, null or an array of text parts");
	buf_init(&texts.content, TEXT_MAX);
	buf_init(&texts.thinking, TEXT_MAX);
	if (json_is_string(content) && !strcmp(role, "system"))
		add_text(&texts, content);
	for (size_t i = 0; r == 0 && i < json_array_size(content); i++) {
		field_path(path, "%scontent[%zu]", where, i);
		r = part_text(json_array_get(content, i), path, &texts, e);
	}
	if (r == 0) {
		bool thinks = texts.thinking.len || texts.thinking.failed;

		*ret = json_is_string(content) && !texts.billing ? json_incref((json_t *)content)
								 : text_string(&texts.content);
		if (thinks)
			*thinking = text_string(&texts.thinking);
		if (!*ret || (thinks && !*thinking))
			r = err_no_memory(e);
	}
	*billing |= texts.billing;
	buf_release(&texts.content);
	buf_release(&texts.thinking);
	return r;
}

/* The state that all messages of a request share while they are read. */
struct reading {
	struct buf system; /* the texts of system messages, which become one message */
	bool any_system;
	bool billing;  /* a billing line was dropped from one of them */
	size_t values; /* values that the JSON texts of all arguments together may still have */
	json_t *calls; /* the ids of calls so far, as in tools_note_call */
};

/* Makes an object of a tool call's arguments (request.h), so that a template can go over its members. Text that is not
 * JSON of an object, or is beyond the bounds of fields.h, stays text. New; NULL: out of memory. */
static json_t *arguments_value(struct reading *rd, json_t *arguments)
{
	const char *text = json_string_value(arguments);
	size_t len = json_string_length(arguments);
	json_t *parsed;

	if (!arguments || (text && !len))
		return json_object();
	if (!text)
		return json_incref(arguments);
	if (fields_check_bounds(text, len, NULL, &rd->values, NULL) < 0)
		return json_incref(arguments);
	parsed = fields_parse_written(text, len, JSON_ALLOW_NUL);
	if (json_is_object(parsed))
		return parsed;
	json_decref(parsed);
	return json_incref(arguments);
}

static int tool_call(struct reading *rd, const json_t *call, const char *where, json_t *out,
		     struct err *e)
{
	const json_t *function = field_get(call, "function"), *id = NULL, *type = NULL,
		     *name = NULL;
	json_t *arguments, *normal, *value CLEANUP_JSON = NULL;
	char path[ERR_PARAM_MAX];
	int r;

	if (!json_is_object(call))
		return field_wrong(e, where, "", call, "an object");
	field_path(path, "%s.", where);
	r = field_string(call, path, "id", &id, e);
	if (r == 0)
		r = field_string(call, path, "type", &type, e);
	if (r < 0)
		return r;
	if (type && !field_is(type, "function"))
		return field_wrong(e, path, "type", type, "\"function\"");
	if (!json_is_object(function))
		return field_wrong(e, path, "function", function,
				   "an object with name and arguments");
	field_path(path, "%s.function.", where);
	r = field_filled(function, path, "name", &name, e);
	if (r < 0)
		return r;
	arguments = field_get(function, "arguments");
	if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
		return field_wrong(e, path, "arguments", arguments,
				   "a string of JSON or an object");
	r = tools_note_call(rd->calls, id, e);
	if (r < 0)
		return r;
	value = arguments_value(rd, arguments);
	if (!value)
		return err_no_memory(e);
	normal = json_pack("{s:O*, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
			   "name", name, "arguments", value);
	if (!normal || json_array_append_new(out, normal) < 0)
		return err_no_memory(e);
	return 0;
}

static int tool_calls(struct reading *rd, const json_t *message, const char *where, json_t *out,
		      struct err *e)
{
	const json_t *calls = field_get(message, "tool_calls");
	char path[ERR_PARAM_MAX];
	json_t *list;
	int r;

	if (calls && !json_is_array(calls))
		return field_wrong(e, where, "tool_calls", calls, "an array");
	if (!json_array_size(calls))
		return 0;
	list = json_array();
	r = field_set_new(out, "tool_calls", list, e);
	for (size_t i = 0; r == 0 && i < json_array_size(calls); i++) {
		field_path(path, "%stool_calls[%zu]", where, i);
		r = tool_call(rd, json_array_get(calls, i), path, list, e);
	}
	return r;
}

static int assistant_members(struct reading *rd, const json_t *message, const char *where,
			     json_t *thinking, json_t *out, struct err *e)
{
	static const struct refused_field in_messages[] = {
		{"audio", "answers are text"},
		{"function_call", "tool_calls is the newer one"},
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(in_messages); i++)
		if (field_get(message, in_messages[i].name))
			return field_refuse(e, where, &in_messages[i]);
	/* Each of the next three statements replaces the value that an earlier one has set. */
	if (thinking)
		r = field_set_new(out, "reasoning_content", json_incref(thinking), e);
	if (r == 0)
		r = field_copy_string(message, where, "reasoning", out, "reasoning_content", e);
	if (r == 0)
		r = field_copy_string(message, where, "reasoning_content", out, "reasoning_content",
				      e);
	if (r == 0)
		r = tool_calls(rd, message, where, out, e);
	return r;
}

static int one_message(struct reading *rd, const json_t *message, size_t index, json_t *list,
		       struct err *e)
{
	static const char *const roles[] = {"system", "developer", "user", "assistant",
					    "tool",   "function",  NULL};
	const json_t *role = field_get(message, "role");
	json_t *content CLEANUP_JSON = NULL, *thinking CLEANUP_JSON = NULL;
	json_t *out CLEANUP_JSON = NULL;
	const char *name = json_string_value(role);
	char where[ERR_PARAM_MAX];
	bool billing = false;
	int r;

	field_path(where, "messages[%zu]", index);
	if (!json_is_object(message))
		return field_wrong(e, where, "", message, "an object with role and content");
	field_path(where, "messages[%zu].", index);
	if (!field_is_one_of(role, roles))
		return field_wrong(e, where, "role", role,
				   "one of system, developer, user, assistant, tool and function");
	if (!strcmp(name, "function"))
		name = "tool";
	if (!strcmp(name, "developer"))
		name = "system";
	r = content_string(message, where, name, &content, &thinking, &billing, e);
	if (r < 0)
		return r;
	rd->billing |= billing;
	if (!strcmp(name, "system")) {
		/* a message that had the billing line alone is none */
		rd->any_system |= !billing || json_string_length(content);
		if (rd->system.len && json_string_length(content))
			buf_puts(&rd->system, "\n\n");
		buf_append(&rd->system, json_string_value(content), json_string_length(content));
		return 0;
	}
	out = json_pack("{s:s, s:O}", "role", name, "content", content);
	if (!out)
		return err_no_memory(e);
	r = field_copy_string(message, where, "name", out, "name", e);
	if (r == 0 && !strcmp(name, "assistant"))
		r = assistant_members(rd, message, where, thinking, out, e);
	if (r == 0 && !strcmp(name, "tool"))
		r = field_copy_string(message, where, "tool_call_id", out, "tool_call_id", e);
	if (r == 0 && !strcmp(name, "tool"))
		r = tools_check_result(rd->calls, message, where, "tool_call_id", e);
	if (r == 0 && json_array_append(list, out) < 0)
		r = err_no_memory(e);
	return r;
}

static int put_messages(const json_t *body, json_t *context, bool *billing, struct err *e)
{
	const json_t *messages = field_get(body, "messages");
	json_t *calls CLEANUP_JSON = NULL;
	struct reading rd = {.values = FIELDS_VALUES_MAX};
	json_t *list, *first = NULL;
	int r;

	if (!json_is_array(messages))
		return field_wrong(e, "", "messages", messages, "an array of at least one message");
	if (!json_array_size(messages))
		return err_param(e, EINVAL, "messages",
				 "messages is empty, but must have at least one message");
	list = json_array();
	calls = rd.calls = json_object();
	r = field_set_new(context, "messages", list, e);
	if (r == 0 && !calls)
		r = err_no_memory(e);
	buf_init(&rd.system, TEXT_MAX);
	for (size_t i = 0; r == 0 && i < json_array_size(messages); i++)
		r = one_message(&rd, json_array_get(messages, i), i, list, e);
	if (r == 0 && rd.any_system) {
		if (!rd.system.failed)
			first = json_pack("{s:s, s:s%}", "role", "system", "content",
					  buf_str(&rd.system), rd.system.len);
		if (!first || json_array_insert_new(list, 0, first) < 0)
			r = err_no_memory(e);
	}
	buf_release(&rd.system);
	*billing = rd.billing;
	if (r == 0 && !json_array_size(list))
		r = err_param(
			e, EINVAL, "messages",
			"messages has a billing line alone, but must have at least one message");
	return r;
}

/* Checks template arguments, the value of the parameter `name`. */
static int check_arguments(const json_t *arguments, const char *name, struct err *e)
{
	static const char *const own[] = {"messages", "tools", "add_generation_prompt",
					  "continue_final_message"};
	char path[ERR_PARAM_MAX];

	if (!json_is_object(arguments))
		return field_wrong(e, "", name, arguments, "an object");
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (!field_get(arguments, own[i]))
			continue;
		field_path(path, "%s.%s", name, own[i]);
		return err_param(e, EINVAL, path,
				 "%s cannot be set here: it is a parameter of the request", path);
	}
	return 0;
}

int openai_template_arguments(const char *text, const char *name, json_t **ret, struct err *e)
{
	json_t *arguments CLEANUP_JSON = json_loads(text, 0, NULL);
	char path[ERR_PARAM_MAX];
	bool thinking;
	int r;

	if (!arguments)
		return err_set(e, EINVAL, "%s is no JSON of an object", name);
	field_path(path, "%s.", name);
	r = check_arguments(arguments, name, e);
	if (r == 0)
		r = field_bool(arguments, path, "enable_thinking", &thinking, e);
	if (r == 0)
		*ret = json_incref(arguments);
	return r;
}

static int put_arguments(const json_t *body, json_t *context, struct err *e)
{
	json_t *arguments = field_get(body, "chat_template_kwargs");
	int r;

	if (!arguments)
		return 0;
	r = check_arguments(arguments, "chat_template_kwargs", e);
	if (r < 0)
		return r;
	return json_object_update(context, arguments) < 0 ? err_no_memory(e) : 0;
}

int chat_effort(const json_t *object, const char *where, const char *name, const json_t **ret,
		bool *thinks, struct err *e)
{
	static const char *const efforts[] = {"none", "minimal", "low", "medium",
					      "high", "xhigh",	 "max", NULL};
	size_t effort;
	int r;

	if (!field_get(object, name))
		return 0;
	r = field_word(object, where, name, efforts,
		       "one of none, minimal, low, medium, high, xhigh and max", &effort, e);
	if (r < 0)
		return r;
	*thinks = effort > 0;
	*ret = field_get(object, name);
	return 0;
}

/* Reads the three settings that turn thinking on or off (request.h), the weakest first: each that is given overrides
 * those read before. Sets *thinking if one is given. In the context sets enable_thinking, and also reasoning_effort, if
 * it is given and the body's chat_template_kwargs have none. */
static int parse_thinking(const json_t *body, json_t *context, bool *thinking, struct err *e)
{
	const json_t *effort = NULL, *arguments = field_get(body, "chat_template_kwargs");
	int r = chat_effort(body, "", "reasoning_effort", &effort, thinking, e);

	if (r == 0 && effort && !field_get(arguments, "reasoning_effort"))
		r = field_set_new(context, "reasoning_effort", json_incref((json_t *)effort), e);
	if (r == 0)
		r = field_bool(body, "", "enable_thinking", thinking, e);
	if (r == 0)
		r = field_bool(arguments, "chat_template_kwargs.", "enable_thinking", thinking, e);
	if (r < 0)
		return r;
	return field_set_new(context, "enable_thinking", json_boolean(*thinking), e);
}

/* Reads continue_final_message, and leaves the last message open if it is true. prompt: the value of
 * add_generation_prompt. *thinking: the message ends inside an open <think> block; else unchanged. */
static int open_last(const json_t *body, json_t *context, bool prompt, bool *thinking,
		     struct err *e)
{
	static const char name[] = "continue_final_message";
	const json_t *messages = field_get(body, "messages"), *last;
	bool open = false;
	int r = field_bool(body, "", name, &open, e);

	if (r < 0 || !open)
		return r;
	if (prompt)
		return err_param(e, EINVAL, name,
				 "%s is true, which needs add_generation_prompt false", name);
	last = json_array_get(messages, json_array_size(messages) - 1);
	if (!field_is(field_get(last, "role"), "assistant"))
		return err_param(e, EINVAL, name,
				 "%s is true, but the last message is not the assistant's", name);
	return open_message_mark(context, thinking, e);
}

int chat_context(const json_t *body, const struct openai_limits *limits, json_t **ret,
		 bool *thinking, bool *billing, struct err *e)
{
	const json_t *usual = limits->template_arguments;
	/* A copy, because several threads read the arguments at the same time. */
	json_t *context CLEANUP_JSON = usual ? json_deep_copy(usual) : json_object();
	bool prompt = true, think = json_is_true(json_object_get(usual, "enable_thinking"));
	int r;

	if (!context)
		return err_no_memory(e);
	r = put_arguments(body, context, e);
	if (r == 0)
		r = parse_thinking(body, context, &think, e);
	if (r == 0)
		r = put_messages(body, context, billing, e);
	if (r == 0)
		r = tools_context(body, context, e);
	/* transformers too defines `documents` in every call, by default as None */
	if (r == 0 && !json_object_get(context, "documents"))
		r = field_set_new(context, "documents", json_null(), e);
	if (r == 0)
		r = field_bool(body, "", "add_generation_prompt", &prompt, e);
	if (r == 0)
		r = field_set_new(context, "add_generation_prompt", json_boolean(prompt), e);
	think &= prompt;
	if (r == 0)
		r = open_last(body, context, prompt, &think, e);
	if (r < 0)
		return r;
	*thinking = think;
	*ret = json_incref(context);
	return 0;
}

int chat_top_logprobs(const json_t *body, const char *allowed, struct openai_request *r,
		      struct err *e)
{
	int64_t top = 0;
	int ret = field_int(body, "", "top_logprobs", 0, TOP_LOGPROBS_MAX, &top, e);

	if (ret < 0)
		return ret;
	if (top && !r->sampling.want_logprobs)
		return err_param(e, EINVAL, "top_logprobs",
				 "top_logprobs is %" PRId64 ", but only allowed when %s", top,
				 allowed);
	r->sampling.n_logprobs = (uint8_t)top;
	return 0;
}

int chat_logprobs(const json_t *body, struct openai_request *r, struct err *e)
{
	int ret = field_bool(body, "", "logprobs", &r->sampling.want_logprobs, e);

	return ret < 0 ? ret : chat_top_logprobs(body, "logprobs is true", r, e);
}

int chat_prompt(const json_t *body, const struct pace *pace, const struct openai_limits *limits,
		struct arena *arena, struct openai_request *r, struct err *e)
{
	bool parallel = true;
	int ret = chat_context(body, limits, &r->context, &r->thinking, &r->billing, e);

	if (ret == 0)
		ret = tools_list(r->context, pace, arena, &r->tools, e);
	if (ret == 0)
		ret = field_bool(body, "", "parallel_tool_calls", &parallel, e);
	r->one_call = !parallel;
	return ret < 0 ? ret : tools_choice(body, arena, r, e);
}

int openai_parse_chat(const char *body, size_t len, const struct pace *pace,
		      const struct openai_limits *limits, struct arena *arena,
		      struct openai_request *ret, struct err *e)
{
	static const struct request_kind kind = {
		.source = "messages",
		.least_tokens = 1,
		.max_tokens = "max_completion_tokens",
		.stop = "stop",
		.one_call = "parallel_tool_calls",
		.logprobs = chat_logprobs,
		.prompts = chat_prompt,
	};

	return request_parse(body, len, pace, &kind, limits, arena, ret, e);
}
