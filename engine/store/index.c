#include "engine/store/index.h"

#include <stdlib.h>

#include "base/mix.h"

/* A page that was used at most so long ago belongs to the same use as items that are added behind it. */
#define SAME_USE_NS 10000000000u

enum { BUCKETS_MAX = 1 << 22 };

int store_index_init(struct store_index *x, uint64_t n_items)
{
	*x = (struct store_index){0};
	list_init(&x->host);
	list_init(&x->disk);
	list_init(&x->touch);
	return map_init(&x->items, MIN(MAX(n_items, UINT64_C(1024)), (uint64_t)BUCKETS_MAX));
}

static struct store_entry *entry_of(struct map_node *n)
{
	return container_of(n, struct store_entry, node);
}

struct drain {
	void (*each)(void *arg, struct store_entry *entry);
	void *arg;
};

static void drain_one(void *arg, struct map_node *n)
{
	const struct drain *d = arg;

	d->each(d->arg, entry_of(n));
}

void store_index_drain(struct store_index *x, void (*each)(void *arg, struct store_entry *entry),
		       void *arg)
{
	struct drain d = {each, arg};

	map_drain(&x->items, drain_one, &d);
}

void store_index_release(struct store_index *x, void (*drop)(void *arg, struct store_entry *entry),
			 void *arg)
{
	list_for_each (entry, &x->disk, struct store_entry, disk)
		if (entry->foreign)
			drop(arg, entry);
	store_index_drain(x, drop, arg);
	map_release(&x->items);
}

static uint64_t hash_of(const struct tier_item *item)
{
	uint64_t h = item->key.v[0] ^ item->origin * MIX_GOLDEN ^ (uint64_t)item->kind;

	return h ^ h >> 32; /* keys are hashes already */
}

static bool same_item(const struct tier_item *a, const struct tier_item *b)
{
	return a->key.v[0] == b->key.v[0] && a->key.v[1] == b->key.v[1] && a->origin == b->origin &&
	       a->kind == b->kind;
}

struct store_entry *store_index_find(const struct store_index *x, const struct tier_item *item)
{
	for (struct map_node *n = map_first(&x->items, hash_of(item)); n; n = map_next(n))
		if (same_item(&entry_of(n)->place.item, item))
			return entry_of(n);
	return NULL;
}

struct store_entry *store_index_add(struct store_index *x, const struct store_place *place,
				    bool foreign)
{
	struct store_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	entry->place = *place;
	entry->foreign = foreign;
	entry->used_ns = x->now_ns;
	list_init(&entry->host);
	list_init(&entry->disk);
	list_init(&entry->touch);
	if (!foreign)
		map_insert(&x->items, &entry->node, hash_of(&place->item));
	return entry;
}

void store_index_remove(struct store_index *x, struct store_entry *entry)
{
	if (!entry->foreign)
		map_remove(&x->items, &entry->node);
	free(entry);
}

/* Finds the page without which this item is useless: the page before, or for a state the page at whose end it is.
 * False: there is none, or it is not known. */
static bool page_before(const struct store_entry *entry, struct tier_item *ret)
{
	const struct tier_item *item = &entry->place.item;

	if (entry->foreign || (item->kind == TIER_PAGE && !entry->has_parent))
		return false;
	*ret = (struct tier_item){.kind = TIER_PAGE, .key = item->key, .origin = item->origin};
	if (item->kind == TIER_PAGE) {
		ret->key = entry->parent;
		ret->origin = item->parent_origin;
	}
	return true;
}

/* Returns the node of the list `tier` before which a new item is inserted (index.h). offset: the place of the list's
 * nodes in struct store_entry. */
static struct list *place_in(const struct store_index *x, const struct store_entry *entry,
			     struct list *tier, size_t offset)
{
	struct tier_item item;
	struct store_entry *page;
	struct list *node;

	if (!page_before(entry, &item))
		return tier;
	page = store_index_find(x, &item);
	node = page ? (struct list *)(void *)((char *)page + offset) : NULL;
	if (!page || list_empty(node))
		return tier->next;
	return page->used_ns + SAME_USE_NS >= x->now_ns ? node : tier;
}

void store_index_keep(struct store_index *x, struct store_entry *entry, struct store_block *b)
{
	entry->block = store_block_ref(b);
	list_append(place_in(x, entry, &x->host, offsetof(struct store_entry, host)), &entry->host);
	x->host_items++;
	x->host_bytes += b->bytes;
}

struct store_block *store_index_unkeep(struct store_index *x, struct store_entry *entry)
{
	struct store_block *b = entry->block;

	if (!b)
		return NULL;
	entry->block = NULL;
	list_remove(&entry->host);
	x->host_items--;
	x->host_bytes -= b->bytes;
	return b;
}

void store_index_file(struct store_index *x, struct store_entry *entry, uint64_t cost)
{
	entry->on_disk = true;
	entry->cost = cost;
	entry->serial = ++x->serials;
	list_append(place_in(x, entry, &x->disk, offsetof(struct store_entry, disk)), &entry->disk);
	x->own_files += !entry->foreign;
	x->disk_bytes += cost;
}

void store_index_unfile(struct store_index *x, struct store_entry *entry)
{
	if (!entry->on_disk)
		return;
	entry->on_disk = false;
	list_remove(&entry->disk);
	list_remove(&entry->touch);
	x->own_files -= !entry->foreign;
	x->disk_bytes -= entry->cost;
}

static void to_end(struct list *l, struct list *node)
{
	list_remove(node);
	list_append(l, node);
}

void store_index_touch(struct store_index *x, struct store_entry *entry)
{
	entry->used_ns = x->now_ns;
	if (entry->block)
		to_end(&x->host, &entry->host);
	if (entry->on_disk) {
		to_end(&x->disk, &entry->disk);
		to_end(&x->touch, &entry->touch);
	}
}

struct store_entry *store_index_oldest_host(const struct store_index *x)
{
	return list_first(&x->host, struct store_entry, host);
}

struct store_entry *store_index_oldest_disk(const struct store_index *x)
{
	return list_first(&x->disk, struct store_entry, disk);
}

struct store_entry *store_index_next_touched(struct store_index *x)
{
	struct store_entry *entry = list_first(&x->touch, struct store_entry, touch);

	if (entry)
		list_remove(&entry->touch);
	return entry;
}
