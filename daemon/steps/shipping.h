/*
 * How the data of a prefill worker's prompts leave the device: what a window of layers leaves is read into blocks of pinned
 * memory while later layers are computed, and given to the transfer thread, which sends it from there without a copy. There
 * are only so many blocks, 256 MiB of them; what finds none is read when the step is over, since what is shipped stays where it
 * is until all of it is out. A peer gets one more only while it has less than four times what is idle: who takes data slowly
 * cannot have all of them (dynamic thresholds: Choudhury and Hahne, 1998). All calls are the engine thread's.
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

/* Bytes of a block, so the most that a window has. Both sides find it from what every worker of a model has alike: no window
 * is larger than its receiver expects. */
uint64_t shipping_block_bytes(const struct engine *engine);

int shipping_open(const struct shipping_config *config, struct shipping **ret,
		  struct err *e) MUST_CHECK;

/* Nothing is read any more, and the transfer thread has ended. NULL is nothing. */
void shipping_close(struct shipping *s);

/* Of one ship of the plan that is on the queue: reads what the window of layers leaves, as the attempt's, for a peer. */
int shipping_window(struct shipping *s, uint64_t attempt, uint32_t peer, const struct plan *plan,
		    const struct plan_ship *ship, uint32_t first_layer, uint32_t n_layers,
		    struct err *e) MUST_CHECK;

/* Reads what found no block before. -EIO: the device is lost. */
int shipping_run(struct shipping *s, struct err *e) MUST_CHECK;

/* What of an attempt is still to be read is not wanted any more. */
void shipping_drop(struct shipping *s, uint64_t attempt);

#endif
