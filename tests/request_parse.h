/* Parses bodies of requests for tests, whatever their API. Each test looks at the request that was read last (`r`) and
 * at the last error (`err`). */
#pragma once

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "protocol/openai/request.h"
#include "tests/impatient.h"
#include "tests/quoted.h"
#include "tests/tap.h"

/* A parser of bodies: openai_parse_chat and its like. */
typedef int parser(const char *body, size_t len, const struct pace *pace,
		   const struct openai_limits *limits, struct arena *arena,
		   struct openai_request *ret, struct err *e);

/* A test may change it, and changes it back. */
static struct openai_limits limits = {
	.vocab_size = 1000,
	.hidden_size = 64,
	.max_model_len = 4096,
	.pooling = POOLING_LAST,
	.max_choices = 8,
	.defaults = {.temperature = 0.75f,
		     .top_p = 0.5f,
		     .top_k = 20,
		     .repetition_penalty = 1,
		     .want_logprobs = true,
		     .n_logprobs = 3},
};

static struct arena arena;
static struct err err;

/* The requests that were read last: of the API under test, and by same_context of a chat. */
static struct openai_request r, as_chat;

/* pace NULL: the parser never gives up. */
static inline int parse_paced(parser *p, const char *body, size_t len, const struct pace *pace)
{
	openai_request_release(&r);
	memset(&err, 0, sizeof(err));
	memset(&r, 0xee, sizeof(r)); /* so that a member that nothing sets is seen */
	r.context = r.texts = NULL;
	r.n_prompts = 0;
	r.stop_token_ids = r.allowed = (struct ids){0};
	r.grammar = NULL;
	return p(body, len, pace, &limits, &arena, &r, &err);
}

/* Parses a body in which ' stands for ". */
static inline int parse_as(parser *p, const char *body)
{
	body = quoted(body);
	return parse_paced(p, body, strlen(body), NULL);
}

/* Checks the error of the last body; `text` is a part of its sentence. */
static inline void refused(int code, const char *param, const char *text)
{
	is_int(err.code, code, "its code: %s", err.text);
	is_str(err.param, param, "its param");
	ok(strstr(err.text, text), "its text has \"%s\": %s", text, err.text);
}

static inline bool same_json(const json_t *got, const json_t *want)
{
	bool same = want && json_equal(got, want);

	if (!same) {
		char *a = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY),
		     *b = json_dumps(want, JSON_COMPACT | JSON_ENCODE_ANY);

		printf("#   got  %s\n#   want %s\n", a ? a : "(null)", b ? b : "(null)");
		free(a);
		free(b);
	}
	return same;
}

/* Checks that the body of a chat gives `as_chat` the context of `r`. got: what the parser of `r` returned. False: one of
 * the bodies is refused. */
static inline bool same_context(int got, const char *of_chat, const char *what)
{
	const char *body = quoted(of_chat);
	int want;

	is_int(got, 0, "%s: %s", what, err.text);
	openai_request_release(&as_chat);
	want = openai_parse_chat(body, strlen(body), NULL, &limits, &arena, &as_chat, &err);
	is_int(want, 0, "%s: as a chat: %s", what, err.text);
	if (got || want)
		return false;
	ok(same_json(r.context, as_chat.context), "%s: the same context", what);
	return true;
}

static long allocations_left;

static inline void *failing_malloc(size_t n)
{
	return allocations_left-- > 0 ? malloc(n) : NULL;
}

/* Parses a good body while the JSON's first allocation fails, then while its second one does, and so on. least: so many
 * there are. */
static inline void parse_short_of_memory(parser *p, const char *body, long least)
{
	long n = 0;
	int ret;

	json_set_alloc_funcs(failing_malloc, free);
	do {
		allocations_left = n++;
		ret = parse_as(p, body);
		/* Jansson's parser does not always tell a lack of memory from a wrong token. */
		check(ret == 0 || ret == -ENOMEM || strstr(err.text, "is not valid JSON: "));
	} while (ret < 0 && n < 10000);
	json_set_alloc_funcs(malloc, free);
	check(ret == 0 && n > least);
	ok_all("out of memory at each of %ld allocations", n - 1);
}

/* Runs the tests of a program. */
static inline int run_parse_tests(void)
{
	arena_init(&arena, 64 << 20);
	run_tests();
	openai_request_release(&r);
	openai_request_release(&as_chat);
	arena_release(&arena);
	return done();
}
