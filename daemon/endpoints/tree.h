/*
 * GET /cache: the prefix cache as it was between two steps.
 *
 * The tree belongs to the engine thread, which must not be kept from its steps: it copies at most
 * `limit` nodes and TREE_IDS_MAX token ids, and the http thread writes the JSON from the copy. What
 * was left out is told
 * (`truncated`, and totals that count everything). Parents come before their children, so what
 * there is is always a tree.
 */
#ifndef DAEMON_ENDPOINTS_TREE_H
#define DAEMON_ENDPOINTS_TREE_H

#include "base/buf.h"
#include "engine/store/store.h"
#include "scheduler/scheduler.h"

enum {
	TREE_LIMIT = 1000, /* nodes, when the client does not say */
	TREE_LIMIT_MAX = 10000,
	TREE_IDS_MAX = 1 << 18,
};

struct tree_ask {
	uint32_t limit;
	bool tokens; /* their ids, too */
};

/* The scheduler's configuration as far as the answer shows it. */
struct tree_pools {
	uint32_t page_tokens, n_pages, n_slots;
	uint64_t budget_bytes; /* what the cache may use */
};

struct tree;

/* engine: new; NULL when out of memory. below: what host memory and disk hold; NULL: there is
 * neither. */
struct tree *tree_copy(const struct scheduler *s, const struct tree_pools *pools,
		       const struct store_stats *below, const struct tree_ask *ask);
void tree_free(struct tree *t);

void tree_write(const struct tree *t, struct buf *out);

#endif
