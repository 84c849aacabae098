#include "daemon/steps/handoff_send.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
#include "daemon/lifecycle.h"
#include "engine/store/key.h"

/* A prompt that is computed for a decode worker. */
struct shipment {
	struct list node; /* in handoff_send.shipments */
	uint64_t attempt;
	/* the request's id in the scheduler; 0: the prompt will not be computed */
	uint64_t request;
	uint64_t began_ns;
	uint32_t peer;
	/* tokens of the prompt; of these, tokens that were cached here */
	uint32_t n_prompt, n_cached;
	uint32_t n_choices, n_drawn;
	struct draw_result draws[];
};

static void end_call(struct server *s)
{
	atomic_fetch_sub(&s->calls, 1);
	lifecycle_notify(s->lifecycle);
}

/* A daemon that drains waits until no call is counted. A prompt is counted before the daemon's state is read, so either
 * the daemon waits for the prompt, or the prompt is refused here. */
bool handoff_send_admit(struct server *s)
{
	atomic_fetch_add(&s->calls, 1);
	if (lifecycle_state(s->lifecycle) < LIFECYCLE_DRAINING)
		return true;
	end_call(s);
	return false;
}

/* Returns the shipment of this attempt, or of this request; the other argument is 0. NULL: there is none. */
static struct shipment *find(struct handoff_send *h, uint64_t attempt, uint64_t request)
{
	list_for_each (s, &h->shipments, struct shipment, node)
		if (attempt ? s->attempt == attempt : s->request == request)
			return s;
	return NULL;
}

static void free_shipment(struct handoff_send *h, struct shipment *s)
{
	list_remove(&s->node);
	free(s);
	end_call(h->config->server);
}

/* ---- data ---- */

/* Called by the engine when it has queued a layer on the device (engine_on_layer). If the layer is the last one of its
 * layer group, queues the reads of the group's data behind it; for other layers does nothing. */
static void ship_layer(void *user, const struct plan *plan, uint32_t layer)
{
	struct handoff_send *h = user;
	const struct server *server = h->config->server;
	uint32_t group = (uint32_t)server->options.transfer_window; /* layers of a group */
	uint32_t first = layer / group * group;

	if ((layer + 1) % group && layer + 1 < server->info.model.n_layers)
		return;
	for (uint32_t i = 0; i < plan->n_ships; i++) {
		const struct plan_ship *ship = &plan->ships[i];
		struct shipment *s = find(h, 0, ship->request);
		struct err e = {0};

		/* A request without a shipment has been aborted. */
		if (s && shipping_group(h->shipping, s->attempt, s->peer, plan, ship, first,
					layer + 1 - first, &e) < 0)
			transfer_fail(h->transfer, s->attempt, &e);
	}
}

int handoff_send_open(struct handoff_send *h, const struct handoff_config *config,
		      struct transfer *transfer, struct err *e)
{
	const struct shipping_config shipping = {
		.engine = config->engine,
		.transfer = transfer,
		.inbox = config->inbox,
	};
	int r;

	h->config = config;
	h->transfer = transfer;
	list_init(&h->shipments);
	r = shipping_open(&shipping, &h->shipping, e);
	if (r == 0)
		engine_set_on_layer(config->engine, ship_layer, h);
	return r;
}

void handoff_send_close(struct handoff_send *h)
{
	if (!h->config)
		return;
	engine_set_on_layer(h->config->engine, NULL, NULL);
	while (!list_empty(&h->shipments))
		free_shipment(h, container_of(h->shipments.next, struct shipment, node));
	shipping_close(h->shipping);
}

/* ---- notes ---- */

/* Copies a list of a message, of "size" bytes, to "to". A list without an entry may have no address. */
static void copy_list(void *to, const void *list, size_t size)
{
	if (size)
		memcpy(to, list, size);
}

/* Submits the prompt of a PREPARE to the scheduler. The arrays in the message may be unaligned, so the scheduler gets
 * copies. */
static int submit_prompt(struct handoff_send *h, const struct wire_prepare *p, struct shipment *s,
			 struct err *e)
{
	uint32_t page_tokens = (uint32_t)h->config->server->options.page_size;
	int32_t *ids = calloc((size_t)p->n_tokens + p->n_end_tokens + p->n_boundaries +
				      p->n_allowed + 2 * (size_t)p->n_biases + 1,
			      sizeof(*ids));
	int32_t *ends, *boundaries, *allowed, *biases;
	uint32_t n_words = PLAN_MASK_WORDS(h->config->server->info.model.vocab_size);
	struct content_key *keys = NULL;
	struct scheduler_request q = {
		.prompt = ids,
		.n_prompt = p->n_tokens,
		.max_tokens = 1,
		.min_tokens = p->min_tokens,
		.n_choices = p->n_choices,
		.n_end_tokens = p->n_end_tokens,
		.n_boundaries = p->n_boundaries,
		.priority = p->priority,
		.space = {.id = {p->space[0], p->space[1]}},
		.cache_disabled = p->cache_disabled,
		.handoff = HANDOFF_SEND,
		.n_have = p->n_have,
		.sampling = p->sampling,
		.n_biases = p->n_biases,
		.user = s,
	};
	int r = 0;

