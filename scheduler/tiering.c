#include "scheduler/tiering.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- stores ---- */

/* Queues page or slot `id` of the tree to be stored, unless the store has the item. */
static void add_store(struct scheduler *s, uint32_t id, const struct tier_item *item,
		      const struct content_key *parent, uint32_t depth)
{
	struct waiting_store *w = &s->stores[item->kind == TIER_PAGE ? id : s->config.n_pages + id];

	/* an id that is marked is in the queue already */
	if (tiers_has(s->tiers, item) || prefix_cache_marked(s->cache, item->kind, id))
		return;
	prefix_cache_mark(s->cache, item->kind, id, true);
	w->item = *item;
	w->parent = *parent;
	w->depth = depth;
	w->id = id;
	if (w->node.next) {
		/* the item that was queued for this id has left the tree; this one takes its place in the queue */
		s->stats.stores_dropped++;
		return;
	}
	list_append(&s->store_queue, &w->node);
	s->n_stores++;
}

/* Takes the first item out of the queue. NULL: its page or slot has left the tree meanwhile. */
static const struct waiting_store *take_store(struct scheduler *s)
{
	struct waiting_store *w = list_first(&s->store_queue, struct waiting_store, node);
	bool there = prefix_cache_marked(s->cache, w->item.kind, w->id);

	list_remove(&w->node);
	w->node.next = NULL;
	s->n_stores--;
	prefix_cache_mark(s->cache, w->item.kind, w->id, false);
	return there ? w : NULL;
}

/* Returns the key of page i of q. before: the key of page i - 1. */
static struct content_key next_key(struct scheduler *s, const struct sequence *q, uint32_t i,
				   const struct content_key *before)
{
	const struct request *r = q->request;
	uint32_t P = s->config.page_tokens;
	struct content_key key;

	if (i < r->ask.n_prompt / P)
		return r->ask.page_keys[i];
	request_tokens(q, i * P, P, s->page);
	s->config.content_key(before, s->page, P, &key);
	return key;
}

void tiering_resume(struct scheduler *s, struct sequence *q, uint32_t n_pages, uint64_t origin)
{
	uint32_t whole = q->request->ask.n_prompt / s->config.page_tokens, i = MIN(n_pages, whole);

	q->tree_origin = origin;
	if (!tiering(s, q->request))
		return;
	q->tree_key = i ? q->request->ask.page_keys[i - 1] : q->request->ask.root_key;
	for (; i < n_pages; i++)
		q->tree_key = next_key(s, q, i, &q->tree_key);
}

void tiering_published(struct scheduler *s, struct sequence *q, uint32_t first, uint32_t n,
		       uint64_t origin)
{
	if (!tiering(s, q->request))
		return;
	for (uint32_t i = first; i < first + n; i++) {
		const struct tier_item item = {.key = next_key(s, q, i, &q->tree_key),
					       .origin = origin,
					       .parent_origin = q->tree_origin,
					       .kind = TIER_PAGE};

		add_store(s, q->pages[i], &item, &q->tree_key, (i + 1) * s->config.page_tokens);
		q->before_key = q->tree_key;
		q->before_origin = q->tree_origin;
		q->tree_key = item.key;
		q->tree_origin = origin;
	}
}

void tiering_checkpoint(struct scheduler *s, struct sequence *q, const struct prefix_node *node)
{
	const struct tier_item item = {.key = q->tree_key,
				       .origin = q->tree_origin,
				       .parent_origin = q->before_origin,
				       .kind = TIER_STATE};
	uint32_t slot = prefix_node_slot(node), depth = prefix_node_tokens(node);

	if (tiering(s, q->request) && slot != POOL_NONE &&
	    depth == q->n_tree * s->config.page_tokens)
		add_store(s, slot, &item, &q->before_key, depth);
}

bool scheduler_next_store(struct scheduler *s, struct scheduler_item *ret)
{
	while (s->n_stores) {
		const struct waiting_store *w = take_store(s);

		s->stats.stores_dropped += !w;
		if (!w || tiers_has(s->tiers, &w->item) || tiers_add(s->tiers, &w->item) < 0)
			continue;
		*ret = (struct scheduler_item){
			.item = w->item,
			.parent = w->parent,
			.depth = w->depth,
			.tokens = w->item.kind == TIER_PAGE
					  ? prefix_cache_page_tokens(s->cache, w->id)
					  : NULL,
			.id = w->id,
		};
		return true;
	}
	return false;
}

