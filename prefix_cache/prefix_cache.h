/*
 * The prefix cache of a hybrid model: which KV pages and which recurrent states are known for which
 * tokens, who uses them, and what goes when memory is short. Ids only, never bytes.
 *
 * A prefix can be resumed where there are KV pages for all of it *and* a clean recurrent state at
 * exactly its end (a *checkpoint*). Both hang on one radix tree:
 *
 *     root ── space ──[ You are a ... | page 3 page 7 ]──┬──[ ... | page 9 ]  slot 4
 *                                           slot 1       └──[ ... | page 2 page 5 ]
 *
 * A node is one edge: a whole number of pages, their tokens, their page ids, and maybe the state slot
 * for its end. Splitting an edge leaves node, slot and locks with the suffix; the new node is the
 * prefix. Below the root there is one empty node for every *space* (cache_salt), so that tenants
 * never meet.
 *
 * Bits. Pages and states that were computed token by token while decoding differ in their last bits from
 * those that a prefill computes. `origin` says where along a path the one changed to the other
 * (0: prefilled throughout), and edges with equal tokens and different origins are different
 * children: a path is always what one request computed from its first to its last token. A match
 * may take any (struct prefix_key.origin_any) or exactly the origin that a request had.
 *
 * Ownership. Pages and slots are counted in pools. A request takes pages and slots for itself and writes
 * them; extending the tree hands whole pages over to it, attaching a checkpoint hands over a slot, and
 * from then on nobody writes them. Where the tree has the same pages already (same tokens, same
 * origin) it keeps its own and puts the request's back.
 *
 *     free + held by requests + held by the tree == size, for each pool
 *
 * A lock on a node keeps it and everything above it. What is not locked can be evicted: leaves with
 * their pages and slot, and of inner or locked nodes the slot alone, unless it is pinned (about to be
 * read by a step). One budget in bytes covers both kinds (evict.c says who goes first).
 *
 * Time is a count of calls, so that a run can be repeated. One thread. Nothing here allocates in
 * proportion to the tree when it evicts or matches. Out of memory in the host: a prefix is not
 * remembered, nothing else happens.
 *
 * Source: TokenSpeed's hybrid prefix cache (radix tree with state slots on its nodes); the radix tree of
 * SGLang (Zheng et al. 2023, arXiv:2312.07104).
 */
#ifndef PREFIX_CACHE_PREFIX_CACHE_H
#define PREFIX_CACHE_PREFIX_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "prefix_cache/pool.h"

struct prefix_cache;
struct prefix_node;

struct prefix_cache_config {
	uint32_t page_tokens; /* positions of a page, >= 1 */
	uint32_t
		state_tokens; /* checkpoints lie at multiples of it: a multiple of page_tokens; 0: the model
				  has no recurrent state, and every page boundary can be resumed */
	uint32_t n_pages, n_slots;
	uint64_t page_bytes, slot_bytes; /* for the budget and the order of eviction */
	uint64_t
		budget_bytes; /* of pages and slots in use, by requests and tree; 0: the pools are the limit */
	bool refuse_decoded; /* only paths with origin 0 are remembered and matched */
};

/* Why a prompt did not hit further. The order is the order of precedence in prefix_cache_match. */
enum prefix_miss {
	PREFIX_MISS_NONE, /* everything up to the last whole page (state_tokens, when larger) before the last token */
	PREFIX_MISS_DISABLED,	   /* the request or the server does not want the cache */
	PREFIX_MISS_LOGPROBS,	   /* prompt log-probabilities need every token computed */
	PREFIX_MISS_SHORT,	   /* there is no whole page before the last token */
	PREFIX_MISS_EVICTED_STATE, /* KV pages go deeper; the state there was evicted */
	PREFIX_MISS_NO_CHECKPOINT, /* KV pages go deeper; nobody kept a state there */
	PREFIX_MISS_LOADING,	   /* a lower tier has more and is not through */
	PREFIX_MISS_EVICTED_PAGE,  /* the next page was known once */
	PREFIX_MISS_SALT, /* not known in the space of this cache_salt; other spaces are not asked */
	PREFIX_MISS_COLD, /* nobody has sent this before */
	PREFIX_MISS_N
};

/* "cold", "evicted-page", ...: as in logs and the X-Tigon-Cache header. */
const char *prefix_miss_name(enum prefix_miss m);

