/*
 * The client's end of an HTTP/1.1 connection: sends a request and reads the answer, a body or server-sent events. No
 * call on a stream blocks. The caller waits for the descriptor (poll or epoll) and then calls stream_io.
 *
 * With https:// the handshake of TLS is a part of SENDING.
 *
 *     IDLE or CLOSED ──stream_send──> SENDING ──> HEADERS ──> BODY ──> IDLE (the connection is kept alive) or CLOSED
 *
 * After an error the state is CLOSED.
 */
#pragma once

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"
#include "daemon/api_keys.h"

/* The address of a server. */
struct target {
	char host[256], port[8];
	char prefix[256];	   /* stands before the path of every request */
	char key[API_KEY_MAX + 1]; /* sent with every request, see target_key; "": none */
	struct sockaddr_storage address;
	socklen_t address_len;
	int family;
	/* owned: the certificates that are trusted; NULL: http:// */
	gnutls_certificate_credentials_t trust;
};

/* Parses "http://host:port/prefix" or the same with https://, and resolves the host, which may block. ca_file: for
 * https://, the certificates in PEM that are trusted, such as the server's own; NULL: those of the system. -EINVAL with
 * a sentence. target_release frees what the target owns, when no stream uses it any more. */
int target_parse(const char *url, const char *ca_file, struct target *ret,
		 struct err *e) MUST_CHECK;
void target_release(struct target *t);

/* Sets the key to the first one of the file `path` (daemon/api_keys.h). path NULL: does nothing. */
int target_key(struct target *t, const char *path, struct err *e) MUST_CHECK;

enum stream_state { STREAM_CLOSED, STREAM_IDLE, STREAM_SENDING, STREAM_HEADERS, STREAM_BODY };

struct stream {
	enum stream_state state;
	int fd;		      /* -1 when CLOSED */
	gnutls_session_t tls; /* owned; NULL: http://, or CLOSED */
	int tls_error;	      /* the last error of `tls` */
	/* the handshake of TLS is not complete; its first message was handed to the system */
	bool handshaking, greeted;
	struct buf out, in, body;
	/* of the event that is being read: the values of its data lines, with an LF behind each */
	struct buf data;
	size_t sent;
	int status;
	bool chunked, keep_alive, chunked_end;
	bool reused; /* the connection has answered another request before */
	/* bytes left of the body, or of the chunk that is being read */
	uint64_t left;
	/* the answer has Content-Length; an answer with neither this nor chunks ends when the server closes the
	 * connection */
	bool has_length;
	bool has_events; /* the answer's Content-Type is text/event-stream */
	bool after_cr; /* the last line of the events ended with a CR; an LF behind it belongs to that end */
	/* Called for each server-sent event that has data, with its data lines joined by LF, ended by a 0. The event's
	 * type and id are dropped. NULL: the body is kept whole. An answer of another Content-Type is kept whole in any
	 * case. */
	void (*event)(struct stream *s, const char *data, size_t len);
	void *user;
};

void stream_init(struct stream *s, void (*event)(struct stream *, const char *, size_t),
		 void *user);
void stream_release(struct stream *s);

/* Begins to send a request. If the stream is CLOSED, begins to connect before that. *ret_new: the stream was CLOSED,
 * and s->fd is a new descriptor. The stream must be CLOSED or IDLE. body: JSON, or "". */
int stream_send(struct stream *s, const struct target *t, const char *method, const char *path,
		const char *body, bool *ret_new, struct err *e) MUST_CHECK;

/* Sends and reads as far as possible. 1: the answer is complete, in s->status and s->body (of a stream of events,
 * s->body has at most an incomplete last line). 0: more will come. < 0: the connection or the answer is broken, or
 * memory is short, and the stream is CLOSED. */
int stream_io(struct stream *s, struct err *e) MUST_CHECK;

/* To be called after stream_io has failed with the error in e. If a reused connection broke before any byte of the
 * answer came, begins to send the request again on a new connection, because a server may close an idle connection just
 * when the next request comes (RFC 9112, 9.3.1). 1: the request is being sent again, and s->fd is new. 0: it is not,
 * because something else has failed or no new connection can be made; e has the reason. */
int stream_retry(struct stream *s, const struct target *t, struct err *e) MUST_CHECK;

/* Returns the event to wait for: EPOLLIN or EPOLLOUT, which are the same numbers as POLLIN and POLLOUT. */
uint32_t stream_events(const struct stream *s);
