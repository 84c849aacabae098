#include "protocol/openai/request.h"

#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/grammar.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"

/* Parameters of OpenAI, vLLM, SGLang and llama.cpp that would change the answer and are not supported. Their values
 * null, false, 0, "", [] and {}, which have no effect, are accepted. */
static const char *const refused[] = {
	"audio",
	"chat_template",
	"continue_final_message",
	"documents",
	"dry_multiplier",
	"dynatemp_range",
	"function_call",
	"functions",
	"include_stop_str_in_output",
	"logits_processors",
	"logprob_token_ids",
	"mirostat",
	"prompt_embeds",
	"return_tokens_as_token_ids",
	"suffix",
	"thinking_token_budget",
	"truncate_prompt_tokens",
	"use_beam_search",
	"web_search_options",
	"xtc_probability",
};

/* Parameters whose default is true; only true is supported. */
static const char *const always_on[] = {"include_reasoning", "skip_special_tokens"};

static int not_supported(struct err *e, const char *name)
{
	return err_param(e, PROBLEM_UNSUPPORTED, name, "%s is not supported by this server", name);
}

static int check_refused(const json_t *body, const struct request_kind *kind, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		const json_t *v = field_get(body, refused[i]);

		if (v && !field_asks_nothing(v))
			return not_supported(e, refused[i]);
	}
	/* Of the API's parameters, this one asks for something when it is an empty object. */
	if (json_is_object(json_object_get(body, "web_search_options")))
		return not_supported(e, "web_search_options");
	for (size_t i = 0; i < ARRAY_SIZE(always_on); i++) {
		bool on = true;
		int r = field_bool(body, "", always_on[i], &on, e);

		if (r < 0)
			return r;
		if (!on)
			return err_param(e, PROBLEM_UNSUPPORTED, always_on[i],
					 "%s false is not supported by this server", always_on[i]);
	}
	if (!kind->echo && json_is_true(json_object_get(body, "echo")))
		return err_param(e, PROBLEM_UNSUPPORTED, "echo", "echo is not supported in chat");
	return 0;
}

static int check_modalities(const json_t *body, struct err *e)
{
	const json_t *v = field_get(body, "modalities");

	if (!v)
		return 0;
	if (!json_is_array(v))
		return field_wrong(e, "", "modalities", v, "an array");
	for (size_t i = 0; i < json_array_size(v); i++) {
		const char *one = json_string_value(json_array_get(v, i));

		if (!one || strcmp(one, "text"))
			return err_param(e, PROBLEM_UNSUPPORTED, "modalities",
					 "modalities other than text are not supported");
	}
	return 0;
}

static int stream_parse(const json_t *body, struct openai_request *r, struct err *e)
{
	const json_t *options = field_get(body, "stream_options");
	int ret;

	ret = field_bool(body, "", "stream", &r->stream, e);
	if (ret < 0)
		return ret;
	if (!options)
		return 0;
	if (!json_is_object(options))
		return field_wrong(e, "", "stream_options", options, "an object");
	if (!r->stream)
		return err_param(e, EINVAL, "stream_options",
				 "stream_options is given, but only allowed when stream is true");
	ret = field_bool(options, "stream_options.", "continuous_usage_stats", &r->continuous_usage,
			 e);
	if (ret < 0)
		return ret;
	r->include_usage = r->continuous_usage;
	ret = field_bool(options, "stream_options.", "include_usage", &r->include_usage, e);
	r->continuous_usage &= r->include_usage;
	return ret;
}

/* Reads llama.cpp's cache_prompt, vLLM's cache_salt and priority. */
static int queue_and_cache(const json_t *body, struct arena *arena, struct openai_request *r,
			   struct err *e)
{
	const json_t *salt = NULL;
	int64_t priority = 0;
	int ret;

