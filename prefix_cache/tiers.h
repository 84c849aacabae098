/*
 * What is known below the device: which KV pages and states exist in host memory or on disk, by
 * content. An index only: where the bytes are and how they get there is the store's business
 * (engine/store/).
 *
 * An item is one page or one state, named by
 *     key      of all tokens from the beginning to the end of its page (a chain of hashes that
 * nobody can aim) origin  how they were computed (prefix_cache.h); pages of equal tokens and
 * different origins are different items and it says which origin its predecessor has, so that a
 * path is found page by page:
 *
 *     key 1, origin 0 ──> key 2, origin 0 ──┬─> key 3, origin 0
 *     page                 page, state        └─> key 3, origin 7  (parent's origin 0)
 *                                                 page, state
 *
 * Where a path can be taken up again there is a state, and pages for all of it. One thread.
 */
#ifndef PREFIX_CACHE_TIERS_H
#define PREFIX_CACHE_TIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct content_key {
	uint64_t v[2];
};

enum tier_kind { TIER_PAGE, TIER_STATE };

struct tier_item {
	struct content_key key;
	uint64_t origin, parent_origin; /* of the page before; 0 for the first */
	enum tier_kind kind;
};

struct tiers;

/* Empty; NULL when out of memory. */
struct tiers *tiers_new(void) MUST_CHECK;
void tiers_free(struct tiers *t);

/* An item is there / is not (any more). Adding one that is there, and removing one that is not, is
 * nothing. -ENOMEM. */
int tiers_add(struct tiers *t, const struct tier_item *item) MUST_CHECK;
void tiers_remove(struct tiers *t, const struct tier_item *item);

void tiers_clear(struct tiers *t);

bool tiers_has(const struct tiers *t, const struct tier_item *item);
size_t tiers_count(const struct tiers *t, enum tier_kind kind);

/*
 * How far a prompt could be resumed with items: keys [n] are those of its pages, of which the first
 * `from` are on the device, with `origin` at their end. Returns a number of pages > from, at whose
 * end there is a state (unless !needs_state) and which is a multiple of pages_a_state, with all
 * pages there; else `from`. origins [n] are those of the pages from there on; path [n] is work
 * space. clean_only: only what was prefilled throughout.
 */
uint32_t tiers_match(const struct tiers *t, const struct content_key *keys, uint32_t n,
		     uint32_t from, uint64_t origin, uint32_t pages_a_state, bool needs_state,
		     bool clean_only, uint64_t *path, uint64_t *origins);

#endif
