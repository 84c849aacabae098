#include "tests/prefix_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/prefix_model.h"

enum {
	REQUESTS = 6,
	MEMORIES = 6,
	DEPTH = 12,
	SPACES = 2,
	SLOTS_HELD = 2,
	TOKENS = DEPTH * MODEL_PAGE_TOKENS
};

/* A path that a request used or computed, and the origins along it. Other requests may share its beginning, and the
 * request may come back to it. */
struct memory {
	struct prefix_space space;
	int32_t tokens[TOKENS + 1];
	uint32_t n_tokens;
	struct prefix_switch switches[2 * DEPTH];
	uint32_t n_switches;
};

struct request {
	bool live;
	struct memory text; /* n_tokens counts only whole pages that are published */
	struct prefix_node *node;
	int place;
	uint64_t origin;
	int32_t wanted[TOKENS]; /* [n_wanted] the whole prompt, from which new pages are made */
	uint32_t n_wanted;
	uint32_t pages[DEPTH], n_pages; /* taken, and not handed over to the tree */
	uint32_t slots[SLOTS_HELD], n_slots;
	uint32_t pinned;     /* slot, or POOL_NONE */
	uint32_t extra_page; /* an additional reference, or POOL_NONE */
	uint32_t extra_locks;
};

struct life {
	const struct events_source *source;
	struct events_count *count;
	uint32_t event;
	struct prefix_cache *c;
	struct prefix_model m;
	uint32_t alphabet;
	bool shuffled;
	struct request requests[REQUESTS];
	struct memory memories[MEMORIES];
	uint32_t orphans[REQUESTS],
		n_orphans; /* pages with a reference that outlived its request's locks */
};

#define must(condition) must_(l, (condition), __LINE__, #condition)

static void must_(const struct life *l, bool good, int line, const char *text)
{
	if (good)
		return;
	printf("# %s, event %u, line %d: %s\n", l->source->name, l->event, line, text);
	fflush(stdout);
	abort();
}

static uint32_t below(const struct life *l, uint32_t n)
{
	return l->source->below(l->source->arg, n);
}

static bool chance(const struct life *l, uint32_t one_in)
{
	return below(l, one_in) == 0;
}

static uint32_t page_tokens(const struct life *l)
{
	return l->m.config.page_tokens;
}

/* ---- memory ---- */

static uint32_t smallest_free(const uint32_t *held, const uint32_t *pins, const bool *in_tree,
			      uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!held[i] && !(pins && pins[i]) && !in_tree[i])
			return i;
	return POOL_NONE;
}

/* Takes a page or a slot, and removes from the model the pages and states that were evicted for it. */
static uint32_t take(struct life *l, bool page)
{
	struct prefix_stats before, after;
	bool can = model_can_take(&l->m, NULL, page, !page), in_tree[MODEL_PAGES] = {false};
	uint64_t *budget = &l->m.config.budget_bytes,
		 bytes = page ? l->m.config.page_bytes : l->m.config.slot_bytes;
	const char *wrong;
	uint32_t id;

	model_stats(&l->m, &before);
	id = page ? prefix_cache_take_page(l->c) : prefix_cache_take_slot(l->c);
	must((id != POOL_NONE) == can);
	prefix_cache_stats(l->c, &after);
	if (after.evicted_pages != before.evicted_pages ||
	    after.evicted_slots != before.evicted_slots) {
		bool short_pages = page && !before.free_pages,
		     short_slots = !page && !before.free_slots;

		must(can);
		must(short_pages || short_slots ||
		     (*budget && before.used_bytes + bytes > *budget));
		wrong = model_follow(&l->m, l->c, short_pages, short_slots);
		if (wrong)
			printf("# %s\n", wrong);
		must(!wrong);
	}
	if (!can) {
		l->count->refused++;
		return POOL_NONE;
	}
	for (int i = 0; i < MODEL_PAGES; i++)
		if (l->m.list[i].used && (page || l->m.list[i].slot != POOL_NONE))
			in_tree[page ? l->m.list[i].page : l->m.list[i].slot] = true;
	if (page) {
		must(!l->m.page_held[id] && !in_tree[id]);
		must(l->shuffled ||
		     id == smallest_free(l->m.page_held, NULL, in_tree, l->m.config.n_pages));
		l->m.page_held[id]++;
	} else {
		must(!l->m.slot_held[id] && !l->m.pins[id] && !in_tree[id]);
		must(l->shuffled ||
		     id == smallest_free(l->m.slot_held, l->m.pins, in_tree, l->m.config.n_slots));
		l->m.slot_held[id]++;
	}
	return id;
}

