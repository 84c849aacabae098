#include "daemon/transfer/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/transfer/transfer_internal.h"

/* ---- notes ---- */

struct transfer_note *note_new(enum transfer_note_type type, uint64_t attempt)
{
	struct transfer_note *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->type = type;
	n->attempt = attempt;
	zmq_msg_init(&n->head);
	zmq_msg_init(&n->body);
	return n;
}

void note_send(struct transfer *t, struct transfer_note *n)
{
	if (n->type == NOTE_ASKED)
		atomic_fetch_add(&t->n_asked, 1);
	queue_push(&t->notes, &n->node);
	t->config.wake(t->config.arg);
}

void note_end(struct transfer *t, struct attempt *a, enum transfer_note_type type)
{
	struct transfer_note *n = a->end;

	a->end = NULL;
	n->type = type;
	note_send(t, n);
}

struct transfer_note *transfer_next(struct transfer *t)
{
	struct queue_node *node = queue_pop(&t->notes);
	struct transfer_note *n = node ? container_of(node, struct transfer_note, node) : NULL;

	if (n && n->type == NOTE_ASKED)
		atomic_fetch_sub(&t->n_asked, 1);
	return n;
}

void transfer_note_free(struct transfer_note *n)
{
	if (!n)
		return;
	zmq_msg_close(&n->head);
	zmq_msg_close(&n->body);
	free(n->draws);
	free(n);
}

/* ---- attempts ---- */

struct attempt *attempt_new(struct transfer *t, uint64_t number, uint32_t peer,
			    struct delivery *delivery)
{
	struct attempt *a = calloc(1, sizeof(*a));

	if (!a) {
		delivery_free(delivery);
		return NULL;
	}
	a->number = number;
	a->peer = peer;
	a->delivery = delivery;
	list_init(&a->node);
	list_append(&t->attempts, &a->node);
	return a;
}

void attempt_free(struct attempt *a)
{
	list_remove(&a->node);
	transfer_note_free(a->end);
	delivery_free(a->delivery);
	free(a->keys);
	free(a);
}

struct attempt *attempt_of_delivery(struct transfer *t, uint32_t peer, uint64_t delivery)
{
	list_for_each (node, &t->attempts) {
		struct attempt *a = container_of(node, struct attempt, node);

		if (a->peer == peer && delivery_id(a->delivery) == delivery)
			return a;
	}
	return NULL;
}

struct attempt *attempt_of_number(struct transfer *t, uint64_t number)
{
	list_for_each (node, &t->attempts) {
		struct attempt *a = container_of(node, struct attempt, node);

		if (a->number == number)
			return a;
	}
	return NULL;
}

/* ---- tasks ---- */

static void free_task(struct task *k)
{
	buf_release(&k->frame);
	transfer_note_free(k->end);
	free(k->keys);
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
	buf_init(&k->frame, WIRE_FRAME_MAX);
	return k;
}

static void wake(struct transfer *t)
{
	uint64_t one = 1;

	if (write(t->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is full of wakes */
}

static void push_task(struct transfer *t, struct task *k)
{
	queue_push(&t->tasks, &k->node);
	wake(t);
}

int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e)
{
	const struct wire_message m = {.type = WIRE_PREPARE,
				       .delivery = 1,
				       .prepare = ask->prepare};
	struct task *k = new_task(TASK_ASK, ask->attempt);
	int r = k ? 0 : err_set(e, ENOMEM, "out of memory");

	if (r == 0) {
		k->ask = *ask;
		k->keys = calloc(ask->n_keys + 1, sizeof(*k->keys));
		k->end = note_new(NOTE_LOST, ask->attempt);
		r = k->keys && k->end ? wire_encode(&m, &k->frame, e)
				      : err_set(e, ENOMEM, "out of memory");
	}
	if (r < 0) {
		if (k)
			free_task(k);
		return r;
	}
	if (ask->n_keys)
		memcpy(k->keys, ask->keys, ask->n_keys * sizeof(*k->keys));
	push_task(t, k);
	return 0;
}

/* Without memory for saying so the peer's timeouts have to do. */
void transfer_drop(struct transfer *t, uint64_t attempt)
{
	struct task *k = new_task(TASK_DROP, attempt);

	if (k)
		push_task(t, k);
}

void transfer_window(struct transfer *t, struct transfer_window *w)
{
	queue_push(&t->windows, &w->node);
	wake(t);
}

int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached)
{
	struct task *k = new_task(TASK_DRAWS, attempt);

	if (k)
		k->draws = calloc(n_draws + 1, sizeof(*k->draws));
	if (!k || !k->draws) {
		if (k)
			free_task(k);
		return -ENOMEM;
	}
	memcpy(k->draws, draws, n_draws * sizeof(*draws));
	k->n_draws = n_draws;
	k->n_cached = n_cached;
	push_task(t, k);
	return 0;
}

