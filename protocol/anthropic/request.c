#include "protocol/anthropic/request.h"

#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/anthropic/messages.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

/* Members that mean the same in a body of chat. */
static const char *const taken[] = {
	"model",
	"max_tokens",
	"stream",
	"stop_sequences",
	"temperature",
	"top_p",
	"top_k",
	/* not of this API */
	"allowed_token_ids",
	"bad_words",
	"cache_prompt",
	"cache_salt",
	"frequency_penalty",
	"grammar",
	"guided_choice",
	"guided_grammar",
	"guided_json",
	"guided_regex",
	"ignore_eos",
	"logit_bias",
	"min_p",
	"min_tokens",
	"presence_penalty",
	"priority",
	"repetition_penalty",
	"response_format",
	"seed",
	"stop_token_ids",
	"structured_outputs",
};

/* Parameters of this API that would change the answer and are not supported, unless they ask for nothing. */
static const struct refused_field refused[] = {
	{"compaction", "the server writes no summary of a conversation"},
	{"container", "the server runs no programs of its clients"},
	{"mcp_servers", "the server calls no other servers"},
	{"thread",
	 "a conversation that the server would hold; the tool loops of the SDKs then send it "
	 "whole each time"},
};

static int set(json_t *object, const char *name, json_t *value, struct err *e)
{
	return field_set_new(object, name, json_incref(value), e);
}

/* ---- tools ---- */

/* Appends a tool as a chat has it. Tools with another type than "custom" are those that the API's own servers know. */
static int add_tool(const json_t *tool, size_t index, json_t *list, struct err *e)
{
	const json_t *type = NULL, *name = NULL, *description = NULL;
	json_t *schema = field_get(tool, "input_schema"), *out;
	char where[ERR_PARAM_MAX];
	bool strict = false;
	int r;

	field_path(where, "tools[%zu]", index);
	if (!json_is_object(tool))
		return field_wrong(e, where, "", tool, "an object with name and input_schema");
	field_path(where, "tools[%zu].", index);
	r = field_string(tool, where, "type", &type, e);
	if (r == 0 && type && !field_is(type, "custom"))
		return field_wrong(e, where, "type", type,
				   "\"custom\": this server has no tools of its own");
	if (r == 0)
		r = tools_function_name(tool, where, &name, e);
	if (r == 0)
		r = field_string(tool, where, "description", &description, e);
	if (r == 0)
		r = field_bool(tool, where, "strict", &strict, e);
	if (r < 0)
		return r;
	if (!json_is_object(schema))
		return field_wrong(e, where, "input_schema", schema, "an object");
	out = json_pack("{s:s, s:{s:O, s:O*, s:O}}", "type", "function", "function", "name", name,
			"description", description, "parameters", schema);
	if (out && strict &&
	    json_object_set_nocheck(json_object_get(out, "function"), "strict", json_true()) < 0) {
		json_decref(out);
		out = NULL;
	}
	return json_array_append_new(list, out) < 0 ? err_no_memory(e) : 0;
}

static int add_tools(const json_t *body, json_t *chat, struct err *e)
{
	const json_t *tools = field_get(body, "tools");
	json_t *list;
	int r;

	if (!tools)
		return 0;
	if (!json_is_array(tools))
		return field_wrong(e, "", "tools", tools, "an array");
	list = json_array();
	r = field_set_new(chat, "tools", list, e);
	for (size_t i = 0; r == 0 && i < json_array_size(tools); i++)
		r = add_tool(json_array_get(tools, i), i, list, e);
	return r;
}

static bool has_tool(const json_t *chat, const json_t *name)
{
	const json_t *tools = json_object_get(chat, "tools");

	for (size_t i = 0; i < json_array_size(tools); i++)
		if (json_equal(json_object_get(json_object_get(json_array_get(tools, i),
							       "function"),
					       "name"),
			       name))
			return true;
	return false;
}

/* Makes a chat's tool_choice of {"type":"tool","name":…}. */
static int choose_tool(const json_t *choice, json_t *chat, struct err *e)
{
	const json_t *name = NULL;
	int r = field_string(choice, "tool_choice.", "name", &name, e);

	if (r < 0)
		return r;
	if (!name || !has_tool(chat, name))
		return field_wrong(e, "tool_choice.", "name", name, "the name of one of the tools");
	return field_set_new(chat, "tool_choice",
			     json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name",
				       name),
			     e);
}

