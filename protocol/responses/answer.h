/* The answer of /v1/responses: from pieces of a choice (struct openai_delta) to items, to the events of a stream and to
 * the response object.
 *
 *     reasoning ──> {"type":"reasoning"}          its text is one part, "reasoning_text"
 *     content   ──> {"type":"message"}            its text is one part, "output_text"
 *     a call    ──> {"type":"function_call"}
 *
 * An item ends where the next one begins; text behind a call is a further message. A stream ends with the whole
 * response, so the items are kept until the answer is freed. The ids of items follow from the response's id.
 *
 * The events of a stream, each with the next sequence_number from 0 on:
 *
 *     response.created, response.in_progress
 *       response.output_item.added
 *         response.content_part.added                                            (not of a call)
 *           response.reasoning_text.delta | response.output_text.delta | response.function_call_arguments.delta
 *           response.reasoning_text.done  | response.output_text.done  | response.function_call_arguments.done
 *         response.content_part.done                                             (not of a call)
 *       response.output_item.done
 *     response.completed, or response.incomplete at the length, or error and response.failed */
#pragma once

#include "protocol/openai/response.h"

struct responses_answer;

/* Constant over one answer. Borrowed strings. */
struct responses_head {
	const char *fields; /* [fields_len] struct responses_request */
	size_t fields_len;
	bool stream;
	bool encrypted; /* reasoning items have encrypted_content */
};

/* Makes an answer without items; of a stream, its first events wait to be written. The texts of *h and *head are
 * borrowed until the answer is freed. NULL: out of memory. */
struct responses_answer *responses_answer_new(const struct openai_head *h,
					      const struct responses_head *head);
void responses_answer_free(struct responses_answer *a);

/* Adds a piece of the choice. In a stream, its events then wait to be written. All earlier events must have been
 * written (responses_answer_write). The texts of *d are borrowed until the events are written. -ENOMEM. */
int responses_answer_take(struct responses_answer *a, const struct openai_delta *d) MUST_CHECK;

/* Ends the answer, behind the piece with the finish reason: the last events, or the response object, wait to be
 * written. -ENOMEM. */
int responses_answer_end(struct responses_answer *a, const struct openai_usage *u) MUST_CHECK;

/* Ends a stream with an error: drops events that wait, and lets the last two wait to be written. -ENOMEM. */
int responses_answer_fail(struct responses_answer *a, const struct err *e) MUST_CHECK;

/* Appends some of what waits to be written, until out has `enough` bytes or some kilobytes more. True: all is
 * written. */
bool responses_answer_write(struct responses_answer *a, size_t enough, struct buf *out);

/* Returns the bytes of memory that the answer takes. */
size_t responses_answer_bytes(const struct responses_answer *a);

/* After responses_answer_end: appends the response object in three parts: the JSON before its items, its items with
 * commas between, and the JSON behind them. */
void responses_answer_parts(struct responses_answer *a, struct buf *head, struct buf *items,
			    struct buf *tail);

/* Appends a response that was cancelled before its end: an object with the members that clients need. */
void responses_body_cancelled(const char *id, int64_t created, const char *model, struct buf *out);
