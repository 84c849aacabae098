/*
 * The scheduler's own state, for the files of this room only.
 *
 *     waiting    Submitted requests, oldest first
 *     head       the request whose prompt was begun in an earlier step and is not through, or NULL
 *     decoding   sequences whose prompt is through, in the order of their requests' admission and,
 *                inside a request, of choices: the order of the decode rows
 *
 * Everything a step needs is allocated by scheduler_new; only scheduler_submit allocates later.
 */
#ifndef SCHEDULER_SCHEDULER_INTERNAL_H
#define SCHEDULER_SCHEDULER_INTERNAL_H

#include "prefix_cache/pool.h"
#include "scheduler/request_map.h"
#include "scheduler/scheduler.h"

/* A plan with the memory it points into. Each row, draw, reset and fork belongs to a seat of its
 * own, so max_seqs of each are enough. */
struct step {
	struct plan plan;
	struct plan_row *rows;
	struct sequence **row_owners; /* of a prefill row: the trunk */
	struct plan_draw *draws;
	struct sequence **draw_owners;
	struct plan_seat_reset *resets;
	struct plan_copy *page_copies, *state_copies;
};

struct scheduler {
	struct scheduler_config config;
	struct pool *pages, *slots, *seats;
	uint32_t *tables;	     /* [max_seqs][table_pages] block tables, a row a seat */
	uint32_t table_pages;	     /* pages of the longest sequence */
	struct request_map requests; /* every request there is; owns them */
	uint64_t last_id;
	struct list waiting;
	uint32_t n_waiting;
	struct request *head;
	struct list decoding;
	struct step step;
	bool plan_out; /* step.plan was handed out, and neither committed nor failed */
};

/* plan.c: fills s->step with the next step; false when there is nothing to run. Admits requests. */
bool plan_build(struct scheduler *s) MUST_CHECK;

#endif
