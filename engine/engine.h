/* The engine: a model on a device. It runs plans (scheduler/plan.h), each as one forward step, and copies KV pages and
 * state slots to and from the host. Only one thread at a time may call it. -EIO from a call on an open engine: the
 * device is lost, and stays lost (engine_wait has an exception). */
#pragma once

#include <stdio.h>

#include "base/err.h"
#include "engine/checkpoint/model_config.h"
#include "engine/layers/part.h"
#include "kernels/tuning/tuning.h"
#include "prefix_cache/tiers.h"
#include "scheduler/plan.h"

struct engine;
struct importance;

enum engine_dtype { ENGINE_FLOAT32, ENGINE_BFLOAT16 };
/* The numbers in KV pages: those of engine_dtype (auto), or int8 with a scale for each key and value. */
enum engine_kv_dtype { ENGINE_KV_AUTO, ENGINE_KV_INT8 };
/* The queue on which copies of pages and states run (copies.h): one of their own, that of the plans, or (auto) that of
 * the plans on a CPU and one of their own on other devices. */
enum engine_copy_queue { ENGINE_COPIES_AUTO, ENGINE_COPIES_SHARED, ENGINE_COPIES_OWN };
enum engine_kernels {
	ENGINE_KERNELS_AUTO,
	ENGINE_KERNELS_GENERIC,
	ENGINE_KERNELS_X86,
	ENGINE_KERNELS_NVIDIA
};

struct engine_options {
	const char *model_dir;
	/* a number that engine_list_devices shows, or a part of a device's name; NULL: the first GPU, else the first
	 * device */
	const char *device;
	/* a directory for compiled programs, created when missing; NULL: none */
	const char *program_cache;
	const char *dump_activations; /* the file for every step's layer outputs; NULL: none */
	enum engine_dtype dtype;
	enum engine_kv_dtype kv_dtype;
	enum engine_kernels kernels;
	enum engine_copy_queue copy_queue;
	/* Bytes that the engine may take on the device. If this is 0, it may take a share of the device's memory:
	 * device_memory_share (at most 1), or 0.9 if that is 0 too. A CPU's memory is what the machine has available
	 * and the control group allows. */
	uint64_t device_memory;
	double device_memory_share;
	/* Bytes of KV pages and state slots together; engine/cache_size.h divides them. If this is 0, they take a share
	 * of the memory that weights and work space leave: cache_memory_share (at most 1). If both are 0, they take all
	 * of that memory on a GPU. A CPU shares its memory with other programs, so there they take enough for max_seqs
	 * sequences of full length and checkpoints beside them, but at most the least that works plus a quarter of the
	 * engine's memory. The least that works is the pages of one sequence of full length, and max_seqs + 1 slots. */
	uint64_t cache_memory;
	double cache_memory_share;
	uint32_t page_tokens, max_seqs, max_prefill_tokens;
	bool fewer_seqs; /* max_seqs may be lowered, to sequences whose states fit (engine/cache_size.h) */
	uint32_t max_model_len; /* 0: the most that the model allows and the cache holds */
	bool profile;		/* launches are timed while they are noted (engine/profile.h) */
	bool synthetic;		/* random weights from synthetic_seed instead of files */
	uint64_t synthetic_seed;
	const char *synthetic_types; /* their recipe (checkpoint/recipe.h); NULL: they are plain */
	/* Three ways to compute the same bits more slowly, for comparison and for tests. plain_weights: weights are
	 * never coded in fewer bytes (kernels/coded.h). separate_launches: in decode steps too every kernel is a launch
	 * of its own. unoptimised: the driver compiles kernels without optimising them, in less than half the time. */
	bool plain_weights, separate_launches, unoptimised;
	struct tuning_options tuning; /* its table is borrowed while engine_open runs */
};

/* Returns the bytes of a number in KV pages (layers/part.h). */
static inline uint32_t engine_kv_number(const struct engine_options *o)
{
	return o->kv_dtype == ENGINE_KV_INT8 ? 1 : o->dtype == ENGINE_BFLOAT16 ? 2 : 4;
}

struct engine_info {
	struct model_config model;
	char device_name[256], driver[128], kernels[16];
	char abilities[128]; /* names of those of the device (kernels/probe.h) */
	uint32_t compute_units;
	uint32_t types; /* of the matrices (weights_quant) */
	double quantised_bytes; /* of a weight, on average, if matrices are quantised (kernels/quant.h); else 0 */
	bool int8;	   /* inputs of products are also made int8, for quantised weights */
	bool copies_apart; /* copies have a queue of their own */
	/* a name of the cuts that launches take (kernels_other_bits); "": the bits are those of the default cuts */
	char other_bits[33];
	struct tuning_use tuning; /* how much of the given tuning table this engine uses */
	uint32_t n_pages, max_model_len, max_seqs;
	uint32_t n_slots; /* max_seqs + 1, and those of checkpoints; 0: no layer keeps states */
	/* bytes of a page and of a slot, over all layers. page_bytes 0: no layer keeps pages. slot_bytes 0: no layer
	 * keeps states. */
	uint64_t page_bytes, slot_bytes;
	uint64_t weight_bytes, kv_bytes, state_bytes, scratch_bytes, budget_bytes;
	uint64_t plain_bytes;  /* bytes that the weights would take if none were coded */
	uint64_t n_parameters; /* of the model; 0: not known, because memory was short */
	bool on_cpu;	       /* the device is a CPU */
};

