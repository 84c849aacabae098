/* prefix_cache/tree: growing, splitting, keeping states. Two tokens a page. */
#include "tests/prefix_fixture.h"
#include "tests/tap.h"

TEST(split)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 8);
	struct prefix_node *a = keep(c, grow(c, begin(c), "abcdef"), PREFIX_CHECKPOINT_PROMPT), *b;
	struct prefix_match m;
	uint32_t pages[8];

	b = grow_as(c, begin(c), "abcdxy", PREFIX_PREFILLED, 2, pages);
	m = match(c, "abcdefg");
	ok(m.node == a && m.n_tokens == 6 && m.slot == 0, "a split keeps the slot on the suffix");
	ok(prefix_node_tokens(a) == 6 && prefix_node_tokens(b) == 6 && stats(c).nodes == 3,
	   "two suffixes, one prefix");
	ok(pages[0] == 0 && pages[1] == 1 && pages[2] != 2,
	   "the duplicates were exchanged for the tree's pages");
	is_int(stats(c).tree_pages, 4, "and went back to the pool");
	is_int(stats(c).free_pages, 12, "all of them");
	prefix_cache_unlock(c, b);
	is_int(stats(c).evictable_pages, 1, "the locks stay with the suffix and hold the prefix");
	prefix_cache_unlock(c, a);
	is_int(stats(c).evictable_pages, 4, "without them everything can go");
}

TEST(extend_to_inside)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 8);
	struct prefix_node *a = grow(c, begin(c), "abcdef"), *b = grow(c, begin(c), "ab");

	ok(prefix_node_tokens(b) == 2 && b != a, "what ends inside an edge gets a node there");
	keep(c, b, PREFIX_CHECKPOINT_CHUNK);
	ok(match(c, "abcdefg").n_tokens == 2, "that can have a state of its own");
	b = grow(c, b, "cdef");
	ok(b == a && stats(c).nodes == 2, "growing into what is known ends at its node");
	prefix_cache_unlock(c, a);
	prefix_cache_unlock(c, b);
}

TEST(in_place)
{
	struct prefix_cache *c = new_cache(2, 2, 32, 8);
	uint64_t h = prefix_origin(0, 8, true);
	struct prefix_node *a = grow(c, begin(c), "ab"), *b;

	b = grow(c, a, "cd");
	ok(a == b && stats(c).nodes == 1 && prefix_node_tokens(a) == 4,
	   "a leaf that only the caller locks grows in place");
	prefix_cache_lock(c, a);
	b = grow(c, a, "ef");
	ok(a != b && prefix_node_tokens(a) == 4, "not when somebody else locks it");
	prefix_cache_unlock(c, a);
	a = grow_as(c, b, "gh", h, 2, NULL);
	ok(a != b, "not in another origin");
	keep(c, a, PREFIX_CHECKPOINT_DECODE);
	b = grow_as(c, a, "ij", h, 2, NULL);
	ok(a != b, "not over a state");
	keep(c, b, PREFIX_CHECKPOINT_DECODE);
	prefix_cache_retire(c, b);
	a = grow_as(c, b, "kl", h, 2, NULL);
	ok(a == b && !prefix_node_has_checkpoint(a), "but where it was retired");
	for (int i = 0; i < 20; i++)
		a = grow_as(c, a, "mn", h, 2, NULL);
	ok(a == b && prefix_node_tokens(a) == 52, "and on and on");
	prefix_cache_check(c);
	prefix_cache_unlock(c, a);
}

TEST(checkpoint)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 8);
	struct prefix_node *a = keep(c, grow(c, begin(c), "ab"), PREFIX_CHECKPOINT_DECODE), *b;

	b = keep(c, grow(c, begin(c), "ab"), PREFIX_CHECKPOINT_DECODE);
	ok(a == b && stats(c).tree_slots == 1 && stats(c).free_slots == 7,
	   "the second state of a node is put back");
	prefix_cache_retire(c, a);
	ok(prefix_node_has_checkpoint(a), "what two wanted neither retires");
	prefix_cache_unlock(c, a);

	a = keep(c, grow(c, b, "cd"), PREFIX_CHECKPOINT_DECODE);
	hit(c, "abcde");
	prefix_cache_retire(c, a);
	ok(prefix_node_has_checkpoint(a), "what was hit stays");
	b = keep(c, grow(c, a, "ef"), PREFIX_CHECKPOINT_DECODE);
	prefix_cache_retire(c, b);
	ok(!prefix_node_has_checkpoint(b), "what nobody wanted goes");
	prefix_cache_retire(c, b);
	ok(match(c, "abcdefg").miss == PREFIX_MISS_NO_CHECKPOINT, "and that is no eviction");
	keep(c, b, PREFIX_CHECKPOINT_PROMPT);
	prefix_cache_retire(c, b);
	ok(prefix_node_has_checkpoint(b), "only decode checkpoints retire");
	prefix_cache_unlock(c, b);
}

