/*
 * The scheduler's own state, for the files of this room only.
 *
 *     waiting    requests to be admitted, in their order (Submitted and Retracted ones, without
 * those that follow another request's prompt) head       the request whose prompt was begun in an
 * earlier plan and is not through, or NULL leaders    requests whose prompt is not computed whole
 * yet, in the order of admission decoding   sequences whose prompt is planned or has arrived, in
 * that order and, inside a request, of choices: the order of the decode rows
 *
 *     loads      what requests outside of the queue wait for, from below the device
 *     ending     sequences that have ended and still hold something
 *     receiving  requests whose prompt comes from another worker, in the order of their admission
 *
 * Plans are numbered from 1. Those in (committed, planned] are out; their memory is steps[number %
 * 2]. Everything a step needs is allocated by scheduler_new; later only scheduler_submit allocates,
 * and sequences for tokens they draw.
 */
#ifndef SCHEDULER_SCHEDULER_INTERNAL_H
#define SCHEDULER_SCHEDULER_INTERNAL_H

#include "prefix_cache/pool.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"
#include "scheduler/waiting.h"

/* What becomes of a row at its commit. */
struct step_row {
	struct sequence *owner; /* of a prefill row: the trunk */
	/* The slot that the row leaves its last state in, when that is a checkpoint (else
	 * POOL_NONE): it belongs to this plan until it is handed over, like the slots of the row's
	 * snapshots. */
	uint32_t handover;
	uint32_t unpin; /* the slot that it read and that is pinned for it, or POOL_NONE */
	enum prefix_checkpoint handover_kind, snapshot_kinds[SNAPSHOTS_MAX];
};

/* A plan with the memory it points into. Each row, draw, score, reset and fork belongs to a seat of its
 * own, so max_seqs of each are enough. */
struct step {
	struct plan plan;
	struct plan_row *rows;
	struct step_row *more; /* [n_rows] */
	struct plan_draw *draws;
	struct sequence **draw_owners;
	struct plan_score *scores;
	struct plan_ship *ships;
	struct plan_seat_reset *resets;
	struct plan_copy *page_copies, *state_copies;
};

enum { STEPS_OUT_MAX = 2, USES_MAX = 8192 };

struct scheduler {
	struct scheduler_config config;
	struct prefix_cache *cache;
	struct pool *seats;
	uint32_t align;	      /* where windows end: the larger of page and state chunk */
	uint32_t *tables;     /* [max_seqs][table_pages] block tables, a row a seat */
	uint32_t table_pages; /* pages of the longest sequence */
	/* Work space: tokens of a page, tokens of a request that comes back [max_model_len], pages
	 * of a hit [table_pages], and what admission_match asked. */
	int32_t *page, *returning;
	uint32_t *hit_pages;
	struct prefix_key key;
	struct prefix_switch switches[2];
	struct map requests; /* every request there is, by id; owns them */
	uint64_t last_id;
	struct waiting waiting;
	uint32_t n_waiting;   /* of all that wait, also followers */
	uint32_t n_retracted; /* of those */
	struct request *head;
	struct list leaders;
	struct list decoding, ending;
	struct list receiving;
	struct step steps[STEPS_OUT_MAX];
	uint64_t planned, committed;
	/* tiering.c; tiers NULL: none below the device */
	struct tiers *tiers;
	bool tiers_ready;
	struct waiting_store *stores;		    /* [n_pages + n_slots] by page, then by slot */
	uint32_t first_store, last_store, n_stores; /* those that wait, linked by .next */
	struct tier_item *uses;			    /* [USES_MAX] a ring */
	uint32_t first_use, n_uses;
	struct list loads;
	uint64_t *tier_path, *tier_origins; /* [table_pages] work space */
	uint64_t loads_begun, loads_failed, stores_dropped;
	uint64_t receives, receives_failed; /* handoff.c: that began; of those */
	uint64_t retractions, replayed_tokens, prompt_tokens, cached_tokens, shared_waits;
	uint64_t misses[PREFIX_MISS_N];
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

/* True when no plan that is out has this sequence. */
static inline bool sequence_settled(const struct scheduler *s, const struct sequence *q)
{
	return q->last_plan <= s->committed;
}

/* scheduler.c. A draw of a living choice becomes an event; a choice that ended meanwhile gets none. */
bool scheduler_draw(struct sequence *q, const struct draw_result *result,
		    struct scheduler_event *ret);

/* Choices of r have ended: they decode no more, and a request that is over has no part in anything. */
void scheduler_note_ended(struct scheduler *s, struct request *r);

/* Releases what ended sequences hold, as far as no plan that is out has them and neither a fork nor a shipment needs them,
 * and drops requests of which nothing is left. */
void scheduler_settle(struct scheduler *s);

/* plan.c: fills the next step; false when there is nothing to run. Admits requests. */
bool plan_build(struct scheduler *s) MUST_CHECK;

#endif
