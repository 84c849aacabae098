/*
 * A decode worker's side: whom it calls, whom it asks, what comes. A prompt goes to the peer that would be through with it first
 * (protocol/transfer/peers.h); when that fails, the engine thread is told and may ask the next one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "daemon/transfer/transfer_internal.h"

int calls_add(struct transfer *t, const char *endpoint, const char *key, uint32_t *ret_peer,
	      struct err *e)
{
	uint32_t port, peer;
	int r = peers_add(t->peers, endpoint, t->now_ns, &peer, e);

	if (r < 0)
		return r;
	r = port_call(t->port, endpoint, key, &port, e);
	if (r < 0) {
		peers_remove(t->peers, peer);
		return r;
	}
	t->ports[peer] = port;
	t->called[port] = peer;
	t->calls[port] = (struct call_info){0};
	*ret_peer = peer;
	return 0;
}

int calls_open(struct transfer *t, struct err *e)
{
	struct {
		uint64_t seed[2], delivery;
	} random;
	int r = 0;

	if (getrandom(&random, sizeof(random), 0) < 0 ||
	    !(t->peers = peers_new(random.seed, t->config.heartbeat_ns)))
		return err_set(e, ENOMEM, "out of memory");
	/* Deliveries of another life of this worker have other numbers. Peers see them, so they say nothing of the seed. */
	t->last_delivery = random.delivery >> 16 << 16;
	for (size_t i = 0; r == 0 && i < t->config.n_peers; i++) {
		uint32_t peer;

		r = calls_add(t, t->config.peers[i], NULL, &peer, e);
		if (r == 0)
			transfer_key_assumed(t, "--prefill", t->config.peers[i]);
	}
	return r;
}

void calls_close(struct transfer *t)
{
	peers_free(t->peers);
}

static const char *name_of(const struct transfer *t, uint32_t peer)
{
	struct peer_info i;

	peers_get(t->peers, peer, &i);
	return i.endpoint;
}

/* ---- ends ---- */

static void tell_lost(struct transfer *t, struct attempt *a) ON(role_transfer)
{
	a->end->tried = a->tried;
	note_end(t, a, NOTE_LOST);
}

/* Who ends has not begun with it: that is no failure, it is asked for elsewhere. */
static bool only_refused(const struct attempt *a)
{
	struct delivery_counts counts;

	delivery_counts(a->delivery, &counts);
	return delivery_error(a->delivery)->code == ESHUTDOWN && !counts.windows;
}

void calls_fail(struct transfer *t, struct attempt *a)
{
	const struct wire_message m = {.type = WIRE_ABORT, .delivery = delivery_id(a->delivery)};

	/* Who is gone need not be told. */
	(void)!transfer_say(t, a->peer, &m, NULL);
	log_info("transfer: %s: %s", name_of(t, t->called[a->peer]),
		 delivery_error(a->delivery)->text);
	if (!only_refused(a))
		atomic_fetch_add(&t->config.metrics->prompts_failed, 1);
	peers_done(t->peers, t->called[a->peer], a->n_tokens);
	tell_lost(t, a);
	attempt_free(a);
}

static void fail_all_of(struct transfer *t, uint32_t peer, int code, const char *why)
	ON(role_transfer)
{
	struct list *next;

	for (struct list *node = t->attempts.next; node != &t->attempts; node = next) {
		struct attempt *a = container_of(node, struct attempt, node);

		next = node->next;
		if (t->called[a->peer] != peer)
			continue;
		delivery_fail(a->delivery, t->now_ns, code, "%s", why);
		calls_fail(t, a);
	}
}

void calls_remove(struct transfer *t, uint32_t peer, const char *why)
{
	log_info("transfer: %s is called no more: %s", name_of(t, peer), why);
	fail_all_of(t, peer, EHOSTUNREACH, why);
	port_hang_up(t->port, t->ports[peer]);
	peers_remove(t->peers, peer);
}

bool calls_busy(const struct transfer *t, uint32_t peer)
{
	list_for_each (node, &t->attempts)
		if (t->called[container_of(node, struct attempt, node)->peer] == peer)
			return true;
	return false;
}

static void succeed(struct transfer *t, struct attempt *a) ON(role_transfer)
{
	struct transfer_note *n = a->end;
	struct delivery_counts counts;

	delivery_counts(a->delivery, &counts);
	transfer_trace(t, t->now_ns, "complete", delivery_id(a->delivery), NULL);
	peers_done(t->peers, t->called[a->peer], a->n_tokens);
	n->draws = calloc(a->n_choices, sizeof(*n->draws));
	if (!n->draws) {
		log_error("transfer: out of memory");
		tell_lost(t, a);
	} else {
		n->n_draws = a->n_choices;
		memcpy(n->draws, delivery_draws(a->delivery), n->n_draws * sizeof(*n->draws));
		atomic_fetch_add(&t->config.metrics->prompts_received, 1);
		atomic_fetch_add(&t->config.metrics->prompts_received_bytes, counts.bytes);
		note_end(t, a, NOTE_CAME);
	}
	attempt_free(a);
}

