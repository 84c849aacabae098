/*
 * An HTTP/1.1 connection of a client, which never blocks: sends a request and reads the answer, a body or server-sent
 * events. The caller waits for the descriptor (poll or epoll) and then calls stream_io.
 *
 *     IDLE ──stream_send──> SENDING ──> HEADERS ──> BODY ──> IDLE (kept alive) or CLOSED
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"

/* The address of a server. */
struct target {
	char host[256], port[8], prefix[256];
	struct sockaddr_storage address;
	socklen_t address_len;
	int family;
};

/* "http://host:port/prefix", resolved. -EINVAL with a sentence. */
int target_parse(const char *url, struct target *ret, struct err *e) MUST_CHECK;

enum stream_state { STREAM_CLOSED, STREAM_IDLE, STREAM_SENDING, STREAM_HEADERS, STREAM_BODY };

struct stream {
	enum stream_state state;
	int fd; /* -1 when CLOSED */
	struct buf out, in, body;
	size_t sent;
	int status;
	bool chunked, keep_alive, chunked_end;
	bool reused; /* the connection has answered another request before */
	/* bytes left of the body, or of the chunk that is being read */
	uint64_t left;
	bool has_length; /* without it and chunks the body lasts until the end of file */
	/* Called with the data of each server-sent event, ended by a 0; NULL: the body has no events. */
	void (*event)(struct stream *s, const char *data, size_t len);
	void *user;
};

void stream_init(struct stream *s, void (*event)(struct stream *, const char *, size_t),
		 void *user);
void stream_release(struct stream *s);

/* Begins to send a request, after connecting if the stream is CLOSED; *ret_new: it connected, and s->fd is a new
 * descriptor. The stream must be CLOSED or IDLE. body: JSON, or "". */
int stream_send(struct stream *s, const struct target *t, const char *method, const char *path,
		const char *body, bool *ret_new, struct err *e) MUST_CHECK;

/* Sends and reads as far as possible. 1: the answer is complete, in s->status and s->body; 0: more will come; < 0:
 * the connection failed and is CLOSED. */
int stream_io(struct stream *s, struct err *e) MUST_CHECK;

/* After stream_io has failed. A server may close an idle connection just when the next request comes (RFC 9112,
 * 9.3.1). 1: the server did so, and the request is sent again on a new connection; 0: it did not, and e has the
 * error. */
int stream_retry(struct stream *s, const struct target *t, struct err *e) MUST_CHECK;

/* The events to wait for, as poll and epoll have them. */
uint32_t stream_events(const struct stream *s);
