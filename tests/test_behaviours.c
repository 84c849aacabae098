/*
 * Twenty behaviours of a scheduler with a hybrid prefix cache, numbered; a page has 2 tokens. 1 to 6, 11 and 12 are
 * about a model without recurrent state. 7 to 10 check which states are *published*, not how many rows computed them: a
 * row may keep states inside its window. 13 to 16 and 20 call the prefix cache directly. 17 checks ids; test_mover.c
 * checks their bytes. 18: a refused submission changes nothing; the daemon takes back the other prompts of its call
 * (daemon/steps/live.c).
 *
 * scheduler_world.h says how prompts and plans are written.
 */
#include <errno.h>
#include <stdlib.h>

#include "scheduler/chunking.h"
#include "tests/prefix_fixture.h"
#include "tests/scheduler_world.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { END = WORLD_END, LEN = WORLD_LEN };

static struct world *new_world(uint32_t state_tokens, uint32_t n_pages, uint32_t budget)
{
	struct scheduler_config c = world_config(state_tokens, n_pages, budget);

	return world_new(&c);
}

TEST(1_to_3)
{
	struct world *w = new_world(0, 100, 4);

	world_submit(w, "aaaaaaaa", 3);
	step_is(w, 1, "a0+4", "1: budget 4, prompt 8: a chunk of 4 at prefix 0");
	step_is(w, 1, "a4+4!", "1: a chunk of 4 at prefix 4");
	step_is(w, END, "@8!", "1: the third step decodes");

	w = new_world(0, 100, 4);
	world_submit(w, "dd", 9);
	world_step(w, 1);
	world_submit(w, "aaaaaaaa", 9);
	step_is(w, 1, "a0+4 @2!", "2: r1 begins");
	world_submit(w, "bb", 9);
	step_is(w, 1, "a4+4! @3!", "2: r1 mid-prefill, r2 arrives: only r1's goes on, and decodes");
	step_is(w, END, "b0+2! @4! @8!", "2: then r2");

	w = new_world(0, 100, 4);
	world_submit(w, "aaaa", 9);
	world_submit(w, "bbbb", 9);
	step_is(w, 1, "a0+4!", "3: budget 4, two 4-token prompts: one is scheduled");
	step_is(w, END, "b0+4! @4!", "3: then the other");
}

TEST(4_to_6)
{
	struct world *w = new_world(0, 100, 64);
	uint32_t pages[4];

	world_submit(w, "aaaabbbb", 1);
	plan_is(w, "a0+8!", "4: a prompt of 8");
	memcpy(pages, w->plan->rows[0].pages, sizeof(pages));
	world_commit(w, 1);
	world_submit(w, "aaaabbbb", 1);
	step_is(w, 1, "b6+2!", "4: the same again: hit 6, input 2");
	ok(w->n_events == 1 && w->events[0].hit.n_cached == 6 &&
		   w->events[0].hit.miss == PREFIX_MISS_NONE && w->events[0].hit.step == 2,
	   "4: which its event says, and that step 2 computed first");

	world_submit(w, "aaaabbbbcccc", 1);
	plan_is(w, "c8+4!", "5: 8 shared and 4 new: prefix 8, input 4");
	ok(!memcmp(pages, w->plan->rows[0].pages, sizeof(pages)), "5: on the same pages");
	world_commit(w, 1);
	is_int(w->events[0].hit.miss, PREFIX_MISS_COLD, "5: what follows is cold");

	w = new_world(0, 100, 4);
	world_submit(w, "aaaabbbbcc", 100);
	world_step(w, 1);
	world_step(w, 1);
	ok(world_published_text(w, "aaaabbbbcc", 8), "6: what is prefilled is published at once");
	scheduler_abort(w->s, 1);
	world_submit(w, "aaaabbbbdd", 1);
	step_is(w, 1, "d8+2!", "6: finishing early keeps the pages of the prefill");
}

