#include "protocol/ollama/request.h"

#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/ollama/messages.h"
#include "protocol/ollama/options.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"

/* Members that mean the same in a body of chat. */
static const char *const taken[] = {
	"model",
	"logprobs",
	/* not of this API */
	"cache_prompt",
	"cache_salt",
	"chat_template_kwargs",
	"priority",
};

/* ---- the members of a chat ---- */

static int add_format(const json_t *body, json_t *chat, struct err *e)
{
	json_t *format = field_get(body, "format");

	if (!format || field_is(format, ""))
		return 0;
	if (field_is(format, "json"))
		return field_set_new(chat, "response_format",
				     json_pack("{s:s}", "type", "json_object"), e);
	if (!json_is_object(format))
		return field_wrong(e, "", "format", format, "\"json\" or a JSON schema");
	return field_set_new(chat, "response_format",
			     json_pack("{s:s, s:O}", "type", "json_object", "schema", format), e);
}

static int add_think(const json_t *body, json_t *chat, struct err *e)
{
	static const char *const levels[] = {"low", "medium", "high", "max", NULL};
	json_t *think = field_get(body, "think");

	if (!think)
		return 0;
	if (json_is_boolean(think))
		return field_set_new(chat, "enable_thinking", json_incref(think), e);
	if (field_is_one_of(think, levels))
		return field_set_new(chat, "reasoning_effort", json_incref(think), e);
	return field_wrong(e, "", "think", think,
			   "true, false, \"low\", \"medium\", \"high\" or \"max\"");
}

/* Sets the members that bodies of both paths have. `stream` is true unless it is given. */
static int convert_common(const json_t *body, json_t *chat, struct err *e)
{
	bool stream = true, logprobs = false;
	int64_t top = 0;
	int r = field_bool(body, "", "stream", &stream, e);

	if (r == 0)
		r = field_set_new(chat, "stream", json_boolean(stream), e);
	if (r == 0)
		r = fields_copy(body, chat, taken, ARRAY_SIZE(taken), e);
	if (r == 0)
		r = field_bool(body, "", "logprobs", &logprobs, e);
	if (r == 0)
		r = field_int(body, "", "top_logprobs", 0, TOP_LOGPROBS_MAX, &top, e);
	/* Without logprobs it has no effect here, and would be an error in a chat. */
	if (r == 0 && logprobs)
		r = field_set_new(chat, "top_logprobs", json_integer(top), e);
	if (r == 0)
		r = ollama_options_convert(body, chat, e);
	if (r == 0)
		r = add_format(body, chat, e);
	return r;
}

/* ---- errands ---- */

/* Reads keep_alive, a number of seconds or a text such as "5m" or "-1". *ret_zero: it is 0. */
static int parse_keep_alive(const json_t *body, bool *ret_zero, struct err *e)
{
	const json_t *v = field_get(body, "keep_alive");
	const char *text = json_string_value(v);

	*ret_zero = false;
	if (!v)
		return 0;
	if (json_is_number(v))
		*ret_zero = json_number_value(v) == 0;
	else if (text && strpbrk(text, "0123456789") &&
		 strspn(text, "+-.0123456789hmsnu\xc2\xb5\xce\xbc") == json_string_length(v))
		*ret_zero = !strpbrk(text, "123456789");
	else
		return field_wrong(e, "", "keep_alive", v,
				   "a number of seconds or a duration such as \"5m\"");
	return 0;
}

/* Reads the model's name, which must be given, into the arena. */
static int parse_model(const json_t *body, struct arena *arena, const char **ret, struct err *e)
{
	const json_t *model = NULL;
	int r = field_string(body, "", "model", &model, e);

	if (r == 0 && !json_string_length(model))
		return field_wrong(e, "", "model", NULL, "the name of a model");
	if (r < 0)
		return r;
	return request_model(body, arena, ret, e);
}

/* Makes the request of a body without `source`, its messages or prompt. */
static int parse_errand(const json_t *body, const char *model, const char *source,
			struct openai_request *ret, struct err *e)
{
	bool unloads;
	int r = parse_keep_alive(body, &unloads, e);

	if (r < 0)
		return r;
	*ret = (struct openai_request){.model = model,
				       .source = source,
				       .errand = unloads ? "unload" : "load"};
	return 0;
}

