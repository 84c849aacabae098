#include "daemon/steps/handoff.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lifecycle.h"
#include "daemon/steps/handoff_receive.h"
#include "daemon/steps/handoff_send.h"

struct handoff {
	struct handoff_config config;
	bool prefills;
	struct transfer *transfer;
	struct handoff_send send;	/* used by a prefill worker */
	struct handoff_receive receive; /* used by a decode worker */
};

/* ---- callbacks of the transfer thread ---- */

/* Gets the hash by which workers find out that they compute the same bits (identity.h). */
static int identify(void *arg, const atomic_bool *cancel, uint8_t model[WIRE_ID], struct err *e)
{
	const struct handoff *h = arg;
	struct lifecycle *l = h->config.server->lifecycle;
	struct cache_identity id;
	int r = identity_get(h->config.identity, NULL, cancel, &id, e);

	if (r == 0)
		memcpy(model, id.bytes, WIRE_ID);
	/* A prefill worker becomes READY (lifecycle.h) only when this hash is known, because its peers compare theirs
	 * with it. */
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

static bool admit(void *arg)
{
	return handoff_send_admit(((struct handoff *)arg)->config.server);
}

/* ---- opening and closing ---- */

static_assert((int)LAYER_PARTS_MAX <= (int)WIRE_PARTS, "a message has room for a layer's parts");

static void fill_layers(const struct engine *engine, struct wire_layer *layers, uint32_t n_layers)
{
	for (uint32_t i = 0; i < n_layers; i++) {
		uint32_t n;
		const struct layer_part *parts = engine_layer_parts(engine, i, &n);

		for (uint32_t k = 0; k < n; k++) {
			layers[i].part_bytes[k] = parts[k].bytes;
			layers[i].in_states |= (uint32_t)(parts[k].kind == TIER_STATE) << k;
		}
	}
}

static int start_transfer(struct handoff *h, struct err *e)
{
	struct server *s = h->config.server;
	const struct options *o = &s->options;
	uint32_t n_layers = s->info.model.n_layers;
	struct wire_layer *layers = calloc(n_layers, sizeof(*layers));
	const struct transfer_config config = {
		.prefill = h->prefills,
		.listener = s->transfer_listener,
		.peers = o->prefill.v,
		.n_peers = o->prefill.n,
		.registry = o->registry,
		.announce = o->transfer_announce,
		.keys = s->transfer_keys,
		.trace = o->transfer_trace,
		.heartbeat_ns = o->transfer_heartbeat * 1000000,
		.largest = shipping_block_bytes(h->config.engine),
		.layout =
			{
				.page_bytes = s->info.page_bytes,
				.slot_bytes = s->info.slot_bytes,
				.page_tokens = (uint32_t)o->page_size,
				.n_layers = n_layers,
				.layers = layers,
			},
		.n_pages = s->info.n_pages,
		.n_slots = s->info.n_slots,
		/* half of the prompts that the scheduler takes, so that one connection does not have all */
		.n_prompts_of_peer =
			(uint32_t)CEIL_DIV(o->max_queued_requests + o->max_num_seqs, 2u),
		.identify = identify,
		.wake = wake,
		.admit = admit,
		.arg = h,
		.counters = &s->metrics.transfer,
	};
	int r;

	if (!layers)
		return err_no_memory(e);
	fill_layers(h->config.engine, layers, n_layers);
	r = transfer_start(&config, &h->transfer, e);
	free(layers);
	return r;
}

int handoff_open(const struct handoff_config *config, struct handoff **ret, struct err *e)
{
	const struct options *o = &config->server->options;
	struct handoff *h;
	int r;

	*ret = NULL;
	if (o->role == ROLE_UNIFIED)
		return 0;
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_no_memory(e);
	h->config = *config;
	h->prefills = o->role == ROLE_PREFILL;
	if (h->prefills)
		lifecycle_expect(config->server->lifecycle);
	r = start_transfer(h, e);
	if (r == 0 && h->prefills)
		r = handoff_send_open(&h->send, &h->config, h->transfer, e);
	else if (r == 0)
		handoff_receive_open(&h->receive, &h->config, h->transfer);
	if (r < 0)
		handoff_close(h);
	else
		*ret = h;
	return r;
}

void handoff_close(struct handoff *h)
{
	if (!h)
		return;
	/* engine_finish waits until no read is under way. Then all data that were read have been sent, or are in the
	 * transfer thread's queue. handoff_send_close drops the data that still wait for a block. */
	engine_finish(h->config.engine);
	transfer_stop(h->transfer);
	handoff_send_close(&h->send);
	handoff_receive_close(&h->receive);
	free(h);
}

/* ---- for the loop ---- */

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

int handoff_take(struct handoff *h, struct scheduler_event *events, uint32_t *ret_n, struct err *e)
{
	struct transfer_note *n = h ? transfer_next(h->transfer) : NULL;
	int r;

	*ret_n = 0;
	if (!n)
		return 0;
	if (!h->prefills) {
		r = handoff_receive_take(&h->receive, n, events, ret_n, e);
		return r < 0 ? r : 1;
	}
	handoff_send_take(&h->send, n);
	transfer_note_free(n);
	return 1;
}

int handoff_run(struct handoff *h, struct err *e)
{
	int r = h ? engine_pieces_check(h->config.engine, e) : 0;

	if (!h || r < 0)
		return r;
	if (h->prefills)
		return shipping_run(h->send.shipping, e);
	handoff_receive_ask(&h->receive);
	return 0;
}

void handoff_deliver(struct handoff *h, const struct scheduler_event *events, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		handoff_send_deliver(&h->send, &events[i]);
}

void handoff_forget(struct handoff *h, uint64_t request)
{
	if (h && !h->prefills)
		handoff_receive_forget(&h->receive, request);
}

void handoff_fail(struct handoff *h, const struct err *why)
{
	if (!h)
		return;
	transfer_drain(h->transfer);
	if (h->prefills)
		handoff_send_fail(&h->send, why);
	else
		handoff_receive_fail(&h->receive);
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
