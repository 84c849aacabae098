/*
 * What the store has, and in which order it was used: a table of items, a list for host memory, one for the disk.
 * No locks, no calls to the system. Inside engine/ only.
 *
 * The beginning of a prefix must outlive what follows it, which is useless without. So an item that is new takes its
 * place just before the page that it follows (a state: its own page), if that one was used just now, and is the first
 * to go where there is no such page; otherwise, and whenever one is used, it becomes the last to go. Who uses
 * a whole path says so deepest first.
 *
 * An entry lives while any of these holds: `block` (host tier), `job` (waits to be written), `on_disk`. Files of
 * other models are entries too, for the order of eviction, but not in the table: nobody finds them.
 */
#ifndef ENGINE_STORE_CACHE_INDEX_H
#define ENGINE_STORE_CACHE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/store/cache_dir.h"

/* A doubly linked ring; a node that is in none points to itself. */
struct ring {
	struct ring *prev, *next;
};

static inline void ring_init(struct ring *r)
{
	r->prev = r->next = r;
}

static inline bool ring_empty(const struct ring *r)
{
	return r->next == r;
}

static inline void ring_remove(struct ring *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	ring_init(node);
}

/* Behind the last one; the node is in no ring. Given a node of the ring: just before that one. */
static inline void ring_append(struct ring *r, struct ring *node)
{
	node->prev = r->prev;
	node->next = r;
	r->prev->next = node;
	r->prev = node;
}

struct cache_block;
struct cache_job;

struct cache_entry {
	struct cache_place place;
	struct cache_entry *chain;     /* in the table */
	struct ring host, disk, touch; /* places in the index's rings */
	struct cache_block *block;     /* a reference, or NULL */
	struct cache_job *job;	       /* borrowed, or NULL */
	uint64_t cost;		       /* bytes on disk, while on_disk */
	uint64_t serial;	       /* of the file, while on_disk: no other one ever has it */
	uint64_t used_ns;	       /* on the clock of cache_index.now_ns */
	struct content_key parent;     /* the page before, if has_parent (not the first) */
	bool on_disk, foreign, has_parent;
};

struct cache_index {
	struct cache_entry **buckets;
	size_t n_buckets; /* a power of two, fixed: nothing is ever moved about on the engine's thread */
	size_t n;	  /* in the table */
	struct ring host, disk; /* least recently used first */
	struct ring touch;	/* used, and the file's time not yet told */
	uint64_t host_items, host_bytes;
	uint64_t serials;
	uint64_t now_ns;		/* the caller's: when this is */
	uint64_t own_files, disk_bytes; /* disk_bytes: of foreign files too */
};

/* For about so many items. -ENOMEM. */
int cache_index_init(struct cache_index *x, uint64_t n_items) MUST_CHECK;

/* Calls `drop` for every entry, which frees it. */
void cache_index_release(struct cache_index *x, void (*drop)(void *arg, struct cache_entry *entry),
			 void *arg);

struct cache_entry *cache_index_find(const struct cache_index *x, const struct tier_item *item);

/* New, with nothing; in the table unless foreign. NULL: out of memory. */
struct cache_entry *cache_index_add(struct cache_index *x, const struct cache_place *place,
				    bool foreign) MUST_CHECK;

/* Takes an entry out of the table, if it is there. It has no block, no job and no file any more. Not freed. */
void cache_index_remove(struct cache_index *x, struct cache_entry *entry);

/* The entry gets a block (a reference is taken) / gives it back to the caller, who drops it. */
void cache_index_keep(struct cache_index *x, struct cache_entry *entry, struct cache_block *b);
struct cache_block *cache_index_unkeep(struct cache_index *x, struct cache_entry *entry);

/* The entry has a file now / has none any more. */
void cache_index_file(struct cache_index *x, struct cache_entry *entry, uint64_t cost);
void cache_index_unfile(struct cache_index *x, struct cache_entry *entry);

/* Used now. */
void cache_index_touch(struct cache_index *x, struct cache_entry *entry);

struct cache_entry *cache_index_oldest_host(const struct cache_index *x); /* NULL: none */
struct cache_entry *cache_index_oldest_disk(const struct cache_index *x);
struct cache_entry *cache_index_next_touched(struct cache_index *x); /* taken off the ring */

#endif
