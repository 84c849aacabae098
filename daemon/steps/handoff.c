#include "daemon/steps/handoff.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "daemon/lifecycle.h"
#include "daemon/steps/shipping.h"
#include "daemon/transfer/transfer.h"
#include "engine/store/key.h"

/* How many peers a prompt is sent to, one after the other, before it is computed here. */
enum { TRIES_MAX = 3 };

/* A prompt that is computed for another worker. */
struct outgoing {
	struct list node; /* in handoff.outgoing */
	uint64_t attempt, id;
	uint64_t began_ns;
	uint32_t peer;
	uint32_t n_prompt, n_cached; /* tokens */
	uint32_t n_choices, n_drawn;
	struct draw_result draws[];
};

/* A prompt that another worker computes, or did not. */
struct incoming {
	struct list node; /* in handoff.incoming */
	uint64_t attempt; /* 0: it waits to be asked for again */
	uint64_t tried;
	uint32_t n_tries;
	struct scheduler_prepare prepare; /* while attempt is not 0 */
	uint64_t request;
};

struct handoff {
	struct handoff_config config;
	bool prefills;
	uint32_t page_tokens, window_layers;
	struct transfer *transfer;
	struct transfer_keys keys;
	struct list outgoing, incoming;
	struct shipping *shipping; /* NULL: a decode worker */
	uint64_t last_attempt;
	struct transfer_note *held; /* whose draws the last events point to */
	struct err lost;	    /* code 0: the device is there */
};

/* ---- opening ---- */

static int identify(void *arg, const atomic_bool *cancel, uint8_t model[WIRE_ID], struct err *e)
{
	const struct handoff *h = arg;
	struct lifecycle *l = h->config.server->lifecycle;
	struct cache_identity id;
	int r = identity_get(h->config.identity, NULL, cancel, &id, e);

	if (r == 0)
		memcpy(model, id.bytes, WIRE_ID);
	/* A prefill worker is ready only when its peers can tell whether the bits are theirs. */
	if (r == 0 && h->prefills)
		lifecycle_loaded(l);
	else if (h->prefills && r != -ECANCELED)
		lifecycle_fail(l, e);
	return r;
}

static void wake(void *arg)
{
	queue_wake(((struct handoff *)arg)->config.inbox);
}

static void end_call(struct server *s)
{
	atomic_fetch_sub(&s->calls, 1);
	lifecycle_notify(s->lifecycle);
}

/* A drain waits until no call is counted. This counts first and then looks at the state: so either the drain sees this prompt,
 * or this sees the drain. */
static bool admit(void *arg)
{
	struct server *s = ((struct handoff *)arg)->config.server;

	atomic_fetch_add(&s->calls, 1);
	if (lifecycle_state(s->lifecycle) < LIFECYCLE_DRAINING)
		return true;
	end_call(s);
	return false;
}

static_assert((int)LAYER_PIECES_MAX <= (int)WIRE_PARTS,
	      "a layer's pieces are the parts that workers exchange");

static int start(struct handoff *h, struct err *e)
{
	const struct server *s = h->config.server;
	const struct options *o = &s->options;
	const struct model_config *m = &s->info.model;
	struct wire_layer *layers = calloc(m->n_layers, sizeof(*layers));
	struct transfer_config config = {
		.prefill = h->prefills,
		.listen = o->transfer_listen,
		.peers = o->prefill.v,
		.n_peers = o->prefill.n,
		.registry = o->registry,
		.announce = o->transfer_announce,
		.keys = o->transfer_key ? &h->keys : NULL,
		.trace = o->transfer_trace,
		.heartbeat_ns = o->transfer_heartbeat * 1000000,
		.largest = shipping_block_bytes(h->config.engine),
		.layout =
			{
				.page_bytes = s->info.page_bytes,
				.slot_bytes = s->info.slot_bytes,
				.page_tokens = h->page_tokens,
				.n_layers = m->n_layers,
				.layers = layers,
			},
		.n_pages = s->info.n_pages,
		.n_slots = s->info.n_slots,
		.identify = identify,
		.wake = wake,
		.admit = admit,
		.arg = h,
		.counters = &h->config.server->metrics.transfer,
	};
	int r;

	if (!layers)
		return err_set(e, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < m->n_layers; i++) {
		uint32_t n;
		const struct layer_piece *parts = engine_layer_pieces(h->config.engine, i, &n);

		for (uint32_t k = 0; k < n; k++) {
			layers[i].part_bytes[k] = parts[k].bytes;
			layers[i].in_states |= (uint32_t)(parts[k].kind == TIER_STATE) << k;
		}
	}
	r = transfer_start(&config, &h->transfer, e);
	free(layers);
	return r;
}