/* Everything free, no node. NULL when out of memory. */
struct prefix_cache *prefix_cache_new(const struct prefix_cache_config *c) MUST_CHECK;
void prefix_cache_free(struct prefix_cache *c);

/* ---- origin ---- */

#define PREFIX_PREFILLED UINT64_C(0)

/* The origin after `position`, where tokens began (or ceased) to be computed by decoding; the same as
 * before when nothing changes there. Bit 0 of a origin is 1 while decoding. */
uint64_t prefix_origin(uint64_t before, uint32_t position, bool decoding);

/* ---- matching ---- */

struct prefix_space {
	uint64_t id[2]; /* of a cache_salt, by a hash that nobody can aim; {0, 0}: none */
};

struct prefix_key {
	struct prefix_space space;
	const int32_t *tokens; /* [n_tokens] */
	uint32_t n_tokens;     /* the match ends before the last of them, so that one is computed */
	bool origin_any;
	bool pages_only; /* the match ends where pages end: no state is read there, none is asked for */
	/* Unless origin_any: the only origins that may be matched, as positions where they begin:
	 * the tokens from switches[i].position on have switches[i].origin; [0] is at position 0. A page's
	 * origin is that of its last token. */
	const struct prefix_switch {
		uint32_t position;
		uint64_t origin;
	} * switches;
	uint32_t n_switches;
};

struct prefix_match {
	uint32_t n_tokens; /* can be resumed here; a multiple of state_tokens (or page_tokens) */
	uint32_t n_known;  /* KV pages go this far (>= n_tokens) */
	uint32_t
		branch; /* where a checkpoint is missing that the next request would want: n_known rounded
			      down to state_tokens, when that is > n_tokens; else 0 */
	uint32_t
		slot; /* the state at n_tokens; POOL_NONE when n_tokens is 0, there are no states, or pages_only */
	uint64_t origin; /* at n_tokens */
	enum prefix_miss miss;
	struct prefix_node
		*node; /* borrowed until the next call that is not a match: for prefix_cache_use */
};

/* The longest prefix that can be resumed; changes nothing. Of equally long ones the cleaner (origin
 * 0), then the older. PREFIX_MISS_DISABLED and LOGPROBS are the caller's. */
void prefix_cache_match(const struct prefix_cache *c, const struct prefix_key *key,
			struct prefix_match *ret);

/* Locks what was matched: returns the node at m->n_tokens (its space's node when that is 0; NULL when out of
 * memory, and nothing changed), counts a hit, writes the page ids of the path to pages [m->n_tokens /
 * page_tokens], and pins m->slot (prefix_cache_unpin). */
struct prefix_node *prefix_cache_use(struct prefix_cache *c, const struct prefix_key *key,
				     const struct prefix_match *m, uint32_t *pages) MUST_CHECK;

/* Takes a lock on a node that is locked already / gives one back. */
void prefix_cache_lock(struct prefix_cache *c, struct prefix_node *n);
void prefix_cache_unlock(struct prefix_cache *c, struct prefix_node *n);

/* A slot that a step reads is not evicted, nor is its node, and nobody gets it; pins are counted. The slot may have left
 * the tree since. */
void prefix_cache_pin(struct prefix_cache *c, uint32_t slot);
void prefix_cache_unpin(struct prefix_cache *c, uint32_t slot);

/* ---- growing ---- */

/*
 * n_pages whole pages follow `node` (locked by the caller): their tokens, their page ids, and their
 * origin (of each page's end). The caller owned the pages; afterwards the tree owns those in
 * pages[], some of them exchanged for those it had. The lock moves to the returned node. When the host is
 * out of memory, or origins other than 0 are refused: NULL, nothing changed, the caller keeps its pages
 * and its lock.
 */
struct prefix_node *prefix_cache_extend(struct prefix_cache *c, struct prefix_node *node,
					const int32_t *tokens, uint32_t *pages, uint32_t n_pages,
					uint64_t origin) MUST_CHECK;

enum prefix_checkpoint {
	PREFIX_CHECKPOINT_PROMPT,  /* at the end of a prompt: the next turn begins here */
	PREFIX_CHECKPOINT_MESSAGE, /* at a turn's end, or a point of divergence */
	PREFIX_CHECKPOINT_CHUNK,   /* where a prefill happened to be cut */
	PREFIX_CHECKPOINT_DECODE,  /* while generating */
};

