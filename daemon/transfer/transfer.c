#include "daemon/transfer/transfer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/transfer/decode_peers.h"
#include "daemon/transfer/directory.h"
#include "protocol/transfer/wire.h"

enum task_type { TASK_ASK, TASK_DROP, TASK_DRAWS, TASK_FAIL };

/* A task that the engine thread gives to the transfer thread. */
struct task {
	struct queue_node node;
	enum task_type type;
	uint64_t attempt;
	struct prompt prompt;	   /* ASK */
	struct draw_result *draws; /* [n_draws] DRAWS; owned */
	uint32_t n_draws, n_cached;
	struct err error; /* FAIL */
};

struct transfer {
	struct worker worker;
	pthread_t thread;
	atomic_bool flushed; /* transfer_forget was called; the transfer thread clears it */
	struct queue tasks;
	/* struct transfer_parcel, pushed by the engine thread or a thread of the OpenCL driver */
	struct queue parcels;
	struct prefill_peers prefill; /* used by a decode worker alone */
	struct decode_peers decode;   /* used by a prefill worker alone */
	struct directory directory;
	struct log_limit said_unreadable;
};

/* ---- the engine thread ---- */

struct transfer_note *transfer_next(struct transfer *t)
{
	return note_next(&t->worker);
}

static void free_task(struct task *k)
{
	if (!k)
		return;
	prompt_release(&k->prompt);
	free(k->draws);
	free(k);
}

static struct task *new_task(enum task_type type, uint64_t attempt)
{
	struct task *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->type = type;
	k->attempt = attempt;
	return k;
}

static void push_task(struct transfer *t, struct task *k)
{
	queue_push(&t->tasks, &k->node);
	worker_wake(&t->worker);
}

int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e)
{
	struct task *k = new_task(TASK_ASK, ask->attempt);
	int r = k ? prompt_init(&k->prompt, ask, e) : err_no_memory(e);

	if (r < 0)
		free_task(k);
	else
		push_task(t, k);
	return r;
}

/* If memory is short, the task is lost: the delivery goes on to its end, and the engine thread ignores its notes. */
void transfer_drop(struct transfer *t, uint64_t attempt)
{
	struct task *k = new_task(TASK_DROP, attempt);

	if (k)
		push_task(t, k);
}

void transfer_parcel(struct transfer *t, struct transfer_parcel *p)
{
	queue_push(&t->parcels, &p->node);
	worker_wake(&t->worker);
}

int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached)
{
	struct task *k = new_task(TASK_DRAWS, attempt);

	if (k)
		k->draws = calloc(n_draws + 1, sizeof(*k->draws));
	if (!k || !k->draws) {
		free_task(k);
		return -ENOMEM;
	}
	memcpy(k->draws, draws, n_draws * sizeof(*draws));
	k->n_draws = n_draws;
	k->n_cached = n_cached;
	push_task(t, k);
	return 0;
}

/* If memory is short, the task is lost; the delivery then ends by a timeout of the decode worker. */
void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why)
{
	struct task *k = new_task(TASK_FAIL, attempt);

	if (!k)
		return;
	k->error = *why;
	push_task(t, k);
}

void transfer_drain(struct transfer *t)
{
	atomic_store(&t->worker.draining, true);
	worker_wake(&t->worker);
}

void transfer_forget(struct transfer *t)
{
	atomic_store(&t->flushed, true);
	worker_wake(&t->worker);
}

/* ---- the transfer thread ---- */

static bool is_prefill(const struct transfer *t)
{
	return t->worker.config.prefill;
}

static void do_task(struct transfer *t, struct task *k) ON(role_transfer)
{
	switch (k->type) {
	case TASK_ASK: receiving_ask(&t->prefill.receiving, &k->prompt); break;
	case TASK_DROP: receiving_drop(&t->prefill.receiving, k->attempt); break;
	case TASK_DRAWS:
		sending_draws(&t->decode.sending, k->attempt, k->draws, k->n_draws, k->n_cached);
		break;
	case TASK_FAIL: sending_fail(&t->decode.sending, k->attempt, &k->error); break;
	}
}

static void take_tasks(struct transfer *t) ON(role_transfer)
{
	struct queue_node *node;

	while ((node = queue_pop(&t->tasks))) {
		struct task *k = container_of(node, struct task, node);

		do_task(t, k);
		free_task(k);
	}
	if (!is_prefill(t))
		return;
	while ((node = queue_pop(&t->parcels)))
		sending_parcel(&t->decode.sending,
			       container_of(node, struct transfer_parcel, node));
	sending_take_returned(&t->decode.sending);
}

