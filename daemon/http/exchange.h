/*
 * One HTTP request and its answer, for the files of this directory: receive.c checks the headers and takes the body, send.c
 * sends the answer, http.c is called by libmicrohttpd. Everything here is the http thread's.
 */
#pragma once

#include <microhttpd.h>

#include "daemon/endpoints/table.h"
#include "daemon/http/watch.h"
#include "daemon/request/answer.h"
#include "daemon/threads.h"

struct http {
	struct server *server;
	struct watch *watch;
	struct MHD_Daemon *daemon;
	_Atomic bool closing;
};

/* From the headers of a request until libmicrohttpd calls it completed. */
struct exchange {
	struct http *http;
	struct connection *connection;	 /* borrowed */
	const struct endpoint *endpoint; /* NULL: there is none */
	struct err error;		 /* code 0: none so far */
	bool options,
		close; /* options: the method is OPTIONS; close: the connection ends with the answer */
	struct buf body;
	uint64_t received;
	void *own;	       /* of endpoint->ask, until the call has it */
	struct call *call;     /* owned reference */
	struct answer *answer; /* once the call runs */
	/* a stream */
	struct buf out; /* bytes out_at .. len are yet to go */
	size_t out_at;
	bool stream_over; /* everything is in out */
};

static inline const char *exchange_header(struct MHD_Connection *mc, const char *name)
{
	return MHD_lookup_connection_value(mc, MHD_HEADER_KIND, name);
}

/* "GET, HEAD, OPTIONS": the methods of an endpoint, for Allow. */
static inline const char *exchange_methods(const struct endpoint *e)
{
	return e->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

/* receive.c: the headers are there; the body comes in pieces; all of it is there, or the connection was resumed. */
enum MHD_Result exchange_begin(struct http *h, struct MHD_Connection *mc, const char *path,
			       const char *method, struct exchange **ret) ON(role_http);
enum MHD_Result exchange_receive(struct exchange *x, const char *data, size_t len) ON(role_http);
enum MHD_Result exchange_respond(struct MHD_Connection *mc, struct exchange *x, const char *path)
	ON(role_http);
void exchange_free(struct exchange *x) ON(role_http);

/* send.c: a whole answer; the buffer's memory is taken. */
enum MHD_Result send_whole(struct MHD_Connection *mc, struct exchange *x, unsigned status,
			   const char *type, struct buf *body) ON(role_http);
enum MHD_Result send_error(struct MHD_Connection *mc, struct exchange *x, const struct err *e)
	ON(role_http);

/* send.c: answers from the call, as far as its answer is known, or suspends the connection. */
enum MHD_Result send_call(struct MHD_Connection *mc, struct exchange *x) ON(role_http);