void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why)
{
	struct task *k = new_task(TASK_FAIL, attempt);

	if (!k)
		return;
	k->error = *why;
	push_task(t, k);
}

/* ---- the thread ---- */

int transfer_say(struct transfer *t, uint32_t peer, const struct wire_message *m, zmq_msg_t *body)
{
	struct err e = {0};
	int r;

	buf_reset(&t->out);
	r = wire_encode(m, &t->out, &e);
	if (r < 0) {
		log_error("transfer: %s cannot be sent: %s", wire_type_name(m->type), e.text);
		return r;
	}
	return port_send(t->port, peer, t->out.data, t->out.len, body);
}

void transfer_farewell(struct transfer *t, uint32_t peer)
{
	static const char text[] = "the worker is shutting down";
	const struct wire_message m = {
		.type = WIRE_REFUSE,
		.refuse = {.code = ESHUTDOWN, .n_text = sizeof(text) - 1, .text = text},
	};

	/* Who is gone need not be told; the others get it while the port lingers. */
	(void)!transfer_say(t, peer, &m, NULL);
}

void transfer_trace(struct transfer *t, uint64_t ns, const char *what, uint64_t delivery,
		    const struct wire_window *w)
{
	const struct wire_window none = {0};
	char more[LOG_MORE_MAX];

	if (!t->trace)
		return;
	if (!w)
		w = &none;
	if (fprintf(t->trace, "%" PRIu64 "\t%s\t%" PRIx64 "\t%u\t%u\t%u\t%u\t%" PRIu64 "\n", ns,
		    what, delivery, w->first_layer, w->n_layers, w->first_token, w->n_tokens,
		    wire_window_bytes(w)) >= 0)
		return;
	/* Nobody waits for who does not read it. */
	clearerr(t->trace);
	if (log_due(&t->said_trace, t->now_ns, more))
		log_warning("--transfer-trace %s: %s%s", t->config.trace, strerror(errno), more);
}

/* A line more or less is no reason to stand still. */
static int open_trace(struct transfer *t, struct err *e)
{
	const char *path = t->config.trace;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0666);

	t->trace = fd < 0 ? NULL : fdopen(fd, "w");
	if (!t->trace) {
		int code = errno;

		if (fd >= 0)
			close(fd);
		return err_set(e, code, "--transfer-trace %s: %s", path, strerror(code));
	}
	/* Whoever looks sees whole lines. */
	setvbuf(t->trace, NULL, _IOLBF, 0);
	return 0;
}

void transfer_key_assumed(const struct transfer *t, const char *option, const char *endpoint)
{
	const struct transfer_keys *k = t->config.keys;

	/* Without a list one file is for all, and this is what is meant. */
	if (k && k->n_allowed && !transfer_keys_name(k, endpoint))
		log_warning("transfer: %s %s: no \"allow\" of --transfer-key has this address, so "
			    "our own key is taken for its key",
			    option, endpoint);
}

void transfer_reached(struct transfer *t, uint32_t port, bool reached)
{
	uint64_t *since = &t->calls[port].unreached_ns;

	if (reached) {
		*since = 0;
	} else if (!*since) {
		*since = t->now_ns;
	} else if (t->now_ns - *since >= CALL_AGAIN_NS) {
		*since = 0;
		port_call_again(t->port, port);
	}
}

static void take_tasks(struct transfer *t) ON(role_transfer)
{
	struct queue_node *node;

	while ((node = queue_pop(&t->tasks))) {
		struct task *k = container_of(node, struct task, node);

		if (t->config.prefill)
			guests_task(t, k);
		else
			calls_task(t, k);
		free_task(k);
	}
	while ((node = queue_pop(&t->windows)))
		guests_window(t, container_of(node, struct transfer_window, node));
	while ((node = queue_pop(&t->returned)))
		guests_returned(t, container_of(node, struct transfer_window, node));
}

/* Nothing else would say why there are no peers. */
static void hear_version(struct transfer *t, uint32_t port, const struct err *e) ON(role_transfer)
{
	if (port >= PORT_CALLS) {
		guests_version(t, port, e);
	} else if (!t->calls[port].said_version) {
		t->calls[port].said_version = true;
		log_warning("transfer: %s is not understood: %s", port_endpoint(t->port, port),
			    e->text);
	}
}