TEST(shared_page)
{
	struct prefix_cache *c = new_cache(2, 2, 4, 2);
	struct text t = text("abcd");
	uint32_t pages[2] = {prefix_cache_take_page(c), prefix_cache_take_page(c)}, again[2];
	struct prefix_node *n;

	prefix_cache_ref_page(c, pages[0]); /* the reference of a second choice */
	again[0] = pages[0];
	n = prefix_cache_extend(c, begin(c), t.tokens, pages, 2, PREFIX_PREFILLED);
	prefix_cache_unlock(c, n);
	is_int(stats(c).evictable_pages, 1,
	       "a page that a request shares with the tree comes free for nobody");
	ok(prefix_cache_can_take(c, NULL, 3, 0) && !prefix_cache_can_take(c, NULL, 4, 0),
	   "and is not counted on");
	ok(prefix_cache_take_page(c) == 2 && prefix_cache_take_page(c) == 3 &&
		   prefix_cache_take_page(c) == 1 && prefix_cache_take_page(c) == POOL_NONE,
	   "its node goes, the page stays with the request");
	prefix_cache_put_page(c, again[0]);
	is_int(prefix_cache_take_page(c), 0, "until that gives it back");

	c = new_cache(2, 2, 4, 2);
	pages[0] = again[0] = prefix_cache_take_page(c);
	prefix_cache_ref_page(c, pages[0]);
	n = prefix_cache_extend(c, begin(c), t.tokens, pages, 1, PREFIX_PREFILLED);
	prefix_cache_unlock(c,
			    prefix_cache_extend(c, begin(c), t.tokens, again, 1, PREFIX_PREFILLED));
	ok(again[0] == pages[0] && stats(c).free_pages == 3,
	   "both choices hand the same page over");
	prefix_cache_unlock(c, n);
	is_int(stats(c).evictable_pages, 1, "and then it is the tree's alone");
}

TEST(refused)
{
	struct prefix_cache_config config = {
		.page_tokens = 2,
		.state_tokens = 2,
		.n_pages = 8,
		.n_slots = 2,
		.page_bytes = 1,
		.slot_bytes = 1,
		.refuse_decoded = true,
	};
	struct prefix_cache *c = prefix_cache_new(&config);
	uint32_t page = prefix_cache_take_page(c), id = page;
	struct prefix_node *n = begin(c);
	struct text t = text("ab");

	ok(!prefix_cache_extend(c, n, t.tokens, &id, 1, prefix_origin(0, 0, true)) && id == page &&
		   stats(c).nodes == 0 && stats(c).tree_pages == 0,
	   "decoded pages are refused, and the caller keeps them and its lock");
	n = prefix_cache_extend(c, n, t.tokens, &id, 1, PREFIX_PREFILLED);
	ok(n != NULL, "prefilled ones are not");
	prefix_cache_unlock(c, n);
	free_cache(c);
}

TEST(spaces)
{
	struct prefix_cache *c = new_cache(2, 2, 8, 4);
	struct prefix_node *a = use_in(c, 1, "", NULL), *b = use_in(c, 2, "", NULL);

	ok(a != b && stats(c).spaces == 2, "a node for each space");
	prefix_cache_unlock(c, b);
	is_int(stats(c).spaces, 1, "that goes when nobody needs it");
	a = keep(c, grow(c, a, "ab"), PREFIX_CHECKPOINT_PROMPT);
	prefix_cache_unlock(c, a);
	ok(stats(c).spaces == 1 && match_in(c, 1, "abc").n_tokens == 2 &&
		   match_in(c, 2, "abc").n_tokens == 0 && match(c, "abc").n_tokens == 0,
	   "spaces do not meet");
	for (int i = 0; i < 8; i++)
		check(prefix_cache_take_page(c) != POOL_NONE);
	ok_all("all pages taken");
	is_int(stats(c).spaces, 0, "and goes with its last page");
}

TEST_MAIN()
