/* The input of /v1/responses: items, and the chat messages that they become.
 *
 *     {"role", "content"}, type "message" or none  a message of that role; parts are input_text, output_text, refusal
 *     {"type":"function_call", ...}                a call of the assistant's message before it
 *     {"type":"function_call_output", ...}         a message of role tool
 *     {"type":"reasoning", ...}                    reasoning_content of the assistant's message behind it
 *
 * Items of the assistant that follow each other become one message, as they were one answer, unless reasoning, or a
 * message without a call before it, begins the next one. The text of a reasoning item is its content, else its
 * encrypted_content as this server makes it (RESPONSES_REASONING), else its summary. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/macros.h"

/* The beginning of encrypted_content: behind it comes the text of the reasoning. Clients that keep no reasoning texts
 * send this one back. Nothing is secret in it: the client has had the text. */
#define RESPONSES_REASONING "tigon:"

/* Appends the messages of items to the array `messages`. before: the items of earlier responses, NULL: there are none.
 * Errors name the path of an item in "input", or else "previous_response_id". -EINVAL; -PROBLEM_UNSUPPORTED; -ENOMEM. */
int responses_messages(const json_t *before, const json_t *items, json_t *messages,
		       struct err *e) MUST_CHECK;
