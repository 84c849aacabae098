#include "daemon/steps/handoff_receive.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "engine/store/key.h"

/* The most peers that are asked for a prompt, one after the other. If all of them fail, the prompt is computed here. */
enum { TRIES_MAX = 3 };

/* A prompt that a prefill worker is to compute. */
struct order {
	struct list node; /* in handoff_receive.orders */
	uint64_t request; /* the request's id in the scheduler */
	uint64_t attempt; /* 0: no attempt is under way */
	uint64_t tried;	  /* peers that were tried, as in struct transfer_ask */
	uint32_t n_tries;
	struct scheduler_prepare prepare; /* the prompt, and the pages and slot to write to */
};

void handoff_receive_open(struct handoff_receive *h, const struct handoff_config *config,
			  struct transfer *transfer)
{
	h->config = config;
	h->transfer = transfer;
	list_init(&h->orders);
}

static void free_order(struct order *o)
{
	list_remove(&o->node);
	free(o);
}

void handoff_receive_close(struct handoff_receive *h)
{
	if (!h->config)
		return;
	while (!list_empty(&h->orders))
		free_order(container_of(h->orders.next, struct order, node));
	transfer_note_free(h->held);
}

/* Returns the order of this attempt, or of this request; the other argument is 0. NULL: there is none. */
static struct order *find(struct handoff_receive *h, uint64_t attempt, uint64_t request)
{
	list_for_each (o, &h->orders, struct order, node)
		if (attempt ? o->attempt == attempt : o->request == request)
			return o;
	return NULL;
}

static uint32_t page_tokens(const struct handoff_receive *h)
{
	return (uint32_t)h->config->server->options.page_size;
}

/* ---- handing over ---- */

/* Tells the scheduler that a prompt will not come. The request will be admitted once more: to ask another worker for
 * the prompt (`again`), or to compute it here. */
static void fail_request(struct handoff_receive *h, uint64_t request, bool again)
{
	record_receive_failed(h->config->record, request, again);
	scheduler_receive_failed(h->config->scheduler, request, again);
}

/* Has this worker compute the prompt, and counts the prompt in metrics.prompts_missed. */
static void compute_here(struct handoff_receive *h, uint64_t request)
{
	atomic_fetch_add(&h->config->server->metrics.prompts_missed, 1);
	fail_request(h, request, false);
}

static void give_up(struct handoff_receive *h, struct order *o)
{
	compute_here(h, o->request);
	free_order(o);
}

static int send_order(struct handoff_receive *h, const struct order *o, struct err *e)
{
	const struct scheduler_request *q = &o->prepare.ask;
	uint32_t n_pages = q->n_prompt / page_tokens(h);
	struct content_key *keys = calloc(n_pages + 1, sizeof(*keys)), root;
	struct transfer_ask a = {
		.attempt = o->attempt,
		.prepare =
			{
				.tokens = (const struct wire_i32 *)q->prompt,
				.n_tokens = q->n_prompt,
				.n_have = q->n_have,
				.n_choices = q->n_choices,
				.min_tokens = q->min_tokens,
				.priority = q->priority,
				.cache_disabled = q->cache_disabled,
				.space = {q->space.id[0], q->space.id[1]},
				.sampling = q->sampling,
				.n_end_tokens = q->n_end_tokens,
				.n_boundaries = q->n_boundaries,
				.end_tokens = (const struct wire_i32 *)q->end_tokens,
				.boundaries = (const struct wire_u32 *)q->boundaries,
				.n_allowed = q->allowed ? PLAN_MASK_WORDS(h->config->server->info
										  .model.vocab_size)
							: 0,
				.allowed = (const struct wire_u32 *)q->allowed,
				.n_biases = q->n_biases,
				.biases = (const struct wire_bias *)q->biases,
			},
		.keys = (const struct wire_key *)keys,
		.n_keys = n_pages,
		.tried = o->tried,
	};
	int r;

	if (!keys)
		r = err_no_memory(e);
	else if (content_key_root(q->space.id, &root) < 0 ||
		 content_key_chain(&root, q->prompt, q->n_prompt, page_tokens(h), keys) < 0)
		r = err_set(e, EFAULT, "the pages of a prompt cannot be named");
	else
		r = transfer_ask(h->transfer, &a, e);
	free(keys);
	return r;
}

/* Makes an order and adds it to the list. NULL: out of memory. */
static struct order *new_order(struct handoff_receive *h, uint64_t request)
{
	struct order *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->request = request;
	list_init(&o->node);
	list_append(&h->orders, &o->node);
	return o;
}

void handoff_receive_ask(struct handoff_receive *h)
{
	struct scheduler_prepare p;
	struct err e = {0};

	while (scheduler_next_prepare(h->config->scheduler, &p)) {
		struct order *o = find(h, 0, p.request);

		if (!o)
			o = new_order(h, p.request);
		if (o) {
			o->attempt = ++h->last_attempt;
			o->prepare = p;
			if (send_order(h, o, &e) == 0)
				continue;
			log_warning("transfer: %s", e.text);
			give_up(h, o);
		} else {
			compute_here(h, p.request);
		}
		/* this worker may compute the prompt now, so the loop must plan again */
		queue_wake(h->config->inbox);
	}
}

