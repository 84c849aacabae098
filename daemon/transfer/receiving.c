#include "daemon/transfer/receiving.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "protocol/transfer/wire.h"
#include "protocol/transfer/wire_fit.h"

/* ---- prompts ---- */

int prompt_init(struct prompt *p, const struct transfer_ask *ask, struct err *e)
{
	/* Any delivery id but 0 will do here: the real one is set when the frame is sent. */
	const struct wire_message m = {.type = WIRE_PREPARE,
				       .delivery = 1,
				       .prepare = ask->prepare};

	*p = (struct prompt){
		.attempt = ask->attempt,
		.tried = ask->tried,
		.n_tokens = ask->prepare.n_tokens,
		.n_have = ask->prepare.n_have,
		.n_choices = ask->prepare.n_choices,
		.keys = calloc(ask->n_keys + 1, sizeof(*p->keys)),
		.n_keys = ask->n_keys,
		.end = note_new(NOTE_LOST, ask->attempt),
	};
	buf_init(&p->frame, WIRE_FRAME_MAX);
	if (!p->keys || !p->end)
		return err_no_memory(e);
	if (ask->n_keys)
		memcpy(p->keys, ask->keys, ask->n_keys * sizeof(*p->keys));
	return wire_encode(&m, &p->frame, e);
}

void prompt_release(struct prompt *p)
{
	buf_release(&p->frame);
	transfer_note_free(p->end);
	free(p->keys);
}

/* ---- the module ---- */

int receiving_open(struct receiving *r, struct worker *w, struct err *e)
{
	struct {
		uint64_t seed[2], delivery;
	} random;

	r->worker = w;
	for (uint32_t i = 0; i < PORT_OUTGOING; i++)
		r->peer_of_link[i] = PEERS_MAX;
	if (getrandom(&random, sizeof(random), 0) < 0)
		return err_set(e, errno, "cannot draw random numbers: %s", strerror(errno));
	r->peers = peers_new(random.seed, w->config.heartbeat_ns);
	if (!r->peers)
		return err_no_memory(e);
	/* A random number to count from, so that ids differ after a restart. It is not made from the seed of the hash
	 * tables, which peers must not learn. */
	r->last_delivery = random.delivery >> 16 << 16;
	return 0;
}

const char *receiving_peer_name(const struct receiving *r, uint32_t peer)
{
	struct peer_info i;

	peers_get(r->peers, peer, &i);
	return i.endpoint;
}

static uint32_t peer_of(const struct receiving *r, const struct attempt *a)
{
	return r->peer_of_link[a->link];
}

bool receiving_is_busy(const struct receiving *r, uint32_t peer)
{
	list_for_each (a, &r->worker->attempts, struct attempt, node)
		if (peer_of(r, a) == peer)
			return true;
	return false;
}

/* ---- ending attempts ---- */

/* Takes the attempt's tokens off the load of its peer, which will compute no more of them. */
static void unload_peer(struct receiving *r, const struct attempt *a)
{
	peers_done(r->peers, peer_of(r, a), &a->load);
}

static void end_lost(struct receiving *r, struct attempt *a) ON(role_transfer)
{
	a->end->tried = a->tried;
	attempt_end(r->worker, a, NOTE_LOST);
}

static void say_abort(struct receiving *r, const struct attempt *a) ON(role_transfer)
{
	const struct wire_message m = {.type = WIRE_ABORT, .delivery = delivery_id(a->delivery)};

	/* A peer that cannot be reached forgets the delivery when it forgets the connection. */
	(void)!worker_say(r->worker, a->link, &m, NULL);
}

/* Returns whether the attempt failed only because a worker shuts down, before any data came. Such an attempt is not
 * counted in prompts_failed. */
static bool was_given_back(const struct attempt *a)
{
	struct delivery_counts counts;

	delivery_counts(a->delivery, &counts);
	return delivery_error(a->delivery)->code == ESHUTDOWN && !counts.windows;
}

static void end_failed(struct receiving *r, struct attempt *a) ON(role_transfer)
{
	say_abort(r, a);
	log_info("transfer: %s: %s", receiving_peer_name(r, peer_of(r, a)),
		 delivery_error(a->delivery)->text);
	if (!was_given_back(a))
		atomic_fetch_add(&r->worker->config.counters->prompts_failed, 1);
	unload_peer(r, a);
	end_lost(r, a);
}

void receiving_end_failed(struct receiving *r)
{
	struct attempt *a;

	while ((a = attempt_next_failed(r->worker)))
		end_failed(r, a);
}

void receiving_fail_peer(struct receiving *r, uint32_t peer, int code, const char *why)
{
	attempts_fail(r->worker, r->link_of_peer[peer], code, why);
	receiving_end_failed(r);
}

static void note_answers(const struct receiving *r, uint32_t peer)
{
	log_info("transfer: %s answers prompts again", receiving_peer_name(r, peer));
}

