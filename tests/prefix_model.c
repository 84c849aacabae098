#include "tests/prefix_model.h"

#include <assert.h>
#include <string.h>

void model_init(struct prefix_model *m, const struct prefix_cache_config *config,
		struct model_ghost *ghosts)
{
	assert(config->n_pages <= MODEL_PAGES && config->n_slots <= MODEL_PAGES);
	assert(config->page_tokens <= MODEL_PAGE_TOKENS);
	memset(m, 0, sizeof(*m));
	m->config = *config;
	m->ghosts = ghosts;
}

static bool same_space(const struct prefix_space *a, const struct prefix_space *b)
{
	return a->id[0] == b->id[0] && a->id[1] == b->id[1];
}

static uint32_t end_of(const struct prefix_model *m, int place)
{
	uint32_t n = 0;

	for (; place != MODEL_NONE; place = m->list[place].before)
		n += m->config.page_tokens;
	return n;
}

uint32_t model_path(const struct prefix_model *m, int place, uint32_t *pages)
{
	uint32_t n = end_of(m, place) / m->config.page_tokens;

	for (uint32_t i = n; i-- > 0; place = m->list[place].before)
		pages[i] = m->list[place].page;
	return n;
}

/* ---- locked, shared, evictable ---- */

static bool is_above(const struct prefix_model *m, int above, int place)
{
	while (place != MODEL_NONE && place != above)
		place = m->list[place].before;
	return place == above;
}

static bool pinned(const struct prefix_model *m, int place)
{
	return m->list[place].slot != POOL_NONE && m->pins[m->list[place].slot];
}

bool model_locked(const struct prefix_model *m, int place)
{
	for (uint32_t i = 0; i < m->n_locks; i++)
		if (m->locks[i] != MODEL_NONE && is_above(m, place, m->locks[i]))
			return true;
	for (int i = 0; i < MODEL_PAGES; i++)
		if (m->list[i].used && pinned(m, i) && is_above(m, place, i))
			return true;
	return false;
}

static bool has_child(const struct prefix_model *m, int place)
{
	for (int i = 0; i < MODEL_PAGES; i++)
		if (m->list[i].used && m->list[i].before == place)
			return true;
	return false;
}

void model_stats(const struct prefix_model *m, struct prefix_stats *ret)
{
	bool page_used[MODEL_PAGES] = {false}, slot_used[MODEL_PAGES] = {false};
	bool locked[MODEL_PAGES] = {false};

	*ret = (struct prefix_stats){
		.evicted_pages = m->evicted_pages,
		.evicted_slots = m->evicted_slots,
		.evicted_unhit_slots = m->evicted_unhit,
	};
	for (uint32_t i = 0; i < m->config.n_pages; i++)
		page_used[i] = m->page_held[i];
	for (uint32_t i = 0; i < m->config.n_slots; i++)
		slot_used[i] = m->slot_held[i] || m->pins[i];
	for (int i = 0; i < MODEL_PAGES; i++)
		locked[i] = m->list[i].used && model_locked(m, i);
	for (int i = 0; i < MODEL_PAGES; i++) {
		const struct model_page *p = &m->list[i];

		if (!p->used)
			continue;
		ret->tree_pages++;
		ret->evictable_pages += !locked[i] && !m->page_held[p->page];
		page_used[p->page] = true;
		if (p->slot == POOL_NONE)
			continue;
		ret->tree_slots++;
		ret->evictable_slots += !m->pins[p->slot];
		slot_used[p->slot] = true;
	}
	for (uint32_t i = 0; i < m->config.n_pages; i++)
		ret->free_pages += !page_used[i];
	for (uint32_t i = 0; i < m->config.n_slots; i++)
		ret->free_slots += !slot_used[i];
	ret->used_bytes = (m->config.n_pages - ret->free_pages) * m->config.page_bytes +
			  (m->config.n_slots - ret->free_slots) * m->config.slot_bytes;
}

bool model_can_take(const struct prefix_model *m, const struct model_match *beside,
		    uint64_t n_pages, uint64_t n_slots)
{
	struct prefix_model with = *m;
	struct prefix_stats s;

	if (beside) {
		with.locks[with.n_locks++] = beside->place;
		if (beside->slot != POOL_NONE)
			with.pins[beside->slot]++;
	}
	model_stats(&with, &s);
	if (s.free_pages + s.evictable_pages < n_pages ||
	    s.free_slots + s.evictable_slots < n_slots)
		return false;
	return !m->config.budget_bytes ||
	       s.used_bytes + n_pages * m->config.page_bytes + n_slots * m->config.slot_bytes <=
		       m->config.budget_bytes + s.evictable_pages * m->config.page_bytes +
			       s.evictable_slots * m->config.slot_bytes;
}

/* ---- matching ---- */

struct search {
	const struct prefix_model *m;
	const struct prefix_key *key;
	uint32_t limit;
	struct model_match *ret;
	int known;
};

