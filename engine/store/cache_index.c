#include "engine/store/cache_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/store/cache_store.h"

/* An item belongs to a path that was used this long ago. */
#define JUST_NOW_NS 10000000000u

enum { BUCKETS_MIN = 1 << 10, BUCKETS_MAX = 1 << 22 };

int cache_index_init(struct cache_index *x, uint64_t n_items)
{
	size_t n = BUCKETS_MIN;

	while (n < n_items && n < BUCKETS_MAX)
		n *= 2;
	*x = (struct cache_index){.n_buckets = n};
	ring_init(&x->host);
	ring_init(&x->disk);
	ring_init(&x->touch);
	x->buckets = calloc(n, sizeof(struct cache_entry *));
	return x->buckets ? 0 : -ENOMEM;
}

void cache_index_release(struct cache_index *x, void (*drop)(void *arg, struct cache_entry *entry),
			 void *arg)
{
	for (size_t i = 0; x->buckets && i < x->n_buckets; i++) {
		struct cache_entry *entry = x->buckets[i], *next;

		for (; entry; entry = next) {
			next = entry->chain;
			ring_remove(&entry->disk);
			drop(arg, entry);
		}
	}
	while (!ring_empty(&x->disk)) {
		struct cache_entry *entry = container_of(x->disk.next, struct cache_entry, disk);

		ring_remove(&entry->disk);
		drop(arg, entry);
	}
	free(x->buckets);
	x->buckets = NULL;
}

/* Keys are hashes already. */
static struct cache_entry **bucket_of(const struct cache_index *x, const struct tier_item *item)
{
	uint64_t h = item->key.v[0] ^ item->history * 0x9e3779b97f4a7c15u ^ (uint64_t)item->kind;

	return &x->buckets[(h ^ h >> 32) & (x->n_buckets - 1)];
}

static bool same(const struct tier_item *a, const struct tier_item *b)
{
	return a->key.v[0] == b->key.v[0] && a->key.v[1] == b->key.v[1] &&
	       a->history == b->history && a->kind == b->kind;
}

struct cache_entry *cache_index_find(const struct cache_index *x, const struct tier_item *item)
{
	struct cache_entry *entry = *bucket_of(x, item);

	while (entry && !same(&entry->place.item, item))
		entry = entry->chain;
	return entry;
}

struct cache_entry *cache_index_add(struct cache_index *x, const struct cache_place *place,
				    bool foreign)
{
	struct cache_entry *entry = calloc(1, sizeof(*entry)), **bucket;

	if (!entry)
		return NULL;
	entry->place = *place;
	entry->foreign = foreign;
	entry->used_ns = x->now_ns;
	ring_init(&entry->host);
	ring_init(&entry->disk);
	ring_init(&entry->touch);
	if (foreign)
		return entry;
	bucket = bucket_of(x, &place->item);
	entry->chain = *bucket;
	*bucket = entry;
	x->n++;
	return entry;
}

void cache_index_remove(struct cache_index *x, struct cache_entry *entry)
{
	struct cache_entry **at = bucket_of(x, &entry->place.item);

	if (entry->foreign)
		return;
	while (*at != entry)
		at = &(*at)->chain;
	*at = entry->chain;
	entry->chain = NULL;
	x->n--;
}

/* The page without which this item is useless; false: there is none such, or nobody knows. */
static bool above(const struct cache_entry *entry, struct tier_item *ret)
{
	const struct tier_item *item = &entry->place.item;

	if (entry->foreign || (item->kind == TIER_PAGE && !entry->has_parent))
		return false;
	*ret = (struct tier_item){.kind = TIER_PAGE, .key = item->key, .history = item->history};
	if (item->kind == TIER_PAGE) {
		ret->key = entry->parent;
		ret->history = item->parent_history;
	}
	return true;
}

/* Where an item that is new in a tier (the ring at this offset in an entry) goes: the node it is put before. */
static struct ring *place_in(const struct cache_index *x, const struct cache_entry *entry,
			     struct ring *tier, size_t offset)
{
	struct tier_item item;
	struct cache_entry *page;
	struct ring *node;

	if (!above(entry, &item))
		return tier;
	page = cache_index_find(x, &item);
	node = page ? (struct ring *)(void *)((char *)page + offset) : NULL;
	if (!page || ring_empty(node))
		return tier->next;
	return page->used_ns + JUST_NOW_NS >= x->now_ns ? node : tier;
}

void cache_index_keep(struct cache_index *x, struct cache_entry *entry, struct cache_block *b)
{
	entry->block = cache_block_ref(b);
	ring_append(place_in(x, entry, &x->host, offsetof(struct cache_entry, host)), &entry->host);
	x->host_items++;
	x->host_bytes += b->bytes;
}

struct cache_block *cache_index_unkeep(struct cache_index *x, struct cache_entry *entry)
{
	struct cache_block *b = entry->block;

	if (!b)
		return NULL;
	entry->block = NULL;
	ring_remove(&entry->host);
	x->host_items--;
	x->host_bytes -= b->bytes;
	return b;
}

void cache_index_file(struct cache_index *x, struct cache_entry *entry, uint64_t cost)
{
	entry->on_disk = true;
	entry->cost = cost;
	entry->serial = ++x->serials;
	ring_append(place_in(x, entry, &x->disk, offsetof(struct cache_entry, disk)), &entry->disk);
	x->own_files += !entry->foreign;
	x->disk_bytes += cost;
}

void cache_index_unfile(struct cache_index *x, struct cache_entry *entry)
{
	if (!entry->on_disk)
		return;
	entry->on_disk = false;
	ring_remove(&entry->disk);
	ring_remove(&entry->touch);
	x->own_files -= !entry->foreign;
	x->disk_bytes -= entry->cost;
}

void cache_index_touch(struct cache_index *x, struct cache_entry *entry)
{
	entry->used_ns = x->now_ns;
	if (entry->block) {
		ring_remove(&entry->host);
		ring_append(&x->host, &entry->host);
	}
	if (entry->on_disk) {
		ring_remove(&entry->disk);
		ring_append(&x->disk, &entry->disk);
		ring_remove(&entry->touch);
		ring_append(&x->touch, &entry->touch);
	}
}

struct cache_entry *cache_index_oldest_host(const struct cache_index *x)
{
	return ring_empty(&x->host) ? NULL : container_of(x->host.next, struct cache_entry, host);
}

struct cache_entry *cache_index_oldest_disk(const struct cache_index *x)
{
	return ring_empty(&x->disk) ? NULL : container_of(x->disk.next, struct cache_entry, disk);
}

struct cache_entry *cache_index_next_touched(struct cache_index *x)
{
	struct cache_entry *entry;

	if (ring_empty(&x->touch))
		return NULL;
	entry = container_of(x->touch.next, struct cache_entry, touch);
	ring_remove(&entry->touch);
	return entry;
}
