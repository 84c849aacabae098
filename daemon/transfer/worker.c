#include "daemon/transfer/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "protocol/transfer/peers.h"
#include "protocol/transfer/wire.h"

/* The time without a connection after which worker_reached connects a link again. */
#define RECONNECT_NS ((uint64_t)3 * 1000000000)

static void fill_hello(struct worker *w)
{
	const struct transfer_config *c = &w->config;

	memcpy(w->layers, c->layout.layers, c->layout.n_layers * sizeof(*w->layers));
	w->config.layout.layers = w->layers;
	w->hello = (struct wire_hello){
		.role = c->prefill ? WIRE_PREFILL : WIRE_DECODE,
		.n_pages = c->n_pages,
		.n_slots = c->n_slots,
		.heartbeat_ms = (uint32_t)MIN(MAX(c->heartbeat_ns / 1000000, UINT64_C(1)),
					      (uint64_t)WIRE_HEARTBEAT_MAX),
		.layout = w->config.layout,
	};
}

int worker_open_port(const struct transfer_keys *keys, uint64_t largest, uint64_t heartbeat_ns,
		     struct port **ret, struct err *e)
{
	const struct port_config port = {
		.keys = keys,
		.largest = MAX(largest, (uint64_t)WIRE_FRAME_MAX),
		.patience_ns = (PEERS_MISSED + 1) * heartbeat_ns,
	};

	return port_open(&port, ret, e);
}

int worker_open(struct worker *w, const struct transfer_config *config, struct err *e)
{
	int r = 0;

	w->config = *config;
	if (config->prefill) {
		w->port = config->listener->port;
		config->listener->port = NULL;
	}
	list_init(&w->attempts);
	queue_init(&w->notes);
	buf_init(&w->out, WIRE_FRAME_MAX);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake_fd < 0)
		return err_set(e, errno, "eventfd: %s", strerror(errno));
	if (config->layout.n_layers > WIRE_LAYERS_MAX)
		return err_set(e, EINVAL, "a model of %u layers has more than %d",
			       config->layout.n_layers, WIRE_LAYERS_MAX);
	fill_hello(w);
	if (getrandom(w->hello.worker, sizeof(w->hello.worker), 0) < 0)
		r = err_set(e, errno, "getrandom: %s", strerror(errno));
	if (r == 0)
		r = trace_open(&w->trace, config->trace, e);
	if (r == 0 && !config->prefill)
		r = worker_open_port(config->keys, config->largest, config->heartbeat_ns, &w->port,
				     e);
	return r;
}

void worker_close(struct worker *w)
{
	port_close(w->port);
	w->port = NULL;
}

void worker_free(struct worker *w)
{
	struct transfer_note *n;

	while ((n = note_next(w)))
		transfer_note_free(n);
	queue_release(&w->notes);
	buf_release(&w->out);
	trace_close(&w->trace);
	if (w->wake_fd >= 0)
		close(w->wake_fd);
}

void worker_wake(struct worker *w)
{
	uint64_t one = 1;

	if (write(w->wake_fd, &one, sizeof(one)) < 0)
		return; /* it fails only when the counter is full, and then the thread wakes anyway */
}

/* ---- messages ---- */

int worker_say(struct worker *w, uint32_t link, const struct wire_message *m, zmq_msg_t *body)
{
	struct err e = {0};
	int r;

	buf_reset(&w->out);
	r = wire_encode(m, &w->out, &e);
	if (r < 0) {
		log_error("transfer: %s cannot be sent: %s", wire_type_name(m->type), e.text);
		return r;
	}
	return port_send(w->port, link, w->out.data, w->out.len, body);
}

void worker_refuse(struct worker *w, uint32_t link, int code, const char *text)
{
	const struct wire_message m = {
		.type = WIRE_REFUSE,
		.refuse = {.code = (uint32_t)code, .n_text = (uint32_t)strlen(text), .text = text},
	};

	(void)!worker_say(w, link, &m, NULL);
}

void worker_farewell(struct worker *w, uint32_t link)
{
	worker_refuse(w, link, ESHUTDOWN, "the worker is shutting down");
}

