/*
 * Moves pages and states ("items") between the device and the tiers below it, host memory and disk (engine/store/store.h),
 * as the scheduler wants it. All calls are the engine thread's; none waits for a disk.
 *
 *     scheduler_next_store -> engine_read_item -> store_put
 *     scheduler_next_load  -> store_get  -> scheduler_loaded -> engine_write_item
 *
 * Both happen before the next plan is submitted, which may write pages that the last commit has freed. An item for which
 * the store has no room stays on the device until there is room.
 */
#pragma once

#include "base/queue.h"
#include "daemon/steps/identity.h"
#include "daemon/server.h"
#include "engine/store/store.h"
#include "scheduler/scheduler.h"

struct mover;

/* New; *ret NULL: the options ask for no tiers. inbox (borrowed, as is identity) is woken when there is something to do. */
int mover_open(struct server *s, struct identity *identity, struct queue *inbox, struct mover **ret,
	       struct err *e) MUST_CHECK;

/* Writes everything to the store, items of the scheduler's cache included, for at most timeout_ns. No request may be left
 * and no plan out. Before engine_close and scheduler_free. NULL is nothing. */
void mover_close(struct mover *m, struct engine *g, struct scheduler *s, uint64_t timeout_ns);

/* Does what there is to do. *ret_more: copies are under way on the device, which wake nobody when they are done. -EIO: the
 * device is lost. */
int mover_run(struct mover *m, struct engine *g, struct scheduler *s, bool *ret_more,
	      struct err *e) MUST_CHECK;

/* Empties the tiers below the device; after scheduler_flush. */
void mover_clear(struct mover *m, struct scheduler *s);

/* NULL: there is none. */
struct store *mover_store(struct mover *m);
