#include "scheduler/tiering.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sharing.h"

/* ---- down ---- */

static void let_go(struct scheduler *s, const struct store *d)
{
	if (d->item.kind == TIER_PAGE)
		prefix_cache_put_page(s->cache, d->id);
	else
		prefix_cache_unpin(s->cache, d->id);
}

static struct store take_store(struct scheduler *s)
{
	struct store d = s->stores[s->first_store];

	s->first_store = (s->first_store + 1) % STORES_MAX;
	s->n_stores--;
	return d;
}

/* tokens: of a page. */
static void add_store(struct scheduler *s, const struct store *d, const int32_t *tokens)
{
	uint32_t at;

	if (tiers_has(s->tiers, &d->item) || tiers_add(s->tiers, &d->item) < 0)
		return;
	if (s->n_stores == STORES_MAX) {
		struct store oldest = take_store(s);

		tiers_remove(s->tiers, &oldest.item);
		let_go(s, &oldest);
		s->stores_dropped++;
	}
	if (d->item.kind == TIER_PAGE)
		prefix_cache_ref_page(s->cache, d->id);
	else
		prefix_cache_pin(s->cache, d->id);
	at = (s->first_store + s->n_stores++) % STORES_MAX;
	s->stores[at] = *d;
	if (tokens)
		memcpy(s->store_tokens + (size_t)at * s->config.page_tokens, tokens,
		       s->config.page_tokens * sizeof(*tokens));
}

/* The key at the end of page i of q, given the one before; its tokens are left in s->page. */
static struct content_key next_key(struct scheduler *s, const struct sequence *q, uint32_t i,
				   const struct content_key *before)
{
	const struct request *r = q->request;
	uint32_t P = s->config.page_tokens;
	struct content_key key;

	request_tokens(q, i * P, P, s->page);
	if (i < r->n_prompt / P)
		return r->page_keys[i];
	s->config.content_key(before, s->page, P, &key);
	return key;
}

void tiering_resume(struct scheduler *s, struct sequence *q, uint32_t n_pages, uint64_t history)
{
	uint32_t whole = q->request->n_prompt / s->config.page_tokens, i = MIN(n_pages, whole);

	q->tree_history = history;
	if (!tiering(s, q->request))
		return;
	q->tree_key = i ? q->request->page_keys[i - 1] : q->request->root_key;
	for (; i < n_pages; i++)
		q->tree_key = next_key(s, q, i, &q->tree_key);
}

void tiering_published(struct scheduler *s, struct sequence *q, uint32_t first, uint32_t n,
		       uint64_t history)
{
	if (!tiering(s, q->request))
		return;
	for (uint32_t i = first; i < first + n; i++) {
		struct store d = {
			.item = {.key = next_key(s, q, i, &q->tree_key),
				 .history = history,
				 .parent_history = q->tree_history,
				 .kind = TIER_PAGE},
			.parent = q->tree_key,
			.depth = (i + 1) * s->config.page_tokens,
			.id = q->pages[i],
		};

		add_store(s, &d, s->page);
		q->before_key = q->tree_key;
		q->before_history = q->tree_history;
		q->tree_key = d.item.key;
		q->tree_history = history;
	}
}

void tiering_checkpoint(struct scheduler *s, struct sequence *q, const struct prefix_node *node)
{
	struct store d = {
		.item = {.key = q->tree_key,
			 .history = q->tree_history,
			 .parent_history = q->before_history,
			 .kind = TIER_STATE},
		.parent = q->before_key,
		.depth = prefix_node_tokens(node),
		.id = prefix_node_slot(node),
	};

	if (tiering(s, q->request) && d.id != POOL_NONE &&
	    d.depth == q->n_tree * s->config.page_tokens)
		add_store(s, &d, NULL);
}

bool scheduler_next_store(struct scheduler *s, struct scheduler_item *ret)
{
	struct store d;

	if (!s->n_stores)
		return false;
	ret->tokens = s->store_tokens + (size_t)s->first_store * s->config.page_tokens;
	d = take_store(s);
	let_go(s, &d);
	*ret = (struct scheduler_item){
		.item = d.item,
		.parent = d.parent,
		.depth = d.depth,
		.tokens = d.item.kind == TIER_PAGE ? ret->tokens : NULL,
		.id = d.id,
	};
	return true;
}

