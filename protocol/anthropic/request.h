/* A client's request in the shape of Anthropic's Messages API: the bodies of /v1/messages and
 * /v1/messages/count_tokens. A body is rewritten as one of /v1/chat/completions (chat_body) and then read by the same
 * functions (protocol/openai/request.h), so that equal chats have equal prompts, and share a cached prefix.
 *
 *  - `system` is a text or a list of text blocks. Each block becomes a system message of the chat.
 *  - A user's message becomes messages in the order of its blocks: each stretch of text a user's message, each
 *    tool_result a tool's message.
 *  - An assistant's message becomes one message: its texts the content, its thinking the reasoning_content, each
 *    tool_use a call. A tool_result has the id of a tool_use before it. The text of redacted_thinking cannot be read, so that block is left out.
 *  - Blocks of other types (image, document, ...) are refused by name, as are tools that a server would have to run.
 *  - A last message of the assistant is no turn: the answer goes on with its text. It needs thinking to be off.
 *  - A tool's input_schema becomes the parameters of a function, and `strict` stays; tool_choice "any" becomes
 *    "required", "tool" the function's name, and disable_parallel_tool_use turns parallel_tool_calls off.
 *  - thinking of the types "enabled", "adaptive" and "between_tools" turns the template's enable_thinking on;
 *    "disabled", and no `thinking`, turn it off. budget_tokens is checked and bounds nothing: max_tokens is the only
 *    bound. output_config.effort is the template's reasoning_effort, and turns nothing on.
 *  - The template's preserve_thinking is on, unless chat_template_kwargs say otherwise: one that knows it renders
 *    the reasoning of older turns as well, so that the next prompt begins like this one and its answer.
 *  - max_tokens must be given. If fewer tokens fit behind the prompt, as many as fit are enough (`clamp`), because
 *    clients send the most that their model could write. With 0 nothing is generated, and the prompt is cached.
 *  - output_config.format (and output_format) with a JSON schema is response_format.
 *  - thread, a conversation that the server holds, is refused: its later requests have only the new messages. The
 *    refusal (errors.h) tells the SDKs to send all of them.
 *  - compaction, and edits of context_management of the type "compact_…", ask for a summary of the conversation and are
 *    refused, as are the blocks of such a summary. So are edits of the type "clear_tool_uses_…", after which the model
 *    would not see results of tools. Other edits (clear_thinking_…) are not made: the conversation is read whole, and the
 *    answer has "context_management":{"applied_edits":[]}.
 *  - cache_control, metadata, service_tier and unknown members are accepted and ignored: the prefix cache keeps every
 *    prompt that it has room for, and need not be told where.
 *
 * Other parameters of /v1/chat/completions that fit here (`taken` in request.c) have the same meaning as there. */
#pragma once

#include "protocol/openai/request.h"

/* Parse a body; arguments and errors are those of openai_parse_chat. anthropic_parse_count does not need max_tokens. */
int anthropic_parse_messages(const char *body, size_t len, const struct pace *pace,
			     const struct openai_limits *limits, struct arena *arena,
			     struct openai_request *ret, struct err *e) MUST_CHECK;
int anthropic_parse_count(const char *body, size_t len, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e) MUST_CHECK;