static int open_shipping(struct handoff *h, struct err *e)
{
	const struct shipping_config config = {.engine = h->config.engine,
					       .transfer = h->transfer,
					       .inbox = h->config.inbox};

	return shipping_open(&config, &h->shipping, e);
}

static void ship_layer(void *user, const struct plan *plan, uint32_t layer);

int handoff_open(const struct handoff_config *config, struct handoff **ret, struct err *e)
{
	const struct options *o = &config->server->options;
	struct handoff *h;
	int r = 0;

	*ret = NULL;
	if (o->role == ROLE_UNIFIED)
		return 0;
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(e, ENOMEM, "out of memory");
	h->config = *config;
	h->prefills = o->role == ROLE_PREFILL;
	h->page_tokens = (uint32_t)o->page_size;
	h->window_layers = (uint32_t)o->transfer_window;
	list_init(&h->outgoing);
	list_init(&h->incoming);
	if (o->transfer_key && (r = transfer_keys_open(o->transfer_key, &h->keys, e)) < 0)
		err_prefix(e, "--transfer-key");
	if (h->prefills)
		lifecycle_expect(config->server->lifecycle);
	if (r == 0)
		r = start(h, e);
	if (r == 0 && h->prefills)
		r = open_shipping(h, e);
	if (r < 0) {
		handoff_close(h);
		return r;
	}
	if (h->prefills)
		engine_set_on_layer(config->engine, ship_layer, h);
	*ret = h;
	return 0;
}

/* ---- ends ---- */

static void free_outgoing(struct handoff *h, struct outgoing *o)
{
	list_remove(&o->node);
	free(o);
	end_call(h->config.server);
}

void handoff_close(struct handoff *h)
{
	if (!h)
		return;
	if (h->prefills && h->config.engine)
		engine_set_on_layer(h->config.engine, NULL, NULL);
	engine_finish(h->config.engine);
	/* Now nothing is read any more, and all that was is in the thread's queues or behind them. */
	transfer_stop(h->transfer);
	while (!list_empty(&h->outgoing))
		free_outgoing(h, container_of(h->outgoing.next, struct outgoing, node));
	while (!list_empty(&h->incoming)) {
		struct incoming *i = container_of(h->incoming.next, struct incoming, node);

		list_remove(&i->node);
		free(i);
	}
	shipping_close(h->shipping);
	transfer_note_free(h->held);
	transfer_keys_release(&h->keys);
	free(h);
}

/* ---- a prefill worker: prompts that others ask for ---- */

static struct outgoing *outgoing_of(struct handoff *h, uint64_t attempt)
{
	list_for_each (node, &h->outgoing) {
		struct outgoing *o = container_of(node, struct outgoing, node);

		if (o->attempt == attempt)
			return o;
	}
	return NULL;
}

/* Submits the prompt of a PREPARE; copies its arrays, since those in a frame are not aligned. */
static int submit_asked(struct handoff *h, const struct wire_prepare *p, struct outgoing *o,
			struct err *e)
{
	uint32_t n = p->n_tokens + p->n_end_tokens + p->n_boundaries, P = h->page_tokens;
	int32_t *ids = calloc((size_t)n + 1, sizeof(*ids));
	struct content_key *keys = NULL;
	struct scheduler_request r = {
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
		.user = o,
	};
	int rc = ids ? 0 : err_set(e, ENOMEM, "out of memory");

	if (rc == 0) {
		int32_t *ends = ids + p->n_tokens, *boundaries = ends + p->n_end_tokens;

		memcpy(ids, p->tokens, p->n_tokens * sizeof(*ids));
		memcpy(ends, p->end_tokens, p->n_end_tokens * sizeof(*ids));
		memcpy(boundaries, p->boundaries, p->n_boundaries * sizeof(*ids));
		r.end_tokens = ends;
		r.boundaries = (uint32_t *)boundaries;
	}
	if (rc == 0 && scheduler_tiers(h->config.scheduler)) {
		keys = calloc(p->n_tokens / P + 1, sizeof(*keys));
		r.page_keys = keys;
		if (!keys || content_key_root(p->space, &r.root_key) < 0 ||
		    content_key_chain(&r.root_key, ids, p->n_tokens, P, keys) < 0)
			rc = err_set(e, ENOMEM, "out of memory");
	}
	if (rc == 0)
		rc = scheduler_submit(h->config.scheduler, &r, &o->id, e);
	if (rc == 0)
		record_submit(h->config.record, o->id, &r);
	free(keys);
	free(ids);
	return rc;
}

