/* prefix_cache/radix: nodes, their edges, and the map that finds nodes, without pools. Most pages have two tokens. */
#include <stdlib.h>

#include "prefix_cache/pool.h"
#include "prefix_cache/radix.h"
#include "tests/tap.h"

static const struct prefix_space no_space;

static struct prefix_node *hang(struct radix *t, struct prefix_node *parent, const int32_t *tokens,
				uint32_t n_pages, uint64_t origin)
{
	struct prefix_node *n = radix_new_node(t, n_pages);
	uint32_t *pages = calloc(n_pages, sizeof(*pages));

	for (uint32_t i = 0; i < n_pages; i++)
		pages[i] = 100 + i;
	radix_hang(t, parent, n, tokens, pages, n_pages, origin);
	free(pages);
	return n;
}

static struct prefix_node *find(const struct radix *t, const struct prefix_node *parent,
				const int32_t *tokens, uint64_t origin)
{
	return radix_find(t, parent, tokens, radix_page_hash(t, radix_content(parent), tokens),
			  origin);
}

TEST(edges)
{
	const int32_t abcdef[] = {1, 2, 3, 4, 5, 6}, other[] = {1, 2, 3, 9, 5, 6}, more[] = {7, 8};
	const uint32_t page = 77;
	struct radix t;
	struct prefix_node *space, *n, *prefix;
	uint64_t content;

	ok(radix_init(&t, 2, 8) == 0, "a tree");
	ok(radix_find_space(&t, &no_space) == NULL, "no space");
	space = radix_add_space(&t, &no_space);
	ok(radix_find_space(&t, &no_space) == space, "a space");
	n = hang(&t, space, abcdef, 3, 0);
	ok(n->depth == 6 && n->n_pages == 3 && n->id == 1 && n->parent == space &&
		   space->n_children == 1,
	   "a node");
	ok(find(&t, space, abcdef, 0) == n && !find(&t, space, abcdef, 2) &&
		   !find(&t, space, abcdef + 2, 0) && !find(&t, n, abcdef, 0),
	   "is found by parent, page and origin");
	ok(radix_equal_pages(&t, n, abcdef, 9) == 3 && radix_equal_pages(&t, n, abcdef, 2) == 2 &&
		   radix_equal_pages(&t, n, other, 3) == 1 &&
		   radix_equal_pages(&t, n, other, 0) == 0,
	   "whole pages that are equal");
	content = radix_content(n);
	ok(radix_append(&t, n, more, &page, 1) == 0 && n->depth == 8 && n->pages[3] == 77 &&
		   n->tokens[7] == 8 && n->tokens[0] == 1 &&
		   radix_content(n) == radix_page_hash(&t, content, more),
	   "grows");
	n->locks = 3;
	n->slot = 5;
	prefix = radix_new_node(&t, 1);
	content = radix_content(n);
	radix_split(&t, n, 1, prefix);
	ok(prefix->parent == space && n->parent == prefix &&
		   list_first(&space->children, struct prefix_node, sibling) == prefix &&
		   space->n_children == 1,
	   "a split: the prefix above");
	ok(prefix->depth == 2 && n->depth == 8 && n->n_pages == 3 && n->tokens[0] == 3 &&
		   n->pages[0] == 101 && radix_content(n) == content,
	   "the edge is cut");
	ok(prefix->locks == 1 && n->locks == 3 && n->slot == 5 && prefix->slot == POOL_NONE &&
		   n->id == 1,
	   "slot, locks and identity stay with the suffix");
	ok(find(&t, space, abcdef, 0) == prefix && find(&t, prefix, abcdef + 2, 0) == n,
	   "both are found");
	radix_remove(&t, n);
	ok(prefix->n_children == 0 && !find(&t, prefix, abcdef + 2, 0) && t.n_nodes == 1,
	   "a leaf goes");
	radix_release(&t);
}

