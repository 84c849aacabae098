/*
 * What the server answers: whole bodies and SSE chunks of the OpenAI API, written into a buffer.
 *
 * A choice hands over text as it becomes known (struct openai_delta); this file turns it into a
 * chat or completion chunk, or adds it up for a whole body. No sockets: bytes only.
 */
#ifndef PROTOCOL_OPENAI_RESPONSE_H
#define PROTOCOL_OPENAI_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ids.h"
#include "protocol/text/tokenizer.h"
#include "scheduler/plan.h"

/* Constant over one response. Borrowed strings. */
struct openai_head {
	const char *id;    /* "chatcmpl-…" or "cmpl-…" */
	const char *model;
	int64_t created;   /* seconds since 1970 */
	bool chat, logprobs, include_usage, return_token_ids;
	uint32_t n_logprobs;
	const struct tokenizer *tokenizer;
};

struct openai_usage {
	uint32_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
};

/* A generated token with its log-probabilities. `cut` bytes at its end are not part of the text
 * (a stop string began inside it). */
struct openai_token {
	struct draw_result draw;
	uint32_t cut;
};

/* A piece of one choice. Any part may be empty. */
struct openai_delta {
	uint32_t index;
	const char *content;  /* borrowed, UTF-8 */
	size_t content_len;
	const char *reasoning;
	size_t reasoning_len;
	const struct openai_token *tokens; /* [n_tokens] that complete with this piece (logprobs) */
	size_t n_tokens;
	const int32_t *token_ids; /* [n_token_ids] for return_token_ids */
	size_t n_token_ids;
	size_t text_offset;       /* completions: characters of this choice before this piece */
	const char *finish_reason; /* NULL: not yet */
};

/* One choice of a whole body. */
struct openai_choice {
	struct openai_delta all; /* everything, index and finish_reason included */
};

/* SSE. The first chunk of a choice (chat only), a piece, usage, an error, the end. */
void openai_stream_role(const struct openai_head *h, uint32_t index, const int32_t *prompt_ids,
			size_t n_prompt_ids, struct buf *out);
void openai_stream_delta(const struct openai_head *h, const struct openai_delta *d, struct buf *out);
void openai_stream_usage(const struct openai_head *h, const struct openai_usage *u, struct buf *out);
void openai_stream_error(const struct err *e, struct buf *out);
void openai_stream_done(struct buf *out);
void openai_stream_comment(struct buf *out); /* ": keep-alive" */

/* A whole body. prompt_ids of each prompt only for return_token_ids, else NULL. */
void openai_body(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		 const struct ids *prompt_ids, size_t n_prompts, const struct openai_usage *u,
		 struct buf *out);

/* {"error":{…}} and its status: one table from -errno. */
int openai_error(const struct err *e, struct buf *out);
int openai_status(int code);

#endif
