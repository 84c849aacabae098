/* prefix_cache/evict: the order of eviction. Two tokens a page, 10 bytes a page, 100 a slot. */
#include "prefix_cache/evict.h"
#include "tests/prefix_fixture.h"
#include "tests/tap.h"

/* Takes all free pages and one more, so that one has to be evicted. short_of_slot: the same for slots. */
static void short_of_page(struct prefix_cache *c)
{
	while (stats(c).free_pages)
		assert(prefix_cache_take_page(c) != POOL_NONE);
	assert(prefix_cache_take_page(c) != POOL_NONE);
}

static void short_of_slot(struct prefix_cache *c)
{
	while (stats(c).free_slots)
		assert(prefix_cache_take_slot(c) != POOL_NONE);
	assert(prefix_cache_take_slot(c) != POOL_NONE);
}

static bool known(const struct prefix_cache *c, const char *s)
{
	return match(c, s).n_known == strlen(s) - 1;
}

static bool resumable(const struct prefix_cache *c, const char *s)
{
	return match(c, s).n_tokens == strlen(s) - 1;
}

TEST(without_states)
{
	struct prefix_cache *c = new_cache(2, 0, 6, 0);

	prefix_cache_unlock(c, grow(c, begin(c), "ab"));
	prefix_cache_unlock(c, grow(c, begin(c), "cd"));
	prefix_cache_unlock(c, grow(c, begin(c), "ef"));
	hit(c, "ab!");
	short_of_page(c);
	ok(known(c, "ab!") && !known(c, "cd!") && known(c, "ef!"),
	   "the longest unused goes, a hit is a use");
	short_of_page(c);
	ok(known(c, "ab!") && !known(c, "ef!"), "then the next");
	short_of_page(c);
	ok(!known(c, "ab!"), "then the last");
}

TEST(touch_while_locked)
{
	struct prefix_cache *c = new_cache(2, 0, 4, 0);
	struct prefix_node *a = grow(c, begin(c), "ab"), *b;

	prefix_cache_unlock(c, grow(c, begin(c), "cd"));
	b = use(c, "ab!");
	prefix_cache_unlock(c, b);
	prefix_cache_unlock(c, a);
	short_of_page(c);
	ok(known(c, "ab!") && !known(c, "cd!"), "touching while locked counts");
}

TEST(cascade)
{
	struct prefix_cache *c = new_cache(2, 2, 6, 6);

	leave(c, "ab", PREFIX_CHECKPOINT_CHUNK);
	leave(c, "abcd", PREFIX_CHECKPOINT_CHUNK);
	leave(c, "abcdef", PREFIX_CHECKPOINT_PROMPT);
	while (stats(c).tree_pages)
		short_of_page(c);
	ok(stats(c).evicted_pages == 3 && stats(c).evicted_slots == 3 && stats(c).nodes == 0,
	   "eviction cascades to a parent that became a leaf, slots go with their pages");
}

TEST(bare_first)
{
	struct prefix_cache *c = new_cache(2, 2, 8, 4);

	leave(c, "ab", PREFIX_CHECKPOINT_PROMPT);
	prefix_cache_unlock(c, grow(c, begin(c), "cdef"));
	short_of_page(c);
	ok(!known(c, "cd!") && resumable(c, "ab!"),
	   "a leaf that nothing can be resumed at goes first, though it is younger");
}

TEST(inner_first)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 4);

	leave(c, "ab", PREFIX_CHECKPOINT_CHUNK);
	leave(c, "abcd", PREFIX_CHECKPOINT_CHUNK);
	leave(c, "abcdef", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "xy", PREFIX_CHECKPOINT_PROMPT);
	short_of_slot(c);
	ok(!resumable(c, "ab!") && resumable(c, "abcd!") && resumable(c, "abcdef!") &&
		   resumable(c, "xy!"),
	   "never-hit chunk boundaries first, shallow first");
	is_int(match(c, "ab!").miss, PREFIX_MISS_EVICTED_STATE, "only the state went");
	short_of_slot(c);
	ok(!resumable(c, "abcd!") && resumable(c, "abcdef!"), "then the deeper");
	is_int(stats(c).evicted_pages, 0, "no page went");
	is_int(stats(c).evicted_unhit_slots, 2, "nobody had hit them");
}

