/* A prefix cache simple enough to be right at sight: a list of published pages, each with its tokens, its origin and
 * the page before it. The index of a page in this list is its place. Locks are a list of places. Every look-up goes
 * through the whole lists. The model has no nodes, no edges and no order of eviction: it asks the real cache which
 * pages were evicted, and checks that their eviction was allowed. */
#pragma once

#include "prefix_cache/prefix_cache.h"

enum {
	MODEL_PAGES = 48, /* most pages, and most slots, of a cache */
	MODEL_PAGE_TOKENS = 4,
	MODEL_DEPTH = 16, /* pages of a path, at most */
	MODEL_LOCKS = 64,
	MODEL_GHOSTS = 4096, /* the real cache remembers at least as many */
	MODEL_NONE = -1,     /* in place of a page: the space itself */
};

struct model_page {
	bool used;
	int before; /* place of the page before it, or MODEL_NONE */
	struct prefix_space space;
	int32_t tokens[MODEL_PAGE_TOKENS];
	uint64_t origin, order; /* order: number in the order of publication */
	uint32_t page;
	uint32_t slot; /* POOL_NONE: none */
	uint64_t slot_hits;
	enum prefix_checkpoint kind;
	bool slot_common, state_evicted;
};

/* A path whose last page was evicted. */
struct model_ghost {
	struct prefix_space space;
	uint32_t n;
	int32_t tokens[MODEL_DEPTH * MODEL_PAGE_TOKENS];
};

struct prefix_model {
	struct prefix_cache_config config;
	struct model_page list[MODEL_PAGES];
	uint64_t n_published;
	int locks[MODEL_LOCKS]; /* [n_locks] places that are locked */
	uint32_t n_locks;
	uint32_t page_held[MODEL_PAGES], slot_held[MODEL_PAGES],
		pins[MODEL_PAGES];  /* references of requests, and pins; by id */
	struct model_ghost *ghosts; /* [MODEL_GHOSTS] borrowed */
	uint32_t n_ghosts;
	uint64_t evicted_pages, evicted_slots, evicted_unhit;
};

struct model_match {
	uint32_t n_tokens, n_known, branch, slot;
	uint64_t origin;
	enum prefix_miss miss;
	int place;
};

void model_init(struct prefix_model *m, const struct prefix_cache_config *config,
		struct model_ghost *ghosts);
void model_match(const struct prefix_model *m, const struct prefix_key *key,
		 struct model_match *ret);

/* Writes the ids of the pages from the space to `place`. Returns their number. */
uint32_t model_path(const struct prefix_model *m, int place, uint32_t *pages);

/* Publishes one page after `place` (MODEL_NONE: the space). If the list has an equal page there, *page becomes the id
 * of that one. Returns the place of the published page. */
int model_publish(struct prefix_model *m, const struct prefix_space *space, int place,
		  const int32_t *tokens, uint64_t origin, uint32_t *page);

void model_lock(struct prefix_model *m, int place);
void model_unlock(struct prefix_model *m, int place);
bool model_locked(const struct prefix_model *m, int place);
void model_checkpoint(struct prefix_model *m, int place, uint32_t slot,
		      enum prefix_checkpoint kind);
void model_retire(struct prefix_model *m, int place);

bool model_can_take(const struct prefix_model *m, const struct model_match *beside,
		    uint64_t n_pages, uint64_t n_slots);

/* The nodes and spaces of *ret are 0, because the model has none. */
void model_stats(const struct prefix_model *m, struct prefix_stats *ret);

/* Takes out of the list what the real cache has evicted. Returns NULL, or a sentence that says what was wrong: an
 * eviction that was not allowed, one that is missing, or more ghosts than the model has room for. pages: there was no
 * free page; slots: there was no free slot; both false: the budget in bytes was used up. */
const char *model_follow(struct prefix_model *m, const struct prefix_cache *c, bool pages,
			 bool slots);
