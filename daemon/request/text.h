/* The text threads: from bodies to prompts of token ids.
 *
 * One of them opens the tokenizer and the chat template while the engine thread loads the model. Then each takes one
 * call after the other. If the endpoint has `reply`, the thread answers the call. Otherwise it parses the body, checks
 * the model's name, renders the template of a chat, tokenizes, checks that the lengths fit, and hands the call on to
 * the engine thread. So a bad request gets its error before any header of a stream is sent. The scheduler may still
 * refuse a request later, mostly because its queue is full or memory is short.
 *
 * A body of 16 MB may take seconds, and much memory. So one thread takes calls of huge bodies, of more than 1 MiB, one
 * after the other, and another one those of large bodies, of more than 64 KiB. Both leave the processor to other
 * threads that want it (polite.h). Two threads take calls of small bodies. A kept response that the work reads counts
 * like a part of the body: the thread that finds it hands the call to the thread for so many bytes (text_weigh). So
 * does a small body with a schema or grammar that takes long to compile (text_too_long). No call waits for one of
 * another kind: a chat of 100 KiB does not wait for bodies of 16 MB. Clients take turns: calls are
 * taken in rounds, at most one of each client in a round, and in a round those with fewer bytes to read first (text.c).
 * Work on a call that is aborted ends soon, because parsing, rendering and tokenizing look at call.aborted. */
#pragma once

#include "base/err.h"
#include "daemon/request/call.h"

/* Starts the threads. Sets server->text, unless there is no memory for it; text_free frees it, also after a
 * failure. */
int text_start(struct server *s, struct err *e) MUST_CHECK;

/* http: queues a call whose body is complete, with a new reference to it: the work's (call.h). */
void text_submit(struct text *t, struct call *c);

/* http: if an aborted call still waits for a text thread, frees its body and drops the work's reference, so that it
 * takes no memory until its turn. */
void text_forget(struct text *t, struct call *c);

/* text: for the functions of an endpoint. Notes that the work on a call reads so many bytes of kept responses, beside
 * the body. To be called before they are read. -EAGAIN: another thread has to do the work, as for a body of so many
 * bytes more; the function then returns this error, and is called anew on that thread. */
int text_weigh(struct call *c, uint64_t bytes, struct err *e) MUST_CHECK;

/* text: for pace while a body is parsed. Returns whether a call that counts as small takes longer than such a call
 * should: its schema or grammar costs much to compile. The parser then has to end, with whatever error, and the work
 * begins anew on the thread for large bodies. */
bool text_too_long(struct call *c);

/* main: makes the calls that wait for a text thread, or are with one, fail with *e. The work on calls that a text
 * thread has ends soon. Aborted calls that wait are dropped without an error. */
void text_fail_all(struct text *t, const struct err *e);

/* Ends the threads and drops the calls that wait for them. No other thread may submit any more. NULL is allowed. */
void text_free(struct text *t);

/* The functions below are in prepare.c. Their errors are worded for clients. */

/* Parses the call's body, and fills the members of call.text that the engine thread needs: among them parts, choices,
 * end tokens and the space. */
int prepare_call(struct call *c, struct err *e) MUST_CHECK;

/* Makes call.text.steering, if the request restricts the tokens that may be drawn, from the other members of call.text.
 * In steer.c. */
int prepare_steering(struct call *c, struct err *e) MUST_CHECK;

/* Checks that `name` is a name of the model: one of --served-model-name or the base name, with ":latest" or without.
 * NULL stands for no name, and is accepted. With --served-model-name "*" every name is. */
int prepare_model(const struct server *s, const char *name, struct err *e) MUST_CHECK;

/* Returns the pace of the work for a call (base/pace.h). With it the work ends when the call is aborted, and the work
 * for a large body leaves the processor to other threads. The functions below use it, and return -ECANCELED if the
 * call is aborted. */
struct pace prepare_pace(const struct call *c);

/* Appends the ids of a text, at most max_ids. add_special: with the special tokens that the tokenizer's file puts
 * around texts. -EOVERFLOW, without an error in *e: the text has more ids. */
int prepare_encode(const struct call *c, const char *text, size_t len, bool add_special,
		   size_t max_ids, struct ids *out, struct err *e) MUST_CHECK;

/* Writes the prompt of a chat as text to the end of *out, which is empty: the template, rendered with the variables in
 * `context`, and cut off behind a last message that is left open. */
int prepare_render(const struct call *c, const json_t *context, struct buf *out,
		   struct err *e) MUST_CHECK;

/* Appends the prompt of a chat as token ids: the rendered template, with `prefill` [prefill_len] behind it (NULL and 0:
 * nothing), tokenized. max_ids and -EOVERFLOW as in prepare_encode. */
int prepare_chat_prompt(const struct call *c, const json_t *context, const char *prefill,
			size_t prefill_len, size_t max_ids, struct ids *out,
			struct err *e) MUST_CHECK;

/* Returns the values that the server adds to a body of the call. */
struct openai_limits prepare_limits(struct call *c);

/* Counts the tokens of the prompt of the call's body, a chat, which `parse` reads like openai_parse_chat. */
int prepare_count(struct call *c,
		  int (*parse)(const char *body, size_t len, const struct pace *pace,
			       const struct openai_limits *limits, struct arena *arena,
			       struct openai_request *ret, struct err *e),
		  size_t *ret, struct err *e) MUST_CHECK;
