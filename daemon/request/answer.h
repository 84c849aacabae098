/* From a call's tokens to its answer: text, stop strings, tool calls, reasoning, log-probabilities, and the JSON of a
 * whole body or a stream. The http thread does this work in small steps (answer_feed, answer_write), so that an answer
 * of hundreds of megabytes does not keep it from other connections.
 *
 *     record ──> detokenizer ──> tool calls | reasoning | content ──> delta ──> SSE chunk, or kept for the body
 *
 * A choice ends where the engine thread ends it (end token, number of tokens), or here, at a stop string or behind the
 * first tool call if the request wants only one. Then the engine thread is told, and tokens that it drew meanwhile are
 * dropped. The usage does not count the dropped tokens: the last token that counts is the one that completed the stop
 * string or the call. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "daemon/request/call.h"

struct answer;

/* Makes the answer of a call that is RUNNING or ENDED. The call is borrowed until answer_free. NULL: out of memory. */
struct answer *answer_new(struct call *c);
void answer_free(struct answer *a);

/* Takes some records of `tokens`, as call_take gave them, from byte *at on, and moves *at behind them. Of a stream it
 * appends chunks to out, some 16 KiB at most. out is NULL for an answer that is sent whole. 1: there is more to do,
 * with the same arguments; 0: all records are taken, and their chunks are written; -ENOMEM. */
int answer_feed(struct answer *a, const struct buf *tokens, size_t *at, struct buf *out) MUST_CHECK;

/* Returns whether every choice has ended. */
bool answer_complete(const struct answer *a);

/* Returns how many bytes of memory the answer's texts, ids and log-probabilities take. */
size_t answer_bytes(const struct answer *a);

/* Appends some of the end of a complete stream, some 16 KiB at most. 1: there is more of it, so call the function
 * again; 0: the rest is written; -ENOMEM. */
int answer_end_stream(struct answer *a, struct buf *out) MUST_CHECK;

/* Appends the end of a stream that has failed. -ENOMEM. */
int answer_fail_stream(struct answer *a, const struct err *e, struct buf *out) MUST_CHECK;

/* Appends some of the body of a complete answer that is not a stream, until out has `enough` bytes or more. 1: there
 * is more to write, so call the function again; 0: the rest is written; -ENOMEM. */
int answer_write(struct answer *a, size_t enough, struct buf *out) MUST_CHECK;
