/* The index of the tiers below the device: it tells which KV pages and states exist in host memory or on disk, by their
 * content. The store (engine/store/) has the bytes and moves them.
 *
 * An item is one page or one state. Its name is
 *
 *     key       a hash of the cache_salt and of all tokens up to the item's end; a client cannot choose it
 *     origin    how the page was computed (prefix_cache.h): pages with equal tokens and different origins are different
 *               items
 *     kind      page or state
 *
 * An item also has the origin of the page before, so that a path can be followed page by page:
 *
 *     key 1, origin 0 ──> key 2, origin 0 ──┬─> key 3, origin 0: page
 *     page                page, state       └─> key 3, origin 7: page, state   (origin of the page before: 0)
 *
 * A request can resume at a state if all pages before it exist. In a model without states it can resume behind any page
 * if all pages up to there exist. Only one thread may use an index. */
#pragma once

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
	uint64_t origin;
	uint64_t parent_origin; /* origin of the page before; 0 for the first page */
	enum tier_kind kind;
};

struct tiers;

/* Makes an empty index; NULL when out of memory. */
struct tiers *tiers_new(void) MUST_CHECK;
void tiers_free(struct tiers *t);

/* tiers_add adds an item, or does nothing if the index has it; -ENOMEM. tiers_remove removes an item, or does nothing
 * if the index does not have it. */
int tiers_add(struct tiers *t, const struct tier_item *item) MUST_CHECK;
void tiers_remove(struct tiers *t, const struct tier_item *item);

void tiers_clear(struct tiers *t);

bool tiers_has(const struct tiers *t, const struct tier_item *item);
size_t tiers_count(const struct tiers *t, enum tier_kind kind);

/* Returns how far a prompt could be resumed with items, in pages. keys [n] are those of the prompt's pages; the device
 * has the first `from` pages, the last of them with `origin`. The result is the largest multiple of pages_a_state above
 * `from` up to which all further pages are in the index; if needs_state, a state at its end must be there too. It is
 * `from` if there is no such multiple. clean_only: only prefilled items count (origin 0). origins [n] gets the origins
 * of pages [from, result). path [n] is work space. The search is bounded (tiers.c), so among many origins it may find
 * less. */
uint32_t tiers_match(const struct tiers *t, const struct content_key *keys, uint32_t n,
		     uint32_t from, uint64_t origin, uint32_t pages_a_state, bool needs_state,
		     bool clean_only, uint64_t *path, uint64_t *origins);
