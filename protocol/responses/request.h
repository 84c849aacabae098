/* A client's request: the body of /v1/responses as the struct that chat has (protocol/openai/request.h). Input items
 * become chat messages (input.h), tools get the shape that they have in chat, reasoning.effort is reasoning_effort, and
 * text.format is response_format. So a conversation has the same prompt whichever API it comes by. All other parameters
 * of chat may be given as well (seed, stop, top_k, ...), but for those of answers with several choices, and of token
 * ids.
 *
 * Thinking is off unless reasoning.effort turns it on (any value but "none"), or chat_template_kwargs.enable_thinking,
 * or enable_thinking, which count more. reasoning.summary asks for nothing: reasoning items have the text itself.
 *
 * Refused with one sentence: tools that are no functions, items and parts of other types, background true,
 * conversation, prompt. truncation "auto" leaves out the oldest messages until the prompt fits
 * (openai_truncate). */
#pragma once

#include "protocol/openai/request.h"
#include "protocol/responses/input.h"

/* The part of a request of /v1/responses that struct openai_request does not have. It is in the request's arena. */
struct responses_request {
	/* [fields_len] the response's members that repeat the request, as JSON: "instructions":null,... */
	const char *fields;
	size_t fields_len;
	bool encrypted; /* reasoning items get encrypted_content */
	bool store;
	/* with store: [input_len] the request's own items, as JSON with commas between */
	const char *input;
	size_t input_len;
};

/* Parses a body, like openai_parse_chat. limits->recall gives the items of previous_response_id. */
int responses_parse(const char *body, size_t len, const struct pace *pace,
		    const struct openai_limits *limits, struct arena *arena,
		    struct openai_request *ret, struct err *e) MUST_CHECK;