/* After what may have changed it. */
static void look_at(struct transfer *t, struct attempt *a) ON(role_transfer)
{
	if (delivery_status(a->delivery) == DELIVERY_SUCCESS)
		succeed(t, a);
	else if (delivery_status(a->delivery) == DELIVERY_FAILED)
		calls_fail(t, a);
}

/* ---- asking ---- */

static uint64_t seen_by(const struct task *k, uint32_t peer)
{
	return k->ask.tried | UINT64_C(1) << peer;
}

/* Sends PREPARE to one peer; false: it cannot be had. */
static bool ask_peer(struct transfer *t, struct task *k, uint32_t peer, uint32_t n_cached)
	ON(role_transfer)
{
	const struct wire_prepare *p = &k->ask.prepare;
	uint32_t have = MAX(n_cached * t->hello.layout.page_tokens, p->n_have);
	struct wire_message m;
	struct attempt *a;
	struct delivery *delivery;
	struct err e = {0};

	if (delivery_new_receiver(++t->last_delivery, &t->hello.layout, p->n_tokens, p->n_have,
				  p->n_choices, t->now_ns, &delivery, &e) < 0)
		return false;
	a = attempt_new(t, k->attempt, t->ports[peer], delivery);
	/* The frame was made by transfer_ask, and is taken apart to get the delivery's number into it. */
	if (!a || wire_parse(k->frame.data, k->frame.len, &m, &e) < 0) {
		if (a)
			attempt_free(a);
		return false;
	}
	m.delivery = t->last_delivery;
	a->tried = seen_by(k, peer);
	a->n_choices = p->n_choices;
	a->n_tokens = p->n_tokens - MIN(have, p->n_tokens);
	if (transfer_say(t, a->peer, &m, NULL) < 0) {
		attempt_free(a);
		return false;
	}
	a->end = k->end;
	k->end = NULL;
	delivery_raise(delivery, DELIVERY_WAITING_FOR_INPUT, t->now_ns);
	if (peers_sent(t->peers, peer, k->keys, k->ask.n_keys, a->n_tokens) < 0)
		log_debug("transfer: out of memory for keys");
	return true;
}

static void ask(struct transfer *t, struct task *k) ON(role_transfer)
{
	uint32_t peer, n_cached;
	struct transfer_note *n;

	while (peers_choose(t->peers, k->keys, k->ask.n_keys, k->ask.tried, &peer, &n_cached)) {
		if (ask_peer(t, k, peer, n_cached))
			return;
		k->ask.tried = seen_by(k, peer);
	}
	n = k->end;
	k->end = NULL;
	n->tried = k->ask.tried;
	note_send(t, n);
}

static void drop(struct transfer *t, uint64_t number) ON(role_transfer)
{
	struct attempt *a = attempt_of_number(t, number);
	struct wire_message m = {.type = WIRE_ABORT};

	if (!a)
		return;
	m.delivery = delivery_id(a->delivery);
	(void)!transfer_say(t, a->peer, &m, NULL);
	peers_done(t->peers, t->called[a->peer], a->n_tokens);
	attempt_free(a);
}

void calls_task(struct transfer *t, struct task *k)
{
	if (k->type == TASK_ASK)
		ask(t, k);
	else if (k->type == TASK_DROP)
		drop(t, k->attempt);
}

/* ---- hearing ---- */

static void hear_hello(struct transfer *t, uint32_t peer, const struct wire_hello *h)
	ON(role_transfer)
{
	struct peer_info before;
	struct err e = {0};

	peers_get(t->peers, peer, &before);
	if (h->role != WIRE_PREFILL)
		err_set(&e, EINVAL, "it is no prefill worker");
	if (e.code || !wire_hello_fits(&t->hello, h, &e)) {
		if (strcmp(before.refusal, e.text) != 0)
			log_warning("transfer: %s is not used: %s", before.endpoint, e.text);
		peers_refuse(t->peers, peer, t->now_ns, e.text);
		return;
	}
	if (peers_hello(t->peers, peer, h, t->now_ns))
		fail_all_of(t, peer, EHOSTUNREACH, "it was started again");
	if (before.state != PEER_REGISTERED) {
		log_info("transfer: %s is there", before.endpoint);
		/* Should another version be there later, that is new. */
		t->calls[t->ports[peer]].said_version = false;
		t->calls[t->ports[peer]].leaves = false;
	}
}

