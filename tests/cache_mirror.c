#include "tests/cache_mirror.h"

#include <assert.h>
#include <string.h>

static bool copy_node(void *arg, const struct prefix_view *v)
{
	struct mirror *m = arg;
	struct mirror_node *n = &m->nodes[m->n++];

	assert(m->n <= MIRROR_NODES && v->depth <= MIRROR_LEN);
	n->start = 0;
	for (uint32_t i = 0; i + 1 < m->n; i++) {
		const struct mirror_node *p = &m->nodes[i];

		if (p->id != v->parent)
			continue;
		memcpy(n->tokens, p->tokens, p->depth * sizeof(*n->tokens));
		memcpy(n->origin, p->origin, p->depth / m->page_tokens * sizeof(*n->origin));
		memcpy(n->pages, p->pages, p->depth / m->page_tokens * sizeof(*n->pages));
		n->start = p->depth;
	}
	n->id = v->id;
	n->space = v->space;
	n->depth = v->depth;
	n->slot = v->slot;
	n->locks = v->locks;
	memcpy(n->tokens + n->start, v->tokens, v->n_tokens * sizeof(*n->tokens));
	for (uint32_t i = 0; i < v->n_pages; i++) {
		n->pages[n->start / m->page_tokens + i] = v->pages[i];
		n->origin[n->start / m->page_tokens + i] = v->origin;
	}
	return true;
}

void mirror_take(struct mirror *m, const struct prefix_cache *c,
		 const struct prefix_cache_config *config)
{
	m->page_tokens = config->page_tokens;
	m->state_tokens = config->state_tokens;
	m->n = 0;
	prefix_cache_walk(c, copy_node, m);
}

static bool same_space(const struct prefix_space *a, const struct prefix_space *b)
{
	return a->id[0] == b->id[0] && a->id[1] == b->id[1];
}

/* Returns how many tokens of the node's path match the key: whole pages that end before the key's last token. */
static uint32_t reach(const struct mirror *m, const struct mirror_node *n,
		      const struct mirror_key *key)
{
	uint32_t P = m->page_tokens, at = 0;

	if (!same_space(&n->space, &key->space))
		return 0;
	for (; at + P <= n->depth && at + P < key->n_tokens; at += P) {
		uint64_t origin = at + P <= key->n_prompt ? PREFIX_PREFILLED : key->decoded;

		if (memcmp(n->tokens + at, key->tokens + at, P * sizeof(*key->tokens)) ||
		    (!key->any && n->origin[at / P] != origin))
			break;
	}
	return at;
}

/* Whether a request may begin behind the first `at` tokens of n's path, which match, and this place lies in n's own
 * edge. */
static bool resumable(const struct mirror *m, const struct mirror_node *n, uint32_t at)
{
	return m->state_tokens ? at == n->depth && n->slot != POOL_NONE
			       : at > n->start && at <= n->depth;
}

void mirror_match(const struct mirror *m, const struct mirror_key *key, uint32_t *ret_known,
		  uint32_t *ret_tokens)
{
	*ret_known = *ret_tokens = 0;
	for (uint32_t i = 0; i < m->n; i++) {
		const struct mirror_node *n = &m->nodes[i];
		uint32_t at = reach(m, n, key);

		*ret_known = MAX(*ret_known, at);
		if (resumable(m, n, at))
			*ret_tokens = MAX(*ret_tokens, at);
	}
}

static uint32_t add_end(struct mirror_end *out, uint32_t n, uint32_t P, struct mirror_end end)
{
	for (uint32_t i = 0; i < n; i++)
		if (out[i].n_tokens == end.n_tokens && out[i].n_known == end.n_known &&
		    (!end.n_tokens || !memcmp(out[i].node->pages, end.node->pages,
					      end.n_tokens / P * sizeof(*end.node->pages))))
			return n;
	if (n == MIRROR_ENDS)
		return n;
	out[n] = end;
	return n + 1;
}

uint32_t mirror_ends(const struct mirror *before, const struct mirror *after,
		     const struct mirror_key *key, struct mirror_end out[MIRROR_ENDS])
{
	uint32_t known, tokens, known_after, tokens_after, n = 0, P = before->page_tokens;

	mirror_match(before, key, &known, &tokens);
	mirror_match(after, key, &known_after, &tokens_after);
	for (uint32_t k = known_after; k <= known; k += P) {
		for (uint32_t i = 0; i < before->n; i++) {
			const struct mirror_node *node = &before->nodes[i];
			uint32_t at = reach(before, node, key);

			for (uint32_t d = MAX(tokens_after, P); d <= MIN(at, MIN(tokens, k));
			     d += P)
				if (resumable(before, node, d))
					n = add_end(out, n, P, (struct mirror_end){node, d, k});
		}
		if (!tokens_after)
			n = add_end(out, n, P, (struct mirror_end){NULL, 0, k});
		if (known == known_after)
			break;
	}
	/* The longest come first, because they are the likeliest. */
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t k = i; k > 0 && out[k].n_tokens > out[k - 1].n_tokens; k--) {
			struct mirror_end swap = out[k];

			out[k] = out[k - 1];
			out[k - 1] = swap;
		}
	if (known == known_after && tokens == tokens_after)
		while (n > 1 && out[n - 1].n_tokens < tokens)
			n--;
	return n;
}

const struct mirror_node *mirror_find(const struct mirror *m, const struct prefix_space *space,
				      const int32_t *tokens, const uint64_t *origin,
				      uint32_t n_pages)
{
	for (uint32_t i = 0; i < m->n; i++) {
		const struct mirror_node *n = &m->nodes[i];

		if (n->depth >= n_pages * m->page_tokens && same_space(&n->space, space) &&
		    !memcmp(n->tokens, tokens, n_pages * m->page_tokens * sizeof(*tokens)) &&
		    !memcmp(n->origin, origin, n_pages * sizeof(*origin)))
			return n;
	}
	return NULL;
}

static uint64_t add(uint64_t h, uint64_t v)
{
	h = (h ^ (v + UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 29;
}

uint64_t mirror_name(const struct mirror *m, const struct mirror_node *n, uint32_t depth,
		     bool with_origin)
{
	uint64_t h = mirror_name_of(&n->space, n->tokens, depth);

	for (uint32_t i = 0; with_origin && i < depth / m->page_tokens; i++)
		h = add(h, n->origin[i]);
	return h;
}

uint64_t mirror_name_of(const struct prefix_space *space, const int32_t *tokens, uint32_t depth)
{
	uint64_t h = add(add(add(0, depth), space->id[0]), space->id[1]);

	for (uint32_t i = 0; i < depth; i++)
		h = add(h, (uint32_t)tokens[i]);
	return h;
}
