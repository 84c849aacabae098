/* The prefix cache of a hybrid model: which KV pages and which states exist for which tokens, which of them are used by
 * requests, and which are evicted when memory is short. It handles the ids of pages and slots, never their bytes. A
 * state is what recurrent layers and layers with a sliding window keep of a sequence.
 *
 * A request can resume a prefix if there are KV pages for all of it *and* a state at exactly its end. Such a state is a
 * *checkpoint*. (In a model without such layers whole pages are enough.) Pages and checkpoints hang on one radix tree:
 *
 *     root ── space ──[ You are a ... | page 3 page 7 ]──┬──[ ... | page 9 ]  slot 4
 *                                           slot 1       └──[ ... | page 2 page 5 ]
 *
 * A node is one edge: a whole number of pages, their tokens, their page ids, and maybe the slot of the state at its
 * end. When an edge is split, node, slot and locks stay with the end of the edge, and a new node gets the beginning.
 * Below the root is one empty node for every *space* (the prompts with one cache_salt) that has pages or locks, so that
 * tenants with different salts never share a prefix.
 *
 * Origin. Pages and states that were decoded, token by token, may differ in their last bits from those that a prefill
 * computed. The *origin* of a page is a number that tells how the tokens of its path, up to the end of the page, were
 * computed. It is 0 if all of them were prefilled; otherwise it is a hash of the positions at which computing changed
 * between prefill and decode. Edges with equal tokens and different origins are different children. So the pages above
 * a page of the tree are those from which it was computed, or were computed in the same way. A match takes paths of any
 * origin, or only paths with the origins that it is given (struct prefix_key).
 *
 * Ownership. Pages and slots are counted in pools. A request takes pages and slots and writes them. (In this room a
 * request is any user of the cache, also a load of scheduler/tiering.h.) Extending the tree hands whole pages over to
 * it, and adding a checkpoint hands over a slot; from then on they are not written. If the tree already has pages with
 * the same tokens and origin it keeps its own, and the request's go back into the pool.
 *
 *     free + held by requests alone + held by the tree == size, for each pool
 *
 * A lock on a node keeps it and every node above it. Without a lock a leaf can be evicted, with its pages and slot.
 * An inner or a locked node can lose its slot alone, unless the slot is pinned (a step is about to read it). One
 * budget in bytes covers pages and slots; evict.h has the order of eviction.
 *
 * Time is a count of calls of prefix_cache_use, _lock, _unlock, _extend, _checkpoint and _retire, so that a run can be
 * repeated; a call that finds nothing to do does not count. Only one thread may use a cache. Eviction and matching
 * allocate nothing. If the host runs out of memory later than prefix_cache_new, a prefix is not remembered or not
 * resumed; nothing else fails.
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
	/* Checkpoints lie at multiples of this number of tokens, which is a multiple of page_tokens. 0: the model has
	 * no states, and a request can resume at every page boundary. */
	uint32_t state_tokens;
	uint32_t n_pages, n_slots;
	/* bytes of a page and of a slot, for the budget and the order of eviction */
	uint64_t page_bytes, slot_bytes;
	/* the most bytes of all pages and slots that are not free, those that could be evicted included; 0: the pools
	 * alone limit them */
	uint64_t budget_bytes;
	bool refuse_decoded; /* keep only prefilled pages and states (origin 0) */
};

/* The reasons why a prompt could not be resumed further on. Of several that apply, the first one here is reported. A
 * boundary is a multiple of state_tokens; of page_tokens if the request needs no state (also if the model has none).
 * EVICTED_STATE and EVICTED_PAGE are described as prefix_cache_match finds them. The scheduler also reports them after
 * a failed load, and EVICTED_STATE if a request has to give up the state that it matched. */
