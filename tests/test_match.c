/* prefix_cache/match: how much of a prompt the cache has, and why not more. Two tokens a page. */
#include "tests/prefix_fixture.h"
#include "tests/tap.h"

TEST(state)
{
	struct prefix_cache *c = new_cache(2, 4, 16, 8);
	struct prefix_node *n = grow(c, begin(c), "abcdef");
	struct prefix_match m = match(c, "abcdefghi");

	ok(m.n_tokens == 0 && m.slot == POOL_NONE && m.n_known == 6 && m.branch == 4 &&
		   m.miss == PREFIX_MISS_NO_CHECKPOINT,
	   "three pages without a slot give depth 0, no state, a branch at 4");
	prefix_cache_unlock(c, n);

	n = keep(c, grow(c, begin(c), "abcd"), PREFIX_CHECKPOINT_CHUNK);
	n = grow(c, n, "efgh");
	m = match(c, "abcdefghi");
	ok(m.n_tokens == 4 && m.n_known == 8 && m.branch == 8 && m.slot == 0 &&
		   m.origin == PREFIX_PREFILLED,
	   "a slot at two of four pages gives depth 2");
	keep(c, n, PREFIX_CHECKPOINT_PROMPT);
	m = match(c, "abcdefghi");
	ok(m.n_tokens == 8 && m.branch == 0 && m.miss == PREFIX_MISS_NONE, "then all of it");
	m = match(c, "abcdefgh");
	ok(m.n_tokens == 4 && m.n_known == 6 && m.branch == 0 && m.miss == PREFIX_MISS_NONE,
	   "the last token is left to compute, and 4 is all that a state can be kept at before it");
	prefix_cache_unlock(c, n);
}

TEST(edge_end)
{
	struct prefix_cache *c = new_cache(2, 4, 16, 8);
	struct prefix_match m;

	leave(c, "abcdefgh", PREFIX_CHECKPOINT_PROMPT);
	m = match(c, "abcdefgX!");
	ok(m.n_tokens == 0 && m.n_known == 6 && m.branch == 4,
	   "a state counts only at its exact end");
	c = new_cache(2, 0, 16, 0);
	prefix_cache_unlock(c, grow(c, begin(c), "abcdefgh"));
	m = match(c, "abcdefgX!");
	ok(m.n_tokens == 6 && m.n_known == 6 && m.branch == 0 && m.slot == POOL_NONE,
	   "without states a match ends anywhere in an edge");
}

TEST(reasons)
{
	struct prefix_cache *c = new_cache(2, 2, 8, 8);
	struct prefix_node *n;

	ok(match(c, "").miss == PREFIX_MISS_SHORT && match(c, "ab").miss == PREFIX_MISS_SHORT,
	   "shorter than a page");
	ok(match(c, "abc").miss == PREFIX_MISS_COLD, "cold");
	ok(match_in(c, 7, "abc").miss == PREFIX_MISS_SALT, "not in this space");
	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	ok(match(c, "abcde").miss == PREFIX_MISS_NONE, "none");
	ok(match_in(c, 7, "abcde").miss == PREFIX_MISS_SALT && match_in(c, 7, "abcde").n_known == 0,
	   "what one space knows another one does not");
	ok(match(c, "abX").miss == PREFIX_MISS_NO_CHECKPOINT,
	   "the pages are there, no state was kept");
	ok(match(c, "abcdefg").miss == PREFIX_MISS_COLD, "cold after a hit");

	/* A locked node loses its state when slots are short. */
	n = use(c, "abcde");
	for (int i = 0; i < 8; i++)
		check(prefix_cache_take_slot(c) != POOL_NONE);
	ok_all("all slots taken");
	ok(match(c, "abcde").miss == PREFIX_MISS_EVICTED_STATE, "the state was evicted");
	prefix_cache_unlock(c, n);
	for (int i = 0; i < 7; i++)
		check(prefix_cache_take_page(c) != POOL_NONE);
	ok_all("seven pages taken");
	ok(match(c, "abcde").miss == PREFIX_MISS_EVICTED_PAGE, "the page was evicted");
	ok(match(c, "aXcde").miss == PREFIX_MISS_COLD, "another was never there");

	is_str(prefix_miss_name(PREFIX_MISS_EVICTED_PAGE), "evicted-page", "reasons have names");
	is_str(prefix_miss_name((enum prefix_miss)99), "unknown", "wrong ones too");
	for (int i = 0; i < PREFIX_MISS_N; i++)
		check(prefix_miss_name((enum prefix_miss)i) != NULL);
	ok_all("all of them");
}

