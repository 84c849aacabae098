/* The radix tree: its nodes and edges, and how a child is found. Locks and the order of eviction are the work of other
 * files, which keep their data in the nodes.
 *
 * An edge is one block of memory with three arrays, so that a walk compares tokens with memcmp:
 *
 *     hashes [cap]                 of all tokens from the space to the end of each page
 *     tokens [cap * page_tokens]
 *     pages  [cap]                 page ids
 *
 * Children are found through one hash map over the whole tree, keyed by the hash of the path up to the end of the
 * child's first page. So a search among 10,000 children costs as much as one among two. Children whose first pages have
 * equal tokens and different origins (*variants*) have the same hash. They stand in the map in the order in which a
 * match tries them: origin 0 first, then by age. From the start the map has a bucket for every page of the pool, and
 * it never grows: every node but a space owns at least one page. (Spaces are found through the same map.)
 *
 * A hash only finds candidates; the tokens are compared. The hashes are keyed by a random number, if the system has
 * one at the start, so that clients cannot choose prompts whose hashes collide.
 *
 *     parent->n_children == number of children;  siblings stand in the order of age, the oldest first
 *     node->depth == parent->depth + node->n_pages * page_tokens;  only the root and spaces have no page
 *
 * The age of a node is that of the first page of its edge: when an edge is split, the new node of its beginning takes
 * the old place among the siblings.
 *
 * Source: Morrison 1968 (PATRICIA), with pages in place of bits. */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "prefix_cache/evict.h"
#include "prefix_cache/prefix_cache.h"

struct prefix_node {
	struct prefix_node *parent;
	/* children: the oldest first; sibling: the node's place in parent->children */
	struct list children, sibling;
	struct map_node found; /* place in the tree's map */
	/* [n_pages]; the beginning of the block, which is owned; tokens and pages point into it */
	uint64_t *hashes;
	int32_t *tokens; /* [n_pages * page_tokens] */
	uint32_t *pages; /* [n_pages] */
	uint32_t n_pages, cap_pages;
	uint32_t depth; /* tokens from the root to the end */
	uint32_t n_children;
	/* locks of callers, plus 1 if its slot is pinned, plus 1 for every locked child */
	uint32_t locks;
	uint32_t shared; /* pages of the edge to which requests have references as well */
	uint64_t id;	 /* from 1 in order of creation; spaces: 0 */
	uint64_t origin;
	uint64_t content;	   /* of a space: its radix_space_content */
	struct prefix_space space; /* of a space */
	uint64_t hits;		   /* calls of prefix_cache_use for this node */
	uint64_t slot_hits;	   /* hits of the checkpoint that it has now */
	uint64_t used;		   /* time of the last node_touch */
	uint32_t slot;		   /* POOL_NONE: none */
	enum prefix_checkpoint kind;
	bool slot_common;   /* its present checkpoint was added more than once */
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

/* Returns the hash of a path that is one page longer than a path with the hash `before`: tokens [page_tokens] are those
 * of the page. */
uint64_t radix_page_hash(const struct radix *t, uint64_t before, const int32_t *tokens);

/* radix_space_content returns the hash with which the paths of a space begin; radix_content returns the hash of the
 * path to the end of a node. */
uint64_t radix_space_content(const struct radix *t, const struct prefix_space *s);
uint64_t radix_content(const struct prefix_node *n);

/* Returns the number of tokens from the root to the beginning of the node's edge. */
static inline uint32_t radix_start(const struct radix *t, const struct prefix_node *n)
{
	return n->depth - n->n_pages * t->page_tokens;
}

/* radix_find_space returns the node of a space; NULL: it has none. radix_add_space adds one; NULL: out of memory. */
struct prefix_node *radix_find_space(const struct radix *t, const struct prefix_space *s);
struct prefix_node *radix_add_space(struct radix *t, const struct prefix_space *s) MUST_CHECK;

/* These two go through the children of `parent` that begin with the page `tokens` (variants), in the order in which a
 * match tries them. radix_first returns the first one, radix_next_variant the one after n. NULL: there is no further
 * one. `hash` is the radix_page_hash at the end of the page. */
struct prefix_node *radix_first(const struct radix *t, const struct prefix_node *parent,
				const int32_t *tokens, uint64_t hash);
struct prefix_node *radix_next_variant(const struct radix *t, const struct prefix_node *n);

/* Returns the variant with this origin, or NULL. */
struct prefix_node *radix_find(const struct radix *t, const struct prefix_node *parent,
			       const int32_t *tokens, uint64_t hash, uint64_t origin);

/* Returns how many of the edge's first pages, at most max, equal these tokens. */
uint32_t radix_equal_pages(const struct radix *t, const struct prefix_node *n,
			   const int32_t *tokens, uint32_t max);

/* Makes a node that is in no tree, with room for n_pages pages; NULL when out of memory. radix_free_node frees it. */
struct prefix_node *radix_new_node(const struct radix *t, uint32_t n_pages) MUST_CHECK;
void radix_free_node(struct prefix_node *n);

/* Fills n, a new node, and adds it as the youngest child of `parent`; takes n. */
void radix_hang(struct radix *t, struct prefix_node *parent, struct prefix_node *n,
		const int32_t *tokens, const uint32_t *pages, uint32_t n_pages, uint64_t origin);

/* Splits n's edge after k pages (0 < k < n_pages). `prefix`, a new node with room for k pages, gets those pages and n's
 * place below its parent, and n becomes the child of `prefix`. n keeps its locks, slot and hits. If n is locked,
 * `prefix` gets the lock that a locked child adds. */
void radix_split(struct radix *t, struct prefix_node *n, uint32_t k, struct prefix_node *prefix);

/* Adds pages to the edge of a node without children. -ENOMEM, and nothing changed. */
int radix_append(struct radix *t, struct prefix_node *n, const int32_t *tokens,
		 const uint32_t *pages, uint32_t n_pages) MUST_CHECK;

/* Removes a node without children and frees it. */
void radix_remove(struct radix *t, struct prefix_node *n);

/* Returns the node after n in a walk over the whole tree: parents come before their children, and older children before
 * younger ones. NULL after the last. A walk begins with the root. */
struct prefix_node *radix_walk(const struct prefix_node *n);

/* Returns the leaf that is reached from n through youngest children; n itself if it has no child. */
struct prefix_node *radix_youngest_leaf(struct prefix_node *n);
