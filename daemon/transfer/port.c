#include "daemon/transfer/port.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* What a frame may be sent for when the program ends. */
enum { LINGER_MS = 500, FRAMES_MAX = 2, ROUTE_MAX = 8 };

/* Messages to one peer that it has not taken. Windows are far fewer, what is behind them is short. */
enum { UNTAKEN_MAX = 1 << 14 };

/* What is no message is dropped, but of so much in turn that others are heard as well. */
enum { DROPPED_MAX = 16 };

struct guest {
	uint8_t route[ROUTE_MAX]; /* ROUTER's name of the connection */
	size_t len;		  /* 0: nobody */
	char address[48];	  /* IPv4 or IPv6, with its zone */
};

/* How long a name has to lead somewhere before it is looked up again. */
#define NAME_LEAST_NS ((uint64_t)3 * 1000000000)
#define NAME_MOST_NS  ((uint64_t)60 * 1000000000)

/* Whom a call is to. */
struct called {
	char endpoint[TRANSFER_ENDPOINT_MAX]; /* "": there is no such call */
	char key[TRANSFER_KEY_TEXT];	      /* "": none */
	bool name;	     /* has to be looked up: in IPv4 and in IPv6 by turns */
	bool v6, met;	     /* met: that way there was a connection */
	bool there;	     /* there is one */
	bool lost;	     /* one broke, and nobody has asked */
	uint64_t dialled_ns; /* name */
	uint64_t wait_ns;    /* name: before it is dialled again */
};

struct port {
	const struct transfer_keys *keys; /* NULL: none */
	uint64_t largest;
	int limit;			     /* messages, each way; 0: none */
	void *context, *doorman, *listening; /* doorman: ZAP; NULL: not there */
	struct called called[PORT_CALLS];
	/* ZeroMQ looks names up on the one thread that a context has for all its connections: a name gets a context of its own,
	 * kept until the end, since it ends only when the lookup does. */
	void *contexts[PORT_CALLS]; /* NULL: none yet */
	void *calls[PORT_CALLS];    /* NULL: none */
	void *monitors[PORT_CALLS]; /* of each call: what becomes of its connection */
	uint64_t n_monitors;	    /* so far: no name comes twice */
	int patience_ms;	    /* 0: as the system has it */
	struct guest guests[PORT_GUESTS];
	uint32_t next; /* socket that is looked at first: 0 .. PORT_CALLS */
	struct log_limit said_unwelcome, said_full;
};

static int fail(struct err *e, const char *what)
{
	return err_set(e, zmq_errno() < ZMQ_HAUSNUMERO ? zmq_errno() : EIO, "%s: %s", what,
		       zmq_strerror(zmq_errno()));
}

static void set_int(void *socket, int option, int value)
{
	(void)zmq_setsockopt(socket, option, &value, sizeof(value));
}

/* A plain IPv4 address shall stay one. */
static bool may_be_v6(const char *endpoint)
{
	return endpoint[strspn(endpoint, "tcp:/0123456789.")] != 0;
}

static void *new_socket(struct port *p, void *context, int type, bool v6)
{
	void *s = context ? zmq_socket(context, type) : NULL;
	int64_t largest = (int64_t)p->largest;

	if (!s)
		return NULL;
	set_int(s, ZMQ_LINGER, LINGER_MS);
	set_int(s, ZMQ_IPV6, v6);
	set_int(s, ZMQ_SNDHWM, p->limit ? p->limit : UNTAKEN_MAX);
	if (p->limit)
		set_int(s, ZMQ_RCVHWM, p->limit);
	/* Who is stopped, or takes nothing, must not keep the memory that is to go there. */
	if (p->patience_ms)
		set_int(s, ZMQ_TCP_MAXRT,
			type == ZMQ_ROUTER ? MAX(p->patience_ms, (int)PORT_GUEST_PATIENCE_MS)
					   : p->patience_ms);
	(void)zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &largest, sizeof(largest));
	return s;
}

/* Asked about everybody who comes: inproc, in frames. Source: RFC 27/ZAP. */
static int open_doorman(struct port *p, struct err *e)
{
	p->doorman = zmq_socket(p->context, ZMQ_REP);
	if (!p->doorman || zmq_bind(p->doorman, "inproc://zeromq.zap.01") < 0)
		return fail(e, "the list of peers");
	set_int(p->doorman, ZMQ_LINGER, 0);
	return 0;
}

