/*
 * A prefill worker's side: who comes, what they ask for, what goes. Everything that is announced to the engine thread (NOTE_ASKED)
 * is later ended to it, by NOTE_SENT or NOTE_DROPPED.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/transfer/transfer_internal.h"
#include "engine/store/key.h"

static_assert(PORT_CALLS + PORT_GUESTS <= TRANSFER_PEERS, "a port is a peer's number");

int guests_open(struct transfer *t, struct err *e)
{
	char bound[TRANSFER_ENDPOINT_MAX];
	int r;

	t->guests = calloc(PORT_GUESTS, sizeof(*t->guests));
	t->page = calloc(t->hello.layout.page_tokens, sizeof(*t->page));
	if (!t->guests || !t->page)
		return err_set(e, ENOMEM, "out of memory");
	r = port_listen(t->port, t->config.listen, bound, e);
	if (r < 0) {
		err_prefix(e, "--transfer-listen");
		return r;
	}
	if (t->config.registry) {
		r = directory_announce_as(t, t->config.announce ? t->config.announce : bound, e);
		if (r < 0)
			return r;
	}
	log_info("transfer: waiting for decode workers at %s%s", bound,
		 t->config.keys ? "" : ", without keys");
	return 0;
}

void guests_close(struct transfer *t)
{
	free(t->guests);
	free(t->page);
}

/* ---- ends ---- */

void guests_fail(struct transfer *t, struct attempt *a)
{
	struct wire_message m = {.type = WIRE_STATUS, .delivery = delivery_id(a->delivery)};

	delivery_failed_status(a->delivery, &m.status);
	(void)!transfer_say(t, a->peer, &m, NULL);
	log_info("transfer: a prompt of a decode worker: %s", delivery_error(a->delivery)->text);
	atomic_fetch_add(&t->config.metrics->prompts_failed, 1);
	note_end(t, a, NOTE_DROPPED);
	attempt_free(a);
}

static void fail_all_of(struct transfer *t, uint32_t port, const char *why) ON(role_transfer)
{
	struct list *next;

	for (struct list *node = t->attempts.next; node != &t->attempts; node = next) {
		struct attempt *a = container_of(node, struct attempt, node);

		next = node->next;
		if (a->peer != port)
			continue;
		delivery_fail(a->delivery, t->now_ns, EHOSTUNREACH, "%s", why);
		guests_fail(t, a);
	}
}

/* When all of a delivery is out, it is over. */
static void look_at(struct transfer *t, struct attempt *a) ON(role_transfer)
{
	struct wire_message m = {.type = WIRE_STATUS, .delivery = delivery_id(a->delivery)};
	struct delivery_counts counts;

	if (delivery_status(a->delivery) == DELIVERY_FAILED) {
		guests_fail(t, a);
		return;
	}
	if (delivery_finish(a->delivery, a->n_cached, t->now_ns, &m.status) == 0) {
		if (transfer_say(t, a->peer, &m, NULL) < 0) {
			delivery_fail(a->delivery, t->now_ns, EHOSTUNREACH,
				      "the decode worker is gone");
			guests_fail(t, a);
			return;
		}
		delivery_sent(a->delivery, t->now_ns);
	}
	if (delivery_status(a->delivery) != DELIVERY_SUCCESS)
		return;
	delivery_counts(a->delivery, &counts);
	atomic_fetch_add(&t->config.metrics->prompts_sent, 1);
	atomic_fetch_add(&t->config.metrics->prompts_sent_bytes, counts.bytes);
	/* What is cached here now is told to all guests. */
	gossip_add(&t->gossip, a->keys, a->n_keys);
	note_end(t, a, NOTE_SENT);
	attempt_free(a);
}

/* ---- what the engine thread gives ---- */