/* Counts since the engine was opened. */
struct engine_counters {
	uint64_t steps, launches;
	uint64_t bytes_to_device, bytes_from_device;
};

/* Opens a model on a device; *ret is new. Weights and work space are planned, and compared with the memory that the
 * engine may take, before they are allocated. -ENOMEM: the model does not fit, or host memory is short. -EINVAL: an
 * option asks for more memory than there is, or a file of the model is wrong. Other errors have other causes, which the
 * sentence names. */
int engine_open(const struct engine_options *o, struct engine **ret, struct err *e) MUST_CHECK;
void engine_close(struct engine *g);

/* The memory of the device that a model would take with some options. */
struct engine_needs {
	char device_name[256], kernels[16];
	/* weight_bytes: of the weights; coding (kernels/coded.h) saves up to may_save of them, which is known only when
	 * they are loaded. scratch_bytes: work space, and what rounding the cache's buffers up may add. */
	uint64_t weight_bytes, may_save, scratch_bytes;
	uint64_t page_bytes,
		slot_bytes; /* of a page of page_tokens tokens and of a state slot, as in engine_info */
	uint64_t
		budget_bytes; /* of the device, which the engine may take; not compared with the rest */
};

/* Finds out what engine_open would take, without loading weights, compiling kernels or allocating memory of the device.
 * o->device_memory may be more than the device has. Errors are those of engine_open. */
int engine_measure(const struct engine_options *o, struct engine_needs *ret,
		   struct err *e) MUST_CHECK;

const struct engine_info *engine_info(const struct engine *g);
void engine_counters(const struct engine *g, struct engine_counters *ret);

/* Queues one plan, which may be freed after the return. The plan stays queued until engine_wait has returned for it. At
 * most ENGINE_STEPS_OUT plans are queued at the same time. While activations are dumped the call also waits for the
 * device. -EBUSY: ENGINE_STEPS_OUT plans are queued already. -EINVAL: the plan is outside the engine's limits. -ENOMEM:
 * out of memory. After these three errors the plan is not queued. -EIO: the device is lost, with every queued plan. */
enum { ENGINE_STEPS_OUT = 2 };
int engine_submit(struct engine *g, const struct plan *plan, struct err *e) MUST_CHECK;

/* Waits for the oldest queued plan and writes its results, [n_draws + n_scored_tokens] of that plan. -EINVAL: no plan
 * is queued. -EIO: the device is lost, with every queued plan; also if not all groups of a decode step in one launch
 * ran at the same time (engine_open finds out whether they do). While activations are dumped, errors of keeping them
 * and of writing their file are returned too; these, -EIO among them, do not mean that the device is lost. */
int engine_wait(struct engine *g, struct draw_result *results, struct err *e) MUST_CHECK;

/* Returns the sum of pooling number `pooling`, which ends, of the plan for which engine_wait has returned last:
 * [hidden_size of the model] floats, borrowed until the next engine_submit. Where hidden states are not finite, the sum
 * is not finite. */
const float *engine_pooled(const struct engine *g, uint32_t pooling);

/* From now on plans add the inputs of their products to the squares (engine/checkpoint/importance.h), which are borrowed;
 * NULL: no longer. The plans must be of prompts alone. */
void engine_gather(struct engine *g, struct importance *squares);

/* Queues a plan and waits for its results. -EBUSY: another plan is queued. Otherwise the errors are those of
 * engine_submit and engine_wait. */
int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e) MUST_CHECK;

/* Returns the parts that a layer keeps for every KV page (the page's keys, its values) or for every state slot, and
 * their number in *ret_n. The bytes of a page are its pieces one behind the other: one piece of each part that is kept
 * for pages, in the order of the layers and, within a layer, of its list of parts. The bytes of a state are made in the
 * same way from the parts that are kept for states. The list is borrowed until the engine is closed. */
const struct layer_part *engine_layer_parts(const struct engine *g, uint32_t layer,
					    uint32_t *ret_n);

/*
 * engine_read_item copies an item from the device to host, engine_write_item copies one from host to the device. An
 * item here is a whole KV page or a whole state slot with its pieces of all layers; id is the number of the page or
 * slot. Copies run in the order of the calls, and beside plans that have nothing to do with them. A read gives the
 * bytes that the plans submitted before it leave, even when later plans write there. Every plan submitted after a write
 * reads the written bytes. The calls do not wait for the copies.
 *
 * host [page_bytes or slot_bytes of engine_info] belongs to the copy until engine_items_done gives its tag back.
 * -EBUSY: ENGINE_ITEMS_OUT copies were not given back yet. -EINVAL: no such page or slot. -ENOMEM: out of memory. -EIO:
 * the device is lost.
 */