/* The state at the node's end, in a slot that the caller owned, written or queued to be written before
 * anything later is. Taken: when the node has a state already, the slot is put back. The node's end must be a multiple
 * of state_tokens, and locked by the caller. */
void prefix_cache_checkpoint(struct prefix_cache *c, struct prefix_node *n, uint32_t slot,
			     enum prefix_checkpoint kind);

/* A newer decode checkpoint of the same request makes this one useless: puts it back, unless it was hit
 * or somebody else put it there. Does nothing when the node has none. Before the node is extended: then the same node
 * grows in place. */
void prefix_cache_retire(struct prefix_cache *c, struct prefix_node *n);

uint32_t prefix_node_tokens(const struct prefix_node *n); /* from the root to its end */
bool prefix_node_has_checkpoint(const struct prefix_node *n);
uint32_t prefix_node_slot(const struct prefix_node *n); /* of its checkpoint; POOL_NONE: none */

/* The origins of the pages from the root to the node's end [its tokens / page_tokens]. */
void prefix_cache_origins(const struct prefix_cache *c, const struct prefix_node *n,
			  uint64_t *origins);

/* ---- marks ---- */

/* A mark on a page or state of the tree stays until it is taken away or the tree gives the page or state up: by it the
 * caller knows that an id still stands for what it stood for. Marking what is not the tree's is nothing. */
void prefix_cache_mark_page(struct prefix_cache *c, uint32_t page, bool mark);
void prefix_cache_mark_slot(struct prefix_cache *c, uint32_t slot, bool mark);
bool prefix_cache_page_marked(const struct prefix_cache *c, uint32_t page);
bool prefix_cache_slot_marked(const struct prefix_cache *c, uint32_t slot);

/* The tokens [page_tokens] of a page of the tree, borrowed until the tree changes. */
const int32_t *prefix_cache_page_tokens(const struct prefix_cache *c, uint32_t page);

/* ---- memory ---- */

/* Whether so many pages and slots could be taken, evicting what is not locked or pinned, and without touching
 * what `beside` (NULL: nothing) would lock and pin: the probe of an admission. */
bool prefix_cache_can_take(const struct prefix_cache *c, const struct prefix_match *beside,
			   uint64_t n_pages, uint64_t n_slots);

/* A page or slot for a request, with one reference, evicting when needed; POOL_NONE when all is in use. */
uint32_t prefix_cache_take_page(struct prefix_cache *c) MUST_CHECK;
uint32_t prefix_cache_take_slot(struct prefix_cache *c) MUST_CHECK;

/* Only what a request took and did not hand over, or an additional reference to it (n choices share pages). */
void prefix_cache_ref_page(struct prefix_cache *c, uint32_t page);
void prefix_cache_put_page(struct prefix_cache *c, uint32_t page);
void prefix_cache_put_slot(struct prefix_cache *c, uint32_t slot);

/* Forgets everything: -EBUSY while anything is locked, pinned or held by a request. */
int prefix_cache_flush(struct prefix_cache *c) MUST_CHECK;

/* Tests: see pool_shuffle. -EBUSY unless everything is free. */
int prefix_cache_shuffle(struct prefix_cache *c, uint64_t seed) MUST_CHECK;

/* ---- to be seen ---- */

struct prefix_stats {
	uint64_t nodes, spaces;
	uint64_t free_pages, free_slots;	   /* of the pools */
	uint64_t tree_pages, tree_slots;	   /* held by the tree */
	uint64_t evictable_pages, evictable_slots; /* of those, not locked or pinned */
	uint64_t used_bytes;			   /* requests and tree */
	uint64_t evicted_pages, evicted_slots;	   /* since the beginning */
	uint64_t evicted_unhit_slots;		   /* of those, never hit */
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
	uint64_t hits, age; /* age: since it was last used, in the cache's own time */
	uint32_t locks;
	uint64_t origin;
	enum prefix_checkpoint kind; /* of the slot */
	struct prefix_space space;
};

/* Calls `see` for every node but root and spaces, until it returns false. The cache must not be changed meanwhile. */
void prefix_cache_walk(const struct prefix_cache *c,
		       bool (*see)(void *arg, const struct prefix_view *v), void *arg);

/* Asserts every invariant (tests; slow). */
void prefix_cache_check(const struct prefix_cache *c);

#endif