TEST(came_back)
{
	struct prefix_cache *c = new_cache(2, 2, 3, 3);

	leave(c, "abcdef", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "uvwx", PREFIX_CHECKPOINT_PROMPT); /* all three pages of abcdef are evicted */
	leave(c, "ab", PREFIX_CHECKPOINT_PROMPT);
	ok(match(c, "abcde").n_tokens == 2 && match(c, "abcde").miss == PREFIX_MISS_EVICTED_PAGE,
	   "the beginning came back, what followed is still known to have been evicted");
	check(prefix_cache_flush(c) == 0);
	ok_all("flushed");
	ok(match(c, "abcde").miss == PREFIX_MISS_COLD, "after a flush everything is cold");
}

TEST(variants)
{
	struct prefix_cache *c = new_cache(2, 2, 32, 16);
	uint64_t h1 = prefix_origin(PREFIX_PREFILLED, 2, true),
		 h2 = prefix_origin(PREFIX_PREFILLED, 3, true);
	struct prefix_switch switches[] = {{0, PREFIX_PREFILLED}, {2, h2}};
	struct text t = text("abcdefg");
	struct prefix_key key = {.tokens = t.tokens,
				 .n_tokens = t.n,
				 .switches = switches,
				 .n_switches = 2};
	struct prefix_node *ab = grow(c, begin(c), "ab"), *n1, *n2, *n0;
	struct prefix_match m;

	prefix_cache_lock(c, ab);
	prefix_cache_lock(c, ab);
	n1 = keep(c, grow_as(c, ab, "cd", h1, 2, NULL), PREFIX_CHECKPOINT_DECODE);
	n2 = keep(c, grow_as(c, ab, "cd", h2, 2, NULL), PREFIX_CHECKPOINT_DECODE);
	ok(n1 != n2, "equal tokens with different origins are different children");
	m = match(c, "abcdefg");
	ok(m.n_tokens == 4 && m.origin == h1, "of equally deep ones the older");
	n0 = keep(c, grow(c, ab, "cd"), PREFIX_CHECKPOINT_CHUNK);
	m = match(c, "abcdefg");
	ok(m.n_tokens == 4 && m.origin == PREFIX_PREFILLED, "what was prefilled before any other");
	n2 = keep(c, grow_as(c, n2, "ef", h2, 2, NULL), PREFIX_CHECKPOINT_DECODE);
	m = match(c, "abcdefg");
	ok(m.n_tokens == 6 && m.origin == h2, "the deepest before anything else");
	m = match(c, "abcdX");
	ok(m.n_tokens == 4 && m.origin == PREFIX_PREFILLED,
	   "back to the cleaner where the deepest has nothing");

	prefix_cache_match(c, &key, &m);
	ok(m.n_tokens == 6 && m.origin == h2, "a request that comes back finds its own");
	switches[1].position = 4;
	prefix_cache_match(c, &key, &m);
	ok(m.n_tokens == 4 && m.origin == PREFIX_PREFILLED && m.n_known == 4,
	   "a switch at a page's end concerns the next page");
	switches[1].position = 3;
	prefix_cache_match(c, &key, &m);
	ok(m.n_tokens == 6 && m.origin == h2, "a switch at a page's last token concerns this page");
	switches[1].origin = h1;
	prefix_cache_match(c, &key, &m);
	ok(m.n_tokens == 4 && m.origin == h1 && m.n_known == 4,
	   "and does not go on in another origin");
	prefix_cache_check(c);
	prefix_cache_unlock(c, n0);
	prefix_cache_unlock(c, n1);
	prefix_cache_unlock(c, n2);
}

/* Paths of the same tokens with different origins: one may have the state, and another one the deepest pages. */
TEST(variants_apart)
{
	struct prefix_cache *c = new_cache(2, 2, 32, 16);
	uint64_t h = prefix_origin(PREFIX_PREFILLED, 0, true);
	struct prefix_match m;

	prefix_cache_unlock(c, grow(c, begin(c), "abcdefgh"));
	prefix_cache_unlock(c, keep(c, grow_as(c, begin(c), "abcd", h, 2, NULL),
				    PREFIX_CHECKPOINT_DECODE));
	m = match(c, "abcdefghi");
	ok(m.n_tokens == 4 && m.origin == h && m.n_known == 8 && m.branch == 8 &&
		   m.miss == PREFIX_MISS_NO_CHECKPOINT,
	   "resumes in the one, knows of the other");
}

