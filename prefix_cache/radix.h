/* The radix tree: its nodes and edges, and how a child is found. Pools, locks and the order of eviction are the work
 * of other files, which keep their data in the nodes.
 *
 * An edge is one block of memory with three arrays, so that a walk compares tokens with memcmp:
 *
 *     hashes [cap]                 of all tokens from the space to the end of each page
 *     tokens [cap * page_tokens]
 *     pages  [cap]                 page ids
 *
 * Children are found through one hash map over the whole tree, keyed by the hash of the path up to the end of the
 * child's first page: a node with 10,000 children costs as much as one with two. Children whose first pages have
 * equal tokens and different origins (*variants*) have the same hash. They stand in the map in the order in which a
 * match tries them: origin 0 first, then by age. The map has a bucket for every page from the start and never grows:
 * every node but a space owns at least one page. (Spaces are found through the same map.)
 *
 * A hash only finds candidates; the tokens are compared. The hashes are keyed by a random number, so that clients
 * cannot choose prompts whose hashes collide.
 *
 *     parent->n_children == number of children;  siblings are in the order of age
 *     node->depth == parent->depth + node->n_pages * page_tokens;  only the root and spaces have no page
 *
 * Source: Morrison 1968 (PATRICIA), with pages in place of bits. */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "prefix_cache/evict.h"
#include "prefix_cache/prefix_cache.h"

struct prefix_node {
	struct prefix_node *parent;
	struct list children, sibling; /* children, oldest first; node in the parent's list */
	struct map_node found;	       /* place in the tree's map */
	/* [n_pages]; the beginning of the block, which is owned; tokens and pages point into it */
	uint64_t *hashes;
	int32_t *tokens; /* [n_pages * page_tokens] */
	uint32_t *pages; /* [n_pages] */
	uint32_t n_pages, cap_pages;
	uint32_t depth; /* tokens from the root to the end */
	uint32_t n_children;
	uint32_t locks;	 /* locks of callers, one for a pinned slot, one for every locked child */
	uint32_t shared; /* pages of the edge to which requests have references as well */
	uint64_t id;	 /* from 1 in order of creation; spaces: 0 */
	uint64_t origin;
	uint64_t content;	   /* of a space: start of its children's hashes */
	struct prefix_space space; /* of a space */
	uint64_t hits;		   /* calls of prefix_cache_use for this node */
	uint64_t slot_hits;	   /* those of them for the checkpoint that it has now */
	uint64_t used;		   /* time of the last node_touch */
	uint32_t slot;		   /* POOL_NONE: none */
	enum prefix_checkpoint kind;
	bool slot_common;   /* a checkpoint was added here more than once */
	bool state_evicted; /* its last checkpoint was evicted */
	struct evict_seat seat;
};

struct radix {
	struct prefix_node root;
	struct map nodes;
	uint64_t key[2];
	uint32_t page_tokens;
	uint64_t n_nodes, n_spaces, last_id;
};

/* Makes an empty tree. -ENOMEM. radix_release frees nodes and map. */
int radix_init(struct radix *t, uint32_t page_tokens, uint32_t n_pages) MUST_CHECK;
void radix_release(struct radix *t);

/* The hash at the end of a page, tokens [page_tokens], behind a path whose hash is `before`. */
uint64_t radix_page_hash(const struct radix *t, uint64_t before, const int32_t *tokens);

/* The hash from which the hashes of a space begin, and the hash of the path to the end of a node. */
uint64_t radix_space_content(const struct radix *t, const struct prefix_space *s);
uint64_t radix_content(const struct prefix_node *n);

/* Tokens from the root to the beginning of the node's edge. */
static inline uint32_t radix_start(const struct radix *t, const struct prefix_node *n)
{
	return n->depth - n->n_pages * t->page_tokens;
}

/* radix_find_space: the space's node; NULL: it has none. radix_add_space: a new one; NULL: out of memory. */
struct prefix_node *radix_find_space(const struct radix *t, const struct prefix_space *s);
struct prefix_node *radix_add_space(struct radix *t, const struct prefix_space *s) MUST_CHECK;

/* The children of `parent` that begin with this page (variants), in the order in which a match tries them: the first
 * one, and the one after n. NULL: there is no further one. `hash` is the radix_page_hash at the end of the page. */
struct prefix_node *radix_first(const struct radix *t, const struct prefix_node *parent,
				const int32_t *tokens, uint64_t hash);
struct prefix_node *radix_next_variant(const struct radix *t, const struct prefix_node *n);

/* The variant with this origin, or NULL. */
struct prefix_node *radix_find(const struct radix *t, const struct prefix_node *parent,
			       const int32_t *tokens, uint64_t hash, uint64_t origin);

/* How many of the edge's first pages, at most max, equal these tokens. */
uint32_t radix_equal_pages(const struct radix *t, const struct prefix_node *n,
			   const int32_t *tokens, uint32_t max);

/* A new node, in no tree, with room for n_pages pages; NULL when out of memory. radix_free_node frees it. */
struct prefix_node *radix_new_node(const struct radix *t, uint32_t n_pages) MUST_CHECK;
void radix_free_node(struct prefix_node *n);

/* Fills n, a new node, and adds it as the youngest child of `parent`; takes n. */
void radix_hang(struct radix *t, struct prefix_node *parent, struct prefix_node *n,
		const int32_t *tokens, const uint32_t *pages, uint32_t n_pages, uint64_t origin);

/* Splits n's edge after k pages (0 < k < n_pages). `prefix`, a new node with room for k pages, gets those pages and
 * n's place below its parent, and n becomes its child. n keeps its locks, slot and hits; if n is locked, the prefix
 * gets the lock that a locked child adds. */
void radix_split(struct radix *t, struct prefix_node *n, uint32_t k, struct prefix_node *prefix);

/* Adds pages to the edge of a node without children. -ENOMEM, and nothing changed. */
int radix_append(struct radix *t, struct prefix_node *n, const int32_t *tokens,
		 const uint32_t *pages, uint32_t n_pages) MUST_CHECK;

/* Removes a node without children and frees it. */
void radix_remove(struct radix *t, struct prefix_node *n);

/* The node after n, parents before their children and children by age; NULL after the last. A walk begins with the
 * root. */
struct prefix_node *radix_walk(const struct prefix_node *n);

/* The leaf reached from n through youngest children; n itself if it has no child. */
struct prefix_node *radix_youngest_leaf(struct prefix_node *n);
