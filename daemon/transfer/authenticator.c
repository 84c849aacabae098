#include "daemon/transfer/authenticator.h"

#include <string.h>

#include "base/clock.h"
#include "daemon/transfer/socket.h"

/* The frames of a question that ZeroMQ asks (RFC 27/ZAP). With CURVE the credentials are the 32 bytes of the public
 * key. */
enum { VERSION, REQUEST, DOMAIN, ADDRESS, IDENTITY, MECHANISM, CREDENTIALS, FRAMES };

int authenticator_open(struct authenticator *a, void *context, const struct transfer_keys *keys,
		       struct err *e)
{
	a->keys = keys;
	a->socket = zmq_socket(context, ZMQ_REP);
	if (!a->socket || zmq_bind(a->socket, "inproc://zeromq.zap.01") < 0)
		return socket_error(e, "the list of peers");
	socket_set_int(a->socket, ZMQ_LINGER, 0);
	return 0;
}

void authenticator_close(struct authenticator *a)
{
	if (a->socket)
		zmq_close(a->socket);
}

static bool is_text(zmq_msg_t *m, const char *text)
{
	return zmq_msg_size(m) == strlen(text) && !memcmp(zmq_msg_data(m), text, strlen(text));
}

/* Returns whether the peer of a question may connect. Fills key with the peer's public key; "": the question has no
 * CURVE key. */
static bool is_allowed(const struct authenticator *a, zmq_msg_t *frames, size_t n,
		       char key[TRANSFER_KEY_TEXT])
{
	key[0] = 0;
	return n == FRAMES && is_text(&frames[VERSION], "1.0") &&
	       is_text(&frames[MECHANISM], "CURVE") && zmq_msg_size(&frames[CREDENTIALS]) == 32 &&
	       zmq_z85_encode(key, zmq_msg_data(&frames[CREDENTIALS]), 32) &&
	       transfer_keys_allow(a->keys, key);
}

static void reply(struct authenticator *a, zmq_msg_t *frames, size_t n, const char *status)
{
	bool asked = n > REQUEST;

	(void)zmq_send(a->socket, "1.0", 3, ZMQ_SNDMORE);
	(void)zmq_send(a->socket, asked ? zmq_msg_data(&frames[REQUEST]) : "",
		       asked ? zmq_msg_size(&frames[REQUEST]) : 0, ZMQ_SNDMORE);
	(void)zmq_send(a->socket, status, 3, ZMQ_SNDMORE);
	/* The remaining frames, empty: text of the status, user id, metadata. */
	(void)zmq_send(a->socket, "", 0, ZMQ_SNDMORE);
	(void)zmq_send(a->socket, "", 0, ZMQ_SNDMORE);
	(void)zmq_send(a->socket, "", 0, 0);
}

void authenticator_run(struct authenticator *a)
{
	zmq_msg_t frames[FRAMES];
	char more[LOG_MORE_MAX], key[TRANSFER_KEY_TEXT];
	size_t n;

	while (a->socket && (n = frames_take(a->socket, frames, FRAMES))) {
		bool allowed = is_allowed(a, frames, n, key);

		if (!allowed && log_due(&a->said_unknown, clock_now_ns(), more))
			log_warning(
				"a peer at %.*s was refused: its public key %s is not on our list%s",
				n > ADDRESS ? (int)MIN(zmq_msg_size(&frames[ADDRESS]), (size_t)64)
					    : 1,
				n > ADDRESS ? (const char *)zmq_msg_data(&frames[ADDRESS]) : "?",
				key[0] ? key : "(none)", more);
		reply(a, frames, n, allowed ? "200" : "400");
		frames_close(frames, MIN(n, (size_t)FRAMES));
	}
}
