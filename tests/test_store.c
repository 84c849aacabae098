/* The store: items that were put can be got, from memory or disk; budgets, the order of eviction, the queue, clearing
 * and closing. */
#include "base/clock.h"
#include "base/mix.h"
#include "tests/random.h"
#include "tests/scratch.h"
#include "tests/store_fixture.h"
#include "tests/tap.h"

static void test_host(void)
{
	struct store_config c = config_of(NULL);
	struct fixture f;
	struct item it[10], state;

	make_path(it, 10, 1);
	item_make(&state, 1, 0, TIER_STATE);
	c.host_bytes = 5 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	is_int(get(&f, &it[0]), -ENOENT, "what nobody put is not known");
	put_all(&f, it, 10);
	ok_all("ten pages are taken");
	wait_while(stats_of(&f).host_bytes > c.host_bytes);
	drain(&f);
	is_int(f.gone, 5, "five go again");
	for (int i = 0; i < 5; i++)
		check(gets_right(&f, &it[i]) && !f.last.from_disk);
	ok_all("those that stay are the beginning of the prefix");
	for (int i = 5; i < 10; i++)
		check(!store_has(f.store, &it[i].item) && get(&f, &it[i]) == -ENOENT);
	ok_all("the others are not known");
	is_int(item_put(f.store, &state), -ENOBUFS, "what exceeds all of it is not taken");
	ok(atomic_load(&f.wakes) > 0, "the poller was woken");
	is_int(stats_of(&f).disk, STORE_DISK_NONE, "there is no disk");
	close_store(&f);
}

static void test_disk(const char *dir)
{
	struct fixture f;
	struct item it[20], state[4];
	uint64_t start;
	char path[1024];

	make_path(it, 20, 2);
	for (uint32_t i = 0; i < 4; i++)
		item_make(&state[i], 2, i * 5, TIER_STATE);
	open_dir(&f, dir);
	is_int(stats_of(&f).disk, STORE_DISK_READY, "a new directory is ready");
	start = clock_now_ns();
	put_all(&f, it, 20);
	for (int i = 0; i < 4; i++)
		check(item_put(f.store, &state[i]) == 0);
	ok_all("pages and states are taken");
	ok(settle(&f) && clock_now_ns() - start < SECOND, "they are on disk within a second");
	is_int(count_files(dir, ".kv") + count_files(dir, ".state"), 24, "a file each");
	is_int(mode_of(file_of(dir, &it[0], 1)), 0600, "files are the owner's alone");
	snprintf(path, sizeof(path), "%s", file_of(dir, &it[0], 1));
	*strrchr(path, '/') = 0;
	is_int(mode_of(path), 0700, "so are directories");
	is_int(mode_of(dir), 0700, "all of them");
	for (int i = 0; i < 20; i++)
		check(gets_right(&f, &it[i]) && f.last.from_disk);
	for (int i = 0; i < 4; i++)
		check(gets_right(&f, &state[i]));
	ok_all("all are read back");
	is_int(item_put(f.store, &it[3]), 0, "an item that is there may come again");
	ok(settle(&f), "nothing hangs");
	is_int(stats_of(&f).written_items, 24, "and is not written again");
	close_store(&f);

	open_dir(&f, dir);
	is_int(f.found, 24, "after a restart all are found");
	for (int i = 0; i < 20; i++)
		check(gets_right(&f, &it[i]));
	for (int i = 0; i < 4; i++)
		check(gets_right(&f, &state[i]) && f.last.item.kind == TIER_STATE);
	ok_all("and read");
	is_int(stats_of(&f).disk_items, 24, "the count is right");
	close_store(&f);
}

static void test_budget(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[30];

	make_paths(it, 30, 600); /* paths that have nothing in common */
	c.disk_bytes = 10 * 4096;
	open_config(&f, &c);
	ok(settle(&f), "room for ten files");
	for (int i = 0; i < 30; i++) {
		check(item_put(f.store, &it[i]) == 0);
		store_touch(f.store, &it[0].item, 1);
		check(settle(&f));
		check(stats_of(&f).disk_bytes <= c.disk_bytes);
	}
	ok_all("it is never exceeded");
	is_int(count_files(dir, ".kv"), 10, "ten files are there");
	is_int(f.gone, 20, "twenty went, and this was told");
	ok(store_has(f.store, &it[0].item) && store_has(f.store, &it[29].item) &&
		   !store_has(f.store, &it[20].item),
	   "the ones that were used last stay");
	close_store(&f);

	/* The order survives a restart. On disk times have a resolution of a second. */
	pause_ms(1100);
	open_settled(&f, &c);
	store_touch(f.store, &it[22].item, 1);
	check(gets_right(&f, &it[21]));
	close_store(&f);
	c.disk_bytes = 2 * 4096;
	open_config(&f, &c);
	ok(settle(&f), "a restart with room for two");
	wait_while(stats_of(&f).disk_bytes > c.disk_bytes);
	ok(gets_right(&f, &it[21]) && gets_right(&f, &it[22]), "keeps those used last before it");
	is_int(count_files(dir, ".kv"), 2, "and nothing else");
	close_store(&f);

	c.disk_bytes = 4095;
	open_config(&f, &c);
	check(settle(&f) && puts_one(&f, &it[1]));
	ok(!store_has(f.store, &it[1].item), "what exceeds all of it is not kept");
	close_store(&f);
	ok_all("the budget");
}