static int add_tool_choice(const json_t *body, json_t *chat, struct err *e)
{
	static const struct {
		const char *type, *chat; /* chat NULL: it needs the tool's name */
	} choices[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}, {"tool", NULL}};
	const json_t *choice = field_get(body, "tool_choice"), *type;
	const char *name;
	bool alone = false;
	int r;

	if (!choice)
		return 0;
	if (!json_is_object(choice))
		return field_wrong(e, "", "tool_choice", choice, "an object with a type");
	r = field_bool(choice, "tool_choice.", "disable_parallel_tool_use", &alone, e);
	if (r == 0 && alone)
		r = field_set_new(chat, "parallel_tool_calls", json_false(), e);
	if (r < 0)
		return r;
	type = field_get(choice, "type");
	name = word_of(type);
	for (size_t i = 0; name && i < ARRAY_SIZE(choices); i++) {
		if (strcmp(name, choices[i].type))
			continue;
		return choices[i].chat
			       ? field_set_new(chat, "tool_choice", json_string(choices[i].chat), e)
			       : choose_tool(choice, chat, e);
	}
	return field_wrong(e, "tool_choice.", "type", type,
			   "\"auto\", \"any\", \"tool\" or \"none\"");
}

/* ---- thinking, and arguments of the template ---- */

static int add_thinking(const json_t *body, json_t *chat, struct err *e)
{
	static const char *const types[] = {"disabled", "enabled", "adaptive", "between_tools",
					    NULL};
	static const char want[] = "\"enabled\", \"disabled\", \"adaptive\" or \"between_tools\"";
	const json_t *thinking = field_get(body, "thinking");
	int64_t budget = 0;
	size_t i = 0;
	int r;

	if (!thinking)
		return 0;
	if (!json_is_object(thinking))
		return field_wrong(e, "", "thinking", thinking, "an object with a type");
	if (!field_get(thinking, "type"))
		return field_wrong(e, "thinking.", "type", NULL, want);
	r = field_word(thinking, "thinking.", "type", types, want, &i, e);
	if (r == 0)
		r = field_int(thinking, "thinking.", "budget_tokens", 1, INT32_MAX, &budget, e);
	return r < 0 ? r : field_set_new(chat, "enable_thinking", json_boolean(i > 0), e);
}

/* Without `thinking` it is off, so that an effort, which turns thinking on in chat, does not. */
static int add_effort(const json_t *config, json_t *chat, struct err *e)
{
	const json_t *effort = NULL;
	bool thinks;
	int r = chat_effort(config, "output_config.", "effort", &effort, &thinks, e);

	if (r < 0 || !effort)
		return r;
	if (!json_object_get(chat, "enable_thinking"))
		r = field_set_new(chat, "enable_thinking", json_false(), e);
	return r < 0 ? r : set(chat, "reasoning_effort", (json_t *)effort, e);
}

/* Checks a format that an answer is to have. */
static int check_format(const json_t *object, const char *where, const char *name, struct err *e)
{
	const json_t *format = field_get(object, name), *schema = field_get(format, "schema");
	char path[ERR_PARAM_MAX];

	if (!format)
		return 0;
	field_path(path, "%s%s.", where, name);
	if (!json_is_object(format))
		return field_wrong(e, where, name, format, "an object with type and schema");
	if (!field_is(field_get(format, "type"), "json_schema"))
		return field_wrong(e, path, "type", field_get(format, "type"), "\"json_schema\"");
	if (!schema)
		return field_wrong(e, path, "schema", NULL, "a JSON schema");
	return 0;
}

/* The members with formats stay as they are, so that errors name them (request_kind.formats). */
static int add_output(const json_t *body, json_t *chat, struct err *e)
{
	json_t *config = field_get(body, "output_config"),
	       *format = field_get(body, "output_format");
	int r = check_format(body, "", "output_format", e);

	if (r == 0 && format)
		r = set(chat, "output_format", format, e);
	if (r < 0 || !config)
		return r;
	if (!json_is_object(config))
		return field_wrong(e, "", "output_config", config, "an object");
	r = check_format(config, "output_config.", "format", e);
	if (r == 0)
		r = set(chat, "output_config", config, e);
	return r < 0 ? r : add_effort(config, chat, e);
}

static int add_template_arguments(const json_t *body, json_t *chat, struct err *e)
{
	const json_t *given = field_get(body, "chat_template_kwargs");
	json_t *arguments CLEANUP_JSON = NULL;

	if (given && !json_is_object(given))
		return field_wrong(e, "", "chat_template_kwargs", given, "an object");
	arguments = given ? json_copy((json_t *)given) : json_object();
	if (!arguments ||
	    (!json_object_get(arguments, "preserve_thinking") &&
	     json_object_set_new_nocheck(arguments, "preserve_thinking", json_true())))
		return err_no_memory(e);
	return set(chat, "chat_template_kwargs", arguments, e);
}

/* ---- bodies ---- */

static int check_metadata(const json_t *body, struct err *e)
{
	const json_t *metadata = field_get(body, "metadata"), *user = NULL;

	if (!metadata)
		return 0;
	if (!json_is_object(metadata))
		return field_wrong(e, "", "metadata", metadata, "an object");
	return field_string(metadata, "metadata.", "user_id", &user, e);
}

