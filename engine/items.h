/*
 * Copies of single KV pages and states between host and device, on the queue of the plans (engine.h says in which
 * order the bytes are). Inside engine/ only.
 *
 * An item is two copies a layer and one event, of the last: the queue is in order. Nothing waits; who wants to
 * know asks whether the oldest event has come.
 */
#ifndef ENGINE_ITEMS_H
#define ENGINE_ITEMS_H

#include "engine/device.h"
#include "engine/engine.h"
#include "engine/model.h"

struct items {
	const struct device *device; /* borrowed, as is the model */
	struct model *model;
	struct engine_counters *counters; /* borrowed: of bytes */
	struct {
		cl_event done;
		void *tag;
	} out[ENGINE_ITEMS_OUT];
	uint64_t head, tail; /* given back, queued */
	struct err lost;     /* code 0: the device is there */
};

/* One stretch of an item: bytes of a buffer. */
struct item_part {
	cl_mem buffer;
	uint64_t at, bytes;
};

/* The parts that layer i has of an item, in their order; returns how many. */
uint32_t item_parts(const struct model *m, enum tier_kind kind, uint32_t id, uint32_t i,
		    struct item_part ret[LAYER_PIECES_MAX]);

void items_init(struct items *t, const struct device *d, struct model *m,
		struct engine_counters *counters);

/* What is out is forgotten: the queue has been waited for. */
void items_release(struct items *t);

/* As engine_read_item, engine_write_item, engine_items_done and engine_items_out. */
int items_read(struct items *t, enum tier_kind kind, uint32_t id, void *host, void *tag,
	       struct err *e) MUST_CHECK;
int items_write(struct items *t, enum tier_kind kind, uint32_t id, const void *host, void *tag,
		struct err *e) MUST_CHECK;
int items_done(struct items *t, void **tags, uint32_t max, uint32_t *ret_n,
	       struct err *e) MUST_CHECK;
uint32_t items_out(const struct items *t);

#endif