/* Ends the attempts whose deliveries have failed. */
static void end_failed(struct transfer *t) ON(role_transfer)
{
	if (is_prefill(t))
		sending_end_failed(&t->decode.sending);
	else
		receiving_end_failed(&t->prefill.receiving);
}

/* Handles a message that cannot be read: fails the delivery that the message names. If this is a prefill worker and has
 * no such delivery, tells the decode worker that the delivery has failed. On the registry's link there are no
 * deliveries. */
static void hear_unreadable(struct transfer *t, uint32_t link, zmq_msg_t *head, const struct err *e)
	ON(role_transfer)
{
	uint64_t delivery = wire_delivery(zmq_msg_data(head), zmq_msg_size(head));
	struct attempt *a = delivery ? attempt_of_delivery(&t->worker, link, delivery) : NULL;
	char more[LOG_MORE_MAX];

	/* A message that concerns no attempt is logged at level debug only, so that a peer cannot fill the log. */
	if (!a) {
		log_debug("transfer: a message that cannot be read: %s", e->text);
		if (delivery && link >= PORT_OUTGOING)
			decode_peers_unreadable(&t->decode, link, delivery, e);
		return;
	}
	if (log_due_often(&t->said_unreadable, t->worker.now_ns, more))
		log_warning("transfer: a message that cannot be read: %s%s", e->text, more);
	delivery_fail(a->delivery, t->worker.now_ns, EBADMSG, "a message cannot be read: %s",
		      e->text);
	end_failed(t);
}

static void hear(struct transfer *t, uint32_t link, zmq_msg_t *head, zmq_msg_t *body)
	ON(role_transfer)
{
	bool incoming = link >= PORT_OUTGOING, registry = link == t->directory.link;
	struct wire_message m;
	struct err e = {0};
	int r;

	if (incoming)
		decode_peers_seen(&t->decode, link);
	else if (!registry)
		prefill_peers_seen(&t->prefill, link);
	r = wire_parse(zmq_msg_data(head), zmq_msg_size(head), &m, &e);
	if (r == -EPROTONOSUPPORT && incoming)
		decode_peers_other_version(&t->decode, link, &e);
	else if (r == -EPROTONOSUPPORT)
		worker_other_version(&t->worker, link, &e);
	else if (r < 0)
		hear_unreadable(t, link, head, &e);
	else if (registry)
		directory_hear(&t->directory, &m);
	else if (incoming)
		decode_peers_hear(&t->decode, link, &m, head);
	else
		prefill_peers_hear(&t->prefill, link, &m, head, body);
}

/* The most messages that are received before the thread looks at its queues again: HEARD_MAX, or HEARD_LAST_MAX when an
 * outgoing connection broke, because the messages that came over it are handled before the break. */
enum { HEARD_MAX = 256, HEARD_LAST_MAX = 1 << 16 };

static void take_messages(struct transfer *t) ON(role_transfer)
{
	struct worker *w = &t->worker;
	bool lost[PORT_OUTGOING], any = port_lost(w->port, lost);
	int most = any ? HEARD_LAST_MAX : HEARD_MAX;
	zmq_msg_t head, body;
	uint32_t link;

	for (int i = 0; i < most && port_receive(w->port, &link, &head, &body); i++) {
		w->now_ns = clock_now_ns();
		hear(t, link, &head, &body);
		/* A frame that was moved into a note is empty now. */
		zmq_msg_close(&head);
		zmq_msg_close(&body);
	}
	if (any && !is_prefill(t))
		prefill_peers_lost(&t->prefill, lost);
}

static void wait_until(struct worker *w, uint64_t deadline_ns) ON(role_transfer)
{
	uint64_t wakes, ns = deadline_ns > w->now_ns ? deadline_ns - w->now_ns : 0;

	port_wait(w->port, w->wake_fd, ns ? (int)MIN(ns / 1000000 + 1, 1000u) : 0);
	(void)!read(w->wake_fd, &wakes, sizeof(wakes));
	w->now_ns = clock_now_ns();
}

