/* Schedulers and requests whose memory is short (short_memory.h): a failure is reported, leaves nothing behind and
 * disturbs no other request. */
#include "tests/short_memory.h"

#include <stdlib.h>
#include <string.h>

#include "engine/store/key.h"
#include "tests/scheduler_world.h"

static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	if (content_key_next(before, tokens, n, ret) < 0)
		abort();
}

static void attempt_scheduler(void *arg, unsigned long n)
{
	struct scheduler_config c = world_config(2, 100, 64);
	struct scheduler *s = NULL;
	struct err e = {0};
	int r;

	c.content_key = arg ? next_key : NULL;
	short_from(n);
	r = scheduler_new(&c, &s, &e);
	check(r == (short_end() ? -ENOMEM : 0));
	check((r < 0) == (s == NULL) && (r < 0) == (strstr(e.text, "not enough memory") != NULL));
	scheduler_free(s);
}

TEST(scheduler_new)
{
	static bool tiers = true;
	unsigned long n = each_allocation(attempt_scheduler, NULL);

	ok_all("%lu allocations of a scheduler", n);
	ok(n >= 10, "are many");
	ok(each_allocation(attempt_scheduler, &tiers) > n, "more with a cache below the device");
	ok_all("of which each may fail");
}

static void attempt_request(void *arg, unsigned long n)
{
	struct scheduler_config c = world_config(2, 100, 64);
	struct scheduler_request q = world_request("abcdefg", 3);
	struct draw_result draw = {.token = 5};
	struct scheduler_event events[2 * WORLD_SEQS_MAX];
	uint64_t id = 77, other;
	struct scheduler *s;
	struct scheduler_stats st;
	struct err e = {0};
	int r;

	check(scheduler_new(&c, &s, &e) == 0);
	short_from(n);
	r = scheduler_submit(s, &q, &id, &e);
	check(r == (short_end() ? -ENOMEM : 0) && (r == 0) == (id != 77));
	scheduler_stats(s, &st);
	check(st.waiting == (r == 0));
	check(scheduler_submit(s, &q, &other, &e) == 0);
	check(scheduler_plan(s) && scheduler_commit(s, &draw, events) > 0);
	scheduler_free(s);
}

TEST(scheduler_submit)
{
	unsigned long n = each_allocation(attempt_request, NULL);

	ok_all("%lu allocations of a request", n);
	ok(n >= 1, "are some");
}

TEST_MAIN()
