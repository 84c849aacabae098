/* Copies of pages and states between host and device (engine.h has the order of the bytes). Internal to engine/.
 *
 * The unit is a piece: one part (layers/part.h) of one page or of one state. A copy of an item copies all pieces of a
 * page or a state. Copies run in the order of the calls, so it suffices to have the event of a call's last piece.
 *
 * On a device that shares the host's memory, copies are commands on the queue of the plans, and that queue is their
 * order. On other devices they have an in-order queue of their own, so that the bytes of a copy cross the bus while
 * steps run. Then events are the order, between those copies and plans that use the same page or slot (hazards.h):
 *
 *     a read     waits for the last plan that writes the page or slot
 *     a write    waits for the last plan that uses it
 *     a plan     waits for writes of pages and slots that it uses, and for reads of those that it writes
 *
 * So no page has to stay as it is while its read is only queued: the scheduler may give it to the next plan.
 *
 * The caller asks which copies of items are finished (copies_items_done). When a copy of pieces is finished, the driver
 * calls back. That callback may come late, and on another thread. So engine_wait asks the events of copies directly
 * (copies_check). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/device.h"
#include "engine/engine.h"
#include "engine/hazards.h"
#include "engine/model.h"

struct copies {
	const struct device *device; /* borrowed, as is the model */
	const struct model *model;
	struct engine_counters *counters; /* borrowed; counts the bytes that are copied */
	struct err lost;		  /* code 0: the device is not lost */

	bool apart;		/* copies have a queue of their own */
	cl_command_queue queue; /* that of the copies; owned if apart */
	/* The next three are used if copies have a queue of their own. plans: the events of the last plans; plan i has
	 * plans[i % ENGINE_STEPS_OUT], so an event that is gone is of a plan that was waited for. */
	struct hazards hazards;
	uint64_t n_plans; /* plans queued so far */
	cl_event plans[ENGINE_STEPS_OUT];

	/* [n_queued] the events of copies that may not have run yet, in order. The first is that of copy n_done + 1;
	 * copies are numbered from 1. */
	cl_event *queued;
	size_t n_queued, cap;
	uint64_t n_done;

	struct {
		uint64_t copy;
		void *tag;
	} items[ENGINE_ITEMS_OUT];
	uint64_t head, tail; /* head: copies of items given back so far; tail: queued so far */

	pthread_mutex_t lock;
	pthread_cond_t all_back;
	uint32_t n_out; /* guarded by lock: copies of pieces whose engine_done has not returned */
	atomic_bool failed; /* a driver's callback reported a failure */
};

/* Makes the queue of the copies, if they get one of their own (`apart`). Device, model and counters are borrowed; the
 * model's buffers must be allocated. -ENOMEM, or an error of cl_error.h. After an error *t is to be released. */
int copies_init(struct copies *t, const struct device *d, const struct model *m, bool apart,
		struct engine_counters *counters, struct err *e) MUST_CHECK;

/* Waits until all copies have run, and the engine_done (engine.h) of every copy of pieces was called. */
void copies_wait(struct copies *t);

/* Waits as copies_wait does, drops copies of items that were not given back, and frees the members. Does nothing to a
 * struct of zeros. */
void copies_release(struct copies *t);

/* The runner calls the first one before the commands of a plan, which step_check has accepted: lets them wait for
 * copies. -EIO: the device is lost. It calls the second one after the last command, whose event this is. */
int copies_plan_begins(struct copies *t, const struct plan *plan, struct err *e) MUST_CHECK;
void copies_plan_queued(struct copies *t, cl_event done);

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
