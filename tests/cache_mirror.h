/* The contents of a prefix cache, copied out of prefix_cache_walk into a flat list, every node with its whole path;
 * and the rules of matching, applied to that list by trying every node. */
#pragma once

#include "prefix_cache/prefix_cache.h"

enum {
	MIRROR_LEN = 96,    /* tokens of the longest path */
	MIRROR_NODES = 128, /* nodes at the same time */
	MIRROR_ENDS = 128,  /* different ways to begin a request */
};

struct mirror_node {
	uint64_t id;
	struct prefix_space space;
	uint32_t start, depth; /* the edge is [start, depth) */
	uint32_t slot, locks;
	int32_t tokens[MIRROR_LEN];  /* [depth] */
	uint64_t origin[MIRROR_LEN]; /* [depth / page_tokens] of each page */
	uint32_t pages[MIRROR_LEN];
};

struct mirror {
	uint32_t page_tokens, state_tokens;
	uint32_t n;
	struct mirror_node nodes[MIRROR_NODES];
};

void mirror_take(struct mirror *m, const struct prefix_cache *c,
		 const struct prefix_cache_config *config);

/* The pages to look for. Unless any: pages that end up to n_prompt have origin 0, later ones `decoded`. */
struct mirror_key {
	const int32_t *tokens;
	uint32_t n_tokens, n_prompt;
	struct prefix_space space;
	bool any;
	uint64_t decoded;
};

/* Where a request could begin. */
struct mirror_end {
	const struct mirror_node *node; /* node whose path has the match; NULL: the match is at 0 */
	uint32_t n_tokens, n_known;
};

/* The longest prefix with pages, and the longest that can be resumed. */
void mirror_match(const struct mirror *m, const struct mirror_key *key, uint32_t *ret_known,
		  uint32_t *ret_tokens);

/* Every way to begin between two states of the cache: the matches of `before` and `after` if they agree (more than
 * one if paths are equally good), and otherwise everything in between. Returns their number. */
uint32_t mirror_ends(const struct mirror *before, const struct mirror *after,
		     const struct mirror_key *key, struct mirror_end out[MIRROR_ENDS]);

/* A node whose path begins with these pages; NULL: there is none. [n_pages] origins. */
const struct mirror_node *mirror_find(const struct mirror *m, const struct prefix_space *space,
				      const int32_t *tokens, const uint64_t *origin,
				      uint32_t n_pages);

/* A hash of the page before `depth` on a node's path: of all tokens up to there, with or without how they were
 * computed. */
uint64_t mirror_name(const struct mirror *m, const struct mirror_node *n, uint32_t depth,
		     bool with_origin);

/* The same of a prompt, without origin. */
uint64_t mirror_name_of(const struct prefix_space *space, const int32_t *tokens, uint32_t depth);