int port_open(const struct transfer_keys *keys, uint64_t largest, struct port **ret, struct err *e)
{
	struct port *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_set(e, ENOMEM, "out of memory");
	p->keys = keys;
	p->largest = largest;
	p->context = zmq_ctx_new();
	r = !p->context ? fail(e, "ZeroMQ") : keys ? open_doorman(p, e) : 0;
	if (r < 0) {
		port_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

void port_patience(struct port *p, uint64_t ns)
{
	p->patience_ms = (int)MIN(ns / 1000000, (uint64_t)3600000);
}

void port_close(struct port *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < PORT_CALLS; i++)
		port_hang_up(p, i);
	if (p->listening)
		zmq_close(p->listening);
	if (p->doorman)
		zmq_close(p->doorman);
	if (p->context)
		zmq_ctx_term(p->context);
	for (uint32_t i = 0; i < PORT_CALLS; i++)
		if (p->contexts[i])
			zmq_ctx_term(p->contexts[i]);
	free(p);
}

void port_limit(struct port *p, int messages)
{
	p->limit = messages;
}

static int set_keys(const struct port *p, void *socket, const char *server_key)
{
	const struct transfer_keys *k = p->keys;
	int server = !server_key;

	if (!k)
		return 0;
	if (server ? zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &server, sizeof(server)) < 0
		   : zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, TRANSFER_KEY_TEXT) < 0)
		return -1;
	if (server && zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "tigon", 5) < 0)
		return -1;
	return zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, k->public_key, TRANSFER_KEY_TEXT) < 0 ||
			       zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, k->secret_key,
					      TRANSFER_KEY_TEXT) < 0
		       ? -1
		       : 0;
}

int port_listen(struct port *p, const char *endpoint, char bound[TRANSFER_ENDPOINT_MAX],
		struct err *e)
{
	size_t size = TRANSFER_ENDPOINT_MAX;

	p->listening = new_socket(p, p->context, ZMQ_ROUTER, may_be_v6(endpoint));
	if (!p->listening)
		return fail(e, "ZeroMQ");
	set_int(p->listening, ZMQ_ROUTER_MANDATORY, 1);
	if (set_keys(p, p->listening, NULL) < 0)
		return fail(e, "the keys");
	if (zmq_bind(p->listening, endpoint) < 0 ||
	    zmq_getsockopt(p->listening, ZMQ_LAST_ENDPOINT, bound, &size) < 0)
		return fail(e, endpoint);
	return 0;
}

/* Tells when a connection is there, and at once when it broke. */
static void *open_monitor(struct port *p, void *context, void *socket)
{
	char name[32];
	void *m;

	snprintf(name, sizeof(name), "inproc://call-%" PRIu64, ++p->n_monitors);
	if (zmq_socket_monitor(socket, name,
			       ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) < 0)
		return NULL;
	m = zmq_socket(context, ZMQ_PAIR);
	if (!m)
		return NULL;
	set_int(m, ZMQ_LINGER, 0);
	if (zmq_connect(m, name) < 0) {
		zmq_close(m);
		return NULL;
	}
	return m;
}

/* What keeps a connection, or ends it, while nobody says anything: ours, and through its time to live the peer's. */
static void keep_alive(const struct port *p, void *socket)
{
	if (!p->patience_ms)
		return;
	set_int(socket, ZMQ_HEARTBEAT_IVL, p->patience_ms / 3);
	set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, p->patience_ms);
	set_int(socket, ZMQ_HEARTBEAT_TTL, p->patience_ms);
}

/* Lets a call's socket go, but not the call. */
static void close_call(struct port *p, uint32_t i)
{
	if (p->monitors[i]) {
		(void)zmq_socket_monitor(p->calls[i], NULL, 0);
		zmq_close(p->monitors[i]);
		p->monitors[i] = NULL;
	}
	if (p->calls[i])
		zmq_close(p->calls[i]);
	p->calls[i] = NULL;
	p->called[i].there = p->called[i].lost = false;
}

static int dial(struct port *p, uint32_t i, struct err *e)
{
	struct called *c = &p->called[i];
	void *context = p->context, *s;
	int r;

	if (c->name) {
		if (!p->contexts[i])
			p->contexts[i] = zmq_ctx_new();
		context = p->contexts[i];
		c->dialled_ns = clock_now_ns();
	}
	s = new_socket(p, context, ZMQ_DEALER, c->v6);
	if (!s)
		return fail(e, "ZeroMQ");
	set_int(s, ZMQ_RECONNECT_IVL, 100);
	set_int(s, ZMQ_RECONNECT_IVL_MAX, 2000);
	keep_alive(p, s);
	p->calls[i] = s;
	p->monitors[i] = open_monitor(p, context, s);
	if (p->monitors[i] && set_keys(p, s, c->key) == 0 && zmq_connect(s, c->endpoint) == 0)
		return 0;
	r = fail(e, c->endpoint);
	close_call(p, i);
	return r;
}