void tiering_drop_stores(struct scheduler *s)
{
	while (s->n_stores) {
		struct store d = take_store(s);

		tiers_remove(s->tiers, &d.item);
		let_go(s, &d);
	}
}

/* ---- up ---- */

static struct load *new_load(struct scheduler *s, struct request *r, const struct prefix_match *m,
			     uint32_t n)
{
	uint32_t from = m->n_tokens / s->config.page_tokens;
	struct load *l = malloc(sizeof(*l) + (n - from) * sizeof(l->pages[0]));

	if (!l)
		return NULL;
	*l = (struct load){.request = r, .from = from, .n = n, .slot = POOL_NONE};
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
			(struct load_page){prefix_cache_take_page(s->cache), s->tier_histories[i]};
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

	if (!tiering(s, r) || r->admitted || r->load_tried)
		return false;
	n = tiers_match(s->tiers, r->page_keys, (r->n_prompt - 1) / P, from, m->history,
			s->align / P, s->config.state_tokens, s->config.refuse_decoded,
			s->tier_path, s->tier_histories);
	if (n == from || !prefix_cache_can_take(s->cache, m, n - from, s->config.n_slots ? 1 : 0))
		return false;
	r->load_tried = true;
	r->load = new_load(s, r, m, n);
	if (!r->load)
		return false;
	waiting_remove(&s->waiting, r);
	list_append(&s->loads, &r->load->node);
	s->loads_begun++;
	return true;
}

/* The pages that are still the load's, and its slot. */
static void free_load(struct scheduler *s, struct load *l)
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

/* Item i of a load: its pages, then the state at the end of the last. */
static struct tier_item load_item(const struct load *l, uint32_t i)
{
	uint32_t n_pages = l->n - l->from, page = MIN(i, n_pages - 1);

	return (struct tier_item){
		.key = l->request->page_keys[l->from + page],
		.history = l->pages[page].history,
		.kind = i < n_pages ? TIER_PAGE : TIER_STATE,
	};
}

bool scheduler_next_load(struct scheduler *s, struct scheduler_item *ret)
{
	list_for_each (node, &s->loads) {
		struct load *l = container_of(node, struct load, node);

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

/* All have come: the tree takes them, as far as they are good. */
static void finish_load(struct scheduler *s, struct load *l)
{
	struct request *r = l->request;
	uint32_t P = s->config.page_tokens, n = l->n - l->from;

	while (!l->failed && l->n_given < n) {
		struct load_page *page = &l->pages[l->n_given];
		struct prefix_node *node =
			prefix_cache_extend(s->cache, l->path,
					    r->prompt + (l->from + l->n_given) * P, &page->id, 1,
					    page->history);

		if (!node)
			break;
		l->path = node;
		l->n_given++;
	}
	if (!l->failed && l->n_given == n && l->slot != POOL_NONE) {
		prefix_cache_checkpoint(s->cache, l->path, l->slot, PREFIX_CHECKPOINT_PROMPT);
		l->slot = POOL_NONE;
	}
	s->loads_failed += l->failed;
	free_load(s, l);
	waiting_insert(&s->waiting, r);
}

bool scheduler_loaded(struct scheduler *s, uint64_t request, uint32_t index, bool good,
		      uint32_t *ret_id)
{
	struct request *r = request_map_find(&s->requests, request);
	struct load *l = r ? r->load : NULL;
	bool wanted;

	if (!l || index >= l->n_asked)
		return false;
	wanted = good && !l->failed;
	if (wanted)
		*ret_id = index < l->n - l->from ? l->pages[index].id : l->slot;
	if (!good) {
		struct tier_item item = load_item(l, index);

		l->failed = true;
		tiers_remove(s->tiers, &item);
	}
	if (++l->n_came == l->n_items || (l->failed && l->n_came == l->n_asked))
		finish_load(s, l);
	return wanted;
}