TEST(7_to_9)
{
	static const struct {
		uint32_t first, left, budget, want;
	} align[] = {
		{16, 24, 24, 16}, {16, 24, 8, 8}, {24, 16, 16, 8}, {24, 4, 16, 4}, {32, 16, 10, 8}};
	static const char seed[] = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbcccccccc";
	struct world *w = new_world(4, 100, 6);

	world_submit(w, "aaaabbbbcccc", 1);
	world_run(w, 1);
	ok(world_published_text(w, "aaaabbbbcccc", 4) &&
		   world_published_text(w, "aaaabbbbcccc", 8) &&
		   world_published_text(w, "aaaabbbbcccc", 12),
	   "7: state page 4, budget 6, prompt 12: states at 4, 8 and 12");

	w = new_world(4, 100, 64);
	world_submit(w, "aaaabbbbcc", 1);
	world_submit(w, "ddddeeeeff", 1);
	world_run(w, 1);
	ok(world_published_text(w, "aaaabbbbcc", 8) && world_published_text(w, "ddddeeeeff", 8) &&
		   !world_published_text(w, "aaaabbbbcc", 10),
	   "8: state page 4, two 10-token prompts: states at 8");

	/* A window may end at 32, where a state is wanted, or keep the state there and go on. */
	for (size_t i = 0; i < ARRAY_SIZE(align); i++) {
		uint32_t first = align[i].first, end;
		struct request r = {.ask = {.n_prompt = first + align[i].left},
				    .wanted = {32},
				    .n_wanted = 1};
		struct kept_state kept[SNAPSHOTS_MAX];
		bool found = false;
		uint32_t n;

		end = first + chunking_window(4, first, r.ask.n_prompt, align[i].budget);
		n = chunking_checkpoints(&r, first, end, 4, kept);
		for (uint32_t k = 0; k < n; k++)
			found |= kept[k].n_tokens == first + align[i].want;
		ok(found || end == first + align[i].want, "9: (%u, %u, %u): a state %u further on",
		   first, align[i].left, align[i].budget, align[i].want);
	}
	w = new_world(4, 1000, 256);
	world_submit(w, seed, 1);
	world_run(w, 1);
	ok(!world_published_text(w, seed, 32), "9: nobody wanted a state at 32 so far");
	world_submit(w, "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbddddd", 1);
	world_run(w, 1);
	ok(world_published_text(w, seed, 32), "9: with a promotion at 32 there is one");
}

TEST(10)
{
	struct world *w = new_world(2, 100, 64);

	world_submit(w, "aaaaaaaabbb", 1);
	world_run(w, 1);
	ok(world_published_text(w, "aaaaaaaabbb", 10), "10: a seed of 11 leaves a state at 10");
	ok(!world_published_text(w, "aaaaaaaa", 8), "10: and none at 8");
	world_submit(w, "aaaaaaaaccc", 1);
	world_step(w, 1);
	ok(w->events[0].hit.n_cached == 0 && w->events[0].hit.miss == PREFIX_MISS_NO_CHECKPOINT,
	   "10: a second one that parts from it at 8 finds no checkpoint");
	ok(world_published_text(w, "aaaaaaaa", 8) && world_published_text(w, "aaaaaaaaccc", 10),
	   "10: and leaves states at 8 and 10");
	world_submit(w, "aaaaaaaaddd", 1);
	step_is(w, 1, "d8+3^10!", "10: a third hits 8");
}

TEST(11_and_12)
{
	struct world *w = new_world(0, 10, 64);
	struct scheduler_stats st;
	uint64_t r1, r2;

	world_submit(w, "aaaaaaaaaaaaaaaaaa", 2);
	world_submit(w, "bbbb", 2);
	step_is(w, 1, "a0+18!", "11: pool of 10 pages: r1 takes all");
	step_is(w, 1, "@18!", "11: r2 waits");
	step_is(w, END, "b0+4!", "11: and runs after");

	w = new_world(0, 10, 64);
	w->config.max_plans_out = 2;
	scheduler_free(w->s);
	if (scheduler_new(&w->config, &w->s, NULL) < 0)
		abort();
	r1 = world_submit(w, "aaaaaaaa", 6);
	r2 = world_submit(w, "bbbbbbbb", 6);
	step_is(w, 1, "a0+8! b0+8!", "12: two prompts of 8 in 10 pages");
	plan_is(w, "@8! @8!", "12: decode");
	step_is(w, 1, "@9?! @9?!", "12: with two plans out");
	plan_is(w, "nothing", "12: both are stuck: quiet while a result is pending");
	scheduler_stats(w->s, &st);
	ok(st.retractions == 0 && st.running == 2, "12: and nobody is retracted");
	world_commit(w, 1);
	plan_is(w, "@10!", "12: then one of them goes on");
	scheduler_stats(w->s, &st);
	ok(st.retractions == 1 && st.running == 1 && st.waiting == 1,
	   "12: the other was retracted");
	world_commit(w, 2);
	ok(w->n_events == 1 && w->events[0].request == r2, "12: r1, of equal ones the oldest");
	for (int i = 0; i < 9 && !w->events[0].request_finished; i++) {
		world_step(w, 2);
	}
	ok(w->events[0].request == r2 && w->events[0].finish == FINISH_LENGTH, "12: r2 ends");
	for (int i = 0; i < 20 && scheduler_plan(w->s); i++)
		world_commit(w, 3);
	ok(w->n_events == 1 && w->events[0].request == r1 && w->events[0].finish == FINISH_LENGTH,
	   "12: r1 comes back and ends");
	scheduler_stats(w->s, &st);
	ok(st.running == 0 && st.waiting == 0 &&
		   st.cache.free_pages + st.cache.tree_pages == w->config.n_pages,
	   "12: nothing leaks");
}