/* Once: with its first PONG that says so, or with its farewell. */
static void note_leaving(struct transfer *t, uint32_t peer) ON(role_transfer)
{
	struct call_info *c = &t->calls[t->ports[peer]];

	if (!c->leaves)
		log_info("transfer: %s is shutting down", name_of(t, peer));
	c->leaves = true;
}

static void hear_pong(struct transfer *t, uint32_t peer, const struct wire_pong *pong)
	ON(role_transfer)
{
	struct peer_info i;

	if (peers_pong(t->peers, peer, pong) < 0)
		log_debug("transfer: out of memory for keys");
	peers_get(t->peers, peer, &i);
	if (i.state == PEER_REGISTERED && i.draining)
		note_leaving(t, peer);
}

/* What is under way there is asked for elsewhere; that the connection ends now is no news. It waits to hear that all it has
 * sent is here. */
static void hear_farewell(struct transfer *t, uint32_t peer) ON(role_transfer)
{
	transfer_farewell(t, t->ports[peer]);
	note_leaving(t, peer);
	if (peers_lost(t->peers, peer, t->now_ns))
		fail_all_of(t, peer, ESHUTDOWN, "it is shutting down");
}

static void hear_refuse(struct transfer *t, uint32_t peer, const struct wire_refuse *r)
	ON(role_transfer)
{
	char text[WIRE_TEXT_MAX + 1];
	struct peer_info before;

	peers_get(t->peers, peer, &before);
	wire_text(r->text, r->n_text, text, sizeof(text));
	/* It has forgotten us: another process. */
	if (r->code == ENOTCONN) {
		if (peers_lost(t->peers, peer, t->now_ns))
			fail_all_of(t, peer, EHOSTUNREACH, "it was started again");
		return;
	}
	if (r->code == ESHUTDOWN) {
		hear_farewell(t, peer);
		return;
	}
	if (strcmp(before.refusal, text) != 0)
		log_warning("transfer: %s refuses: %s", before.endpoint, text);
	peers_refuse(t->peers, peer, t->now_ns, text);
	fail_all_of(t, peer, EHOSTUNREACH, "it refuses");
}

static void hear_window(struct transfer *t, struct attempt *a, const struct wire_message *m,
			zmq_msg_t *head, zmq_msg_t *body) ON(role_transfer)
{
	struct transfer_note *n;
	struct err e = {0};
	int r = wire_window_fits(&m->window, zmq_msg_size(body), &e);

	if (r < 0)
		delivery_fail(a->delivery, t->now_ns, e.code, "%s", e.text);
	else
		r = delivery_receive(a->delivery, &m->window, t->now_ns, &e);
	if (r == DELIVERY_TAKEN) {
		transfer_trace(t, t->now_ns, "received", delivery_id(a->delivery), &m->window);
		n = note_new(NOTE_DATA, a->number);
		if (n) {
			struct wire_message again;

			/* The frame moves: pointers into it are made anew. */
			zmq_msg_move(&n->head, head);
			zmq_msg_move(&n->body, body);
			if (wire_parse(zmq_msg_data(&n->head), zmq_msg_size(&n->head), &again,
				       &e) == 0)
				n->window = again.window;
			n->data = zmq_msg_data(&n->body);
			note_send(t, n);
		} else {
			delivery_fail(a->delivery, t->now_ns, ENOMEM, "out of memory");
		}
	}
	look_at(t, a);
}

void calls_seen(struct transfer *t, uint32_t port)
{
	t->calls[port].silent_ns = 0;
	t->calls[port].said_silent = false;
}

void calls_hear(struct transfer *t, uint32_t port, const struct wire_message *m, zmq_msg_t *head,
		zmq_msg_t *body)
{
	uint32_t peer = t->called[port];
	struct attempt *a = m->delivery ? attempt_of_delivery(t, port, m->delivery) : NULL;
	struct err e = {0};

	peers_alive(t->peers, peer);
	switch (m->type) {
	case WIRE_HELLO: hear_hello(t, peer, &m->hello); break;
	case WIRE_REFUSE: hear_refuse(t, peer, &m->refuse); break;
	case WIRE_PONG: hear_pong(t, peer, &m->pong); break;
	case WIRE_WINDOW:
		if (a)
			hear_window(t, a, m, head, body);
		break;
	case WIRE_STATUS:
		if (!a)
			break;
		/* What is wrong has made the delivery fail. */
		(void)!delivery_hear(a->delivery, &m->status, t->now_ns, &e);
		/* Order is kept, so what is not here by now will not come. */
		if (m->status.status == DELIVERY_SUCCESS)
			delivery_fail(a->delivery, t->now_ns, EPROTO,
				      "the prefill worker said Success before all of it was here");
		look_at(t, a);
		break;
	default: log_debug("transfer: a %s is nothing for us", wire_type_name(m->type));
	}
}

