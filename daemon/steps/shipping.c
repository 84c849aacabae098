#include "daemon/steps/shipping.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/macros.h"
#include "base/queue.h"

/* A block holds the data of a parcel. It is taken when the read of the parcel is queued, which may be up to two steps
 * ahead of the device. At 64 KiB of KV a token, for example, 256 MiB hold the pages of 4096 tokens. */
enum { BLOCK_MIN = 1 << 20, BLOCKS_BYTES = 256 << 20, BLOCKS_MIN = 8, BLOCKS_MAX = 256 };

/* Blocks that a peer may hold for each free block. */
enum { BLOCKS_SHARE = 4 };

struct block {
	struct engine_block *memory; /* owned */
	bool used;		     /* guarded by lock, like peer */
	uint32_t peer;		     /* the peer to which the data in the block go */
};

/* Pieces of one ship in one layer group, at most as many as a block can hold. They are read into a block, and sent as
 * one WINDOW. */
struct parcel {
	struct list node; /* in shipping.waiting, or in no list */
	struct shipping *shipping;
	struct engine_piece *pieces; /* [n_pieces] owned */
	struct wire_run *runs;	     /* the same pieces, as the WINDOW lists them; owned */
	uint32_t n_pieces, peer;
	struct block *block;	     /* NULL: none is taken yet */
	struct transfer_parcel send; /* for the transfer thread */
};

struct shipping {
	struct shipping_config config;
	uint64_t block_bytes;
	struct list waiting;		    /* parcels without a block */
	uint32_t n_waiting[TRANSFER_PEERS]; /* how many of these parcels are for each peer */

	pthread_mutex_t lock;
	struct block blocks[BLOCKS_MAX]; /* [n_blocks] */
	uint32_t n_blocks;
};

/* ---- blocks ---- */

uint64_t shipping_block_bytes(const struct engine *engine)
{
	uint64_t bytes = BLOCK_MIN;

	for (uint32_t i = 0; i < engine_info(engine)->model.n_layers; i++) {
		uint32_t n;
		const struct layer_part *parts = engine_layer_parts(engine, i, &n);

		for (uint32_t k = 0; k < n; k++)
			bytes = MAX(bytes, parts[k].bytes);
	}
	return bytes;
}

static int open_blocks(struct shipping *s, struct err *e)
{
	uint64_t n = MAX((uint64_t)BLOCKS_BYTES / s->block_bytes, (uint64_t)BLOCKS_MIN);

	for (; s->n_blocks < MIN(n, (uint64_t)BLOCKS_MAX); s->n_blocks++) {
		int r = engine_block_new(s->config.engine, s->block_bytes,
					 &s->blocks[s->n_blocks].memory, e);

		if (r < 0)
			return r;
	}
	return 0;
}