void guests_task(struct transfer *t, struct task *k)
{
	struct attempt *a = attempt_of_number(t, k->attempt);
	struct err e = {0};

	/* It has failed meanwhile, and the engine thread was told. */
	if (!a)
		return;
	if (k->type == TASK_DRAWS) {
		a->n_cached = k->n_cached;
		if (delivery_draw(a->delivery, k->draws, k->n_draws, t->now_ns, &e) < 0)
			delivery_fail(a->delivery, t->now_ns, e.code, "%s", e.text);
	} else if (k->type == TASK_FAIL) {
		delivery_fail(a->delivery, t->now_ns, k->error.code, "%s", k->error.text);
	}
	look_at(t, a);
}

/* A thread of ZeroMQ: the system has the bytes, or never will. */
static void give_back(void *data, void *hint)
{
	struct transfer_window *w = hint;
	struct transfer *t = w->transfer;
	uint64_t one = 1;

	w->sent_ns = clock_now_ns();

	(void)data;
	queue_push(&t->returned, &w->node);
	if (write(t->wake_fd, &one, sizeof(one)) < 0)
		return;
}

void guests_window(struct transfer *t, struct transfer_window *w)
{
	struct attempt *a = attempt_of_number(t, w->attempt);
	struct wire_message m = {.type = WIRE_WINDOW};
	zmq_msg_t body;
	struct err e = {0};
	int r;

	if (!a) {
		w->done(w);
		return;
	}
	w->transfer = t;
	m.delivery = delivery_id(a->delivery);
	r = delivery_send(a->delivery, &w->window, t->now_ns, &e);
	if (r < 0) {
		delivery_fail(a->delivery, t->now_ns, e.code, "%s", e.text);
		w->done(w);
		look_at(t, a);
		return;
	}
	m.window = w->window;
	transfer_trace(t, w->read_ns, "computed", m.delivery, &w->window);
	if (zmq_msg_init_data(&body, w->data, w->bytes, give_back, w) < 0) {
		delivery_fail(a->delivery, t->now_ns, ENOMEM, "out of memory");
		w->done(w);
		look_at(t, a);
		return;
	}
	if (transfer_say(t, a->peer, &m, &body) < 0) {
		/* Gives it back. */
		zmq_msg_close(&body);
		delivery_fail(a->delivery, t->now_ns, EHOSTUNREACH, "the decode worker is gone");
	}
	look_at(t, a);
}

void guests_returned(struct transfer *t, struct transfer_window *w)
{
	struct attempt *a = attempt_of_number(t, w->attempt);

	if (a) {
		transfer_trace(t, w->sent_ns, "sent", delivery_id(a->delivery), &w->window);
		delivery_sent(a->delivery, t->now_ns);
		look_at(t, a);
	}
	w->done(w);
}

/* ---- what guests say ---- */

static struct guest_info *guest_of(struct transfer *t, uint32_t port)
{
	return &t->guests[port - PORT_CALLS];
}

void guests_seen(struct transfer *t, uint32_t port)
{
	struct guest_info *g = guest_of(t, port);

	if (!g->known && !g->heard_ns)
		g->heard_ns = t->now_ns;
}

/* It is gone, or was never one; who comes again is somebody new. */
static void forget(struct transfer *t, uint32_t port, const char *why) ON(role_transfer)
{
	struct guest_info *g = guest_of(t, port);

	if (g->known) {
		fail_all_of(t, port, why);
		atomic_fetch_sub(&t->config.metrics->peers, 1);
	}
	*g = (struct guest_info){0};
	port_forget(t->port, port);
}

static void refuse(struct transfer *t, uint32_t port, int code, const char *text) ON(role_transfer)
{
	const struct wire_message m = {
		.type = WIRE_REFUSE,
		.refuse = {.code = (uint32_t)code, .n_text = (uint32_t)strlen(text), .text = text},
	};

	(void)!transfer_say(t, port, &m, NULL);
}

/* Whoever of the two says something less often decides. */
static uint64_t patience_of(const struct transfer *t, uint32_t heartbeat_ms)
{
	return (PEERS_MISSED + 1) * MAX(t->config.heartbeat_ns, heartbeat_ms * UINT64_C(1000000));
}