enum prefix_miss {
	PREFIX_MISS_NONE,	  /* it can be resumed at the last boundary before its last token */
	PREFIX_MISS_DISABLED,	  /* the request or the configuration turns the cache off */
	PREFIX_MISS_LOGPROBS,	  /* log-probabilities of the prompt need every token computed */
	PREFIX_MISS_MEAN_POOLING, /* the mean of its hidden states does */
	PREFIX_MISS_SHORT,	  /* there is no boundary before its last token */
	/* the tree has the KV pages up to a later boundary, and a state behind the match was evicted */
	PREFIX_MISS_EVICTED_STATE,
	/* the tree has the KV pages up to a later boundary, but no state was kept behind the match */
	PREFIX_MISS_NO_CHECKPOINT,
	PREFIX_MISS_LOADING,	  /* not all files of the store are listed yet */
	PREFIX_MISS_EVICTED_PAGE, /* the next page was evicted (as far back as ghosts.h goes) */
	PREFIX_MISS_SALT, /* as COLD, in the space of a cache_salt; other spaces are not searched */
	/* the next page was never seen, is forgotten, or is only there with other origins than the key takes */
	PREFIX_MISS_COLD,
	PREFIX_MISS_N
};

/* Returns the name of a reason, as in metrics and in the X-Tigon-Cache header: "cold", "evicted-page", ... */
const char *prefix_miss_name(enum prefix_miss m);

/* Makes an empty cache; NULL when out of memory. */
struct prefix_cache *prefix_cache_new(const struct prefix_cache_config *c) MUST_CHECK;
void prefix_cache_free(struct prefix_cache *c);

/* ---- origin ---- */

#define PREFIX_PREFILLED UINT64_C(0)

/* Returns the origin of pages that end behind `position`, where the tokens from `position` on are decoded (`decoding`)
 * or prefilled. before: the origin of the tokens before `position`. It is returned unchanged if the tokens on both
 * sides of `position` are computed in the same way. Bit 0 of an origin tells whether the last tokens were decoded. */
uint64_t prefix_origin(uint64_t before, uint32_t position, bool decoding);

/* ---- matching ---- */

struct prefix_space {
	uint64_t id[2]; /* a cryptographic hash of the cache_salt; {0, 0}: no cache_salt */
};

struct prefix_key {
	struct prefix_space space;
	const int32_t *tokens; /* [n_tokens] */
	/* the match ends before the last token, so that at least one is computed */
	uint32_t n_tokens;
	bool origin_any;
	bool pages_only; /* no state is needed: the match may end at any page */
	/* Unless origin_any: pages whose last token is at switches[i].position or behind it, and before the next
	 * switch, must have switches[i].origin. switches[0] is at position 0. n_switches 0: all pages must have
	 * origin 0. */
	const struct prefix_switch {
		uint32_t position;
		uint64_t origin;
	} * switches;
	uint32_t n_switches;
};

struct prefix_match {
	/* a request can resume here; a multiple of state_tokens or page_tokens */
	uint32_t n_tokens;
	uint32_t n_known; /* tokens for which the tree has KV pages, >= n_tokens */
	/* The place where a checkpoint is missing that a later request is likely to need: n_known rounded down to
	 * state_tokens. 0: the request resumes at that place, or needs no state. */
	uint32_t branch;
	uint32_t slot;	 /* the state at n_tokens; POOL_NONE: there is none, or none is needed */
	uint64_t origin; /* origin of the page that ends at n_tokens */
	enum prefix_miss miss;
	/* for prefix_cache_use; borrowed until the cache changes; NULL: the space has no node */
	struct prefix_node *node;
};

/* Finds the longest prefix that can be resumed; changes nothing. match.c says which of equally long ones it takes, and
 * bounds the search, so among very many origins a shorter one may be found. Never reports the reasons DISABLED,
 * LOGPROBS and LOADING, which the caller has to find. */
void prefix_cache_match(const struct prefix_cache *c, const struct prefix_key *key,
			struct prefix_match *ret);

/* Uses a match: locks the node that ends at m->n_tokens, counts a hit of it, writes the page ids of the path to pages
 * [m->n_tokens / page_tokens], and pins m->slot if there is one. If m->n_tokens is 0 it locks the space's node instead,
 * and counts no hit. If the tree does not have the node to lock yet, it first splits an edge or adds the space. Returns
 * the locked node; NULL, and nothing changed: out of memory. */
