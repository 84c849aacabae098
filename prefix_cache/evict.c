#include "prefix_cache/evict.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/heap.h"
#include "prefix_cache/prefix_cache_internal.h"

/* The expected number of further uses of a node, before its hits are added; only the proportions matter. A leaf has 1:
 * usually it is the end of a conversation, whose next request resumes there. A node with several children has 1 too:
 * usually it has been used a second time, so a third use is likely. A node with one child is usually an earlier place
 * of a conversation, which is used again if a client edits an earlier message. Its number is one of those below: more
 * at the end of a prompt or message, where edits begin, than at the end of a prefill window or while generating. */
static const double inner_reuse[] = {
	[PREFIX_CHECKPOINT_PROMPT] = 1.0 / 8,
	[PREFIX_CHECKPOINT_MESSAGE] = 1.0 / 8,
	[PREFIX_CHECKPOINT_CHUNK] = 1.0 / 32,
	[PREFIX_CHECKPOINT_DECODE] = 1.0 / 32,
};

static double expected_uses(const struct prefix_node *n)
{
	double hits = (double)(n->slot == POOL_NONE ? n->hits : n->slot_hits);

	if (n->n_children != 1)
		return 1 + hits;
	/* Usually the first hit is the next request of the conversation, which made this an inner node. So the first
	 * hit does not count. */
	return inner_reuse[n->kind] + (hits > 1 ? hits - 1 : 0);
}

/* REUSE_TIME_FIRST: reuse_time at the start. REUSE_TIME_LATEST: evict_note_return moves reuse_time towards the time
 * that it notes, by the difference divided by this number. */
#define REUSE_TIME_FIRST  64.0
#define REUSE_TIME_LATEST 64.0

void evict_note_return(struct prefix_cache *c, const struct prefix_node *n)
{
	double away = (double)(c->now - n->used);

	if (n->n_pages && !n->locks && !n->n_children)
		c->evict.reuse_time += (away - c->evict.reuse_time) / REUSE_TIME_LATEST;
}

/* ---- the heaps ---- */

bool evict_key_before(const struct evict_key *a, const struct evict_key *b)
{
	if (a->score != b->score)
		return a->score < b->score;
	if (a->hit != b->hit)
		return b->hit;
	if (a->depth != b->depth)
		return a->depth < b->depth;
	if (a->used != b->used)
		return a->used < b->used;
	return a->id < b->id;
}

static bool entry_before(const void *a, const void *b)
{
	return evict_key_before(&((const struct evict_entry *)a)->key,
				&((const struct evict_entry *)b)->key);
}

static void entry_moved(void *entry, size_t place)
{
	((struct evict_entry *)entry)->node->seat.place = (uint32_t)place;
}

static const struct heap_kind by_key = {
	.size = sizeof(struct evict_entry),
	.before = entry_before,
	.moved = entry_moved,
};

static bool init_heap(struct evict_heap *h, uint32_t cap)
{
	*h = (struct evict_heap){.cap = cap, .v = calloc(MAX(cap, 1u), sizeof(*h->v))};
	return h->v;
}

int evict_init(struct evict *e, uint32_t n_pages, uint32_t n_slots)
{
	*e = (struct evict){.reuse_time = REUSE_TIME_FIRST};
	if (!init_heap(&e->heaps[EVICT_BARE], n_pages) ||
	    !init_heap(&e->heaps[EVICT_LEAF], MIN(n_pages, n_slots)) ||
	    !init_heap(&e->heaps[EVICT_STATE], n_slots)) {
		evict_release(e);
		return -ENOMEM;
	}
	return 0;
}

void evict_release(struct evict *e)
{
	for (int g = 0; g < EVICT_GROUPS; g++)
		free(e->heaps[g].v);
	*e = (struct evict){0};
}

enum evict_group evict_group_of(const struct prefix_cache *c, const struct prefix_node *n)
{
	if (!n->n_pages)
		return EVICT_NOT;
	if (!n->locks && !n->n_children)
		return n->slot == POOL_NONE ? EVICT_BARE : EVICT_LEAF;
	return n->slot != POOL_NONE && !c->pins[n->slot] ? EVICT_STATE : EVICT_NOT;
}

/* Returns the number of tokens that would have to be computed again without this node: from the nearest checkpoint
 * above it, or the prompt's beginning if there is none (without states: from its own beginning), to its end. */
static uint32_t tokens_lost(const struct prefix_cache *c, const struct prefix_node *n)
{
	const struct prefix_node *above = n->parent;

	if (c->config.state_tokens)
		while (above->n_pages && above->slot == POOL_NONE)
			above = above->parent;
	return n->depth - above->depth;
}

/* Computes the key that the node should have now. */
static void key_of(const struct prefix_cache *c, const struct prefix_node *n, struct evict_key *ret)
{
	enum evict_group group = evict_group_of(c, n);
	double bytes = 0;

	*ret = (struct evict_key){
		.used = n->used,
		.id = n->id,
		.depth = group == EVICT_STATE ? n->depth : UINT32_MAX,
		.hit = n->slot == POOL_NONE ? n->hits > 0 : n->slot_hits > 0,
	};
	if (group == EVICT_BARE && c->config.state_tokens) {
		ret->score = -INFINITY;
		return;
	}
	if (group != EVICT_STATE)
		bytes += (double)c->config.page_bytes * n->n_pages;
	if (group != EVICT_BARE)
		bytes += (double)c->config.slot_bytes;
	ret->score =
		(double)n->used +
		c->evict.reuse_time * log(expected_uses(n) * tokens_lost(c, n) / MAX(bytes, 1.0));
}