static bool origin_fits(const struct search *s, const struct model_page *p, uint32_t end)
{
	uint64_t want = PREFIX_PREFILLED;

	if (s->key->origin_any)
		return true;
	/* The last switch that is at the page's last token or before it tells the origin. */
	for (uint32_t i = 0; i < s->key->n_switches; i++)
		if (s->key->switches[i].position <= end - 1)
			want = s->key->switches[i].origin;
	return p->origin == want;
}

static bool known_before(const struct prefix_model *m, const struct prefix_key *key, uint32_t n)
{
	for (uint32_t i = 0; i < m->n_ghosts; i++)
		if (m->ghosts[i].n == n && same_space(&m->ghosts[i].space, &key->space) &&
		    !memcmp(m->ghosts[i].tokens, key->tokens, n * sizeof(int32_t)))
			return true;
	return false;
}

/* Searches from `place` on: tries the pages behind it that match the key, those of origin 0 first, then in the order of
 * publication. */
static void search(struct search *s, int place, uint32_t depth)
{
	const struct prefix_model *m = s->m;
	uint32_t P = m->config.page_tokens, S = s->key->pages_only ? 0 : m->config.state_tokens;
	bool tried[MODEL_PAGES] = {false};

	if (depth > s->ret->n_known) {
		s->ret->n_known = depth;
		s->known = place;
	}
	if (depth > s->ret->n_tokens && (!S || m->list[place].slot != POOL_NONE)) {
		s->ret->n_tokens = depth;
		s->ret->place = place;
	}
	if (depth + P > s->limit)
		return;
	for (;;) {
		int best = -1;

		for (int i = 0; i < MODEL_PAGES; i++) {
			const struct model_page *p = &m->list[i],
						*b = best < 0 ? NULL : &m->list[best];

			if (!p->used || tried[i] || p->before != place ||
			    !same_space(&p->space, &s->key->space) ||
			    memcmp(p->tokens, s->key->tokens + depth, P * sizeof(int32_t)) ||
			    !origin_fits(s, p, depth + P))
				continue;
			if (!b || (!p->origin && b->origin) ||
			    (!p->origin == !b->origin && p->order < b->order))
				best = i;
		}
		if (best < 0)
			return;
		tried[best] = true;
		search(s, best, depth + P);
	}
}

void model_match(const struct prefix_model *m, const struct prefix_key *key,
		 struct model_match *ret)
{
	uint32_t P = m->config.page_tokens, S = key->pages_only ? 0 : m->config.state_tokens;
	uint32_t unit = S ? S : P, target;
	struct search s = {.m = m, .key = key, .ret = ret, .known = MODEL_NONE};

	*ret = (struct model_match){.slot = POOL_NONE, .place = MODEL_NONE};
	s.limit = key->n_tokens ? (key->n_tokens - 1) / P * P : 0;
	target = s.limit / unit * unit;
	search(&s, MODEL_NONE, 0);
	if (ret->place != MODEL_NONE) {
		ret->origin = m->list[ret->place].origin;
		ret->slot = S ? m->list[ret->place].slot : POOL_NONE;
	}
	if (S && ret->n_known / S * S > ret->n_tokens)
		ret->branch = ret->n_known / S * S;
	if (!target) {
		ret->miss = PREFIX_MISS_SHORT;
	} else if (ret->n_tokens == target) {
		ret->miss = PREFIX_MISS_NONE;
	} else if (ret->branch) {
		ret->miss = PREFIX_MISS_NO_CHECKPOINT;
		for (int i = s.known; end_of(m, i) > ret->n_tokens; i = m->list[i].before)
			if (m->list[i].state_evicted)
				ret->miss = PREFIX_MISS_EVICTED_STATE;
	} else if (ret->n_known < s.limit && known_before(m, key, ret->n_known + P)) {
		ret->miss = PREFIX_MISS_EVICTED_PAGE;
	} else {
		ret->miss =
			key->space.id[0] || key->space.id[1] ? PREFIX_MISS_SALT : PREFIX_MISS_COLD;
	}
}

/* ---- changes ---- */

int model_publish(struct prefix_model *m, const struct prefix_space *space, int place,
		  const int32_t *tokens, uint64_t origin, uint32_t *page)
{
	size_t bytes = m->config.page_tokens * sizeof(int32_t);
	int room = -1;

	for (int i = 0; i < MODEL_PAGES; i++) {
		const struct model_page *p = &m->list[i];

		if (!p->used) {
			room = i;
		} else if (p->before == place && same_space(&p->space, space) &&
			   p->origin == origin && !memcmp(p->tokens, tokens, bytes)) {
			m->page_held[*page]--;
			*page = p->page;
			return i;
		}
	}
	assert(room >= 0);
	m->list[room] = (struct model_page){
		.used = true,
		.before = place,
		.space = *space,
		.origin = origin,
		.order = ++m->n_published,
		.page = *page,
		.slot = POOL_NONE,
	};
	memcpy(m->list[room].tokens, tokens, bytes);
	m->page_held[*page]--;
	return room;
}

