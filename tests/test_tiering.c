/* scheduler/tiering.c: what goes down, what comes up, and that nothing is lost when it does not. */
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

/* Takes what goes down; how many. */
static uint32_t take_stores(struct world *w)
{
	struct scheduler_item item;
	uint32_t n = 0;

	for (; scheduler_next_store(w->s, &item); n++) {
		check(tiers_has(scheduler_tiers(w->s), &item.item));
		check((item.item.kind == TIER_PAGE) == (item.tokens != NULL));
		check(item.depth % PAGE == 0 &&
		      item.id < (item.tokens ? w->config.n_pages : w->config.n_slots));
	}
	return n;
}

static uint32_t asked; /* by the last call of take_loads */

/* Takes what is asked for and answers: the first `good` of it come. */
static uint32_t take_loads(struct world *w, uint32_t good)
{
	struct scheduler_item item;
	uint32_t wanted = 0, id;

	for (asked = 0; scheduler_next_load(w->s, &item); asked++)
		wanted += scheduler_loaded(w->s, item.request, item.index, asked < good, &id);
	return wanted;
}

/* Everything is free again after a flush. */
static void check_baseline(struct world *w)
{
	struct scheduler_stats st;

	prefix_cache_check(scheduler_cache(w->s));
	check(scheduler_flush(w->s) == 0);
	st = world_stats(w);
	check(st.cache.free_pages == w->config.n_pages && st.cache.free_slots == w->config.n_slots);
	check(st.running == 0 && st.waiting == 0);
}

/* A prompt of 11 letters was computed, is below, and the device has forgotten it. */
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

static void test_comes_back(void)
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
	world_free(w);
}

static void test_fails(void)
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
		take_stores(w);
		check_baseline(w);
		world_free(w);
	}
	ok_all("whichever item does not come: the request is computed");
}

static void test_abort(void)
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
			check(scheduler_loaded(w->s, id, items[i].index, true, &page));
		scheduler_abort(w->s, id);
		for (uint32_t i = come; i < n; i++)
			check(!scheduler_loaded(w->s, id, items[i].index, true, &page));
		check(!strcmp(world_plan(w), "nothing"));
		check_baseline(w);
		world_free(w);
	}
	ok_all("a request that is aborted while it waits gives everything back");
}

static void test_full_queue(void)
{
	struct world *w = new_world(2 * STORES_MAX);
	uint32_t n = 0;

	/* Nobody takes anything away. */
	for (uint32_t i = 0; world_stats(w).stores_dropped < 20 && i < 10000; i++) {
		char prompt[WORLD_LEN / 2];

		for (uint32_t k = 0; k + 1 < sizeof(prompt); k++)
			prompt[k] = (char)('a' + (i * 7 + k * (i % 11 + 1)) % 26);
		prompt[0] = (char)(' ' + i % 90);
		prompt[1] = (char)(' ' + i / 90);
		prompt[sizeof(prompt) - 1] = 0;
		submit(w, prompt, 1);
		world_run(w, 7);
	}
	check(world_stats(w).stores_dropped >= 20);
	n = take_stores(w);
	check(n == STORES_MAX);
	check(tiers_count(scheduler_tiers(w->s), TIER_PAGE) +
		      tiers_count(scheduler_tiers(w->s), TIER_STATE) ==
	      STORES_MAX);
	check_baseline(w);
	ok_all("a full queue drops its oldest items");
	world_free(w);
}

static void test_opening(void)
{
	struct scheduler_config c = world_config(PAGE, 40, 64);
	struct world *w;

	c.content_key = next_key;
	w = world_new(&c);
	submit(w, "abcdefghijk", 1);
	world_plan(w);
	world_commit(w, 7);
	check(w->events[0].hit.miss == PREFIX_MISS_LOADING);
	scheduler_tiers_ready(w->s);
	submit(w, "zbcdefghijk", 1);
	world_plan(w);
	world_commit(w, 7);
	check(w->events[0].hit.miss == PREFIX_MISS_COLD);
	check_baseline(w);
	check(tiers_count(scheduler_tiers(w->s), TIER_PAGE) == 0);
	ok_all("before what is below is known the reason is that it loads");
	world_free(w);
}

int main(void)
{
	test_comes_back();
	test_fails();
	test_abort();
	test_full_queue();
	test_opening();
	return done();
}
