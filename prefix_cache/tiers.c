#include "prefix_cache/tiers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map.h"

/* The items with one (key, origin): a page, a state, or both. */
struct place {
	struct map_node node;
	struct content_key key;
	uint64_t origin, parent_origin;
	bool has[2]; /* by enum tier_kind */
};

struct tiers {
	struct map places; /* by the first half of their keys, which are hashes already */
	size_t counts[2];
};

struct tiers *tiers_new(void)
{
	struct tiers *t = calloc(1, sizeof(*t));

	if (!t || map_init(&t->places, 256) < 0) {
		free(t);
		return NULL;
	}
	return t;
}

static void free_place(void *arg, struct map_node *n)
{
	free(container_of(n, struct place, node));
}

void tiers_clear(struct tiers *t)
{
	map_drain(&t->places, free_place, NULL);
	t->counts[TIER_PAGE] = t->counts[TIER_STATE] = 0;
}

void tiers_free(struct tiers *t)
{
	if (!t)
		return;
	tiers_clear(t);
	map_release(&t->places);
	free(t);
}

/* Returns the first place with this key, at n or behind n in its bucket; NULL: there is none. */
static struct place *with_key(struct map_node *n, const struct content_key *key)
{
	for (; n; n = map_next(n)) {
		struct place *p = container_of(n, struct place, node);

		if (p->key.v[0] == key->v[0] && p->key.v[1] == key->v[1])
			return p;
	}
	return NULL;
}

static struct place *first_place(const struct tiers *t, const struct content_key *key)
{
	return with_key(map_first(&t->places, key->v[0]), key);
}

static struct place *next_place(const struct place *p)
{
	return with_key(map_next(&p->node), &p->key);
}

static struct place *find(const struct tiers *t, const struct tier_item *item)
{
	struct place *p = first_place(t, &item->key);

	while (p && p->origin != item->origin)
		p = next_place(p);
	return p;
}

int tiers_add(struct tiers *t, const struct tier_item *item)
{
	struct place *p = find(t, item);

	if (!p) {
		p = malloc(sizeof(*p));
		if (!p || map_reserve(&t->places) < 0) {
			free(p);
			return -ENOMEM;
		}
		*p = (struct place){
			.key = item->key,
			.origin = item->origin,
			.parent_origin = item->parent_origin,
		};
		map_insert(&t->places, &p->node, item->key.v[0]);
	}
	t->counts[item->kind] += !p->has[item->kind];
	p->has[item->kind] = true;
	return 0;
}

void tiers_remove(struct tiers *t, const struct tier_item *item)
{
	struct place *p = find(t, item);

	if (!p || !p->has[item->kind])
		return;
	p->has[item->kind] = false;
	t->counts[item->kind]--;
	if (p->has[TIER_PAGE] || p->has[TIER_STATE])
		return;
	map_remove(&t->places, &p->node);
	free(p);
}

bool tiers_has(const struct tiers *t, const struct tier_item *item)
{
	const struct place *p = find(t, item);

	return p && p->has[item->kind];
}

size_t tiers_count(const struct tiers *t, enum tier_kind kind)
{
	return t->counts[kind];
}

/* A search: its arguments, the present path, and the best end so far. */
struct walk {
	const struct tiers *t;
	const struct content_key *keys;
	uint32_t from, n, best, pages_a_state;
	bool needs_state, clean_only;
	uint64_t *path;	   /* [n] origins along the path */
	uint64_t *origins; /* [n] origins along the best path */
};

/* Limits of a search. Pages with equal tokens and different origins are variants. VARIANTS_MAX: the most variants of a
 * page that are tried. FORKS_MAX: the most pages of a path at which more than the first variant is tried. */
enum { VARIANTS_MAX = 4, FORKS_MAX = 16 };

/* Writes up to VARIANTS_MAX variants of page i behind a page with this origin to `out`; if a prefilled one is among
 * them, it comes first. Returns their number. */
static uint32_t variants(const struct walk *w, uint32_t i, uint64_t origin,
			 const struct place *out[VARIANTS_MAX])
{
	uint32_t n = 0;

	for (const struct place *p = first_place(w->t, &w->keys[i]); p && n < VARIANTS_MAX;
	     p = next_place(p)) {
		if (p->parent_origin != origin || !p->has[TIER_PAGE] ||
		    (w->clean_only && p->origin))
			continue;
		out[n++] = p;
		if (!p->origin) {
			out[n - 1] = out[0];
			out[0] = p;
		}
	}
	return n;
}

/* Adds this variant of page i to the path. If a request can resume behind the page, and that is further than the best
 * end so far, the page's end becomes the best end. */
static void step(struct walk *w, uint32_t i, const struct place *p)
{
	w->path[i] = p->origin;
	if (i + 1 <= w->best || (w->needs_state && !p->has[TIER_STATE]) ||
	    (i + 1) % w->pages_a_state)
		return;
	w->best = i + 1;
	for (uint32_t k = w->from; k <= i; k++)
		w->origins[k] = w->path[k];
}

/* Searches depth first from page i on, behind a page with this origin. Calls itself only at pages with several
 * variants. forks: the number of such pages above. */
static void follow(struct walk *w, uint32_t i, uint64_t origin, uint32_t forks)
{
	const struct place *next[VARIANTS_MAX];

	for (; i < w->n; i++) {
		uint32_t n = variants(w, i, origin, next);

		if (!n)
			return;
		for (uint32_t k = 0; n > 1 && k < n && forks < FORKS_MAX; k++) {
			step(w, i, next[k]);
			follow(w, i + 1, next[k]->origin, forks + 1);
			if (k + 1 == n)
				return;
		}
		step(w, i, next[0]);
		origin = next[0]->origin;
	}
}

uint32_t tiers_match(const struct tiers *t, const struct content_key *keys, uint32_t n,
		     uint32_t from, uint64_t origin, uint32_t pages_a_state, bool needs_state,
		     bool clean_only, uint64_t *path, uint64_t *origins)
{
	struct walk w = {
		.t = t,
		.keys = keys,
		.from = from,
		.n = n,
		.best = from,
		.pages_a_state = pages_a_state,
		.needs_state = needs_state,
		.clean_only = clean_only,
		.path = path,
		.origins = origins,
	};

	follow(&w, from, origin, 0);
	return w.best;
}