/* ---- the cache by itself ---- */

/* Adds the first n_tokens of the text to the tree, with a state at their end in `slot` (POOL_NONE: none). Returns the
 * node that ends there, locked. */
static struct prefix_node *insert(struct prefix_cache *c, const char *s, uint32_t n_tokens,
				  uint32_t slot)
{
	uint32_t known = match(c, s).n_tokens;
	struct prefix_node *at = use(c, s);
	char rest[LEN];

	snprintf(rest, sizeof(rest), "%.*s", (int)(n_tokens - known), s + known);
	at = grow(c, at, rest);
	if (slot != POOL_NONE)
		prefix_cache_checkpoint(c, at, slot, PREFIX_CHECKPOINT_CHUNK);
	prefix_cache_check(c);
	return at;
}

TEST(13_to_15)
{
	struct prefix_cache *c = new_cache(2, 4, 100, 10);
	struct prefix_node *n, *longer;
	struct prefix_match m;
	uint32_t slot;

	n = insert(c, "aabbcc", 6, POOL_NONE);
	prefix_cache_unlock(c, n);
	m = match(c, "aabbccdd");
	ok(m.n_tokens == 0 && m.slot == POOL_NONE && m.n_known == 6 && m.branch == 4,
	   "13: 3 pages without a slot: depth 0, nothing to copy, branching at 4");
	slot = prefix_cache_take_slot(c);
	n = insert(c, "ddeeffgg", 4, slot);
	longer = insert(c, "ddeeffgg", 8, POOL_NONE);
	prefix_cache_unlock(c, n);
	prefix_cache_unlock(c, longer);
	m = match(c, "ddeeffggh");
	ok(m.n_tokens == 4 && m.slot == slot && m.n_known == 8 && m.branch == 8,
	   "13: a slot at 2 of 4 pages: depth 2 pages");

	slot = prefix_cache_take_slot(c);
	n = insert(c, "hhiijjkk", 8, slot);
	prefix_cache_unlock(c, n);
	longer = insert(c, "hhiilll", 6, POOL_NONE);
	prefix_cache_unlock(c, longer);
	m = match(c, "hhiijjkkl");
	ok(m.n_tokens == 8 && m.slot == slot, "14: a split keeps the slot on the suffix");
	m = match(c, "hhiizz");
	ok(m.n_tokens == 0 && m.n_known == 4 && m.branch == 4, "14: and none on the prefix");

	n = insert(c, "mmnnoo", 6, POOL_NONE);
	m = match(c, "mmnnoop");
	ok(m.n_tokens == 0 && m.n_known == 6,
	   "15: a chunk that ends unaligned: a later probe has prefix 0");
	prefix_cache_unlock(c, n);
	ok(prefix_cache_flush(c) == 0, "nothing is locked");
}

TEST(16)
{
	struct prefix_cache *c = new_cache(2, 0, 8, 0);
	struct prefix_node *locked = insert(c, "aabbcc", 6, POOL_NONE), *old, *young;
	uint32_t taken[8];

	old = insert(c, "ddee", 4, POOL_NONE);
	young = insert(c, "ddeeffgg", 8, POOL_NONE);
	prefix_cache_unlock(c, young);
	prefix_cache_unlock(c, old);
	is_int(match(c, "ddeeffggh").n_tokens, 8, "16: a parent and its leaf");
	for (uint32_t i = 0; i < 3; i++)
		taken[i] = prefix_cache_take_page(c);
	prefix_cache_check(c);
	is_int(match(c, "ddeeffggh").n_tokens, 4, "16: the leaf goes first");
	for (uint32_t i = 3; i < 5; i++)
		taken[i] = prefix_cache_take_page(c);
	prefix_cache_check(c);
	is_int(match(c, "ddeeffggh").n_tokens, 0, "16: and then its parent, which is a leaf now");
	ok(taken[4] != POOL_NONE && prefix_cache_take_page(c) == POOL_NONE,
	   "16: no more than that");
	is_int(match(c, "aabbccd").n_tokens, 6, "16: a locked leaf is skipped");
	for (uint32_t i = 0; i < 5; i++)
		prefix_cache_put_page(c, taken[i]);

	old = insert(c, "hh", 2, POOL_NONE);
	young = insert(c, "ii", 2, POOL_NONE);
	prefix_cache_unlock(c, young);
	prefix_cache_lock(c, old); /* used again, while locked */
	prefix_cache_unlock(c, old);
	prefix_cache_unlock(c, old);
	for (uint32_t i = 0; i < 4; i++)
		taken[i] = prefix_cache_take_page(c);
	ok(match(c, "hhx").n_tokens == 2 && match(c, "iix").n_tokens == 0,
	   "16: being touched while locked counts");
	for (uint32_t i = 0; i < 4; i++)
		prefix_cache_put_page(c, taken[i]);
	prefix_cache_unlock(c, locked);
	ok(prefix_cache_flush(c) == 0, "16: nothing is locked");
}

