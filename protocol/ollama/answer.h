/* The answers of /api/chat and /api/generate: from pieces of a choice (struct openai_delta) to the lines of a stream,
 * or to one object. A line is an object of JSON that ends with "\n" and has no other line end:
 *
 *     {"model","created_at","message":{"role","content","thinking","tool_calls"},"done":false}     /api/chat
 *     {"model","created_at","response","thinking","done":false}                                    /api/generate
 *     the same with empty texts, "done":true, "done_reason", and the counts and durations          the last line
 *     {"error":"a sentence"}                                                 in place of the rest of the stream
 *
 * An answer that is no stream is one object with all texts and the members of the last line. thinking, tool_calls and
 * logprobs are left out where they would be empty. A call is in one line, with its arguments as an object, so it is
 * held back until it is complete; one that was cut has no arguments. done_reason is "length" if the tokens ended before
 * the text did, else "stop".
 *
 * Durations are in nanoseconds. load_duration is the time before the prompt's computation began: waiting and
 * tokenizing. Times are parameters, because this room has no clock. */
#pragma once

#include "protocol/openai/response.h"

struct ollama_answer;

/* Constant over one answer. Borrowed. */
struct ollama_head {
	const char *model; /* the name that the request has */
	bool chat;	   /* the answer is that of /api/chat, else of /api/generate */
	bool stream;
};

/* Durations in nanoseconds. */
struct ollama_times {
	uint64_t total, load, prompt, answer;
};

/* Makes an answer without text. The texts of *h and *own are borrowed until the answer is freed. NULL: out of
 * memory. */
struct ollama_answer *ollama_answer_new(const struct openai_head *h, const struct ollama_head *own);
void ollama_answer_free(struct ollama_answer *a);

/* Adds a piece of the choice. In a stream, a line then waits to be written, unless the piece is a part of a call alone.
 * All earlier lines must have been written (ollama_answer_write). The texts of *d are borrowed until the line is
 * written. now_ns: nanoseconds since 1970. -ENOMEM. */
int ollama_answer_take(struct ollama_answer *a, const struct openai_delta *d,
		       uint64_t now_ns) MUST_CHECK;

/* Ends the answer, behind the piece with the finish reason: the last line, or the whole object, waits to be written.
 * -ENOMEM. */
int ollama_answer_end(struct ollama_answer *a, const struct openai_usage *u,
		      const struct ollama_times *t, uint64_t now_ns) MUST_CHECK;

/* Ends a stream with an error: drops a line that waits, and lets the error wait to be written. -ENOMEM. */
int ollama_answer_fail(struct ollama_answer *a, const struct err *e) MUST_CHECK;

/* Appends some of what waits to be written, until out has `enough` bytes or some kilobytes more. True: all is
 * written. */
bool ollama_answer_write(struct ollama_answer *a, size_t enough, struct buf *out);

/* Returns the bytes of memory that the answer takes. */
size_t ollama_answer_bytes(const struct ollama_answer *a);

/* Appends the answer of a request that draws no token: an object without text whose done_reason is `errand`. */
void ollama_body_errand(const struct ollama_head *own, const char *errand, uint64_t now_ns,
			struct buf *out);

/* Appends a sign of life to a stream: a blank, which stands before the JSON of the next line. Clients take an empty
 * line for broken JSON. */
void ollama_stream_blank(struct buf *out);
/* Appends an error in place of the rest of a stream. */
void ollama_stream_error(const struct err *e, struct buf *out);