	r->cache_prompt = true;
	ret = field_int(body, "", "priority", INT32_MIN, INT32_MAX, &priority, e);
	if (ret == 0)
		ret = field_bool(body, "", "cache_prompt", &r->cache_prompt, e);
	if (ret == 0)
		ret = field_string(body, "", "cache_salt", &salt, e);
	if (ret < 0)
		return ret;
	r->priority = (int32_t)priority;
	if (!salt)
		return 0;
	r->cache_salt_len = json_string_length(salt);
	/* An empty salt may mean that a client has lost its secret. Refusing the request is better than sharing its
	 * prefixes with the clients that give no salt. */
	if (!r->cache_salt_len || r->cache_salt_len > CACHE_SALT_MAX)
		return err_param(e, EINVAL, "cache_salt",
				 "cache_salt has %zu bytes, but must have 1 to %d",
				 r->cache_salt_len, CACHE_SALT_MAX);
	r->cache_salt = arena_strndup(arena, json_string_value(salt), r->cache_salt_len);
	return r->cache_salt ? 0 : err_no_memory(e);
}

int request_model(const json_t *body, struct arena *arena, const char **ret, struct err *e)
{
	const json_t *model = NULL;
	int r = field_string(body, "", "model", &model, e);

	if (r < 0)
		return r;
	*ret = NULL;
	if (!model)
		return 0;
	if (strlen(json_string_value(model)) != json_string_length(model))
		return err_param(e, EINVAL, "model", "model has a NUL, which no name has");
	if (json_string_length(model) > MODEL_NAME_MAX)
		return err_param(e, EINVAL, "model", "model has %zu bytes, but may have at most %d",
				 json_string_length(model), MODEL_NAME_MAX);
	*ret = arena_strndup(arena, json_string_value(model), json_string_length(model));
	return *ret ? 0 : err_no_memory(e);
}

static int parse_object(const json_t *body, const struct pace *pace,
			const struct request_kind *kind, const struct openai_limits *limits,
			struct arena *arena, struct openai_request *r, struct err *e)
{
	int ret;

	ret = request_model(body, arena, &r->model, e);
	if (ret == 0)
		ret = check_refused(body, kind, e);
	if (ret == 0)
		ret = check_modalities(body, e);
	if (ret == 0)
		ret = stream_parse(body, r, e);
	if (ret == 0)
		ret = field_bool(body, "", "return_token_ids", &r->return_token_ids, e);
	if (ret == 0)
		ret = queue_and_cache(body, arena, r, e);
	if (ret == 0)
		ret = sampling_parse(body, kind, limits, arena, r, e);
	if (ret == 0)
		ret = kind->prompts(body, pace, limits, arena, r, e);
	return ret < 0 ? ret : constraint_parse(body, pace, kind, limits, arena, r, e);
}

int request_read(const json_t *body, const struct pace *pace, const struct request_kind *kind,
		 const struct openai_limits *limits, struct arena *arena,
		 struct openai_request *ret, struct err *e)
{
	struct openai_request request = {.source = kind->source};
	int r = parse_object(body, pace, kind, limits, arena, &request, e);

	if (r < 0)
		openai_request_release(&request);
	else
		*ret = request;
	return r;
}

int request_parse(const char *text, size_t len, const struct pace *pace,
		  const struct request_kind *kind, const struct openai_limits *limits,
		  struct arena *arena, struct openai_request *ret, struct err *e)
{
	json_t *body;
	int r;

	r = fields_load(text, len, pace, &body, e);
	if (r < 0)
		return r;
	r = request_read(body, pace, kind, limits, arena, ret, e);
	json_decref(body);
	return r;
}

void openai_request_release(struct openai_request *r)
{
	json_decref(r->context);
	json_decref(r->texts);
	r->context = r->texts = NULL;
	for (size_t i = 0; i < r->n_prompts; i++)
		ids_release(&r->prompts[i].ids);
	ids_release(&r->stop_token_ids);
	ids_release(&r->allowed);
	grammar_free(r->grammar);
	r->grammar = NULL;
}
