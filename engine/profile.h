/*
 * How `tigon bench` looks into an engine: the launches of its steps, and the peaks of its device. While launches are noted,
 * every kernel is a launch of its own, with the same bits. An engine that was opened with the option `profile` times them;
 * another one notes them without times.
 */
#pragma once

#include "engine/engine.h"
#include "kernels/int8_trial.h"
#include "kernels/peak.h"
#include "kernels/profile.h"

/* Switches the noting of launches on or off. It is off at first. */
int engine_profile(struct engine *g, bool on, struct err *e) MUST_CHECK;

/* Waits for the queued plans. Gives the launches since the last call, in their order, borrowed until the next plan. */
int engine_profile_take(struct engine *g, const struct kernel_timing **ret, size_t *ret_n,
			struct err *e) MUST_CHECK;

/* Where a decode step of so many streams stands in a tuning table; false: it is not one launch. */
bool engine_decode_place(const struct engine *g, uint32_t streams, struct tuning_place *ret);

/* As kernels_tuned. */
bool engine_tuned(const struct engine *g, const struct tuning_place *p);

/* on: kernels take their default cuts; off: those of tables again. Not while a plan is queued. */
void engine_use_default_cuts(struct engine *g, bool on);

/* New: the yardsticks of the engine's device, in the variant that the engine runs, on its queue. Closed before the
 * engine. program_cache: as it was opened with. */
int engine_peaks_open(struct engine *g, const char *program_cache, struct peaks **ret,
		      struct err *e) MUST_CHECK;

/* New, as int8_trial_open with the engine's kernels: once an engine. Closed before the engine, and its launches are noted
 * as those of plans are. */
int engine_int8_trial_open(struct engine *g, const char *program_cache, uint32_t group,
			   struct int8_trial **ret, struct err *e) MUST_CHECK;

/* Bytes of the largest cache of the engine's device, 0: it does not say. */
uint64_t engine_cache_bytes(const struct engine *g);

/* As peak_known, of the engine's device. */
bool engine_peak_known(const struct engine *g, struct peak *ret);