/* ---- bodies ---- */

/* Sets what holds for every request of this API. */
static int finish(struct arena *arena, struct openai_request *r, struct err *e)
{
	r->clamp = true;
	if (!r->constraint)
		return 0;
	r->constraint = arena_strdup(arena, "format");
	return r->constraint ? 0 : err_no_memory(e);
}

/* Reads a chat that was made of a body. */
static int read_chat(const json_t *body, const json_t *chat, const struct request_kind *kind,
		     const json_t *prefill, const struct pace *pace,
		     const struct openai_limits *limits, struct arena *arena,
		     struct openai_request *ret, struct err *e)
{
	struct openai_request request;
	bool unloads;
	int r = parse_keep_alive(body, &unloads, e);

	if (r < 0)
		return r;
	r = request_read(chat, pace, kind, limits, arena, &request, e);
	if (r < 0) {
		ollama_options_name(e);
		return r;
	}
	r = request_prefill(prefill, "think", arena, &request, e);
	if (r == 0)
		r = finish(arena, &request, e);
	if (r < 0)
		openai_request_release(&request);
	else
		*ret = request;
	return r;
}

static const struct request_kind chat_kind = {
	.source = "messages",
	.least_tokens = 1,
	.stop = "stop",
	.logprobs = chat_logprobs,
	.prompts = chat_prompt,
};

/* A prompt that becomes a message. */
static const struct request_kind generate_kind = {
	.source = "prompt",
	.least_tokens = 1,
	.stop = "stop",
	.logprobs = chat_logprobs,
	.prompts = chat_prompt,
};

/* A prompt without template. */
static const struct request_kind raw_kind = {
	.source = "prompt",
	.least_tokens = 1,
	.stop = "stop",
	.logprobs = chat_logprobs,
	.prompts = completion_prompts,
};

static int parse_chat(const json_t *body, const struct pace *pace,
		      const struct openai_limits *limits, struct arena *arena,
		      struct openai_request *ret, struct err *e)
{
	json_t *chat CLEANUP_JSON = json_object(), *prefill CLEANUP_JSON = NULL;
	bool truncate = true;
	int r;

	if (!chat)
		return err_no_memory(e);
	r = field_bool(body, "", "truncate", &truncate, e);
	if (r == 0)
		r = convert_common(body, chat, e);
	if (r == 0)
		r = add_think(body, chat, e);
	if (r == 0)
		r = messages_of_chat(body, chat, &prefill, e);
	if (r == 0 && field_get(body, "tools"))
		r = field_set_new(chat, "tools", json_incref(field_get(body, "tools")), e);
	if (r == 0)
		r = read_chat(body, chat, &chat_kind, prefill, pace, limits, arena, ret, e);
	if (r == 0)
		ret->truncate = truncate;
	return r;
}

int ollama_parse_chat(const char *text, size_t len, const struct pace *pace,
		      const struct openai_limits *limits, struct arena *arena,
		      struct openai_request *ret, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	const json_t *messages;
	const char *model;
	int r = fields_load(text, len, pace, &body, e);

	if (r < 0)
		return r;
	messages = field_get(body, "messages");
	if (messages && !json_is_array(messages))
		return field_wrong(e, "", "messages", messages, "an array of messages");
	r = parse_model(body, arena, &model, e);
	if (r < 0)
		return r;
	return json_array_size(messages) ? parse_chat(body, pace, limits, arena, ret, e)
					 : parse_errand(body, model, chat_kind.source, ret, e);
}

static int check_generate(const json_t *body, bool raw, struct err *e)
{
	static const struct refused_field refused[] = {
		{"suffix", "the models continue a text and do not fill in its middle"},
		{"template", "the template is a program, and the model's own is run"},
		{"context", "answers have none; /api/chat takes the messages of a conversation"},
	};
	const json_t *system = field_get(body, "system");
	int r = fields_refuse(body, "", refused, ARRAY_SIZE(refused), e);

	if (r < 0)
		return r;
	if (raw && system && !field_asks_nothing(system))
		return err_param(e, EINVAL, "system",
				 "system and raw are both given, but a raw prompt has no messages");
	return messages_no_images(body, "", e);
}

