/* Copies of pages and states between host and device, on the queue of the plans (engine.h has the order of the
 * bytes). Inside engine/ only.
 *
 * The unit is a piece: one part (layers/part.h) of one page or of one state. An item (a whole page or
 * state) is all of its pieces. The queue is in order, so one event for a call, that of its last piece, suffices. The
 * caller asks which copies of items are finished; for a copy of pieces the driver calls back. A callback may come late
 * or on another thread, so the events of writes are checked directly before the results of a later step are used. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/device.h"
#include "engine/engine.h"
#include "engine/model.h"

struct copies {
	const struct device *device; /* borrowed, as is the model */
	const struct model *model;
	struct engine_counters *counters; /* borrowed: counts the bytes */
	struct err lost;		  /* code 0: the device is not lost */

	struct {
		cl_event done;
		void *tag;
	} items[ENGINE_ITEMS_OUT];
	uint64_t head, tail; /* counts: items given back, items queued */

	pthread_mutex_t lock;
	pthread_cond_t all_back;
	uint32_t n_out;	  /* guarded by lock: calls whose done is still to come */
	cl_event *writes; /* [n_writes] events of writes of pieces that may still run, in order */
	size_t n_writes, cap;
	atomic_bool failed; /* a driver's callback reported a failure */
};

void copies_init(struct copies *t, const struct device *d, const struct model *m,
		 struct engine_counters *counters);

/* Waits until every `done` was called. Call it when the queue is empty, or the device is lost. */
void copies_wait(struct copies *t);

/* Waits as copies_wait does, drops items that were not given back, and frees the members. */
void copies_release(struct copies *t);

/* Do the work of engine_read_item and engine_write_item (which only reads host), engine_items_done and
 * engine_items_out. */
int copies_item(struct copies *t, enum tier_kind kind, uint32_t id, bool write, void *host,
		void *tag, struct err *e) MUST_CHECK;
int copies_items_done(struct copies *t, void **tags, uint32_t max, uint32_t *ret_n,
		      struct err *e) MUST_CHECK;
uint32_t copies_items_out(const struct copies *t);

/* Do the work of engine_read_pieces and engine_write_pieces (which only reads host). */
int copies_pieces(struct copies *t, const struct engine_piece *pieces, uint32_t n, bool write,
		  void *host, engine_done *done, void *tag, struct err *e) MUST_CHECK;

/* Does the work of engine_pieces_check. */
int copies_check(struct copies *t, struct err *e) MUST_CHECK;