TEST(branch_stays)
{
	struct prefix_cache *c = new_cache(2, 2, 32, 5);

	leave(c, "ab", PREFIX_CHECKPOINT_MESSAGE);
	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "abef", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "qr", PREFIX_CHECKPOINT_MESSAGE);
	leave(c, "qrst", PREFIX_CHECKPOINT_PROMPT);
	short_of_slot(c);
	ok(resumable(c, "ab!") && !resumable(c, "qr!"),
	   "where paths part a state is worth more than where one passes");
}

TEST(hits_count)
{
	struct prefix_cache *c = new_cache(2, 2, 32, 4);

	leave(c, "ab", PREFIX_CHECKPOINT_MESSAGE);
	leave(c, "cd", PREFIX_CHECKPOINT_MESSAGE);
	leave(c, "abxx", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "cdxx", PREFIX_CHECKPOINT_PROMPT);
	for (int i = 0; i < 3; i++)
		hit(c, "ab!");
	hit(c, "cd!");
	short_of_slot(c);
	ok(resumable(c, "ab!") && !resumable(c, "cd!"),
	   "what was hit often stays longer, though it was longer ago");

	c = new_cache(2, 2, 32, 2);
	leave(c, "ab", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "cd", PREFIX_CHECKPOINT_PROMPT);
	hit(c, "ab!");
	hit(c, "ab!");
	hit(c, "cd!");
	short_of_slot(c);
	ok(resumable(c, "ab!") && !resumable(c, "cd!"), "also among leaves");
}

/* 20 tokens for the 100 bytes of a state are more than 24 for the 220 of a leaf with its pages. */
TEST(bytes)
{
	struct prefix_cache *c = new_cache(2, 2, 64, 3);

	leave(c, "abcdefghijklmnopqrst", PREFIX_CHECKPOINT_MESSAGE);
	leave(c,
	      "abcdefghijklmnopqrst"
	      "0123456789abcdefghijklmn",
	      PREFIX_CHECKPOINT_PROMPT);
	leave(c,
	      "abcdefghijklmnopqrst"
	      "9876543210abcdefghijklmn",
	      PREFIX_CHECKPOINT_PROMPT);
	short_of_slot(c);
	ok(resumable(c, "abcdefghijklmnopqrst!") && stats(c).evicted_pages == 12 &&
		   stats(c).tree_slots == 2,
	   "tokens are weighed against the bytes that come free");
}

/* A request goes on behind its own checkpoint: then this checkpoint is no longer at a leaf. */
TEST(grown_past)
{
	struct prefix_cache *c = new_cache(2, 2, 64, 2);
	struct prefix_node *n =
		keep(c, grow(c, begin(c), "abcdefghijklmnopqrst"), PREFIX_CHECKPOINT_CHUNK);

	n = grow(c, n, "uv");
	leave(c, "xy", PREFIX_CHECKPOINT_PROMPT);
	short_of_slot(c);
	ok(!resumable(c, "abcdefghijklmnopqrst!") && resumable(c, "xy!"),
	   "what a request went past goes before a leaf");
	prefix_cache_unlock(c, n);
}

