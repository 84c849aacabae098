#include "prefix_cache/tiers.h"

#include <errno.h>
#include <stdlib.h>

/* A page and a state of one (key, history). */
struct place {
	struct place *next; /* chain of its bucket */
	struct content_key key;
	uint64_t history, parent_history;
	bool has[2]; /* by enum tier_kind */
};

struct tiers {
	struct place **buckets;	    /* [n_buckets] */
	size_t n_buckets, n_places; /* a power of two */
	size_t counts[2];
};

enum { FIRST_BUCKETS = 256 };

struct tiers *tiers_new(void)
{
	struct tiers *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->n_buckets = FIRST_BUCKETS;
	t->buckets = calloc(t->n_buckets, sizeof(*t->buckets));
	if (!t->buckets) {
		free(t);
		return NULL;
	}
	return t;
}

void tiers_clear(struct tiers *t)
{
	for (size_t i = 0; i < t->n_buckets; i++)
		while (t->buckets[i]) {
			struct place *p = t->buckets[i];

			t->buckets[i] = p->next;
			free(p);
		}
	t->n_places = t->counts[TIER_PAGE] = t->counts[TIER_STATE] = 0;
}

void tiers_free(struct tiers *t)
{
	if (!t)
		return;
	tiers_clear(t);
	free(t->buckets);
	free(t);
}

/* Keys are hashes already. Places of equal keys share a bucket. */
static struct place **bucket(const struct tiers *t, const struct content_key *key)
{
	return &t->buckets[key->v[0] & (t->n_buckets - 1)];
}

static bool same_key(const struct content_key *a, const struct content_key *b)
{
	return a->v[0] == b->v[0] && a->v[1] == b->v[1];
}

static struct place **find(const struct tiers *t, const struct content_key *key, uint64_t history)
{
	struct place **p = bucket(t, key);

	while (*p && !((*p)->history == history && same_key(&(*p)->key, key)))
		p = &(*p)->next;
	return p;
}

static int grow(struct tiers *t)
{
	size_t n = t->n_buckets * 2;
	struct place **old = t->buckets, **grown;

	if (t->n_places < t->n_buckets)
		return 0;
	grown = calloc(n, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	t->buckets = grown;
	for (size_t i = 0; i < n / 2; i++)
		while (old[i]) {
			struct place *p = old[i], **to;

			old[i] = p->next;
			to = &grown[p->key.v[0] & (n - 1)];
			p->next = *to;
			*to = p;
		}
	t->n_buckets = n;
	free(old);
	return 0;
}

int tiers_add(struct tiers *t, const struct tier_item *item)
{
	struct place *p = *find(t, &item->key, item->history);

	if (!p) {
		struct place **b;

		p = malloc(sizeof(*p));
		if (!p || grow(t) < 0) {
			free(p);
			return -ENOMEM;
		}
		b = bucket(t, &item->key);
		*p = (struct place){
			.next = *b,
			.key = item->key,
			.history = item->history,
			.parent_history = item->parent_history,
		};
		*b = p;
		t->n_places++;
	}
	t->counts[item->kind] += !p->has[item->kind];
	p->has[item->kind] = true;
	return 0;
}

void tiers_remove(struct tiers *t, const struct tier_item *item)
{
	struct place **at = find(t, &item->key, item->history), *p = *at;

	if (!p || !p->has[item->kind])
		return;
	p->has[item->kind] = false;
	t->counts[item->kind]--;
	if (p->has[TIER_PAGE] || p->has[TIER_STATE])
		return;
	*at = p->next;
	free(p);
	t->n_places--;
}

bool tiers_has(const struct tiers *t, const struct tier_item *item)
{
	const struct place *p = *find(t, &item->key, item->history);

	return p && p->has[item->kind];
}

size_t tiers_count(const struct tiers *t, enum tier_kind kind)
{
	return t->counts[kind];
}

/* What a walk looks for, the way it is on, and the best end so far. */
struct walk {
	const struct tiers *t;
	const struct content_key *keys;
	uint32_t from, n, best, pages_a_state;
	bool needs_state, clean_only;
	uint64_t *path;	     /* [n] histories of the way */
	uint64_t *histories; /* [n] of the best way */
};

/* Equal tokens computed in more ways than this are not looked through. */
enum { VARIANTS_MAX = 4, PARTINGS_MAX = 16 };

/* The pages with this key that follow `history`, the clean one first. */
static uint32_t variants(const struct walk *w, uint32_t i, uint64_t history,
			 const struct place *out[VARIANTS_MAX])
{
	uint32_t n = 0;

	for (const struct place *p = *bucket(w->t, &w->keys[i]); p && n < VARIANTS_MAX;
	     p = p->next) {
		if (!same_key(&p->key, &w->keys[i]) || p->parent_history != history ||
		    !p->has[TIER_PAGE] || (w->clean_only && p->history))
			continue;
		out[n++] = p;
		if (!p->history) {
			out[n - 1] = out[0];
			out[0] = p;
		}
	}
	return n;
}

/* The way goes through page i as p has it. */
static void step(struct walk *w, uint32_t i, const struct place *p)
{
	w->path[i] = p->history;
	if (i + 1 <= w->best || (w->needs_state && !p->has[TIER_STATE]) ||
	    (i + 1) % w->pages_a_state)
		return;
	w->best = i + 1;
	for (uint32_t k = w->from; k <= i; k++)
		w->histories[k] = w->path[k];
}

/* Depth first; it calls itself only where ways part. */
static void follow(struct walk *w, uint32_t i, uint64_t history, uint32_t partings)
{
	const struct place *next[VARIANTS_MAX];

	for (; i < w->n; i++) {
		uint32_t n = variants(w, i, history, next);

		if (!n)
			return;
		for (uint32_t k = 0; n > 1 && k < n && partings < PARTINGS_MAX; k++) {
			step(w, i, next[k]);
			follow(w, i + 1, next[k]->history, partings + 1);
			if (k + 1 == n)
				return;
		}
		step(w, i, next[0]);
		history = next[0]->history;
	}
}

uint32_t tiers_match(const struct tiers *t, const struct content_key *keys, uint32_t n,
		     uint32_t from, uint64_t history, uint32_t pages_a_state, bool needs_state,
		     bool clean_only, uint64_t *path, uint64_t *histories)
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
		.histories = histories,
	};

	follow(&w, from, history, 0);
	return w.best;
}
