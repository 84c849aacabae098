/*
 * The tiers below the device, on the engine thread: moves items between the scheduler's
 * cache, the device and the store (engine/store/store.h). All calls are the engine thread's, and
 * none waits for a disk.
 *
 *     scheduler_next_store -> engine_read_item -> store_put
 *     scheduler_next_load  -> store_get  -> scheduler_loaded -> engine_write_item
 *
 * Both run before the next plan is submitted, which may write pages that the last commit has freed. Items that the store has no
 * room for stay on the device until there is some.
 */
#ifndef DAEMON_STEPS_MOVER_H
#define DAEMON_STEPS_MOVER_H

#include "base/queue.h"
#include "daemon/steps/identity.h"
#include "daemon/server.h"
#include "engine/store/store.h"
#include "scheduler/scheduler.h"

struct mover;

/* New; *ret NULL when nothing is asked for. `inbox` is woken when there is something to do
 * (borrowed, as is the identity). */
int mover_open(struct server *s, struct identity *identity, struct queue *inbox, struct mover **ret,
	       struct err *e) MUST_CHECK;

/* Writes everything to disk that the scheduler's cache has, for at most timeout_ns. No request lives and no plan is out. Before
 * engine_close and scheduler_free. NULL does nothing. */
void mover_close(struct mover *m, struct engine *g, struct scheduler *s, uint64_t timeout_ns);

/* Moves the items that can be moved now; *ret_more: more may come without a wake (copies are out on the device).
 * Items that are not on the device's queue yet when this returns hold their pages. -EIO: the device
 * is lost. */
int mover_run(struct mover *m, struct engine *g, struct scheduler *s, bool *ret_more,
	      struct err *e) MUST_CHECK;

/* Forgets everything below; after scheduler_flush. */
void mover_clear(struct mover *m, struct scheduler *s);

/* NULL: no store. */
struct store *mover_store(struct mover *m);

#endif