/* Of two states, the one that saves more tokens for its bytes goes later. */
TEST(worth)
{
	struct prefix_cache *c = new_cache(2, 2, 64, 2);

	leave(c, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "01", PREFIX_CHECKPOINT_PROMPT);
	short_of_slot(c);
	ok(match(c, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz!").n_tokens == 52 &&
		   !resumable(c, "01!"),
	   "52 tokens outlast 2, though they are older");
}

/* When a state goes, the next one of the path is worth more. Eviction notices that when it comes to the next one. */
TEST(lazy_correction)
{
	struct prefix_cache *c = new_cache(2, 2, 64, 3);

	leave(c, "abcdefghijklmnopqrst", PREFIX_CHECKPOINT_CHUNK);
	leave(c, "abcdefghijklmnopqrstuv", PREFIX_CHECKPOINT_PROMPT); /* saves 2 more tokens */
	leave(c, "0123", PREFIX_CHECKPOINT_PROMPT);		      /* saves 4 tokens */
	short_of_slot(c);
	check(match(c, "abcdefghijklmnopqrstuv!").n_tokens == 22 || resumable(c, "0123!"));
	prefix_cache_check(c);
	while (stats(c).tree_slots > 1)
		short_of_slot(c);
	ok_all("states go one by one");
	ok(match(c, "abcdefghijklmnopqrstuv!").n_tokens > 0,
	   "the last of a long path outlasts a short one");
}

/* A prefix that is never used again is evicted in the end, whatever it was worth. */
TEST(ages)
{
	struct prefix_cache *c = new_cache(2, 2, 64, 4);
	char s[] = "00";
	int rounds = 0;

	leave(c, "abcdefghijklmnop", PREFIX_CHECKPOINT_PROMPT);
	while (match(c, "abcdefghijklmnop!").n_tokens && rounds < 500) {
		s[0] = (char)('0' + rounds % 70);
		s[1] = (char)('0' + rounds / 70);
		leave(c, s, PREFIX_CHECKPOINT_PROMPT);
		rounds++;
	}
	ok(rounds > 4 && rounds < 100,
	   "a long path outlasts short ones, but not for ever (%d rounds)", rounds);
}

TEST(budget)
{
	struct prefix_cache_config config = {
		.page_tokens = 2,
		.state_tokens = 2,
		.n_pages = 100,
		.n_slots = 100,
		.page_bytes = 10,
		.slot_bytes = 100,
		.budget_bytes = 330,
	};
	struct prefix_cache *c = prefix_cache_new(&config);
	uint32_t slot;

	for (const char *s = "abcdefghij"; *s; s += 2) {
		char two[3] = {s[0], s[1], 0};

		leave(c, two, PREFIX_CHECKPOINT_PROMPT);
		check(stats(c).used_bytes <= 330);
	}
	ok_all("pages and slots stay within the budget together");
	ok(stats(c).tree_slots == 3 && stats(c).tree_pages == 3 && resumable(c, "ij!") &&
		   !resumable(c, "ab!"),
	   "what fits is there, the youngest of it");
	ok(prefix_cache_can_take(c, NULL, 0, 3) && !prefix_cache_can_take(c, NULL, 0, 4) &&
		   prefix_cache_can_take(c, NULL, 33, 0) &&
		   !prefix_cache_can_take(c, NULL, 34, 0) &&
		   !prefix_cache_can_take(c, NULL, UINT64_MAX, 0) &&
		   !prefix_cache_can_take(c, NULL, 0, UINT64_MAX),
	   "what could be taken is counted in bytes");
	slot = prefix_cache_take_slot(c);
	ok(slot != POOL_NONE && prefix_cache_take_slot(c) != POOL_NONE &&
		   prefix_cache_take_slot(c) != POOL_NONE,
	   "three slots fit");
	ok(prefix_cache_take_slot(c) == POOL_NONE && stats(c).used_bytes <= 330,
	   "a fourth does not, whatever goes");
	free_cache(c);
}

TEST(refusal_changes_nothing)
{
	struct prefix_cache *c = new_cache(2, 2, 4, 2);
	struct prefix_node *n;
	struct prefix_match m;

	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "wxyz", PREFIX_CHECKPOINT_PROMPT);
	m = match(c, "abcde");
	ok(prefix_cache_can_take(c, NULL, 4, 2) && prefix_cache_can_take(c, &m, 2, 1) &&
		   !prefix_cache_can_take(c, &m, 3, 0) && !prefix_cache_can_take(c, &m, 0, 2),
	   "a probe counts without what its match would lock and pin");
	ok(resumable(c, "abcd!") && resumable(c, "wxyz!") && stats(c).evicted_pages == 0,
	   "asking changes nothing");
	n = use(c, "abcde");
	prefix_cache_unlock(c, n);
}

TEST(order)
{
	static const struct evict_key rising[] = {
		{.score = 1, .hit = true, .depth = 9, .used = 9, .id = 9},
		{.score = 2, .hit = false, .depth = 1, .used = 5, .id = 5},
		{.score = 2, .hit = false, .depth = 1, .used = 6, .id = 3},
		{.score = 2, .hit = false, .depth = 1, .used = 6, .id = 4},
		{.score = 2, .hit = false, .depth = 2, .used = 1, .id = 2},
		{.score = 2, .hit = true, .depth = 1, .used = 1, .id = 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rising); i++)
		for (size_t k = 0; k < ARRAY_SIZE(rising); k++)
			check(evict_key_before(&rising[i], &rising[k]) == (i < k));
	ok_all("score, never hit, shallow, unused for longest, number");
}

TEST_MAIN()