static void take_asked(struct handoff *h, const struct transfer_note *n)
{
	const struct wire_prepare *p = &n->prepare;
	struct outgoing *o = calloc(1, sizeof(*o) + p->n_choices * sizeof(o->draws[0]));
	struct err e = {0};

	if (!o) {
		err_set(&e, ENOMEM, "out of memory");
		transfer_fail(h->transfer, n->attempt, &e);
		end_call(h->config.server);
		return;
	}
	*o = (struct outgoing){.attempt = n->attempt,
			       .began_ns = clock_now_ns(),
			       .peer = n->peer,
			       .n_prompt = p->n_tokens,
			       .n_choices = p->n_choices};
	list_init(&o->node);
	list_append(&h->outgoing, &o->node);
	if (h->lost.code)
		e = h->lost;
	if (e.code || submit_asked(h, p, o, &e) < 0) {
		transfer_fail(h->transfer, n->attempt, &e);
		/* NOTE_DROPPED follows. */
		o->id = 0;
	}
}

void handoff_event(struct handoff *h, const struct scheduler_event *ev)
{
	struct outgoing *o = ev->user;
	struct err e = {0};

	if (!ev->draw) {
		err_set(&e, EIO, "the prefill worker's device is lost");
		transfer_fail(h->transfer, o->attempt, &e);
		o->id = 0;
		return;
	}
	o->n_cached = ev->hit.n_cached;
	o->draws[ev->choice] = *ev->draw;
	if (++o->n_drawn < o->n_choices)
		return;
	if (transfer_draws(h->transfer, o->attempt, o->draws, o->n_choices, ev->hit.n_cached) < 0) {
		err_set(&e, ENOMEM, "out of memory");
		transfer_fail(h->transfer, o->attempt, &e);
	}
}

static void take_end(struct handoff *h, const struct transfer_note *n)
{
	struct outgoing *o = outgoing_of(h, n->attempt);

	if (!o)
		return;
	if (o->id && n->type == NOTE_SENT) {
		record_shipped(h->config.record, o->id);
		scheduler_shipped(h->config.scheduler, o->id);
		log_info(
			"transfer: prompt %u tokens (cached=%u) for a decode worker, total %.1f ms",
			o->n_prompt, o->n_cached, (double)(clock_now_ns() - o->began_ns) / 1e6);
	} else if (o->id) {
		record_abort(h->config.record, o->id);
		scheduler_abort(h->config.scheduler, o->id);
	}
	shipping_drop(h->shipping, o->attempt);
	free_outgoing(h, o);
}

static struct outgoing *outgoing_of_request(struct handoff *h, uint64_t id)
{
	list_for_each (node, &h->outgoing) {
		struct outgoing *o = container_of(node, struct outgoing, node);

		if (o->id == id)
			return o;
	}
	return NULL;
}

/* Called for each layer that is on the queue: behind the last one of a window, the pages and states of the window are read. */
static void ship_layer(void *user, const struct plan *plan, uint32_t layer)
{
	struct handoff *h = user;
	uint32_t n_layers = h->config.server->info.model.n_layers;
	uint32_t first = layer / h->window_layers * h->window_layers;

	if (!plan->n_ships || ((layer + 1) % h->window_layers && layer + 1 < n_layers))
		return;
	for (uint32_t i = 0; i < plan->n_ships; i++) {
		const struct plan_ship *ship = &plan->ships[i];
		struct outgoing *o = outgoing_of_request(h, ship->request);
		struct err e = {0};

		if (!o)
			continue; /* aborted meanwhile */
		if (shipping_window(h->shipping, o->attempt, o->peer, plan, ship, first,
				    layer + 1 - first, &e) < 0)
			transfer_fail(h->transfer, o->attempt, &e);
	}
}

/* ---- a decode worker ---- */

enum scheduler_handoff handoff_of(struct handoff *h, uint32_t n_prompt)
{
	struct server *s;

	if (!h || h->prefills)
		return HANDOFF_NONE;
	s = h->config.server;
	if (atomic_load(&s->metrics.transfer.peers))
		return HANDOFF_RECEIVE;
	if (n_prompt >= s->options.disaggregation_min_tokens)
		atomic_fetch_add(&s->metrics.prompts_missed, 1);
	return HANDOFF_NONE;
}