int port_call(struct port *p, const char *endpoint, const char *key, uint32_t *ret_peer,
	      struct err *e)
{
	struct called *c;
	uint32_t i = 0;
	int r;

	while (i < PORT_CALLS && p->called[i].endpoint[0])
		i++;
	if (i == PORT_CALLS)
		return err_set(e, ENOSPC, "there are %d peers already", PORT_CALLS);
	c = &p->called[i];
	if (!p->keys)
		key = "";
	else if (!key)
		key = transfer_keys_of(p->keys, endpoint);
	if (strlen(endpoint) >= sizeof(c->endpoint) || strlen(key) >= sizeof(c->key))
		return err_set(e, ENAMETOOLONG, "%s: too long", endpoint);
	*c = (struct called){.name = transfer_endpoint_is_name(endpoint), .wait_ns = NAME_LEAST_NS};
	c->v6 = !c->name && may_be_v6(endpoint);
	snprintf(c->endpoint, sizeof(c->endpoint), "%s", endpoint);
	snprintf(c->key, sizeof(c->key), "%s", key);
	r = dial(p, i, e);
	if (r < 0) {
		c->endpoint[0] = 0;
		return r;
	}
	*ret_peer = i;
	return 0;
}

const char *port_endpoint(const struct port *p, uint32_t peer)
{
	return p->called[peer].endpoint;
}

void port_call_again(struct port *p, uint32_t peer)
{
	struct called *c = &p->called[peer];
	struct err e = {0};

	/* A lookup may take its time. */
	if (c->name && clock_now_ns() - c->dialled_ns < c->wait_ns)
		return;
	c->wait_ns = MIN(2 * c->wait_ns, NAME_MOST_NS);
	c->v6 ^= c->name && !c->met;
	c->met = false;
	close_call(p, peer);
	if (dial(p, peer, &e) < 0)
		log_warning("transfer: %s", e.text);
}

bool port_take_key(struct port *p, uint32_t peer, const char *key)
{
	struct called *c = &p->called[peer];

	if (!strcmp(c->key, key) || strlen(key) >= sizeof(c->key))
		return false;
	snprintf(c->key, sizeof(c->key), "%s", key);
	port_call_again(p, peer);
	return true;
}

void port_hang_up(struct port *p, uint32_t peer)
{
	if (peer >= PORT_CALLS)
		return;
	close_call(p, peer);
	p->called[peer].endpoint[0] = 0;
}

const char *port_address(const struct port *p, uint32_t peer)
{
	return p->guests[peer - PORT_CALLS].address;
}

void port_forget(struct port *p, uint32_t peer)
{
	if (peer - PORT_CALLS < PORT_GUESTS)
		p->guests[peer - PORT_CALLS].len = 0;
}

/* ---- receiving ---- */

/* A whole message of any socket into frames[max]; the number of its frames, which may be more (those beyond are dropped);
 * 0: none is there. */
