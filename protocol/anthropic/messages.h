/* Rewrites system prompt and messages of a body in Anthropic's shape as the messages of a chat (request.h has the
 * rules). */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/macros.h"

/* Sets `messages` of the chat, and *ret_prefill to the text that the answer is to go on with, new; NULL: there is none.
 * -EINVAL and -PROBLEM_UNSUPPORTED name the place in the body; -ENOMEM. */
int messages_convert(const json_t *body, json_t *chat, json_t **ret_prefill,
		     struct err *e) MUST_CHECK;
