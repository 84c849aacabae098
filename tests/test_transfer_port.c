/* Connections between workers: which peers are accepted, which messages arrive, and in which order. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/transfer/port.h"
#include "tests/tap.h"

#define SECOND UINT64_C(1000000000)

enum { LARGEST = 1 << 20, SLOW_SECONDS = 5 };

static int wake;

static struct port *open_limited(const struct transfer_keys *k, int queue)
{
	const struct port_config c = {.keys = k, .largest = LARGEST, .queue = queue};
	struct port *p = NULL;
	struct err e = {0};

	if (port_open(&c, &p, &e) < 0) {
		printf("# %s\n", e.text);
		abort();
	}
	return p;
}

static struct port *open_port(const struct transfer_keys *k)
{
	return open_limited(k, 0);
}

/* Receives the next message of a port; false: none came in `ms` milliseconds. */
static bool next(struct port *p, uint32_t *peer, zmq_msg_t *head, zmq_msg_t *body, uint64_t ms)
{
	uint64_t until = clock_now_ns() + ms * 1000000;

	do {
		if (port_receive(p, peer, head, body))
			return true;
		port_wait(p, wake, 10);
	} while (clock_now_ns() < until);
	return false;
}

/* Receives the next message and compares it. False: none came in 10 s, or it is another one. */
static bool got(struct port *p, uint32_t *peer, const char *head, const char *body)
{
	zmq_msg_t h, b;
	bool same;

	if (!next(p, peer, &h, &b, 10000))
		return false;
	same = zmq_msg_size(&h) == strlen(head) && !memcmp(zmq_msg_data(&h), head, strlen(head)) &&
	       zmq_msg_size(&b) == strlen(body) && !memcmp(zmq_msg_data(&b), body, strlen(body));
	zmq_msg_close(&h);
	zmq_msg_close(&b);
	return same;
}

/* Drops messages until none has come for `ms` milliseconds. */
static void drop_all(struct port *p, uint64_t ms)
{
	uint32_t peer;
	zmq_msg_t h, b;

	while (next(p, &peer, &h, &b, ms)) {
		zmq_msg_close(&h);
		zmq_msg_close(&b);
	}
}

/* Closes a server and returns another one at its address, which may take a moment to be free. */
static struct port *replace(struct port *server, const char *bound)
{
	char again[TRANSFER_ENDPOINT_MAX];
	struct err e = {0};

	port_close(server);
	server = open_port(NULL);
	for (int i = 0; i < 100 && port_listen(server, bound, again, &e) < 0; i++) {
		port_close(server);
		usleep(50000);
		server = open_port(NULL);
	}
	return server;
}

static void give_back(void *data, void *hint)
{
	(void)data;
	atomic_fetch_add((_Atomic int *)hint, 1);
}

/* Sends a message as soon as there is a connection. other: the port of the peer, or NULL. False: there was no
 * connection for 10 s. */
static bool send_soon(struct port *p, struct port *other, uint32_t peer, const char *head)
{
	uint64_t until = clock_now_ns() + 10 * SECOND;

	while (port_send(p, peer, head, strlen(head), NULL) < 0) {
		if (clock_now_ns() > until)
			return false;
		port_wait(p, wake, 5);
		if (other)
			port_wait(other, wake, 5);
	}
	return true;
}

/* libzmq calls this function in place of the one of libc. slow.example: no name server answers. turns.example: a server
 * listens at its IPv6 address, and none at its IPv4 address. */
int getaddrinfo(const char *restrict node, const char *restrict service,
		const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
	static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (node && !strcmp(node, "slow.example")) {
		sleep(SLOW_SECONDS);
		return EAI_AGAIN;
	}
	if (node && !strcmp(node, "turns.example"))
		node = hints && hints->ai_family == AF_INET6 ? "::ffff:127.0.0.1" : "127.0.0.2";
	return real(node, service, hints, ret);
}

TEST(names)
{
	struct port *server = open_port(NULL), *client = open_port(NULL);
	char bound[TRANSFER_ENDPOINT_MAX], name[TRANSFER_ENDPOINT_MAX];
	uint32_t slow, out, turns, from;
	uint64_t begin;
	struct err e = {0};

	check(port_listen(server, "tcp://127.0.0.1:0", bound, &e) == 0);
	check(port_connect(client, "tcp://slow.example:1", NULL, &slow, &e) == 0);
	begin = clock_now_ns();
	for (int i = 0; i < 5; i++) {
		check(port_connect(client, bound, NULL, &out, &e) == 0);
		check(send_soon(client, NULL, out, "hello") && got(server, &from, "hello", ""));
		port_disconnect(client, out);
	}
	ok(clock_now_ns() - begin < (SLOW_SECONDS - 1) * SECOND,
	   "a slow look-up delays no other connection");
	snprintf(name, sizeof(name), "tcp://turns.example%s", strrchr(bound, ':'));
	check(port_connect(client, name, NULL, &turns, &e) == 0);
	while (port_send(client, turns, "hello", 5, NULL) < 0) {
		port_reconnect(client, turns);
		port_wait(client, wake, 20);
		if (clock_now_ns() - begin > 60 * SECOND)
			break;
	}
	ok(got(server, &from, "hello", ""), "a name is tried in IPv4 and in IPv6");
	port_close(client);
	port_close(server);
}

