#include "daemon/transfer/port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/transfer/authenticator.h"
#include "daemon/transfer/outgoing.h"

enum {
	FRAMES_MAX = 2,	  /* head and body */
	ROUTE_MAX = 8,	  /* bytes of a route (struct incoming); ZeroMQ makes 5 */
	DROPPED_MAX = 16, /* the most bad messages dropped in a row; then other sockets are read */
};

/* An incoming connection. */
struct incoming {
	uint8_t route[ROUTE_MAX]; /* the name that ZeroMQ's ROUTER socket gave it */
	size_t len;		  /* of route; 0: unused */
	char address[48];	  /* the peer's address: IPv4, or IPv6 with its zone */
};

struct port {
	struct socket_options options;
	void *context; /* of all sockets except outgoing ones whose endpoint has a host name */
	void *listening; /* the socket of the incoming connections; NULL: port_listen was not called */
	struct authenticator authenticator;
	struct outgoing outgoing[PORT_OUTGOING];
	struct incoming incoming[PORT_INCOMING];
	/* the socket to receive from first, modulo PORT_OUTGOING + 1: a link, or PORT_OUTGOING for `listening` */
	uint32_t next;
	struct log_limit said_full;
};

int port_open(const struct port_config *c, struct port **ret, struct err *e)
{
	struct port *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return err_no_memory(e);
	p->options = (struct socket_options){
		.keys = c->keys,
		.largest = c->largest,
		.queue = c->queue,
		.patience_ms = (int)MIN(c->patience_ns / 1000000, (uint64_t)3600000),
	};
	p->context = zmq_ctx_new();
	if (!p->context)
		r = socket_error(e, "ZeroMQ");
	else if (c->keys)
		r = authenticator_open(&p->authenticator, p->context, c->keys, e);
	if (r < 0) {
		port_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

void port_close(struct port *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < PORT_OUTGOING; i++)
		outgoing_close(&p->outgoing[i]);
	if (p->listening)
		zmq_close(p->listening);
	authenticator_close(&p->authenticator);
	if (p->context)
		zmq_ctx_term(p->context);
	for (uint32_t i = 0; i < PORT_OUTGOING; i++)
		outgoing_free(&p->outgoing[i]);
	free(p);
}

int port_listen(struct port *p, const char *endpoint, char bound[TRANSFER_ENDPOINT_MAX],
		struct err *e)
{
	size_t size = TRANSFER_ENDPOINT_MAX;

	p->listening = socket_new(p->context, ZMQ_ROUTER, socket_needs_v6(endpoint), &p->options);
	if (!p->listening)
		return socket_error(e, "ZeroMQ");
	socket_set_int(p->listening, ZMQ_ROUTER_MANDATORY, 1);
	if (socket_encrypt_from(p->listening, &p->options) < 0)
		return socket_error(e, "the keys");
	if (zmq_bind(p->listening, endpoint) < 0 ||
	    zmq_getsockopt(p->listening, ZMQ_LAST_ENDPOINT, bound, &size) < 0)
		return socket_error(e, endpoint);
	return 0;
}

/* ---- outgoing connections ---- */

int port_connect(struct port *p, const char *endpoint, const char *key, uint32_t *ret_link,
		 struct err *e)
{
	const struct transfer_keys *k = p->options.keys;
	uint32_t i = 0;
	int r;

	while (i < PORT_OUTGOING && p->outgoing[i].endpoint[0])
		i++;
	if (i == PORT_OUTGOING)
		return err_set(e, ENOSPC, "there are %d peers already", PORT_OUTGOING);
	if (!k)
		key = "";
	else if (!key)
		key = transfer_keys_of(k, endpoint);
	r = outgoing_open(&p->outgoing[i], p->context, &p->options, endpoint, key, e);
	if (r == 0)
		*ret_link = i;
	return r;
}

void port_disconnect(struct port *p, uint32_t link)
{
	outgoing_close(&p->outgoing[link]);
}

const char *port_endpoint(const struct port *p, uint32_t link)
{
	return p->outgoing[link].endpoint;
}

void port_reconnect(struct port *p, uint32_t link)
{
	outgoing_redial(&p->outgoing[link], p->context, &p->options);
}

bool port_set_key(struct port *p, uint32_t link, const char *key)
{
	struct outgoing *o = &p->outgoing[link];

	if (!strcmp(o->key, key) || strlen(key) >= sizeof(o->key))
		return false;
	snprintf(o->key, sizeof(o->key), "%s", key);
	port_reconnect(p, link);
	return true;
}

bool port_lost(struct port *p, bool lost[PORT_OUTGOING])
{
	bool any = false;

	for (uint32_t i = 0; i < PORT_OUTGOING; i++) {
		lost[i] = p->outgoing[i].lost;
		p->outgoing[i].lost = false;
		any |= lost[i];
	}
	return any;
}

/* ---- incoming connections ---- */

const char *port_address(const struct port *p, uint32_t link)
{
	return p->incoming[link - PORT_OUTGOING].address;
}

void port_forget(struct port *p, uint32_t link)
{
	p->incoming[link - PORT_OUTGOING].len = 0;
}

/* Returns the link of the connection that a message came from; a new link for a new connection. PORT_NONE: no link is
 * free, or the route has a wrong length. head: the head of the message. */
static uint32_t link_of_route(struct port *p, zmq_msg_t *route, zmq_msg_t *head)
{
	const char *address;
	size_t len = zmq_msg_size(route);
	struct incoming *unused = NULL;
	char more[LOG_MORE_MAX];

	if (!len || len > ROUTE_MAX)
		return PORT_NONE;
	for (struct incoming *i = p->incoming; i < p->incoming + PORT_INCOMING; i++) {
		if (i->len == len && !memcmp(i->route, zmq_msg_data(route), len))
			return PORT_OUTGOING + (uint32_t)(i - p->incoming);
		if (!i->len && !unused)
			unused = i;
	}
	if (!unused) {
		if (log_due(&p->said_full, clock_now_ns(), more))
			log_warning("a message of a new peer was dropped: there are %d already%s",
				    PORT_INCOMING, more);
		return PORT_NONE;
	}
	unused->len = len;
	memcpy(unused->route, zmq_msg_data(route), len);
	address = zmq_msg_gets(head, "Peer-Address");
	snprintf(unused->address, sizeof(unused->address), "%s", address ? address : "?");
	return PORT_OUTGOING + (uint32_t)(unused - p->incoming);
}

/* ---- messages ---- */

static void add_socket(zmq_pollitem_t *items, int *n, void *socket)
{
	if (socket)
		items[(*n)++] = (zmq_pollitem_t){.socket = socket, .events = ZMQ_POLLIN};
}

void port_wait(struct port *p, int wake_fd, int timeout_ms)
{
	zmq_pollitem_t items[2 * PORT_OUTGOING + 3] = {{.fd = wake_fd, .events = ZMQ_POLLIN}};
	int n = 1;

	add_socket(items, &n, p->authenticator.socket);
	add_socket(items, &n, p->listening);
	for (uint32_t i = 0; i < PORT_OUTGOING; i++) {
		add_socket(items, &n, p->outgoing[i].socket);
		add_socket(items, &n, p->outgoing[i].monitor);
	}
	(void)zmq_poll(items, n, timeout_ms);
	for (uint32_t i = 0; i < PORT_OUTGOING; i++)
		outgoing_look(&p->outgoing[i]);
}

/* Receives from a socket whose messages begin with `skip` frames that ZeroMQ added. 1: a message; 0: none; -1: a
 * malformed one, which was dropped. */
static int receive(void *socket, size_t skip, zmq_msg_t *route, zmq_msg_t *head, zmq_msg_t *body)
{
	zmq_msg_t frames[1 + FRAMES_MAX];
	size_t n = frames_take(socket, frames, skip + FRAMES_MAX);

	if (!n)
		return 0;
	if (n <= skip || n > skip + FRAMES_MAX) {
		frames_close(frames, MIN(n, skip + FRAMES_MAX));
		return -1;
	}
	if (skip)
		*route = frames[0];
	*head = frames[skip];
	if (n == skip + FRAMES_MAX)
		*body = frames[skip + 1];
	else
		zmq_msg_init(body);
	return 1;
}

static int receive_incoming(struct port *p, uint32_t *ret_link, zmq_msg_t *head, zmq_msg_t *body)
{
	zmq_msg_t route;
	int r = receive(p->listening, 1, &route, head, body);

	if (r <= 0)
		return r;
	*ret_link = link_of_route(p, &route, head);
	zmq_msg_close(&route);
	if (*ret_link != PORT_NONE)
		return 1;
	zmq_msg_close(head);
	zmq_msg_close(body);
	return -1;
}

int port_receive(struct port *p, uint32_t *ret_link, zmq_msg_t *head, zmq_msg_t *body)
{
	authenticator_run(&p->authenticator);
	/* Each call begins with the socket after the last one that had a message, so that a peer that sends all the
	 * time does not keep the others waiting. */
	for (uint32_t k = 0; k <= PORT_OUTGOING; k++) {
		uint32_t i = (p->next + k) % (PORT_OUTGOING + 1);
		bool outgoing = i < PORT_OUTGOING;
		void *socket = outgoing ? p->outgoing[i].socket : p->listening;
		int r = -1;

		if (!socket)
			continue;
		for (int dropped = 0; r < 0 && dropped < DROPPED_MAX; dropped++)
			r = outgoing ? receive(socket, 0, NULL, head, body)
				     : receive_incoming(p, ret_link, head, body);
		if (r <= 0)
			continue;
		if (outgoing)
			*ret_link = i;
		p->next = i + 1;
		return 1;
	}
	return 0;
}

int port_send(struct port *p, uint32_t link, const void *head, size_t len, zmq_msg_t *body)
{
	void *socket = p->listening;

	if (link < PORT_OUTGOING) {
		/* Without a connection ZeroMQ would keep the message and send it, too late, when there is a connection
		 * again. (Its own remedy, ZMQ_IMMEDIATE, also drops messages that came before a connection broke and
		 * were not received yet.) */
		if (!p->outgoing[link].connected)
			return -EHOSTUNREACH;
		socket = p->outgoing[link].socket;
	} else {
		const struct incoming *i = &p->incoming[link - PORT_OUTGOING];

		if (!socket || !i->len)
			return -EHOSTUNREACH;
		if (zmq_send(socket, i->route, i->len, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
			return zmq_errno() == EAGAIN ? -EAGAIN : -EHOSTUNREACH;
	}
	/* ZeroMQ sends a message whole: once it took the first frame it takes the others. */
	if (zmq_send(socket, head, len, ZMQ_DONTWAIT | (body ? ZMQ_SNDMORE : 0)) < 0)
		return -EHOSTUNREACH;
	if (body && zmq_msg_send(body, socket, ZMQ_DONTWAIT) < 0)
		return -EHOSTUNREACH;
	return 0;
}
