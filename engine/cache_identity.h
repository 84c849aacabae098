/* The identity of a cache: a hash of everything that decides the bits of its pages and states. Two daemons with the
 * same directory share the items in it exactly if their identities are equal.
 *
 *     names and bytes of the weights' files (or the seed of synthetic weights), family of models, the numbers of
 *     config.json that the forward pass uses, element type, kernel variant and the text of its sources, device and
 *     driver (its compiler), page size, LAYOUT_VERSION, cuts of the kernels that change bits
 *
 * Hashing 70 GB of weights takes a minute, so it is done on a thread that may take that long. A memo, which is a file,
 * keeps the hashes of files by path, size, times and inode. */
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
	/* only model, device_name, driver, kernels and other_bits are read */
	const struct engine_info *engine;
	/* CLOCK_REALTIME from before the engine was opened: weights that changed later may differ from those on the
	 * device. 0: not checked */
	uint64_t opened_ns;
};

/* Computes the identity. `memo`: path of a file with hashes computed before, NULL: none; a memo that cannot be
 * written costs time only. Ends with -ECANCELED soon after *cancel is set (NULL: never). -ESTALE: a file of weights was
 * changed after opened_ns, or while it was hashed. For -EIO or another errno the sentence names the file. */
int cache_identity_compute(const struct cache_identity_source *s, const char *memo,
			   const atomic_bool *cancel, struct cache_identity *ret,
			   struct err *e) MUST_CHECK;