/* Computes the key of a page: enough of a hash for a few letters. */
static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	*ret = *before;
	for (uint32_t i = 0; i < n; i++)
		ret->v[0] = ret->v[0] * 31 + (uint64_t)tokens[i];
}

/*
 * The device's queue orders copies and plans: a page that is stored is read before a later plan writes to it. So the
 * pages that an aborted request has published are stored like all pages of the tree. Its other pages become free when
 * the plan that is out has been committed.
 */
TEST(17)
{
	struct scheduler_config config = world_config(2, 20, 4);
	struct scheduler_request r = world_request("aabbccdd", 9);
	struct content_key keys[4];
	struct scheduler_item item;
	struct scheduler_stats st;
	struct world *w;
	uint64_t id;
	uint32_t page, n = 0, used;

	config.content_key = next_key;
	w = world_new(&config);
	scheduler_tiers_ready(w->s);
	for (uint32_t i = 0; i < 4; i++)
		next_key(i ? &keys[i - 1] : &r.root_key, r.prompt + 2 * i, 2, &keys[i]);
	r.page_keys = keys;
	id = world_submit_request(w, &r);
	step_is(w, 1, "a0+4", "17: the first half of a prompt");
	ok(scheduler_next_store(w->s, &item) && item.depth == 2, "17: is on its way down");
	plan_is(w, "c4+4^6!", "17: the second is being computed");
	scheduler_stats(w->s, &st);
	used = (uint32_t)(config.n_pages - st.cache.free_pages);
	scheduler_abort(w->s, id);
	scheduler_abort(w->s, id);
	scheduler_stats(w->s, &st);
	ok(st.running == 1 && config.n_pages - st.cache.free_pages == used,
	   "17: an abort waits for the plan that is out");
	while (scheduler_next_store(w->s, &item))
		n += item.depth <= 4;
	ok(n == 2, "17: what was published goes on down: a page and a state");
	world_commit(w, 1);
	is_int(w->n_events, 0, "17: the late result is ignored");
	scheduler_stats(w->s, &st);
	ok(st.running == 0 && st.cache.free_pages + st.cache.tree_pages == config.n_pages &&
		   st.cache.free_slots + st.cache.tree_slots == config.n_slots &&
		   st.cache.evictable_pages == st.cache.tree_pages,
	   "17: then what it held is free");
	ok(!scheduler_load_place(w->s, id, 0, &page), "17: as is what comes for it later");
	scheduler_loaded(w->s, id, 0, true);
	scheduler_abort(w->s, id);
	plan_is(w, "nothing", "17: there is nothing left to do");
	is_int(scheduler_flush(w->s), 0, "17: and nothing to wait for");
}

TEST(18_and_19)
{
	struct world *w = new_world(2, 100, 64);
	struct scheduler_stats before, after;
	int32_t tokens[4] = {1, 2, 3, WORLD_VOCAB};
	struct scheduler_request bad = {.prompt = tokens,
					.n_prompt = 4,
					.max_tokens = 1,
					.n_choices = 1};
	uint64_t id = 77;

	world_submit(w, "aaaabbbb", 1);
	world_run(w, 1);
	world_submit(w, "aaaabbbbcc", 5);
	scheduler_stats(w->s, &before);
	is_int(scheduler_submit(w->s, &bad, &id, NULL), -EINVAL, "18: a token that does not exist");
	bad.n_prompt = 3;
	bad.n_choices = WORLD_SEQS + 1;
	is_int(scheduler_submit(w->s, &bad, &id, NULL), -EINVAL, "18: too many choices");
	bad.n_choices = 1;
	bad.max_tokens = LEN;
	is_int(scheduler_submit(w->s, &bad, &id, NULL), -EINVAL, "18: too long");
	scheduler_stats(w->s, &after);
	ok(id == 77 && !memcmp(&before, &after, sizeof(before)), "18: nothing changed");

	is_int(scheduler_flush(w->s), -EBUSY, "19: clearing refuses while a request waits");
	plan_is(w, "c8+2!", "19: (which hits)");
	is_int(scheduler_flush(w->s), -EBUSY, "19: and while it runs");
	scheduler_stats(w->s, &after);
	ok(after.cache.nodes >= before.cache.nodes && after.running == 1,
	   "19: and then changes nothing");
	world_commit(w, END);
	is_int(scheduler_flush(w->s), 0, "19: not any more");
	scheduler_stats(w->s, &after);
	ok(after.cache.nodes == 0 && after.cache.free_pages == w->config.n_pages &&
		   after.cache.free_slots == w->config.n_slots,
	   "19: everything is free");
}

