#include "daemon/transfer/sending.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/store/key.h"
#include "protocol/transfer/wire.h"

static_assert(PORT_OUTGOING + PORT_INCOMING <= TRANSFER_PEERS,
	      "every link is below TRANSFER_PEERS");

/* The most NOTE_ASKEDs that wait for the engine thread; further prompts are refused. */
enum { ASKED_MAX = 1024 };

int sending_open(struct sending *s, struct worker *w, struct err *e)
{
	s->worker = w;
	queue_init(&s->returned);
	s->page = calloc(w->hello.layout.page_tokens, sizeof(*s->page));
	return s->page ? 0 : err_no_memory(e);
}

void sending_close(struct sending *s)
{
	for (struct queue_node *node; (node = queue_pop(&s->returned));) {
		struct transfer_parcel *p = container_of(node, struct transfer_parcel, node);

		p->done(p);
	}
	queue_release(&s->returned);
	free(s->page);
}

/* ---- ending attempts ---- */

static void end_failed(struct sending *s, struct attempt *a) ON(role_transfer)
{
	struct wire_message m = {.type = WIRE_STATUS, .delivery = delivery_id(a->delivery)};
	char more[LOG_MORE_MAX];

	delivery_failed_status(a->delivery, &m.status);
	(void)!worker_say(s->worker, a->link, &m, NULL);
	if (log_due_often(&s->said_failed, s->worker->now_ns, more))
		log_info("transfer: a prompt of a decode worker: %s%s",
			 delivery_error(a->delivery)->text, more);
	atomic_fetch_add(&s->worker->config.counters->prompts_failed, 1);
	attempt_end(s->worker, a, NOTE_DROPPED);
}

void sending_end_failed(struct sending *s)
{
	struct attempt *a;

	while ((a = attempt_next_failed(s->worker)))
		end_failed(s, a);
}

static void end_complete(struct sending *s, struct attempt *a) ON(role_transfer)
{
	struct transfer_counters *c = s->worker->config.counters;
	struct delivery_counts counts;

	delivery_counts(a->delivery, &counts);
	atomic_fetch_add(&c->prompts_sent, 1);
	atomic_fetch_add(&c->prompts_sent_bytes, counts.bytes);
	gossip_add(&s->gossip, a->keys, a->n_keys);
	attempt_end(s->worker, a, NOTE_SENT);
}

static void fail_unreachable(struct sending *s, struct attempt *a) ON(role_transfer)
{
	delivery_fail(a->delivery, s->worker->now_ns, EHOSTUNREACH, "the decode worker is gone");
}

/* Sends the STATUS of success if ZeroMQ was given all data and the first tokens are known. Ends the attempt if its
 * delivery has ended. */
static void go_on(struct sending *s, struct attempt *a) ON(role_transfer)
{
	struct wire_message m = {.type = WIRE_STATUS, .delivery = delivery_id(a->delivery)};
	uint64_t now_ns = s->worker->now_ns;

	if (delivery_finish(a->delivery, a->n_cached, now_ns, &m.status) == 0) {
		if (worker_say(s->worker, a->link, &m, NULL) < 0) {
			fail_unreachable(s, a);
		} else {
			/* The decode worker takes these tokens off when it has the STATUS. A PONG that comes behind
			 * it must not count them again, although the attempt waits for ZeroMQ to give back data. */
			a->n_asked = 0;
			delivery_sent(a->delivery, now_ns);
		}
	}
	if (delivery_status(a->delivery) == DELIVERY_FAILED)
		end_failed(s, a);
	else if (delivery_status(a->delivery) == DELIVERY_SUCCESS)
		end_complete(s, a);
}

/* ---- from the engine thread ---- */

void sending_draws(struct sending *s, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached)
{
	struct attempt *a = attempt_of_number(s->worker, attempt);
	struct err e = {0};

	if (!a)
		return;
	a->n_cached = n_cached;
	if (delivery_draw(a->delivery, draws, n_draws, s->worker->now_ns, &e) < 0)
		delivery_fail(a->delivery, s->worker->now_ns, e.code, "%s", e.text);
	go_on(s, a);
}

