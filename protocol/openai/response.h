/* Writes the server's answers into a buffer: whole bodies and SSE chunks of the OpenAI API.
 *
 * The caller passes the text of a choice as *pieces* (struct openai_delta): to a stream one by one, as they become
 * known; to a whole body as one piece. struct openai_shape has the differences between chat and completions. Every
 * function that takes `out` appends to it; check out->failed before the bytes are sent.
 *
 * An answer may be hundreds of megabytes long. So a body, and the chunks of a piece, are written bit by bit:
 * openai_body or openai_chunks prepares a struct openai_output, and each call of openai_write appends some of the text.
 * Where these calls end makes no difference to the text.
 *
 * A stream, after the headers were sent:
 *
 *     openai_chunks          for every piece of text; the last one of a choice has finish_reason
 *     openai_stream_end      once, when all choices have finished: the usage if requested, and [DONE]
 *     openai_stream_error    in place of the rest of the stream; it writes [DONE], too
 *     openai_stream_comment  whenever nothing was sent for 15 seconds
 *
 * A whole body: keep each choice's text, reasoning, tokens and ids, and call openai_body once with all of it. The texts
 * of a choice's chunks, joined, are the text that the choice has in a whole body.
 *
 * Log-probabilities: pass the tokens in order, each with the piece of text that has the token's last byte (or with the
 * last piece). Pass only tokens of the content: not the end token, no tokens behind a stop string and none of reasoning
 * and tool calls. If a prompt is echoed, pass its text and its tokens with the first piece, and also the drawn tokens
 * without text, such as the end token: evaluation programs cut off as many tokens as they asked to generate.
 *
 * Tool calls: a stream has a chunk for each piece, the first one of a call with index, id, type and name. In a whole
 * body the content is null if there are calls and no text; so it is in a stream's first chunk, which then has the first
 * call's name.
 *
 * Whole bodies and chunks with a finish reason also have vLLM's stop_reason: the stop string or the token of
 * stop_token_ids that ended the choice, null for any other end.
 *
 * Token ids (return_token_ids) are all drawn tokens, the end token included. `prompt_token_ids` is where vLLM has it.
 * In chat it is a member of the body, and of each choice's first chunk. In completions it is a member of each choice of
 * the body, and of the choice in its first chunk; a first chunk, and a body with one prompt, also have it beside the
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
#include "protocol/openai/calls.h"
#include "protocol/openai/errors.h"
#include "protocol/openai/runs.h"
#include "protocol/openai/tokens.h"
#include "protocol/tokenizer/tokenizer.h"

/* The differences between chat and completions. */
extern const struct openai_shape openai_chat, openai_completion;

struct openai_usage {
	uint32_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
};

/* The place in a stream whose text is a list of blocks (protocol/anthropic), kept from one piece to the next; all zeros
 * at first. Only the shape's functions use the members. */
struct openai_blocks {
	enum openai_kind open; /* of the block that is open; KIND_NONE: none is */
	uint32_t n;	       /* blocks that have begun */
	const char *stop_reason,
		*stop; /* why the message has ended; stop: as in struct openai_delta */
};

/* Constant over one response, but for *so_far and *blocks. Borrowed strings. */
struct openai_head {
	const struct openai_shape *shape;
	const char *id; /* of the answer: "chatcmpl-…", "msg_…" */
	const char *model;
	const char *fingerprint; /* identifies program, model and device; NULL: null */
	int64_t created;	 /* seconds since 1970 */
	bool logprobs, include_usage, return_token_ids;
	bool tokens_as_ids; /* log-probabilities have "token_id:7" in the place of a token's text */
	/* the usage so far, which every chunk has; NULL: only the stream's last chunk has the usage, and only with
	 * include_usage */
	const struct openai_usage *so_far;
	struct openai_blocks *blocks; /* of a stream whose shape has blocks */
	bool wants_edits;	      /* as in struct openai_request */
	bool brief_call_ids;	      /* openai_call_id */
	uint32_t n_logprobs;	      /* number of best tokens to list */
	bool prompt_logprobs;	      /* list the prompt's tokens in whole bodies, in vLLM's form */
	uint32_t n_prompt_logprobs;
	const struct tokenizer *tokenizer;
};

/* The place in a choice's text where its next token begins, kept from one piece of text to the next. Each choice of a
 * stream has one, all zeros at first. Only the functions of this directory use the members. */
struct openai_cursor {
	char held[4]; /* start of a UTF-8 sequence that the next token continues */
	uint32_t n_held;
	size_t offset; /* number of characters before the next token */
};

