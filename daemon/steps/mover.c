#include "daemon/steps/mover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"

/* A copy that is queued on the device, or a get of the store that has not been answered. */
struct job {
	struct list node; /* in mover.asked during the get, else in no list */
	bool down;	/* from the device to the store; false: up, from the store to the device */
	uint32_t epoch; /* down: mover.epoch when the copy began */
	struct store_put put; /* down: if the item is a page, put.tokens points to `tokens` below */
	struct store_block *block;
	uint64_t request; /* up: request and index, as in struct scheduler_item */
	uint32_t index;
	int32_t tokens[];
};

struct mover {
	struct server *server;
	struct store *store;
	struct queue *inbox;
	struct identity *identity;
	struct block_pool *pool; /* NULL: blocks are ordinary memory */
	/* [n_pinned] the memory of the pool, owned */
	struct engine_block **pinned;
	size_t n_pinned;
	struct list asked;   /* jobs whose get is under way */
	uint64_t down_bytes; /* bytes of the copies to the store that are under way */
	uint32_t page_tokens;
	uint32_t epoch; /* number of calls of mover_clear */
	bool ready;	/* scheduler_tiers_ready was called */
};

static void wake(void *arg)
{
	queue_wake(arg);
}

static int identify(void *arg, const char *memo, const atomic_bool *cancel,
		    struct cache_identity *ret, struct err *e)
{
	const struct mover *m = arg;

	return identity_get(m->identity, memo, cancel, ret, e);
}

/* ---- memory ---- */

/* Memory is pinned in pieces of so many bytes, so that a limit of the system or of the driver leaves most of it. */
enum { PINNED_PIECE = 1 << 30 };

/* Bytes of blocks that are on their way, beside those of the host tier. */
enum { PINNED_MORE = 64 << 20 };

static int add_pinned(struct mover *m, struct engine *g, uint64_t bytes, struct err *e)
{
	struct engine_block **b = &m->pinned[m->n_pinned];
	int r = engine_block_new(g, bytes, b, e);

	if (r < 0)
		return r;
	m->n_pinned++;
	if (block_pool_add(m->pool, engine_block_data(*b), bytes) < 0)
		return err_no_memory(e);
	return 0;
}

/* Makes a pool of memory that the device accesses directly, for the host tier and for blocks on their way. Memory that
 * the system does not let the daemon pin is replaced by ordinary memory, from which a device copies more slowly. */
static int open_pool(struct mover *m, struct engine *g, const struct store_config *c, struct err *e)
{
	uint64_t bytes = c->host_bytes + PINNED_MORE, left = bytes, start = clock_now_ns();
	struct err why = {0};

	m->pool = block_pool_new(c->page_bytes, c->state_bytes);
	m->pinned = calloc(CEIL_DIV(bytes, (uint64_t)PINNED_PIECE), sizeof(*m->pinned));
	if (!m->pool || !m->pinned)
		return err_no_memory(e);
	while (left && !why.code) {
		uint64_t n = MIN(left, (uint64_t)PINNED_PIECE);

		if (add_pinned(m, g, n, &why) == 0)
			left -= n;
	}
	if (left)
		log_warning("prefix cache: %.2f of %.2f GiB of host memory are not pinned: %s",
			    (double)left / (1 << 30), (double)bytes / (1 << 30), why.text);
	log_debug("pinned %.2f GiB of host memory in %.0f ms", (double)(bytes - left) / (1 << 30),
		  (double)(clock_now_ns() - start) / 1e6);
	return 0;
}

static void close_pool(struct mover *m)
{
	block_pool_free(m->pool);
	for (size_t i = 0; i < m->n_pinned; i++)
		engine_block_free(m->pinned[i]);
	free(m->pinned);
}

/* ---- opening ---- */

int mover_open(struct server *s, struct engine *g, struct identity *identity, struct queue *inbox,
	       struct mover **ret, struct err *e)
{
	const struct options *o = &s->options;
	struct store_config config = {
		.host_bytes = o->host_cache_memory,
		.dir = o->cache_dir,
		.disk_bytes = o->cache_disk,
		.page_bytes = s->info.page_bytes,
		.state_bytes = s->info.slot_bytes,
		.page_tokens = (uint32_t)o->page_size,
		.identify = identify,
		.wake = wake,
		.wake_arg = inbox,
	};
	struct mover *m;
	int r = 0;

