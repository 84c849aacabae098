/* A mirror: the nodes of a prefix cache in a flat list, each with its whole path, as prefix_cache_walk shows them. The
 * rules of matching are applied to this list by trying every node. */
#pragma once

#include "prefix_cache/prefix_cache.h"

enum {
	MIRROR_LEN = 96,    /* tokens of the longest path */
	MIRROR_NODES = 128, /* nodes at the same time */
	MIRROR_ENDS = 128,  /* places where a request could begin */
};

struct mirror_node {
	uint64_t id;
	struct prefix_space space;
	uint32_t start, depth; /* the node's own tokens are [start, depth) of its path */
	uint32_t slot, locks;
	int32_t tokens[MIRROR_LEN]; /* [depth] of the whole path */
	/* [depth / page_tokens] of the pages of the path */
	uint64_t origin[MIRROR_LEN];
	uint32_t pages[MIRROR_LEN];
};

struct mirror {
	uint32_t page_tokens, state_tokens;
	uint32_t n;
	struct mirror_node nodes[MIRROR_NODES];
};

void mirror_take(struct mirror *m, const struct prefix_cache *c,
		 const struct prefix_cache_config *config);

/* A prompt to look for. Unless `any` is set, a page matches only with the right origin: 0 if it ends at n_prompt or
 * before, else `decoded`. */
struct mirror_key {
	const int32_t *tokens;
	uint32_t n_tokens, n_prompt;
	struct prefix_space space;
	bool any;
	uint64_t decoded;
};

/* A place where a request could begin: behind the first n_tokens tokens of its prompt. n_known: the tokens of the
 * longest prefix that has pages, whether a request can resume it or not. */
struct mirror_end {
	const struct mirror_node *node; /* node whose path has the match; NULL: the match is at 0 */
	uint32_t n_tokens, n_known;
};

/* *ret_known: the tokens of the longest prefix that has pages. *ret_tokens: the tokens of the longest prefix that a
 * request can resume. */
void mirror_match(const struct mirror *m, const struct mirror_key *key, uint32_t *ret_known,
		  uint32_t *ret_tokens);

/* Writes the places where a request could begin at some moment between two states of the cache. If `before` and `after`
 * give the same match, these are the match alone, once for each path that has it. Otherwise they are all places between
 * the two matches. Returns their number. */
uint32_t mirror_ends(const struct mirror *before, const struct mirror *after,
		     const struct mirror_key *key, struct mirror_end out[MIRROR_ENDS]);

/* Returns a node whose path begins with n_pages pages of these tokens and these origins [n_pages]; NULL: there is
 * none. */
const struct mirror_node *mirror_find(const struct mirror *m, const struct prefix_space *space,
				      const int32_t *tokens, const uint64_t *origin,
				      uint32_t n_pages);

/* Returns a hash of the page that ends at `depth` on a node's path. It covers all tokens up to `depth` and their space;
 * with with_origin also the origins of all pages up to there. */
uint64_t mirror_name(const struct mirror *m, const struct mirror_node *n, uint32_t depth,
		     bool with_origin);

/* Returns the hash of a page by the tokens of a prompt, as mirror_name without with_origin. */
uint64_t mirror_name_of(const struct prefix_space *space, const int32_t *tokens, uint32_t depth);
