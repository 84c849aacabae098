/* Writes the server's answers into a buffer: whole bodies and SSE chunks of the OpenAI API.
 *
 * The caller passes the text of a choice as *pieces* (struct openai_delta): to a stream one by one, as they become
 * known; to a whole body as one piece. struct openai_shape has the differences between chat and completions. Every
 * function appends; check out->failed before the bytes are sent.
 *
 * A stream, after the headers were sent:
 *
 *     openai_stream_role     once for every choice, before anything else of it
 *     openai_stream_delta    for every piece of text; the last one of a choice has finish_reason
 *     openai_stream_end      once, when all choices have finished: the usage if requested, and [DONE]
 *     openai_stream_error    in place of the rest of the stream; it writes [DONE], too
 *     openai_stream_comment  whenever nothing was sent for 15 seconds
 *
 * A whole body: keep each choice's text, reasoning, tokens and ids, and call openai_body once with all of it. The texts
 * of a choice's chunks, joined, are the text that the choice has in a whole body.
 *
 * Log-probabilities: pass the tokens in order, each with the piece of text that has the token's last byte (or with the
 * last piece). Pass only tokens of the content: not the end token, no tokens behind a stop string and none of the
 * reasoning. If a prompt is echoed, pass its tokens first, and also the drawn tokens without text, such as the end
 * token: evaluation programs cut off as many tokens as they asked to generate.
 *
 * Token ids (return_token_ids) are all drawn tokens, the end token included. `prompt_token_ids` is where vLLM has it.
 * In chat it is a member of the body, and of each choice's first chunk. In completions it is a member of each choice of
 * the body, and of the choice in its first chunk. The first chunk, and a body with one prompt, also have it beside the
 * list of choices. `prompt_logprobs`, in whole bodies alone, is a member of the body in chat and of each choice in
 * completions.
 *
 * Errors before the headers were sent: openai_error (errors.h) gives body and status. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ids.h"
#include "protocol/openai/errors.h"
#include "protocol/tokenizer/tokenizer.h"
#include "scheduler/plan.h"

/* The differences between chat and completions. */
extern const struct openai_shape openai_chat, openai_completion;

struct openai_usage {
	uint32_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
};

/* Constant over one response, but for the numbers in *so_far. Borrowed strings. */
struct openai_head {
	const struct openai_shape *shape;
	const char *id; /* "chatcmpl-…" or "cmpl-…" */
	const char *model;
	const char *fingerprint; /* identifies program, model and device; NULL: null */
	int64_t created;	 /* seconds since 1970 */
	bool logprobs, include_usage, return_token_ids;
	/* the usage so far, which every chunk has; NULL: only the last one has the usage */
	const struct openai_usage *so_far;
	uint32_t n_logprobs;  /* number of best tokens to list */
	bool prompt_logprobs; /* list the prompt's tokens in whole bodies, in vLLM's form */
	uint32_t n_prompt_logprobs;
	const struct tokenizer *tokenizer;
};

/* A generated or echoed token with its log-probabilities. `cut` bytes at its end do not belong to the text (a stop
 * string began inside it; a special token has no text). */
struct openai_token {
	struct draw_result draw;
	uint32_t cut;
	bool first; /* first token of an echoed prompt: it has no log-probability (null) */
	bool last;  /* last token of an echoed prompt: no later token completes its bytes */
};

/* The place in a choice's text where its next token begins, kept from one piece of text to the next. Each choice of a
 * stream has one, all zeros at first. Only the functions of this directory use the members. */
struct openai_cursor {
	char held[4]; /* start of a UTF-8 sequence that the next token continues */
	uint32_t n_held;
	size_t offset; /* number of characters before the next token */
};

/* A piece of one choice's text, with its tokens. Each of content, reasoning, tokens and token ids may be empty. */
struct openai_delta {
	uint32_t index;
	const char *content; /* borrowed, UTF-8 */
	size_t content_len;
	const char *reasoning; /* chat only */
	size_t reasoning_len;
	/* [n_tokens] for log-probabilities: the tokens whose last byte is in this piece */
	const struct openai_token *tokens;
	size_t n_tokens;
	const int32_t *token_ids; /* [n_token_ids] for return_token_ids */
	size_t n_token_ids;
	/* this choice's cursor; needed in streams with log-probabilities, otherwise it may be NULL */
	struct openai_cursor *cursor;
	const char *finish_reason; /* "stop", "length"; NULL: the choice has not ended */
};

/* One choice of a whole body. */
struct openai_choice {
	struct openai_delta all; /* all text, tokens and ids, index and finish_reason; no cursor */
	/* For head.prompt_logprobs: the tokens of its prompt [n_prompt] with their log-probabilities. The first token's
	 * are not used. Borrowed. */
	const struct draw_result *prompt;
	size_t n_prompt;
};

/* Writes the first chunk of a choice: role and empty content in chat; nothing in completions, unless return_token_ids
 * wants the prompt's ids. prompt_ids [n_prompt_ids] of this choice's prompt are read only for return_token_ids. */
void openai_stream_role(const struct openai_head *h, uint32_t index, const int32_t *prompt_ids,
			size_t n_prompt_ids, struct buf *out);

/* Writes up to two chunks: one with the piece, if it has anything, and one with the finish reason, if there is one. A
 * last piece with nothing but token ids has only the second chunk, which then has the ids. */
void openai_stream_delta(const struct openai_head *h, const struct openai_delta *d,
			 struct buf *out);
void openai_stream_end(const struct openai_head *h, const struct openai_usage *u, struct buf *out);
void openai_stream_error(const struct err *e, struct buf *out);
void openai_stream_comment(struct buf *out); /* ": keep-alive" */

/* Writes a whole body of n choices; choice k belongs to prompt k / (n / n_prompts). prompt_ids [n_prompts] are needed
 * for return_token_ids; otherwise they may be NULL. */
void openai_body(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		 const struct ids *prompt_ids, size_t n_prompts, const struct openai_usage *u,
		 struct buf *out);