/* Refuses edits after which the model would read another conversation: summaries, and results of tools that are cleared.
 * Those of other types clear thinking; none of them is made, and the answer says so. */
static int check_edits(const json_t *body, struct err *e)
{
	static const struct {
		const char *begins, *why;
	} kinds[] = {{"compact_", "writes no summary of a conversation"},
		     {"clear_tool_uses_", "clears no results of tools"}};
	const json_t *management = field_get(body, "context_management"),
		     *edits = field_get(management, "edits");

	if (management && !json_is_object(management))
		return field_wrong(e, "", "context_management", management, "an object");
	if (edits && !json_is_array(edits))
		return field_wrong(e, "context_management.", "edits", edits, "an array");
	for (size_t i = 0; i < json_array_size(edits); i++) {
		const char *type =
			json_string_value(json_object_get(json_array_get(edits, i), "type"));
		char path[ERR_PARAM_MAX];

		for (size_t k = 0; type && k < ARRAY_SIZE(kinds); k++) {
			if (strncmp(type, kinds[k].begins, strlen(kinds[k].begins)) != 0)
				continue;
			field_path(path, "context_management.edits[%zu]", i);
			return err_param(e, PROBLEM_UNSUPPORTED, path,
					 "%s: %.40s is not supported by this server, which %s",
					 path, type, kinds[k].why);
		}
	}
	return 0;
}

static int check_refused(const json_t *body, struct err *e)
{
	int r = fields_refuse(body, "", refused, ARRAY_SIZE(refused), e);

	if (r == 0)
		r = check_metadata(body, e);
	return r < 0 ? r : check_edits(body, e);
}

/* Makes the members of a chat's body. */
static int convert(const json_t *body, json_t *chat, json_t **ret_prefill, struct err *e)
{
	int r = check_refused(body, e);

	if (r == 0)
		r = fields_copy(body, chat, taken, ARRAY_SIZE(taken), e);
	if (r == 0)
		r = add_tools(body, chat, e);
	if (r == 0)
		r = add_tool_choice(body, chat, e);
	if (r == 0)
		r = add_thinking(body, chat, e);
	if (r == 0)
		r = add_output(body, chat, e);
	if (r == 0)
		r = add_template_arguments(body, chat, e);
	return r < 0 ? r : messages_convert(body, chat, ret_prefill, e);
}

/* Log-probabilities have no place in this shape. */
static int no_logprobs(const json_t *body, struct openai_request *r, struct err *e)
{
	r->sampling.want_logprobs = false;
	r->sampling.n_logprobs = 0;
	return 0;
}

static int parse(const json_t *body, const struct pace *pace, const struct openai_limits *limits,
		 struct arena *arena, struct openai_request *ret, struct err *e)
{
	static const struct request_kind kind = {
		.source = "messages",
		.stop = "stop_sequences",
		.one_call = "tool_choice.disable_parallel_tool_use",
		.formats = {{NULL, "output_format"}, {"output_config", "format"}},
		.logprobs = no_logprobs,
		.prompts = chat_prompt,
	};
	json_t *chat CLEANUP_JSON = json_object(), *prefill CLEANUP_JSON = NULL;
	struct openai_request request;
	int r;

	if (!chat)
		return err_no_memory(e);
	r = convert(body, chat, &prefill, e);
	if (r == 0)
		r = request_read(chat, pace, &kind, limits, arena, &request, e);
	if (r < 0)
		return r;
	r = request_prefill(prefill, "thinking", arena, &request, e);
	if (r < 0) {
		openai_request_release(&request);
		return r;
	}
	/* max_tokens 0 asks for the prompt alone, which is in the cache then. */
	if (field_get(body, "max_tokens") && !request.max_tokens) {
		request.prompt_only = true;
		request.min_tokens = 0;
	}
	request.clamp = true;
	request.wants_edits = json_array_size(
		json_object_get(json_object_get(body, "context_management"), "edits"));
	request.include_usage = request.continuous_usage = request.stream;
	*ret = request;
	return 0;
}

int anthropic_parse_messages(const char *text, size_t len, const struct pace *pace,
			     const struct openai_limits *limits, struct arena *arena,
			     struct openai_request *ret, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	int r = fields_load(text, len, pace, &body, e);

	if (r < 0)
		return r;
	if (!field_get(body, "max_tokens"))
		return field_wrong(e, "", "max_tokens", NULL, "a whole number");
	return parse(body, pace, limits, arena, ret, e);
}

int anthropic_parse_count(const char *text, size_t len, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	int r = fields_load(text, len, pace, &body, e);

	return r < 0 ? r : parse(body, pace, limits, arena, ret, e);
}
