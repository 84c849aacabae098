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
	LETTERS = 3, /* tokens that are drawn and prompted, mostly */
	REMEMBERED = 6,
	TRIES_MAX = 4096,
	/* Of a plan: draws, and scored tokens. */
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
	struct draw_result results[2][RESULTS]; /* of the plans that are out: number % 2 */
	struct plan_names names;
	enum scheduler_handoff handoff; /* of most requests */
	/* earlier prompts and answers, with which other prompts begin */
	struct text texts[REMEMBERED];
	uint64_t next_user;
};

/* ---- scheduler_model.c ---- */

uint32_t model_n_alive(const struct model *m);

/* ---- scheduler_model_draw.c ---- */

void model_draw_config(struct model *m);

/* 0 to n - 1, from the source. */
uint32_t model_below(struct source *src, uint32_t n);
bool model_chance(struct model *m, uint32_t one_in);
void model_draw_request(struct model *m, struct rule_request *q);

/* Whether the scheduler has to accept the request, when the queue has room. */
bool model_acceptable(const struct model *m, const struct rule_request *q);

/* Other prompts may begin like this one with its answer. */
void model_remember(struct model *m, const struct rule_request *q, const struct rule_choice *c);

/* ---- scheduler_model_check.c: NULL, or the condition that failed ---- */

/* The pools add up, and every statistic agrees with the rules. */
const char *model_check_stats(const struct model *m);

/* Checks the statistics that making the plan changes, and that there is one if `any`. */
const char *model_check_made(const struct model *m, const struct plan *p, bool any);

/* The plan's scores ask about the right tokens. Fills in results that say which they are. */
const char *model_check_scores(struct model *m, const struct plan *p, const struct rule_plan *plan,
			       struct draw_result *results);

/* The pages and the state that q has shipped so far are those of a cold prefill. */
const char *model_check_ship(const struct model *m, const struct rule_request *q);

/* Published pages of sequences are in the cache, locked, and in place of their own pages. */
const char *model_check_published(struct model *m);

/* States that are about to be read, before the plan and after it, did not leave the cache. */
const char *model_check_pinned(const struct model *m, const bool *before);

/* States that rows kept are published. */
const char *model_check_kept(const struct model *m, const struct rule_plan *plan);
const char *model_check_event(struct model *m, const struct scheduler_event *ev,
			      const struct rule_event *want, const struct rule_request *q,
			      const struct draw_result *draw);

/* Checks the events of scores of a plan and takes them out of `events`. */
const char *model_take_scores(struct model *m, const struct rule_plan *plan,
			      const struct draw_result *results, struct scheduler_event *events,
			      uint32_t *n);

/* The device agrees with everything that the cache says. */
const char *model_check_cache(struct model *m);

/* Nothing is left, and after a flush everything is free. */
const char *model_check_baseline(struct model *m);

/* Notes the states and pages that were evicted to make room. */
void model_mark_evicted(struct model *m);

/* A state that is back, or whose page is gone, no longer counts as evicted. */
void model_forget_marks(struct model *m);
