/* scheduler/tiering.c: items are stored below the device and loaded again. If a load fails, its request is computed,
 * and nothing stays locked. */
#include <stdlib.h>

#include "scheduler/scheduler_internal.h"
#include "tests/scheduler_world.h"
#include "tests/tap.h"

enum { PAGE = 2, KEYS = WORLD_LEN / PAGE };

static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	struct content_key k = *before;

	for (uint32_t i = 0; i < n; i++) {
		k.v[0] = (k.v[0] ^ (uint64_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15) + 1;
		k.v[1] = (k.v[1] + (uint64_t)tokens[i]) * UINT64_C(0xbf58476d1ce4e5b9) + 3;
	}
	*ret = k;
}

static struct world *new_world(uint32_t n_pages)
{
	struct scheduler_config c = world_config(PAGE, n_pages, 64);
	struct world *w;

	c.content_key = next_key;
	w = world_new(&c);
	scheduler_tiers_ready(w->s);
	return w;
}

static uint64_t submit(struct world *w, const char *prompt, uint32_t max_tokens)
{
	struct scheduler_request r = world_request(prompt, max_tokens);
	struct content_key keys[KEYS];

	for (uint32_t i = 0; i < r.n_prompt / PAGE; i++)
		next_key(i ? &keys[i - 1] : &r.root_key, r.prompt + i * PAGE, PAGE, &keys[i]);
	r.page_keys = keys;
	return world_submit_request(w, &r);
}

/* Takes all items that are to be stored, and returns their number. */
static uint32_t take_stores(struct world *w)
{
	struct scheduler_item item;
	uint32_t n = 0;

	for (; scheduler_next_store(w->s, &item); n++) {
		check(tiers_has(scheduler_tiers(w->s), &item.item));
		check((item.item.kind == TIER_PAGE) == (item.tokens != NULL));
		/* The key of a page is made of its tokens and those before it. */
		if (item.tokens) {
			struct content_key key;

			next_key(&item.parent, item.tokens, PAGE, &key);
			check(!memcmp(&key, &item.item.key, sizeof(key)));
		}
		check(item.depth % PAGE == 0 &&
		      item.id < (item.tokens ? w->config.n_pages : w->config.n_slots));
	}
	return n;
}

/* Answers an item, which is copied at once if it is good. Returns whether it is to be copied. */
static bool answer(struct world *w, uint64_t request, uint32_t index, bool good, uint32_t *ret_id)
{
	bool wanted = good && scheduler_load_place(w->s, request, index, ret_id);

	scheduler_loaded(w->s, request, index, good);
	return wanted;
}

static uint32_t asked; /* number of items that the last call of take_loads was asked to load */

/* Answers all items that are to be loaded: the first `good` of them come, the others fail. Returns how many of those
 * that came are to be copied to the device. */
static uint32_t take_loads(struct world *w, uint32_t good)
{
	struct scheduler_item item;
	uint32_t wanted = 0, id;

	for (asked = 0; scheduler_next_load(w->s, &item); asked++)
		wanted += answer(w, item.request, item.index, asked < good, &id);
	return wanted;
}

/* Checks that no request is left, and that all pages and slots are free after a flush. */
static void check_baseline(struct world *w)
{
	struct scheduler_stats st;

	prefix_cache_check(scheduler_cache(w->s));
	check(scheduler_flush(w->s) == 0);
	st = world_stats(w);
	check(st.cache.free_pages == w->config.n_pages && st.cache.free_slots == w->config.n_slots);
	check(st.running == 0 && st.waiting == 0);
}

/* Returns a world in which a prompt of 11 letters was computed and its items were stored; then the device was
 * flushed. */
static struct world *forgotten(uint32_t n_pages)
{
	struct world *w = new_world(n_pages);

	submit(w, "abcdefghijk", 1);
	world_run(w, 7);
	check(take_stores(w) > 5);
	check(tiers_count(scheduler_tiers(w->s), TIER_PAGE) == 5);
	check(tiers_count(scheduler_tiers(w->s), TIER_STATE) >= 1);
	check(scheduler_flush(w->s) == 0);
	return w;
}

TEST(comes_back)
{
	struct world *w = forgotten(40);

	submit(w, "abcdefghijk", 1);
	check(!strcmp(world_plan(w), "nothing"));
	check(world_stats(w).waiting == 1 && world_stats(w).loads_begun == 1);
	check(take_loads(w, 100) == 6 && asked == 6);
	check(!strcmp(world_plan(w), "k10+1!"));
	world_commit(w, 7);
	check(w->events[0].hit.n_cached == 10 && w->events[0].hit.miss == PREFIX_MISS_NONE);
	check(take_stores(w) == 0);
	submit(w, "abcdefghijk", 1);
	check(!strcmp(world_plan(w), "k10+1!"));
	world_commit(w, 7);
	check(world_stats(w).loads_begun == 1);
	check_baseline(w);
	ok_all("what the device forgot comes back, is hit, and is not copied down again");
}

