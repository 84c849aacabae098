/*
 * The identity of a cache: a hash of everything that decides the bits of its pages and states. Two daemons share a cache
 * on disk exactly when their identities are equal.
 *
 *     weights' bytes (or the seed of synthetic ones), what config.json decides, element type, kernel variant and the
 *     text of its sources, device and driver (their compiler), page size, version of the layout,
 *     cuts of the kernels where they change bits
 *
 * Reading the weights takes a minute for 70 GB: it is for a thread that has the time. A memo, which is a file, keeps the
 * hashes of files by name, size, times and inode.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"
#include "engine/store/identity.h"

struct cache_identity_source {
	const char *model_dir;
	bool synthetic;
	uint64_t synthetic_seed;
	enum engine_dtype dtype;
	uint32_t page_tokens;
	const struct engine_info *engine; /* model, device_name, driver, kernels and other_bits are
					     read */
	uint64_t
		opened_ns; /* CLOCK_REALTIME from before the engine was opened: weights that changed later may not
			       be those that the device has. 0: not looked at */
};

/* Everything. `memo`: path of the file of what was hashed before, NULL: none; a memo that cannot be written costs
 * time only. Ends with -ECANCELED soon after *cancel is set (NULL: never). -ESTALE: the weights were changed while
 * the daemon started. -EIO and the like name the file. */
int cache_identity_compute(const struct cache_identity_source *s, const char *memo,
			   const atomic_bool *cancel, struct cache_identity *ret,
			   struct err *e) MUST_CHECK;

/* The hash of one directory's weights alone. */
int cache_identity_weights(const char *model_dir, const char *memo, uint64_t opened_ns,
			   const atomic_bool *cancel, struct cache_identity *ret,
			   struct err *e) MUST_CHECK;
