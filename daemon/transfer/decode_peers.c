#include "daemon/transfer/decode_peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/peers.h"
#include "protocol/transfer/wire_fit.h"

#define for_each_link(link) \
	for (uint32_t link = PORT_OUTGOING; link < PORT_OUTGOING + PORT_INCOMING; link++)

int decode_peers_open(struct decode_peers *d, struct worker *w, struct err *e)
{
	int r = sending_open(&d->sending, w, e);

	if (r < 0)
		return r;
	d->peers = calloc(PORT_INCOMING, sizeof(*d->peers));
	return d->peers ? 0 : err_no_memory(e);
}

void decode_peers_close(struct decode_peers *d)
{
	sending_close(&d->sending);
	free(d->peers);
}

static struct decode_peer *peer_of(const struct decode_peers *d, uint32_t link)
{
	return &d->peers[link - PORT_OUTGOING];
}

static const char *address_of(const struct decode_peers *d, uint32_t link)
{
	return port_address(d->sending.worker->port, link);
}

static void fail_peer(struct decode_peers *d, uint32_t link, const char *why) ON(role_transfer)
{
	attempts_fail(d->sending.worker, link, EHOSTUNREACH, why);
	sending_end_failed(&d->sending);
}

/* Logs that a decode worker at a link came, went or was lost. A peer can come and go as often as it likes. format: has
 * one %s, for the address. */
#define log_move(d, limit, level, link, format)                                                \
	do {                                                                                   \
		char more[LOG_MORE_MAX];                                                       \
                                                                                               \
		if (log_due_often(&(d)->limit, (d)->sending.worker->now_ns, more))             \
			log_write(level, "transfer: " format "%s", address_of(d, link), more); \
	} while (0)

/* Fails the peer's attempts and forgets the peer, so that its link is free again. */
static void forget(struct decode_peers *d, uint32_t link, const char *why) ON(role_transfer)
{
	struct worker *w = d->sending.worker;
	struct decode_peer *p = peer_of(d, link);

	if (p->known) {
		fail_peer(d, link, why);
		atomic_fetch_sub(&w->config.counters->peers, 1);
	}
	*p = (struct decode_peer){0};
	port_forget(w->port, link);
}

/* ---- sending ---- */

/* Sends a PONG. sequence: the sequence of the PING that it answers; 0: it answers none. */
static void say_pong(struct decode_peers *d, uint32_t link, uint64_t sequence) ON(role_transfer)
{
	struct worker *w = d->sending.worker;
	struct decode_peer *p = peer_of(d, link);
	struct wire_message m = {.type = WIRE_PONG};
	struct wire_key keys[GOSSIP_TOLD];
	uint64_t told = p->told;

	m.pong.sequence = sequence;
	m.pong.draining = atomic_load(&w->draining);
	gossip_tell(&d->sending.gossip, &told, keys, &m.pong);
	list_for_each (a, &w->attempts, struct attempt, node) {
		m.pong.queued_tokens += a->n_asked;
		m.pong.running++;
	}
	/* If the PONG could not be sent, the next one has these keys again. */
	if (worker_say(w, link, &m, NULL) == 0)
		p->told = told;
}

void decode_peers_drain(struct decode_peers *d)
{
	if (d->said_draining)
		return;
	d->said_draining = true;
	for_each_link(link) if (peer_of(d, link)->known) say_pong(d, link, 0);
}

void decode_peers_leave(struct decode_peers *d)
{
	for_each_link(link) if (peer_of(d, link)->known) worker_farewell(d->sending.worker, link);
}

bool decode_peers_any(const struct decode_peers *d)
{
	for_each_link(link) if (peer_of(d, link)->known) return true;
	return false;
}

void decode_peers_flushed(struct decode_peers *d)
{
	gossip_clear(&d->sending.gossip);
}

/* ---- receiving ---- */

/* Returns the time without a message after which a peer is forgotten: three heartbeats, the peer's or our own,
 * whichever are longer. */
static uint64_t patience_of(const struct decode_peers *d, uint32_t heartbeat_ms)
{
	uint64_t own_ns = d->sending.worker->config.heartbeat_ns;

	return (PEERS_MISSED + 1) * MAX(own_ns, heartbeat_ms * UINT64_C(1000000));
}

/* Called when the first HELLO of a decode worker came on a link: forgets the worker's other links whose connection is
 * broken. Attempts on a broken link are of no use: data cannot reach the decode worker, and its ABORTs come on the new
 * link. Only sending shows whether a connection still exists, so a HELLO is sent on each other link of the decode
 * worker. A decode worker that is connected twice, through two addresses, is not harmed by a second HELLO. */
static void forget_broken(struct decode_peers *d, uint32_t link) ON(role_transfer)
{
	struct worker *w = d->sending.worker;
	const struct wire_message m = {.type = WIRE_HELLO, .hello = w->hello};

	for_each_link(other)
	{
		const struct decode_peer *p = peer_of(d, other);

		if (other == link || !p->known ||
		    memcmp(p->worker, peer_of(d, link)->worker, WIRE_ID) != 0 ||
		    worker_say(w, other, &m, NULL) != -EHOSTUNREACH)
			continue;
		log_move(d, said_losses, LOG_LEVEL_WARNING, other,
			 "the connection of a decode worker at %s broke");
		forget(d, other, "the connection of a decode worker broke");
	}
}

/* Answers a HELLO that does not fit with REFUSE. */
static void refuse_hello(struct decode_peers *d, uint32_t link, const char *why) ON(role_transfer)
{
	struct worker *w = d->sending.worker;
	char more[LOG_MORE_MAX];

	if (!peer_of(d, link)->known && log_due(&d->said_refused, w->now_ns, more))
		log_warning("transfer: a decode worker at %s is refused: %s%s", address_of(d, link),
			    why, more);
	worker_refuse(w, link, EINVAL, why);
}

