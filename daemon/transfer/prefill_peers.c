#include "daemon/transfer/prefill_peers.h"

#include <errno.h>
#include <string.h>

#include "protocol/transfer/wire.h"
#include "protocol/transfer/wire_fit.h"

int prefill_peers_add(struct prefill_peers *p, const char *endpoint, const char *key,
		      uint32_t *ret_peer, struct err *e)
{
	struct receiving *r = &p->receiving;
	struct worker *w = r->worker;
	uint32_t link, peer;
	int status = peers_add(r->peers, endpoint, w->now_ns, &peer, e);

	if (status < 0)
		return status;
	status = port_connect(w->port, endpoint, key, &link, e);
	if (status < 0) {
		peers_remove(r->peers, peer);
		return status;
	}
	r->link_of_peer[peer] = link;
	r->peer_of_link[link] = peer;
	p->links[link] = (struct prefill_link){.said = p->links[link].said};
	worker_forget_link(w, link);
	*ret_peer = peer;
	return 0;
}

int prefill_peers_open(struct prefill_peers *p, struct worker *w, struct err *e)
{
	int r = receiving_open(&p->receiving, w, e);

	for (size_t i = 0; r == 0 && i < w->config.n_peers; i++) {
		uint32_t peer;

		r = prefill_peers_add(p, w->config.peers[i], NULL, &peer, e);
		if (r == 0)
			worker_key_assumed(w, "--prefill", w->config.peers[i]);
	}
	return r;
}

void prefill_peers_close(struct prefill_peers *p)
{
	peers_free(p->receiving.peers);
}

void prefill_peers_remove(struct prefill_peers *p, uint32_t peer, const char *why)
{
	struct receiving *r = &p->receiving;
	uint32_t link = r->link_of_peer[peer];
	char more[LOG_MORE_MAX];

	if (log_due_often(&p->said_removed, r->worker->now_ns, more))
		log_info("transfer: disconnecting from %s: %s%s", receiving_peer_name(r, peer), why,
			 more);
	receiving_fail_peer(r, peer, EHOSTUNREACH, why);
	port_disconnect(r->worker->port, link);
	r->peer_of_link[link] = PEERS_MAX;
	peers_remove(r->peers, peer);
}

/* ---- receiving ---- */

static struct prefill_link *link_of(struct prefill_peers *p, uint32_t peer)
{
	return &p->links[p->receiving.link_of_peer[peer]];
}

static const char *name_of(const struct prefill_peers *p, uint32_t peer)
{
	return receiving_peer_name(&p->receiving, peer);
}

/* Returns whether a line about what a peer says may be written now; more as in log_due. A peer can say one thing and
 * its contrary as often as it likes. */
static bool may_say(struct prefill_peers *p, uint32_t peer, char more[LOG_MORE_MAX])
{
	return log_due_often(&link_of(p, peer)->said, p->receiving.worker->now_ns, more);
}

static void hear_hello(struct prefill_peers *p, uint32_t peer, const struct wire_hello *h)
	ON(role_transfer)
{
	struct receiving *r = &p->receiving;
	struct worker *w = r->worker;
	struct peer_info before;
	char more[LOG_MORE_MAX];
	struct err e = {0};

	peers_get(r->peers, peer, &before);
	if (h->role != WIRE_PREFILL)
		err_set(&e, EINVAL, "it is no prefill worker");
	if (e.code || !wire_hello_fits(&w->hello, h, &e)) {
		if (strcmp(before.refusal, e.text) != 0 && may_say(p, peer, more))
			log_warning("transfer: %s is not used: %s%s", before.endpoint, e.text,
				    more);
		peers_refuse(r->peers, peer, w->now_ns, e.text);
		/* The peer may have another model now. So data that come after this HELLO are not used. */
		receiving_fail_peer(r, peer, EHOSTUNREACH, "it does not fit any more");
		return;
	}
	if (peers_hello(r->peers, peer, h, w->now_ns))
		receiving_fail_peer(r, peer, EHOSTUNREACH, "it was started again");
	if (before.state != PEER_REGISTERED) {
		if (may_say(p, peer, more))
			log_info("transfer: %s is there%s", before.endpoint, more);
		worker_forget_link(w, r->link_of_peer[peer]);
		link_of(p, peer)->leaves = false;
	}
}

