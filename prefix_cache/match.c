/* Matching a prompt against the tree, and the reason why the match ends where it does.
 *
 * The walk goes as deep as the tree has KV pages of the prompt and remembers the deepest place at which a request can
 * resume. If the tree has several variants of a page (radix.h) that the key allows, the walk tries one after the other,
 * origin 0 first, then by age; of equally deep places the first one found counts. Usually there are few variants. A
 * client could make many, so the walk tries no more than VARIANTS_MAX of them in all, besides the first one of each
 * page. */
#include <assert.h>

#include "base/mix.h"
#include "prefix_cache/prefix_cache_internal.h"

enum { VARIANTS_MAX = 64 };

static const char *const miss_names[] = {
	[PREFIX_MISS_NONE] = "none",
	[PREFIX_MISS_DISABLED] = "disabled",
	[PREFIX_MISS_LOGPROBS] = "logprobs",
	[PREFIX_MISS_MEAN_POOLING] = "mean-pooling",
	[PREFIX_MISS_SHORT] = "short",
	[PREFIX_MISS_EVICTED_STATE] = "evicted-state",
	[PREFIX_MISS_NO_CHECKPOINT] = "no-checkpoint",
	[PREFIX_MISS_LOADING] = "loading",
	[PREFIX_MISS_EVICTED_PAGE] = "evicted-page",
	[PREFIX_MISS_SALT] = "salt",
	[PREFIX_MISS_COLD] = "cold",
};

const char *prefix_miss_name(enum prefix_miss m)
{
	return (unsigned int)m < ARRAY_SIZE(miss_names) ? miss_names[m] : "unknown";
}

uint64_t prefix_origin(uint64_t before, uint32_t position, bool decoding)
{
	uint64_t h;

	if ((before & 1) == decoding)
		return before;
	/* Two multiplications spread (before, position) over 63 bits. */
	h = mix_product(before ^ MIX_GOLDEN, (uint64_t)position * 2 + UINT64_C(0xbf58476d1ce4e5b9));
	h = (h ^ (h >> 29)) * UINT64_C(0x94d049bb133111eb);
	h = (h ^ (h >> 32)) & ~UINT64_C(1);
	/* 0 is reserved for pages that were prefilled throughout */
	return h ? h | decoding : UINT64_C(2) | decoding;
}

struct walk {
	const struct prefix_cache *c;
	const struct prefix_key *key;
	uint32_t limit; /* whole pages before the last token, in tokens */
	/* best: the edge with the deepest place at which a request can resume, n_best tokens from the root. known: the
	 * edge with the deepest page that matches; its end is n_known tokens from the root. */
	struct prefix_node *best, *known;
	uint32_t n_best, n_known;
	struct prefix_node *pending[VARIANTS_MAX + 1]; /* nodes to visit, the next one last */
	uint32_t n_pending, n_variants;
};

/* Returns the origin that the key requires of the page whose last token is at page_end - 1. Pages behind it must have
 * the same origin if they end at *ret_until or before. A switch at the end of a page, behind its last token, does not
 * concern the page. */
static uint64_t key_origin(const struct prefix_key *key, uint32_t page_end, uint32_t *ret_until)
{
	uint32_t i = 0;

	while (i + 1 < key->n_switches && key->switches[i + 1].position < page_end)
		i++;
	*ret_until = i + 1 < key->n_switches ? key->switches[i + 1].position : UINT32_MAX;
	return key->n_switches ? key->switches[i].origin : PREFIX_PREFILLED;
}

static bool may_match(const struct walk *w, const struct prefix_node *n, uint32_t page_end)
{
	uint32_t until;

	return w->key->origin_any || key_origin(w->key, page_end, &until) == n->origin;
}

/* Adds the children of n whose first page matches the key to w->pending, the one to try first on top. Leaves out those
 * beyond the limit of VARIANTS_MAX. */
