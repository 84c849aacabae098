/* The text thread: from a body to prompts of token ids.
 *
 * It opens the tokenizer and the chat template while the engine thread loads the model. Then it takes one call after
 * the other. If the endpoint has `reply`, the thread answers the call. Otherwise it parses the body, checks the model's
 * name, renders the template of a chat, tokenizes, checks that the lengths fit, and hands the call on to the engine
 * thread. So a bad request gets its error before any header of a stream is sent. The scheduler may still refuse a
 * request later, mostly because its queue is full or memory is short. */
#pragma once

#include "base/err.h"
#include "daemon/request/call.h"

/* Starts the thread, and sets server->text. */
int text_start(struct server *s, struct err *e) MUST_CHECK;

/* http: queues a call whose body is complete, with a new reference to it: the work's (call.h). */
void text_submit(struct text *t, struct call *c);

/* main: ends the thread and drops the calls in its queue. No other thread may submit any more. NULL is allowed. */
void text_free(struct text *t);

/* The functions below are in prepare.c. Their errors are worded for clients. */

/* Parses the call's body, and fills the members of call.text that the engine thread needs: among them parts, choices,
 * end tokens and the space. */
int prepare_call(struct call *c, struct err *e) MUST_CHECK;

/* Checks that `name` is one of the model's two names (server.h). NULL, no name, is accepted, too. */
int prepare_model(const struct server *s, const char *name, struct err *e) MUST_CHECK;

/* Appends the ids of a text. add_special: with the special tokens that the tokenizer's file puts around texts. */
int prepare_encode(const struct server *s, const char *text, size_t len, bool add_special,
		   struct ids *out, struct err *e) MUST_CHECK;

/* Appends the prompt of a chat as text: the template, rendered with these variables. */
int prepare_render(const struct server *s, const json_t *context, struct buf *out,
		   struct err *e) MUST_CHECK;

/* Appends the prompt of a chat as token ids: the rendered template, tokenized. */
int prepare_chat_prompt(const struct server *s, const json_t *context, struct ids *out,
			struct err *e) MUST_CHECK;