enum { ENGINE_ITEMS_OUT = 256 };
int engine_read_item(struct engine *g, enum tier_kind kind, uint32_t id, void *host, void *tag,
		     struct err *e) MUST_CHECK;
int engine_write_item(struct engine *g, enum tier_kind kind, uint32_t id, const void *host,
		      void *tag, struct err *e) MUST_CHECK;

/* Gives back finished copies of items, in the order of the calls: writes at most max tags to tags, and their number to
 * *ret_n. -EIO: the device is lost, and bytes that were read must not be used. If the device is lost, the call waits,
 * and all copies count as finished (call it until *ret_n is 0). Otherwise it does not wait. */
int engine_items_done(struct engine *g, void **tags, uint32_t max, uint32_t *ret_n,
		      struct err *e) MUST_CHECK;

/* Returns the number of copies of items that were not given back yet. */
uint32_t engine_items_out(const struct engine *g);

/* Copies single pieces. A piece is one part of one page or of one state. When a prompt is computed for another worker,
 * the pieces of its first layers are sent while later layers are still computed (daemon/transfer), so pieces are copied
 * a few layers at a time.
 *
 * Copies of pieces run in one order with those of items, and there may be any number of them. host holds one piece
 * after the other. It belongs to the copy until done(tag, good) is called. done is called once for every call
 * that returned 0, either by the calling thread before the return or by a thread of the driver. good is false if the
 * device is lost; the bytes that were read must then not be used. done must neither call the engine nor wait. -EINVAL:
 * there is no such piece, or n is 0. -ENOMEM: out of memory. */
struct engine_piece {
	uint32_t layer; /* layer of the model */
	uint32_t part;	/* number in the layer's list of parts (engine_layer_parts) */
	uint32_t id;	/* number of the page or slot */
};
typedef void engine_done(void *tag, bool good);

int engine_read_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n, void *host,
		       engine_done *done, void *tag, struct err *e) MUST_CHECK;
int engine_write_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n,
			const void *host, engine_done *done, void *tag, struct err *e) MUST_CHECK;

/* Returns 0, or -EIO if a copy is known to have failed. engine_wait also fails if a write failed that its step could
 * have read. */
int engine_pieces_check(struct engine *g, struct err *e) MUST_CHECK;

/* A block of host memory for copies, which the device accesses directly (for a GPU it is pinned memory).
 * engine_block_new makes one and waits until all queued plans have run. -ENOMEM is its only error. A block
 * must be freed when no copy uses it any more, and before the engine is closed. */
struct engine_block;
int engine_block_new(struct engine *g, uint64_t bytes, struct engine_block **ret,
		     struct err *e) MUST_CHECK;
void *engine_block_data(struct engine_block *b);
void engine_block_free(struct engine_block *b);

/* Waits until all queued plans and copies have run and the `done` of every copy of pieces was called. */
void engine_finish(struct engine *g);

/* A function that engine_submit calls once for every layer of a step: after the layer's commands were queued, and
 * before those of the next layer are. It is not called for a step in one launch, which computes no prompts. The
 * function may call engine_read_pieces, which gives the bytes that this layer leaves. engine_set_on_layer sets it;
 * NULL: no function is called. */
typedef void engine_on_layer(void *user, const struct plan *plan, uint32_t layer);
void engine_set_on_layer(struct engine *g, engine_on_layer *call, void *user);

/* Sets two environment variables for PoCL, unless they are set: POCL_CACHE_DIR, to a directory below program_cache
 * (NULL: POCL_CACHE_DIR is left alone), and HWLOC_SYNTHETIC (device.h says when). engine_open does so too, but a
 * program with several threads calls this before it starts them, because setenv in one thread while another one reads
 * the environment is a race. */
void engine_settle_environment(const char *program_cache);

/* Returns the number of devices. -ENODEV: there is none. */
int engine_device_count(struct err *e) MUST_CHECK;

/* Writes one line for each device to `out`: number, name, driver, memory. -ENODEV: there is no device. */
int engine_list_devices(FILE *out, struct err *e) MUST_CHECK;

/* Asks and measures each device, and writes lines to `out` as they become known: those of engine_list_devices, and
 * below each the variant that ENGINE_KERNELS_AUTO takes, the device's abilities (kernels/probe.h), the time of an empty
 * launch and the bandwidth of reading. program_cache: as in engine_options; the abilities are found out again and kept
 * there. Goes on after a device that cannot be measured, and returns the first of such errors. */
int engine_report_devices(FILE *out, const char *program_cache, struct err *e) MUST_CHECK;