/* The last page of a prefix is evicted first, also after a restart. */
static void test_order(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[20], extra;

	make_path(it, 20, 7);
	item_make(&extra, 8, 0, TIER_PAGE);
	c.disk_bytes = 20 * 4096;
	open_settled(&f, &c);
	put_all(&f, it, 20);
	check(settle(&f) && puts_one(&f, &extra));
	ok(!store_has(f.store, &it[19].item) && store_has(f.store, &it[0].item),
	   "the last page goes first");
	close_store(&f);
	c.disk_bytes = 10 * 4096;
	open_settled(&f, &c);
	wait_while(stats_of(&f).disk_bytes > c.disk_bytes);
	for (int i = 0; i < 8; i++)
		check(store_has(f.store, &it[i].item));
	for (int i = 11; i < 20; i++)
		check(!store_has(f.store, &it[i].item));
	ok_all("after a restart as well");
	close_store(&f);
}

/* A slow disk. Without a host tier, store_ready says when the queue has no more room. With one, items in host memory
 * take no room of the queue; an item for which neither has room is lost. */
static void test_queue(const char *dir)
{
	struct identity_arg slow = {.first = 1, .hold = true};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[10];

	make_path(it, 10, 33);
	c.arg = &slow;
	c.queue_bytes = ITEM_STATE_BYTES + 2 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	ok(store_ready(f.store, 2 * ITEM_PAGE_BYTES), "a state after two pages has room");
	ok(!store_ready(f.store, 3 * ITEM_PAGE_BYTES), "after three it has not");
	put_all(&f, it, 3);
	ok(!store_ready(f.store, 0), "nor when they have come");
	drain(&f);
	atomic_store(&f.wakes, 0);
	atomic_store(&slow.hold, false);
	wait_while(!atomic_load(&f.wakes));
	ok(atomic_load(&f.wakes) > 0, "who was told to wait is woken when the disk takes them");
	ok(settle(&f) && store_ready(f.store, 0), "then there is room");
	close_store(&f);

	atomic_store(&slow.hold, true);
	c.dir = scratch_path("queue-host");
	c.queue_bytes = 2 * ITEM_PAGE_BYTES;
	c.host_bytes = ITEM_STATE_BYTES; /* room for six pages */
	open_config(&f, &c);
	for (int i = 0; i < 10; i++)
		check(item_put(f.store, &it[i]) == 0 && store_ready(f.store, 0));
	wait_while(stats_of(&f).host_bytes > c.host_bytes);
	drain(&f);
	ok(stats_of(&f).queued_items == 8 && f.gone == 2,
	   "six wait in host memory, two beside it; what exceeds both is gone: %llu, %llu",
	   (unsigned long long)stats_of(&f).queued_items, (unsigned long long)f.gone);
	atomic_store(&slow.hold, false);
	ok(settle(&f), "the disk is there");
	is_int(count_files(c.dir, ".kv"), 8, "all that waited is written");
	is_int(stats_of(&f).queued_bytes, 0, "nothing waits");
	for (int i = 0; i < 10; i++)
		check(gets_right(&f, &it[i]) || i >= 6);
	close_store(&f);
	ok_all("a queue that is full");
}

static void test_clear(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[50];

	make_path(it, 50, 20);
	c.host_bytes = 20 * ITEM_PAGE_BYTES;
	open_settled(&f, &c);
	put_all(&f, it, 50);
	store_clear(f.store); /* items may be written, waiting, or being written */
	check(settle(&f));
	for (int i = 0; i < 50; i++)
		check(!store_has(f.store, &it[i].item));
	is_int(f.gone, 0, "clearing tells nothing");
	wait_while(count_files(dir, ".kv"));
	is_int(count_files(dir, ".kv"), 0, "all files are deleted");
	is_int(stats_of(&f).disk_bytes, 0, "nothing is counted");
	is_int(stats_of(&f).host_bytes, 0, "in memory neither");
	check(puts_one(&f, &it[7]) && gets_right(&f, &it[7]));
	ok_all("and all begins anew");
	close_store(&f);
	open_dir(&f, dir);
	is_int(f.found, 1, "with what was put afterwards");
	close_store(&f);
}

