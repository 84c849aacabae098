/* The prefix cache of a hybrid model: which KV pages and which recurrent states exist for which tokens, which
 * requests use them, and which are evicted when memory is short. It handles ids only, never bytes.
 *
 * A request can resume a prefix that has KV pages for all of it *and* a recurrent state at exactly its end (a
 * *checkpoint*). Both hang on one radix tree:
 *
 *     root ── space ──[ You are a ... | page 3 page 7 ]──┬──[ ... | page 9 ]  slot 4
 *                                           slot 1       └──[ ... | page 2 page 5 ]
 *
 * A node is one edge: a whole number of pages, their tokens, their page ids, and maybe the slot of the state at its
 * end. When an edge is split, node, slot and locks stay with the end of the edge, and a new node gets the beginning.
 * Below the root is one empty node for every *space* (cache_salt), so that tenants never share a prefix.
 *
 * Origin. Pages and states that were decoded, token by token, differ in their last bits from those that a prefill
 * computed. The *origin* of a page tells how its tokens, from the first one to the end of the page, were computed: at
 * which positions computing changed between prefill and decode (0: all of them were prefilled). Edges with equal
 * tokens and different origins are different children, so every path was computed by one request. A match takes paths
 * of any origin (struct prefix_key.origin_any), or of one given origin.
 *
 * Ownership. Pages and slots are counted in pools. A request takes pages and slots and writes them. Extending the
 * tree hands whole pages over to it, adding a checkpoint hands over a slot; from then on they are not written. If the
 * tree already has pages with the same tokens and origin it keeps its own and puts the request's back.
 *
 *     free + held by requests alone + held by the tree == size, for each pool
 *
 * A lock on a node keeps it and every node above it. Without a lock a leaf can be evicted, with its pages and slot.
 * An inner or a locked node can lose its slot alone, unless the slot is pinned (a step is about to read it). One
 * budget in bytes covers pages and slots; evict.h has the order of eviction.
 *
 * Time is a count of calls, so that a run can be repeated. One thread. Eviction and matching allocate nothing. When
 * the host is out of memory, a prefix is not remembered; nothing else fails.
 *
 * Source: TokenSpeed's hybrid prefix cache (a radix tree with state slots on its nodes); the radix tree of SGLang
 * (Zheng et al. 2023, arXiv:2312.07104). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "prefix_cache/pool.h"
#include "prefix_cache/tiers.h"

struct prefix_cache;
struct prefix_node;

struct prefix_cache_config {
	uint32_t page_tokens; /* positions of a page, >= 1 */
	/* Checkpoints lie at multiples of it; a multiple of page_tokens. 0: the model has no recurrent state, and a request
	 * can resume at every page boundary. */
	uint32_t state_tokens;
	uint32_t n_pages, n_slots;
	/* bytes of a page and of a slot, for the budget and the order of eviction */
	uint64_t page_bytes, slot_bytes;
	/* budget of all pages and slots in use; 0: the pools alone limit them */
	uint64_t budget_bytes;
	bool refuse_decoded; /* keep and match only prefilled pages and states (origin 0) */
};

/* The reasons why a prompt could not be resumed further on. Of several that apply, the first one here is reported. */
enum prefix_miss {
	PREFIX_MISS_NONE,	   /* it was resumed at the last boundary before its last token */
	PREFIX_MISS_DISABLED,	   /* the request or the configuration turns the cache off */
	PREFIX_MISS_LOGPROBS,	   /* log-probabilities of the prompt need every token computed */
	PREFIX_MISS_SHORT,	   /* there is no boundary before its last token */
	PREFIX_MISS_EVICTED_STATE, /* KV pages go deeper; the state there was evicted */
	PREFIX_MISS_NO_CHECKPOINT, /* KV pages go deeper; no state was kept there */
	PREFIX_MISS_LOADING,	   /* the files below are still being listed */
	PREFIX_MISS_EVICTED_PAGE,  /* the next page was evicted */
	PREFIX_MISS_SALT, /* never seen in this cache_salt's space; other spaces are not searched */
	PREFIX_MISS_COLD, /* never seen */
	PREFIX_MISS_N
};

/* The name in logs and in the X-Tigon-Cache header: "cold", "evicted-page", ... */
const char *prefix_miss_name(enum prefix_miss m);

/* New and empty; NULL when out of memory. */
struct prefix_cache *prefix_cache_new(const struct prefix_cache_config *c) MUST_CHECK;
void prefix_cache_free(struct prefix_cache *c);

