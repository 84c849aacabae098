/* The identity of a cache: a hash of everything that decides the bits of its pages and states. A daemon finds the items
 * that another one left in the same cache directory exactly if their identities are equal. The hash is over:
 *
 *     names and bytes of the weights' files (or the seed of synthetic weights), family of the model, the numbers of
 *     config.json that the forward pass uses, element type, type of the KV cache, kernel variant and the text of its
 *     sources, device and driver (its compiler), page size, LAYOUT_VERSION of cache_identity.c, and the kernels' cuts if
 *     they may change bits
 *
 * Hashing 70 GB of weights takes a minute, so it is done on a thread that may take that long. A file, the memo, keeps
 * the hashes of the weights' files from one start to the next, by path, size, times and inode. */
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
	enum engine_kv_dtype kv_dtype;
	uint32_t page_tokens;
	/* only model, device_name, driver, kernels and other_bits are read */
	const struct engine_info *engine;
	/* The CLOCK_REALTIME before the engine was opened, in ns. A file of weights that changed later may differ from
	 * the weights on the device, so it is an error. 0: no such check. */
	uint64_t opened_ns;
};

/* Computes the identity. `memo` is the path of the memo; NULL: there is none. A memo that cannot be read or written is
 * no error, and the files are hashed again. -ECANCELED: *cancel was set while a file was hashed (cancel NULL: it never
 * is). -ESTALE: a file of weights was changed after opened_ns, or while it was hashed. -EFAULT: a hash cannot be
 * computed. -ENOMEM. Other errors are those of opening and reading the model's files. */
int cache_identity_compute(const struct cache_identity_source *s, const char *memo,
			   const atomic_bool *cancel, struct cache_identity *ret,
			   struct err *e) MUST_CHECK;