TEST(fails)
{
	for (uint32_t good = 0; good < 6; good++) {
		struct world *w = forgotten(40);

		submit(w, "abcdefghijk", 1);
		check(!strcmp(world_plan(w), "nothing"));
		check(take_loads(w, good) == good);
		check(strcmp(world_plan(w), "nothing") != 0);
		world_commit(w, 7);
		world_run(w, 7);
		check(world_stats(w).loads_failed == 1 && world_stats(w).waiting == 0);
		check(w->n_events && w->events[0].hit.n_cached == 0);
		check(w->events[0].hit.miss ==
		      (good < 5 ? PREFIX_MISS_EVICTED_PAGE : PREFIX_MISS_EVICTED_STATE));
		take_stores(w);
		check_baseline(w);
	}
	ok_all("whichever item does not come: the request is computed");
}

/* The items of three prompts, each of which begins with the one before, were stored. If an item of the longest cannot
 * be loaded, the items of a shorter one are. */
TEST(shorter)
{
	static const struct {
		uint32_t first;	 /* so many items of the first load come, then one fails */
		uint32_t second; /* so many items of the second load come */
		uint32_t n_cached;
		enum prefix_miss miss;
		uint32_t failed;
	} cases[] = {
		{6, 100, 6, PREFIX_MISS_EVICTED_STATE, 1}, {5, 100, 6, PREFIX_MISS_EVICTED_PAGE, 1},
		{3, 100, 6, PREFIX_MISS_EVICTED_PAGE, 1},  {2, 100, 2, PREFIX_MISS_EVICTED_PAGE, 1},
		{6, 3, 2, PREFIX_MISS_EVICTED_STATE, 2},   {6, 1, 2, PREFIX_MISS_EVICTED_PAGE, 2},
		{0, 100, 0, PREFIX_MISS_EVICTED_PAGE, 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world *w = new_world(40);
		struct scheduler_hit hit;

		submit(w, "abc", 1);
		world_run(w, 7);
		submit(w, "abcdefg", 1);
		world_run(w, 7);
		submit(w, "abcdefghijklm", 1);
		world_run(w, 7);
		take_stores(w);
		check(scheduler_flush(w->s) == 0);

		submit(w, "abcdefghijklm", 1);
		check(!strcmp(world_plan(w), "nothing"));
		take_loads(w, cases[i].first);
		check(asked == cases[i].first + 1);
		for (uint32_t n = cases[i].second; !strcmp(world_plan(w), "nothing"); n = 100)
			take_loads(w, n);
		world_commit(w, 7);
		hit = w->events[0].hit;
		ok(hit.n_cached == cases[i].n_cached && hit.miss == cases[i].miss &&
			   world_stats(w).loads_failed == cases[i].failed,
		   "case %zu: %u tokens (%s) after %u failed loads", i, hit.n_cached,
		   prefix_miss_name(hit.miss), (unsigned)world_stats(w).loads_failed);
		world_run(w, 7);
		take_stores(w);
		check_baseline(w);
	}
	ok_all("when one item does not come the next shorter hit does");
}

/* All states in the store are damaged: a request stops asking for them. */
TEST(shorter_ends)
{
	struct world *w = new_world(64);
	char prompt[48];
	uint32_t tries = 0;

	for (uint32_t i = 0; i < 45; i++)
		prompt[i] = (char)('A' + i);
	for (uint32_t n = 3; n <= 45; n += 2) {
		prompt[n] = 0;
		submit(w, prompt, 1);
		world_run(w, 7);
		prompt[n] = (char)('A' + n);
	}
	prompt[45] = 0;
	take_stores(w);
	check(tiers_count(scheduler_tiers(w->s), TIER_STATE) > 18);
	check(scheduler_flush(w->s) == 0);
	submit(w, prompt, 1);
	for (; tries < 100 && !strcmp(world_plan(w), "nothing"); tries++) {
		struct scheduler_item item;
		uint32_t id;

		while (scheduler_next_load(w->s, &item))
			answer(w, item.request, item.index, item.item.kind == TIER_PAGE, &id);
	}
	is_int(tries, 16, "a request waits for so many loads that fail, and no more");
	world_commit(w, 7);
	ok(w->events[0].hit.n_cached == 0 && w->events[0].hit.miss == PREFIX_MISS_EVICTED_STATE,
	   "and says why");
	take_stores(w);
	check_baseline(w);
	ok_all("all states are damaged");
}

TEST(abort)
{
	for (uint32_t come = 0; come < 6; come++) {
		struct world *w = forgotten(40);
		struct scheduler_item items[8];
		uint64_t id = submit(w, "abcdefghijk", 1);
		uint32_t n = 0, page;

		check(!strcmp(world_plan(w), "nothing"));
		while (n < 8 && scheduler_next_load(w->s, &items[n]))
			n++;
		check(n == 6);
		for (uint32_t i = 0; i < come; i++)
			check(answer(w, id, items[i].index, true, &page));
		scheduler_abort(w->s, id);
		for (uint32_t i = come; i < n; i++)
			check(!answer(w, id, items[i].index, true, &page));
		check(!strcmp(world_plan(w), "nothing"));
		check_baseline(w);
	}
	ok_all("a request that is aborted while it waits gives everything back");
}

/* Runs n different prompts of WORLD_LEN / 2 - 1 tokens. */
static void submit_many(struct world *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		char prompt[WORLD_LEN / 2];

		for (uint32_t k = 0; k + 1 < sizeof(prompt); k++)
			prompt[k] = (char)('a' + (i * 7 + k * (i % 11 + 1)) % 26);
		prompt[0] = (char)(' ' + i % 90);
		prompt[1] = (char)(' ' + i / 90);
		prompt[sizeof(prompt) - 1] = 0;
		submit(w, prompt, 1);
		world_run(w, 7);
	}
}

