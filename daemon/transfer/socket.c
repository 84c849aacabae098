#include "daemon/transfer/socket.h"

#include <errno.h>
#include <string.h>

enum {
	/* milliseconds in which frames may still be sent after a socket was closed */
	LINGER_MS = 500,
	/* the most messages that may wait to be sent to a peer: far more than there are WINDOWs under way; all other
	 * messages are short */
	QUEUE = 1 << 14,
};

int socket_error(struct err *e, const char *what)
{
	return err_set(e, zmq_errno() < ZMQ_HAUSNUMERO ? zmq_errno() : EIO, "%s: %s", what,
		       zmq_strerror(zmq_errno()));
}

void socket_set_int(void *socket, int option, int value)
{
	(void)zmq_setsockopt(socket, option, &value, sizeof(value));
}

bool socket_needs_v6(const char *endpoint)
{
	return endpoint[strspn(endpoint, "tcp:/0123456789.")] != 0;
}

void *socket_new(void *context, int type, bool v6, const struct socket_options *o)
{
	void *s = context ? zmq_socket(context, type) : NULL;
	int64_t largest = (int64_t)o->largest;
	int patience_ms = o->patience_ms;

	if (!s)
		return NULL;
	socket_set_int(s, ZMQ_LINGER, LINGER_MS);
	socket_set_int(s, ZMQ_IPV6, v6);
	socket_set_int(s, ZMQ_SNDHWM, o->queue ? o->queue : QUEUE);
	if (o->queue)
		socket_set_int(s, ZMQ_RCVHWM, o->queue); /* else ZeroMQ's own limit, 1000 */
	/* Without ZMQ_TCP_MAXRT the messages to a peer that is stopped, or reads nothing, would stay in memory for a
	 * long time. */
	if (type == ZMQ_ROUTER && patience_ms)
		patience_ms = MAX(patience_ms, (int)SOCKET_PATIENCE_MS);
	if (patience_ms)
		socket_set_int(s, ZMQ_TCP_MAXRT, patience_ms);
	(void)zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &largest, sizeof(largest));
	return s;
}

static int set_own_keys(void *socket, const struct transfer_keys *k)
{
	if (zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, k->public_key, TRANSFER_KEY_TEXT) < 0)
		return -1;
	return zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, k->secret_key, TRANSFER_KEY_TEXT);
}

int socket_encrypt_to(void *socket, const struct socket_options *o, const char *server_key)
{
	if (!o->keys)
		return 0;
	if (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, TRANSFER_KEY_TEXT) < 0)
		return -1;
	return set_own_keys(socket, o->keys);
}

int socket_encrypt_from(void *socket, const struct socket_options *o)
{
	int server = 1;

	if (!o->keys)
		return 0;
	if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &server, sizeof(server)) < 0 ||
	    zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "tigon", 5) < 0)
		return -1;
	return set_own_keys(socket, o->keys);
}

void socket_keep_alive(void *socket, const struct socket_options *o)
{
	if (!o->patience_ms)
		return;
	socket_set_int(socket, ZMQ_HEARTBEAT_IVL, o->patience_ms / 3);
	socket_set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, o->patience_ms);
	socket_set_int(socket, ZMQ_HEARTBEAT_TTL, o->patience_ms);
}

size_t frames_take(void *socket, zmq_msg_t *frames, size_t max)
{
	size_t n = 0;
	zmq_msg_t dropped;
	bool more;

	do {
		zmq_msg_t *m = n < max ? &frames[n] : &dropped;

		zmq_msg_init(m);
		if (zmq_msg_recv(m, socket, ZMQ_DONTWAIT) < 0) {
			/* Only before the first frame can there be nothing: ZeroMQ hands messages over whole. */
			zmq_msg_close(m);
			break;
		}
		more = zmq_msg_more(m);
		if (n >= max)
			zmq_msg_close(m);
		n++;
	} while (more);
	return n;
}

void frames_close(zmq_msg_t *frames, size_t n)
{
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&frames[i]);
}
