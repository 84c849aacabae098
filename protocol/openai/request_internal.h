/* The parts of a request, for the files of this directory. `body` is the body's object; each fills
 * its members of *r and fails as openai_parse_chat does. */
#ifndef PROTOCOL_OPENAI_REQUEST_INTERNAL_H
#define PROTOCOL_OPENAI_REQUEST_INTERNAL_H

#include "protocol/openai/request.h"

/* sampling.c: how tokens are drawn, how many and when to stop. r->chat must be set. */
int sampling_parse(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		   struct openai_request *r, struct err *e) MUST_CHECK;

/* chat.c: messages, tools and template arguments to a template's context, new. Sets *thinking. */
int chat_context(const json_t *body, json_t **ret, bool *thinking, struct err *e) MUST_CHECK;

/* completions.c: the prompts. */
int completion_prompts(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *r, struct err *e) MUST_CHECK;

/* request.c: the model's name, NULL when absent. */
int request_model(const json_t *body, struct arena *arena, const char **ret,
		  struct err *e) MUST_CHECK;

#endif
