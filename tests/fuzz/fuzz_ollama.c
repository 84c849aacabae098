/* Bodies of Ollama's API: the first byte, '0' to '4', chooses the path, the rest is the body. The members of an accepted body must be
 * in the ranges that protocol/openai/request.h promises, and its messages in the form that templates expect; a refused
 * body must give a whole error body. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/ollama/errors.h"
#include "protocol/ollama/request.h"
#include "tests/fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHAT, GENERATE, SHOW, EMBED, EMBEDDINGS, PATHS };

static void check_context(const json_t *context)
{
	const json_t *messages = json_object_get(context, "messages");
	char *text = json_dumps(context, 0);

	CHECK(text && json_array_size(messages) > 0);
	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *m = json_array_get(messages, i);
		const json_t *calls = json_object_get(m, "tool_calls");
		const char *role = json_string_value(json_object_get(m, "role"));

		/* only the first may be a system message */
		CHECK(role && (i == 0 || strcmp(role, "system") != 0));
		CHECK(json_is_string(json_object_get(m, "content")));
		for (size_t k = 0; k < json_array_size(calls); k++)
			CHECK(json_string_length(json_object_get(
				      json_object_get(json_array_get(calls, k), "function"),
				      "name")) > 0);
	}
	CHECK(json_is_boolean(json_object_get(context, "enable_thinking")));
	free(text);
}

static void check_texts(const struct openai_request *r)
{
	CHECK(r->n_prompts >= 1 && r->n_prompts <= INPUTS_MAX && r->n == 1 && r->prompt_only);
	CHECK(r->embed.dimensions >= 1 && r->embed.dimensions <= 64 && !r->embed.base64);
	CHECK(r->embed.pooling == POOLING_LAST || r->embed.pooling == POOLING_MEAN);
	CHECK(r->keep_tokens == 0 || r->keep_tokens == KEEP_FITTING);
	for (size_t i = 0; i < r->n_prompts; i++)
		CHECK(r->prompts[i].text ? r->prompts[i].text_len : r->prompts[i].ids.len);
}

static void check_request(const struct openai_request *r)
{
	const struct sampling *s = &r->sampling;

	CHECK(r->model && *r->model);
	if (r->errand) {
		CHECK(!r->context && !r->n_prompts);
		return;
	}
	if (r->task == TASK_EMBED) {
		check_texts(r);
		return;
	}
	CHECK(s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1);
	CHECK(s->top_k >= 0 && s->n_logprobs <= 20 && (s->want_logprobs || !s->n_logprobs));
	CHECK(r->n == 1 && r->n_stops <= STOPS_MAX && r->clamp && !r->echo && !r->return_token_ids);
	CHECK(!r->prefill || (r->prefill_len && !r->thinking));
	CHECK(!r->grammar || r->constraint);
	CHECK(!r->context == (r->n_prompts == 1));
	if (r->context)
		check_context(r->context);
	else
		CHECK(r->prompts[0].text && r->prompts[0].text_len);
}

static void check_error(int r, const struct err *e)
{
	struct buf out;
	json_t *body;

	CHECK((r == -EINVAL || r == -PROBLEM_UNSUPPORTED || r == -ENOMEM) && e->code == -r &&
	      e->text[0]);
	buf_init(&out, 1 << 16);
	CHECK(ollama_error(e, &out) == (r == -ENOMEM ? 503 : 400));
	body = json_loadb(out.data, out.len, 0, NULL);
	CHECK(json_string_length(json_object_get(body, "error")) > 0);
	json_decref(body);
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct openai_limits limits = {
		.vocab_size = 1000,
		.hidden_size = 64,
		.max_model_len = 4096,
		.pooling = POOLING_LAST,
		.max_choices = 8,
		.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
	};
	static int (*const parsers[PATHS])(const char *body, size_t len, const struct pace *pace,
					   const struct openai_limits *limits, struct arena *arena,
					   struct openai_request *ret, struct err *e) = {
		[CHAT] = ollama_parse_chat,
		[GENERATE] = ollama_parse_generate,
		[EMBED] = ollama_parse_embed,
		[EMBEDDINGS] = ollama_parse_embeddings,
	};
	const char *body = (const char *)data + 1, *model = NULL;
	struct openai_request request;
	struct arena arena;
	struct err e;
	int path, r;

	if (!size)
		return 0;
	path = (uint8_t)(data[0] - '0') % PATHS;
	arena_init(&arena, 1 << 20);
	if (path == SHOW)
		r = ollama_parse_show(body, size - 1, NULL, &arena, &model, &e);
	else
		r = parsers[path](body, size - 1, NULL, &limits, &arena, &request, &e);
	if (r < 0) {
		check_error(r, &e);
	} else if (path == SHOW) {
		CHECK(model && *model);
	} else {
		check_request(&request);
		openai_request_release(&request);
	}
	arena_release(&arena);
	return 0;
}
