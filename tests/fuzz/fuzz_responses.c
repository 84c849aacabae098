/* Bodies of /v1/responses. Whatever they are: an accepted one has messages that a template can take, and fields that
 * are JSON; a refused one has one sentence. The input that is kept is read again as an earlier response's. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/errors.h"
#include "protocol/responses/list.h"
#include "protocol/responses/request.h"
#include "tests/fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCABULARY = 1000 };

static int recall(void *arg, const char *id, struct buf *out, struct err *e)
{
	const struct buf *items = arg;

	if (id[0] == 'x')
		return err_param(e, PROBLEM_UNKNOWN_PREVIOUS, "previous_response_id", "unknown");
	buf_append(out, buf_str(items), items->len);
	return 0;
}

/* Checks that a list of members or items, in brackets, is JSON. */
static void check_json(const char *open, const char *text, size_t len, const char *close)
{
	struct buf b;
	json_t *v;

	buf_init(&b, 1 << 24);
	buf_puts(&b, open);
	buf_append(&b, text, len);
	buf_puts(&b, close);
	v = json_loadb(buf_str(&b), b.len, JSON_ALLOW_NUL, NULL);
	CHECK(v && !b.failed);
	json_decref(v);
	buf_release(&b);
}

/* A chat fits with at most so many messages, and always has one. */
struct fit {
	const json_t *context;
	size_t most;
};

static int fits(void *arg, struct err *e)
{
	const struct fit *f = arg;
	const size_t n = json_array_size(json_object_get(f->context, "messages"));

	CHECK(n > 0);
	return n <= f->most ? 0 : err_set(e, PROBLEM_CONTEXT_LENGTH, "too many");
}

static void check_request(struct openai_request *r)
{
	const json_t *messages = json_object_get(r->context, "messages");
	struct fit fit = {.context = r->context};
	struct err e;
	const struct responses_request *own = r->responses;

	CHECK(json_array_size(messages) > 0 && own);
	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *m = json_array_get(messages, i);
		const char *role = json_string_value(json_object_get(m, "role"));

		CHECK(role && (i == 0 || role[0] != 's'));
		CHECK(json_is_string(json_object_get(m, "content")));
	}
	CHECK(r->n == 1 && !r->return_token_ids && !r->prompt_logprobs && !r->echo);
	CHECK(r->sampling.n_logprobs <= TOP_LOGPROBS_MAX);
	CHECK(r->tools.n <= json_array_size(json_object_get(r->context, "tools")));
	CHECK(r->tool_choice != TOOL_CHOICE_NONE || !r->tools.n);
	check_json("{", own->fields, own->fields_len, "}");
	CHECK(!own->input == !own->store);
	if (own->store)
		check_json("[", own->input, own->input_len, "]");
	fit.most = json_array_size(messages) / 2;
	CHECK(openai_truncate(r->context, fits, &fit, &e) ==
	      (json_array_size(json_object_get(r->context, "messages")) <= fit.most
		       ? 0
		       : -PROBLEM_CONTEXT_LENGTH));
}

static void check_error(int r, const struct err *e)
{
	struct buf out;

	CHECK((r == -EINVAL || r == -PROBLEM_UNSUPPORTED || r == -PROBLEM_UNKNOWN_PREVIOUS ||
	       r == -ENOMEM) &&
	      e->code == -r && e->text[0]);
	buf_init(&out, 1 << 16);
	CHECK(openai_error(e, &out) == (r == -ENOMEM ? 503 : 400));
	buf_release(&out);
}

static int parse(const char *body, size_t len, struct buf *earlier, struct buf *kept)
{
	const struct openai_limits limits = {
		.vocab_size = VOCABULARY,
		.max_choices = 8,
		.defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
		.recall = recall,
		.recall_arg = earlier,
	};
	struct openai_request request;
	struct arena arena;
	struct err e;
	int r;

	arena_init(&arena, 1 << 22);
	r = responses_parse(body, len, NULL, &limits, &arena, &request, &e);
	if (r == 0) {
		check_request(&request);
		if (kept && request.responses->store)
			buf_append(kept, request.responses->input, request.responses->input_len);
		openai_request_release(&request);
	} else {
		check_error(r, &e);
	}
	arena_release(&arena);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char again[] = "{\"previous_response_id\":\"r\",\"input\":\"and?\"}";
	struct responses_page page = {.limit = size ? 1 + data[0] % 7 : 1};
	struct buf none, kept, out;
	struct err e;

	buf_init(&none, 16);
	buf_init(&kept, 1 << 24);
	buf_init(&out, 1 << 24);
	if (parse((const char *)data, size, &none, &kept) == 0 && kept.len) {
		const struct response_text text = {buf_str(&kept), kept.len};

		CHECK(parse(again, sizeof(again) - 1, &kept, NULL) == 0);
		page.rising = data[0] & 8;
		CHECK(responses_list(&text, 1, &page, NULL, &out, &e) == 0);
		check_json("", buf_str(&out), out.len, "");
	}
	buf_release(&none);
	buf_release(&kept);
	buf_release(&out);
	return 0;
}
