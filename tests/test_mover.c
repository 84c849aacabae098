/* daemon/steps/mover.c with a real scheduler. Functions of this file stand in for the store and the device, so that
 * each copy ends and each answer comes when the test wants it. */
#include "daemon/steps/mover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/scheduler_world.h"
#include "tests/tap.h"

enum { PAGE = 2, PAGE_BYTES = 100, STATE_BYTES = 1000, CALLS_MAX = 4096 };

/* ---- a store ---- */

enum call_type { PUT, TOUCH };

/* The items that were put and touched, in order. */
static struct {
	enum call_type type;
	struct tier_item item;
} calls[CALLS_MAX];
static uint32_t n_calls, n_touched, n_put;

static struct store {
	bool ready;			 /* has room */
	uint64_t asked_with, most_asked; /* `more` of store_ready: the last one, the largest one */
	struct store_event events[64];
	uint32_t n_events;
	void *gets[64]; /* tags of the calls of store_get, whose items are in got */
	struct tier_item got[64];
	uint32_t n_gets;
} store;

static uint32_t blocks; /* number of blocks that were made here and not yet freed */

static void note(enum call_type type, const struct tier_item *item)
{
	if (n_calls == CALLS_MAX)
		abort();
	calls[n_calls].type = type;
	calls[n_calls++].item = *item;
	*(type == PUT ? &n_put : &n_touched) += 1;
}

int store_open(const struct store_config *c, struct store **ret, struct err *e)
{
	store = (struct store){.ready = true};
	*ret = &store;
	return 0;
}

void store_close(struct store *s, uint64_t timeout_ns)
{
}

struct store_block *store_block_new(size_t bytes)
{
	struct store_block *b = malloc(sizeof(*b));

	*b = (struct store_block){.data = calloc(1, bytes), .bytes = bytes};
	atomic_init(&b->refs, 1);
	blocks++;
	return b;
}

void store_block_put(struct store_block *b)
{
	if (!b)
		return;
	if (b->pool)
		block_pool_give(b->pool, b->data, b->bytes);
	else
		free(b->data);
	blocks -= !b->pool;
	free(b);
}

static uint32_t n_pooled; /* blocks that were put, in pinned memory */

int store_put(struct store *s, const struct store_put *p)
{
	check((p->item.kind == TIER_PAGE) == (p->tokens != NULL));
	note(PUT, &p->item);
	n_pooled += p->block->pool != NULL;
	store_block_put(p->block);
	return 0;
}

bool store_ready(struct store *s, uint64_t more)
{
	s->asked_with = more;
	s->most_asked = MAX(s->most_asked, more);
	return s->ready;
}

int store_get(struct store *s, const struct tier_item *item, void *tag)
{
	s->got[s->n_gets] = *item;
	s->gets[s->n_gets++] = tag;
	return 0;
}

void store_touch(struct store *s, const struct tier_item *items, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		note(TOUCH, &items[i]);
}

void store_clear(struct store *s)
{
}

bool store_poll(struct store *s, struct store_event *ret)
{
	if (!s->n_events)
		return false;
	*ret = s->events[0];
	memmove(s->events, s->events + 1, --s->n_events * sizeof(s->events[0]));
	return true;
}

void store_stats(struct store *s, struct store_stats *ret)
{
	*ret = (struct store_stats){.disk = STORE_DISK_READY};
}

static void tell(struct store_event ev)
{
	store.events[store.n_events++] = ev;
}

/* ---- a device, whose copies end when the test says so ---- */

static struct engine {
	void *out[ENGINE_ITEMS_OUT];
	uint32_t n_out;
	bool busy;
} device;

static int begin_copy(struct engine *g, void *tag)
{
	if (g->n_out == ENGINE_ITEMS_OUT)
		abort();
	g->out[g->n_out++] = tag;
	return 0;
}

int engine_read_item(struct engine *g, enum tier_kind kind, uint32_t id, void *host, void *tag,
		     struct err *e)
{
	memset(host, 1, kind == TIER_PAGE ? PAGE_BYTES : STATE_BYTES);
	return begin_copy(g, tag);
}

int engine_write_item(struct engine *g, enum tier_kind kind, uint32_t id, const void *host,
		      void *tag, struct err *e)
{
	return begin_copy(g, tag);
}

int engine_items_done(struct engine *g, void **tags, uint32_t max, uint32_t *ret_n, struct err *e)
{
	*ret_n = g->busy ? 0 : MIN(max, g->n_out);
	memcpy(tags, g->out, *ret_n * sizeof(*tags));
	g->n_out -= *ret_n;
	memmove(g->out, g->out + *ret_n, g->n_out * sizeof(*tags));
	return 0;
}

uint32_t engine_items_out(const struct engine *g)
{
	return g->n_out;
}

