/* Decides which items of the cache on the device are copied to the store below it (host memory and disk), and which
 * are loaded from there before a request is admitted. Ids and content keys only; the daemon moves the bytes.
 *
 * Stores. A published page or state that the store does not have is queued to be stored, if the request uses the tiers;
 * of the states that an answer leaves only the last one is queued. The caller takes an item from the queue and has the
 * device copy it before a later plan can overwrite it. The queue keeps no memory alive. A queued page or slot has a
 * mark (prefix_cache_mark), which it loses when it leaves the tree; an item whose page or slot has no mark is dropped
 * when it comes out of the queue. The queue has at most one entry for each page and slot, however slow a disk is.
 *
 * Loads. A load is the set of items that one request waits for. If a new request could resume further on with items of
 * the store than with the device alone, and there is memory, it gets pages and, in a model with states, a slot for them
 * and waits outside of scheduler.waiting. When all items have come they are handed to the tree; the request goes back
 * to its place in scheduler.waiting, to resume from them. If an item does not come (it is damaged or gone), it is
 * removed from the index and the request goes back; then the request may wait for another, shorter load.
 *
 * Uses. An item that a request resumes on the device should count as used in the store too. The caller takes these uses
 * (scheduler_take_uses) and tells the store. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* A page or state that waits to be stored. */
struct waiting_store {
	struct list node; /* in scheduler.store_queue; its next is NULL while it does not wait */
	/* the members below: as in struct scheduler_item */
	struct tier_item item;
	struct content_key parent;
	uint32_t depth;
	uint32_t id;
};

/* The items that a request waits for: first pages, last the state at their end, if the model has states. */
struct tier_load {
	struct list node; /* in scheduler.loads */
	struct request *request;
	struct prefix_node *path; /* end of the locked path, which has from + n_given pages */
	uint32_t from, n;	  /* pages [from, n) are loaded */
	uint32_t n_given;	  /* how many of these, from the first on, the tree has now */
	uint32_t slot; /* slot of the state at their end; POOL_NONE: none, or the tree has it now */
	/* items in all; items that scheduler_next_load has given out; items for which scheduler_loaded was called */
	uint32_t n_items, n_asked, n_came;
	bool failed; /* an item will not come, or the device has failed */
	struct load_page {
		uint32_t id;
		uint64_t origin;
	} pages[]; /* [n - from] */
};

/* Whether the request uses the tiers: its pages and states are stored and loaded. */
static inline bool tiering(const struct scheduler *s, const struct request *r)
{
	return s->tiers && r->ask.page_keys && !r->ask.cache_disabled && !s->config.cache_disabled;
}

/* Queues pages [first, first + n) of the sequence to be stored, except those that the store has. The pages have this
 * origin and were just handed to the tree. Does nothing if the request does not use the tiers. */
void tiering_published(struct scheduler *s, struct sequence *q, uint32_t first, uint32_t n,
		       uint64_t origin);

/* Queues the state at `node` to be stored, if the request uses the tiers, the state still exists, the store does not
 * have it, and q's pages in the tree end at `node`. */
void tiering_checkpoint(struct scheduler *s, struct sequence *q, const struct prefix_node *node);

/* Notes that the sequence resumes behind n_pages pages, the last with `origin`: sets q->tree_key and q->tree_origin,
 * from which the key and parent_origin of its next page follow. */
void tiering_resume(struct scheduler *s, struct sequence *q, uint32_t n_pages, uint64_t origin);

/* Notes for scheduler_take_uses that the request resumes at the end of `path`: the prompt's pages on the path are used,
 * and the state at its end if that lies in the prompt. */
void tiering_used(struct scheduler *s, const struct request *r, const struct prefix_node *path);

/* Returns true if r, which was in scheduler.waiting, now waits for a load. m: what admission_match has just found. */
bool tiering_load(struct scheduler *s, struct request *r, const struct prefix_match *m) MUST_CHECK;

/* Ends the load of r, if it has one, and does not queue r again. False: r has no load. */
bool tiering_leave(struct scheduler *s, struct request *r);

/* Empties the queue of stores. */
void tiering_drop_stores(struct scheduler *s);

/* Ends all loads; their requests queue again, and wait for no further load. */
void tiering_drop_loads(struct scheduler *s);
