/*
 * The text thread: from a body to prompts of token ids.
 *
 * It opens tokenizer and chat template while the engine loads the model, then takes one call after
 * the other: parse, check the model's name, render, tokenize, see that it fits, hand on to the
 * engine. Whatever is wrong with a request is found here, before any header of the answer was sent
 * (but for what only the scheduler knows).
 */
#ifndef DAEMON_REQUEST_TEXT_H
#define DAEMON_REQUEST_TEXT_H

#include "base/err.h"
#include "daemon/request/call.h"

/* New: starts the thread. Sets server->text. */
int text_start(struct server *s, struct err *e) MUST_CHECK;

/* http: takes a reference (the work's). The call's body is complete. */
void text_submit(struct text *t, struct call *c);

/* main: ends the thread; calls still queued are dropped. Nobody submits any more. */
void text_free(struct text *t);

/* prepare.c: fills what the engine needs (parts, choices, end tokens). Errors as the wire has them.
 */
int prepare_call(struct call *c, struct err *e) MUST_CHECK;

/* prepare.c: -ENOENT unless this is a name of the model; NULL is. */
int prepare_model(const struct server *s, const char *name, struct err *e) MUST_CHECK;

/* prepare.c: appends the ids of a text, with add_special between those that the tokenizer's file
 * puts around texts. */
int prepare_encode(const struct server *s, const char *text, size_t len, bool add_special,
		   struct ids *out, struct err *e) MUST_CHECK;

/* prepare.c: appends the ids of a chat's prompt, rendered with these variables. */
int prepare_chat_prompt(const struct server *s, const json_t *context, struct ids *out,
			struct err *e) MUST_CHECK;

#endif
