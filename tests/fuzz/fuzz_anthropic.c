/* Bodies of /v1/messages: the first byte chooses whether max_tokens is needed, the rest is the body. The members of an
 * accepted body must be in the ranges that protocol/openai/request.h promises, and its messages in the form that
 * templates expect; a refused body must give a whole error body. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/anthropic/errors.h"
#include "protocol/anthropic/request.h"
#include "tests/fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_call(const json_t *call)
{
	const json_t *function = json_object_get(call, "function");

	CHECK(json_is_string(json_object_get(call, "id")));
	CHECK(json_string_length(json_object_get(function, "name")) > 0);
	CHECK(json_is_object(json_object_get(function, "arguments")));
}

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
		CHECK(strcmp(role, "tool") || json_is_string(json_object_get(m, "tool_call_id")));
		for (size_t k = 0; k < json_array_size(calls); k++)
			check_call(json_array_get(calls, k));
	}
	CHECK(json_is_boolean(json_object_get(context, "enable_thinking")));
	CHECK(json_is_true(json_object_get(context, "add_generation_prompt")));
	CHECK(json_object_get(context, "preserve_thinking"));
	free(text);
}

static void check_request(const struct openai_request *r, bool counts)
{
	const struct sampling *s = &r->sampling;

	CHECK(s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1);
	CHECK(s->top_k >= 0 && !s->want_logprobs && !s->n_logprobs);
	CHECK(r->n == 1 && r->n_stops <= STOPS_MAX && r->clamp);
	CHECK(counts || r->prompt_only == !r->max_tokens);
	CHECK(!r->echo && !r->prompt_logprobs && !r->return_token_ids && !r->n_prompts);
	CHECK(r->continuous_usage == r->stream);
	CHECK(!r->prefill || (r->prefill_len && !r->thinking));
	CHECK(r->tools.n == (r->tool_choice == TOOL_CHOICE_NONE
				     ? 0
				     : json_array_size(json_object_get(r->context, "tools"))));
	check_context(r->context);
}

static void check_error(int r, const struct err *e)
{
	struct buf out;
	json_t *body;

	CHECK((r == -EINVAL || r == -PROBLEM_UNSUPPORTED || r == -ENOMEM) && e->code == -r &&
	      e->text[0]);
	buf_init(&out, 1 << 16);
	CHECK(anthropic_error(e, &out) == (r == -ENOMEM ? 503 : 400));
	body = json_loadb(out.data, out.len, 0, NULL);
	CHECK(json_is_string(json_object_get(json_object_get(body, "error"), "type")));
	json_decref(body);
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct openai_limits limits = {
		.vocab_size = 1000,
		.max_choices = 8,
		.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
	};
	struct openai_request request;
	struct arena arena;
	struct err e;
	int r;

	if (!size)
		return 0;
	arena_init(&arena, 1 << 20);
	r = (data[0] & 1 ? anthropic_parse_count
			 : anthropic_parse_messages)((const char *)data + 1, size - 1, NULL,
						     &limits, &arena, &request, &e);
	if (r < 0) {
		check_error(r, &e);
	} else {
		check_request(&request, data[0] & 1);
		openai_request_release(&request);
	}
	arena_release(&arena);
	return 0;
}
