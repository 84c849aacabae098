/* Moves pages and states ("items") between the device and the cache below it, host memory and disk
 * (engine/store/store.h), as the scheduler asks. Only the engine thread calls these functions. Except for mover_open
 * and mover_close, none of these functions waits for a disk.
 *
 *     scheduler_next_store -> engine_read_item -> store_put
 *     scheduler_next_load  -> store_get  -> scheduler_load_place -> engine_write_item -> scheduler_loaded
 *
 * The reads are queued before the next plan is made, because that plan may overwrite the page or slot of an item that
 * is read. A request waits until all its items are written, so no step waits for a write. An item for which the store
 * has no room waits on the device; if it is evicted there first, it is lost. */
#pragma once

#include "base/queue.h"
#include "daemon/steps/identity.h"
#include "daemon/server.h"
#include "engine/store/store.h"
#include "scheduler/scheduler.h"

struct mover;

/* Makes a mover, new; *ret NULL: the options ask for no cache below the device. All arguments are borrowed; inbox is
 * woken when the mover has work. If copies have a queue of their own, the memory of the host tier is pinned here, as
 * far as the system allows. */
int mover_open(struct server *s, struct engine *g, struct identity *identity, struct queue *inbox,
	       struct mover **ret, struct err *e) MUST_CHECK;

/* Copies the items that the scheduler still wants to store, and lets the store write its files, both together for at
 * most timeout_ns. Then frees the mover. No request may be alive and no plan out. To be called before engine_close and
 * scheduler_free. With NULL does nothing. */
void mover_close(struct mover *m, struct engine *g, struct scheduler *s, uint64_t timeout_ns);

/* Starts and finishes copies as far as possible. *ret_more: copies are under way on the device, whose ends wake no
 * thread, or have loaded an item, so plan and call this function again soon. -EIO: the device is lost. With m NULL does
 * nothing. */
int mover_run(struct mover *m, struct engine *g, struct scheduler *s, bool *ret_more,
	      struct err *e) MUST_CHECK;

/* Makes the store, and the index of its items in the scheduler, forget all items; to be called after scheduler_flush.
 * With m NULL does nothing. */
void mover_clear(struct mover *m, struct scheduler *s);

/* Returns the store of host memory and disk, borrowed. NULL if m is NULL. */
struct store *mover_store(struct mover *m);
