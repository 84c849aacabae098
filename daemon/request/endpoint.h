/* An endpoint: a path of the API, and the work of each thread for a request to it. One file in daemon/endpoints/
 * defines it, one row of daemon/endpoints/table.c lists it. There are four kinds; exactly one of the four functions
 * is set:
 *
 *     get     http                     writes the answer at once; there is no call
 *     reply   http ─> text             makes an answer from the body
 *     visit   http ─> engine ─> http   reads or changes data of the engine thread, between two steps
 *     parse   http ─> text ─> engine   makes prompts from the body; the tokens that are drawn become the answer */
#pragma once

#include "daemon/server.h"
#include "protocol/openai/response.h"

struct call;

enum { ENDPOINT_ARGUMENTS = 2 };

struct endpoint {
	const char *path;
	bool named;	    /* path is followed by a name */
	bool post;	    /* the method is POST, else GET (and HEAD) */
	bool guarded;	    /* refused to web pages in a browser: answers carry no CORS headers */
	bool worker;	    /* a prefill worker has this endpoint, too */
	bool while_loading; /* answered before the model is loaded and while draining */
	const char *type;   /* the answer's Content-Type; NULL: JSON */
	const char *id;	    /* prefix of a call's id, "chatcmpl-"; NULL with get */

	/* http: appends the answer. `rest` is the path behind `path`. */
	int (*get)(struct server *s, const char *rest, struct buf *out, struct err *e);

	/* text: makes the answer to the call's body and appends it to out. */
	int (*reply)(struct call *c, struct buf *out, struct err *e);

	/* http: reads the query's arguments of these names (values are borrowed, NULL: absent) and makes
	 * call.http.own. NULL: the endpoint has no arguments. */
	const char *arguments[ENDPOINT_ARGUMENTS];
	int (*ask)(const char *const *values, void **ret_own, struct err *e);
	/* engine: ends with call_reply or call_fail. */
	void (*visit)(struct call *c, struct loop *l);
	/* http, after a reply: makes the answer in place of the reply's body. NULL: the answer is that body. */
	void (*write)(const void *own, struct buf *out);
	void (*release)(void *own);

	/* text: makes prompts and parameters from the body, like openai_parse_chat. */
	int (*parse)(const char *body, size_t len, const struct openai_limits *limits,
		     struct arena *arena, struct openai_request *ret, struct err *e);
	/* http, with `parse`: make an answer of tokens, see protocol/openai/response.h. */
	const struct openai_shape *shape;
	bool reasoning; /* the reasoning is split off from the content */
	/* A stream: the first chunk of a choice, further text of a choice, the end of the stream. */
	void (*begin)(const struct openai_head *h, uint32_t index, const int32_t *prompt_ids,
		      size_t n_prompt_ids, struct buf *out);
	void (*token)(const struct openai_head *h, const struct openai_delta *d, struct buf *out);
	void (*end)(const struct openai_head *h, const struct openai_usage *u, struct buf *out);
	/* A whole body. */
	void (*whole)(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		      const struct ids *prompt_ids, size_t n_prompts, const struct openai_usage *u,
		      struct buf *out);
};
