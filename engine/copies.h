/* Copies of pages and states between host and device, on the queue of the plans (engine.h has the order of the bytes).
 * Internal to engine/.
 *
 * The unit is a piece: one part (layers/part.h) of one page or of one state. A copy of an item copies all pieces of a
 * page or a state. The queue is in order, so it suffices to have the event of a call's last piece.
 *
 * The caller asks which copies of items are finished (copies_items_done). When a copy of pieces is finished, the driver
 * calls back. That callback may come late, and on another thread. So engine_wait asks the events of writes of pieces
 * directly (copies_check). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/device.h"
#include "engine/engine.h"
#include "engine/model.h"

struct copies {
	const struct device *device; /* borrowed, as is the model */
	const struct model *model;
	struct engine_counters *counters; /* borrowed; counts the bytes that are copied */
	struct err lost;		  /* code 0: the device is not lost */

	struct {
		cl_event done;
		void *tag;
	} items[ENGINE_ITEMS_OUT];
	uint64_t head, tail; /* head: copies of items given back so far; tail: queued so far */

	pthread_mutex_t lock;
	pthread_cond_t all_back;
	uint32_t n_out; /* guarded by lock: copies of pieces whose engine_done has not returned */
	/* [n_writes] events of writes of pieces that may not have run yet, in order */
	cl_event *writes;
	size_t n_writes, cap;
	atomic_bool failed; /* a driver's callback reported a failure */
};

void copies_init(struct copies *t, const struct device *d, const struct model *m,
		 struct engine_counters *counters);

/* Waits until the engine_done (engine.h) of every copy of pieces was called. Call it when all queued commands have
 * run, or the device is lost. */
void copies_wait(struct copies *t);

/* Waits as copies_wait does, drops copies of items that were not given back, and frees the members. */
void copies_release(struct copies *t);

/* copies_item does the work of engine_write_item if `write` is true (it then only reads host), otherwise that of
 * engine_read_item. copies_items_done and copies_items_out do the work of engine_items_done and engine_items_out. */
int copies_item(struct copies *t, enum tier_kind kind, uint32_t id, bool write, void *host,
		void *tag, struct err *e) MUST_CHECK;
int copies_items_done(struct copies *t, void **tags, uint32_t max, uint32_t *ret_n,
		      struct err *e) MUST_CHECK;
uint32_t copies_items_out(const struct copies *t);

/* Does the work of engine_write_pieces if `write` is true (it then only reads host), otherwise that of
 * engine_read_pieces. */
int copies_pieces(struct copies *t, const struct engine_piece *pieces, uint32_t n, bool write,
		  void *host, engine_done *done, void *tag, struct err *e) MUST_CHECK;

/* Does the work of engine_pieces_check. */
int copies_check(struct copies *t, struct err *e) MUST_CHECK;
