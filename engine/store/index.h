/*
 * What the store has, and in which order it was used: a map of items, a list for host memory, a list for the disk. No
 * locks, no system calls.
 *
 * Both lists are in the order of eviction: the item that goes first is at the head. The end of a prefix is useless
 * without its beginning, so the beginning must stay longer. An item that is new in a list therefore takes its place just
 * before the page that precedes it in its prefix (a state: before the page at whose end it is). Where that page is not in
 * the list, the new item is useless and goes first; where it was last used more than ten seconds ago, the new item belongs
 * to a new use and goes last. An item that is used goes last. A caller that uses a whole prefix reports it deepest item
 * first, which keeps the order.
 *
 * An entry lives while it has a block (host memory), a job (it waits to be written) or a file. Files of other identities
 * (foreign) are entries too, because they take part in eviction, but they are not in the map, because no get can ask for them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "engine/store/block.h"
#include "engine/store/dir.h"

struct store_job;

struct store_entry {
	struct store_place place;
	struct map_node node;	       /* in store_index.items, unless foreign */
	struct list host, disk, touch; /* places in the index's lists */
	struct store_block *block;     /* a reference, or NULL */
	struct store_job *job;	       /* borrowed, or NULL */
	uint64_t cost;		       /* bytes on disk, while on_disk */
	uint64_t serial;	       /* of the file, while on_disk: no two files have the same */
	uint64_t used_ns;	       /* when it was used, on the clock of store_index.now_ns */
	struct content_key parent; /* the page before, if has_parent (all but the first have one) */
	bool on_disk, foreign, has_parent;
};

struct store_index {
	struct map items; /* of a fixed size: growing would hold up the engine thread */
	struct list host, disk;
	struct list touch; /* entries that were used and whose file's time is older than that */
	uint64_t host_items, host_bytes;
	uint64_t serials;
	uint64_t now_ns;     /* the time of the present call; the caller sets it */
	uint64_t own_files;  /* files that are not foreign */
	uint64_t disk_bytes; /* of all files */
};

/* An index that is fast up to about n_items. -ENOMEM. */
int store_index_init(struct store_index *x, uint64_t n_items) MUST_CHECK;

/* Hands every entry to `drop`, which frees it. */
void store_index_release(struct store_index *x, void (*drop)(void *arg, struct store_entry *entry),
			 void *arg);

/* Takes every entry out of the map and hands it to `each`. */
void store_index_drain(struct store_index *x, void (*each)(void *arg, struct store_entry *entry),
		       void *arg);

struct store_entry *store_index_find(const struct store_index *x, const struct tier_item *item);

/* A new entry without block, job and file; in the map unless foreign. NULL: out of memory. */
struct store_entry *store_index_add(struct store_index *x, const struct store_place *place,
				    bool foreign) MUST_CHECK;

/* Takes an entry without block, job and file out of the map, and frees it. */
void store_index_remove(struct store_index *x, struct store_entry *entry);

/* The entry gets a block, which gets a reference. */
void store_index_keep(struct store_index *x, struct store_entry *entry, struct store_block *b);

/* The entry loses its block; the reference to it is the caller's. NULL: it had none. */
struct store_block *store_index_unkeep(struct store_index *x, struct store_entry *entry);

/* The entry has a file now / has none any more. */
void store_index_file(struct store_index *x, struct store_entry *entry, uint64_t cost);
void store_index_unfile(struct store_index *x, struct store_entry *entry);

/* The entry is used now. */
void store_index_touch(struct store_index *x, struct store_entry *entry);

/* The entry to evict first; NULL: there is none. */
struct store_entry *store_index_oldest_host(const struct store_index *x);
struct store_entry *store_index_oldest_disk(const struct store_index *x);

/* An entry whose file's time is to be set; it leaves the list of those. NULL: there is none. */
struct store_entry *store_index_next_touched(struct store_index *x);