static int parse_generate(const json_t *body, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e)
{
	json_t *chat CLEANUP_JSON = json_object();
	bool raw = false;
	int r;

	if (!chat)
		return err_no_memory(e);
	r = field_bool(body, "", "raw", &raw, e);
	if (r == 0)
		r = check_generate(body, raw, e);
	if (r == 0)
		r = convert_common(body, chat, e);
	if (r == 0)
		r = add_think(body, chat, e);
	if (r == 0)
		r = raw ? field_set_new(chat, "prompt", json_incref(field_get(body, "prompt")), e)
			: messages_of_prompt(body, chat, e);
	if (r < 0)
		return r;
	return read_chat(body, chat, raw ? &raw_kind : &generate_kind, NULL, pace, limits, arena,
			 ret, e);
}

int ollama_parse_generate(const char *text, size_t len, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	const json_t *prompt = NULL;
	const char *model;
	int r = fields_load(text, len, pace, &body, e);

	if (r == 0)
		r = parse_model(body, arena, &model, e);
	if (r == 0)
		r = field_string(body, "", "prompt", &prompt, e);
	if (r < 0)
		return r;
	return json_string_length(prompt) ? parse_generate(body, pace, limits, arena, ret, e)
					  : parse_errand(body, model, generate_kind.source, ret, e);
}

/* ---- vectors ---- */

/* Reads a body whose texts are the member `source`. */
static int read_texts(const json_t *body, const char *source, const struct openai_limits *limits,
		      struct arena *arena, struct openai_request *ret, struct err *e)
{
	/* Members that mean the same in a body of /v1/embeddings. */
	static const char *const same[] = {"model", "cache_prompt", "cache_salt", "priority"};
	struct openai_request request = {.source = source};
	json_t *vectors CLEANUP_JSON = json_object();
	int64_t dimensions = 0;
	bool truncate = true, unloads;
	int r = vectors ? parse_keep_alive(body, &unloads, e) : err_no_memory(e);

	if (r == 0)
		r = field_bool(body, "", "truncate", &truncate, e);
	if (r == 0)
		r = fields_copy(body, vectors, same, ARRAY_SIZE(same), e);
	if (r == 0)
		r = fields_copy(body, vectors, &source, 1, e);
	if (r == 0)
		r = field_int(body, "", "dimensions", 0, limits->hidden_size, &dimensions, e);
	if (r == 0 && dimensions)
		r = field_set_new(vectors, "dimensions", json_integer(dimensions), e);
	if (r == 0 && truncate)
		r = field_set_new(vectors, "truncate_prompt_tokens", json_integer(KEEP_FITTING), e);
	if (r == 0)
		r = embeddings_read(vectors, limits, arena, &request, e);
	if (r < 0)
		openai_request_release(&request);
	else
		*ret = request;
	return r;
}

int ollama_parse_embed(const char *text, size_t len, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *ret, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	const json_t *input;
	const char *model;
	int r = fields_load(text, len, pace, &body, e);

	if (r == 0)
		r = parse_model(body, arena, &model, e);
	if (r < 0)
		return r;
	input = field_get(body, "input");
	if (!input || (json_is_string(input) && !json_string_length(input)) ||
	    (json_is_array(input) && !json_array_size(input)))
		return parse_errand(body, model, "input", ret, e);
	return read_texts(body, "input", limits, arena, ret, e);
}

int ollama_parse_embeddings(const char *text, size_t len, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *ret, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	const json_t *prompt = NULL;
	const char *model;
	int r = fields_load(text, len, pace, &body, e);

	if (r == 0)
		r = parse_model(body, arena, &model, e);
	if (r == 0)
		r = field_string(body, "", "prompt", &prompt, e);
	if (r < 0)
		return r;
	return json_string_length(prompt) ? read_texts(body, "prompt", limits, arena, ret, e)
					  : parse_errand(body, model, "prompt", ret, e);
}

int ollama_parse_show(const char *text, size_t len, const struct pace *pace, struct arena *arena,
		      const char **ret_model, struct err *e)
{
	json_t *body CLEANUP_JSON = NULL;
	int r = fields_load(text, len, pace, &body, e);

	/* `name` is the older name of the member. */
	if (r == 0 && !field_get(body, "model") && field_get(body, "name"))
		r = field_set_new(body, "model", json_incref(field_get(body, "name")), e);
	return r < 0 ? r : parse_model(body, arena, ret_model, e);
}
