#include "protocol/openai/request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/grammar.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

/* Parameters of OpenAI, vLLM, SGLang and llama.cpp that would change the answer and are not supported. Their values
 * null, false, 0, "", [] and {}, which have no effect, are accepted. */
static const struct refused_field refused[] = {
	{"audio", "answers are text"},
	{"chat_template", "the template is a program, and the model's own is run"},
	{"documents", "a template that reads documents takes them from chat_template_kwargs"},
	{"dry_multiplier", "the draw has no such sampler"},
	{"dynatemp_range", "the draw has no such sampler"},
	{"function_call", "tool_choice is the newer one"},
	{"functions", "tools is the newer one"},
	{"logits_processors", "it names code that the server would run"},
	{"logprob_token_ids", "log-probabilities are of the drawn token and of the likeliest"},
	{"mirostat", "the draw has no such sampler"},
	{"prompt_embeds", "prompts are text or token ids"},
	{"suffix", "the models continue a text and do not fill in its middle"},
	{"thinking_token_budget", "the reasoning has no bound of its own; max_tokens bounds all"},
	{"use_beam_search", "answers are drawn, and best_of picks the likeliest"},
	{"xtc_probability", "the draw has no such sampler"},
};

/* Of the API's parameters, this one asks for something when it is an empty object. */
static const struct refused_field search_refused[] = {
	{"web_search_options", "the server has no tools of its own"},
};

/* Parameters whose default is true; only true is supported. */
static const char *const always_on[] = {"include_reasoning", "skip_special_tokens"};

int request_always_on(const json_t *body, const char *name, struct err *e)
{
	bool on = true;
	int r = field_bool(body, "", name, &on, e);

	if (r == 0 && !on)
		return err_param(e, PROBLEM_UNSUPPORTED, name,
				 "%s false is not supported by this server", name);
	return r;
}

static int check_refused(const json_t *body, const struct request_kind *kind, struct err *e)
{
	const json_t *web = field_get(body, "web_search_options");
	int r = fields_refuse(body, "", refused, ARRAY_SIZE(refused), e);

	if (r < 0)
		return r;
	if (web && (json_is_object(web) || !field_asks_nothing(web)))
		return field_refuse(e, "", search_refused);
	for (size_t i = 0; i < ARRAY_SIZE(always_on); i++) {
		r = request_always_on(body, always_on[i], e);
		if (r < 0)
			return r;
	}
	if (!kind->echo && json_is_true(json_object_get(body, "echo")))
		return err_param(e, PROBLEM_UNSUPPORTED, "echo",
				 "echo is supported in completions alone");
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
		if (!field_is(json_array_get(v, i), "text"))
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

int request_queue_and_cache(const json_t *body, struct arena *arena, struct openai_request *r,
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

int request_truncation(const json_t *body, const struct openai_limits *limits,
		       struct openai_request *r, struct err *e)
{
	int64_t n = 0;
	char want[64];

	if (!field_get(body, "truncate_prompt_tokens"))
		return 0;
	snprintf(want, sizeof(want), "-1 or a whole number from 1 to %" PRIu32,
		 limits->max_model_len);
	if (field_int(body, "", "truncate_prompt_tokens", KEEP_FITTING, limits->max_model_len, &n,
		      NULL) < 0 ||
	    !n)
		return field_wrong(e, "", "truncate_prompt_tokens",
				   field_get(body, "truncate_prompt_tokens"), want);
	r->keep_tokens = (int32_t)n;
	return 0;
}

int request_prefill(const json_t *text, const char *thinking, struct arena *arena,
		    struct openai_request *r, struct err *e)
{
	if (!json_string_length(text))
		return 0;
	if (r->thinking)
		return err_param(e, EINVAL, thinking,
				 "thinking is on, but the last message is the assistant's, with "
				 "which the answer would begin");
	r->prefill_len = json_string_length(text);
	r->prefill = arena_strndup(arena, json_string_value(text), r->prefill_len);
	return r->prefill ? 0 : err_no_memory(e);
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
	if (!word_of(model))
		return err_param(e, EINVAL, "model", "model has a NUL, which no name has");
	if (json_string_length(model) > MODEL_NAME_MAX)
		return err_param(e, EINVAL, "model", "model has %zu bytes, but may have at most %d",
				 json_string_length(model), MODEL_NAME_MAX);
	*ret = arena_strndup(arena, json_string_value(model), json_string_length(model));
	return *ret ? 0 : err_no_memory(e);
}

int request_undrawn(const json_t *body, enum openai_task task, struct arena *arena,
		    struct openai_request *r, struct err *e)
{
	int ret;

	r->task = task;
	r->n = r->best_of = 1;
	r->prompt_only = r->has_seed = r->add_special_tokens = true;
	r->sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1};
	ret = request_model(body, arena, &r->model, e);
	if (ret == 0)
		ret = field_bool(body, "", "add_special_tokens", &r->add_special_tokens, e);
	return ret < 0 ? ret : request_queue_and_cache(body, arena, r, e);
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
		ret = field_bool(body, "", "return_tokens_as_token_ids", &r->tokens_as_ids, e);
	if (ret == 0)
		ret = request_queue_and_cache(body, arena, r, e);
	if (ret == 0)
		ret = request_truncation(body, limits, r, e);
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

int request_parse_undrawn(const char *text, size_t len, const struct pace *pace, const char *source,
			  int (*read)(const json_t *body, const struct openai_limits *limits,
				      struct arena *arena, struct openai_request *r, struct err *e),
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e)
{
	struct openai_request request = {.source = source};
	json_t *body CLEANUP_JSON = NULL;
	int r = fields_load(text, len, pace, &body, e);

	if (r == 0)
		r = read(body, limits, arena, &request, e);
	if (r < 0)
		openai_request_release(&request);
	else
		*ret = request;
	return r;
}

void openai_prompt_name(const struct openai_request *r, size_t i, bool behind,
			char ret[ERR_PARAM_MAX])
{
	const char *source = behind ? r->score.source : r->source;
	const size_t n = behind ? r->score.n_listed : r->n_listed;

	if (n)
		snprintf(ret, ERR_PARAM_MAX, "%s[%zu]", source, n > 1 ? i : 0);
	else
		snprintf(ret, ERR_PARAM_MAX, "%s", source);
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
