/*
 * How the data of a prefill worker's prompts leave the device. The pages and states of a window of layers are read into blocks
 * of pinned memory while later layers are computed; the transfer thread sends them from there without a copy. The blocks have
 * 256 MiB in all. Data that finds no idle block is read when the step is over, since a prompt's pages stay until all of it is
 * sent. A peer gets another block only while it has fewer than four times the idle ones, so that a slow peer cannot take all
 * of them (dynamic thresholds: Choudhury and Hahne, 1998). All calls are the engine thread's.
 */
#ifndef DAEMON_STEPS_SHIPPING_H
#define DAEMON_STEPS_SHIPPING_H

#include "daemon/transfer/transfer.h"
#include "engine/engine.h"
#include "scheduler/plan.h"

struct shipping;

/* All of it is borrowed for as long as it is there. */
struct shipping_config {
	struct engine *engine;
	struct transfer *transfer;
	struct queue *inbox; /* woken when a block is free again */
};

/* Bytes of a block, and so the most of a window. Both sides derive it from sizes that all workers of a model share, so no
 * window is larger than its receiver expects. */
uint64_t shipping_block_bytes(const struct engine *engine);

int shipping_open(const struct shipping_config *config, struct shipping **ret,
		  struct err *e) MUST_CHECK;

/* All reads are done, and the transfer thread has ended. NULL does nothing. */
void shipping_close(struct shipping *s);

/* Reads the data of a window of layers of one ship of the plan that is on the queue: for an attempt of a peer. */
int shipping_window(struct shipping *s, uint64_t attempt, uint32_t peer, const struct plan *plan,
		    const struct plan_ship *ship, uint32_t first_layer, uint32_t n_layers,
		    struct err *e) MUST_CHECK;

/* Reads the data that found no block before. -EIO: the device is lost. */
int shipping_run(struct shipping *s, struct err *e) MUST_CHECK;

/* Drops the data of an attempt that is not read yet. */
void shipping_drop(struct shipping *s, uint64_t attempt);

#endif
