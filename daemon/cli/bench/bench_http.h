/*
 * One HTTP/1.1 connection of the load client: sends a POST, reads an answer in server-sent events,
 * without ever blocking. The caller owns the epoll set and calls stream_io when the descriptor is
 * ready.
 *
 *     IDLE ──stream_post──> SENDING ──> HEADERS ──> BODY ──> IDLE (kept alive) or CLOSED
 */
#ifndef DAEMON_CLI_BENCH_BENCH_HTTP_H
#define DAEMON_CLI_BENCH_BENCH_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"

/* Where the server is. */
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
	bool reused;   /* this request went out on a connection that had answered before */
	uint64_t left; /* of the body, or of the chunk at work; without either, until the end of
			  file */
	bool has_length;
	/* Called for the data of every event; the text ends with a 0. */
	void (*event)(struct stream *s, const char *data, size_t len);
	void *user;
};

void stream_init(struct stream *s, void (*event)(struct stream *, const char *, size_t),
		 void *user);
void stream_release(struct stream *s);

/* Connects if need be (new: *ret_new is true, the descriptor is s->fd) and begins to send. The
 * connection must be CLOSED or IDLE. */
int stream_post(struct stream *s, const struct target *t, const char *path, const char *body,
		bool *ret_new, struct err *e) MUST_CHECK;

/* Goes on as far as it can. 1: the answer is complete (s->status), 0: more to come, < 0: the
 * connection failed and is CLOSED. */
int stream_io(struct stream *s, struct err *e) MUST_CHECK;

/* After stream_io has failed: a server may close a connection that it kept, without a word, just when the next request
 * comes (RFC 9112, 9.3.1). Then the request is sent again on a new connection: 1; else 0, and e says what
 * failed. */
int stream_retry(struct stream *s, const struct target *t, struct err *e) MUST_CHECK;

/* What epoll shall wait for. */
uint32_t stream_events(const struct stream *s);

#endif