static void accept_hello(struct decode_peers *d, uint32_t link, const struct wire_hello *h)
	ON(role_transfer)
{
	struct worker *w = d->sending.worker;
	const struct wire_message m = {.type = WIRE_HELLO, .hello = w->hello};
	struct decode_peer *p = peer_of(d, link);
	bool is_new = !p->known;
	bool restarted = p->known && memcmp(p->worker, h->worker, sizeof(p->worker)) != 0;

	if (restarted)
		fail_peer(d, link, "the decode worker was started again");
	if (is_new) {
		log_move(d, said_moves, LOG_LEVEL_INFO, link, "a decode worker at %s has come");
		atomic_fetch_add(&w->config.counters->peers, 1);
	}
	*p = (struct decode_peer){.known = true,
				  .heard_ns = w->now_ns,
				  .patience_ns = patience_of(d, h->heartbeat_ms)};
	memcpy(p->worker, h->worker, sizeof(p->worker));
	(void)!worker_say(w, link, &m, NULL);
	if (atomic_load(&w->draining))
		say_pong(d, link, 0);
	if (is_new || restarted)
		forget_broken(d, link);
}

static void hear_hello(struct decode_peers *d, uint32_t link, const struct wire_hello *h)
	ON(role_transfer)
{
	struct worker *w = d->sending.worker;
	struct err e = {0};

	if (atomic_load(&w->quit))
		worker_farewell(w, link);
	else if (h->role != WIRE_DECODE)
		refuse_hello(d, link, "this worker prefills for decode workers only");
	else if (!wire_hello_fits(&w->hello, h, &e))
		refuse_hello(d, link, e.text);
	else
		accept_hello(d, link, h);
}

/* Forgets a peer whose REFUSE has the code ESHUTDOWN, and ignores any other REFUSE. A decode worker sends that code
 * when it shuts down, or as the answer to our own ESHUTDOWN. */
static void hear_refuse(struct decode_peers *d, uint32_t link, const struct wire_refuse *r)
	ON(role_transfer)
{
	if (r->code != ESHUTDOWN) {
		log_debug("transfer: a REFUSE with code %u, which a prefill worker ignores",
			  r->code);
		return;
	}
	if (!atomic_load(&d->sending.worker->quit))
		log_move(d, said_moves, LOG_LEVEL_INFO, link, "a decode worker at %s has left");
	forget(d, link, "the decode worker is shutting down");
}

void decode_peers_other_version(struct decode_peers *d, uint32_t link, const struct err *why)
{
	struct worker *w = d->sending.worker;
	char more[LOG_MORE_MAX];

	if (log_due(&d->said_version, w->now_ns, more))
		log_warning("transfer: a decode worker at %s is refused: %s%s", address_of(d, link),
			    why->text, more);
	/* The peer cannot read the answer either, but the answer's header tells it that the versions differ. */
	if (!peer_of(d, link)->known)
		worker_refuse(w, link, EPROTONOSUPPORT, why->text);
}

void decode_peers_unreadable(struct decode_peers *d, uint32_t link, uint64_t delivery,
			     const struct err *why)
{
	if (peer_of(d, link)->known)
		sending_unreadable(&d->sending, link, delivery, why);
}

void decode_peers_seen(struct decode_peers *d, uint32_t link)
{
	struct decode_peer *p = peer_of(d, link);

	if (!p->known && !p->heard_ns)
		p->heard_ns = d->sending.worker->now_ns;
}

void decode_peers_hear(struct decode_peers *d, uint32_t link, const struct wire_message *m,
		       zmq_msg_t *head)
{
	struct worker *w = d->sending.worker;
	struct decode_peer *p = peer_of(d, link);
	struct attempt *a;

	if (m->type == WIRE_HELLO) {
		hear_hello(d, link, &m->hello);
		return;
	}
	if (!p->known) {
		if (m->type != WIRE_REFUSE)
			worker_refuse(w, link, ENOTCONN, "HELLO comes first");
		return;
	}
	p->heard_ns = w->now_ns;
	a = m->delivery ? attempt_of_delivery(w, link, m->delivery) : NULL;
	switch (m->type) {
	case WIRE_PING: say_pong(d, link, m->ping.sequence); break;
	case WIRE_REFUSE: hear_refuse(d, link, &m->refuse); break;
	case WIRE_PREPARE:
		/* A second PREPARE of a delivery is ignored. */
		if (!a)
			sending_prepare(&d->sending, link, m, head);
		break;
	case WIRE_ABORT:
		if (!a)
			break;
		delivery_fail(a->delivery, w->now_ns, ECANCELED, "the decode worker gave it up");
		sending_end_failed(&d->sending);
		break;
	default:
		log_debug("transfer: a %s, which a prefill worker ignores",
			  wire_type_name(m->type));
	}
}

/* ---- time ---- */

uint64_t decode_peers_tick(struct decode_peers *d)
{
	struct worker *w = d->sending.worker;
	uint64_t next = w->now_ns + w->config.heartbeat_ns;

	for_each_link(link)
	{
		const struct decode_peer *p = peer_of(d, link);
		uint64_t patience_ns = p->known ? p->patience_ns : patience_of(d, 0);

		if (!p->heard_ns || w->now_ns - p->heard_ns < patience_ns)
			continue;
		if (p->known)
			log_move(d, said_losses, LOG_LEVEL_WARNING, link,
				 "a decode worker at %s does not answer");
		forget(d, link, "the decode worker does not answer");
	}
	next = MIN(next, attempts_tick(w));
	sending_end_failed(&d->sending);
	return next;
}