static void put_page(struct life *l, uint32_t page)
{
	prefix_cache_put_page(l->c, page);
	l->m.page_held[page]--;
}

static void put_slot(struct life *l, uint32_t slot)
{
	prefix_cache_put_slot(l->c, slot);
	l->m.slot_held[slot]--;
}

static void unpin(struct life *l, struct request *r)
{
	if (r->pinned == POOL_NONE)
		return;
	prefix_cache_unpin(l->c, r->pinned);
	l->m.pins[r->pinned]--;
	r->pinned = POOL_NONE;
}

/* ---- matching ---- */

static struct prefix_match compare_match(struct life *l, const struct prefix_key *key,
					 struct model_match *ret)
{
	struct prefix_match got;
	uint32_t pages = below(l, 4), slots = below(l, 3);

	prefix_cache_match(l->c, key, &got);
	model_match(&l->m, key, ret);
	must(got.n_tokens == ret->n_tokens);
	must(got.n_known == ret->n_known);
	must(got.branch == ret->branch);
	must(got.slot == ret->slot);
	must(got.origin == ret->origin);
	must(got.miss == ret->miss);
	must(prefix_cache_can_take(l->c, &got, pages, slots) ==
	     model_can_take(&l->m, ret, pages, slots));
	must(prefix_cache_can_take(l->c, NULL, pages, slots) ==
	     model_can_take(&l->m, NULL, pages, slots));
	l->count->misses[got.miss]++;
	return got;
}

/* Draws a prompt that mostly shares a beginning with earlier ones. Returns its length. */
static uint32_t random_prompt(struct life *l, const struct memory *like, int32_t *tokens)
{
	uint32_t n = below(l, DEPTH * page_tokens(l) + 1), shared = 0;

	if (!chance(l, 4))
		shared = below(l, like->n_tokens + 1);
	if (chance(l, 2))
		shared = like->n_tokens;
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = i < shared ? like->tokens[i] : (int32_t)below(l, l->alphabet);
	return n;
}

static void admit(struct life *l, struct request *r)
{
	const struct memory *like = &l->memories[below(l, MEMORIES)];
	bool returns = chance(l, 4) && like->n_switches;
	struct prefix_key key = {.origin_any = !returns};
	uint32_t pages[DEPTH], want[DEPTH], n;
	int32_t prompt[TOKENS + 1];
	struct model_match expect;
	struct prefix_match match;

	if (returns) {
		n = like->n_tokens;
		memcpy(prompt, like->tokens, n * sizeof(*prompt));
		key.switches = like->switches;
		key.n_switches = like->n_switches;
		if (n < TOKENS)
			prompt[n++] = 0;
	} else {
		n = random_prompt(l, like, prompt);
		/* A request whose state comes from elsewhere uses pages that others have prefilled, and needs no
		 * state. */
		key.pages_only = chance(l, 6);
		key.origin_any = !key.pages_only;
	}
	key.space = chance(l, 8) ? (struct prefix_space){{0, below(l, SPACES)}} : like->space;
	key.tokens = prompt;
	key.n_tokens = n;
	match = compare_match(l, &key, &expect);
	memset(r, 0, sizeof(*r));
	r->node = prefix_cache_use(l->c, &key, &match, pages);
	must(r->node != NULL);
	must(prefix_node_tokens(r->node) == match.n_tokens);
	must(model_path(&l->m, expect.place, want) == match.n_tokens / page_tokens(l));
	must(!memcmp(pages, want, match.n_tokens / page_tokens(l) * sizeof(*pages)));
	model_lock(&l->m, expect.place);
	r->place = expect.place;
	r->pinned = r->extra_page = POOL_NONE;
	if (match.slot != POOL_NONE) {
		must(prefix_node_has_checkpoint(r->node));
		l->m.pins[match.slot]++;
		l->m.list[expect.place].slot_hits++;
		r->pinned = match.slot;
	}
	l->count->hits += match.n_tokens > 0;
	l->count->returned += match.n_tokens > 0 && returns;
	l->count->pages_only += match.n_tokens > 0 && key.pages_only;
	r->live = true;
	r->text.space = key.space;
	r->text.n_tokens = match.n_tokens;
	memcpy(r->text.tokens, prompt, match.n_tokens * sizeof(*prompt));
	r->origin = match.origin;
	if (returns) {
		for (uint32_t i = 0;
		     i < like->n_switches && (!i || like->switches[i].position < match.n_tokens);
		     i++)
			r->text.switches[r->text.n_switches++] = like->switches[i];
		r->origin = r->text.switches[r->text.n_switches - 1].origin;
		must(!match.n_tokens || r->origin == match.origin);
	} else {
		/* The match tells only the origin of its last page, so all of the path counts as of this origin. */
		r->text.switches[r->text.n_switches++] = (struct prefix_switch){0, match.origin};
	}
	r->n_wanted = n;
	memcpy(r->wanted, prompt, MIN(n, (uint32_t)TOKENS) * sizeof(*prompt));
}