void tiering_drop_stores(struct scheduler *s)
{
	while (s->n_stores)
		(void)take_store(s);
}

/* ---- uses ---- */

/* Adds a use to the ring. A full ring loses its oldest entry: tiering_used adds the end of a path first, and the
 * beginning of a path is worth more. */
static void add_use(struct scheduler *s, const struct tier_item *item)
{
	s->uses[(s->first_use + s->n_uses) % USES_MAX] = *item;
	if (s->n_uses < USES_MAX)
		s->n_uses++;
	else
		s->first_use = (s->first_use + 1) % USES_MAX;
}

void tiering_used(struct scheduler *s, const struct request *r, const struct prefix_node *path)
{
	uint32_t n = prefix_node_tokens(path) / s->config.page_tokens,
		 whole = r->ask.n_prompt / s->config.page_tokens;
	struct tier_item item;

	if (!n || !tiering(s, r))
		return;
	prefix_cache_origins(s->cache, path, s->tier_origins);
	/* Pages behind the prompt have tokens that the request generated itself. They were stored lately, so their use
	 * is not reported. */
	for (uint32_t i = MIN(n, whole); i-- > 0;) {
		item = (struct tier_item){.key = r->ask.page_keys[i],
					  .origin = s->tier_origins[i],
					  .kind = TIER_STATE};
		if (i + 1 == n && prefix_node_has_checkpoint(path))
			add_use(s, &item);
		item.kind = TIER_PAGE;
		add_use(s, &item);
	}
}

uint32_t scheduler_take_uses(struct scheduler *s, struct tier_item *ret, uint32_t max)
{
	uint32_t n = MIN(max, s->n_uses);

	for (uint32_t i = 0; i < n; i++)
		ret[i] = s->uses[(s->first_use + i) % USES_MAX];
	s->first_use = (s->first_use + n) % USES_MAX;
	s->n_uses -= n;
	return n;
}

/* ---- loads ---- */

/* The most loads of one request. After a failed load a shorter one may follow, because the index has forgotten the
 * missing item. But the shorter load reads the earlier items again, so the number of loads is limited. */
enum { LOADS_MAX = 16 };

static struct tier_load *new_load(struct scheduler *s, struct request *r,
				  const struct prefix_match *m, uint32_t n)
{
	uint32_t from = m->n_tokens / s->config.page_tokens;
	struct tier_load *l = malloc(sizeof(*l) + (n - from) * sizeof(l->pages[0]));

	if (!l)
		return NULL;
	*l = (struct tier_load){.request = r, .from = from, .n = n, .slot = POOL_NONE};
	list_init(&l->node);
	l->path = prefix_cache_use(s->cache, &s->key, m, s->hit_pages);
	if (!l->path) {
		free(l);
		return NULL;
	}
	if (m->slot != POOL_NONE)
		prefix_cache_unpin(s->cache, m->slot);
	for (uint32_t i = from; i < n; i++) {
		l->pages[i - from] =
			(struct load_page){prefix_cache_take_page(s->cache), s->tier_origins[i]};
		assert(l->pages[i - from].id != POOL_NONE);
	}
	l->n_items = n - from;
	if (s->config.n_slots) {
		l->slot = prefix_cache_take_slot(s->cache);
		assert(l->slot != POOL_NONE);
		l->n_items++;
	}
	return l;
}

bool tiering_load(struct scheduler *s, struct request *r, const struct prefix_match *m)
{
	uint32_t P = s->config.page_tokens, from = m->n_tokens / P, n;

	if (!tiering(s, r) || r->admitted || r->loads_over || r->n_loads == LOADS_MAX)
		return false;
	n = tiers_match(s->tiers, r->ask.page_keys, request_reusable(r) / P, from, m->origin,
			s->align / P, s->config.state_tokens,
			s->config.refuse_decoded || request_wants_prefilled(r), s->tier_path,
			s->tier_origins);
	if (n == from || !prefix_cache_can_take(s->cache, m, n - from, s->config.n_slots ? 1 : 0))
		return false;
	r->n_loads++;
	r->load = new_load(s, r, m, n);
	if (!r->load) {
		r->loads_over = true;
		return false;
	}
	waiting_remove(&s->waiting, r);
	list_append(&s->loads, &r->load->node);
	s->stats.loads_begun++;
	return true;
}

