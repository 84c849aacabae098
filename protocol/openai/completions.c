/* Reads the body of /v1/completions: its prompts, which are a string, [string], [id] or [[id]]; echo; logprobs. */
#include <errno.h>
#include <stdio.h>

#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"

#define PROMPT_WANT \
	"a string, an array of strings, an array of token ids or an array of such arrays"

int prompt_text(const json_t *v, const char *path, struct openai_prompt *ret, struct err *e)
{
	if (!json_is_string(v))
		return field_wrong(e, path, "", v, "a string like the others");
	if (!json_string_length(v))
		return err_param(e, EINVAL, path, "%s is empty, but must have at least one token",
				 path);
	ret->text_len = json_string_length(v);
	ret->text = json_string_value(v);
	return 0;
}

static int ids_prompt(const json_t *v, const char *path, uint32_t vocab, struct openai_prompt *ret,
		      struct err *e)
{
	int r = field_ids(v, path, vocab, SIZE_MAX, &ret->ids, e);

	if (r == 0 && !ret->ids.len)
		return err_param(e, EINVAL, path, "%s is empty, but must have at least one token",
				 path);
	return r;
}

/* Reads echo, and max_tokens 0. */
static int parse_echo(const json_t *body, struct openai_request *r, struct err *e)
{
	int ret = field_bool(body, "", "echo", &r->echo, e);

	if (ret < 0 || r->max_tokens || !field_get(body, "max_tokens"))
		return ret;
	if (r->min_tokens)
		return err_param(e, EINVAL, "min_tokens",
				 "min_tokens is %u, but may be at most max_tokens, 0",
				 r->min_tokens);
	r->prompt_only = true;
	return 0;
}

int prompt_list(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		struct openai_request *r, struct err *e)
{
	const json_t *prompt = field_get(body, r->source), *first = json_array_get(prompt, 0);
	bool list = json_is_string(first) || json_is_array(first);
	bool texts = json_is_string(list ? first : prompt);
	const size_t n = list ? json_array_size(prompt) : 1,
		     most = r->task == TASK_EMBED ? INPUTS_MAX : PROMPTS_MAX;
	int ret = 0;

	if (!prompt || (!json_is_string(prompt) && !json_is_array(prompt)))
		return field_wrong(e, "", r->source, prompt, PROMPT_WANT);
	if (n > most)
		return err_param(e, EINVAL, r->source,
				 "%s has %zu prompts, but may have at most %zu", r->source, n,
				 most);
	r->prompts = arena_array(arena, n, sizeof(*r->prompts));
	if (!r->prompts)
		return err_no_memory(e);
	r->n_prompts = n;
	r->n_listed = list ? n : 0;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = list ? json_array_get(prompt, i) : prompt;
		char path[ERR_PARAM_MAX];

		openai_prompt_name(r, i, false, path);
		if (texts)
			ret = prompt_text(v, path, &r->prompts[i], e);
		else
			ret = ids_prompt(v, path, limits->vocab_size, &r->prompts[i], e);
		if (ret < 0)
			return ret;
	}
	if (texts)
		r->texts = json_incref((json_t *)prompt);
	return 0;
}

int completion_prompts(const json_t *body, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *r, struct err *e)
{
	int ret;

	r->add_special_tokens = true;
	ret = field_bool(body, "", "add_special_tokens", &r->add_special_tokens, e);
	if (ret == 0)
		ret = parse_echo(body, r, e);
	return ret < 0 ? ret : prompt_list(body, limits, arena, r, e);
}

/* Reads logprobs. In completions it is the number of best tokens to list, and turns log-probabilities on. */
static int completion_logprobs(const json_t *body, struct openai_request *r, struct err *e)
{
	int64_t top = 0;
	int ret = field_int(body, "", "logprobs", 0, TOP_LOGPROBS_MAX, &top, e);

	r->sampling.want_logprobs = field_get(body, "logprobs") != NULL;
	r->sampling.n_logprobs = (uint8_t)top;
	return ret;
}

int openai_parse_completion(const char *body, size_t len, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *ret, struct err *e)
{
	static const struct request_kind kind = {
		.source = "prompt",
		.echo = true, /* least_tokens is 0 (parse_echo) */
		.best_of = true,
		.stop = "stop",
		.logprobs = completion_logprobs,
		.prompts = completion_prompts,
	};

	return request_parse(body, len, pace, &kind, limits, arena, ret, e);
}
