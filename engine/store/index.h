/* The items that the store has, and the order in which they are evicted: a map of items, a list for host memory, a list
 * for the disk. No locks, no files.
 *
 * Both lists are in the order of eviction: the first item is evicted first. The end of a prefix is useless without its
 * beginning, so the beginning must be evicted later. Hence a new item is inserted just before the page that precedes it
 * in its prefix (a state: before the page at whose end it is). There are three exceptions:
 *
 *  - If that page is not in the list, the new item counts as useless and becomes the first to be evicted.
 *  - If that page was last used more than ten seconds ago, the new item belongs to a new use and becomes the last.
 *  - If there is no such page, or it is not known (has_parent, foreign), the new item becomes the last, too.
 *
 * An item that is used becomes the last. A caller that uses a whole prefix reports the deepest item first, which keeps
 * the order.
 *
 * An item has an entry as long as it has a block (in host memory), a job (it waits to be written) or a file. Files of
 * other identities have entries too, called foreign, because they take part in eviction. Foreign entries are not in the
 * map, because no get can ask for them. */
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
	struct map_node node; /* in store_index.items, unless foreign */
	/* nodes in the index's lists of these names; when the entry has left the index, in doomed (disk) or trash
	 * (host) of struct store */
	struct list host, disk, touch;
	struct store_block *block; /* a reference, or NULL */
	struct store_job *job;	   /* borrowed, or NULL */
	uint64_t cost;		   /* bytes on disk, while on_disk */
	/* number of the file, while on_disk; each new file gets the next number */
	uint64_t serial;
	/* time of the last use, on the clock of store_index.now_ns */
	uint64_t used_ns;
	/* Key of the page before, if has_parent. A first page has no page before. The key is not known of an item whose
	 * file was found at the start, until the item is put again, because a file's name does not have that key. */
	struct content_key parent;
	bool on_disk, foreign, has_parent;
};

struct store_index {
	struct map items; /* its table does not grow, because that would delay the engine thread */
	struct list host, disk;
	/* entries with a file that were used since the file's modification time was set; the writer sets it anew */
	struct list touch;
	uint64_t host_items, host_bytes;
	uint64_t serials; /* the number that the newest file got */
	/* monotonic time; the caller sets it when items are put, used or written */
	uint64_t now_ns;
	uint64_t own_files;  /* number of files that are not foreign */
	uint64_t disk_bytes; /* sum of `cost` over all files */
};

/* Makes an empty index, which is fast up to about n_items items (at most four million). -ENOMEM. */
int store_index_init(struct store_index *x, uint64_t n_items) MUST_CHECK;

/* Hands every entry to `drop`, which frees it, and frees the map. */
void store_index_release(struct store_index *x, void (*drop)(void *arg, struct store_entry *entry),
			 void *arg);

/* Takes every entry out of the map and hands it to `each`. Foreign entries are not in the map. */
void store_index_drain(struct store_index *x, void (*each)(void *arg, struct store_entry *entry),
		       void *arg);

struct store_entry *store_index_find(const struct store_index *x, const struct tier_item *item);

/* Makes an entry without block, job and file, and puts it into the map unless foreign. NULL: out of memory. */
struct store_entry *store_index_add(struct store_index *x, const struct store_place *place,
				    bool foreign) MUST_CHECK;

/* Takes an entry without block, job and file out of the map, and frees it. */
void store_index_remove(struct store_index *x, struct store_entry *entry);

/* Gives the entry a block, and adds a reference to the block. */
void store_index_keep(struct store_index *x, struct store_entry *entry, struct store_block *b);

/* Takes the entry's block; its reference passes to the caller. NULL: the entry had none. */
struct store_block *store_index_unkeep(struct store_index *x, struct store_entry *entry);

/* store_index_file notes that the entry has a file, which takes `cost` bytes on disk; store_index_unfile that it has
 * none any more. */
void store_index_file(struct store_index *x, struct store_entry *entry, uint64_t cost);
void store_index_unfile(struct store_index *x, struct store_entry *entry);

/* Notes that the entry is used at now_ns. */
void store_index_touch(struct store_index *x, struct store_entry *entry);

/* Return the entry to evict first from host memory, and from the disk; NULL: there is none. */
struct store_entry *store_index_oldest_host(const struct store_index *x);
struct store_entry *store_index_oldest_disk(const struct store_index *x);

/* Takes the first entry out of the list `touch`, and returns it. NULL: the list is empty. */
struct store_entry *store_index_next_touched(struct store_index *x);
