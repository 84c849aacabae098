/* Rewrites the messages of a body in Ollama's shape as those of a chat (request.h has the rules). */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/macros.h"

/* Sets `messages` of the chat to those of /api/chat, and *ret_prefill to the text that the answer is to go on with,
 * new; NULL: there is none. -EINVAL and -PROBLEM_UNSUPPORTED name the place in the body; -ENOMEM. */
int messages_of_chat(const json_t *body, json_t *chat, json_t **ret_prefill,
		     struct err *e) MUST_CHECK;

/* Sets `messages` of the chat to the prompt of /api/generate, behind `system` if it is given. */
int messages_of_prompt(const json_t *body, json_t *chat, struct err *e) MUST_CHECK;

/* Refuses the member `images` of an object, unless it is empty. */
int messages_no_images(const json_t *object, const char *where, struct err *e) MUST_CHECK;
