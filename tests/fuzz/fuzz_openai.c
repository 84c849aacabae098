/* Bodies of requests: the first byte chooses the kind (from 0x80 on one that draws nothing), the rest is the body. The
 * members of an accepted body must be in the ranges that protocol/openai/request.h promises; a refused body must give a
 * whole error body. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/problem.h"
#include "protocol/openai/embeddings.h"
#include "protocol/openai/errors.h"
#include "protocol/openai/request.h"
#include "protocol/openai/scores.h"
#include "protocol/openai/tokenize.h"
#include "protocol/openai/writer.h"
#include "tests/fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCABULARY = 1000, CHOICES = 8, HIDDEN = 32 };

static bool ids_fit(const struct ids *ids)
{
	for (size_t i = 0; i < ids->len; i++)
		if (ids->v[i] < 0 || ids->v[i] >= VOCABULARY)
			return false;
	return true;
}

static void check_context(const json_t *context)
{
	const json_t *messages = json_object_get(context, "messages");
	char *text = json_dumps(context, 0);

	CHECK(text && json_array_size(messages) > 0);
	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *m = json_array_get(messages, i);
		const char *role = json_string_value(json_object_get(m, "role"));

		/* only the first may be a system message */
		CHECK(role && (i == 0 || role[0] != 's'));
		CHECK(json_is_string(json_object_get(m, "content")));
	}
	CHECK(json_is_boolean(json_object_get(context, "enable_thinking")));
	CHECK(json_is_boolean(json_object_get(context, "add_generation_prompt")));
	free(text);
}

static void check_prompts(const struct openai_request *r)
{
	CHECK(!r->context && r->n_prompts >= 1 && r->n_prompts <= INPUTS_MAX);
	for (size_t i = 0; i < r->n_prompts; i++) {
		const struct openai_prompt *p = &r->prompts[i];

		CHECK(p->text ? p->text_len && !p->text[p->text_len] : p->ids.len > 0);
		CHECK(ids_fit(&p->ids));
		CHECK(!p->behind == (r->task != TASK_SCORE) && !p->behind == !p->behind_len);
	}
}

/* Checks a request that draws nothing. */
static void check_undrawn(const struct openai_request *r)
{
	CHECK(r->task != TASK_GENERATE && r->n == 1 && r->prompt_only && !r->stream);
	CHECK(!r->grammar && !r->n_stops && !r->sampling.want_logprobs && r->has_seed);
	CHECK(!r->cache_salt == !r->cache_salt_len && r->cache_salt_len <= CACHE_SALT_MAX);
	if (r->task == TASK_EMBED)
		CHECK(r->embed.pooling && r->embed.dimensions && r->embed.dimensions <= HIDDEN);
	check_prompts(r);
}

static void check_request(const struct openai_request *r)
{
	const struct sampling *s = &r->sampling;

	CHECK(s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1);
	CHECK(s->min_p >= 0 && s->min_p <= 1 && s->top_k >= 0 && s->repetition_penalty > 0);
	CHECK(s->presence_penalty >= -2 && s->presence_penalty <= 2);
	CHECK(s->frequency_penalty >= -2 && s->frequency_penalty <= 2);
	CHECK(s->n_logprobs <= TOP_LOGPROBS_MAX && (s->want_logprobs || !s->n_logprobs));
	CHECK(r->n >= 1 && r->n <= CHOICES && r->n_stops <= STOPS_MAX);
	CHECK(!r->max_tokens || r->min_tokens <= r->max_tokens);
	CHECK(r->stream || !r->include_usage);
	CHECK(r->include_usage || !r->continuous_usage);
	CHECK(r->n_prompt_logprobs <= TOP_LOGPROBS_MAX && !(r->stream && r->prompt_logprobs));
	CHECK(r->prompt_logprobs || !r->n_prompt_logprobs);
	CHECK(!r->prompt_only || (!r->max_tokens && !r->min_tokens));
	CHECK(!r->cache_salt == !r->cache_salt_len && r->cache_salt_len <= CACHE_SALT_MAX);
	for (size_t i = 0; i < r->n_stops; i++)
		CHECK(r->stops[i][0]);
	CHECK(ids_fit(&r->stop_token_ids) && ids_fit(&r->allowed));
	CHECK(r->n_biases <= PLAN_BIASES_MAX && (r->grammar || !r->constraint));
	for (uint32_t i = 0; i < r->n_biases; i++)
		CHECK(r->biases[i].token >= (i ? r->biases[i - 1].token + 1 : 0) &&
		      r->biases[i].token < VOCABULARY && r->biases[i].value >= -BIAS_MAX &&
		      r->biases[i].value <= BIAS_MAX);
	for (size_t i = 0; i < r->n_bad_words; i++)
		CHECK(r->bad_words[i].len && r->bad_words[i].len <= BAD_WORD_BYTES_MAX);
	CHECK(!r->only_tool || (r->tools.n && r->one_call && r->grammar));
	CHECK(r->tools.n <= json_array_size(json_object_get(r->context, "tools")));
	CHECK(r->tool_choice != TOOL_CHOICE_NONE || !r->tools.n);
	for (size_t i = 0; i < r->tools.n; i++) {
		const struct tool *t = &r->tools.v[i];

		CHECK(t->name[0]);
		for (size_t k = 0; k < t->n_parameters; k++)
			CHECK(t->parameters[k].name && t->parameters[k].types);
	}
	if (r->context) {
		check_context(r->context);
		return;
	}
	check_prompts(r);
}