static struct incoming *incoming_of(struct handoff *h, uint64_t attempt)
{
	list_for_each (node, &h->incoming) {
		struct incoming *i = container_of(node, struct incoming, node);

		if (i->attempt == attempt)
			return i;
	}
	return NULL;
}

static struct incoming *incoming_of_request(struct handoff *h, uint64_t request)
{
	list_for_each (node, &h->incoming) {
		struct incoming *i = container_of(node, struct incoming, node);

		if (i->request == request)
			return i;
	}
	return NULL;
}

static void free_incoming(struct incoming *i)
{
	list_remove(&i->node);
	free(i);
}

static int ask(struct handoff *h, struct incoming *i, struct err *e)
{
	const struct scheduler_request *r = &i->prepare.ask;
	struct content_key *keys = calloc(r->n_prompt / h->page_tokens + 1, sizeof(*keys)), root;
	struct transfer_ask a = {
		.attempt = i->attempt,
		.prepare =
			{
				.tokens = (const struct wire_i32 *)r->prompt,
				.n_tokens = r->n_prompt,
				.n_have = r->n_have,
				.n_choices = r->n_choices,
				.min_tokens = r->min_tokens,
				.priority = r->priority,
				.cache_disabled = r->cache_disabled,
				.space = {r->space.id[0], r->space.id[1]},
				.sampling = r->sampling,
				.n_end_tokens = r->n_end_tokens,
				.n_boundaries = r->n_boundaries,
				.end_tokens = (const struct wire_i32 *)r->end_tokens,
				.boundaries = (const struct wire_u32 *)r->boundaries,
			},
		.keys = (const struct wire_key *)keys,
		.n_keys = r->n_prompt / h->page_tokens,
		.tried = i->tried,
	};
	int rc = keys ? 0 : err_set(e, ENOMEM, "out of memory");

	if (rc == 0 && (content_key_root(r->space.id, &root) < 0 ||
			content_key_chain(&root, r->prompt, r->n_prompt, h->page_tokens, keys) < 0))
		rc = err_set(e, EFAULT, "the pages of a prompt cannot be named");
	if (rc == 0)
		rc = transfer_ask(h->transfer, &a, e);
	free(keys);
	return rc;
}

static void give_up(struct handoff *h, struct incoming *i)
{
	atomic_fetch_add(&h->config.server->metrics.prompts_missed, 1);
	record_receive_failed(h->config.record, i->request, false);
	scheduler_receive_failed(h->config.scheduler, i->request, false);
	free_incoming(i);
}

static void ask_for_prompts(struct handoff *h)
{
	struct scheduler_prepare p;
	struct err e = {0};

	while (scheduler_next_prepare(h->config.scheduler, &p)) {
		struct incoming *i = incoming_of_request(h, p.request);

		if (!i) {
			i = calloc(1, sizeof(*i));
			if (!i) {
				record_receive_failed(h->config.record, p.request, false);
				scheduler_receive_failed(h->config.scheduler, p.request, false);
				queue_wake(h->config.inbox);
				continue;
			}
			i->request = p.request;
			list_init(&i->node);
			list_append(&h->incoming, &i->node);
		}
		i->attempt = ++h->last_attempt;
		i->prepare = p;
		if (ask(h, i, &e) < 0) {
			log_warning("transfer: %s", e.text);
			give_up(h, i);
			queue_wake(h->config.inbox); /* it is to be computed here now */
		}
	}
}

/* It is asked for again when it is admitted again, elsewhere, unless that was tried often enough. */
static void take_lost(struct handoff *h, const struct transfer_note *n)
{
	struct incoming *i = incoming_of(h, n->attempt);

	if (!i)
		return;
	if (n->tried == i->tried || ++i->n_tries == TRIES_MAX) {
		give_up(h, i);
		return;
	}
	i->tried = n->tried;
	i->attempt = 0;
	record_receive_failed(h->config.record, i->request, true);
	scheduler_receive_failed(h->config.scheduler, i->request, true);
}

static void written(void *tag, bool good)
{
	(void)good;
	transfer_note_free(tag);
}