static void end_complete(struct receiving *r, struct attempt *a) ON(role_transfer)
{
	struct transfer_counters *c = r->worker->config.counters;
	struct transfer_note *n = a->end;
	struct delivery_counts counts;

	delivery_counts(a->delivery, &counts);
	trace_write(&r->worker->trace, r->worker->now_ns, "complete", delivery_id(a->delivery),
		    NULL);
	if (peers_measure(r->peers, peer_of(r, a), a->n_prompt - counts.n_cached, a->sent_ns,
			  r->worker->now_ns))
		note_answers(r, peer_of(r, a));
	unload_peer(r, a);
	n->draws = calloc(a->n_choices, sizeof(*n->draws));
	if (!n->draws) {
		log_error("transfer: out of memory");
		end_lost(r, a);
		return;
	}
	n->n_draws = a->n_choices;
	memcpy(n->draws, delivery_draws(a->delivery), n->n_draws * sizeof(*n->draws));
	atomic_fetch_add(&c->prompts_received, 1);
	atomic_fetch_add(&c->prompts_received_bytes, counts.bytes);
	attempt_end(r->worker, a, NOTE_CAME);
}

/* ---- handing over ---- */

/* Lets the attempt wait as long as its peer should need for the prompts up to this one. Prompts that are sent later do
 * not count: else the deadline of a silent peer would recede with each of them. How much of other decode workers'
 * prompts came before this one is known from the load in the PONGs of the next two heartbeats. */
static void set_patience(struct receiving *r, struct attempt *a)
{
	uint64_t waited_ns = r->worker->now_ns - a->sent_ns;
	struct peer_info i;

	if (waited_ns <= 2 * r->worker->config.heartbeat_ns) {
		peers_get(r->peers, peer_of(r, a), &i);
		a->n_ahead = MAX(a->n_ahead, a->n_own + i.others);
	}
	delivery_set_patience(a->delivery, peers_patience(r->peers, peer_of(r, a), a->n_ahead));
}

/* Makes an attempt and sends its PREPARE to one peer. n_cached: pages that the peer is thought to have cached. False:
 * no attempt was made, because the prompt cannot be delivered, the message could not be sent or memory is short. */
static bool ask_peer(struct receiving *r, struct prompt *p, uint32_t peer, uint32_t n_cached)
	ON(role_transfer)
{
	struct worker *w = r->worker;
	struct peer_info before;
	uint32_t have = MAX(n_cached * w->hello.layout.page_tokens, p->n_have);
	uint64_t id = ++r->last_delivery;
	struct delivery *d;
	struct attempt *a;
	struct err e = {0};

	if (delivery_new_receiver(id, &w->hello.layout, p->n_tokens, p->n_have, p->n_choices,
				  w->now_ns, &d, &e) < 0 ||
	    !(a = attempt_new(w, p->attempt, r->link_of_peer[peer], d)))
		return false;
	a->tried = p->tried;
	a->n_choices = p->n_choices;
	a->n_prompt = p->n_tokens;
	a->load.n_tokens = p->n_tokens - MIN(have, p->n_tokens);
	a->load.n_asked = p->n_tokens - p->n_have;
	a->sent_ns = w->now_ns;
	/* The peer may have fewer tokens cached than is thought, so it may have to compute all of the prompt. */
	peers_get(r->peers, peer, &before);
	a->n_own = before.load - before.others + p->n_tokens;
	wire_set_delivery(p->frame.data, id);
	if (port_send(w->port, a->link, p->frame.data, p->frame.len, NULL) < 0) {
		attempt_free(a);
		return false;
	}
	a->end = p->end;
	p->end = NULL;
	delivery_raise(d, DELIVERY_WAITING_FOR_INPUT, w->now_ns);
	if (peers_sent(r->peers, peer, p->keys, p->n_keys, &a->load) < 0)
		log_debug("transfer: out of memory for keys");
	set_patience(r, a);
	return true;
}

void receiving_ask(struct receiving *r, struct prompt *p)
{
	struct transfer_note *n = p->end;
	uint32_t peer, n_cached;

	while (peers_choose(r->peers, p->keys, p->n_keys, p->tried, r->worker->now_ns, &peer,
			    &n_cached)) {
		p->tried |= UINT64_C(1) << peer;
		if (ask_peer(r, p, peer, n_cached))
			return;
	}
	p->end = NULL;
	n->tried = p->tried;
	note_send(r->worker, n);
}

void receiving_drop(struct receiving *r, uint64_t number)
{
	struct attempt *a = attempt_of_number(r->worker, number);

	if (!a)
		return;
	say_abort(r, a);
	unload_peer(r, a);
	attempt_free(a);
}

/* ---- receiving ---- */

/* Sends NOTE_DATA, or fails the delivery if memory is short. The frames move into the note, so n->window and n->data
 * are made to point into the note's frames. */
static void note_data(struct receiving *r, struct attempt *a, zmq_msg_t *head, zmq_msg_t *body)
	ON(role_transfer)
{
	struct transfer_note *n = note_new(NOTE_DATA, a->number);
	struct wire_message m;

	if (!n) {
		delivery_fail(a->delivery, r->worker->now_ns, ENOMEM, "out of memory");
		return;
	}
	zmq_msg_move(&n->head, head);
	zmq_msg_move(&n->body, body);
	if (wire_parse(zmq_msg_data(&n->head), zmq_msg_size(&n->head), &m, NULL) == 0)
		n->window = m.window;
	n->data = zmq_msg_data(&n->body);
	note_send(r->worker, n);
}