TEST(nobody_takes)
{
	struct world *w = new_world(600);
	struct scheduler_stats st;
	struct scheduler_item item;
	uint32_t n = 0;

	submit(w, "abcdefghijk", 1);
	world_run(w, 7);
	n = world_stats(w).stores_waiting;
	ok(n > 5, "what is computed waits to be taken");
	submit(w, "abcdefghijk", 1);
	world_run(w, 7);
	is_int(world_stats(w).stores_waiting, n, "and not twice");
	ok(tiers_count(scheduler_tiers(w->s), TIER_PAGE) == 0, "it is not below meanwhile");

	submit_many(w, 100);
	st = world_stats(w);
	ok(st.cache.evicted_pages > 1000 && st.stores_dropped > 1000,
	   "what leaves the device before it is taken is dropped: %llu",
	   (unsigned long long)st.stores_dropped);
	ok(st.stores_waiting <= w->config.n_pages + w->config.n_slots, "so the queue has a bound");
	n = take_stores(w);
	st = world_stats(w);
	is_int(n, st.cache.tree_pages + st.cache.tree_slots,
	       "what is there still is taken, all of it");
	check(tiers_count(scheduler_tiers(w->s), TIER_PAGE) == st.cache.tree_pages &&
	      tiers_count(scheduler_tiers(w->s), TIER_STATE) == st.cache.tree_slots);
	check_baseline(w);

	submit_many(w, 1);
	check(world_stats(w).stores_waiting > 50);
	check_baseline(w);
	is_int(world_stats(w).stores_waiting, 0, "after a flush nothing waits");
	ok(!scheduler_next_store(w->s, &item), "nor is anything given out");
	ok_all("what nobody takes keeps nothing");
}

TEST(uses)
{
	struct world *w = new_world(40);
	struct tier_item used[64];
	struct content_key keys[KEYS] = {0};
	struct scheduler_request r;
	uint32_t n = 0;

	submit(w, "abcdefghijk", 1);
	world_run(w, 7);
	is_int(scheduler_take_uses(w->s, used, 64), 0, "a prompt that hits nothing uses nothing");
	submit(w, "abcdefghzz", 1);
	world_run(w, 7);
	r = world_request("abcdefgh", 1);
	for (uint32_t i = 0; i < 4; i++)
		next_key(i ? &keys[i - 1] : &r.root_key, r.prompt + i * PAGE, PAGE, &keys[i]);
	while (n < 64 && scheduler_take_uses(w->s, &used[n], 1))
		n++;
	/* The cache had four pages of the prompt and no state at their end, so the prompt was computed anew. */
	is_int(n, 0, "nor does one that cannot be resumed");
	submit(w, "abcdefghyy", 1);
	world_run(w, 7);
	while (n < 64 && scheduler_take_uses(w->s, &used[n], 1))
		n++;
	is_int(n, 5, "one that resumes uses four pages and a state");
	check(used[0].kind == TIER_STATE && !memcmp(&used[0].key, &keys[3], sizeof(keys[3])));
	for (uint32_t i = 1; i < n; i++)
		check(used[i].kind == TIER_PAGE && used[i].origin == PREFIX_PREFILLED &&
		      !memcmp(&used[i].key, &keys[4 - i], sizeof(keys[0])));
	ok_all("deepest first");
	for (uint32_t i = 0; i < USES_MAX; i++) {
		submit(w, "abcdefghyy", 1);
		world_run(w, 7);
	}
	for (n = 0; scheduler_take_uses(w->s, used, 1); n++)
		;
	is_int(n, USES_MAX, "of those that nobody takes the oldest are forgotten");
	check(!memcmp(&used[0].key, &keys[0], sizeof(keys[0])));
	take_stores(w);
	check_baseline(w);
	ok_all("the beginning of a path is what is left");
}

