/*
 * The text thread: from a body to prompts of token ids.
 *
 * It opens tokenizer and chat template while the engine loads the model, then takes one call after
 * the other: parse, check the model's name, render, tokenize, see that it fits, hand on to the
 * engine. Whatever is wrong with a request is found here, before any header of the answer was sent
 * (but for what only the scheduler knows).
 */
#ifndef DAEMON_TEXT_H
#define DAEMON_TEXT_H

#include "base/err.h"
#include "daemon/call.h"

/* New: starts the thread. Sets server->text. */
int text_start(struct server *s, struct err *e) MUST_CHECK;

/* http: takes a reference (the work's). The call's body is complete. */
void text_submit(struct text *t, struct call *c);

/* main: ends the thread; calls still queued are dropped. Nobody submits any more. */
void text_free(struct text *t);

/* prepare.c: fills what the engine needs (parts, choices, end tokens). Errors as the wire has them. */
int prepare_call(struct call *c, struct err *e) MUST_CHECK;

/* prepare.c: chat messages or a completion's prompts to ids; ids[i] of call.parts. */
int prepare_chat_prompt(struct server *s, const struct openai_request *ask, struct ids *out,
			struct err *e) MUST_CHECK;

/* tokenize.c: the bodies of /tokenize and /detokenize to the bodies of their answers. */
int tokenize_answer(struct server *s, const struct buf *body, struct arena *arena, struct buf *out,
		    struct err *e) MUST_CHECK;
int detokenize_answer(struct server *s, const struct buf *body, struct arena *arena,
		      struct buf *out, struct err *e) MUST_CHECK;

#endif
