/* The scheduler's own state, for the files of this room only. Its lists of requests and sequences:
 *
 *     waiting     requests to be admitted, as a heap: Submitted and Retracted ones, but neither followers (sharing.h)
 *                 nor requests with a load (tiering.h)
 *     head        the one Prefilling request whose prompt is not planned to its end, or NULL
 *     leaders     requests whose prompt is computed here and not yet to its end, in the order of admission
 *     decoding    living sequences whose prompt is planned to its end or has arrived, in the order of these events; of
 *                 one request, by choice. Decode rows have this order.
 *     loads       a load (tiering.h) for each request that waits for items of the store
 *     ending      sequences that have ended and still hold memory
 *     receiving   requests whose prompt comes from another worker, in the order of admission
 *
 * Plans are numbered from 1. Those in (committed, planned] are out; the memory of a plan is steps[number % 2].
 * scheduler_new allocates the memory of all steps. Some memory is allocated later, and may then be lacking:
 *     for a request                  scheduler_submit fails
 *     for the tokens that it draws   the row with the draw is not planned yet, or the request not Receiving yet
 *     for a load                     the request is admitted without the items of the store
 *     for the index of the tiers     the item is not stored
 *     for nodes of the cache         a prefix is not remembered or not resumed, or the request not Receiving yet */
#pragma once

#include "base/arena.h"
#include "prefix_cache/pool.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"
#include "scheduler/waiting.h"

/* Data of a row that the scheduler needs at the commit. */
struct step_row {
	struct sequence *owner; /* the sequence whose row it is; of a prefill row: the trunk */
	/* The slot of the row's last state, if that state becomes a checkpoint, else POOL_NONE. It belongs to the
	 * plan until the commit, like the slots of the row's snapshots. */
	uint32_t handover;
	/* the slot that the row reads, if it is pinned for the row; else POOL_NONE */
	uint32_t unpin;
	enum prefix_checkpoint handover_kind, snapshot_kinds[SNAPSHOTS_MAX];
};

/* A plan with the memory that it points to. No two rows, draws, scores, poolings, ships, resets or copies of a kind
 * belong to the same seat, so there are at most max_seqs of each. */
struct step {
	struct plan plan;
	struct plan_row *rows;
	struct step_row *more; /* [n_rows] one for each row of the plan */
	struct plan_draw *draws;
	struct sequence **draw_owners;
	struct plan_score *scores;
	struct plan_pooling *poolings;
	struct plan_ship *ships;
	struct plan_seat_reset *resets;
	struct plan_copy *page_copies, *state_copies;
};

enum { STEPS_OUT_MAX = 2, USES_MAX = 8192 };

struct scheduler {
	struct scheduler_config config;
	struct arena memory; /* memory of the arrays of allocate_arrays (scheduler.c) */
	struct prefix_cache *cache;
	struct pool *seats;
	/* windows end at its multiples, or with their prompt: the larger of page_tokens and state_tokens */
	uint32_t align;
	/* prefill budget if a sequence can decode: align .. config.max_prefill_tokens */
	uint32_t pace;
	/* [max_seqs] the owner of each seat's request; 0: no owner, or the seat is free */
	uint64_t *seat_owners;
	uint32_t *tables;     /* [max_seqs][table_pages] block tables, one for each seat */
	uint32_t table_pages; /* pages of the longest sequence */
	/* Work space: [page_tokens] tokens of a page; [max_model_len] tokens of a retracted request */
	int32_t *page, *returning;
	uint32_t *hit_pages; /* [table_pages] pages of the last match that was used */
	/* the key that was last looked up; points to `switches` and may point to `returning` */
	struct prefix_key key;
	struct prefix_switch switches[2];
	struct map requests; /* every request, by id; owns them */
	uint64_t last_id;
	struct waiting waiting;
	uint32_t n_waiting;   /* requests in `waiting`, followers, and those with a load */
	uint32_t n_retracted; /* how many of n_waiting are Retracted */
	struct request *head;
	struct list leaders;
	struct list decoding, ending;
	struct list receiving;
	struct step steps[STEPS_OUT_MAX];
	uint64_t planned, committed;
	/* The tiers below the device, down to tier_origins (tiering.h). tiers NULL: there are none. */
	struct tiers *tiers;
	bool tiers_ready;
	/* [n_pages + n_slots] one for each page, then one for each slot */
	struct waiting_store *stores;
	/* the elements of `stores` that wait, by the time when their id was queued */
	struct list store_queue;
	uint32_t n_stores;
	struct tier_item *uses; /* [USES_MAX] a ring */
	uint32_t first_use, n_uses;
	struct list loads;
	uint64_t *tier_path, *tier_origins; /* [table_pages] work space */
	/* the counts since the start; scheduler_stats fills in the rest */
	struct scheduler_stats stats;
};

static inline struct request *find_request(const struct scheduler *s, uint64_t id)
{
	struct map_node *n = map_first(&s->requests, id);

	return n ? container_of(n, struct request, by_id) : NULL;
}

static inline bool plans_out(const struct scheduler *s)
{
	return s->planned > s->committed;
}

static inline struct step *step_of(struct scheduler *s, uint64_t number)
{
	return &s->steps[number % STEPS_OUT_MAX];
}

/* Whether no plan that is out uses this sequence. */
static inline bool sequence_settled(const struct scheduler *s, const struct sequence *q)
{
	return q->last_plan <= s->committed;
}

/* ---- scheduler.c ---- */

/* Adds a drawn token to its sequence, and makes an event of it; false: the choice has ended before. */
bool scheduler_draw(struct sequence *q, const struct draw_result *result,
		    struct scheduler_event *ret);

/* To be called after choices of r have ended: moves those that have a seat to `ending`. If r is over it leaves all
 * other lists too, and is freed if it holds no memory. */
void scheduler_note_ended(struct scheduler *s, struct request *r);

/* Releases ended sequences that no plan that is out, no fork and no ship needs, and frees requests that are over and
 * hold no memory. */
void scheduler_settle(struct scheduler *s);

/* plan.c: admits requests and fills the next step; false: there is nothing to run. */
bool plan_build(struct scheduler *s) MUST_CHECK;
