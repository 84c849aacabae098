/*
 * The engine: a model on a device, and one forward step of one plan. It knows no requests.
 * One thread at a time; device errors are final (-EIO: the device is lost).
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdio.h>

#include "base/err.h"
#include "engine/checkpoint/model_config.h"
#include "engine/layers/piece.h"
#include "kernels/tuning/tuning.h"
#include "prefix_cache/tiers.h"
#include "scheduler/plan.h"

struct engine;

enum engine_dtype { ENGINE_FLOAT32, ENGINE_BFLOAT16 };
enum engine_kernels {
	ENGINE_KERNELS_AUTO,
	ENGINE_KERNELS_GENERIC,
	ENGINE_KERNELS_X86,
	ENGINE_KERNELS_NVIDIA
};

struct engine_options {
	const char *model_dir;
	const char *device;	   /* NULL: the first GPU, else the first device; "0" or a part of a
				      device's name */
	const char *program_cache; /* directory, created when missing; NULL: none */
	const char *dump_activations; /* NULL, or the file every step's layer outputs go to */
	enum engine_dtype dtype;
	enum engine_kernels kernels;
	uint64_t device_memory;	    /* bytes; 0: device_memory_share of what is there */
	double device_memory_share; /* 0 < share <= 1; 0: 0.9. Of what the machine has available and
				     * the control group allows (a CPU), or of a GPU's memory */
	uint64_t
		cache_memory; /* bytes of KV pages and state slots together; 0: cache_memory_share of what
				       is left for them */
	double cache_memory_share; /* 0 < share <= 1; 0: a GPU gives all that is left; a CPU, whose memory is everybody's, what
				       max_seqs sequences of full length and checkpoints beside them take, but beyond the
				       least that works no more than a quarter of the budget. The division between pages
				       and slots: engine/cache_size.h. */
	uint32_t page_tokens, max_seqs, max_prefill_tokens;
	uint32_t max_model_len; /* 0: what the model allows */
	bool profile;		/* times every launch: for tigon bench (engine/profile.h) */
	bool synthetic;		/* random weights from synthetic_seed instead of files */
	uint64_t synthetic_seed;
	bool plain_weights; /* not coded in fewer bytes (kernels/coded.h), also where they could be; the bits are the
			       same */
	bool separate_launches; /* every kernel by itself, also where a decode step could be one launch; the bits
				   are the same */
	struct tuning_options tuning; /* its table is borrowed while engine_open runs */
};

struct engine_info {
	struct model_config model;
	char device_name[256], driver[128], kernels[16];
	uint32_t compute_units;
	char other_bits[33]; /* kernels_other_bits, "": the bits are those of the default cuts */
	struct tuning_use tuning; /* of the table that was given */
	uint32_t n_pages, max_model_len;
	uint32_t
		n_slots; /* a working slot for each of max_seqs, one more, and checkpoints; 0: no recurrent layers */
	uint64_t page_bytes,
		slot_bytes; /* of one KV page, of one state slot, over all layers; slot_bytes 0: no
					    recurrent layers */
	uint64_t weight_bytes, kv_bytes, state_bytes, scratch_bytes, budget_bytes;
	uint64_t plain_bytes; /* of weights, were none of them coded */
};

/* Counts since the engine was opened; for metrics and tests. */
struct engine_counters {
	uint64_t steps, launches;
	uint64_t bytes_to_device, bytes_from_device;
};

/* New. Plans all memory before any is allocated; -ENOMEM says what is needed and what is there. -EINVAL: more was
 * asked for than there is. */
int engine_open(const struct engine_options *o, struct engine **ret, struct err *e) MUST_CHECK;
void engine_close(struct engine *g);

const struct engine_info *engine_info(const struct engine *g);
void engine_counters(const struct engine *g, struct engine_counters *ret);

/* Queues one plan; nothing of it is needed after the return. At most ENGINE_STEPS_OUT plans may be queued and not
 * waited for: -EBUSY. -EINVAL: the plan is outside the engine's limits; -ENOMEM; nothing is queued then. -EIO: the
 * device is lost, with every plan that is queued. With --dump-activations it waits for the plan. */
enum { ENGINE_STEPS_OUT = 2 };
int engine_submit(struct engine *g, const struct plan *plan, struct err *e) MUST_CHECK;

/* Waits for the oldest plan that is queued; results [its n_draws + n_scored_tokens]. -EIO: the device is lost, with every plan that
 * is queued, and nothing works any more. -EINVAL: none is queued. */