/* A worker that has come may be one whose connection broke: what it asked for on the old one is of no use to anybody, and its
 * ABORTs name the new one. Whether a connection is there only sending tells; a second HELLO changes nothing for who is called
 * under two addresses. */
static void forget_broken(struct transfer *t, uint32_t port) ON(role_transfer)
{
	const struct wire_message m = {.type = WIRE_HELLO, .hello = t->hello};
	const uint8_t *worker = guest_of(t, port)->worker;

	for (uint32_t other = PORT_CALLS; other < PORT_CALLS + PORT_GUESTS; other++) {
		const struct guest_info *g = guest_of(t, other);

		if (other != port && g->known && !memcmp(g->worker, worker, WIRE_ID) &&
		    transfer_say(t, other, &m, NULL) == -EHOSTUNREACH) {
			log_warning("transfer: the connection of a decode worker at %s broke",
				    port_address(t->port, other));
			forget(t, other, "the connection of a decode worker broke");
		}
	}
}

/* sequence: of the PING that this answers, 0: of none. */
static void say_pong(struct transfer *t, uint32_t port, uint64_t sequence) ON(role_transfer)
{
	struct guest_info *g = guest_of(t, port);
	struct wire_message m = {.type = WIRE_PONG};
	struct wire_key keys[GOSSIP_TOLD];
	uint64_t told = g->told;

	m.pong = (struct wire_pong){
		.sequence = sequence,
		.draining = atomic_load(&t->draining),
	};
	gossip_tell(&t->gossip, &told, keys, &m.pong);
	list_for_each (node, &t->attempts) {
		m.pong.queued_tokens += container_of(node, struct attempt, node)->n_tokens;
		m.pong.running++;
	}
	/* What cannot be said now is said with the next one. */
	if (transfer_say(t, port, &m, NULL) == 0)
		g->told = told;
}

/* Nobody shall send a prompt for as long as the next PING is not due. */
void guests_drain(struct transfer *t)
{
	for (uint32_t port = PORT_CALLS; port < PORT_CALLS + PORT_GUESTS; port++)
		if (guest_of(t, port)->known)
			say_pong(t, port, 0);
}

void guests_leave(struct transfer *t)
{
	for (uint32_t port = PORT_CALLS; port < PORT_CALLS + PORT_GUESTS; port++)
		if (guest_of(t, port)->known)
			transfer_farewell(t, port);
}

bool guests_known(const struct transfer *t)
{
	for (uint32_t i = 0; i < PORT_GUESTS; i++)
		if (t->guests[i].known)
			return true;
	return false;
}

static void hear_hello(struct transfer *t, uint32_t port, const struct wire_hello *h)
	ON(role_transfer)
{
	const struct wire_message m = {.type = WIRE_HELLO, .hello = t->hello};
	struct guest_info *g = guest_of(t, port);
	char more[LOG_MORE_MAX];
	bool is_new, other;
	struct err e = {0};

	if (atomic_load(&t->quit)) {
		transfer_farewell(t, port);
		return;
	}
	if (h->role != WIRE_DECODE)
		err_set(&e, EINVAL, "this worker prefills for decode workers only");
	if (e.code || !wire_hello_fits(&t->hello, h, &e)) {
		if (!g->known && log_due(&t->said_refused, t->now_ns, more))
			log_warning("transfer: a decode worker at %s is refused: %s%s",
				    port_address(t->port, port), e.text, more);
		refuse(t, port, EINVAL, e.text);
		return;
	}
	other = g->known && memcmp(g->worker, h->worker, sizeof(g->worker)) != 0;
	if (other)
		fail_all_of(t, port, "the decode worker was started again");
	is_new = !g->known;
	if (is_new) {
		log_info("transfer: a decode worker at %s has come", port_address(t->port, port));
		atomic_fetch_add(&t->config.metrics->peers, 1);
	}
	*g = (struct guest_info){.known = true,
				 .heard_ns = t->now_ns,
				 .patience_ns = patience_of(t, h->heartbeat_ms)};
	memcpy(g->worker, h->worker, sizeof(g->worker));
	(void)!transfer_say(t, port, &m, NULL);
	if (atomic_load(&t->draining))
		say_pong(t, port, 0);
	if (is_new || other)
		forget_broken(t, port);
}