void model_lock(struct prefix_model *m, int place)
{
	assert(m->n_locks < MODEL_LOCKS - 1);
	m->locks[m->n_locks++] = place;
}

void model_unlock(struct prefix_model *m, int place)
{
	uint32_t i = 0;

	while (m->locks[i] != place)
		i++;
	m->locks[i] = m->locks[--m->n_locks];
}

void model_checkpoint(struct prefix_model *m, int place, uint32_t slot, enum prefix_checkpoint kind)
{
	struct model_page *p = &m->list[place];

	m->slot_held[slot]--;
	if (p->slot != POOL_NONE) {
		p->slot_common = true;
		p->kind = kind < p->kind ? kind : p->kind;
		return;
	}
	p->slot = slot;
	p->kind = kind;
	p->slot_hits = 0;
	p->slot_common = p->state_evicted = false;
}

void model_retire(struct prefix_model *m, int place)
{
	struct model_page *p = &m->list[place];

	if (p->slot != POOL_NONE && p->kind == PREFIX_CHECKPOINT_DECODE && !p->slot_hits &&
	    !p->slot_common)
		p->slot = POOL_NONE;
}

/* ---- following the eviction ---- */

struct still_there {
	bool pages[MODEL_PAGES], slots[MODEL_PAGES];
};

static bool see(void *arg, const struct prefix_view *v)
{
	struct still_there *there = arg;

	for (uint32_t i = 0; i < v->n_pages; i++)
		there->pages[v->pages[i]] = true;
	if (v->slot != POOL_NONE)
		there->slots[v->slot] = true;
	return true;
}

/* Adds the path to `place` to the ghosts. before: the model before the eviction, in which the path is whole. */
static void remember(struct prefix_model *m, const struct prefix_model *before, int place)
{
	struct model_ghost *g = &m->ghosts[m->n_ghosts];
	uint32_t P = m->config.page_tokens;

	g->space = before->list[place].space;
	g->n = end_of(before, place);
	for (uint32_t at = g->n; place != MODEL_NONE; place = before->list[place].before) {
		at -= P;
		memcpy(g->tokens + at, before->list[place].tokens, P * sizeof(int32_t));
	}
	for (uint32_t i = 0; i < m->n_ghosts; i++)
		if (m->ghosts[i].n == g->n && same_space(&m->ghosts[i].space, &g->space) &&
		    !memcmp(m->ghosts[i].tokens, g->tokens, g->n * sizeof(int32_t)))
			return;
	m->n_ghosts++;
}

const char *model_follow(struct prefix_model *m, const struct prefix_cache *c, bool pages,
			 bool slots)
{
	struct prefix_model before = *m;
	struct still_there there = {{false}, {false}};
	bool page_went = false, state_went = false, leaf_with_state_went = false;

	prefix_cache_walk(c, see, &there);
	for (int i = 0; i < MODEL_PAGES; i++) {
		struct model_page *p = &m->list[i];
		const struct model_page *b = &before.list[i];

		if (!p->used)
			continue;
		if (p->slot != POOL_NONE && !there.slots[p->slot]) {
			if (before.pins[p->slot])
				return "a pinned state went";
			m->evicted_slots++;
			m->evicted_unhit += !p->slot_hits;
			state_went = true;
			leaf_with_state_went |= !there.pages[p->page];
			p->slot = POOL_NONE;
			p->state_evicted = true;
		}
		if (there.pages[b->page])
			continue;
		if (model_locked(&before, i))
			return "a locked page went";
		if (m->n_ghosts == MODEL_GHOSTS)
			return "too many ghosts for the model";
		remember(m, &before, i);
		p->used = false;
		page_went = true;
		m->evicted_pages++;
	}
	for (int i = 0; i < MODEL_PAGES; i++)
		if (m->list[i].used && m->list[i].before != MODEL_NONE &&
		    !m->list[m->list[i].before].used)
			return "a page went and the next one stayed";
	if (pages && !page_went)
		return "short of a page, none went";
	if (slots && !state_went)
		return "short of a slot, none went";
	/* When pages are short, a leaf without a state is evicted before any leaf with one, unless it has just become a
	 * leaf. */
	if (pages && m->config.state_tokens && !m->config.budget_bytes && leaf_with_state_went)
		for (int i = 0; i < MODEL_PAGES; i++)
			if (m->list[i].used && !has_child(m, i) && !model_locked(m, i) &&
			    m->list[i].slot == POOL_NONE && !has_child(&before, i))
				return "a leaf without a state stayed, one with a state went";
	/* When only pages are short, a node that stays keeps its state. */
	if (pages && !m->config.budget_bytes)
		for (int i = 0; i < MODEL_PAGES; i++)
			if (m->list[i].used && m->list[i].slot != before.list[i].slot)
				return "short of a page, the state of a node that stayed went";
	return NULL;
}