int shipping_open(const struct shipping_config *config, struct shipping **ret, struct err *e)
{
	struct shipping *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_no_memory(e);
	s->config = *config;
	list_init(&s->waiting);
	pthread_mutex_init(&s->lock, NULL);
	s->block_bytes = shipping_block_bytes(config->engine);
	r = open_blocks(s, e);
	if (r < 0) {
		shipping_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

static void free_parcel(struct parcel *p)
{
	list_remove(&p->node);
	free(p->pieces);
	free(p->runs);
	free(p);
}

void shipping_close(struct shipping *s)
{
	if (!s)
		return;
	while (!list_empty(&s->waiting))
		free_parcel(container_of(s->waiting.next, struct parcel, node));
	for (uint32_t i = 0; i < s->n_blocks; i++)
		engine_block_free(s->blocks[i].memory);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- parcels ---- */

/* Any thread: frees a parcel that was sent, or that cannot be sent. Makes its block free for other parcels, and wakes
 * the engine thread. */
static void end_parcel(struct parcel *p)
{
	struct shipping *s = p->shipping;

	pthread_mutex_lock(&s->lock);
	p->block->used = false;
	pthread_mutex_unlock(&s->lock);
	free_parcel(p);
	queue_wake(s->config.inbox);
}

static void sent(struct transfer_parcel *p)
{
	end_parcel(container_of(p, struct parcel, send));
}

/* Called when a parcel was read into its block: hands the parcel to the transfer thread, or frees it if the read has
 * failed. The caller is a thread of the driver, or engine_read_pieces. */
static void read_done(void *tag, bool good)
{
	struct parcel *p = tag;

	p->send.read_ns = clock_now_ns();
	if (good)
		transfer_parcel(p->shipping->config.transfer, &p->send);
	else
		end_parcel(p);
}

/* Takes a free block for data of this peer. NULL: none is free, or the peer holds its share of the blocks
 * (shipping.h). */
static struct block *take_block(struct shipping *s, uint32_t peer)
{
	uint32_t n_idle = 0, n_held = 0;
	struct block *idle = NULL;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->n_blocks; i++) {
		struct block *b = &s->blocks[i];

		if (!b->used)
			idle = b;
		n_idle += !b->used;
		n_held += b->used && b->peer == peer;
	}
	if (n_held >= BLOCKS_SHARE * n_idle)
		idle = NULL;
	if (idle) {
		idle->used = true;
		idle->peer = peer;
	}
	pthread_mutex_unlock(&s->lock);
	return idle;
}

static void start_waiting(struct shipping *s, struct parcel *p)
{
	list_append(&s->waiting, &p->node);
	s->n_waiting[p->peer]++;
}

static void stop_waiting(struct shipping *s, struct parcel *p)
{
	list_remove(&p->node);
	s->n_waiting[p->peer]--;
}

/* Queues the read of a parcel if a block is free. 1: the read is queued, and the parcel is not in the list of waiting
 * ones; 0: no block is free for it. After an error the parcel is freed. */
static int read_parcel(struct shipping *s, struct parcel *p, struct err *e)
{
	int r;

	p->block = take_block(s, p->peer);
	if (!p->block)
		return 0;
	if (!list_empty(&p->node))
		stop_waiting(s, p);
	p->send.data = engine_block_data(p->block->memory);
	p->send.done = sent;
	r = engine_read_pieces(s->config.engine, p->pieces, p->n_pieces, p->send.data, read_done, p,
			       e);
	if (r == 0)
		return 1;
	end_parcel(p);
	return r;
}

int shipping_run(struct shipping *s, struct err *e)
{
	/* refused[i]: a parcel of peer i found no block, so the later parcels of this peer must wait, too */
	bool refused[TRANSFER_PEERS] = {false};

	list_for_each (p, &s->waiting, struct parcel, node) {
		uint64_t attempt = p->send.attempt;
		uint32_t peer = p->peer;
		int r;

		if (refused[peer])
			continue;
		r = read_parcel(s, p, e);
		if (r == -EIO)
			return r;
		refused[peer] = !r;
		if (r < 0)
			transfer_fail(s->config.transfer, attempt, e);
	}
	return 0;
}

void shipping_drop(struct shipping *s, uint64_t attempt)
{
	list_for_each (p, &s->waiting, struct parcel, node) {
		if (p->send.attempt == attempt) {
			stop_waiting(s, p);
			free_parcel(p);
		}
	}
}

/* ---- layer groups ---- */

/* The state of shipping_group while it divides the data of a layer group into parcels. */
struct packing {
	struct shipping *s;
	uint64_t attempt;
	uint32_t peer;
	const struct plan_row *row;
	const struct plan_ship *ship;
	uint32_t first_layer, n_layers;
	struct parcel *p; /* the parcel that is being filled; NULL: none */
	struct err error;
};

/* Returns a new, empty parcel; NULL: out of memory. */
static struct parcel *new_parcel(const struct packing *k)
{
	uint32_t runs = WIRE_PARTS * k->n_layers, pieces = runs * MAX(k->ship->n_pages, 1u);
	struct parcel *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	list_init(&p->node);
	p->shipping = k->s;
	p->peer = k->peer;
	p->pieces = calloc(pieces, sizeof(*p->pieces));
	p->runs = calloc(runs, sizeof(*p->runs));
	if (!p->pieces || !p->runs) {
		free_parcel(p);
		return NULL;
	}
	p->send.attempt = k->attempt;
	p->send.window = (struct wire_window){
		.first_token = k->row->start,
		.n_tokens = k->row->n_tokens,
		.first_layer = k->first_layer,
		.n_layers = k->n_layers,
		.runs = p->runs,
	};
	return p;
}

/* Queues the read of the parcel that was being filled, or lets it wait for a block. Does nothing if there is no such
 * parcel. */
static void send_off(struct packing *k)
{
	struct parcel *p = k->p;
	int r = 0;

	k->p = NULL;
	if (!p)
		return;
	/* The parcels for a peer are read in order: if an earlier parcel waits for a block, this one waits, too. */
	if (!k->s->n_waiting[k->peer])
		r = read_parcel(k->s, p, &k->error);
	if (r == 0)
		start_waiting(k->s, p);
}

/* Adds pieces of one part of a layer to the parcel; when it is full, sends it off and begins another. The pieces are
 * those of n pages from page `first` of the prompt on, or the piece of the state (first 0, n 1). ids[n]: the numbers of
 * the pages on the device, or of the slot. */
static void pack(struct packing *k, uint32_t layer, uint32_t part, uint64_t piece_bytes,
		 const uint32_t *ids, uint32_t first, uint32_t n)
{
	while (n && !k->error.code) {
		struct parcel *p = k->p;
		uint32_t fit;

		if (!p)
			p = k->p = new_parcel(k);
		if (!p) {
			err_no_memory(&k->error);
			return;
		}
		fit = (uint32_t)MIN((k->s->block_bytes - p->send.bytes) / piece_bytes, (uint64_t)n);
		if (!fit) {
			send_off(k);
			continue;
		}
		p->runs[p->send.window.n_runs++] = (struct wire_run){
			.bytes = fit * piece_bytes,
			.layer = layer,
			.first = first,
			.n = fit,
			.part = part,
		};
		for (uint32_t i = 0; i < fit; i++)
			p->pieces[p->n_pieces++] = (struct engine_piece){layer, part, ids[i]};
		p->send.bytes += fit * piece_bytes;
		ids += fit;
		first += fit;
		n -= fit;
	}
}

int shipping_group(struct shipping *s, uint64_t attempt, uint32_t peer, const struct plan *plan,
		   const struct plan_ship *ship, uint32_t first_layer, uint32_t n_layers,
		   struct err *e)
{
	const struct plan_row *row = &plan->rows[ship->row];
	struct packing k = {s, attempt, peer, row, ship, first_layer, n_layers, NULL, {0}};

	for (uint32_t i = first_layer; i < first_layer + n_layers; i++) {
		uint32_t n;
		const struct layer_part *parts = engine_layer_parts(s->config.engine, i, &n);

		for (uint32_t part = 0; part < n; part++)
			if (parts[part].kind == TIER_PAGE)
				pack(&k, i, part, parts[part].bytes, row->pages + ship->first_page,
				     ship->first_page, ship->n_pages);
			else if (ship->state)
				pack(&k, i, part, parts[part].bytes, &row->state_dst, 0, 1);
	}
	send_off(&k);
	if (!k.error.code)
		return 0;
	*e = k.error;
	return -k.error.code;
}