void evict_leave(struct prefix_cache *c, struct prefix_node *n)
{
	struct evict_heap *h = &c->evict.heaps[n->seat.group];

	if (n->seat.group == EVICT_NOT)
		return;
	assert(h->v[n->seat.place].node == n);
	heap_take(&by_key, h->v, h->n--, n->seat.place);
	n->seat.group = EVICT_NOT;
}

/* Changes the key of the node at this place of the heap, and moves the node to where it belongs then. */
static void change_key(struct evict_heap *h, uint32_t place, const struct evict_key *key)
{
	h->v[place].key = *key;
	heap_settle(&by_key, h->v, h->n, place);
}

static void place(struct prefix_cache *c, struct prefix_node *n, bool rescore)
{
	enum evict_group group = evict_group_of(c, n);
	struct evict_heap *h = &c->evict.heaps[group];
	struct evict_entry entry = {.node = n};

	if (group == n->seat.group && (!rescore || group == EVICT_NOT))
		return;
	if (group != EVICT_NOT)
		key_of(c, n, &entry.key);
	if (group == n->seat.group) {
		change_key(h, n->seat.place, &entry.key);
		return;
	}
	evict_leave(c, n);
	n->seat.group = group;
	if (group == EVICT_NOT)
		return;
	assert(h->n < h->cap);
	heap_add(&by_key, h->v, h->n++, &entry);
}

void evict_place(struct prefix_cache *c, struct prefix_node *n)
{
	place(c, n, false);
}

void evict_rescore(struct prefix_cache *c, struct prefix_node *n)
{
	place(c, n, true);
}

/* The most scores of a group that are corrected for one eviction, which bounds its cost. */
enum { CORRECTIONS_MAX = 16 };

/* Returns the node of a group to evict first, after at most CORRECTIONS_MAX scores were corrected (evict.h); NULL: the
 * group is empty. */
static const struct evict_entry *first_of(struct prefix_cache *c, enum evict_group group)
{
	struct evict_heap *h = &c->evict.heaps[group];

	for (int i = 0; i < CORRECTIONS_MAX && h->n; i++) {
		struct evict_key key;

		key_of(c, h->v[0].node, &key);
		if (!evict_key_before(&h->v[0].key, &key))
			break;
		change_key(h, 0, &key);
	}
	return h->n ? h->v : NULL;
}

/* Evicts the node of these groups that comes first; if it is in EVICT_STATE, only its slot. At least one of the groups
 * must have a node. */
static void evict_one(struct prefix_cache *c, const enum evict_group *groups, unsigned int n_groups)
{
	const struct evict_entry *first = NULL;
	struct prefix_node *n;

	for (unsigned int i = 0; i < n_groups; i++) {
		const struct evict_entry *e = first_of(c, groups[i]);

		if (e && (!first || evict_key_before(&e->key, &first->key)))
			first = e;
	}
	assert(first);
	n = first->node;
	if (n->slot != POOL_NONE) {
		c->evicted_slots++;
		c->evicted_unhit_slots += !n->slot_hits;
	}
	if (n->seat.group == EVICT_STATE) {
		n->state_evicted = true;
		pool_put(c->slots, tree_detach(c, n));
		return;
	}
	c->evicted_pages += n->n_pages;
	for (uint32_t i = 0; i < n->n_pages; i++)
		ghosts_add(&c->ghosts, n->hashes[i]);
	tree_drop_leaf(c, n);
}

/* Returns whether so many more pages and slots would exceed the budget. */
static bool over_budget(const struct prefix_cache *c, uint32_t n_pages, uint32_t n_slots)
{
	struct prefix_stats s;

	if (!c->config.budget_bytes)
		return false;
	prefix_cache_stats(c, &s);
	return (unsigned __int128)s.used_bytes + (unsigned __int128)n_pages * c->config.page_bytes +
		       (unsigned __int128)n_slots * c->config.slot_bytes >
	       c->config.budget_bytes;
}

bool evict_make_room(struct prefix_cache *c, uint32_t n_pages, uint32_t n_slots)
{
	static const enum evict_group for_page[] = {EVICT_BARE, EVICT_LEAF},
				      for_slot[] = {EVICT_LEAF, EVICT_STATE},
				      for_bytes[] = {EVICT_BARE, EVICT_LEAF, EVICT_STATE};

	if (!prefix_cache_can_take(c, NULL, n_pages, n_slots))
		return false;
	while (pool_available(c->pages) < n_pages)
		evict_one(c, for_page, ARRAY_SIZE(for_page));
	while (pool_available(c->slots) < n_slots)
		evict_one(c, for_slot, ARRAY_SIZE(for_slot));
	while (over_budget(c, n_pages, n_slots))
		evict_one(c, for_bytes, ARRAY_SIZE(for_bytes));
	return true;
}