/* ---- origin ---- */

#define PREFIX_PREFILLED UINT64_C(0)

/* The origin of pages that end behind `position`, from which tokens are decoded or (!decoding) prefilled; `before` if
 * that is no change. Bit 0 of an origin tells whether the page's last tokens were decoded. */
uint64_t prefix_origin(uint64_t before, uint32_t position, bool decoding);

/* ---- matching ---- */

struct prefix_space {
	uint64_t id[2]; /* a cryptographic hash of the cache_salt; {0, 0}: there is none */
};

struct prefix_key {
	struct prefix_space space;
	const int32_t *tokens; /* [n_tokens] */
	/* the match ends before the last token, so that at least one is computed */
	uint32_t n_tokens;
	bool origin_any;
	bool pages_only; /* no state is needed: the match may end at any page */
	/* Unless origin_any: pages whose last token is at switches[i].position or behind it, and before the next switch, must
	 * have switches[i].origin. [0] is at position 0. */
	const struct prefix_switch {
		uint32_t position;
		uint64_t origin;
	} * switches;
	uint32_t n_switches;
};

struct prefix_match {
	/* a request can resume here; a multiple of state_tokens or page_tokens */
	uint32_t n_tokens;
	uint32_t n_known; /* the end of the KV pages that the tree has (>= n_tokens) */
	/* Position of a missing checkpoint that a later request will want: n_known rounded down to state_tokens; 0:
	 * n_tokens is there already. */
	uint32_t branch;
	uint32_t slot;	 /* the state at n_tokens; POOL_NONE: there is none, or none is needed */
	uint64_t origin; /* origin of the page that ends at n_tokens */
	enum prefix_miss miss;
	struct prefix_node *node; /* for prefix_cache_use; borrowed until the cache changes */
};

/* Finds the longest prefix that can be resumed; changes nothing. Of equally long ones it takes a prefilled one
 * (origin 0), then the oldest. Never reports the reasons DISABLED, LOGPROBS and LOADING, which only the caller knows. */
void prefix_cache_match(const struct prefix_cache *c, const struct prefix_key *key,
			struct prefix_match *ret);

/* Uses a match: locks the node at m->n_tokens (the space's node if that is 0), counts a hit, writes the page ids of
 * the path to pages [m->n_tokens / page_tokens], and pins m->slot. Returns the node; NULL, and nothing changed: out
 * of memory. */
struct prefix_node *prefix_cache_use(struct prefix_cache *c, const struct prefix_key *key,
				     const struct prefix_match *m, uint32_t *pages) MUST_CHECK;

/* Takes another lock on a locked node / gives a lock back. */
void prefix_cache_lock(struct prefix_cache *c, struct prefix_node *n);
void prefix_cache_unlock(struct prefix_cache *c, struct prefix_node *n);

/* A pinned slot is not evicted, and neither is its node; the pool does not give it out again. Pins are counted. A
 * slot that has left the tree meanwhile is unpinned in the same way. */
void prefix_cache_pin(struct prefix_cache *c, uint32_t slot);
void prefix_cache_unpin(struct prefix_cache *c, uint32_t slot);

/* ---- growing ---- */

/* Adds n_pages whole pages of one origin behind `node`, which the caller has locked: tokens [n_pages * page_tokens]
 * and page ids. The caller gives its pages away. If the tree already had some of the pages, the caller's are put
 * back, and pages[] is changed to the tree's. Returns the node at the end of the pages, to which the lock moves.
 * NULL, and nothing changed: the host is out of memory, or the origin is not 0 and decoded pages are refused. */
struct prefix_node *prefix_cache_extend(struct prefix_cache *c, struct prefix_node *node,
					const int32_t *tokens, uint32_t *pages, uint32_t n_pages,
					uint64_t origin) MUST_CHECK;

enum prefix_checkpoint {
	PREFIX_CHECKPOINT_PROMPT,  /* at the end of a prompt: the next turn begins here */
	PREFIX_CHECKPOINT_MESSAGE, /* at a turn's end, or a point of divergence */
	PREFIX_CHECKPOINT_CHUNK,   /* where a window of a prefill ended */
	PREFIX_CHECKPOINT_DECODE,  /* while generating */
};

/* Adds a checkpoint to a node that the caller has locked and whose end is a multiple of state_tokens. The slot is
 * taken; if the node has a checkpoint already, it is put back. The state must have been written, or be queued on the
 * device before any later command. */