	*ret = NULL;
	if (!options_want_tiers(o))
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_no_memory(e);
	list_init(&m->asked);
	m->server = s;
	m->inbox = inbox;
	m->identity = identity;
	m->page_tokens = config.page_tokens;
	config.arg = m;
	if (s->info.copies_apart)
		r = open_pool(m, g, &config, e);
	config.pool = m->pool;
	if (r == 0)
		r = store_open(&config, &m->store, e);
	if (r < 0) {
		close_pool(m);
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

static void free_job(struct job *j)
{
	list_remove(&j->node);
	store_block_put(j->block);
	free(j);
}

/* ---- down ---- */

static int send_down(struct mover *m, struct engine *g, struct scheduler *s,
		     const struct scheduler_item *i, struct err *e)
{
	const struct engine_info *info = &m->server->info;
	size_t n = i->tokens ? m->page_tokens : 0;
	struct job *j = malloc(sizeof(*j) + n * sizeof(j->tokens[0]));
	int r;

	if (j) {
		*j = (struct job){
			.down = true,
			.epoch = m->epoch,
			.put = {.item = i->item, .parent = i->parent, .depth = i->depth},
			.block = block_pool_take(m->pool, i->item.kind == TIER_PAGE
								  ? info->page_bytes
								  : info->slot_bytes),
		};
		list_init(&j->node);
		if (n) {
			memcpy(j->tokens, i->tokens, n * sizeof(j->tokens[0]));
			j->put.tokens = j->tokens;
		}
	}
	if (!j || !j->block) { /* without memory, the item stays on the device alone */
		tiers_remove(scheduler_tiers(s), &i->item);
		free(j);
		return 0;
	}
	r = engine_read_item(g, i->item.kind, i->id, j->block->data, j, e);
	if (r < 0) {
		tiers_remove(scheduler_tiers(s), &i->item);
		free_job(j);
	} else {
		m->down_bytes += j->block->bytes;
	}
	return r == -ENOMEM ? 0 : r;
}

/* Puts a copy into the store, unless mover_clear was called since the copy began. An item that the store refuses is
 * removed from the scheduler's index of the store's items; s NULL, when the daemon ends: nothing is removed. */
static void keep_copy(struct mover *m, struct scheduler *s, struct job *j)
{
	if (j->epoch != m->epoch)
		return;
	j->put.block = j->block;
	j->block = NULL;
	if (store_put(m->store, &j->put) < 0 && s)
		tiers_remove(scheduler_tiers(s), &j->put.item);
}

/* Ends the copies that have run. s NULL: the daemon ends, and no request waits for an item. *ret_loaded: an item has
 * come to the device, so a request may be able to run. */
static int finish_copies(struct mover *m, struct engine *g, struct scheduler *s, bool *ret_loaded,
			 struct err *e)
{
	void *tags[64];
	uint32_t n;
	int r;

	do {
		r = engine_items_done(g, tags, ARRAY_SIZE(tags), &n, e);
		for (uint32_t i = 0; i < n; i++) {
			struct job *j = tags[i];

			if (j->down) {
				m->down_bytes -= j->block->bytes;
				if (r == 0)
					keep_copy(m, s, j);
			} else if (r == 0 && s) {
				scheduler_loaded(s, j->request, j->index, true);
				*ret_loaded = true;
			}
			free_job(j);
		}
	} while (n);
	return r;
}

/* ---- up ---- */

static void ask_store(struct mover *m, struct scheduler *s, const struct scheduler_item *i)
{
	struct job *j = malloc(sizeof(*j));

	if (j) {
		*j = (struct job){.request = i->request, .index = i->index};
		list_init(&j->node);
	}
	if (j && store_get(m->store, &i->item, j) == 0) {
		list_append(&m->asked, &j->node);
		return;
	}
	free(j);
	scheduler_loaded(s, i->request, i->index, false);
}

static int take_block(struct engine *g, struct scheduler *s, struct store_event *ev, struct err *e)
{
	struct job *j = ev->tag;
	uint32_t id;
	int r;

	list_remove(&j->node);
	/* For an item that has left the index no line is logged: it was evicted or flushed, or the reason was logged
	 * when it left. */
	if (ev->error && tiers_has(scheduler_tiers(s), &ev->item))
		log_info("prefix cache: %s", ev->why.text);
	j->block = ev->block;
	if (ev->error || !scheduler_load_place(s, j->request, j->index, &id)) {
		scheduler_loaded(s, j->request, j->index, !ev->error);
		free_job(j);
		return 0;
	}
	r = engine_write_item(g, ev->item.kind, id, j->block->data, j, e);
	if (r == -ENOMEM)
		scheduler_loaded(s, j->request, j->index, false);
	if (r < 0)
		free_job(j);
	return r == -ENOMEM ? 0 : r;
}

static int take_event(struct engine *g, struct scheduler *s, struct store_event *ev, struct err *e)
{
	switch (ev->type) {
	case STORE_FOUND:
		/* If memory is short, the item counts as not found. */
		if (tiers_add(scheduler_tiers(s), &ev->item) < 0)
			log_debug("prefix cache: out of memory for the index");
		return 0;
	case STORE_GONE:
		if (ev->why.text[0])
			log_warning("prefix cache: %s", ev->why.text);
		tiers_remove(scheduler_tiers(s), &ev->item);
		return 0;
	case STORE_GOT: return take_block(g, s, ev, e);
	}
	return 0;
}

/* Tells the store of the items that requests have resumed on the device. They then count as used in the store too, so
 * that they are still on disk after a restart. */
static void tell_uses(struct mover *m, struct scheduler *s)
{
	struct tier_item used[256];
	uint32_t n;

	while ((n = scheduler_take_uses(s, used, ARRAY_SIZE(used))))
		store_touch(m->store, used, n);
}

int mover_run(struct mover *m, struct engine *g, struct scheduler *s, bool *ret_more, struct err *e)
{
	struct store_stats stats;
	struct scheduler_item item;
	struct store_event ev;
	bool loaded = false;
	int r;

	*ret_more = false;
	if (!m)
		return 0;
	/* Where the store puts a new item in its order of eviction depends on the last use of the page before it in the
	 * prompt (engine/store/index.h). So the store is told of uses before it gets new items. */
	tell_uses(m, s);
	r = finish_copies(m, g, s, &loaded, e);
	/* The statistics are read before the events are taken. So if the statistics say that the disk is open, all
	 * items that were found there are in events that have come by then. */
	store_stats(m->store, &stats);
	while (r == 0 && engine_items_out(g) < ENGINE_ITEMS_OUT && store_poll(m->store, &ev))
		r = take_event(g, s, &ev, e);
	if (r == 0 && !m->ready && stats.disk != STORE_DISK_OPENING &&
	    engine_items_out(g) < ENGINE_ITEMS_OUT) {
		m->ready = true;
		scheduler_tiers_ready(s);
	}
	while (r == 0 && scheduler_next_load(s, &item))
		ask_store(m, s, &item);
	while (r == 0 && engine_items_out(g) < ENGINE_ITEMS_OUT &&
	       store_ready(m->store, m->down_bytes) && scheduler_next_store(s, &item))
		r = send_down(m, g, s, &item, e);
	*ret_more = loaded || engine_items_out(g) > 0;
	return r;
}

void mover_clear(struct mover *m, struct scheduler *s)
{
	if (!m)
		return;
	m->epoch++;
	store_clear(m->store);
	tiers_clear(scheduler_tiers(s));
}

static void pause_briefly(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

void mover_close(struct mover *m, struct engine *g, struct scheduler *s, uint64_t timeout_ns)
{
	uint64_t now = clock_now_ns(), end = now + timeout_ns;
	struct scheduler_stats stats;
	struct store_event ev;
	struct err e;
	bool more;
	int r;

	if (!m)
		return;
	/* Items that wait for room in the store until the time is over are lost. */
	for (; now < end; now = clock_now_ns()) {
		r = mover_run(m, g, s, &more, &e);
		scheduler_stats(s, &stats);
		if (r < 0 || (!more && !stats.stores_waiting))
			break;
		pause_briefly();
	}
	/* Copies that are under way still use their blocks, which must not be freed before the copies end. */
	for (r = 0; r == 0 && engine_items_out(g); pause_briefly())
		r = finish_copies(m, g, NULL, &more, &e);
	while (store_poll(m->store, &ev))
		store_block_put(ev.block);
	store_close(m->store, end > now ? end - now : 0);
	while (!list_empty(&m->asked))
		free_job(container_of(m->asked.next, struct job, node));
	close_pool(m);
	free(m);
}

struct store *mover_store(struct mover *m)
{
	return m ? m->store : NULL;
}