/* Of all that may refuse, this is the end: it comes from who goes in order. */
static void hear_refuse(struct transfer *t, uint32_t port, const struct wire_refuse *r)
	ON(role_transfer)
{
	if (r->code != ESHUTDOWN) {
		log_debug("transfer: a REFUSE is nothing for us");
		return;
	}
	/* Or it answers that we do. */
	if (!atomic_load(&t->quit))
		log_info("transfer: a decode worker at %s has left", port_address(t->port, port));
	forget(t, port, "the decode worker is shutting down");
}

static void say_failed(struct transfer *t, uint32_t port, uint64_t delivery, int code,
		       const char *text) ON(role_transfer)
{
	struct wire_message m = {
		.type = WIRE_STATUS,
		.delivery = delivery,
		.status = {.status = DELIVERY_FAILED,
			   .code = (uint32_t)code,
			   .n_text = (uint32_t)strlen(text),
			   .text = text},
	};

	(void)!transfer_say(t, port, &m, NULL);
}

/* Of the answer it understands as much as we of what it said: that somebody of another version is here. */
void guests_version(struct transfer *t, uint32_t port, const struct err *why)
{
	char more[LOG_MORE_MAX];

	if (log_due(&t->said_version, t->now_ns, more))
		log_warning("transfer: a decode worker at %s is refused: %s%s",
			    port_address(t->port, port), why->text, more);
	if (!guest_of(t, port)->known)
		refuse(t, port, EPROTONOSUPPORT, why->text);
}

/* It may have been a PREPARE: who waits for what cannot come is told at once. */
void guests_broken(struct transfer *t, uint32_t port, uint64_t delivery, const struct err *why)
{
	struct err e = *why;

	if (!guest_of(t, port)->known)
		return;
	err_prefix(&e, "a message cannot be read");
	say_failed(t, port, delivery, EBADMSG, e.text);
}

/* Names of its whole pages, for the gossip; none when there is no memory. */
static void name_pages(struct transfer *t, struct attempt *a, const struct wire_prepare *p)
{
	uint32_t P = t->hello.layout.page_tokens, n = p->n_tokens / P;
	struct content_key key;

	a->keys = calloc(n + 1, sizeof(*a->keys));
	if (!a->keys || p->cache_disabled || content_key_root(p->space, &key) < 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(t->page, p->tokens + (size_t)i * P, P * sizeof(*t->page));
		if (content_key_next(&key, t->page, P, &key) < 0)
			return;
		memcpy(a->keys[a->n_keys++].bytes, &key, sizeof(key));
	}
}

/* Prompts that wait to be taken by the engine thread: whoever floods us has to wait outside. */
enum { ASKED_MAX = 1024 };