/* ---- 20 ---- */

enum { PAGES = 48, SLOTS = 12, TEXT = 24 };

/* By page or slot: the text up to the end of what was computed there, from the prompt's beginning. */
static char page_text[PAGES][TEXT + 1], slot_text[SLOTS][TEXT + 1];

/* Serves a request with this prompt: uses the cached prefix, computes the rest, leaves some states. Checks every page
 * and the state that the cache gave. Returns the node with which the request ends, locked; NULL: no room. */
static struct prefix_node *serve(struct prefix_cache *c, const char *s)
{
	struct text t = text(s);
	uint32_t n = t.n, pages[TEXT / 2], at_tokens, slot, want;
	struct prefix_key key = {.tokens = t.tokens, .n_tokens = n, .origin_any = true};
	struct prefix_match m;
	struct prefix_node *at;

	prefix_cache_match(c, &key, &m);
	want = (n - m.n_tokens) / 2;
	if (!prefix_cache_can_take(c, &m, want, 1))
		return NULL;
	at = prefix_cache_use(c, &key, &m, pages);
	check(at && m.n_tokens < n && m.n_tokens % 4 == 0);
	for (uint32_t i = 0; i < m.n_tokens / 2; i++)
		check(!strncmp(page_text[pages[i]], s, i * 2 + 2) &&
		      strlen(page_text[pages[i]]) == i * 2 + 2);
	if (m.n_tokens)
		check(strlen(slot_text[m.slot]) == m.n_tokens &&
		      !strncmp(slot_text[m.slot], s, m.n_tokens));
	if (m.slot != POOL_NONE)
		prefix_cache_unpin(c, m.slot);
	for (at_tokens = m.n_tokens; at && at_tokens + 2 <= n; at_tokens += 2) {
		uint32_t page = prefix_cache_take_page(c);

		check(page != POOL_NONE);
		snprintf(page_text[page], sizeof(page_text[page]), "%.*s", (int)at_tokens + 2, s);
		at = prefix_cache_extend(c, at, t.tokens + at_tokens, &page, 1, PREFIX_PREFILLED);
		if (!at || (at_tokens + 2) % 4 || random_below(2))
			continue;
		slot = prefix_cache_take_slot(c);
		if (slot == POOL_NONE)
			continue;
		snprintf(slot_text[slot], sizeof(slot_text[slot]), "%.*s", (int)at_tokens + 2, s);
		prefix_cache_checkpoint(c, at, slot, (enum prefix_checkpoint)random_below(4));
	}
	return at;
}

TEST(20)
{
	struct prefix_cache *c = new_cache(2, 4, PAGES, SLOTS);
	struct prefix_node *held[4] = {0};
	uint32_t hits = 0;

	for (int round = 0; round < 200; round++) {
		char text[TEXT + 1] = {0};
		uint32_t n = 1 + random_below(TEXT), k = random_below(ARRAY_SIZE(held));

		for (uint32_t i = 0; i < n; i++)
			text[i] = (char)('a' + (i % 4 == 3 ? random_below(2) : 0));
		if (held[k])
			prefix_cache_unlock(c, held[k]);
		hits += match(c, text).n_tokens > 0;
		held[k] = serve(c, text);
		prefix_cache_check(c);
	}
	ok_all("20: 200 rounds of random caching and eviction: every hit is resumable");
	ok(hits > 50 && stats(c).evicted_pages > 50 && stats(c).evicted_slots > 50,
	   "20: %u hits, %llu pages and %llu slots evicted", hits,
	   (unsigned long long)stats(c).evicted_pages, (unsigned long long)stats(c).evicted_slots);
	for (uint32_t i = 0; i < ARRAY_SIZE(held); i++)
		if (held[i])
			prefix_cache_unlock(c, held[i]);
	ok(prefix_cache_flush(c) == 0, "20: and nothing is left");
}

TEST_MAIN()
