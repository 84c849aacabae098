/*
 * Between the cache on the device and what is below it (host memory, disk): which items are to be
 * copied away, and which are to be brought up before a request is admitted. Ids and content keys
 * only; the daemon's loop has the bytes moved.
 *
 * Down: what is published and not known below is queued, by its page or slot, until the loop takes
 * it and has it read from the device before any later plan can write it. Nothing is held for that:
 * what leaves the tree before its turn (its mark goes then) has had no turn. So the queue is never
 * longer than the pools are large, however slow a disk is.
 *
 * Up: a request that could be resumed further with items from below than by what is on the device
 * gets pages and a slot for them, and waits outside of the queue until all have come. Then they are
 * put into the tree, and the request queues again, in its place, and hits. When one does not come
 * (damaged, gone), it is forgotten below and the request queues again all the same: it may wait once
 * more, for what is still known.
 *
 * Use: what a request resumes on the device counts as used below as well; the loop says so there.
 */
#ifndef SCHEDULER_TIERING_H
#define SCHEDULER_TIERING_H

#include "scheduler/scheduler_internal.h"

/* What is known of a page or state that waits to go down. */
struct waiting_store {
	struct tier_item item;
	struct content_key parent;
	uint32_t depth;
	uint32_t next; /* the place behind it in the queue */
	bool waits;
};

/* What a request waits for. */
struct load {
	struct list node; /* in scheduler.loads */
	struct request *request;
	struct prefix_node *path; /* locked; the node at the end of `from` pages */
	uint32_t from, n;	  /* pages [from, n) come */
	uint32_t n_given;	  /* of them, the first ones: they are the tree's now */
	uint32_t slot; /* the state at their end; POOL_NONE: there is none, or it is the tree's now
			*/
	uint32_t n_items, n_asked, n_came;
	bool failed;
	struct load_page {
		uint32_t id;
		uint64_t origin;
	} pages[]; /* [n - from] */
};

static inline bool tiering(const struct scheduler *s, const struct request *r)
{
	return s->tiers && r->page_keys && !r->cache_disabled && !s->config.cache_disabled;
}

/* Pages [first, first + n) of the sequence have just been handed to the tree, with this origin. */
void tiering_published(struct scheduler *s, struct sequence *q, uint32_t first, uint32_t n,
		       uint64_t origin);

/* The state at `node` is worth keeping below, if there is (still) one and q's pages in the tree end
 * there. */
void tiering_checkpoint(struct scheduler *s, struct sequence *q, const struct prefix_node *node);

/* The sequence stands at the end of `n_pages` pages with `origin`: where its keys go on from. */
void tiering_resume(struct scheduler *s, struct sequence *q, uint32_t n_pages, uint64_t origin);

/* The request resumes at the end of `path`. */
void tiering_used(struct scheduler *s, const struct request *r, const struct prefix_node *path);

/* True when r, first in the queue, left it to wait for items. */
bool tiering_load(struct scheduler *s, struct request *r, const struct prefix_match *m) MUST_CHECK;

/* r waits for nothing any more; false: it did not. */
bool tiering_leave(struct scheduler *s, struct request *r);

/* Nothing is on its way down any more. */
void tiering_drop_stores(struct scheduler *s);

/* Nobody waits for items any more: all queue again. */
void tiering_drop_loads(struct scheduler *s);

#endif
