#include "daemon/transfer/outgoing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* The shortest and the longest pause between two lookups of a name. */
#define WAIT_LEAST_NS ((uint64_t)3 * 1000000000)
#define WAIT_MOST_NS  ((uint64_t)60 * 1000000000)

static void *open_monitor(struct outgoing *o, void *context)
{
	char address[64];
	void *m;

	snprintf(address, sizeof(address), "inproc://monitor-%p-%u", (void *)o, ++o->n_dialled);
	if (zmq_socket_monitor(o->socket, address,
			       ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) < 0)
		return NULL;
	m = zmq_socket(context, ZMQ_PAIR);
	if (!m)
		return NULL;
	socket_set_int(m, ZMQ_LINGER, 0);
	if (zmq_connect(m, address) < 0) {
		zmq_close(m);
		return NULL;
	}
	return m;
}

static void close_sockets(struct outgoing *o)
{
	if (o->monitor) {
		(void)zmq_socket_monitor(o->socket, NULL, 0);
		zmq_close(o->monitor);
	}
	if (o->socket)
		zmq_close(o->socket);
	o->monitor = o->socket = NULL;
	o->connected = o->lost = false;
}

static int dial(struct outgoing *o, void *context, const struct socket_options *so, struct err *e)
{
	int r;

	if (o->is_name) {
		if (!o->context)
			o->context = zmq_ctx_new();
		context = o->context;
		o->dialled_ns = clock_now_ns();
	}
	o->socket = socket_new(context, ZMQ_DEALER, o->v6, so);
	if (!o->socket)
		return socket_error(e, "ZeroMQ");
	socket_set_int(o->socket, ZMQ_RECONNECT_IVL, 100);
	socket_set_int(o->socket, ZMQ_RECONNECT_IVL_MAX, 2000);
	socket_keep_alive(o->socket, so);
	o->monitor = open_monitor(o, context);
	if (o->monitor && socket_encrypt_to(o->socket, so, o->key) == 0 &&
	    zmq_connect(o->socket, o->endpoint) == 0)
		return 0;
	r = socket_error(e, o->endpoint);
	close_sockets(o);
	return r;
}

int outgoing_open(struct outgoing *o, void *context, const struct socket_options *so,
		  const char *endpoint, const char *key, struct err *e)
{
	int r;

	if (strlen(endpoint) >= sizeof(o->endpoint) || strlen(key) >= sizeof(o->key))
		return err_set(e, ENAMETOOLONG, "%s: too long", endpoint);
	*o = (struct outgoing){.context = o->context,
			       .n_dialled = o->n_dialled,
			       .is_name = transfer_endpoint_is_name(endpoint),
			       .wait_ns = WAIT_LEAST_NS};
	o->v6 = !o->is_name && socket_needs_v6(endpoint);
	snprintf(o->endpoint, sizeof(o->endpoint), "%s", endpoint);
	snprintf(o->key, sizeof(o->key), "%s", key);
	r = dial(o, context, so, e);
	if (r < 0)
		o->endpoint[0] = 0;
	return r;
}

void outgoing_redial(struct outgoing *o, void *context, const struct socket_options *so)
{
	struct err e = {0};

	if (o->is_name && clock_now_ns() - o->dialled_ns < o->wait_ns)
		return;
	o->wait_ns = MIN(2 * o->wait_ns, WAIT_MOST_NS);
	o->v6 ^= o->is_name && !o->met;
	o->met = false;
	close_sockets(o);
	if (dial(o, context, so, &e) < 0)
		log_warning("transfer: %s", e.text);
}

void outgoing_close(struct outgoing *o)
{
	close_sockets(o);
	o->endpoint[0] = 0;
}

void outgoing_free(struct outgoing *o)
{
	if (o->context)
		zmq_ctx_term(o->context);
	o->context = NULL;
}

/* Returns the number of the monitor's next event; 0: there is none. The first two bytes of a report have the number, in
 * host order (zmq_socket_monitor(3)). */
static uint16_t take_event(struct outgoing *o)
{
	enum { EVENT_FRAMES = 2 };
	zmq_msg_t frames[EVENT_FRAMES];
	uint16_t event = 0;
	size_t n = o->monitor ? frames_take(o->monitor, frames, EVENT_FRAMES) : 0;

	if (n && zmq_msg_size(&frames[0]) >= sizeof(event))
		memcpy(&event, zmq_msg_data(&frames[0]), sizeof(event));
	frames_close(frames, MIN(n, (size_t)EVENT_FRAMES));
	return event;
}

void outgoing_look(struct outgoing *o)
{
	uint16_t event;

	while ((event = take_event(o))) {
		o->connected = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
		o->lost |= !o->connected;
		o->met = true;
		o->wait_ns = WAIT_LEAST_NS;
	}
}
