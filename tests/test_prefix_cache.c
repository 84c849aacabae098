/* prefix_cache/prefix_cache.c: using a match, memory, and the views. Pages have two tokens. */
#include <errno.h>

#include "tests/prefix_fixture.h"
#include "tests/tap.h"

TEST(use)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 4);
	uint32_t pages[8];
	struct prefix_node *n;
	struct prefix_match m;
	struct text t = text("abcdefg");
	struct prefix_key key = {.tokens = t.tokens, .n_tokens = t.n, .origin_any = true};

	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	leave(c, "abcdef", PREFIX_CHECKPOINT_PROMPT);
	prefix_cache_match(c, &key, &m);
	n = prefix_cache_use(c, &key, &m, pages);
	ok(prefix_node_tokens(n) == 6 && pages[0] == 0 && pages[1] == 1 && pages[2] == 4,
	   "the pages of the whole path");
	ok(stats(c).evictable_slots == 1, "the state is pinned");
	prefix_cache_unpin(c, m.slot);
	prefix_cache_unlock(c, n);
	ok(stats(c).evictable_slots == 2 && stats(c).evictable_pages == 3, "and all is let go");

	c = new_cache(2, 0, 16, 0);
	prefix_cache_unlock(c, grow(c, begin(c), "abcdefgh"));
	n = use_in(c, 0, "abcdXX", pages);
	ok(prefix_node_tokens(n) == 4 && stats(c).nodes == 2 && stats(c).evictable_pages == 2,
	   "without states a match inside an edge splits it and locks the prefix only");
	prefix_cache_unlock(c, n);
}

TEST(probe_inside_edge)
{
	struct prefix_cache *c = new_cache(2, 0, 4, 0);
	struct prefix_match m;

	prefix_cache_unlock(c, grow(c, begin(c), "abcdefgh"));
	m = match(c, "abXXX");
	ok(m.n_tokens == 2 && prefix_cache_can_take(c, &m, 3, 0) &&
		   !prefix_cache_can_take(c, &m, 4, 0),
	   "a probe beside a match inside an edge counts the rest of the edge");
}

TEST(flush)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 4);
	struct prefix_node *n;
	uint32_t id;

	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	n = use(c, "abcde");
	ok(prefix_cache_flush(c) == -EBUSY && match(c, "abcde").n_tokens == 4,
	   "no flush while something is locked");
	prefix_cache_unlock(c, n);
	id = prefix_cache_take_page(c);
	ok(prefix_cache_flush(c) == -EBUSY && match(c, "abcde").n_tokens == 4, "or a page is held");
	prefix_cache_put_page(c, id);
	id = prefix_cache_take_slot(c);
	ok(prefix_cache_flush(c) == -EBUSY && match(c, "abcde").n_tokens == 4, "or a slot");
	prefix_cache_put_slot(c, id);
	ok(prefix_cache_shuffle(c, 1) == -EBUSY, "no shuffle while the tree has anything");
	ok(prefix_cache_flush(c) == 0 && stats(c).nodes == 0 && stats(c).spaces == 0,
	   "then all is forgotten");
	ok(stats(c).free_pages == 16 && stats(c).free_slots == 4, "and free");
	ok(prefix_cache_shuffle(c, 1) == 0, "now ids can be renamed");
	leave(c, "abcd", PREFIX_CHECKPOINT_PROMPT);
	ok(match(c, "abcde").n_tokens == 4, "and it works as before");
}

struct seen {
	struct prefix_view views[8];
	uint32_t n, max;
};

static bool see(void *arg, const struct prefix_view *v)
{
	struct seen *s = arg;

	s->views[s->n++] = *v;
	return s->n < s->max;
}