/* Many origins of the same tokens: a match tries a bounded number of them, and still finds the best one. */
TEST(many_variants)
{
	enum { N = 300 };
	struct prefix_cache *c = new_cache(2, 2, 2 * N, N + 1);
	struct prefix_match m;

	for (uint32_t i = 0; i < N; i++)
		prefix_cache_unlock(
			c, keep(c, grow_as(c, begin(c), "ab", prefix_origin(0, i, true), 2, NULL),
				PREFIX_CHECKPOINT_DECODE));
	m = match(c, "abc");
	ok(stats(c).nodes == N && m.n_tokens == 2 && m.origin == prefix_origin(0, 0, true),
	   "the oldest of 300");
	prefix_cache_unlock(c, keep(c, grow(c, begin(c), "ab"), PREFIX_CHECKPOINT_CHUNK));
	ok(match(c, "abc").origin == PREFIX_PREFILLED, "the clean one is tried first among 301");
}

/* A match of pages alone (pages_only), for a request that needs no state. */
TEST(pages_only)
{
	struct prefix_cache *c = new_cache(2, 4, 16, 8);
	struct prefix_node *n = grow(c, begin(c), "abcdef"), *used;
	struct text t = text("abcdXX");
	struct prefix_key key = {.tokens = t.tokens, .n_tokens = t.n, .pages_only = true};
	uint64_t h = prefix_origin(PREFIX_PREFILLED, 6, true);
	struct prefix_match m;
	uint32_t pages[8];

	n = keep(c, grow_as(c, n, "gh", h, 2, NULL), PREFIX_CHECKPOINT_DECODE);
	prefix_cache_match(c, &key, &m);
	ok(m.n_tokens == 4 && m.n_known == 4 && m.slot == POOL_NONE && m.branch == 0 &&
		   m.miss == PREFIX_MISS_NONE,
	   "pages alone: anywhere in an edge, without a state");
	ok(prefix_cache_can_take(c, &m, 12, 7) && !prefix_cache_can_take(c, &m, 13, 0),
	   "nothing that is locked already is counted twice");
	used = prefix_cache_use(c, &key, &m, pages);
	ok(used && prefix_node_tokens(used) == 4 && pages[0] != pages[1], "they can be used");
	prefix_cache_check(c);
	prefix_cache_unlock(c, used);
	t = text("abcdefghij");
	key.n_tokens = t.n;
	prefix_cache_match(c, &key, &m);
	ok(m.n_tokens == 6 && m.origin == PREFIX_PREFILLED, "only what was prefilled throughout");
	used = prefix_cache_use(c, &key, &m, pages);
	prefix_cache_unlock(c, n);
	prefix_cache_check(c);
	ok(!prefix_cache_can_take(c, NULL, 14, 0) && prefix_cache_can_take(c, NULL, 13, 8),
	   "what is used stays, what hangs below it may go");
	prefix_cache_unlock(c, used);
	key.origin_any = true;
	prefix_cache_match(c, &key, &m);
	used = prefix_cache_use(c, &key, &m, pages);
	ok(m.n_tokens == 8 && m.slot == POOL_NONE && used && prefix_node_has_checkpoint(used) &&
		   prefix_cache_can_take(c, NULL, 12, 8),
	   "a state that happens to be there is not pinned");
	prefix_cache_check(c);
	prefix_cache_unlock(c, used);
	ok(prefix_cache_flush(c) == 0, "nothing is locked");
}

TEST(origin)
{
	uint64_t seen[200], h = PREFIX_PREFILLED;

	ok(prefix_origin(0, 5, false) == 0, "prefilling on changes nothing");
	ok(prefix_origin(0, 5, true) & 1, "bit 0: decoding");
	ok(prefix_origin(prefix_origin(0, 5, true), 9, true) == prefix_origin(0, 5, true),
	   "decoding on neither");
	for (uint32_t i = 0; i < ARRAY_SIZE(seen); i++) {
		h = prefix_origin(h, i / 2, !(h & 1));
		seen[i] = h;
		check(h != PREFIX_PREFILLED);
		for (uint32_t k = 0; k < i; k++)
			check(seen[k] != h);
	}
	ok_all("every change gives another origin, never that of a clean path");
}

TEST_MAIN()
