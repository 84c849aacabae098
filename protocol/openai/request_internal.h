/* Declares the functions that read members of a request, for the files of this directory, of protocol/anthropic and of
 * protocol/responses.
 * `body` is the JSON object of the body. Each function fills its members of *r (or *ret), and returns the errors of
 * openai_parse_chat. */
#pragma once

#include "protocol/openai/request.h"

/* The differences between bodies of chat and of completions. */
struct request_kind {
	const char *source;   /* as in struct openai_request */
	bool echo;	      /* echo is supported */
	int64_t least_tokens; /* the smallest max_tokens */
	/* another name for the member max_tokens, whose value it overrides; NULL: there is none */
	const char *max_tokens;
	const char *stop; /* the name of the member with stop strings */
	bool text_format; /* text.format takes the place of response_format */
	int (*logprobs)(const json_t *body, struct openai_request *r, struct err *e);
	int (*prompts)(const json_t *body, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *r, struct err *e);
};

/* request.c: parses a whole body. */
int request_parse(const char *text, size_t len, const struct pace *pace,
		  const struct request_kind *kind, const struct openai_limits *limits,
		  struct arena *arena, struct openai_request *ret, struct err *e) MUST_CHECK;

/* request.c: the same of a body that is parsed already. */
int request_read(const json_t *body, const struct pace *pace, const struct request_kind *kind,
		 const struct openai_limits *limits, struct arena *arena,
		 struct openai_request *ret, struct err *e) MUST_CHECK;

/* sampling.c: reads the members that say how tokens are drawn, how many, and when to stop. */
int sampling_parse(const json_t *body, const struct request_kind *kind,
		   const struct openai_limits *limits, struct arena *arena,
		   struct openai_request *r, struct err *e) MUST_CHECK;

/* tools.c: reads tool_choice into tool_choice, only_tool and one_call; after tools_list. */
int tools_choice(const json_t *body, struct openai_request *r, struct err *e) MUST_CHECK;

/* constraint.c: reads the parameters that restrict the answer's text, and fills in grammar, constraint and no_calls. To
 * be called when the other members are filled in. */
int constraint_parse(const json_t *body, const struct pace *pace, const struct request_kind *kind,
		     const struct openai_limits *limits, struct arena *arena,
		     struct openai_request *r, struct err *e) MUST_CHECK;

/* chat.c: makes a template's context of messages, tools and template arguments. *ret, which the caller owns, *thinking
 * and *billing are for the members context, thinking and billing of struct openai_request. */
int chat_context(const json_t *body, json_t **ret, bool *thinking, bool *billing,
		 struct err *e) MUST_CHECK;

/* chat.c: fills the members of a request that are about its messages and tools. For struct request_kind. */
int chat_prompt(const json_t *body, const struct pace *pace, const struct openai_limits *limits,
		struct arena *arena, struct openai_request *r, struct err *e) MUST_CHECK;

/* chat.c: reads top_logprobs, the number of best tokens to list. It needs log-probabilities (sampling.want_logprobs);
 * `allowed` says in the sentence of an error when they are on. */
int chat_top_logprobs(const json_t *body, const char *allowed, struct openai_request *r,
		      struct err *e) MUST_CHECK;

/* tools.c: reads the name of a function, a member of `object`: *ret is the member itself, borrowed. -EINVAL: it is missing,
 * no string, or empty, or has a NUL. */
int tools_function_name(const json_t *object, const char *where, const json_t **ret,
			struct err *e) MUST_CHECK;

/* tools.c: checks tools and tool_choice, and sets the context's member "tools"; null: there are none. */
int tools_context(const json_t *body, json_t *context, struct err *e) MUST_CHECK;

/* tools.c: makes a list, in the arena, of a context's tools and of the types of their parameters. Parameters whose
 * schemas are beyond a bound for the whole request count as strings. -ECANCELED: pace_gives_up; -ENOMEM. */
int tools_list(const json_t *context, const struct pace *pace, struct arena *arena,
	       struct tool_list *ret, struct err *e) MUST_CHECK;

/* request.c: reads the model's name into the arena; *ret NULL: absent. */
int request_model(const json_t *body, struct arena *arena, const char **ret,
		  struct err *e) MUST_CHECK;