TEST(device_error)
{
	struct world *w = forgotten(40);
	struct scheduler_item items[8];
	uint64_t id = submit(w, "abcdefghijk", 1), other = submit(w, "zyxwv", 3);
	uint32_t n = 0, page;

	plan_is(w, "z0+5^4!", "one waits for items, another one runs");
	while (n < 8 && scheduler_next_load(w->s, &items[n]))
		n++;
	is_int(n, 6, "six are asked for");
	check(answer(w, id, items[0].index, true, &page));
	w->n_events = scheduler_fail(w->s, w->events);
	ok(w->n_events == 1 && w->events[0].request == other, "the device fails");
	ok(world_stats(w).waiting == 1 && world_stats(w).stores_waiting == 0 &&
		   world_stats(w).cache.free_pages == w->config.n_pages &&
		   world_stats(w).cache.free_slots == w->config.n_slots,
	   "all is free");
	for (uint32_t i = 1; i < n; i++)
		check(!answer(w, id, items[i].index, true, &page));
	step_is(w, 7, "a0+11^10!", "what comes late is ignored, who waited is computed");
	check_baseline(w);
	ok_all("a device error while a request waits for items");
}

TEST(opening)
{
	struct scheduler_config c = world_config(PAGE, 40, 64);
	struct world *w;

	c.content_key = next_key;
	w = world_new(&c);
	submit(w, "abcdefghijk", 1);
	world_step(w, 7);
	check(w->events[0].hit.miss == PREFIX_MISS_LOADING);
	scheduler_tiers_ready(w->s);
	submit(w, "zbcdefghijk", 1);
	world_step(w, 7);
	check(w->events[0].hit.miss == PREFIX_MISS_COLD);
	check_baseline(w);
	check(tiers_count(scheduler_tiers(w->s), TIER_PAGE) == 0);
	ok_all("before what is below is known the reason is that it loads");
}

/* A prompt that another worker computes: items in the store are loaded first; the pages that come from the worker are
 * stored. */
TEST(handoff)
{
	/* The load of the fourth page fails: the other worker sends all pages. Then all loads succeed, and it sends
	 * only the last page. Then a prompt of which nothing is stored. */
	static const struct {
		const char *prompt;
		uint32_t n_loads, n_have, n_pages, n_stores;
	} cases[] = {{"abcdefghijk", 3, 0, 6, 1},
		     {"abcdefghijk", 6, 10, 1, 0},
		     {"lmnopq", 0, 0, 3, 4}};
	struct world *w = forgotten(40);
	struct draw_result draw = {.token = WORLD_END};
	struct scheduler_prepare p;

	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		struct scheduler_request r = world_request(cases[k].prompt, 2);
		struct content_key keys[KEYS];

		r.handoff = HANDOFF_RECEIVE;
		for (uint32_t i = 0; i < r.n_prompt / PAGE; i++)
			next_key(i ? &keys[i - 1] : &r.root_key, r.prompt + i * PAGE, PAGE,
				 &keys[i]);
		r.page_keys = keys;
		(void)world_submit_request(w, &r);
		check(!strcmp(world_plan(w), "nothing"));
		if (cases[k].n_loads) {
			check(!scheduler_next_prepare(w->s, &p));
			check(take_loads(w, cases[k].n_loads) == cases[k].n_loads);
			check(!strcmp(world_plan(w), "nothing"));
		}
		check(scheduler_next_prepare(w->s, &p));
		check(p.ask.n_have == cases[k].n_have && p.n_pages == cases[k].n_pages);
		check(scheduler_received(w->s, p.request, &draw, w->events) == 1);
		check(take_stores(w) == cases[k].n_stores);
	}
	check(world_stats(w).loads_begun == 2);
	check_baseline(w);
	ok_all("a prompt that comes from another worker is looked for below, and goes there");
}

TEST_MAIN()