void calls_lost(struct transfer *t, const bool lost[PORT_CALLS])
{
	for (uint32_t i = 0; i < PORT_CALLS; i++) {
		if (!lost[i] || i == t->directory.port ||
		    !peers_lost(t->peers, t->called[i], t->now_ns))
			continue;
		if (t->calls[i].leaves) {
			fail_all_of(t, t->called[i], ESHUTDOWN, "it has shut down");
			continue;
		}
		log_warning("transfer: the connection to %s broke", name_of(t, t->called[i]));
		fail_all_of(t, t->called[i], EHOSTUNREACH, "the connection broke");
	}
}

void calls_leave(struct transfer *t)
{
	uint64_t mask = peers_mask(t->peers);

	for (uint32_t peer = 0; peer < PEERS_MAX; peer++) {
		struct peer_info i;

		if (!(mask >> peer & 1))
			continue;
		peers_get(t->peers, peer, &i);
		if (i.state == PEER_REGISTERED)
			transfer_farewell(t, t->ports[peer]);
	}
}

/* ---- time ---- */

/* A peer was told HELLO, or could not be: when it says nothing, somebody should know why prompts are computed here. That
 * it is there again is said when its own HELLO comes. */
static void note_silence(struct transfer *t, uint32_t peer, bool sent) ON(role_transfer)
{
	struct call_info *c = &t->calls[t->ports[peer]];

	if (!c->silent_ns)
		c->silent_ns = t->now_ns;
	/* One that is there may still read its weights to name its model. */
	if (c->said_silent || t->now_ns - c->silent_ns < (sent || c->leaves ? SILENT_NS : AWAY_NS))
		return;
	c->said_silent = true;
	if (c->leaves)
		log_info("transfer: %s cannot be reached since it was shut down", name_of(t, peer));
	else if (sent)
		log_warning("transfer: %s says nothing: there is a connection, but no HELLO came",
			    name_of(t, peer));
	else
		log_warning("transfer: %s cannot be reached: nobody listens there%s",
			    name_of(t, peer),
			    t->config.keys ? ", or its keys and ours do not fit"
					   : ", or only for who has a --transfer-key");
}

/* Of them prompts can be asked for. */
static void count_peers(struct transfer *t) ON(role_transfer)
{
	uint64_t mask = peers_mask(t->peers);
	uint32_t n = 0;

	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer_info info;

		if (!(mask >> i & 1))
			continue;
		peers_get(t->peers, i, &info);
		n += info.state == PEER_REGISTERED && !info.draining;
	}
	atomic_store(&t->config.metrics->peers, n);
}

uint64_t calls_tick(struct transfer *t)
{
	uint64_t next;
	enum peers_due due;
	struct list *after;
	uint32_t peer;

	while ((due = peers_tick(t->peers, t->now_ns, &peer)) != PEERS_NOTHING) {
		struct wire_message m = {.type = WIRE_PING};
		struct peer_info i;

		if (due == PEERS_DIED) {
			log_warning("transfer: %s does not answer", name_of(t, peer));
			t->calls[t->ports[peer]].said_silent = true;
			fail_all_of(t, peer, EHOSTUNREACH, "it does not answer");
			continue;
		}
		if (due == PEERS_SAY_HELLO) {
			bool sent;

			m = (struct wire_message){.type = WIRE_HELLO, .hello = t->hello};
			sent = transfer_say(t, t->ports[peer], &m, NULL) == 0;
			transfer_reached(t, t->ports[peer], sent);
			note_silence(t, peer, sent);
			continue;
		}
		peers_get(t->peers, peer, &i);
		m.ping = (struct wire_ping){.sequence = i.sequence};
		(void)!transfer_say(t, t->ports[peer], &m, NULL);
	}
	count_peers(t);
	next = peers_deadline(t->peers);
	for (struct list *node = t->attempts.next; node != &t->attempts; node = after) {
		struct attempt *a = container_of(node, struct attempt, node);

		after = node->next;
		if (delivery_tick(a->delivery, t->now_ns))
			calls_fail(t, a);
		else
			next = MIN(next, delivery_deadline(a->delivery));
	}
	return next;
}