/* Pinned memory. */
static uint32_t n_pinned;
static uint64_t pinned_bytes; /* of which there is so much */

int engine_block_new(struct engine *g, uint64_t bytes, struct engine_block **ret, struct err *e)
{
	void *memory;

	if (bytes > pinned_bytes || posix_memalign(&memory, STORE_BLOCK_ALIGNMENT, bytes))
		return err_set(e, ENOMEM, "no memory to pin");
	pinned_bytes -= bytes;
	n_pinned++;
	*ret = memory;
	return 0;
}

void *engine_block_data(struct engine_block *b)
{
	return b;
}

void engine_block_free(struct engine_block *b)
{
	free(b);
	n_pinned -= b != NULL;
}

/* ---- the log ---- */

static uint32_t n_lines;

void log_write(enum log_level level, const char *fmt, ...)
{
	n_lines++;
}

bool log_enabled(enum log_level level)
{
	return false;
}

/* ---- all together ---- */

static struct server server;
static struct queue inbox;
static struct mover *mover;

static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	*ret = *before;
	for (uint32_t i = 0; i < n; i++)
		ret->v[0] = (ret->v[0] + (uint64_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static struct world *open_world(void)
{
	struct scheduler_config c = world_config(PAGE, 400, 64);
	struct err e;

	c.content_key = next_key;
	server.options.cache_dir = "played";
	server.options.page_size = PAGE;
	server.info.page_bytes = PAGE_BYTES;
	server.info.slot_bytes = STATE_BYTES;
	device = (struct engine){0};
	n_calls = n_touched = n_put = n_lines = 0;
	if (mover_open(&server, &device, NULL, &inbox, &mover, &e) < 0)
		abort();
	return world_new(&c);
}

static bool move(struct world *w)
{
	struct err e;
	bool more;

	check(mover_run(mover, &device, w->s, &more, &e) == 0);
	return more;
}

static void close_world(struct world *w)
{
	mover_close(mover, &device, w->s, 1000000000);
	check(blocks == 0 && device.n_out == 0);
}

static uint64_t submit(struct world *w, const char *prompt)
{
	struct scheduler_request r = world_request(prompt, 1);
	struct content_key keys[WORLD_LEN / PAGE];

	for (uint32_t i = 0; i < r.n_prompt / PAGE; i++)
		next_key(i ? &keys[i - 1] : &r.root_key, r.prompt + i * PAGE, PAGE, &keys[i]);
	r.page_keys = keys;
	return world_submit_request(w, &r);
}

TEST(down)
{
	struct world *w = open_world();
	uint32_t n;

	move(w);
	submit(w, "abcdefghijk");
	world_run(w, 7);
	n = world_stats(w).stores_waiting;
	check(n > 5);
	store.ready = false;
	move(w);
	ok(device.n_out == 0 && world_stats(w).stores_waiting == n,
	   "while the store has no room nothing is copied");
	store.ready = true;
	device.busy = true;
	ok(move(w), "copies that are out are to be looked after");
	is_int(device.n_out, n, "when it has, all is");
	is_int(store.asked_with, PAGE_BYTES * 5 + STATE_BYTES * (n - 5),
	       "it was asked for room beside what is on its way");
	is_int(n_put, 0, "nothing is put before it is there");
	device.busy = false;
	ok(!move(w), "it comes");
	is_int(n_put, n, "and is put");
	is_int(store.asked_with, 0, "nothing is on its way any more");

	submit(w, "abcdefghijk");
	world_run(w, 7);
	submit(w, "abcdefghijklmn");
	world_run(w, 7);
	n_calls = n_put = 0;
	move(w);
	move(w);
	ok(n_put >= 2 && n_touched == 12, "a hit is told to the store, a longer prompt is put");
	for (uint32_t i = 0; i < 12; i++)
		check(calls[i].type == TOUCH &&
		      calls[i].item.kind == (i % 6 ? TIER_PAGE : TIER_STATE));
	ok_all("state first, then the pages, all before what follows them");

	store.ready = false;
	submit(w, "zyxwvutsr");
	world_run(w, 7);
	move(w);
	n = world_stats(w).stores_waiting;
	n_put = 0;
	check(n > 4);
	store.ready = true;
	close_world(w);
	is_int(n_put, n, "what waited for room is put at the end");
	ok_all("and no block is left");
}

/* All items are given up while the device still copies their bytes to host memory. */
TEST(17)
{
	struct world *w = open_world();

	move(w);
	submit(w, "abcdefghijk");
	world_run(w, 7);
	device.busy = true;
	move(w);
	ok(device.n_out > 5 && blocks == device.n_out, "17: pages and states are written back");
	check(scheduler_flush(w->s) == 0);
	mover_clear(mover, w->s);
	move(w);
	ok(device.n_out > 5 && blocks == device.n_out,
	   "17: when they are given up the device goes on writing to their memory");
	device.busy = false;
	move(w);
	ok(device.n_out == 0 && blocks == 0 && n_put == 0,
	   "17: which is waited for; then they are discarded");
	is_int(tiers_count(scheduler_tiers(w->s), TIER_PAGE), 0, "17: nobody knows them");
	close_world(w);
	ok_all("17: write-backs that are given up");
}

/* Returns the id of a request that waits for the load of six items: five pages, then a state. The store has been asked
 * for all six, and has not answered. */
static uint64_t begin_load(struct world *w)
{
	uint64_t id;

	move(w);
	submit(w, "abcdefghijk");
	world_run(w, 7);
	move(w);
	move(w);
	check(scheduler_flush(w->s) == 0);
	id = submit(w, "abcdefghijk");
	check(!strcmp(world_plan(w), "nothing"));
	move(w);
	check(store.n_gets == 6);
	return id;
}

static void answer(uint32_t i, int error)
{
	struct store_event ev = {.type = STORE_GOT,
				 .item = store.got[i],
				 .tag = store.gets[i],
				 .error = error};

	if (error)
		err_set(&ev.why, -error, "the file is damaged");
	else
		ev.block = store_block_new(i < 5 ? PAGE_BYTES : STATE_BYTES);
	tell(ev);
}

TEST(late)
{
	struct world *w = open_world();
	uint64_t id = begin_load(w);

	answer(0, 0);
	move(w);
	scheduler_abort(w->s, id);
	for (uint32_t i = 1; i < 6; i++)
		answer(i, i == 3 ? -EIO : 0);
	move(w);
	move(w);
	ok(device.n_out == 0 && blocks == 0,
	   "17: what comes for an aborted request is dropped, good or not");
	is_int(scheduler_flush(w->s), 0, "17: nothing is held for it");
	close_world(w);
	ok_all("17: late results");
}

/* A request waits until its items are on the device, and gives their places back if it ends before. */
TEST(slow_copies)
{
	for (uint32_t aborted = 0; aborted < 2; aborted++) {
		struct world *w = open_world();
		uint64_t id = begin_load(w);

		for (uint32_t i = 0; i < 6; i++)
			answer(i, 0);
		device.busy = true;
		check(move(w));
		check(device.n_out == 6 && !strcmp(world_plan(w), "nothing"));
		if (aborted)
			scheduler_abort(w->s, id);
		device.busy = false;
		check(move(w));
		check(device.n_out == 0 && blocks == 0 && !move(w));
		check((strcmp(world_plan(w), "nothing") == 0) == aborted);
		if (!aborted) {
			world_commit(w, 7);
			check(w->events[0].hit.n_cached == 10);
		}
		close_world(w);
	}
	ok_all("a request runs when all its items are copied");
}

/* With copies on a queue of their own, items are copied to pinned memory, as far as there is some. */
TEST(pinned_memory)
{
	for (uint32_t some = 0; some < 2; some++) {
		struct world *w;

		server.info.copies_apart = true;
		pinned_bytes = some ? 64 << 20 : 0;
		n_pooled = 0;
		w = open_world();
		check(n_pinned == some);
		move(w);
		submit(w, "abcdefghijk");
		world_run(w, 7);
		move(w);
		move(w);
		check(n_put > 5 && n_pooled == (some ? n_put : 0));
		close_world(w);
		check(n_pinned == 0);
	}
	server.info.copies_apart = false;
	ok_all("items are copied to pinned memory, or to other memory if there is none");
}

TEST(damage)
{
	struct world *w = open_world();
	struct store_event gone = {.type = STORE_GONE};

	begin_load(w);
	n_lines = 0;
	gone.item = store.got[2];
	err_set(&gone.why, EBADMSG, "the file is damaged");
	tell(gone);
	for (uint32_t i = 0; i < 6; i++)
		answer(i, i == 2 ? -EBADMSG : 0);
	move(w);
	move(w);
	is_int(n_lines, 1, "of a damaged file the log says once why");
	ok(strcmp(world_plan(w), "nothing") != 0, "the request is computed");
	world_commit(w, 7);
	close_world(w);

	w = open_world();
	begin_load(w);
	n_lines = 0;
	for (uint32_t i = 0; i < 6; i++)
		answer(i, i == 2 ? -ENOMEM : 0);
	move(w);
	move(w);
	is_int(n_lines, 1, "of one that could not be read as well");
	world_run(w, 7);
	close_world(w);
	ok_all("damage");
}

int main(void)
{
	queue_init(&inbox);
	run_tests();
	queue_release(&inbox);
	return done();
}