/* Frees the load, with the pages and the slot that the tree did not get. */
static void free_load(struct scheduler *s, struct tier_load *l)
{
	for (uint32_t i = l->n_given; i < l->n - l->from; i++)
		prefix_cache_put_page(s->cache, l->pages[i].id);
	if (l->slot != POOL_NONE)
		prefix_cache_put_slot(s->cache, l->slot);
	prefix_cache_unlock(s->cache, l->path);
	list_remove(&l->node);
	l->request->load = NULL;
	free(l);
}

bool tiering_leave(struct scheduler *s, struct request *r)
{
	if (!r->load)
		return false;
	free_load(s, r->load);
	return true;
}

/* Ends a load; its request queues again. */
static void end_load(struct scheduler *s, struct tier_load *l)
{
	struct request *r = l->request;

	s->stats.loads_failed += l->failed;
	r->loads_over |= !l->failed;
	free_load(s, l);
	waiting_insert(&s->waiting, r);
}

void tiering_drop_loads(struct scheduler *s)
{
	while (!list_empty(&s->loads)) {
		struct tier_load *l = container_of(s->loads.next, struct tier_load, node);

		l->failed = l->request->loads_over = true;
		end_load(s, l);
	}
}

/* Returns item i of a load: first come its pages, last the state at their end. */
static struct tier_item load_item(const struct tier_load *l, uint32_t i)
{
	uint32_t n_pages = l->n - l->from, page = MIN(i, n_pages - 1);

	return (struct tier_item){
		.key = l->request->ask.page_keys[l->from + page],
		.origin = l->pages[page].origin,
		.kind = i < n_pages ? TIER_PAGE : TIER_STATE,
	};
}

bool scheduler_next_load(struct scheduler *s, struct scheduler_item *ret)
{
	list_for_each (l, &s->loads, struct tier_load, node) {
		if (l->failed || l->n_asked == l->n_items)
			continue;
		*ret = (struct scheduler_item){.item = load_item(l, l->n_asked),
					       .request = l->request->id,
					       .index = l->n_asked};
		l->n_asked++;
		return true;
	}
	return false;
}

/* To be called when all items have come, or one will not come and the others that were asked for have been answered:
 * hands the items to the tree if all are good, and ends the load. */
static void finish_load(struct scheduler *s, struct tier_load *l)
{
	struct request *r = l->request;
	uint32_t P = s->config.page_tokens, n = l->n - l->from;

	while (!l->failed && l->n_given < n) {
		struct load_page *page = &l->pages[l->n_given];
		struct prefix_node *node =
			prefix_cache_extend(s->cache, l->path,
					    r->ask.prompt + (l->from + l->n_given) * P, &page->id,
					    1, page->origin);

		if (!node)
			break;
		l->path = node;
		l->n_given++;
	}
	if (!l->failed && l->n_given == n && l->slot != POOL_NONE) {
		prefix_cache_checkpoint(s->cache, l->path, l->slot, PREFIX_CHECKPOINT_PROMPT);
		l->slot = POOL_NONE;
	}
	end_load(s, l);
}

/* Returns the load of a request that still waits for item `index`, or NULL. */
static struct tier_load *find_load(const struct scheduler *s, uint64_t request, uint32_t index)
{
	struct request *r = find_request(s, request);
	struct tier_load *l = r ? r->load : NULL;

	return l && index < l->n_asked ? l : NULL;
}

bool scheduler_load_place(const struct scheduler *s, uint64_t request, uint32_t index,
			  uint32_t *ret_id)
{
	const struct tier_load *l = find_load(s, request, index);

	if (!l || l->failed)
		return false;
	*ret_id = index < l->n - l->from ? l->pages[index].id : l->slot;
	return true;
}

void scheduler_loaded(struct scheduler *s, uint64_t request, uint32_t index, bool good)
{
	struct tier_load *l = find_load(s, request, index);

	if (!l)
		return;
	if (!good) {
		struct tier_item item = load_item(l, index);

		if (!l->failed)
			l->request->lost = item.kind == TIER_PAGE ? PREFIX_MISS_EVICTED_PAGE
								  : PREFIX_MISS_EVICTED_STATE;
		l->failed = true;
		tiers_remove(s->tiers, &item);
	}
	if (++l->n_came == l->n_items || (l->failed && l->n_came == l->n_asked))
		finish_load(s, l);
}
