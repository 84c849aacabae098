/* The identity of a cache: a hash of everything that decides the bits of its pages and states. Two daemons share a
 * cache on disk exactly if their identities are equal.
 *
 *     weights' bytes (or the seed of synthetic ones), the numbers of config.json that the mathematics uses,
 *     element type, kernel variant and the text of its sources, device and driver (its compiler), page size,
 *     version of the layout, cuts of the kernels that change bits
 *
 * Hashing the weights takes a minute for 70 GB, so it runs on a thread that may take long. A memo, which is a file,
 * keeps the hashes of files by name, size, times and inode. */
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
	/* reads model, device_name, driver, kernels and other_bits */
	const struct engine_info *engine;
	/* CLOCK_REALTIME from before the engine was opened: weights that changed later may differ from those on the
	 * device. 0: not checked */
	uint64_t opened_ns;
};

/* Computes the identity. `memo`: path of a file with hashes computed before, NULL: none; a memo that cannot be
 * written costs time only. Ends with -ECANCELED soon after *cancel is set (NULL: never). -ESTALE: the weights were
 * changed while the daemon started. -EIO or another errno names the file. */
int cache_identity_compute(const struct cache_identity_source *s, const char *memo,
			   const atomic_bool *cancel, struct cache_identity *ret,
			   struct err *e) MUST_CHECK;