static void check_error(int r, const struct err *e)
{
	struct buf out;
	json_t *body;

	CHECK((r == -EINVAL || r == -PROBLEM_UNSUPPORTED || r == -ENOMEM) && e->code == -r &&
	      e->text[0]);
	buf_init(&out, 1 << 16);
	CHECK(openai_error(e, &out) == (r == -ENOMEM ? 503 : 400));
	body = json_loadb(out.data, out.len, 0, NULL);
	CHECK(body);
	json_decref(body);
	buf_release(&out);
}

/* Checks that any bytes make a valid JSON string. */
static void check_string(const char *text, size_t len)
{
	struct buf out;
	json_t *string;

	buf_init(&out, 1 << 24);
	writer_string(&out, text, len);
	string = json_loadb(out.data, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	CHECK(json_is_string(string));
	json_decref(string);
	buf_release(&out);
}

static int undrawn(uint8_t kind, const char *body, size_t size, const struct openai_limits *limits,
		   struct arena *arena, struct err *e)
{
	struct openai_request request;
	int r;

	if (kind & 1)
		r = openai_parse_score(body, size, NULL, limits, arena, &request, e);
	else if (kind & 2)
		r = openai_parse_rerank(body, size, NULL, limits, arena, &request, e);
	else
		r = openai_parse_embeddings(body, size, NULL, limits, arena, &request, e);
	if (r < 0)
		return r;
	check_undrawn(&request);
	openai_request_release(&request);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct openai_limits limits = {
		.vocab_size = VOCABULARY,
		.max_model_len = VOCABULARY,
		.hidden_size = HIDDEN,
		.pooling = POOLING_LAST,
		.max_choices = CHOICES,
		.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
	};
	struct openai_request request;
	struct openai_tokenize tokenize;
	struct openai_detokenize detokenize;
	const char *body = (const char *)data + 1;
	struct arena arena;
	struct err e;
	int r;

	if (!size)
		return 0;
	size--;
	/* Further bits choose the format of tool calls, or none. */
	if (data[0] >> 2 & 7 && (data[0] >> 2 & 7) < 6)
		limits.tools = tools_format_at((data[0] >> 2 & 7) - 1);
	arena_init(&arena, 1 << 20);
	switch (data[0] & 0x80 ? 4 : data[0] & 3) {
	case 4: r = undrawn(data[0], body, size, &limits, &arena, &e); break;
	case 0:
	case 1:
		r = (data[0] & 1 ? openai_parse_completion : openai_parse_chat)(body, size, NULL,
										&limits, &arena,
										&request, &e);
		if (r == 0) {
			check_request(&request);
			openai_request_release(&request);
		}
		break;
	case 2:
		r = openai_parse_tokenize(body, size, NULL, &limits, &arena, &tokenize, &e);
		if (r == 0) {
			CHECK(!tokenize.prompt == !!tokenize.context);
			if (tokenize.context)
				check_context(tokenize.context);
			openai_tokenize_release(&tokenize);
		}
		break;
	default:
		r = openai_parse_detokenize(body, size, NULL, VOCABULARY, &arena, &detokenize, &e);
		if (r == 0) {
			CHECK(ids_fit(&detokenize.ids));
			openai_detokenize_release(&detokenize);
		}
	}
	if (r < 0)
		check_error(r, &e);
	check_string(body, size);
	arena_release(&arena);
	return 0;
}