void worker_reached(struct worker *w, uint32_t link, bool reached)
{
	uint64_t *since = &w->outgoing[link].unreached_ns;

	if (reached) {
		*since = 0;
	} else if (!*since) {
		*since = w->now_ns;
	} else if (w->now_ns - *since >= RECONNECT_NS) {
		*since = 0;
		port_reconnect(w->port, link);
	}
}

void worker_other_version(struct worker *w, uint32_t link, const struct err *why)
{
	char more[LOG_MORE_MAX];

	if (!w->outgoing[link].said_version &&
	    log_due_often(&w->outgoing[link].due_version, w->now_ns, more))
		log_warning("transfer: %s is not understood: %s%s", port_endpoint(w->port, link),
			    why->text, more);
	w->outgoing[link].said_version = true;
}

void worker_forget_link(struct worker *w, uint32_t link)
{
	w->outgoing[link].unreached_ns = 0;
	w->outgoing[link].said_version = false;
}

void worker_key_assumed(const struct worker *w, const char *option, const char *endpoint)
{
	const struct transfer_keys *k = w->config.keys;

	/* Without any `allow` all workers share one key pair, so the peer's key is our own. */
	if (k && k->n_allowed && !transfer_keys_name(k, endpoint))
		log_warning("transfer: %s %s: no \"allow\" of --transfer-key has this address, so "
			    "our own key is taken for its key",
			    option, endpoint);
}

/* ---- attempts ---- */

struct attempt *attempt_new(struct worker *w, uint64_t number, uint32_t link, struct delivery *d)
{
	struct attempt *a = calloc(1, sizeof(*a));

	if (!a) {
		delivery_free(d);
		return NULL;
	}
	a->number = number;
	a->link = link;
	a->delivery = d;
	list_init(&a->node);
	list_append(&w->attempts, &a->node);
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

void attempt_end(struct worker *w, struct attempt *a, enum transfer_note_type type)
{
	struct transfer_note *n = a->end;

	a->end = NULL;
	n->type = type;
	note_send(w, n);
	attempt_free(a);
}

struct attempt *attempt_of_delivery(struct worker *w, uint32_t link, uint64_t delivery)
{
	list_for_each (a, &w->attempts, struct attempt, node)
		if (a->link == link && delivery_id(a->delivery) == delivery)
			return a;
	return NULL;
}

struct attempt *attempt_of_number(struct worker *w, uint64_t number)
{
	list_for_each (a, &w->attempts, struct attempt, node)
		if (a->number == number)
			return a;
	return NULL;
}

uint32_t attempts_count(struct worker *w, uint32_t link)
{
	uint32_t n = 0;

	list_for_each (a, &w->attempts, struct attempt, node)
		n += a->link == link;
	return n;
}

void attempts_fail(struct worker *w, uint32_t link, int code, const char *why)
{
	list_for_each (a, &w->attempts, struct attempt, node)
		if (link == PORT_NONE || a->link == link)
			delivery_fail(a->delivery, w->now_ns, code, "%s", why);
}

uint64_t attempts_tick(struct worker *w)
{
	uint64_t next = UINT64_MAX;

	list_for_each (a, &w->attempts, struct attempt, node)
		if (!delivery_tick(a->delivery, w->now_ns))
			next = MIN(next, delivery_deadline(a->delivery));
	return next;
}

struct attempt *attempt_next_failed(struct worker *w)
{
	list_for_each (a, &w->attempts, struct attempt, node)
		if (delivery_status(a->delivery) == DELIVERY_FAILED)
			return a;
	return NULL;
}

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

void note_send(struct worker *w, struct transfer_note *n)
{
	if (n->type == NOTE_ASKED)
		atomic_fetch_add(&w->n_asked, 1);
	queue_push(&w->notes, &n->node);
	w->config.wake(w->config.arg);
}

struct transfer_note *note_next(struct worker *w)
{
	struct queue_node *node = queue_pop(&w->notes);
	struct transfer_note *n = node ? container_of(node, struct transfer_note, node) : NULL;

	if (n && n->type == NOTE_ASKED)
		atomic_fetch_sub(&w->n_asked, 1);
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