	if (!ids)
		return err_no_memory(e);
	ends = ids + p->n_tokens;
	boundaries = ends + p->n_end_tokens;
	allowed = boundaries + p->n_boundaries;
	biases = allowed + p->n_allowed;
	q.end_tokens = ends;
	q.biases = (const struct plan_bias *)biases;
	q.boundaries = (uint32_t *)boundaries;
	copy_list(ids, p->tokens, p->n_tokens * sizeof(*ids));
	copy_list(ends, p->end_tokens, p->n_end_tokens * sizeof(*ids));
	copy_list(boundaries, p->boundaries, p->n_boundaries * sizeof(*ids));
	copy_list(allowed, p->allowed, p->n_allowed * sizeof(*ids));
	copy_list(biases, p->biases, p->n_biases * sizeof(*p->biases));
	if (p->n_allowed) {
		q.allowed = (const uint32_t *)allowed;
		if (p->n_allowed != n_words)
			r = err_set(e, EINVAL, "a token mask has %u words, not %u", p->n_allowed,
				    n_words);
	}
	if (r == 0 && scheduler_tiers(h->config->scheduler)) {
		q.page_keys = keys = calloc(p->n_tokens / page_tokens + 1, sizeof(*keys));
		if (!keys)
			r = err_no_memory(e);
		else if (content_key_root(p->space, &q.root_key) < 0 ||
			 content_key_chain(&q.root_key, ids, p->n_tokens, page_tokens, keys) < 0)
			r = err_set(e, PROBLEM_INTERNAL, "cannot hash the prompt");
	}
	if (r == 0)
		r = scheduler_submit(h->config->scheduler, &q, &s->request, e);
	if (r == 0)
		record_submit(h->config->record, s->request, &q);
	free(keys);
	free(ids);
	return r;
}

/* The prompt cannot be submitted: fails the attempt. A NOTE_DROPPED will follow and free the shipment. */
static void fail_shipment(struct handoff_send *h, struct shipment *s, const struct err *why)
{
	transfer_fail(h->transfer, s->attempt, why);
	s->request = 0;
}

static void take_asked(struct handoff_send *h, const struct transfer_note *n)
{
	const struct wire_prepare *p = &n->prepare;
	struct shipment *s = calloc(1, sizeof(*s) + p->n_choices * sizeof(s->draws[0]));
	struct err e = h->lost;

	if (!s) {
		err_no_memory(&e);
		transfer_fail(h->transfer, n->attempt, &e);
		end_call(h->config->server);
		return;
	}
	s->attempt = n->attempt;
	s->began_ns = clock_now_ns();
	s->peer = n->link;
	s->n_prompt = p->n_tokens;
	s->n_choices = p->n_choices;
	list_init(&s->node);
	list_append(&h->shipments, &s->node);
	if (e.code || submit_prompt(h, p, s, &e) < 0)
		fail_shipment(h, s, &e);
}

static void take_end(struct handoff_send *h, const struct transfer_note *n)
{
	const struct handoff_config *c = h->config;
	struct shipment *s = find(h, n->attempt, 0);

	if (!s)
		return;
	if (s->request && n->type == NOTE_SENT) {
		record_shipped(c->record, s->request);
		scheduler_shipped(c->scheduler, s->request);
		log_info(
			"transfer: prompt %u tokens (cached=%u) for a decode worker, total %.1f ms",
			s->n_prompt, s->n_cached, (double)(clock_now_ns() - s->began_ns) / 1e6);
	} else if (s->request) {
		record_abort(c->record, s->request);
		scheduler_abort(c->scheduler, s->request);
	}
	shipping_drop(h->shipping, s->attempt);
	free_shipment(h, s);
}

void handoff_send_take(struct handoff_send *h, const struct transfer_note *n)
{
	if (n->type == NOTE_ASKED)
		take_asked(h, n);
	else
		take_end(h, n);
}

/* ---- events ---- */

void handoff_send_deliver(struct handoff_send *h, const struct scheduler_event *ev)
{
	struct shipment *s = ev->user;
	struct err e = {0};

	if (ev->draw->token < 0) {
		/* The scheduler has ended the request and given its memory back, so no further reads may be queued. */
		shipping_drop(h->shipping, s->attempt);
		err_set(&e, PROBLEM_INTERNAL, "the model computed NaN or infinite numbers");
		transfer_fail(h->transfer, s->attempt, &e);
		log_error("transfer: prompt %u tokens for a decode worker: %s", s->n_prompt,
			  e.text);
		atomic_fetch_add(&h->config->server->metrics.not_finite, 1);
		return;
	}
	s->n_cached = ev->hit.n_cached;
	s->draws[ev->choice] = *ev->draw;
	if (++s->n_drawn < s->n_choices)
		return;
	if (transfer_draws(h->transfer, s->attempt, s->draws, s->n_choices, s->n_cached) < 0) {
		err_no_memory(&e);
		transfer_fail(h->transfer, s->attempt, &e);
	}
}

void handoff_send_fail(struct handoff_send *h, const struct err *why)
{
	if (!h->lost.code)
		h->lost = *why;
	list_for_each (s, &h->shipments, struct shipment, node)
		transfer_fail(h->transfer, s->attempt, why);
}