/* hear_window and hear_status return the delivery_verdict of a message, or -errno if it cannot be taken. */
static int hear_window(struct receiving *r, struct attempt *a, const struct wire_window *window,
		       zmq_msg_t *head, zmq_msg_t *body) ON(role_transfer)
{
	struct worker *w = r->worker;
	struct err e = {0};
	int verdict = wire_window_fits(window, zmq_msg_size(body), &e);

	if (verdict < 0) {
		delivery_fail(a->delivery, w->now_ns, e.code, "%s", e.text);
		return verdict;
	}
	verdict = delivery_receive(a->delivery, window, w->now_ns, &e);
	if (verdict == DELIVERY_TAKEN) {
		trace_write(&w->trace, w->now_ns, "received", delivery_id(a->delivery), window);
		note_data(r, a, head, body);
	}
	return verdict;
}

static int hear_status(struct receiving *r, struct attempt *a, const struct wire_status *s)
	ON(role_transfer)
{
	struct err e = {0};
	/* delivery_hear lets the delivery fail if the status is not allowed now. */
	int verdict = delivery_hear(a->delivery, s, r->worker->now_ns, &e);

	/* Messages arrive in order, so data that are missing when Success comes will never come. If the delivery has
	 * ended, delivery_fail does nothing. */
	if (s->status == DELIVERY_SUCCESS)
		delivery_fail(a->delivery, r->worker->now_ns, EPROTO,
			      "the prefill worker said Success before all of it was here");
	return verdict;
}

void receiving_hear(struct receiving *r, struct attempt *a, const struct wire_message *m,
		    zmq_msg_t *head, zmq_msg_t *body)
{
	uint32_t peer = peer_of(r, a);
	int verdict = m->type == WIRE_WINDOW ? hear_window(r, a, &m->window, head, body)
					     : hear_status(r, a, &m->status);

	/* An ignored message brings nothing, so a peer that only repeats itself still counts as silent. */
	if (verdict != DELIVERY_IGNORED && peers_answered(r->peers, peer, r->worker->now_ns))
		note_answers(r, peer);
	if (delivery_status(a->delivery) == DELIVERY_SUCCESS)
		end_complete(r, a);
	else if (delivery_status(a->delivery) == DELIVERY_FAILED)
		end_failed(r, a);
}

/* ---- time ---- */

/* The transfer thread waits for a second at most. So if more than this time lies between two ticks, the process was
 * stopped. */
#define STOPPED_NS ((uint64_t)3 * 1000000000)

/* Makes attempts fail whose data still come, but not all of them in time. */
static void fail_dragging(struct receiving *r) ON(role_transfer)
{
	uint64_t now_ns = r->worker->now_ns;

	list_for_each (a, &r->worker->attempts, struct attempt, node) {
		if (!delivery_drags(a->delivery, now_ns))
			continue;
		if (peers_drags(r->peers, peer_of(r, a), now_ns))
			log_warning("transfer: %s sends a prompt's data, but not all of them in "
				    "time: it gets no prompts for a while",
				    receiving_peer_name(r, peer_of(r, a)));
		delivery_tick(a->delivery, now_ns);
	}
}

/* Returns a peer at which an attempt is overdue, and which is silent from now on. PEERS_MAX: there is none. */
static uint32_t next_silent(struct receiving *r) ON(role_transfer)
{
	uint64_t now_ns = r->worker->now_ns;

	list_for_each (a, &r->worker->attempts, struct attempt, node)
		if (delivery_deadline(a->delivery) <= now_ns &&
		    peers_overdue(r->peers, peer_of(r, a), delivery_waits_since(a->delivery),
				  now_ns))
			return peer_of(r, a);
	return PEERS_MAX;
}

uint64_t receiving_tick(struct receiving *r)
{
	struct worker *w = r->worker;
	/* After a stop, the messages that came meanwhile may not be read yet, so no attempt counts as overdue. */
	bool stopped = r->ticked_ns && w->now_ns - r->ticked_ns > STOPPED_NS;
	uint64_t next;
	uint32_t peer;

	r->ticked_ns = w->now_ns;
	list_for_each (a, &w->attempts, struct attempt, node) {
		if (stopped)
			delivery_wait_anew(a->delivery, w->now_ns);
		set_patience(r, a);
	}
	fail_dragging(r);
	while ((peer = next_silent(r)) != PEERS_MAX) {
		log_warning("transfer: %s answers PINGs, but no prompt: it gets no prompts for a "
			    "while",
			    receiving_peer_name(r, peer));
		receiving_fail_peer(r, peer, ETIMEDOUT, "it answers no prompt");
	}
	next = attempts_tick(w);
	receiving_end_failed(r);
	return next;
}
