/* Writes answers in the shape of Anthropic's Messages API: a message with a list of content blocks, whole or as a
 * stream of events. It is a shape (struct openai_shape) for the driver of all answers, daemon/request/answer.c, and
 * takes the same pieces (struct openai_delta). An answer has one choice.
 *
 * Blocks come in the order in which the model wrote them: `thinking`, `text` and `tool_use`. A stretch of text of one
 * kind, and each call, is a block. So a stream's events add up to the whole message, except for a call that was cut
 * (protocol/output/tools.h): a stream has its arguments as far as they were read, while a whole message must be JSON,
 * and has {} there.
 *
 *     message_start         with the first piece; its usage has the tokens of the prompt
 *     content_block_start   a block begins; blocks count from 0
 *     content_block_delta   text_delta, thinking_delta, input_json_delta; signature_delta at the end of thinking
 *     content_block_stop
 *     message_delta         the stop reason and the usage, once
 *     message_stop
 *     ping                  whenever nothing was sent for 15 seconds
 *     error                 in place of the rest of the stream
 *
 * The stop reason is "tool_use" if the message has calls and none was cut, "stop_sequence" if a stop string ended it,
 * "max_tokens", "model_context_window_exceeded" if there was no room for as many tokens, or "end_turn". A thinking
 * block's signature is the message's id: clients drop thinking without a signature, and this server needs none when the
 * block comes back. `usage` counts the prompt's tokens that were cached as cache_read_input_tokens and all others as
 * input_tokens. cache_creation_input_tokens is 0, because the cache keeps every prompt by itself. context_management
 * says that no edit was made, in message_delta and in a whole message; it is left out if the request asks for none. */
#pragma once

#include "protocol/openai/response.h"

extern const struct openai_shape anthropic_message;

/* Like openai_body and openai_chunks, but with one choice and without ids of the prompt. The usage of message_start is
 * that of head.so_far; head.blocks is needed in streams. */
void anthropic_body(struct openai_output *o, const struct openai_head *h,
		    const struct openai_choice *choices, size_t n, const struct ids *prompts,
		    size_t n_prompts, const struct openai_usage *u);
void anthropic_chunks(struct openai_output *o, const struct openai_head *h,
		      const struct openai_delta *d, bool first, const struct ids *prompt);

/* Appends message_delta and message_stop. */
void anthropic_stream_end(const struct openai_head *h, const struct openai_usage *u,
			  struct buf *out);

void anthropic_stream_error(const struct err *e, struct buf *out);
void anthropic_stream_ping(struct buf *out);