TEST(walk)
{
	struct prefix_cache *c = new_cache(2, 2, 16, 8);
	struct seen s = {.max = 8};
	struct prefix_node *n;
	uint64_t h = prefix_origin(0, 4, true);

	leave(c, "abcd", PREFIX_CHECKPOINT_MESSAGE);
	n = keep(c, grow_as(c, use(c, "abcde"), "efgh", h, 2, NULL), PREFIX_CHECKPOINT_DECODE);
	prefix_cache_unlock(c, use_in(c, 9, "zz", NULL));
	leave(c, "abxy", PREFIX_CHECKPOINT_PROMPT);
	prefix_cache_unlock(c, grow(c, use_in(c, 9, "", NULL), "uv"));
	prefix_cache_walk(c, see, &s);
	is_int(s.n, 5, "five nodes");
	ok(s.views[0].parent == 0 && s.views[1].parent == s.views[0].id &&
		   s.views[2].parent == s.views[1].id && s.views[3].parent == s.views[0].id &&
		   s.views[4].parent == 0,
	   "parents before children, the older branch first");
	ok(s.views[0].depth == 2 && s.views[1].depth == 4 && s.views[2].depth == 8 &&
		   s.views[2].n_pages == 2 && s.views[2].n_tokens == 4 &&
		   s.views[2].tokens[3] == 'h',
	   "edges");
	ok(s.views[1].id == 1 && s.views[2].id == 2 && s.views[0].id == 3,
	   "numbers in order of creation");
	ok(s.views[1].hits == 1 && s.views[1].kind == PREFIX_CHECKPOINT_MESSAGE &&
		   s.views[1].slot == 0 && s.views[0].slot == POOL_NONE &&
		   s.views[2].kind == PREFIX_CHECKPOINT_DECODE,
	   "hits and states");
	ok(s.views[2].locks == 1 && s.views[1].locks == 1 && s.views[3].locks == 0 &&
		   s.views[2].origin == h,
	   "locks, origin");
	ok(s.views[4].space.id[1] == 9 && s.views[3].space.id[1] == 0, "spaces");
	ok(s.views[4].age < s.views[3].age, "ages");
	s = (struct seen){.max = 2};
	prefix_cache_walk(c, see, &s);
	is_int(s.n, 2, "until it is told to stop");
	keep(c, n, PREFIX_CHECKPOINT_PROMPT);
	s = (struct seen){.max = 8};
	prefix_cache_walk(c, see, &s);
	is_int(s.views[2].kind, PREFIX_CHECKPOINT_PROMPT,
	       "a state that is wanted for a better reason has that");
	prefix_cache_unlock(c, n);
}

/* The pools give out the smallest free id, unless they are shuffled. Nothing else depends on the ids. */
TEST(shuffled_is_the_same)
{
	struct prefix_cache *plain = new_cache(2, 2, 8, 4), *shuffled = new_cache(2, 2, 8, 4);
	struct prefix_cache *both[] = {plain, shuffled};

	check(prefix_cache_shuffle(shuffled, 5) == 0);
	for (int i = 0; i < 2; i++) {
		leave(both[i], "abcd", PREFIX_CHECKPOINT_CHUNK);
		leave(both[i], "abef", PREFIX_CHECKPOINT_CHUNK);
		leave(both[i], "wxyz", PREFIX_CHECKPOINT_PROMPT);
		leave(both[i], "qrst", PREFIX_CHECKPOINT_PROMPT);
		leave(both[i], "mnop", PREFIX_CHECKPOINT_PROMPT);
	}
	check(stats(plain).evicted_pages > 0 &&
	      stats(plain).evicted_pages == stats(shuffled).evicted_pages);
	for (const char *const *s =
		     (const char *const[]){"abcd!", "abef!", "wxyz!", "qrst!", "mnop!", NULL};
	     *s; s++) {
		struct prefix_match a = match(plain, *s), b = match(shuffled, *s);

		check(a.n_tokens == b.n_tokens && a.n_known == b.n_known && a.miss == b.miss);
	}
	ok_all("who is evicted does not depend on the order of free ids");
}

TEST(nothing)
{
	struct prefix_cache *c = new_cache(64, 64, 0, 0);

	ok(prefix_cache_take_page(c) == POOL_NONE && prefix_cache_take_slot(c) == POOL_NONE &&
		   prefix_cache_can_take(c, NULL, 0, 0) && prefix_cache_flush(c) == 0,
	   "a cache of nothing");
	prefix_cache_free(NULL);
}

TEST_MAIN()