TEST(messages)
{
	struct port *server = open_port(NULL), *client = open_port(NULL);
	char bound[TRANSFER_ENDPOINT_MAX], text[16];
	static char bytes[] = "a body";
	_Atomic int given_back = 0;
	uint32_t out, in, from;
	struct err e = {0};
	zmq_msg_t body, h, b;
	void *context, *raw;
	bool came = false, lost[PORT_OUTGOING];
	uint64_t begin;

	ok(port_listen(server, "tcp://127.0.0.1:0", bound, &e) == 0 &&
		   transfer_endpoint_check(bound, false, &e) == 0,
	   "listening on %s", bound);
	check(port_connect(client, bound, NULL, &out, &e) == 0 && out < PORT_OUTGOING);
	check(send_soon(client, NULL, out, "hello"));
	ok(got(server, &in, "hello", "") && in >= PORT_OUTGOING,
	   "an incoming connection has a link");
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "%d", i);
		check(port_send(server, in, text, strlen(text), NULL) == 0);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "%d", i);
		check(got(client, &from, text, "") && from == out);
	}
	ok_all("a thousand answers, in order");
	zmq_msg_init_data(&body, bytes, sizeof(bytes) - 1, give_back, &given_back);
	check(port_send(server, in, "head", 4, &body) == 0);
	ok(got(client, &from, "head", "a body"), "a body that was not copied");
	for (int i = 0; i < 1000 && !given_back; i++)
		usleep(1000);
	is_int(given_back, 1, "its memory is given back once it is out");
	is_int(port_send(server, PORT_OUTGOING + PORT_INCOMING - 1, "x", 1, NULL), -EHOSTUNREACH,
	       "no connection has this link");
	is_int(port_send(client, out + 1, "x", 1, NULL), -EHOSTUNREACH, "nor this one");

	/* Messages of a client that does not use port.h: one has too many frames. */
	context = zmq_ctx_new();
	raw = zmq_socket(context, ZMQ_DEALER);
	check(zmq_connect(raw, bound) == 0);
	zmq_send(raw, "1", 1, ZMQ_SNDMORE);
	zmq_send(raw, "2", 1, ZMQ_SNDMORE);
	zmq_send(raw, "3", 1, 0);
	zmq_send(raw, "", 0, 0);
	zmq_send(raw, "fine", 4, 0);
	ok(got(server, &from, "", "") && from != in && got(server, &from, "fine", ""),
	   "three frames are dropped, the connection lives");
	check(port_send(server, from, "x", 1, NULL) == 0);
	port_forget(server, from);
	is_int(port_send(server, from, "x", 1, NULL), -EHOSTUNREACH,
	       "nothing is sent on a forgotten link");
	{
		char *large = calloc(1, LARGEST + 1);

		check(large != NULL);
		zmq_send(raw, large, LARGEST + 1, 0);
		ok(!next(server, &from, &h, &b, 300),
		   "a message that is too large is not received");
		free(large);
	}
	ok(send_soon(client, server, out, "still") && got(server, &from, "still", "") && from == in,
	   "and disturbs no other connection");
	{
		int linger = 0;

		zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof(linger));
		zmq_close(raw);
		zmq_ctx_term(context);
	}

	server = replace(server, bound);
	/* Messages that were given to the old connection, before its end was seen, are lost. */
	for (int i = 0; i < 100 && !came; i++)
		came = send_soon(client, server, out, "again") && next(server, &in, &h, &b, 100);
	ok(came && zmq_msg_size(&h) == 5, "an outgoing connection goes on trying");
	if (came) {
		zmq_msg_close(&h);
		zmq_msg_close(&b);
	}
	port_wait(client, wake, 1000);
	ok(port_lost(client, lost) && lost[out], "a connection that broke is told of");
	ok(!port_lost(client, lost), "once");
	/* A message that was sent shortly before the connection ended is received, even after the end is known. */
	drop_all(server, 100);
	check(send_soon(client, server, out, "stay") && got(server, &in, "stay", ""));
	check(port_send(server, in, "bye", 3, NULL) == 0);
	server = replace(server, bound);
	/* The message that waits ends every port_wait at once, so time is counted and not waits. */
	for (begin = clock_now_ns(); !port_lost(client, lost);) {
		if (clock_now_ns() - begin > 10 * SECOND)
			break;
		port_wait(client, wake, 100);
	}
	ok(lost[out] && got(client, &from, "bye", "") && from == out,
	   "a message that came before a connection broke is still received");
	port_reconnect(client, out);
	drop_all(server, 100);
	ok(send_soon(client, server, out, "anew") && got(server, &in, "anew", ""),
	   "it is made anew");
	port_disconnect(client, out);
	is_int(port_send(client, out, "x", 1, NULL), -EHOSTUNREACH,
	       "nothing is sent after port_disconnect");
	port_close(client);
	port_close(server);
}