static void test_opening(const char *dir)
{
	struct identity_arg slow = {.first = 1, .hold = true}, bad = {.first = 1, .result = -EIO};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[3];

	make_path(it, 3, 30);
	c.arg = &slow;
	c.queue_bytes = 2 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	is_int(stats_of(&f).disk, STORE_DISK_OPENING, "the identity takes its time");
	check(item_put(f.store, &it[0]) == 0 && item_put(f.store, &it[1]) == 0);
	ok_all("what is put waits");
	ok(gets_right(&f, &it[1]), "and can be got");
	is_int(item_put(f.store, &it[2]), -ENOBUFS, "as far as the queue goes");
	atomic_store(&slow.hold, false);
	ok(settle(&f) && there(file_of(dir, &it[0], 1)) && there(file_of(dir, &it[1], 1)),
	   "then it is written");
	close_store(&f);

	atomic_store(&slow.hold, true);
	open_config(&f, &c);
	close_store(&f);
	ok(true, "closing does not wait for it");

	c.arg = &bad;
	open_config(&f, &c);
	ok(settle(&f) && stats_of(&f).disk == STORE_DISK_FAILED,
	   "without identity there is no disk");
	is_int(item_put(f.store, &it[0]), -ENOBUFS, "and nothing is taken");
	close_store(&f);
}

static void test_close(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it;

	open_dir(&f, dir);
	for (uint32_t i = 0; i < 100; i++) {
		item_make(&it, 40 + i, 0, TIER_STATE);
		check(item_put(f.store, &it) == 0);
	}
	close_store(&f);
	open_dir(&f, dir);
	is_int(f.found, 100, "what was queued is written at the end");
	/* Gets that closing interrupts: no answer is polled, and some items are not read. */
	for (uint32_t i = 0; i < 100; i++) {
		item_make(&it, 40 + i, 0, TIER_STATE);
		check(store_get(f.store, &it.item, NULL) == 0);
	}
	close_store(&f);
	c.host_bytes = 1 << 20;
	open_config(&f, &c);
	store_close(f.store, 0);
	ok_all("closing in the middle of everything");
}

/* Random puts, gets, touches and clearing, from one thread as in the daemon, while the store evicts. */
static void test_busy(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[64];
	uint64_t out = 0, wrong = 0;
	struct store_event ev;

	for (uint32_t i = 0; i < 64; i++)
		item_make(&it[i], 60 + i / 8, i % 8, i % 3 ? TIER_PAGE : TIER_STATE);
	c.host_bytes = 12 * ITEM_STATE_BYTES;
	c.disk_bytes = 20 * 24576;
	c.queue_bytes = 8 * ITEM_STATE_BYTES;
	open_config(&f, &c);
	for (uint32_t step = 0; step < 20000; step++) {
		struct item *one = &it[random_below(64)];

		if (random_below(2))
			out += store_get(f.store, &one->item, one) == 0;
		else if (random_below(2))
			(void)!item_put(f.store, one);
		else
			store_touch(f.store, &one->item, 1);
		if (step % 5000 == 4999)
			store_clear(f.store);
		while (store_poll(f.store, &ev))
			if (ev.type == STORE_GOT) {
				out--;
				wrong += ev.error ? ev.error != -ENOENT
						  : !item_right(ev.tag, ev.block);
				store_block_put(ev.block);
			}
	}
	for (int i = 0; out && i < 10000; i++) {
		while (store_poll(f.store, &ev))
			if (ev.type == STORE_GOT) {
				out--;
				store_block_put(ev.block);
			}
		pause_ms(1);
	}
	is_int(out, 0, "every get of many is answered");
	is_int(wrong, 0, "with the right bytes, or that it went");
	is_int(stats_of(&f).damaged, 0, "nothing looks damaged");
	close_store(&f);
}

int main(void)
{
	test_host();
	test_disk(scratch_path("disk"));
	test_budget(scratch_path("budget"));
	test_order(scratch_path("order"));
	test_queue(scratch_path("queue"));
	test_clear(scratch_path("clear"));
	test_opening(scratch_path("opening"));
	test_close(scratch_path("close"));
	test_busy(scratch_path("busy"));
	return done();
}
