/*
 * The server's answers: whole bodies and SSE chunks of the OpenAI API, written into a buffer.
 *
 * The caller hands over the text of a choice as it becomes known (struct openai_delta). A chunk, or a choice of a whole body,
 * is written from it in the shape of chat or of completions. Every function appends; look at out->failed before the bytes
 * are sent.
 *
 * A stream, after the headers went out:
 *
 *     openai_stream_role     once for every choice, before anything else of it
 *     openai_stream_delta    for every piece of text; the last one of a choice has finish_reason
 *     openai_stream_end      once, when all choices have finished: the usage if it was asked for, and [DONE]
 *     openai_stream_error    in place of everything that is missing, [DONE] included
 *     openai_stream_comment  whenever nothing was sent for 15 seconds
 *
 * A whole body: keep each choice's text, reasoning, tokens and ids and call openai_body once with
 * all of it. The chunks of a stream add up to the body.
 *
 * Log-probabilities: give a token with the first piece whose text covers all of its bytes (or with
 * the last piece), in order, and only tokens of the content: neither the end token, nor text
 * behind a stop string, nor reasoning. Then the tokens' texts together are the content. With an
 * echoed prompt, whose tokens come first, every drawn token is there, the end token too, without
 * text: programs that measure prompts cut off as many as they let be generated.
 *
 * Token ids (return_token_ids) are all that were drawn, the end token included. `prompt_token_ids`
 * is where vLLM has it: in chat a member of the body and of each choice's first chunk, in
 * completions of each choice; when there is one prompt, bodies of completions have it where chat
 * has it too. `prompt_logprobs` likewise: in chat of the body, in completions of each choice.
 *
 * Errors before the headers went out: openai_error (errors.h) gives body and status.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ids.h"
#include "protocol/openai/errors.h"
#include "protocol/tokenizer/tokenizer.h"
#include "scheduler/plan.h"

/* Where chat and completions differ. */
extern const struct openai_shape openai_chat, openai_completion;

/* Constant over one response. Borrowed strings. */
struct openai_head {
	const struct openai_shape *shape;
	const char *id; /* "chatcmpl-…" or "cmpl-…" */
	const char *model;
	const char *fingerprint; /* of program, model and device; NULL: null */
	int64_t created;	 /* seconds since 1970 */
	bool logprobs, include_usage, return_token_ids;
	uint32_t n_logprobs;  /* best tokens to list */
	bool prompt_logprobs; /* whole bodies: the prompt's tokens, as vLLM has them */
	uint32_t n_prompt_logprobs;
	const struct tokenizer *tokenizer;
};

struct openai_usage {
	uint32_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
};

/* A generated or echoed token with its log-probabilities. `cut` bytes at its end are not part of
 * the text (a stop string began inside it; a special token is none of it). */
struct openai_token {
	struct draw_result draw;
	uint32_t cut;
	bool first; /* of an echoed prompt: nothing is said of it (null) */
	bool last;  /* of an echoed prompt: no later token completes its bytes */
};

/* Where the tokens of a choice stand in its text, between two pieces. One a choice, zero at its
 * start; only the functions here look inside. */
struct openai_cursor {
	char held[4]; /* start of a UTF-8 sequence that the next token goes on with */
	uint32_t n_held;
	size_t offset; /* characters before the next token */
};

/* A piece of one choice. Any part may be empty. */
struct openai_delta {
	uint32_t index;
	const char *content; /* borrowed, UTF-8 */
	size_t content_len;
	const char *reasoning; /* chat only */
	size_t reasoning_len;
	const struct openai_token *tokens; /* [n_tokens] that complete with this piece (logprobs) */
	size_t n_tokens;
	const int32_t *token_ids; /* [n_token_ids] for return_token_ids */
	size_t n_token_ids;
	struct openai_cursor *cursor; /* of this choice; needed in streams with log-probabilities */
	const char *finish_reason;    /* "stop", "length"; NULL: not yet */
};

/* One choice of a whole body. */
struct openai_choice {
	struct openai_delta all; /* everything, index and finish_reason included; no cursor */
	/* For head.prompt_logprobs: of its prompt [n_prompt], the first unused. Borrowed. */
	const struct draw_result *prompt;
	size_t n_prompt;
};

/* The first chunk of a choice: role and empty content in chat; nothing in completions, except that
 * with return_token_ids it carries the prompt's ids. prompt_ids [n_prompt_ids] of this choice's
 * prompt, looked at only for return_token_ids. */
void openai_stream_role(const struct openai_head *h, uint32_t index, const int32_t *prompt_ids,
			size_t n_prompt_ids, struct buf *out);

/* A chunk with the piece, then one more with the finish reason when it has one. An empty
 * piece writes nothing. */
void openai_stream_delta(const struct openai_head *h, const struct openai_delta *d,
			 struct buf *out);
void openai_stream_end(const struct openai_head *h, const struct openai_usage *u, struct buf *out);
void openai_stream_error(const struct err *e, struct buf *out);
void openai_stream_comment(struct buf *out); /* ": keep-alive" */

/* A whole body of n choices; choice k belongs to prompt k / (n / n_prompts). prompt_ids
 * [n_prompts] only for return_token_ids, else NULL. */
void openai_body(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		 const struct ids *prompt_ids, size_t n_prompts, const struct openai_usage *u,
		 struct buf *out);