/* For a peer that sends and does not read, a bounded number of answers is kept. Other peers do not notice. */
TEST(limit)
{
	enum { BYTES = 1 << 16, ENOUGH = 4096 };
	struct port *server = open_limited(NULL, 4), *client = open_port(NULL);
	char bound[TRANSFER_ENDPOINT_MAX];
	char *answer = calloc(1, BYTES);
	void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_DEALER);
	int one = 1, linger = 0, n = 0;
	uint32_t deaf, in, from, out;
	struct err e = {0};

	check(answer && port_listen(server, "tcp://127.0.0.1:0", bound, &e) == 0);
	zmq_setsockopt(raw, ZMQ_RCVHWM, &one, sizeof(one));
	zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof(linger));
	check(zmq_connect(raw, bound) == 0 && zmq_send(raw, "ask", 3, 0) == 3);
	check(got(server, &deaf, "ask", ""));
	while (n < ENOUGH && port_send(server, deaf, answer, BYTES, NULL) == 0)
		n++;
	ok(n >= 4 && n < ENOUGH, "%d answers that nobody reads are kept", n);
	check(port_connect(client, bound, NULL, &out, &e) == 0);
	ok(send_soon(client, server, out, "hello") && got(server, &in, "hello", "") &&
		   port_send(server, in, "you", 3, NULL) == 0 && got(client, &from, "you", ""),
	   "another client gets its answer");
	zmq_close(raw);
	zmq_ctx_term(context);
	free(answer);
	port_close(client);
	port_close(server);
}

static struct transfer_keys new_keys(void)
{
	struct transfer_keys k = {0};

	if (zmq_curve_keypair(k.public_key, k.secret_key) < 0)
		abort();
	return k;
}

static void allow(struct transfer_keys *k, const struct transfer_keys *peer)
{
	k->allowed = reallocarray(k->allowed, k->n_allowed + 1, sizeof(*k->allowed));
	if (!k->allowed)
		abort();
	memset(&k->allowed[k->n_allowed], 0, sizeof(*k->allowed));
	memcpy(k->allowed[k->n_allowed++].key, peer->public_key, TRANSFER_KEY_TEXT);
}

/* Returns whether a message of a client with these keys reaches the server. server_key: the key that the client expects
 * the server to have. */
static bool comes_in(struct port *server, const char *bound, const struct transfer_keys *keys,
		     const char *server_key, uint64_t ms)
{
	struct port *client = open_port(keys);
	uint64_t until = clock_now_ns() + ms * 1000000;
	uint32_t out, from;
	bool in = false;
	zmq_msg_t h, b;
	struct err e = {0};

	check(port_connect(client, bound, server_key, &out, &e) == 0);
	while (!in && clock_now_ns() < until) {
		(void)!port_send(client, out, "x", 1, NULL);
		port_wait(client, wake, 5);
		in = next(server, &from, &h, &b, 5);
	}
	if (in) {
		zmq_msg_close(&h);
		zmq_msg_close(&b);
		drop_all(server, 50);
	}
	port_close(client);
	return in;
}

TEST(keys)
{
	struct transfer_keys ours = new_keys(), friend = new_keys(), stranger = new_keys();
	char bound[TRANSFER_ENDPOINT_MAX];
	struct port *server;
	struct err e = {0};

	allow(&ours, &friend);
	server = open_port(&ours);
	check(port_listen(server, "tcp://127.0.0.1:0", bound, &e) == 0);
	ok(comes_in(server, bound, &friend, ours.public_key, 10000),
	   "a client on the list is accepted");
	ok(!comes_in(server, bound, &stranger, ours.public_key, 500),
	   "a client that is not on it is refused");
	ok(!comes_in(server, bound, NULL, NULL, 500), "so is a client without keys");
	ok(!comes_in(server, bound, &friend, stranger.public_key, 500),
	   "a client does not talk to a server of another key");
	ok(comes_in(server, bound, &friend, ours.public_key, 10000),
	   "the client on the list is still accepted");
	port_close(server);
	free(ours.allowed);
}

/* port_set_key takes only a key that differs from the link's own and is not too long. */
TEST(key_of_a_link)
{
	struct transfer_keys ours = new_keys(), first = new_keys(), second = new_keys();
	struct port *client = open_port(&ours);
	char more[TRANSFER_KEY_TEXT + 1];
	uint32_t out;
	struct err e = {0};

	snprintf(more, sizeof(more), "%sx", second.public_key);
	check(port_connect(client, "tcp://127.0.0.1:1", first.public_key, &out, &e) == 0);
	ok(!port_set_key(client, out, first.public_key), "the key that a link has is none to set");
	ok(!port_set_key(client, out, more), "nor is a key of one character too many");
	ok(!port_set_key(client, out, first.public_key), "which leaves the first one as it was");
	ok(port_set_key(client, out, second.public_key), "another key is set");
	ok(!port_set_key(client, out, second.public_key), "once");
	port_close(client);
}

int main(void)
{
	wake = eventfd(0, EFD_CLOEXEC);
	run_tests();
	close(wake);
	return done();
}