static void look_below(struct walk *w, const struct prefix_node *n)
{
	const struct radix *t = &w->c->tree;
	const int32_t *tokens = w->key->tokens + n->depth;
	uint32_t first = w->n_pending;

	if (w->limit - n->depth < t->page_tokens)
		return;
	for (struct prefix_node *child =
		     radix_first(t, n, tokens, radix_page_hash(t, radix_content(n), tokens));
	     child; child = radix_next_variant(t, child)) {
		if (!may_match(w, child, n->depth + t->page_tokens))
			continue;
		if (w->n_pending > first && w->n_variants++ >= VARIANTS_MAX)
			break;
		w->pending[w->n_pending++] = child;
	}
	for (uint32_t i = first, k = w->n_pending; i + 1 < k; i++) {
		struct prefix_node *swap = w->pending[i];

		w->pending[i] = w->pending[--k];
		w->pending[k] = swap;
	}
}

static void visit(struct walk *w, struct prefix_node *n)
{
	const struct radix *t = &w->c->tree;
	uint32_t start = radix_start(t, n), max = (w->limit - start) / t->page_tokens, k, end,
		 until;

	if (!w->key->origin_any) {
		(void)key_origin(w->key, start + t->page_tokens, &until);
		max = MIN(max, (until - start) / t->page_tokens);
	}
	k = radix_equal_pages(t, n, w->key->tokens + start, max);
	end = start + k * t->page_tokens;
	if (end > w->n_known) {
		w->n_known = end;
		w->known = n;
	}
	if (end > w->n_best && (!w->c->config.state_tokens || w->key->pages_only ||
				(k == n->n_pages && n->slot != POOL_NONE))) {
		w->n_best = end;
		w->best = n;
	}
	if (k == n->n_pages)
		look_below(w, n);
}

static enum prefix_miss miss_of(const struct walk *w, const struct prefix_match *m)
{
	const struct prefix_cache_config *config = &w->c->config;
	const struct radix *t = &w->c->tree;
	uint32_t unit = w->key->pages_only ? config->page_tokens
					   : MAX(config->state_tokens, config->page_tokens),
		 target = w->limit / unit * unit;
	const struct prefix_space *space = &w->key->space;
	uint64_t content;

	if (!target)
		return PREFIX_MISS_SHORT;
	if (m->n_tokens == target)
		return PREFIX_MISS_NONE;
	if (m->branch) {
		for (const struct prefix_node *n = w->known; n->depth > m->n_tokens; n = n->parent)
			if (n->state_evicted && n->depth <= m->n_known)
				return PREFIX_MISS_EVICTED_STATE;
		return PREFIX_MISS_NO_CHECKPOINT;
	}
	if (!w->known)
		content = radix_space_content(t, space);
	else if (!w->known->n_pages)
		content = w->known->content;
	else
		content =
			w->known->hashes[(m->n_known - radix_start(t, w->known)) / t->page_tokens -
					 1];
	if (m->n_known < w->limit &&
	    ghosts_have(&w->c->ghosts, radix_page_hash(t, content, w->key->tokens + m->n_known)))
		return PREFIX_MISS_EVICTED_PAGE;
	return space->id[0] || space->id[1] ? PREFIX_MISS_SALT : PREFIX_MISS_COLD;
}

void prefix_cache_match(const struct prefix_cache *c, const struct prefix_key *key,
			struct prefix_match *ret)
{
	uint32_t page = c->config.page_tokens, state = key->pages_only ? 0 : c->config.state_tokens;
	struct walk w;

	w.c = c;
	w.key = key;
	w.limit = key->n_tokens ? (key->n_tokens - 1) / page * page : 0;
	w.best = w.known = radix_find_space(&c->tree, &key->space);
	w.n_best = w.n_known = w.n_pending = w.n_variants = 0;
	if (w.best)
		look_below(&w, w.best);
	while (w.n_pending)
		visit(&w, w.pending[--w.n_pending]);

	*ret = (struct prefix_match){
		.n_tokens = w.n_best,
		.n_known = w.n_known,
		.slot = state && w.n_best ? w.best->slot : POOL_NONE,
		.origin = w.n_best ? w.best->origin : PREFIX_PREFILLED,
		.node = w.best,
	};
	if (state && w.n_known / state * state > w.n_best)
		ret->branch = w.n_known / state * state;
	ret->miss = miss_of(&w, ret);
}
