/* The model's state, which the three files of the model share. */
#pragma once

#include "scheduler/scheduler.h"
#include "tests/cache_mirror.h"
#include "tests/fake_device.h"
#include "tests/plan_check.h"
#include "tests/scheduler_model.h"
#include "tests/scheduler_rules.h"

enum {
	VOCAB = 16,
	END = 12,    /* the end tokens are END and END + 1 */
	LETTERS = 3, /* most tokens of prompts and most drawn tokens are below this */
	REMEMBERED = 6,
	TRIES_MAX = 4096,
	/* the most results of a plan: of its draws, and of its scored tokens */
	RESULTS = RULES_SEQS + RULES_SEQS * RULES_LEN,
};

struct text {
	uint32_t n;
	int32_t tokens[RULES_LEN];
};

struct model {
	struct source *src;
	struct model_counts *counts;
	struct scheduler_config config;
	struct scheduler *s, *twin;
	struct fake_device *device;
	struct rules rules, trial;
	struct rule_marks marks;
	struct mirror mirrors[2], *now, *other;
	struct draw_result results[2][RESULTS]; /* [number % 2] of the plans that are out */
	struct plan_names names;
	enum scheduler_handoff handoff; /* that most requests ask for */
	uint32_t steered; /* one in so many requests needs the token before each draw */
	/* earlier prompts and answers, with which other prompts begin */
	struct text texts[REMEMBERED];
	uint64_t next_user;
};

/* ---- scheduler_model.c ---- */

uint32_t model_n_alive(const struct model *m);

/* ---- scheduler_model_draw.c ---- */

void model_draw_config(struct model *m);

/* Returns a number from 0 to n - 1, which the source decides. */
uint32_t model_below(struct source *src, uint32_t n);
bool model_chance(struct model *m, uint32_t one_in);
void model_draw_request(struct model *m, struct rule_request *q);

/* Returns one of a few token masks, or NULL. */
const uint32_t *model_mask(struct model *m);

/* Returns whether the scheduler has to accept the request if the queue has room. */
bool model_acceptable(const struct model *m, const struct rule_request *q);

/* Remembers the prompt of q and the answer c, with which later prompts may begin. */
void model_remember(struct model *m, const struct rule_request *q, const struct rule_choice *c);

/* ---- scheduler_model_check.c: the checks return NULL, or the condition that failed ---- */

/* Checks that the pages and slots add up, and that every statistic agrees with the rules. */
const char *model_check_stats(const struct model *m);

/* Checks the statistics that making the plan changes, and that p is a plan if `any`, else NULL. */
const char *model_check_made(const struct model *m, const struct plan *p, bool any);

/* Checks that the plan's scores ask for the right tokens. Writes results that name these tokens. */
const char *model_check_scores(struct model *m, const struct plan *p, const struct rule_plan *plan,
			       struct draw_result *results);

/* Checks the plan's poolings, and notes their seats in the rules. */
const char *model_check_poolings(struct model *m, const struct plan *p,
				 const struct rule_plan *plan);

/* Checks that the pages and the state that q has shipped so far are those that a prefill without cached pages
 * leaves. */
const char *model_check_ship(const struct model *m, const struct rule_request *q);

/* Checks that published pages of sequences are in the cache, locked. Notes them in the rules, in place of the
 * sequences' own pages. */
const char *model_check_published(struct model *m);

/* Checks the states that are to be read. before [n_slots]: those that were to be read before the plan. If such a state
 * still is to be read, it must not have left the cache. */
const char *model_check_pinned(const struct model *m, const bool *before);

/* Checks that the states that the plan's rows kept are published. */
const char *model_check_kept(const struct model *m, const struct rule_plan *plan);

/* Checks an event of the request q against the one that the rules want. */
const char *model_check_event(struct model *m, const struct scheduler_event *ev,
			      const struct rule_event *want, const struct rule_request *q,
			      const struct draw_result *draw);

/* Checks the events of a plan's scores, and takes them out of `events`, which has *n events. */
const char *model_take_scores(struct model *m, const struct rule_plan *plan,
			      const struct draw_result *results, struct scheduler_event *events,
			      uint32_t *n);

/* Checks that the device agrees with everything that the cache says. */
const char *model_check_cache(struct model *m);

/* Checks that no request is left, and that after a flush everything is free. */
const char *model_check_baseline(struct model *m);

/* Notes the states and pages that were evicted: those that m->other had and m->now has not. */
void model_mark_evicted(struct model *m);

/* Forgets each evicted state that is back, or whose page is gone. */
void model_forget_marks(struct model *m);
