/* Access for `tigon bench` and `tigon tune` to an engine: the launches of its steps, and the peaks of its device. While
 * launches are noted, every kernel is a launch of its own, with the same bits. An engine that was opened with the
 * option `profile` times the launches; another one notes them without times. */
#pragma once

#include "engine/engine.h"
#include "kernels/peak.h"
#include "kernels/profile.h"

/* Switches the noting of launches on or off, and forgets those that were noted. It is off at first. -ENOMEM. */
int engine_profile(struct engine *g, bool on, struct err *e) MUST_CHECK;

/* Returns the engine's kernels, borrowed: for kernels_profile_take, kernels_tuned and kernels_use_default_cuts. */
struct kernels *engine_kernels(struct engine *g);

/* Finds the place (kernels/tuning/tuning.h) of a decode step with `streams` sequences in a tuning table. False: decode
 * steps have no place, because they are not one launch or run in a GPU's resident groups (struct decode_cut). */
bool engine_decode_place(const struct engine *g, uint32_t streams, struct tuning_place *ret);

/* Prepares measurements of the device's peaks (kernels/peak.h), in the engine's variant and on its queue. *ret is new,
 * and must be closed before the engine. program_cache: as given to engine_open. */
int engine_peaks_open(struct engine *g, const char *program_cache, struct peaks **ret,
		      struct err *e) MUST_CHECK;

/* Returns the bytes of the device's largest cache; 0: not known. */
uint64_t engine_cache_bytes(const struct engine *g);

/* Returns whether much of a model's weights fits into a cache. Then reading the weights may be faster than the peak of
 * reading memory. A cache hardly speeds up the reading of eight times its bytes or more. cache_bytes: as
 * engine_cache_bytes returns it. */
static inline bool profile_is_small(uint64_t weight_bytes, uint64_t cache_bytes)
{
	return weight_bytes < 8 * cache_bytes;
}

/* Does the work of peak_known (kernels/peak.h) for the engine's device. */
bool engine_peak_known(const struct engine *g, struct peak *ret);