/* A message that is none fails the delivery that it names, and nothing else. */
static void hear_broken(struct transfer *t, uint32_t port, zmq_msg_t *head, const struct err *e)
	ON(role_transfer)
{
	uint64_t delivery = wire_delivery(zmq_msg_data(head), zmq_msg_size(head));
	struct attempt *a = delivery ? attempt_of_delivery(t, port, delivery) : NULL;

	/* Who sends nothing else shall not fill the log. */
	if (!a) {
		log_debug("transfer: a message that cannot be read: %s", e->text);
		if (delivery && t->config.prefill)
			guests_broken(t, port, delivery, e);
		return;
	}
	log_warning("transfer: a message that cannot be read: %s", e->text);
	delivery_fail(a->delivery, t->now_ns, EBADMSG, "a message cannot be read: %s", e->text);
	if (t->config.prefill)
		guests_fail(t, a);
	else
		calls_fail(t, a);
}

static void hear(struct transfer *t, uint32_t port, zmq_msg_t *head, zmq_msg_t *body)
	ON(role_transfer)
{
	struct wire_message m;
	struct err e = {0};
	int r;

	if (port >= PORT_CALLS)
		guests_seen(t, port);
	else
		calls_seen(t, port);
	r = wire_parse(zmq_msg_data(head), zmq_msg_size(head), &m, &e);
	if (r == -EPROTONOSUPPORT)
		hear_version(t, port, &e);
	else if (r < 0)
		hear_broken(t, port, head, &e);
	else if (port == t->directory.port)
		directory_hear(t, &m);
	else if (t->config.prefill)
		guests_hear(t, port, &m, head, body);
	else
		calls_hear(t, port, &m, head, body);
}

/* So much of what came, before it looks at what else is there. */
enum { HEARD_MAX = 256 };

static void take_messages(struct transfer *t) ON(role_transfer)
{
	/* What came before a connection broke is heard first. */
	bool lost[PORT_CALLS], any = port_lost(t->port, lost);
	zmq_msg_t head, body;
	uint32_t port;

	for (int i = 0; i < HEARD_MAX && port_receive(t->port, &port, &head, &body); i++) {
		t->now_ns = clock_now_ns();
		hear(t, port, &head, &body);
		/* Those that were handed on are empty by now. */
		zmq_msg_close(&head);
		zmq_msg_close(&body);
	}
	if (any && !t->config.prefill)
		calls_lost(t, lost);
}

static void run(struct transfer *t) ON(role_transfer)
{
	while (!atomic_load(&t->quit)) {
		uint64_t next, wakes;

		t->now_ns = clock_now_ns();
		/* Before what is asked for now, and so cached after it. */
		if (atomic_exchange(&t->flushed, false))
			gossip_clear(&t->gossip);
		/* Before what is asked for now, and so refused. */
		if (t->config.prefill && !t->said_draining && atomic_load(&t->draining)) {
			t->said_draining = true;
			guests_drain(t);
		}
		take_tasks(t);
		take_messages(t);
		t->now_ns = clock_now_ns();
		next = t->config.prefill ? guests_tick(t) : calls_tick(t);
		next = MIN(next, directory_tick(t));
		port_wait(t->port, t->wake_fd,
			  next <= t->now_ns ? 0
					    : (int)MIN((next - t->now_ns) / 1000000 + 1, 1000u));
		if (read(t->wake_fd, &wakes, sizeof(wakes)) < 0)
			continue; /* nobody woke us */
	}
}

/* Who is still waited for is told. */
static void end_attempts(struct transfer *t) ON(role_transfer)
{
	while (!list_empty(&t->attempts)) {
		struct attempt *a = container_of(t->attempts.next, struct attempt, node);

		delivery_fail(a->delivery, t->now_ns, ESHUTDOWN, "the worker is shutting down");
		if (t->config.prefill)
			guests_fail(t, a);
		else
			calls_fail(t, a);
	}
}

static void await_answers(struct transfer *t) ON(role_transfer)
{
	uint64_t until = clock_now_ns() + ANSWERED_NS;

	while (t->now_ns < until && guests_known(t)) {
		uint64_t wakes;

		take_messages(t);
		port_wait(t->port, t->wake_fd, 10);
		(void)!read(t->wake_fd, &wakes, sizeof(wakes));
		t->now_ns = clock_now_ns();
	}
}

