/*
 * What a client asks for: the bodies of /v1/chat/completions and /v1/completions as one struct.
 *
 * Parsing checks types and ranges and names the parameter at fault. null is absent, unknown fields
 * are ignored. Chat messages are normalised to what templates expect: `developer` becomes system,
 * system messages that are not first are merged into the first, null content becomes "", text parts
 * stay parts, tool call arguments given as a JSON string are parsed.
 */
#ifndef PROTOCOL_OPENAI_REQUEST_H
#define PROTOCOL_OPENAI_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "scheduler/plan.h"

enum { STOPS_MAX = 4 };

/* What the server knows and a body is checked against. */
struct openai_limits {
	uint32_t vocab_size;
	uint32_t max_choices; /* largest n */
	struct sampling defaults; /* the model's generation_config.json */
};

/* One prompt of a completion request: text, or ids. */
struct openai_prompt {
	const char *text; /* NULL when ids were given */
	size_t text_len;
	const int32_t *ids;
	size_t n_ids;
};

struct openai_request {
	bool chat;
	const char *model;     /* NULL: absent */
	/* chat */
	json_t *context;       /* owned: messages, tools, add_generation_prompt, enable_thinking and
				  chat_template_kwargs, ready for template_render */
	bool thinking;         /* the prompt will end inside an open <think> */
	/* completions */
	struct openai_prompt *prompts; /* [n_prompts] in the arena */
	size_t n_prompts;
	bool echo;

	struct sampling sampling; /* defaults filled in; a seed is drawn by the daemon if has_seed is false */
	bool has_seed;
	uint32_t max_tokens;   /* 0: what fits */
	uint32_t min_tokens, n;
	bool ignore_eos;
	const int32_t *stop_token_ids;
	size_t n_stop_token_ids;
	const char *stops[STOPS_MAX];
	size_t n_stops;
	bool stream, include_usage;
	bool return_token_ids;
};

/* Parses a body. Strings live in the arena. -EINVAL (400) with param; on failure nothing to release. */
int openai_parse_chat(const char *body, size_t len, const struct openai_limits *limits,
		      struct arena *arena, struct openai_request *ret, struct err *e) MUST_CHECK;
int openai_parse_completion(const char *body, size_t len, const struct openai_limits *limits,
			    struct arena *arena, struct openai_request *ret, struct err *e) MUST_CHECK;
void openai_request_release(struct openai_request *r);

#endif