TEST(many_children)
{
	enum { N = 10000 };
	struct radix t;
	struct prefix_node *space, **nodes = calloc(N, sizeof(*nodes)), *n;
	uint32_t longest = 0, i = 0;

	check(radix_init(&t, 2, N) == 0);
	space = radix_add_space(&t, &no_space);
	for (int32_t k = 0; k < N; k++)
		nodes[k] = hang(&t, space, (const int32_t[]){k % 100, k / 100}, 1, 0);
	for (int32_t k = 0; k < N; k++)
		check(find(&t, space, (const int32_t[]){k % 100, k / 100}, 0) == nodes[k]);
	ok_all("10,000 children of one node are found");
	for (uint64_t b = 0; b < t.nodes.n_buckets; b++) {
		uint32_t length = 0;

		for (const struct map_node *at = t.nodes.buckets[b]; at; at = at->next)
			length++;
		longest = MAX(longest, length);
	}
	ok(longest < 16, "a few steps each (%u at most)", longest);
	for (n = radix_walk(&t.root); n; n = radix_walk(n))
		if (n != space)
			check(n == nodes[i++]);
	check(i == N);
	ok_all("a walk shows them by age");
	for (int32_t k = 0; k < N; k += 2)
		radix_remove(&t, nodes[k]);
	for (int32_t k = 0; k < N; k++)
		check(find(&t, space, (const int32_t[]){k % 100, k / 100}, 0) ==
		      (k % 2 ? nodes[k] : NULL));
	ok_all("and the others when every second went");
	radix_release(&t);
	free(nodes);
}

TEST(variants)
{
	const int32_t page[] = {1, 2};
	const uint64_t origins[] = {3, 5, 0, 7};
	struct prefix_node *nodes[4], *space, *n, *prefix;
	struct radix t;

	check(radix_init(&t, 2, 64) == 0);
	space = radix_add_space(&t, &no_space);
	for (int i = 0; i < 4; i++)
		nodes[i] = hang(&t, space, (const int32_t[]){1, 2, 3, 4}, 2, origins[i]);
	prefix = radix_new_node(&t, 1);
	radix_split(&t, nodes[0], 1, prefix);
	n = radix_first(&t, space, page, radix_page_hash(&t, radix_content(space), page));
	check(n == nodes[2]);
	check((n = radix_next_variant(&t, n)) == prefix);
	check((n = radix_next_variant(&t, n)) == nodes[1]);
	check((n = radix_next_variant(&t, n)) == nodes[3]);
	check(!radix_next_variant(&t, n));
	ok_all("variants: origin 0, then by age, also after a split");
	radix_release(&t);
}

/* Whatever the length of pages, every token of a page counts for its hash. */
TEST(hash)
{
	for (uint32_t page_tokens = 1; page_tokens < 20; page_tokens++) {
		int32_t tokens[20] = {0};
		struct radix t;
		uint64_t h;

		check(radix_init(&t, page_tokens, 1) == 0);
		h = radix_page_hash(&t, 1, tokens);
		check(h == radix_page_hash(&t, 1, tokens) && h != radix_page_hash(&t, 2, tokens));
		for (uint32_t i = 0; i < page_tokens; i++) {
			tokens[i] = 1;
			check(h != radix_page_hash(&t, 1, tokens));
			tokens[i] = 0;
		}
		tokens[page_tokens] = 1;
		check(h == radix_page_hash(&t, 1, tokens));
		radix_release(&t);
	}
	ok_all("a hash covers its page and what came before, nothing else");
}

/* radix_release does not recurse: it frees a path of 200,000 nodes. */
TEST(deep)
{
	struct prefix_node *n;
	struct radix t;

	check(radix_init(&t, 2, 200000) == 0);
	n = radix_add_space(&t, &no_space);
	for (int32_t i = 0; i < 200000; i++)
		n = hang(&t, n, (const int32_t[]){i, i}, 1, 0);
	is_int(n->depth, 400000, "a deep path");
	radix_release(&t);
	ok(t.n_nodes == 0 && t.n_spaces == 0, "all of it freed");
}

TEST_MAIN()