static size_t take(void *socket, zmq_msg_t *frames, size_t max)
{
	size_t n = 0;
	zmq_msg_t dropped;
	bool more;

	do {
		zmq_msg_t *m = n < max ? &frames[n] : &dropped;

		zmq_msg_init(m);
		if (zmq_msg_recv(m, socket, ZMQ_DONTWAIT) < 0) {
			/* Only before the first: messages arrive whole. */
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

static void close_all(zmq_msg_t *frames, size_t n)
{
	for (size_t i = 0; i < n; i++)
		zmq_msg_close(&frames[i]);
}

static bool is_text(zmq_msg_t *m, const char *text)
{
	return zmq_msg_size(m) == strlen(text) && !memcmp(zmq_msg_data(m), text, strlen(text));
}

/* The next one of a call; 0: there is none. Source: zmq_socket_monitor(3), which has the number in two bytes of its own order. */
static uint16_t take_event(struct port *p, uint32_t i)
{
	enum { EVENT_FRAMES = 2 };
	zmq_msg_t frames[EVENT_FRAMES];
	uint16_t event = 0;
	size_t n = p->monitors[i] ? take(p->monitors[i], frames, EVENT_FRAMES) : 0;

	if (n && zmq_msg_size(&frames[0]) >= sizeof(event))
		memcpy(&event, zmq_msg_data(&frames[0]), sizeof(event));
	close_all(frames, MIN(n, (size_t)EVENT_FRAMES));
	return event;
}

static void look_at_call(struct port *p, uint32_t i)
{
	struct called *c = &p->called[i];
	uint16_t event;

	while ((event = take_event(p, i))) {
		c->there = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
		c->lost |= !c->there;
		c->met = true;
		c->wait_ns = NAME_LEAST_NS;
	}
}

void port_wait(struct port *p, int wake_fd, int timeout_ms)
{
	zmq_pollitem_t items[2 * PORT_CALLS + 3];
	int n = 0;

	items[n++] = (zmq_pollitem_t){.fd = wake_fd, .events = ZMQ_POLLIN};
	if (p->doorman)
		items[n++] = (zmq_pollitem_t){.socket = p->doorman, .events = ZMQ_POLLIN};
	if (p->listening)
		items[n++] = (zmq_pollitem_t){.socket = p->listening, .events = ZMQ_POLLIN};
	for (uint32_t i = 0; i < PORT_CALLS; i++)
		if (p->calls[i])
			items[n++] = (zmq_pollitem_t){.socket = p->calls[i], .events = ZMQ_POLLIN};
	for (uint32_t i = 0; i < PORT_CALLS; i++)
		if (p->monitors[i])
			items[n++] =
				(zmq_pollitem_t){.socket = p->monitors[i], .events = ZMQ_POLLIN};
	(void)zmq_poll(items, n, timeout_ms);
	for (uint32_t i = 0; i < PORT_CALLS; i++)
		look_at_call(p, i);
}

bool port_lost(struct port *p, bool lost[PORT_CALLS])
{
	bool any = false;

	for (uint32_t i = 0; i < PORT_CALLS; i++) {
		lost[i] = p->called[i].lost;
		p->called[i].lost = false;
		any |= lost[i];
	}
	return any;
}

/* Frames of a request: version, id, domain, address, identity, mechanism, credentials. key: "" when there is none. */
static bool is_welcome(const struct port *p, zmq_msg_t *frames, size_t n,
		       char key[TRANSFER_KEY_TEXT])
{
	key[0] = 0;
	return n == 7 && is_text(&frames[0], "1.0") && is_text(&frames[5], "CURVE") &&
	       zmq_msg_size(&frames[6]) == 32 &&
	       zmq_z85_encode(key, zmq_msg_data(&frames[6]), 32) &&
	       transfer_keys_allow(p->keys, key);
}

static void answer_doorman(struct port *p)
{
	enum { FRAMES = 7 };
	zmq_msg_t frames[FRAMES];
	char more[LOG_MORE_MAX];
	size_t n;

	while ((n = take(p->doorman, frames, FRAMES))) {
		char key[TRANSFER_KEY_TEXT];
		bool welcome = is_welcome(p, frames, n, key);

		if (!welcome && log_due(&p->said_unwelcome, clock_now_ns(), more))
			log_warning("a peer at %.*s was sent away: its public key %s is not on our "
				    "list%s",
				    n > 3 ? (int)MIN(zmq_msg_size(&frames[3]), (size_t)64) : 1,
				    n > 3 ? (const char *)zmq_msg_data(&frames[3]) : "?",
				    key[0] ? key : "(none)", more);
		(void)zmq_send(p->doorman, "1.0", 3, ZMQ_SNDMORE);
		(void)zmq_send(p->doorman, n > 1 ? zmq_msg_data(&frames[1]) : "",
			       n > 1 ? zmq_msg_size(&frames[1]) : 0, ZMQ_SNDMORE);
		(void)zmq_send(p->doorman, welcome ? "200" : "400", 3, ZMQ_SNDMORE);
		(void)zmq_send(p->doorman, "", 0, ZMQ_SNDMORE);
		(void)zmq_send(p->doorman, "", 0, ZMQ_SNDMORE);
		(void)zmq_send(p->doorman, "", 0, 0);
		close_all(frames, n < FRAMES ? n : FRAMES);
	}
}

/* The number of who is behind a route; a new one for who is new. head: of what came from there. */
static uint32_t guest_of(struct port *p, zmq_msg_t *route, zmq_msg_t *head)
{
	const char *address;
	size_t len = zmq_msg_size(route);
	struct guest *free_one = NULL;
	char more[LOG_MORE_MAX];

	if (!len || len > ROUTE_MAX)
		return PORT_NONE;
	for (struct guest *g = p->guests; g < p->guests + PORT_GUESTS; g++) {
		if (g->len == len && !memcmp(g->route, zmq_msg_data(route), len))
			return PORT_CALLS + (uint32_t)(g - p->guests);
		if (!g->len && !free_one)
			free_one = g;
	}
	if (!free_one) {
		if (log_due(&p->said_full, clock_now_ns(), more))
			log_warning("a message of a new peer was dropped: there are %d already%s",
				    PORT_GUESTS, more);
		return PORT_NONE;
	}
	free_one->len = len;
	memcpy(free_one->route, zmq_msg_data(route), len);
	address = zmq_msg_gets(head, "Peer-Address");
	snprintf(free_one->address, sizeof(free_one->address), "%s", address ? address : "?");
	return PORT_CALLS + (uint32_t)(free_one - p->guests);
}

/* From a socket whose messages begin with `skip` frames of its own: 1, 0: nothing there, -1: dropped. */
static int receive(void *socket, size_t skip, zmq_msg_t *route, zmq_msg_t *head, zmq_msg_t *body)
{
	zmq_msg_t frames[1 + FRAMES_MAX];
	size_t n = take(socket, frames, skip + FRAMES_MAX);

	if (!n)
		return 0;
	if (n <= skip || n > skip + FRAMES_MAX) {
		close_all(frames, n < skip + FRAMES_MAX ? n : skip + FRAMES_MAX);
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

static int receive_guest(struct port *p, uint32_t *ret_peer, zmq_msg_t *head, zmq_msg_t *body)
{
	zmq_msg_t route;
	int r = receive(p->listening, 1, &route, head, body);

	if (r <= 0)
		return r;
	*ret_peer = guest_of(p, &route, head);
	zmq_msg_close(&route);
	if (*ret_peer != PORT_NONE)
		return 1;
	zmq_msg_close(head);
	zmq_msg_close(body);
	return -1;
}

int port_receive(struct port *p, uint32_t *ret_peer, zmq_msg_t *head, zmq_msg_t *body)
{
	if (p->doorman)
		answer_doorman(p);
	/* In turn, so that nobody who talks all the time is alone heard. */
	for (uint32_t k = 0; k <= PORT_CALLS; k++) {
		uint32_t i = (p->next + k) % (PORT_CALLS + 1);
		void *socket = i < PORT_CALLS ? p->calls[i] : p->listening;
		int r = -1;

		if (!socket)
			continue;
		for (int dropped = 0; r < 0 && dropped < DROPPED_MAX; dropped++)
			r = i < PORT_CALLS ? receive(socket, 0, NULL, head, body)
					   : receive_guest(p, ret_peer, head, body);
		if (r <= 0)
			continue;
		if (i < PORT_CALLS)
			*ret_peer = i;
		p->next = i + 1;
		return 1;
	}
	return 0;
}

/* ---- sending ---- */

int port_send(struct port *p, uint32_t peer, const void *head, size_t len, zmq_msg_t *body)
{
	void *socket = peer < PORT_CALLS ? p->calls[peer] : p->listening;
	int flags = ZMQ_DONTWAIT;

	/* ZeroMQ would keep it for who is not there, until it is old. (Its own ZMQ_IMMEDIATE also drops what has come and was not
	 * received yet when a connection ends: mostly a farewell.) */
	if (!socket || (peer < PORT_CALLS && !p->called[peer].there))
		return -EHOSTUNREACH;
	if (peer >= PORT_CALLS) {
		const struct guest *g = &p->guests[peer - PORT_CALLS];

		if (!g->len)
			return -EHOSTUNREACH;
		if (zmq_send(socket, g->route, g->len, flags | ZMQ_SNDMORE) < 0)
			return zmq_errno() == EAGAIN ? -EAGAIN : -EHOSTUNREACH;
	}
	/* Once the first frame is taken the others are: a message goes whole. */
	if (zmq_send(socket, head, len, flags | (body ? ZMQ_SNDMORE : 0)) < 0)
		return -EHOSTUNREACH;
	if (body && zmq_msg_send(body, socket, flags) < 0)
		return -EHOSTUNREACH;
	return 0;
}
