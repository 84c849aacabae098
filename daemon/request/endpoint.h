/* An endpoint: a path of the API, and the work of each thread for a request to it. One file in daemon/endpoints/
 * defines it, one row of daemon/endpoints/table.c lists it. There are four kinds. Each sets one of these four
 * functions:
 *
 *     get     http                             writes the answer at once; there is no call
 *     reply   http ─> text ─> http             makes an answer from the body
 *     visit   http ─> engine ─> http           reads or changes data of the engine thread, between two steps
 *     parse   http ─> text ─> engine ─> http   makes prompts from the body; drawn tokens become the answer */
#pragma once

#include "daemon/request/dialect.h"
#include "daemon/server.h"
#include "protocol/openai/response.h"

struct call;
struct answer_writer;

enum { ENDPOINT_ARGUMENTS = 3 };

struct endpoint {
	const char *path;
	bool named; /* a name follows the path */
	const char *
		behind; /* with named: the path goes on behind the name, "/cancel"; NULL: it ends there */
	bool post; /* the method is POST, else GET (and HEAD), or DELETE */
	/* the endpoint of DELETE at the same path, which is in no table; NULL: none */
	const struct endpoint *remove;
	bool removes; /* this is such an endpoint */
	/* for the operator: only at --admin-port; without this option only at a loopback address */
	bool admin;
	bool guarded; /* most requests of web pages are refused (guard.c); no CORS headers are sent */
	bool health;	    /* for probes, which send no key and perhaps no header Host */
	bool worker;	    /* a prefill worker has this endpoint, too */
	bool while_loading; /* answered in every state, also before the model is loaded */
	const char *type;   /* with get: the answer's Content-Type; NULL: JSON */
	const char *id;	    /* prefix of a call's id, "chatcmpl-"; NULL with get */
	const struct dialect *dialect; /* NULL: dialect_openai */
	/* the endpoint that answers a request with the header anthropic-version in this one's place; NULL: none does */
	const struct endpoint *anthropic;
	/* The most bytes of a body, for an endpoint whose bodies are short; --max-body is a limit as well. 0:
	 * --max-body is the only limit. */
	uint64_t most_body;

	/* All functions that return int return 0, or a negative code with an error for the client. */

	/* http: appends the answer to out. `rest` is the rest of the request's path, behind `path`. */
	int (*get)(struct server *s, const char *rest, struct buf *out, struct err *e);

	/* text: makes the answer to the call's body and appends it to out. With GET and DELETE there is no body.
	 * -EAGAIN of text_weigh (text.h) is no error: it is called again. So is `recall`, with `parse`. An endpoint
	 * with `parse` may have it, too, for requests that draw no token (openai_request.errand). */
	int (*reply)(struct call *c, struct buf *out, struct err *e);

	/* http: `arguments` are names of arguments of the query. `ask` gets their values (borrowed, NULL: absent) and
	 * the name in the path ("" unless `named`), and makes the object call.http.own from them. `ask` NULL: the
	 * endpoint has neither arguments nor an object. */
	const char *arguments[ENDPOINT_ARGUMENTS];
	int (*ask)(struct server *s, const char *name, const char *const *values, void **ret_own,
		   struct err *e);
	/* engine: reads or changes data of the engine thread, then calls call_reply or call_fail. */
	void (*visit)(struct call *c, struct loop *l);
	/* http, after call_reply: makes some of the answer's body from call.http.own and appends it, until out has
	 * `enough` bytes or more. True: all is written. `write` NULL: the body is that of call_reply. */
	bool (*write)(void *own, size_t enough, struct buf *out);
	/* Frees what `ask` made. */
	void (*release)(void *own);

	/* text: makes prompts and parameters from the body, like openai_parse_chat. */
	int (*parse)(const char *body, size_t len, const struct pace *pace,
		     const struct openai_limits *limits, struct arena *arena,
		     struct openai_request *ret, struct err *e);
	/* text: openai_limits.recall of `parse`, with the call as its argument, which may keep something in
	 * *call.http.own; NULL: there is none. */
	int (*recall)(void *call, const char *id, struct buf *out, struct err *e);
	/* Writes an answer that is no list of choices; then none of the members below is used. NULL: they are. */
	const struct answer_writer *writer;
	/* The members below are set if `parse` is. With them the http thread turns tokens into the answer, see
	 * protocol/openai/response.h. */
	const struct openai_shape *shape;
	bool reasoning; /* the reasoning is split off from the content */
	/* These two tell openai_write the text that it has to write: `chunks` some chunks of a stream, like
	 * openai_chunks, and `whole` the body of an answer that is not a stream, like openai_body. */
	void (*chunks)(struct openai_output *o, const struct openai_head *h,
		       const struct openai_delta *d, bool first, const struct ids *prompt);
	void (*whole)(struct openai_output *o, const struct openai_head *h,
		      const struct openai_choice *choices, size_t n, const struct ids *prompts,
		      size_t n_prompts, const struct openai_usage *u);
	/* Appends the end of a stream. */
	void (*end)(const struct openai_head *h, const struct openai_usage *u, struct buf *out);
};

/* Returns the dialect of an endpoint; NULL: of a path that is no endpoint's. */
static inline const struct dialect *endpoint_dialect(const struct endpoint *e)
{
	return e && e->dialect ? e->dialect : &dialect_openai;
}

/* Makes the answer of a call on the wire, for an API whose answers are no list of choices: the call has one choice, or
 * draws nothing (enum openai_task). answer.h drives it, on the http thread. Functions that return int return 0 or
 * -ENOMEM. */
struct answer_writer {
	/* Makes the writer's object, before the first token. All arguments are borrowed until it is freed. NULL: out of
	 * memory. */
	void *(*begin)(struct call *c, const struct openai_head *h);
	/* Takes a piece of the choice, the last one with a finish reason. Of a stream, its text then waits to be
	 * written: `write` is called until it returns true before the next piece comes. The texts of *d are borrowed
	 * until then. NULL: the answer is written from the call's parts when all have ended. */
	int (*take)(void *writer, const struct openai_delta *d);
	/* The choice has ended: the rest of the stream, or the body, waits to be written. */
	int (*end)(void *writer, const struct openai_usage *u);
	/* The stream ends with an error: drops text that waits, and lets the error wait to be written. NULL: there are
	 * no streams. */
	int (*fail)(void *writer, const struct err *e);
	/* Appends some of what waits, until out has `enough` bytes or some kilobytes more. True: all is written. */
	bool (*write)(void *writer, size_t enough, struct buf *out);
	/* Returns the bytes of memory that the object takes. */
	size_t (*bytes)(const void *writer);
	void (*release)(void *writer);
};