/* ---- notes ---- */

/* Handles the loss of an attempt. When the request is admitted again, another peer is asked. If no peer is left, or
 * TRIES_MAX were asked, the prompt is computed here. */
static void take_lost(struct handoff_receive *h, struct order *o, const struct transfer_note *n)
{
	if (n->tried == o->tried || ++o->n_tries == TRIES_MAX) {
		give_up(h, o);
		return;
	}
	o->tried = n->tried;
	o->attempt = 0;
	fail_request(h, o->request, true);
}

/* Frees a note when its data were copied to the device, or the copy has failed. Called by a thread of the driver, or
 * within engine_write_pieces. */
static void free_written(void *tag, bool good)
{
	(void)good;
	transfer_note_free(tag);
}

/* Returns a new list of the pieces in a WINDOW, in the order of its data: for each run (struct wire_run) the piece of
 * each of its pages, or the piece of the state. NULL: out of memory. */
static struct engine_piece *list_pieces(struct handoff_receive *h, const struct order *o,
					const struct wire_window *w, uint32_t *ret_n)
{
	const struct scheduler_prepare *p = &o->prepare;
	uint32_t n = 0, at = 0, have = p->ask.n_have / page_tokens(h);
	struct engine_piece *pieces;

	for (uint32_t i = 0; i < w->n_runs; i++)
		n += w->runs[i].n;
	pieces = calloc((size_t)n + 1, sizeof(*pieces));
	for (uint32_t i = 0; pieces && i < w->n_runs; i++) {
		const struct wire_run *run = &w->runs[i];
		uint32_t n_parts;
		bool page = engine_layer_parts(h->config->engine, run->layer, &n_parts)[run->part]
				    .kind == TIER_PAGE;

		for (uint32_t j = 0; j < run->n; j++)
			pieces[at++] = (struct engine_piece){
				.layer = run->layer,
				.part = run->part,
				.id = page ? p->pages[run->first + j - have] : p->slot,
			};
	}
	*ret_n = n;
	return pieces;
}

/* Queues the copy of a WINDOW's data to the device. The note is freed when the data are copied, or now if the copy
 * cannot be queued. Then the attempt is dropped and the prompt computed here, unless the device is lost (-EIO). */
static int take_data(struct handoff_receive *h, struct order *o, struct transfer_note *n,
		     struct err *e)
{
	uint32_t n_pieces;
	struct engine_piece *pieces = list_pieces(h, o, &n->window, &n_pieces);
	int r = pieces ? engine_write_pieces(h->config->engine, pieces, n_pieces, n->data,
					     free_written, n, e)
		       : err_no_memory(e);

	free(pieces);
	if (r == 0)
		return 0;
	transfer_note_free(n);
	if (r == -EIO)
		return r;
	log_warning("transfer: %s", e->text);
	transfer_drop(h->transfer, o->attempt);
	give_up(h, o);
	return 0;
}

static bool in_vocabulary(const struct handoff_receive *h, const struct transfer_note *n)
{
	uint32_t size = h->config->server->info.model.vocab_size;

	for (uint32_t i = 0; i < n->n_draws; i++)
		if (n->draws[i].token < 0 || (uint32_t)n->draws[i].token >= size)
			return false;
	return true;
}

/* Called when all of a prompt has arrived. Takes the note n over. Writes the events of the prompt's first tokens, which
 * borrow the draws of n, and returns their number. If a token is not in the vocabulary, returns 0, and the prompt is
 * computed here. */
static uint32_t take_came(struct handoff_receive *h, struct order *o, struct transfer_note *n,
			  struct scheduler_event *events)
{
	uint64_t request = o->request;

	transfer_note_free(h->held);
	h->held = n;
	if (!in_vocabulary(h, n)) {
		log_warning("transfer: a first token is not in the vocabulary");
		give_up(h, o);
		return 0;
	}
	free_order(o);
	record_received(h->config->record, request, n->draws, n->n_draws);
	return scheduler_received(h->config->scheduler, request, n->draws, events);
}

int handoff_receive_take(struct handoff_receive *h, struct transfer_note *n,
			 struct scheduler_event *events, uint32_t *ret_n, struct err *e)
{
	struct order *o = find(h, n->attempt, 0);

	if (o && n->type == NOTE_DATA)
		return take_data(h, o, n, e);
	if (o && n->type == NOTE_CAME) {
		*ret_n = take_came(h, o, n, events);
		return 0;
	}
	if (o)
		take_lost(h, o, n);
	transfer_note_free(n);
	return 0;
}

void handoff_receive_forget(struct handoff_receive *h, uint64_t request)
{
	struct order *o = find(h, 0, request);

	if (!o)
		return;
	if (o->attempt)
		transfer_drop(h->transfer, o->attempt);
	free_order(o);
}

void handoff_receive_fail(struct handoff_receive *h)
{
	list_for_each (o, &h->orders, struct order, node) {
		if (o->attempt)
			transfer_drop(h->transfer, o->attempt);
		/* From now on notes of the attempt find no order and are ignored. The order's pages may belong to other
		 * requests by the time at which such a note is taken. */
		o->attempt = 0;
	}
}
