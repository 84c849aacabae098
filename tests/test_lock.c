/* prefix_cache/lock: a locked node is not evicted, nor is a pinned state with its node. Two tokens a page. */
#include "tests/prefix_fixture.h"
#include "tests/tap.h"

TEST(paths)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 8);
	struct prefix_node *a, *b;

	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "abcdef", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "abcdxy", PREFIX_CHECKPOINT_PROMPT);
	is_int(stats(c).evictable_pages, 4, "nothing is locked");
	a = use(c, "abcdefg");
	is_int(stats(c).evictable_pages, 1, "a lock holds everything above");
	b = use(c, "abcdxyz");
	is_int(stats(c).evictable_pages, 0, "two branches");
	prefix_cache_lock(c, a);
	prefix_cache_unlock(c, a);
	is_int(stats(c).evictable_pages, 0, "locks are counted");
	prefix_cache_unlock(c, a);
	is_int(stats(c).evictable_pages, 1, "the trunk stays with the other branch");
	is_int(stats(c).evictable_slots, 3, "states can go all the time");
	prefix_cache_check(c);
	prefix_cache_unlock(c, b);
	is_int(stats(c).evictable_pages, 4, "and everything again");
}

TEST(never_evicted)
{
	struct prefix_cache *c = new_cache(2, 2, 4, 2);
	struct prefix_node *n;

	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "wxyz", PREFIX_CHECKPOINT_PROMPT);
	n = use(c, "abcde");
	ok(prefix_cache_take_page(c) != POOL_NONE && prefix_cache_take_page(c) != POOL_NONE &&
		   prefix_cache_take_page(c) == POOL_NONE,
	   "the locked leaf is skipped, though it is older");
	ok(match(c, "abcde").n_tokens == 4 && match(c, "wxyz!").n_tokens == 0,
	   "the other one went");
	prefix_cache_unlock(c, n);
}

TEST(pins)
{
	struct prefix_cache *c = new_cache(2, 2, 4, 2);
	struct prefix_node *n = keep(c, grow(c, begin(c), "ab"), PREFIX_CHECKPOINT_DECODE);

	prefix_cache_pin(c, 0);
	is_int(stats(c).evictable_slots, 0, "a pinned state is not evictable");
	is_int(prefix_cache_take_slot(c), 1, "the other slot");
	ok(prefix_cache_take_slot(c) == POOL_NONE && prefix_node_has_checkpoint(n),
	   "but not the pinned one");
	prefix_cache_unlock(c, n);
	is_int(stats(c).evictable_pages, 0, "the pin holds the node as well");
	n = use(c, "abc");
	prefix_cache_check(c);
	prefix_cache_unpin(c, 0);
	ok(prefix_cache_take_slot(c) == 0 && !prefix_node_has_checkpoint(n), "unpinned it goes");
	prefix_cache_unlock(c, n);

	c = new_cache(2, 2, 4, 2);
	n = keep(c, grow(c, begin(c), "ab"), PREFIX_CHECKPOINT_DECODE);
	prefix_cache_pin(c, 0);
	prefix_cache_pin(c, 0);
	prefix_cache_retire(c, n);
	ok(!prefix_node_has_checkpoint(n) && stats(c).free_slots == 1,
	   "a state that left while a step reads it is nobody's yet");
	prefix_cache_unlock(c, n);
	is_int(stats(c).evictable_pages, 1, "and holds no node any more");
	prefix_cache_check(c);
	prefix_cache_unpin(c, 0);
	is_int(stats(c).free_slots, 1, "pins are counted");
	ok(prefix_cache_flush(c) < 0, "no flush under a pin");
	prefix_cache_unpin(c, 0);
	is_int(stats(c).free_slots, 2, "the last one frees it");

	/* A request's own slot, pinned before it is handed over to the tree. */
	c = new_cache(2, 2, 4, 2);
	n = grow(c, begin(c), "ab");
	check(prefix_cache_take_slot(c) == 0);
	prefix_cache_pin(c, 0);
	prefix_cache_checkpoint(c, n, 0, PREFIX_CHECKPOINT_PROMPT);
	prefix_cache_unlock(c, n);
	check(stats(c).evictable_slots == 0 && stats(c).evictable_pages == 0);
	prefix_cache_check(c);
	prefix_cache_unpin(c, 0);
	check(stats(c).evictable_slots == 1 && stats(c).evictable_pages == 1);
	prefix_cache_check(c);
	ok_all("a pin moves into the tree with its slot");
}

TEST_MAIN()