void prefix_cache_checkpoint(struct prefix_cache *c, struct prefix_node *n, uint32_t slot,
			     enum prefix_checkpoint kind);

/* Removes a node's decode checkpoint, because the request that left it will leave a newer one. Keeps it if it was
 * hit, or if another request left a checkpoint there as well. To be called before the node is extended, so that the
 * node can grow in place. */
void prefix_cache_retire(struct prefix_cache *c, struct prefix_node *n);

uint32_t prefix_node_tokens(const struct prefix_node *n); /* tokens from the root to its end */
bool prefix_node_has_checkpoint(const struct prefix_node *n);
uint32_t prefix_node_slot(const struct prefix_node *n); /* POOL_NONE: it has no checkpoint */

/* The origins of the pages from the root to the node's end [its tokens / page_tokens]. */
void prefix_cache_origins(const struct prefix_cache *c, const struct prefix_node *n,
			  uint64_t *origins);

/* ---- marks ---- */

/* Marks pages and slots of the tree, for tiering. The tree drops the mark of a page or slot when it gives it up, so a
 * caller that finds its mark knows that the id still has the same content. Pages and slots outside the tree cannot be
 * marked. */
void prefix_cache_mark(struct prefix_cache *c, enum tier_kind kind, uint32_t id, bool mark);
bool prefix_cache_marked(const struct prefix_cache *c, enum tier_kind kind, uint32_t id);

/* The tokens [page_tokens] of a page of the tree; borrowed until the tree changes. */
const int32_t *prefix_cache_page_tokens(const struct prefix_cache *c, uint32_t page);

/* ---- memory ---- */

/* Whether n_pages and n_slots could be taken, evicting unlocked and unpinned memory, after using the match `beside`
 * (NULL: none). Changes nothing. */
bool prefix_cache_can_take(const struct prefix_cache *c, const struct prefix_match *beside,
			   uint64_t n_pages, uint64_t n_slots);

/* A page or slot for a request, with one reference; evicts when it has to. POOL_NONE: none can be freed, or
 * budget_bytes allows no more. */
uint32_t prefix_cache_take_page(struct prefix_cache *c) MUST_CHECK;
uint32_t prefix_cache_take_slot(struct prefix_cache *c) MUST_CHECK;

/* For pages and slots that a request took and has not handed over. A page may get further references: choices share
 * pages. */
void prefix_cache_ref_page(struct prefix_cache *c, uint32_t page);
void prefix_cache_put_page(struct prefix_cache *c, uint32_t page);
void prefix_cache_put_slot(struct prefix_cache *c, uint32_t slot);

/* Empties the tree. -EBUSY, and nothing changed: a node is locked, a slot pinned, or a request holds memory. */
int prefix_cache_flush(struct prefix_cache *c) MUST_CHECK;

/* For tests: see pool_shuffle. -EBUSY unless all pages and slots are free. */
int prefix_cache_shuffle(struct prefix_cache *c, uint64_t seed) MUST_CHECK;

/* ---- statistics and views ---- */

struct prefix_stats {
	uint64_t nodes, spaces;
	uint64_t free_pages, free_slots; /* free in the pools */
	uint64_t tree_pages, tree_slots; /* held by the tree */
	/* of those, the ones neither locked nor pinned */
	uint64_t evictable_pages, evictable_slots;
	uint64_t used_bytes;		       /* bytes of requests and tree */
	uint64_t evicted_pages, evicted_slots; /* since the start */
	uint64_t evicted_unhit_slots;	       /* evicted checkpoints that were never hit */
};

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_stats *ret);

/* A node as GET /cache shows it. Parents come before children, children in order of age. */
struct prefix_view {
	uint64_t id, parent; /* id counts from 1 in order of creation; parent 0: a space */
	uint32_t depth;	     /* tokens from the root to its end */
	const int32_t *tokens;
	const uint32_t *pages;
	uint32_t n_tokens, n_pages;
	uint32_t slot;	    /* POOL_NONE: none */
	uint64_t hits, age; /* age: calls since it was last used */
	uint32_t locks;
	uint64_t origin;
	enum prefix_checkpoint kind; /* why its state was kept */
	struct prefix_space space;
};

/* Calls `see` for every node but the root and the spaces, until it returns false. `see` must not change the cache. */
void prefix_cache_walk(const struct prefix_cache *c,
		       bool (*see)(void *arg, const struct prefix_view *v), void *arg);

/* Asserts every invariant (tests; slow). */
void prefix_cache_check(const struct prefix_cache *c);