int engine_wait(struct engine *g, struct draw_result *results, struct err *e) MUST_CHECK;

/* Both, for a plan alone; -EBUSY when one is queued. */
int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e) MUST_CHECK;

/*
 * What a layer keeps of a sequence: pieces of KV pages (the keys of a page, its values) and of state slots, of one size
 * each. A page, or a state, is the pieces of all layers one behind the other, in the order of these lists. Borrowed for
 * as long as the engine is there.
 */
const struct layer_piece *engine_layer_pieces(const struct engine *g, uint32_t layer,
					      uint32_t *ret_n);

/*
 * Copies between the host and one KV page (id: its number) or one state slot, of all layers: an item. They are commands
 * on the same queue as the plans, in the order of the calls: a read gives what the plans submitted before it leave,
 * whatever later plans write there; a write is there for every plan submitted after it. Neither waits.
 *
 * host [page_bytes or slot_bytes of engine_info] belongs to the copy until engine_items_done gave its tag back. -EBUSY:
 * ENGINE_ITEMS_OUT are out. -EINVAL: no such page or slot. -EIO: the device is lost.
 */
enum { ENGINE_ITEMS_OUT = 256 };
int engine_read_item(struct engine *g, enum tier_kind kind, uint32_t id, void *host, void *tag,
		     struct err *e) MUST_CHECK;
int engine_write_item(struct engine *g, enum tier_kind kind, uint32_t id, const void *host,
		      void *tag, struct err *e) MUST_CHECK;

/* The tags of copies that are through, in the order of the calls: at most max to tags, their number to *ret_n.
 * Does not wait. -EIO: the device is lost; every copy that was out is given back then too (*ret_n of them, call
 * until it is 0), and what reads brought is worth nothing. */
int engine_items_done(struct engine *g, void **tags, uint32_t max, uint32_t *ret_n,
		      struct err *e) MUST_CHECK;

/* How many are out. */
uint32_t engine_items_out(const struct engine *g);

/*
 * Where a prompt is computed for another process its pieces leave while later layers still run (daemon/transfer), so they are
 * copied by layers and not as items.
 *
 * Copies of pieces are commands on the same queue, like those of items, and as many as there are may be out. host holds
 * one piece after the other, and belongs to the copy until done(tag, good) was called: once for every call that returned 0,
 * by this thread before the return or by one of the driver's. !good: the device is lost, and what was read is worth
 * nothing. done may not call the engine, nor wait. -EINVAL: no such piece.
 */
struct engine_piece {
	uint32_t layer; /* of the model */
	uint32_t part;	/* which of the layer's pieces */
	uint32_t id;	/* of which page or slot */
};
typedef void engine_done(void *tag, bool good);

int engine_read_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n, void *host,
		       engine_done *done, void *tag, struct err *e) MUST_CHECK;
int engine_write_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n,
			const void *host, engine_done *done, void *tag, struct err *e) MUST_CHECK;

/* -EIO: one of the copies has failed, as far as is known by now. engine_wait fails with every write that its step could have
 * read. */
int engine_pieces_check(struct engine *g, struct err *e) MUST_CHECK;

/* Host memory that the device copies to and from without a detour (pinned where there is a GPU). New, after what is queued has
 * run; -ENOMEM. Freed before the
 * engine is closed, with no copy out. */
struct engine_block;
int engine_block_new(struct engine *g, uint64_t bytes, struct engine_block **ret,
		     struct err *e) MUST_CHECK;
void *engine_block_data(struct engine_block *b);
void engine_block_free(struct engine_block *b);

/* Waits until all that is queued has run, and every done was called. */
void engine_finish(struct engine *g);

/* The heartbeat of a step that prompts are computed in: called by engine_submit for every layer, attention or Gated DeltaNet
 * alike, when its commands are on the queue and those of later layers are not. It may call the two functions above, and
 * its copies run there. NULL: nobody. */
typedef void engine_on_layer(void *user, const struct plan *plan, uint32_t layer);
void engine_set_on_layer(struct engine *g, engine_on_layer *call, void *user);

/* Sets the environment that OpenCL drivers read: PoCL's cache goes below program_cache (NULL: wherever it
 * likes). engine_open does so too, but a program that has threads by then calls it before: an environment
 * that changes under getenv is a race. */
void engine_settle_environment(const char *program_cache);

/* One line a device: index, name, vendor, driver, memory. */
int engine_list_devices(FILE *out, struct err *e) MUST_CHECK;

#endif