/* ---- growing ---- */

static uint32_t published_pages(const struct life *l, const struct request *r)
{
	return r->text.n_tokens / page_tokens(l);
}

static void grow(struct life *l, struct request *r)
{
	uint32_t P = page_tokens(l), at = r->text.n_tokens, k, pages[DEPTH];
	struct memory *t = &r->text;
	struct prefix_node *node;

	while (published_pages(l, r) + r->n_pages < DEPTH && !chance(l, 3)) {
		uint32_t page = take(l, true);

		if (page == POOL_NONE)
			break;
		r->pages[r->n_pages++] = page;
		/* As for another choice, which has a reference of its own. */
		if (r->extra_page == POOL_NONE && chance(l, 8)) {
			prefix_cache_ref_page(l->c, page);
			l->m.page_held[page]++;
			r->extra_page = page;
		}
	}
	if (!r->n_pages)
		return;
	k = 1 + below(l, r->n_pages);
	if (chance(l, 6) && t->n_switches < ARRAY_SIZE(t->switches)) {
		uint32_t position = at + below(l, P);
		uint64_t h = prefix_origin(r->origin, position, chance(l, 2));

		must(h == r->origin || (h && (h & 1) != (r->origin & 1)));
		if (h != r->origin)
			t->switches[t->n_switches++] = (struct prefix_switch){position, h};
		r->origin = h;
	}
	for (uint32_t i = at; i < at + k * P; i++)
		t->tokens[i] = i < r->n_wanted ? r->wanted[i] : (int32_t)below(l, l->alphabet);
	memcpy(pages, r->pages, k * sizeof(*pages));
	node = prefix_cache_extend(l->c, r->node, t->tokens + at, pages, k, r->origin);
	must((node == NULL) == (l->m.config.refuse_decoded && r->origin));
	if (!node) {
		must(!memcmp(pages, r->pages, k * sizeof(*pages)));
		return;
	}
	model_unlock(&l->m, r->place);
	for (uint32_t i = 0; i < r->extra_locks; i++)
		prefix_cache_unlock(l->c, r->node), model_unlock(&l->m, r->place);
	r->extra_locks = 0;
	for (uint32_t i = 0; i < k; i++) {
		uint32_t page = r->pages[i];

		r->place = model_publish(&l->m, &t->space, r->place, t->tokens + at + i * P,
					 r->origin, &page);
		must(pages[i] == page);
	}
	model_lock(&l->m, r->place);
	r->node = node;
	t->n_tokens += k * P;
	must(prefix_node_tokens(node) == t->n_tokens);
	r->n_pages -= k;
	memmove(r->pages, r->pages + k, r->n_pages * sizeof(*r->pages));
}