static void *transfer_main(void *arg)
{
	struct transfer *t = arg;
	struct cache_identity id;
	struct err e = {0};
	int r;

	role_begin(&role_transfer);
	r = t->config.identify(t->config.arg, &t->quit, &id, &e);
	if (r == 0) {
		memcpy(t->hello.model, id.bytes, sizeof(t->hello.model));
		run(t);
	} else if (!atomic_load(&t->quit)) {
		log_error("transfer: the model cannot be named, so that no peer is talked to: %s",
			  e.text);
	}
	/* Whatever is asked still has to have an end. */
	while (!atomic_load(&t->quit)) {
		uint64_t wakes;

		t->now_ns = clock_now_ns();
		take_tasks(t);
		port_wait(t->port, t->wake_fd, 1000);
		if (read(t->wake_fd, &wakes, sizeof(wakes)) < 0)
			continue;
	}
	t->now_ns = clock_now_ns();
	take_tasks(t);
	end_attempts(t);
	directory_leave(t);
	if (t->config.prefill) {
		guests_leave(t);
		await_answers(t);
	} else {
		calls_leave(t);
	}
	return NULL;
}

static void release(struct transfer *t)
{
	struct transfer_note *n;

	if (t->config.prefill)
		guests_close(t);
	else
		calls_close(t);
	/* Gives all windows back that ZeroMQ still has. */
	port_close(t->port);
	for (struct queue_node *node; (node = queue_pop(&t->returned));) {
		struct transfer_window *w = container_of(node, struct transfer_window, node);

		w->done(w);
	}
	while ((n = transfer_next(t)))
		transfer_note_free(n);
	queue_release(&t->tasks);
	queue_release(&t->windows);
	queue_release(&t->returned);
	queue_release(&t->notes);
	buf_release(&t->out);
	if (t->trace)
		fclose(t->trace);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	free(t);
}

static void fill_hello(struct transfer *t)
{
	const struct transfer_config *c = &t->config;

	memcpy(t->layers, c->layout.layers, c->layout.n_layers * sizeof(*t->layers));
	t->config.layout.layers = t->layers;
	t->hello = (struct wire_hello){
		.role = c->prefill ? WIRE_PREFILL : WIRE_DECODE,
		.n_pages = c->n_pages,
		.n_slots = c->n_slots,
		.heartbeat_ms = (uint32_t)MIN(MAX(c->heartbeat_ns / 1000000, UINT64_C(1)),
					      (uint64_t)WIRE_HEARTBEAT_MAX),
		.layout = t->config.layout,
	};
}

int transfer_start(const struct transfer_config *config, struct transfer **ret, struct err *e)
{
	struct transfer *t;
	int r;

	if (config->layout.n_layers > WIRE_LAYERS_MAX)
		return err_set(e, EINVAL, "a model of %u layers has more than %d",
			       config->layout.n_layers, WIRE_LAYERS_MAX);
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(e, ENOMEM, "out of memory");
	t->config = *config;
	fill_hello(t);
	list_init(&t->attempts);
	queue_init(&t->tasks);
	queue_init(&t->windows);
	queue_init(&t->returned);
	queue_init(&t->notes);
	buf_init(&t->out, WIRE_FRAME_MAX);
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = t->wake_fd < 0 ? err_set(e, errno, "eventfd: %s", strerror(errno)) : 0;
	if (r == 0 && config->trace)
		r = open_trace(t, e);
	if (r == 0 && getrandom(t->hello.worker, sizeof(t->hello.worker), 0) < 0)
		r = err_set(e, errno, "getrandom: %s", strerror(errno));
	if (r == 0)
		r = port_open(config->keys, MAX(config->largest, (uint64_t)WIRE_FRAME_MAX),
			      &t->port, e);
	if (r == 0)
		port_patience(t->port, (PEERS_MISSED + 1) * config->heartbeat_ns);
	if (r == 0)
		r = directory_open(t, e);
	if (r == 0)
		r = config->prefill ? guests_open(t, e) : calls_open(t, e);
	if (r == 0) {
		r = pthread_create(&t->thread, NULL, transfer_main, t);
		if (r)
			r = err_set(e, r, "cannot start the transfer thread: %s", strerror(r));
	}
	if (r < 0) {
		release(t);
		return r;
	}
	*ret = t;
	return 0;
}

void transfer_drain(struct transfer *t)
{
	atomic_store(&t->draining, true);
	wake(t);
}

void transfer_forget(struct transfer *t)
{
	atomic_store(&t->flushed, true);
	wake(t);
}

void transfer_stop(struct transfer *t)
{
	if (!t)
		return;
	atomic_store(&t->quit, true);
	wake(t);
	pthread_join(t->thread, NULL);
	release(t);
}