struct prefix_node *prefix_cache_use(struct prefix_cache *c, const struct prefix_key *key,
				     const struct prefix_match *m, uint32_t *pages) MUST_CHECK;

/* prefix_cache_lock takes another lock on a locked node; prefix_cache_unlock gives one back. */
void prefix_cache_lock(struct prefix_cache *c, struct prefix_node *n);
void prefix_cache_unlock(struct prefix_cache *c, struct prefix_node *n);

/* prefix_cache_pin adds a pin to a slot of the tree or of a request; prefix_cache_unpin takes one away. A pinned slot
 * is not evicted, and neither is its node. If the slot leaves the tree otherwise (prefix_cache_retire), the pool does
 * not give it out before its last pin is gone. */
void prefix_cache_pin(struct prefix_cache *c, uint32_t slot);
void prefix_cache_unpin(struct prefix_cache *c, uint32_t slot);

/* ---- growing ---- */

/* Adds n_pages whole pages of one origin behind `node`, which the caller has locked: tokens [n_pages * page_tokens] and
 * the page ids, pages [n_pages]. The caller gives its references to the pages away. If the tree already had some of the
 * pages, the caller's are put back, and pages[] is changed to the tree's. Returns the node at the end of the pages, to
 * which the lock moves. NULL, and nothing changed: the host is out of memory, the origin is not 0 and decoded pages are
 * refused, or the path would have more than UINT32_MAX tokens. */
struct prefix_node *prefix_cache_extend(struct prefix_cache *c, struct prefix_node *node,
					const int32_t *tokens, uint32_t *pages, uint32_t n_pages,
					uint64_t origin) MUST_CHECK;

/* Why a state was kept, the best reason first: a checkpoint that was added for two reasons has the better one. */
enum prefix_checkpoint {
	/* at a prompt's end, rounded down to state_tokens, where the next request of the same conversation is likely to
	 * resume; also every state that was loaded from the store */
	PREFIX_CHECKPOINT_PROMPT,
	PREFIX_CHECKPOINT_MESSAGE, /* at a turn's end, or where two prompts part */
	PREFIX_CHECKPOINT_CHUNK,   /* where a window of a prefill ended */
	PREFIX_CHECKPOINT_DECODE,  /* while generating */
};

/* Adds a checkpoint to a node that the caller has locked and whose end is a multiple of state_tokens. The slot is
 * taken; if the node has a checkpoint already, this slot is put back. The state must have been written, or the command
 * that writes it must be queued on the device before any command that reads it. */
void prefix_cache_checkpoint(struct prefix_cache *c, struct prefix_node *n, uint32_t slot,
			     enum prefix_checkpoint kind);

/* Removes the node's checkpoint if it is of the kind DECODE, was never hit, and was added only once; otherwise does
 * nothing. It is called for the request that left this checkpoint, when that request has a newer state to leave and
 * before the node is extended. Then the node's edge can grow; behind a checkpoint the extension would be a new node. */
void prefix_cache_retire(struct prefix_cache *c, struct prefix_node *n);

uint32_t prefix_node_tokens(const struct prefix_node *n); /* tokens from the root to its end */
bool prefix_node_has_checkpoint(const struct prefix_node *n);
uint32_t prefix_node_slot(const struct prefix_node *n); /* POOL_NONE: it has no checkpoint */

/* Writes the origin of each page from the root to the node's end to origins [prefix_node_tokens(n) / page_tokens]. */
void prefix_cache_origins(const struct prefix_cache *c, const struct prefix_node *n,
			  uint64_t *origins);

/* ---- marks ---- */

/* prefix_cache_mark marks a page or slot of the tree, or takes the mark away, for scheduler/tiering.h;
 * prefix_cache_marked returns whether it is marked. A page or slot that leaves the tree loses its mark. So a caller
 * that finds its mark knows that the id still has the same content. Marking a page or slot that is not in the tree does
 * nothing. */