static void exchange(struct transfer *t) ON(role_transfer)
{
	struct worker *w = &t->worker;

	while (!atomic_load(&w->quit)) {
		uint64_t next;

		/* The flush comes before the tasks, because prompts that end in take_tasks were cached after it. */
		if (atomic_exchange(&t->flushed, false) && is_prefill(t))
			decode_peers_flushed(&t->decode);
		if (is_prefill(t) && atomic_load(&w->draining))
			decode_peers_drain(&t->decode);
		take_tasks(t);
		take_messages(t);
		w->now_ns = clock_now_ns();
		next = is_prefill(t) ? decode_peers_tick(&t->decode)
				     : prefill_peers_tick(&t->prefill);
		wait_until(w, MIN(next, directory_tick(&t->directory)));
	}
}

static void await_farewells(struct transfer *t) ON(role_transfer)
{
	struct worker *w = &t->worker;
	uint64_t until = clock_now_ns() + WORKER_FAREWELL_NS;

	while (w->now_ns < until && decode_peers_any(&t->decode)) {
		take_messages(t);
		wait_until(w, w->now_ns + 10000000);
	}
}

static void *transfer_main(void *arg)
{
	struct transfer *t = arg;
	struct worker *w = &t->worker;
	struct err e = {0};

	role_begin(&role_transfer);
	w->now_ns = clock_now_ns();
	if (w->config.identify(w->config.arg, &w->quit, w->hello.model, &e) == 0) {
		w->now_ns = clock_now_ns();
		exchange(t);
	} else if (!atomic_load(&w->quit)) {
		log_error("transfer: the model has no name, so this worker talks to no peer: %s",
			  e.text);
	}
	/* Without the hash of `identify` no message is exchanged, but tasks are taken, so that every attempt ends. */
	while (!atomic_load(&w->quit)) {
		take_tasks(t);
		wait_until(w, w->now_ns + UINT64_C(1000000000));
	}
	w->now_ns = clock_now_ns();
	take_tasks(t);
	attempts_fail(w, PORT_NONE, ESHUTDOWN, "the worker is shutting down");
	end_failed(t);
	directory_leave(&t->directory);
	if (is_prefill(t)) {
		decode_peers_leave(&t->decode);
		await_farewells(t);
	} else {
		prefill_peers_leave(&t->prefill);
	}
	return NULL;
}

/* ---- start and stop ---- */

static void release(struct transfer *t)
{
	/* worker_close closes the port, and ZeroMQ then gives back the parcels that it still has. */
	worker_close(&t->worker);
	if (is_prefill(t))
		decode_peers_close(&t->decode);
	else
		prefill_peers_close(&t->prefill);
	queue_release(&t->tasks);
	queue_release(&t->parcels);
	worker_free(&t->worker);
	free(t);
}

static int open_roles(struct transfer *t, struct err *e)
{
	struct worker *w = &t->worker;
	int r = is_prefill(t) ? decode_peers_open(&t->decode, w, e)
			      : prefill_peers_open(&t->prefill, w, e);

	if (r == 0)
		r = directory_open(&t->directory, w, is_prefill(t) ? NULL : &t->prefill, e);
	if (r == 0 && is_prefill(t))
		log_info("transfer: waiting for decode workers at %s%s", w->config.listener->bound,
			 w->config.keys ? "" : ", without keys");
	return r;
}

int transfer_listen(const char *endpoint, const struct transfer_keys *keys, uint64_t heartbeat_ns,
		    struct transfer_listener *ret, struct err *e)
{
	/* No peer sends a prefill worker a WINDOW, so no frame is larger than a head. */
	int r = worker_open_port(keys, WIRE_FRAME_MAX, heartbeat_ns, &ret->port, e);

	if (r == 0)
		r = port_listen(ret->port, endpoint, ret->bound, e);
	if (r < 0)
		err_prefix(e, "--transfer-listen");
	return r;
}

void transfer_listener_close(struct transfer_listener *l)
{
	port_close(l->port);
	l->port = NULL;
}

int transfer_start(const struct transfer_config *config, struct transfer **ret, struct err *e)
{
	struct transfer *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_no_memory(e);
	queue_init(&t->tasks);
	queue_init(&t->parcels);
	r = worker_open(&t->worker, config, e);
	if (r == 0)
		r = open_roles(t, e);
	if (r == 0) {
		r = pthread_create(&t->thread, NULL, transfer_main, t);
		if (r)
			r = err_set(e, r, "cannot start the transfer thread: %s", strerror(r));
	}
	if (r < 0)
		release(t);
	else
		*ret = t;
	return r;
}

void transfer_stop(struct transfer *t)
{
	if (!t)
		return;
	atomic_store(&t->worker.quit, true);
	worker_wake(&t->worker);
	pthread_join(t->thread, NULL);
	release(t);
}