void sending_fail(struct sending *s, uint64_t attempt, const struct err *why)
{
	struct attempt *a = attempt_of_number(s->worker, attempt);

	if (!a)
		return;
	delivery_fail(a->delivery, s->worker->now_ns, why->code, "%s", why->text);
	go_on(s, a);
}

/* Gives a parcel back to the transfer thread. ZeroMQ calls return_parcel when the system has the data or will never get
 * them: on a thread of its own, or on the transfer thread if the parcel cannot be sent. */
static void return_parcel(void *data, void *hint)
{
	struct transfer_parcel *p = hint;
	struct sending *s = p->owner;

	(void)data;
	p->sent_ns = clock_now_ns();
	queue_push(&s->returned, &p->node);
	worker_wake(s->worker);
}

/* Sends a parcel as a WINDOW; if that fails, the delivery fails. 0: return_parcel is called, when the parcel was sent
 * or because it cannot be sent. -errno: return_parcel is not called. */
static int send_parcel(struct sending *s, struct attempt *a, struct transfer_parcel *p)
	ON(role_transfer)
{
	struct wire_message m = {.type = WIRE_WINDOW, .delivery = delivery_id(a->delivery)};
	struct worker *worker = s->worker;
	zmq_msg_t body;
	struct err e = {0};
	int r = delivery_send(a->delivery, &p->window, worker->now_ns, &e);

	if (r < 0) {
		delivery_fail(a->delivery, worker->now_ns, e.code, "%s", e.text);
		return r;
	}
	m.window = p->window;
	trace_write(&worker->trace, p->read_ns, "computed", m.delivery, &p->window);
	p->owner = s;
	if (zmq_msg_init_data(&body, p->data, p->bytes, return_parcel, p) < 0) {
		delivery_fail(a->delivery, worker->now_ns, ENOMEM, "out of memory");
		return -ENOMEM;
	}
	if (worker_say(worker, a->link, &m, &body) < 0) {
		zmq_msg_close(&body); /* calls return_parcel */
		fail_unreachable(s, a);
	}
	return 0;
}

void sending_parcel(struct sending *s, struct transfer_parcel *p)
{
	struct attempt *a = attempt_of_number(s->worker, p->attempt);

	if (!a || send_parcel(s, a, p) < 0)
		p->done(p);
	if (a)
		go_on(s, a);
}

void sending_take_returned(struct sending *s)
{
	struct worker *worker = s->worker;

	for (struct queue_node *node; (node = queue_pop(&s->returned));) {
		struct transfer_parcel *p = container_of(node, struct transfer_parcel, node);
		struct attempt *a = attempt_of_number(worker, p->attempt);

		if (a) {
			trace_write(&worker->trace, p->sent_ns, "sent", delivery_id(a->delivery),
				    &p->window);
			delivery_sent(a->delivery, worker->now_ns);
			go_on(s, a);
		}
		p->done(p);
	}
}

/* ---- PREPARE ---- */

static void say_failed(struct sending *s, uint32_t link, uint64_t delivery, int code,
		       const char *text) ON(role_transfer)
{
	const struct wire_message m = {
		.type = WIRE_STATUS,
		.delivery = delivery,
		.status = {.status = DELIVERY_FAILED,
			   .code = (uint32_t)code,
			   .n_text = (uint32_t)strlen(text),
			   .text = text},
	};

	(void)!worker_say(s->worker, link, &m, NULL);
}

void sending_unreadable(struct sending *s, uint32_t link, uint64_t delivery, const struct err *why)
{
	struct err e = *why;

	err_prefix(&e, "a message cannot be read");
	say_failed(s, link, delivery, EBADMSG, e.text);
}

/* Computes the keys of the prompt's whole pages, for the gossip (gossip.h). There are none if the cache is not used or
 * memory is short, and none or fewer if a hash fails. */