static void checkpoint(struct life *l, struct request *r)
{
	uint32_t S = l->m.config.state_tokens;
	enum prefix_checkpoint kind = (enum prefix_checkpoint)below(l, 4);

	if (r->n_slots < SLOTS_HELD) {
		uint32_t slot = take(l, false);

		if (slot != POOL_NONE)
			r->slots[r->n_slots++] = slot;
	}
	if (!r->n_slots || !S || !r->text.n_tokens || r->text.n_tokens % S)
		return;
	prefix_cache_checkpoint(l->c, r->node, r->slots[--r->n_slots], kind);
	model_checkpoint(&l->m, r->place, r->slots[r->n_slots], kind);
	must(prefix_node_has_checkpoint(r->node));
}

static void retire(struct life *l, struct request *r)
{
	prefix_cache_retire(l->c, r->node);
	if (r->place != MODEL_NONE)
		model_retire(&l->m, r->place);
	must(prefix_node_has_checkpoint(r->node) ==
	     (r->place != MODEL_NONE && l->m.list[r->place].slot != POOL_NONE));
}

static void pin_own(struct life *l, struct request *r)
{
	if (r->pinned != POOL_NONE || r->place == MODEL_NONE ||
	    l->m.list[r->place].slot == POOL_NONE)
		return;
	r->pinned = l->m.list[r->place].slot;
	prefix_cache_pin(l->c, r->pinned);
	l->m.pins[r->pinned]++;
}

static void finish(struct life *l, struct request *r)
{
	struct memory *m = &l->memories[below(l, MEMORIES)];

	if (r->text.n_tokens)
		*m = r->text;
	while (r->n_pages)
		put_page(l, r->pages[--r->n_pages]);
	while (r->n_slots)
		put_slot(l, r->slots[--r->n_slots]);
	if (chance(l, 2))
		unpin(l, r);
	for (uint32_t i = 0; i <= r->extra_locks; i++) {
		prefix_cache_unlock(l->c, r->node);
		model_unlock(&l->m, r->place);
	}
	/* The pin and the additional reference may be given back after the locks: a step may still read the state, and
	 * another choice the page. */
	unpin(l, r);
	if (r->extra_page != POOL_NONE) {
		if (l->n_orphans == REQUESTS)
			put_page(l, l->orphans[--l->n_orphans]);
		l->orphans[l->n_orphans++] = r->extra_page;
	}
	r->live = false;
}

/* ---- the whole ---- */

/* Compares a node, as prefix_cache_walk shows it, with its pages in the model. */
static bool compare_view(void *arg, const struct prefix_view *v)
{
	struct life *l = arg;
	uint32_t P = page_tokens(l);

	must(v->id && v->parent != v->id && v->n_tokens == v->n_pages * P && v->n_pages);
	for (uint32_t i = 0; i < v->n_pages; i++) {
		const struct model_page *p = l->m.list;
		bool last = i + 1 == v->n_pages;

		while (!p->used || p->page != v->pages[i])
			must(++p < l->m.list + MODEL_PAGES);
		must(!memcmp(p->tokens, v->tokens + i * P, P * sizeof(*p->tokens)));
		must(p->origin == v->origin && !memcmp(&p->space, &v->space, sizeof(p->space)));
		must(p->slot == (last ? v->slot : POOL_NONE));
		must(p->slot == POOL_NONE || (p->kind == v->kind && p->slot_hits <= v->hits));
		must((v->locks > 0) == model_locked(&l->m, (int)(p - l->m.list)));
	}
	return true;
}

static void compare_stats(struct life *l)
{
	struct prefix_stats got, want;

	prefix_cache_stats(l->c, &got);
	model_stats(&l->m, &want);
	want.nodes = got.nodes;
	want.spaces = got.spaces;
	must(!memcmp(&got, &want, sizeof(got)));
}

