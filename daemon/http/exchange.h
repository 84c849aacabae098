/* One HTTP request and its answer, for the files of this directory: receive.c checks the headers and takes the body,
 * send.c sends the answer, libmicrohttpd calls http.c. Only the http thread calls these functions, but for
 * send_make_no_memory. */
#pragma once

#include <microhttpd.h>

#include "daemon/api_keys.h"
#include "daemon/endpoints/table.h"
#include "daemon/http/framing.h"
#include "daemon/http/suspend.h"
#include "daemon/http/tls.h"
#include "daemon/http/watch.h"
#include "daemon/request/answer.h"
#include "daemon/threads.h"

struct http {
	struct server *server;
	struct watch *watch;
	struct MHD_Daemon *daemon;
	bool local;			/* only this machine reaches the address of the socket */
	bool admin_port;		/* this is --admin-port */
	bool admin;			/* endpoints for the operator are served */
	const struct api_keys *keys;	/* as in struct http_listener (http.h); borrowed */
	const struct networks *trusted; /* --trusted-proxy; borrowed */
	struct MHD_Response *no_memory; /* the answer of send_no_memory; owned */
	_Atomic bool closing;		/* set by main, in http_stop */
};

/* A client's connection, of which libmicrohttpd keeps the address for us (MHD_CONNECTION_INFO_SOCKET_CONTEXT). */
struct channel {
	struct connection *connection; /* its place in the watch's table */
	struct tls *tls;	       /* NULL: without TLS */
};

/* Exists from the first line of a request until libmicrohttpd calls `completed` (http.c). */
struct exchange {
	struct framing framing;
	bool has_host; /* the target has a host (path_has_host) */
	/* NULL: the headers have not arrived, or there was no memory for the members below, which have no content
	 * then */
	struct http *http;
	struct connection *connection;	 /* borrowed, as tls is */
	struct tls *tls;		 /* NULL: without TLS */
	const struct endpoint *endpoint; /* NULL: there is none at the path */
	char *name; /* the name in the path (endpoint.named), decoded; owned; "": none; NULL: not made yet */
	/* of the answer if `endpoint` is NULL; NULL: the path is not known */
	const struct dialect *dialect;
	char *host; /* in the request's target, which counts more than the header Host; owned; NULL: none */
	/* the error that will be the answer; code 0: none so far */
	struct err error;
	/* options: the method is OPTIONS; close: close the connection after the answer; told: send_within_body has sent
	 * the answer */
	bool options, close, told;
	/* An answer without Content-Length is sent in chunks, because the request is not HTTP/1.0. Otherwise it ends
	 * with the connection. */
	bool in_chunks;
	/* copied into the call, if there is one, when the request is completed */
	struct access access;
	/* of a request without a call or an id of the client, whose answer is an error; "": none */
	char id[ACCESS_ID_SIZE];
	uint64_t owner;	 /* number of the client: of its key, or of its address (call.owner) */
	struct buf body; /* moves into the call */
	/* Content-Length; 0: there is none, or no memory could be reserved for so much */
	uint64_t length;
	uint64_t received;     /* bytes of the body that came, also those that were dropped */
	void *own;	       /* made by endpoint->ask; moves into the call */
	struct call *call;     /* owned reference; NULL: no call was made, or not yet */
	struct answer *answer; /* owned; NULL until send_tokens (send.c) makes it */
	/* records that were taken from the call; those from byte tokens_at on are not used yet */
	struct buf tokens;
	size_t tokens_at;
	struct call_news news; /* taken from the call together with `tokens` */
	bool feeding;	       /* `tokens` and `news` are not used up, so no others are taken */
	struct buf out;	       /* bytes of the answer; those from byte out_at on are not sent yet */
	size_t out_at;
	bool ending;  /* of a stream: all tokens are used, and out has the beginning of its end */
	bool over;    /* out has the rest of the answer */
	bool streams; /* the answer is sent as a stream */
};

static inline const char *exchange_header(struct MHD_Connection *mc, const char *name)
{
	return MHD_lookup_connection_value(mc, MHD_HEADER_KIND, name);
}

/* Returns the dialect of the request's answer. */
static inline const struct dialect *exchange_dialect(const struct exchange *x)
{
	return x->dialect && !x->endpoint ? x->dialect : endpoint_dialect(x->endpoint);
}

/* Returns the methods of an endpoint for the header Allow: "GET, HEAD, OPTIONS". */
static inline const char *exchange_methods(const struct endpoint *e)
{
	if (e->post)
		return "POST, OPTIONS";
	return e->remove ? "GET, HEAD, DELETE, OPTIONS" : "GET, HEAD, OPTIONS";
}

/* receive.c. exchange_begin is called when the headers have arrived, and checks them. exchange_receive takes some bytes
 * of the body. exchange_respond is called when the body is complete, and whenever the connection was resumed before its
 * answer has begun. exchange_respond answers the request at once, or makes the request's call, if there is none yet,
 * and sends what the call has ready. target: the request's target, normalised (path.h) and without its query. MHD_NO:
 * close the connection. */
enum MHD_Result exchange_begin(struct http *h, struct MHD_Connection *mc, struct exchange *x,
			       const char *target, const char *method, const char *version)
	ON(role_http);
enum MHD_Result exchange_receive(struct MHD_Connection *mc, struct exchange *x, const char *data,
				 size_t len) ON(role_http);
enum MHD_Result exchange_respond(struct MHD_Connection *mc, struct exchange *x) ON(role_http);
void exchange_free(struct exchange *x) ON(role_http);

/* To be called when the request is completed. If the request has a call, hands x->access over to it, and the call
 * writes the request's line in the log (call_unref). Otherwise writes that line. */
void exchange_end(struct exchange *x) ON(role_http);

/* send.c: hands a whole answer to libmicrohttpd, or the answer of send_no_memory if body->failed is set or memory is
 * short. The content of *body is taken in either case. type: the Content-Type, NULL: none. */
enum MHD_Result send_whole(struct MHD_Connection *mc, struct exchange *x, unsigned status,
			   const char *type, struct buf *body) ON(role_http);

/* send.c: hands the answer for an error to libmicrohttpd: its status and its JSON. */
enum MHD_Result send_error(struct MHD_Connection *mc, struct exchange *x, const struct err *e)
	ON(role_http);

/* send.c: sends the answer for an error while the body still arrives, and then shuts down the sending half of the
 * connection. libmicrohttpd takes no answer at that time, so this one goes to the socket, or to its TLS. libmicrohttpd
 * writes nothing there before it has one: "100 Continue" was sent before the body. Sets x->told. The connection must be
 * closed by MHD_NO afterwards. False: the answer could not be sent. */
bool send_within_body(struct MHD_Connection *mc, struct exchange *x, const struct err *e)
	ON(role_http);

/* send.c, on any thread: makes the answer that send_no_memory sends. It is made at the start, so that send_no_memory
 * needs no memory. NULL: out of memory. */
struct MHD_Response *send_make_no_memory(void);

/* send.c: hands h->no_memory to libmicrohttpd: status 503, after which the connection is closed. x NULL: the request
 * has no exchange. */
enum MHD_Result send_no_memory(struct MHD_Connection *mc, struct http *h, struct exchange *x)
	ON(role_http);

/* send.c: sends the call's answer or begins its stream. Suspends the connection if there is nothing to send yet.
 * MHD_NO: close the connection. */
enum MHD_Result send_call(struct MHD_Connection *mc, struct exchange *x) ON(role_http);