static void name_pages(struct sending *s, struct attempt *a, const struct wire_prepare *p)
{
	uint32_t P = s->worker->hello.layout.page_tokens, n = p->n_tokens / P;
	struct content_key key;

	a->keys = calloc(n + 1, sizeof(*a->keys));
	if (!a->keys || p->cache_disabled || content_key_root(p->space, &key) < 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		/* The frame's tokens may be unaligned. */
		memcpy(s->page, p->tokens + (size_t)i * P, P * sizeof(*s->page));
		if (content_key_next(&key, s->page, P, &key) < 0)
			return;
		memcpy(a->keys[a->n_keys++].bytes, &key, sizeof(key));
	}
}

/* -EAGAIN: the prompt is refused before it was begun, so the decode worker asks another peer or computes it itself. */
static int check_prepare(struct sending *s, uint32_t link, const struct wire_prepare *p,
			 struct err *e) ON(role_transfer)
{
	const struct wire_hello *h = &s->worker->hello;

	/* A worker that is alone may have more, as a client may (daemon/request/queue.c). */
	if (atomic_load(&s->worker->config.counters->peers) > 1 &&
	    attempts_count(s->worker, link) >= s->worker->config.n_prompts_of_peer)
		return err_set(e, EAGAIN, "%u prompts of this decode worker are here already",
			       s->worker->config.n_prompts_of_peer);
	if (atomic_load(&s->worker->n_asked) >= ASKED_MAX)
		return err_set(e, EAGAIN, "too many prompts come at once");
	if (p->n_tokens > (uint64_t)h->n_pages * h->layout.page_tokens)
		return err_set(e, EINVAL,
			       "the prompt is longer than the KV cache of the prefill worker");
	return 0;
}

/* Makes an attempt and the note that announces it. `admit` is asked last, because an admitted prompt counts until its
 * attempt ends. -errno with a sentence: the prompt is refused. */
static int new_attempt(struct sending *s, uint32_t link, const struct wire_message *m,
		       struct attempt **ret, struct transfer_note **ret_note, struct err *e)
	ON(role_transfer)
{
	struct worker *w = s->worker;
	struct transfer_note *n = NULL;
	struct attempt *a = NULL;
	struct delivery *d;
	int r = check_prepare(s, link, &m->prepare, e);

	if (r < 0)
		return r;
	if (delivery_new_sender(m->delivery, &w->hello.layout, w->now_ns, &d, e) == 0 &&
	    (a = attempt_new(w, ++s->last_number, link, d))) {
		n = note_new(NOTE_ASKED, a->number);
		a->end = note_new(NOTE_DROPPED, a->number);
	}
	if (!n || !a->end)
		r = err_set(e, ENOMEM, "the prefill worker is out of memory");
	else
		r = delivery_prepare(d, &m->prepare, w->now_ns, e);
	if (r >= 0 && !w->config.admit(w->config.arg))
		r = err_set(e, ESHUTDOWN, "it is shutting down");
	if (r < 0) {
		transfer_note_free(n);
		if (a)
			attempt_free(a);
		return r;
	}
	*ret = a;
	*ret_note = n;
	return 0;
}

void sending_prepare(struct sending *s, uint32_t link, const struct wire_message *m,
		     zmq_msg_t *head)
{
	const struct wire_prepare *p = &m->prepare;
	struct worker *w = s->worker;
	struct transfer_note *n;
	struct wire_message moved;
	struct attempt *a;
	struct err e = {0};

	if (new_attempt(s, link, m, &a, &n, &e) < 0) {
		say_failed(s, link, m->delivery, e.code, e.text);
		return;
	}
	a->n_choices = p->n_choices;
	a->n_asked = p->n_tokens - p->n_have;
	trace_write(&w->trace, w->now_ns, "asked", m->delivery, NULL);
	name_pages(s, a, p);
	n->link = link;
	/* The frame moves into the note, so the pointers of n->prepare are made to point there. */
	zmq_msg_move(&n->head, head);
	if (wire_parse(zmq_msg_data(&n->head), zmq_msg_size(&n->head), &moved, &e) == 0)
		n->prepare = moved.prepare;
	delivery_raise(a->delivery, DELIVERY_WAITING_FOR_INPUT, w->now_ns);
	note_send(w, n);
}