/* Logs once that a peer shuts down: with the first PONG that says so, or with its REFUSE. */
static void note_leaving(struct prefill_peers *p, uint32_t peer) ON(role_transfer)
{
	struct prefill_link *l = link_of(p, peer);
	char more[LOG_MORE_MAX];

	if (!l->leaves && may_say(p, peer, more))
		log_info("transfer: %s is shutting down%s", name_of(p, peer), more);
	l->leaves = true;
}

static void hear_pong(struct prefill_peers *p, uint32_t peer, const struct wire_pong *pong)
	ON(role_transfer)
{
	struct peers *peers = p->receiving.peers;
	struct peer_info i;

	if (peers_pong(peers, peer, pong, p->receiving.worker->now_ns) < 0)
		log_debug("transfer: out of memory for keys");
	peers_get(peers, peer, &i);
	if (i.state == PEER_REGISTERED && i.draining)
		note_leaving(p, peer);
}

/* Handles a REFUSE by which a peer says that it shuts down. Our answer tells the peer that everything it sent has
 * arrived. The attempts at the peer fail, so that their prompts are computed elsewhere. */
static void hear_farewell(struct prefill_peers *p, uint32_t peer) ON(role_transfer)
{
	struct receiving *r = &p->receiving;

	worker_farewell(r->worker, r->link_of_peer[peer]);
	note_leaving(p, peer);
	if (peers_lost(r->peers, peer, r->worker->now_ns))
		receiving_fail_peer(r, peer, ESHUTDOWN, "it is shutting down");
}

static void hear_refuse(struct prefill_peers *p, uint32_t peer, const struct wire_refuse *refuse)
	ON(role_transfer)
{
	struct receiving *r = &p->receiving;
	char text[WIRE_TEXT_MAX + 1], more[LOG_MORE_MAX];
	struct peer_info before;

	switch (refuse->code) {
	case ENOTCONN: /* the peer has no HELLO of ours: it was started again, or it has forgotten us */
		if (peers_lost(r->peers, peer, r->worker->now_ns))
			receiving_fail_peer(r, peer, EHOSTUNREACH,
					    "it does not know this worker any more");
		return;
	case ESHUTDOWN: hear_farewell(p, peer); return;
	}
	peers_get(r->peers, peer, &before);
	wire_text(refuse->text, refuse->n_text, text, sizeof(text));
	if (strcmp(before.refusal, text) != 0 && may_say(p, peer, more))
		log_warning("transfer: %s refuses: %s%s", before.endpoint, text, more);
	peers_refuse(r->peers, peer, r->worker->now_ns, text);
	receiving_fail_peer(r, peer, EHOSTUNREACH, "it refuses");
}

void prefill_peers_seen(struct prefill_peers *p, uint32_t link)
{
	p->links[link].silent_ns = 0;
	p->links[link].said_silent = false;
}

void prefill_peers_hear(struct prefill_peers *p, uint32_t link, const struct wire_message *m,
			zmq_msg_t *head, zmq_msg_t *body)
{
	struct receiving *r = &p->receiving;
	uint32_t peer = r->peer_of_link[link];
	struct attempt *a;

	peers_alive(r->peers, peer);
	switch (m->type) {
	case WIRE_HELLO: hear_hello(p, peer, &m->hello); break;
	case WIRE_REFUSE: hear_refuse(p, peer, &m->refuse); break;
	case WIRE_PONG: hear_pong(p, peer, &m->pong); break;
	case WIRE_WINDOW:
	case WIRE_STATUS:
		a = attempt_of_delivery(r->worker, link, m->delivery);
		if (a)
			receiving_hear(r, a, m, head, body);
		break;
	default:
		log_debug("transfer: %s sent a %s, which a decode worker ignores", name_of(p, peer),
			  wire_type_name(m->type));
	}
}

void prefill_peers_lost(struct prefill_peers *p, const bool lost[PORT_OUTGOING])
{
	struct receiving *r = &p->receiving;

	for (uint32_t i = 0; i < PORT_OUTGOING; i++) {
		uint32_t peer = r->peer_of_link[i];
		char more[LOG_MORE_MAX];

		if (!lost[i] || peer == PEERS_MAX || !peers_lost(r->peers, peer, r->worker->now_ns))
			continue;
		if (p->links[i].leaves) {
			receiving_fail_peer(r, peer, ESHUTDOWN, "it has shut down");
			continue;
		}
		if (may_say(p, peer, more))
			log_warning("transfer: the connection to %s broke%s", name_of(p, peer),
				    more);
		receiving_fail_peer(r, peer, EHOSTUNREACH, "the connection broke");
	}
}

