/* Parses bodies of /v1/chat/completions and /v1/completions for tests. */
#pragma once

#include "base/problem.h"
#include "protocol/openai/errors.h"
#include "tests/request_parse.h"

static parser *parser_of(bool chat)
{
	return chat ? openai_parse_chat : openai_parse_completion;
}

__attribute__((unused)) static int parse_bytes(bool chat, const char *body, size_t len)
{
	return parse_paced(parser_of(chat), body, len, NULL);
}

static int parse(bool chat, const char *body)
{
	return parse_as(parser_of(chat), body);
}

/* Parses a body that is valid but for `members`: of 'a':1 a chat body is {"messages":[...],"a":1}. */
static int parse_with(bool chat, const char *members)
{
	char body[4096];

	snprintf(body, sizeof(body), "{%s%s%s}",
		 chat ? "'messages':[{'role':'user','content':'hi'}]" : "'prompt':'hi'",
		 members[0] ? "," : "", members);
	return parse(chat, body);
}

static void takes(bool chat, const char *members, const char *what)
{
	is_int(parse_with(chat, members), 0, "%s", what);
}

__attribute__((unused)) static void refuses(bool chat, const char *members, const char *what)
{
	is_int(parse_with(chat, members), -EINVAL, "%s", what);
}

__attribute__((unused)) static bool equals(const json_t *got, const char *want)
{
	json_t *w = json_loads(quoted(want), JSON_DECODE_ANY, NULL);
	bool same = same_json(got, w);

	json_decref(w);
	return same;
}

struct bad {
	int kind; /* chat: 'c' or 'C', completion: 'p' or 'P'; body has members ('c', 'p'), or is whole ('C', 'P') */
	const char *body;
	const char *param, *text; /* what the error has to have; text NULL: any text */
	int code;
};

/* Checks that each of the n bodies gets its error, and that *ret is left alone. */
static void check_bads(const struct bad *bads, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct bad *b = &bads[i];
		bool chat = b->kind == 'c' || b->kind == 'C';
		int want = b->code ? b->code : EINVAL, ret;

		ret = b->kind == 'c' || b->kind == 'p' ? parse_with(chat, b->body)
						       : parse(chat, b->body);
		if (!ok(ret == -want && err.code == want && openai_status(ret) == 400 &&
				!strcmp(err.param, b->param) && err.text[0] &&
				(!b->text || !strcmp(err.text, b->text)),
			"bad body %zu: param %s", i, b->param[0] ? b->param : "null"))
			printf("#   %s: %d, %s: %s\n", b->body, ret, err.param, err.text);
		check(r.n == 0xeeeeeeee);
	}
	ok_all("failures leave *ret alone");
}
