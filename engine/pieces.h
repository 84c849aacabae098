/*
 * Copies of the parts of single layers of pages and states between host and device, on the queue of the plans (engine.h).
 * Inside engine/ only.
 *
 * A piece is a command; the last one of a call has an event, whose callback tells the caller. A callback may come late or
 * on another thread, so before a step's results are believed the events of the writes before it are asked themselves.
 */
#ifndef ENGINE_PIECES_H
#define ENGINE_PIECES_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/items.h"

struct pieces {
	const struct device *device; /* borrowed, as is the model */
	const struct model *model;
	struct engine_counters *counters; /* borrowed: of bytes */
	pthread_mutex_t lock;
	pthread_cond_t all_back;
	uint32_t n_out;	  /* guarded by lock: calls whose done is still to come */
	cl_event *writes; /* [n_writes] of those that may not be through yet, in their order */
	size_t n_writes, cap;
	atomic_bool failed; /* a driver's callback said so */
	struct err lost;    /* code 0: the device is there */
};

void pieces_init(struct pieces *t, const struct device *d, const struct model *m,
		 struct engine_counters *counters);

/* Waits until every done was called; the queue has been waited for, or the device is lost. */
void pieces_wait(struct pieces *t);
void pieces_release(struct pieces *t);

uint64_t pieces_bytes(const struct pieces *t, enum tier_kind kind, uint32_t part);

/* -EIO: a copy has failed. */
int pieces_check(struct pieces *t, struct err *e) MUST_CHECK;

/* As engine_read_pieces and engine_write_pieces (which does not write to host). */
int pieces_copy(struct pieces *t, const struct engine_piece *pieces, uint32_t n, bool write,
		void *host, engine_done *done, void *tag, struct err *e) MUST_CHECK;

#endif