void prefill_peers_leave(struct prefill_peers *p)
{
	struct receiving *r = &p->receiving;

	for (uint64_t left = peers_mask(r->peers); left; left &= left - 1) {
		uint32_t peer = (uint32_t)__builtin_ctzll(left);
		struct peer_info i;

		peers_get(r->peers, peer, &i);
		if (i.state == PEER_REGISTERED)
			worker_farewell(r->worker, r->link_of_peer[peer]);
	}
}

/* ---- time ---- */

/* Logs once that nothing has come from a peer for too long. Called after each HELLO to the peer; sent: the HELLO could
 * be sent. When the peer's own HELLO comes, hear_hello logs that the peer is there. */
static void note_silence(struct prefill_peers *p, uint32_t peer, bool sent) ON(role_transfer)
{
	const struct worker *w = p->receiving.worker;
	struct prefill_link *l = link_of(p, peer);

	if (!l->silent_ns)
		l->silent_ns = w->now_ns;
	/* A connected peer may still be reading its weights, whose hash it needs before it can answer. */
	if (l->said_silent ||
	    w->now_ns - l->silent_ns < (sent || l->leaves ? WORKER_SILENT_NS : WORKER_AWAY_NS))
		return;
	l->said_silent = true;
	if (l->leaves)
		log_info("transfer: %s cannot be reached since it was shut down", name_of(p, peer));
	else if (sent)
		log_warning("transfer: %s says nothing: there is a connection, but no HELLO came",
			    name_of(p, peer));
	else
		log_warning("transfer: %s cannot be reached: no process listens there%s",
			    name_of(p, peer),
			    w->config.keys ? ", or its keys and ours do not fit"
					   : ", or it wants a --transfer-key");
}

/* Counts the peers that take prompts, for the metrics. */
static void count_peers(const struct receiving *r) ON(role_transfer)
{
	uint32_t n = 0;

	for (uint64_t left = peers_mask(r->peers); left; left &= left - 1) {
		struct peer_info i;

		peers_get(r->peers, (uint32_t)__builtin_ctzll(left), &i);
		n += i.state == PEER_REGISTERED && !i.draining && !i.silent;
	}
	atomic_store(&r->worker->config.counters->peers, n);
}

static void say_hello(struct prefill_peers *p, uint32_t peer) ON(role_transfer)
{
	struct worker *w = p->receiving.worker;
	const struct wire_message m = {.type = WIRE_HELLO, .hello = w->hello};
	uint32_t link = p->receiving.link_of_peer[peer];
	bool sent = worker_say(w, link, &m, NULL) == 0;

	worker_reached(w, link, sent);
	note_silence(p, peer, sent);
}

static void say_ping(struct prefill_peers *p, uint32_t peer) ON(role_transfer)
{
	struct receiving *r = &p->receiving;
	struct wire_message m = {.type = WIRE_PING};
	struct peer_info i;

	peers_get(r->peers, peer, &i);
	m.ping.sequence = i.sequence;
	(void)!worker_say(r->worker, r->link_of_peer[peer], &m, NULL);
}

uint64_t prefill_peers_tick(struct prefill_peers *p)
{
	struct receiving *r = &p->receiving;
	enum peers_due due;
	uint64_t next;
	uint32_t peer;

	while ((due = peers_tick(r->peers, r->worker->now_ns, &peer)) != PEERS_NOTHING) {
		if (due == PEERS_SAY_HELLO) {
			say_hello(p, peer);
		} else if (due == PEERS_SAY_PING) {
			say_ping(p, peer);
		} else {
			log_warning("transfer: %s does not answer", name_of(p, peer));
			link_of(p, peer)->said_silent = true;
			receiving_fail_peer(r, peer, EHOSTUNREACH, "it does not answer");
		}
	}
	next = receiving_tick(r);
	count_peers(r);
	return MIN(next, peers_deadline(r->peers));
}