static void hear_prepare(struct transfer *t, uint32_t port, const struct wire_message *m,
			 zmq_msg_t *head) ON(role_transfer)
{
	struct transfer_note *n;
	struct wire_message again;
	struct attempt *a;
	struct delivery *delivery;
	struct err e = {0};

	if (atomic_load(&t->draining)) {
		say_failed(t, port, m->delivery, ESHUTDOWN, "it is shutting down");
		return;
	}
	if (atomic_load(&t->n_asked) >= ASKED_MAX) {
		say_failed(t, port, m->delivery, EAGAIN, "too many prompts come at once");
		return;
	}
	if (m->prepare.n_tokens > (uint64_t)t->hello.n_pages * t->hello.layout.page_tokens) {
		say_failed(t, port, m->delivery, EINVAL,
			   "the prompt is longer than the KV cache of the prefill worker");
		return;
	}
	if (delivery_new_sender(m->delivery, &t->hello.layout, t->now_ns, &delivery, &e) < 0 ||
	    !(a = attempt_new(t, ++t->last_number, port, delivery))) {
		say_failed(t, port, m->delivery, ENOMEM, "the prefill worker is out of memory");
		return;
	}
	n = note_new(NOTE_ASKED, a->number);
	a->end = note_new(NOTE_DROPPED, a->number);
	if (!n || !a->end)
		delivery_fail(delivery, t->now_ns, ENOMEM, "the prefill worker is out of memory");
	if (delivery_prepare(delivery, &m->prepare, t->now_ns, &e) < 0) {
		say_failed(t, port, m->delivery, e.code, e.text);
		transfer_note_free(n);
		attempt_free(a);
		return;
	}
	if (!t->config.admit(t->config.arg)) {
		say_failed(t, port, m->delivery, ESHUTDOWN, "it is shutting down");
		transfer_note_free(n);
		attempt_free(a);
		return;
	}
	a->n_choices = m->prepare.n_choices;
	a->n_tokens = m->prepare.n_tokens - m->prepare.n_have;
	transfer_trace(t, t->now_ns, "asked", m->delivery, NULL);
	name_pages(t, a, &m->prepare);
	n->peer = port;
	zmq_msg_move(&n->head, head);
	if (wire_parse(zmq_msg_data(&n->head), zmq_msg_size(&n->head), &again, &e) == 0)
		n->prepare = again.prepare;
	delivery_raise(delivery, DELIVERY_WAITING_FOR_INPUT, t->now_ns);
	note_send(t, n);
}

void guests_hear(struct transfer *t, uint32_t port, const struct wire_message *m, zmq_msg_t *head,
		 zmq_msg_t *body)
{
	struct guest_info *g = guest_of(t, port);
	struct attempt *a;

	(void)body;
	if (m->type == WIRE_HELLO) {
		hear_hello(t, port, &m->hello);
		return;
	}
	if (!g->known) {
		if (m->type != WIRE_REFUSE)
			refuse(t, port, ENOTCONN, "HELLO comes first");
		return;
	}
	g->heard_ns = t->now_ns;
	a = m->delivery ? attempt_of_delivery(t, port, m->delivery) : NULL;
	switch (m->type) {
	case WIRE_PING: say_pong(t, port, m->ping.sequence); break;
	case WIRE_REFUSE: hear_refuse(t, port, &m->refuse); break;
	case WIRE_PREPARE:
		/* A second one of a delivery is late or hostile. */
		if (!a)
			hear_prepare(t, port, m, head);
		break;
	case WIRE_ABORT:
		if (!a)
			break;
		delivery_fail(a->delivery, t->now_ns, ECANCELED, "the decode worker gave it up");
		guests_fail(t, a);
		break;
	default: log_debug("transfer: a %s is nothing for us", wire_type_name(m->type));
	}
}

/* ---- time ---- */

uint64_t guests_tick(struct transfer *t)
{
	uint64_t stranger = patience_of(t, 0);
	uint64_t next = t->now_ns + t->config.heartbeat_ns;
	struct list *after;

	for (uint32_t i = 0; i < PORT_GUESTS; i++) {
		struct guest_info *g = &t->guests[i];

		if (!g->heard_ns ||
		    t->now_ns - g->heard_ns < (g->known ? g->patience_ns : stranger))
			continue;
		if (g->known)
			log_warning("transfer: a decode worker at %s does not answer",
				    port_address(t->port, PORT_CALLS + i));
		forget(t, PORT_CALLS + i, "the decode worker does not answer");
	}
	for (struct list *node = t->attempts.next; node != &t->attempts; node = after) {
		struct attempt *a = container_of(node, struct attempt, node);

		after = node->next;
		if (delivery_tick(a->delivery, t->now_ns))
			guests_fail(t, a);
		else
			next = MIN(next, delivery_deadline(a->delivery));
	}
	return next;
}