void prefix_cache_mark(struct prefix_cache *c, enum tier_kind kind, uint32_t id, bool mark);
bool prefix_cache_marked(const struct prefix_cache *c, enum tier_kind kind, uint32_t id);

/* Returns the tokens [page_tokens] of a page of the tree; borrowed until the tree changes. */
const int32_t *prefix_cache_page_tokens(const struct prefix_cache *c, uint32_t page);

/* ---- memory ---- */

/* Returns whether n_pages pages and n_slots slots could be taken, if need be by eviction. beside: a match that is going
 * to be used first, so that its pages and slot cannot be evicted; NULL: none. Changes nothing. */
bool prefix_cache_can_take(const struct prefix_cache *c, const struct prefix_match *beside,
			   uint64_t n_pages, uint64_t n_slots);

/* Takes a page or slot for a request, with one reference; evicts when it has to. POOL_NONE: none can be freed, or
 * budget_bytes allows no more. */
uint32_t prefix_cache_take_page(struct prefix_cache *c) MUST_CHECK;
uint32_t prefix_cache_take_slot(struct prefix_cache *c) MUST_CHECK;

/* prefix_cache_ref_page adds a request's reference to a page, for another choice or for a ship of the page.
 * prefix_cache_put_page and prefix_cache_put_slot give back a reference that was not handed over to the tree. The page
 * may be in the tree by then, the slot may not. */
void prefix_cache_ref_page(struct prefix_cache *c, uint32_t page);
void prefix_cache_put_page(struct prefix_cache *c, uint32_t page);
void prefix_cache_put_slot(struct prefix_cache *c, uint32_t slot);

/* Empties the tree, and forgets what was evicted. -EBUSY, and nothing changed: a node is locked, a slot is pinned, or
 * a request holds memory. */
int prefix_cache_flush(struct prefix_cache *c) MUST_CHECK;

/* For tests: shuffles the ids of pages and of slots (pool_shuffle). -EBUSY unless all of them are free. */
int prefix_cache_shuffle(struct prefix_cache *c, uint64_t seed) MUST_CHECK;

/* ---- statistics and views ---- */

struct prefix_stats {
	uint64_t nodes, spaces;
	uint64_t free_pages, free_slots; /* free in the pools */
	uint64_t tree_pages, tree_slots; /* held by the tree */
	/* how many of the tree's pages and slots could be evicted: the pages of unlocked nodes, except those to which
	 * a request has a reference; the slots that are not pinned */
	uint64_t evictable_pages, evictable_slots;
	uint64_t used_bytes;		       /* bytes of requests and tree */
	uint64_t evicted_pages, evicted_slots; /* since the start */
	uint64_t evicted_unhit_slots;	       /* evicted checkpoints that were never hit */
};

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_stats *ret);

/* A node, as prefix_cache_walk shows it. Nodes come after their parents, and after their older siblings (radix.h). */
struct prefix_view {
	uint64_t id, parent; /* ids count from 1 in order of creation; parent 0: the space */
	uint32_t depth;	     /* tokens from the root to its end */
	const int32_t *tokens;
	const uint32_t *pages;
	uint32_t n_tokens, n_pages;
	uint32_t slot;	    /* POOL_NONE: none */
	uint64_t hits, age; /* age: time since its last use */
	uint32_t locks;
	uint64_t origin;
	enum prefix_checkpoint kind; /* if it has a slot */
	struct prefix_space space;
};

/* Calls `see` for every node but the root and the spaces, until it returns false. `see` must not change the cache. The
 * arrays of a view are borrowed until the cache changes. */
void prefix_cache_walk(const struct prefix_cache *c,
		       bool (*see)(void *arg, const struct prefix_view *v), void *arg);

/* Asserts the invariants of the cache (for tests, because it is slow). */
void prefix_cache_check(const struct prefix_cache *c);
