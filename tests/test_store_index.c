/* The index: finding, counting, the order of eviction. */
#include "engine/store/index.h"
#include "tests/store_fixture.h"
#include "tests/tap.h"

static struct store_entry *add(struct store_index *x, uint32_t path, uint32_t i,
			       enum tier_kind kind)
{
	struct store_entry *entry;
	struct item it;

	item_make(&it, path, i, kind);
	entry = store_index_add(x, &(struct store_place){1, it.item, it.depth}, false);
	if (!entry)
		abort();
	entry->parent = it.parent;
	entry->has_parent = i > 0;
	return entry;
}

/* Removes the oldest file. Returns ten times the number of its page (from 1), plus its kind; 0: none. */
static uint32_t next_to_go(struct store_index *x)
{
	struct store_entry *entry = store_index_oldest_disk(x);
	uint32_t depth;

	if (!entry)
		return 0;
	depth = entry->place.depth / ITEM_TOKENS * 10 + entry->place.item.kind;
	store_index_unfile(x, entry);
	store_index_remove(x, entry);
	return depth;
}

static void drop(void *arg, struct store_entry *entry)
{
	++*(uint32_t *)arg;
	store_block_put(entry->block);
	free(entry);
}

int main(void)
{
	struct store_index x;
	struct store_entry *e[8], *state, *late, *foreign;
	struct store_block *b;
	struct item it;
	uint32_t dropped = 0;

	is_int(store_index_init(&x, 10), 0, "an index");
	for (uint32_t i = 0; i < 4; i++) {
		e[i] = add(&x, 1, i, TIER_PAGE);
		store_index_file(&x, e[i], 4096);
	}
	state = add(&x, 1, 1, TIER_STATE);
	store_index_file(&x, state, 8192);
	for (uint32_t i = 0; i < 4; i++) {
		item_make(&it, 1, i, TIER_PAGE);
		check(store_index_find(&x, &it.item) == e[i]);
		it.item.origin = 1;
		check(!store_index_find(&x, &it.item));
	}
	ok_all("items are found by key, origin and kind");
	is_int(x.own_files, 5, "files are counted");
	is_int(x.disk_bytes, 4 * 4096 + 8192, "and their bytes");

	/* Much later: the first two pages of another prefix, a page of a third one whose beginning is not there, and a
	 * file of another directory. */
	x.now_ns = UINT64_C(100000000000);
	late = add(&x, 2, 0, TIER_PAGE);
	store_index_file(&x, late, 4096);
	e[4] = add(&x, 2, 1, TIER_PAGE);
	store_index_file(&x, e[4], 4096);
	e[5] = add(&x, 3, 5, TIER_PAGE);
	store_index_file(&x, e[5], 4096);
	foreign = store_index_add(&x, &(struct store_place){.directory = 2}, true);
	if (!foreign)
		abort();
	store_index_file(&x, foreign, 4096);
	store_index_touch(&x, foreign);
	is_int(x.items.n, 8, "foreign files are not in the table");
	is_int(next_to_go(&x), 60, "what lacks its beginning goes first");
	is_int(next_to_go(&x), 40, "then the end of what is oldest");
	is_int(next_to_go(&x), 30, "page by page");
	is_int(next_to_go(&x), 21, "a state before its page");
	store_index_touch(&x, e[0]);
	is_int(next_to_go(&x), 20, "to the last but one");
	is_int(next_to_go(&x), 20, "then of what came later the end");
	is_int(next_to_go(&x), 10, "and the beginning");
	ok(store_index_oldest_disk(&x) == foreign, "the page that was used is younger");
	store_index_unfile(&x, foreign);
	free(foreign);
	ok(store_index_next_touched(&x) == e[0] && !store_index_next_touched(&x),
	   "it is to be told once");

	b = store_block_new(100);
	if (!b)
		abort();
	store_index_keep(&x, e[0], b);
	is_int(atomic_load(&b->refs), 2, "a block that is kept is referenced");
	is_int(x.host_bytes, 100, "and counted");
	ok(store_index_oldest_host(&x) == e[0], "and may go");
	ok(store_index_unkeep(&x, e[0]) == b && !x.host_bytes && !store_index_oldest_host(&x),
	   "it goes");
	store_block_put(b);
	store_index_keep(&x, e[0], b);
	store_block_put(b);
	store_index_release(&x, drop, &dropped);
	is_int(dropped, 1, "what is left is dropped");
	return done();
}