static void flush(struct life *l)
{
	struct prefix_stats s;
	bool busy = l->m.n_locks > 0;
	int rc;

	for (uint32_t i = 0; i < MODEL_PAGES; i++)
		busy |= l->m.page_held[i] || l->m.slot_held[i] || l->m.pins[i];
	rc = prefix_cache_flush(l->c);
	must(rc == (busy ? -EBUSY : 0));
	if (busy)
		return;
	for (int i = 0; i < MODEL_PAGES; i++)
		l->m.list[i].used = false;
	l->m.n_ghosts = 0;
	prefix_cache_stats(l->c, &s);
	must(!s.nodes && !s.spaces && s.free_pages == l->m.config.n_pages &&
	     s.free_slots == l->m.config.n_slots);
	l->shuffled = chance(l, 2);
	must(prefix_cache_shuffle(l->c, l->shuffled ? 1 + below(l, 100) : 0) == 0);
	l->shuffled = true;
}

static void one_event(struct life *l)
{
	struct request *r = &l->requests[below(l, REQUESTS)];

	if (l->n_orphans && chance(l, 20))
		put_page(l, l->orphans[--l->n_orphans]);
	if (!r->live) {
		if (chance(l, 40))
			flush(l);
		else
			admit(l, r);
		return;
	}
	switch (below(l, 12)) {
	case 0:
	case 1:
	case 2:
	case 3: grow(l, r); break;
	case 4:
	case 5:
	case 6: checkpoint(l, r); break;
	case 7: retire(l, r); break;
	case 8: unpin(l, r); break;
	case 9: pin_own(l, r); break;
	case 10:
		if (r->extra_locks < 2) {
			prefix_cache_lock(l->c, r->node);
			model_lock(&l->m, r->place);
			r->extra_locks++;
		}
		if (r->extra_page != POOL_NONE && chance(l, 2)) {
			put_page(l, r->extra_page);
			r->extra_page = POOL_NONE;
		}
		break;
	default: finish(l, r); break;
	}
}

static void random_config(struct life *l, struct prefix_cache_config *ret)
{
	*ret = (struct prefix_cache_config){
		.page_tokens = 1 + below(l, MODEL_PAGE_TOKENS),
		.n_pages = 4 + below(l, MODEL_PAGES - 3),
		.page_bytes = 1 + below(l, 100),
		.slot_bytes = 1 + below(l, 1000),
		.refuse_decoded = chance(l, 6),
	};
	ret->state_tokens = ret->page_tokens * below(l, 4);
	if (ret->state_tokens)
		ret->n_slots = 1 + below(l, 16);
	if (chance(l, 3))
		ret->budget_bytes =
			(ret->n_pages * ret->page_bytes + ret->n_slots * ret->slot_bytes) *
				(20 + below(l, 80)) / 100 +
			1;
}

void events_run(const struct events_source *source, uint32_t n_events, struct events_count *count)
{
	static struct life life;
	static struct model_ghost ghosts[MODEL_GHOSTS];
	struct prefix_cache_config config;
	struct prefix_stats s;
	struct life *l = &life;

	memset(l, 0, sizeof(*l));
	l->source = source;
	l->count = count;
	random_config(l, &config);
	l->alphabet = 1 + below(l, 3);
	model_init(&l->m, &config, ghosts);
	l->c = prefix_cache_new(&config);
	must(l->c != NULL);
	for (l->event = 0; l->event < n_events && l->m.n_ghosts < MODEL_GHOSTS / 2; l->event++) {
		one_event(l);
		compare_stats(l);
		if (chance(l, 16)) {
			prefix_cache_check(l->c);
			prefix_cache_walk(l->c, compare_view, l);
		}
	}
	/* All requests end, and all pages and slots come back. */
	for (uint32_t i = 0; i < REQUESTS; i++)
		if (l->requests[i].live)
			finish(l, &l->requests[i]);
	while (l->n_orphans)
		put_page(l, l->orphans[--l->n_orphans]);
	compare_stats(l);
	prefix_cache_check(l->c);
	count->events += l->event;
	count->evicted_pages += l->m.evicted_pages;
	count->evicted_slots += l->m.evicted_slots;
	prefix_cache_stats(l->c, &s);
	must(s.evictable_pages == s.tree_pages && s.evictable_slots == s.tree_slots);
	must(prefix_cache_flush(l->c) == 0);
	prefix_cache_free(l->c);
}