/* A piece of one choice's text, with its tokens. Each of its texts and lists may be empty. Borrowed. */
struct openai_delta {
	uint32_t index;
	const char *echo; /* text of the echoed prompt, before the content; completions only */
	size_t echo_len;
	const char *content; /* UTF-8 */
	size_t content_len;
	const char *reasoning; /* empty in completions */
	size_t reasoning_len;
	const struct openai_calls *calls; /* NULL: none, as in completions */
	/* the order of content, reasoning and pieces of calls, which are all in runs; read by shapes with blocks and by
	 * responses alone */
	const struct openai_runs *runs;
	/* for log-probabilities: the tokens of the echoed prompt, and behind them the tokens whose last byte is in this
	 * piece; NULL: none */
	const struct openai_tokens *echoed, *tokens;
	const int32_t *token_ids; /* [n_token_ids] for return_token_ids */
	size_t n_token_ids;
	/* this choice's cursor; needed in streams with log-probabilities, otherwise it may be NULL */
	struct openai_cursor *cursor;
	const char
		*finish_reason; /* "stop", "length", "tool_calls"; NULL: the choice has not ended */
	const char *stop;	/* the stop string that ended the choice; NULL: none did */
	const int32_t *stop_token; /* the token of stop_token_ids that ended it; NULL: none did */
	/* fewer tokens than max_tokens fitted behind the prompt, so that "length" is the end of the room */
	bool clamped;
};

/* One choice of a whole body. Borrowed. */
struct openai_choice {
	struct openai_delta all; /* all text, tokens and ids, index and finish_reason; no cursor */
	/* For head.prompt_logprobs: the tokens of the choice's prompt with their log-probabilities; NULL: none. */
	const struct openai_tokens *prompt;
};

/* A body or chunks to be written, and the progress of the writing. Only response.c and the function `write` of a shape
 * use the members. */
struct openai_output {
	const struct openai_head *head;
	const struct openai_choice *choices; /* [n_choices] of a body; NULL: chunks are written */
	/* of a body: [n_prompts], one for each prompt; of chunks: the prompt of their choice */
	const struct ids *prompts;
	size_t n_choices, n_prompts;
	struct openai_usage usage; /* of a body */
	struct openai_delta delta; /* of chunks */
	unsigned forms;	  /* a bit for each form (enum choice_form) that is not written yet */
	bool ids_written; /* the piece's token ids were in a chunk */
	bool call_first;  /* of chunks: the first one has the first piece of the calls */
	size_t call,
		call_at; /* the piece of the calls that is written now, and the bytes of text before it */
	size_t choice, step; /* the choice and the part (response.c: parts) that are written now */
	size_t item, at;     /* the place in that part */
	struct openai_cursor cursor; /* in the list of tokens that is written */
	size_t behind[KIND_CALLS];   /* of blocks: the bytes of each text that are written */
	bool call_cut;		     /* of blocks: the call that is written was cut */
};

/* Sets *o, so that openai_write writes a whole body of n choices. Choice k belongs to prompt k / (n / n_prompts).
 * prompts [n_prompts] are needed for return_token_ids; otherwise they may be NULL. All that the arguments point to is
 * borrowed until it is written, but *u is copied. */
void openai_body(struct openai_output *o, const struct openai_head *h,
		 const struct openai_choice *choices, size_t n, const struct ids *prompts,
		 size_t n_prompts, const struct openai_usage *u);

/* Sets *o, so that openai_write writes the chunks of a choice. The first one, if `first` is set: role and empty
 * content in chat; in completions there is none, unless return_token_ids wants the prompt's ids. One with the piece,
 * if it has any text. One for each piece of a tool call. One with the finish reason, if there is one. A last piece
 * with nothing but token ids has no chunk of its own: the ids are in the chunk with the finish reason. `prompt` is
 * read only for return_token_ids. All that the arguments point to is borrowed until it is written, but *d is
 * copied. */
void openai_chunks(struct openai_output *o, const struct openai_head *h,
		   const struct openai_delta *d, bool first, const struct ids *prompt);

/* Appends some of the text: until out has `enough` bytes, or some kilobytes more. Appends something, unless all is
 * written or out has `enough` bytes already. True: all is written. */
bool openai_write(struct openai_output *o, size_t enough, struct buf *out);

/* Appends the object `usage` of a request that draws nothing. */
void openai_prompt_usage(const struct openai_usage *u, struct buf *out);

void openai_stream_end(const struct openai_head *h, const struct openai_usage *u, struct buf *out);
void openai_stream_error(const struct err *e, struct buf *out);
void openai_stream_comment(struct buf *out); /* ": keep-alive" */
