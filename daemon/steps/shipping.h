/* Reads the pages and states of a prefill worker's prompts from the device. The data of a layer group (handoff.h has
 * all names of the data) are divided into parcels. While the device computes later layers, each parcel is read into a
 * block of pinned memory, from which the transfer thread sends it as one WINDOW, without a copy.
 *
 * There are as many blocks as fit into 256 MiB, but at least eight. A parcel that finds no free block is read later:
 * its data stay unchanged on the device until all of the prompt was sent. A block is taken for data to one peer. A peer
 * gets another block only while it holds less than four times as many blocks as are free, so that a slow peer cannot
 * hold all of them (dynamic thresholds: Choudhury and Hahne, 1998). Only the engine thread calls these functions. */
#pragma once

#include "daemon/transfer/transfer.h"
#include "engine/engine.h"
#include "scheduler/plan.h"

struct shipping;

/* All objects here are borrowed until shipping_close. */
struct shipping_config {
	struct engine *engine;
	struct transfer *transfer;
	struct queue *inbox; /* woken when a block becomes free */
};

/* Returns the bytes of a block, which are also the most bytes of a parcel. Both sides compute this number from the
 * parts of the model's layers, so no raw frame is larger than its receiver expects. */
uint64_t shipping_block_bytes(const struct engine *engine);

/* Makes a struct shipping, new, and allocates its blocks. */
int shipping_open(const struct shipping_config *config, struct shipping **ret,
		  struct err *e) MUST_CHECK;

/* Frees everything. No read may be under way, and the transfer thread must have ended. With NULL does nothing. */
void shipping_close(struct shipping *s);

/* Queues the reads of the data of `ship` in the layer group of n_layers layers from first_layer on. Parcels that find
 * no free block wait for shipping_run. Called within engine_submit, when these layers are queued and later ones are
 * not. After an error the caller must fail the attempt, because some of its data will not be read. */
int shipping_group(struct shipping *s, uint64_t attempt, uint32_t peer, const struct plan *plan,
		   const struct plan_ship *ship, uint32_t first_layer, uint32_t n_layers,
		   struct err *e) MUST_CHECK;

/* Queues the reads of parcels that found no free block before, as far as blocks are free now. -EIO: the device is lost;
 * any other error of a read fails only the attempt of its parcel. */
int shipping_run(struct shipping *s, struct err *e) MUST_CHECK;

/* Frees those parcels of an attempt that still wait for a block. */
void shipping_drop(struct shipping *s, uint64_t attempt);