/* Takes the note over. */
static int take_data(struct handoff *h, struct transfer_note *n, struct err *e)
{
	struct incoming *i = incoming_of(h, n->attempt);
	struct engine_piece *pieces;
	uint32_t n_pieces = 0, at = 0;
	int r;

	if (!i) {
		transfer_note_free(n);
		return 0;
	}
	for (uint32_t k = 0; k < n->window.n_pieces; k++)
		n_pieces += n->window.pieces[k].n;
	pieces = calloc((size_t)n_pieces + 1, sizeof(*pieces));
	if (!pieces) {
		transfer_note_free(n);
		transfer_drop(h->transfer, i->attempt);
		give_up(h, i);
		return 0;
	}
	for (uint32_t k = 0; k < n->window.n_pieces; k++) {
		const struct wire_piece *w = &n->window.pieces[k];
		uint32_t n_parts;
		const struct layer_piece *parts =
			engine_layer_pieces(h->config.engine, w->layer, &n_parts);
		bool page = parts[w->part].kind == TIER_PAGE;

		for (uint32_t j = 0; j < w->n; j++)
			pieces[at++] = (struct engine_piece){
				.layer = w->layer,
				.part = w->part,
				.id = page ? i->prepare
						      .pages[w->first + j -
							     i->prepare.ask.n_have / h->page_tokens]
					   : i->prepare.slot,
			};
	}
	r = engine_write_pieces(h->config.engine, pieces, n_pieces, n->data, written, n, e);
	free(pieces);
	if (r < 0)
		transfer_note_free(n);
	if (r == 0 || r == -EIO)
		return r;
	log_warning("transfer: %s", e->text);
	transfer_drop(h->transfer, i->attempt);
	give_up(h, i);
	return 0;
}

static bool in_vocabulary(const struct handoff *h, const struct transfer_note *n)
{
	for (uint32_t i = 0; i < n->n_draws; i++)
		if (n->draws[i].token < 0 ||
		    (uint32_t)n->draws[i].token >= h->config.server->info.model.vocab_size)
			return false;
	return true;
}

static uint32_t take_came(struct handoff *h, const struct transfer_note *n,
			  struct scheduler_event *events)
{
	struct incoming *i = incoming_of(h, n->attempt);
	uint64_t request;

	if (!i)
		return 0;
	request = i->request;
	if (!in_vocabulary(h, n)) {
		log_warning("transfer: a first token is not in the vocabulary");
		give_up(h, i);
		return 0;
	}
	free_incoming(i);
	record_received(h->config.record, request, n->draws, n->n_draws);
	return scheduler_received(h->config.scheduler, request, n->draws, events);
}

void handoff_forget(struct handoff *h, uint64_t request)
{
	struct incoming *i = h && !h->prefills ? incoming_of_request(h, request) : NULL;

	if (!i)
		return;
	if (i->attempt)
		transfer_drop(h->transfer, i->attempt);
	free_incoming(i);
}

/* ---- both ---- */

int handoff_take(struct handoff *h, struct scheduler_event *events, uint32_t *ret_n, struct err *e)
{
	struct transfer_note *n = h ? transfer_next(h->transfer) : NULL;

	*ret_n = 0;
	if (!n)
		return 0;
	switch (n->type) {
	case NOTE_DATA: {
		int r = take_data(h, n, e);

		return r < 0 ? r : 1;
	}
	case NOTE_ASKED: take_asked(h, n); break;
	case NOTE_DROPPED:
	case NOTE_SENT: take_end(h, n); break;
	case NOTE_CAME:
		/* The events borrow the draws. */
		*ret_n = take_came(h, n, events);
		transfer_note_free(h->held);
		h->held = n;
		return 1;
	case NOTE_LOST: take_lost(h, n); break;
	}
	transfer_note_free(n);
	return 1;
}

int handoff_run(struct handoff *h, struct err *e)
{
	int r;

	if (!h)
		return 0;
	r = engine_pieces_check(h->config.engine, e);
	if (r < 0)
		return r;
	if (!h->prefills) {
		ask_for_prompts(h);
		return 0;
	}
	return shipping_run(h->shipping, e);
}

void handoff_fail(struct handoff *h, const struct err *why)
{
	if (!h)
		return;
	if (!h->lost.code)
		h->lost = *why;
	transfer_drain(h->transfer);
	list_for_each (node, &h->outgoing) {
		struct outgoing *o = container_of(node, struct outgoing, node);

		transfer_fail(h->transfer, o->attempt, why);
	}
	list_for_each (node, &h->incoming) {
		struct incoming *i = container_of(node, struct incoming, node);

		if (i->attempt)
			transfer_drop(h->transfer, i->attempt);
		/* Windows that arrived are dropped: the pages they are for were freed. */
		i->attempt = 0;
	}
}

void handoff_flushed(struct handoff *h)
{
	if (h)
		transfer_forget(h->transfer);
}

void handoff_drain(struct handoff *h)
{
	if (h)
		transfer_drain(h->transfer);
}
