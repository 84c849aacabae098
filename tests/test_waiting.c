/* scheduler/waiting.c: the queue by itself against a search of all requests; and in the scheduler: priorities, fairness
 * among owners, a bounded queue, and that a retracted request keeps its place. */
#include <errno.h>
#include <stdlib.h>

#include "scheduler/request.h"
#include "scheduler/waiting.h"
#include "tests/scheduler_world.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { N = 300 };

TEST(heap)
{
	static struct request requests[N];
	struct waiting q = {0};
	uint32_t n_in = 0;

	check(waiting_reserve(&q, N) == 0);
	for (uint32_t i = 0; i < N; i++)
		requests[i] = (struct request){.id = i + 1,
					       .ask = {.priority = (int32_t)random_below(5) - 2},
					       .waiting_index = WAITING_NONE};
	for (int round = 0; round < 20000; round++) {
		struct request *r = &requests[random_below(N)], *best = NULL;

		if (r->waiting_index == WAITING_NONE) {
			waiting_insert(&q, r);
			n_in++;
		} else {
			waiting_remove(&q, r);
			n_in--;
		}
		if (random_below(8) == 0)
			waiting_remove(&q, r->waiting_index == WAITING_NONE ? r : &requests[0]);
		n_in = 0;
		for (uint32_t i = 0; i < N; i++) {
			const struct request *x = &requests[i];

			if (x->waiting_index == WAITING_NONE)
				continue;
			n_in++;
			if (!best || x->ask.priority < best->ask.priority)
				best = &requests[i];
		}
		check(q.n == n_in && waiting_first(&q) == best);
	}
	ok_all("first by priority, then by age, whoever comes and goes");
	waiting_free(&q);
	ok(waiting_first(&q) == NULL, "empty");
}

static uint64_t submit_at(struct world *w, const char *prompt, int32_t priority,
			  uint32_t max_tokens)
{
	struct scheduler_request r = world_request(prompt, max_tokens);

	r.priority = priority;
	return world_submit_request(w, &r);
}

TEST(priorities)
{
	struct scheduler_config c = world_config(0, 100, 4);
	struct world *w = world_new(&c);

	submit_at(w, "aaaa", 0, 1);
	submit_at(w, "bbbb", 5, 1);
	submit_at(w, "cccc", -5, 1);
	submit_at(w, "dddd", 0, 1);
	submit_at(w, "eeee", -5, 1);
	step_is(w, 1, "c0+4!", "the lowest priority first");
	submit_at(w, "ffff", -9, 1);
	step_is(w, 1, "f0+4!", "whoever comes with a lower one goes ahead");
	step_is(w, 1, "e0+4!", "of equal ones the older");
	step_is(w, 1, "a0+4!", "then 0");
	step_is(w, 1, "d0+4!", "and 0");
	step_is(w, 1, "b0+4!", "the highest at last");

	submit_at(w, "gggggggg", 0, 1);
	step_is(w, 1, "g0+4", "a prompt that has begun");
	submit_at(w, "hhhh", -9, 1);
	step_is(w, 1, "g4+4!", "is not overtaken");
	world_run(w, 1);
}

static uint64_t submit_of(struct world *w, char letter, uint64_t owner, uint32_t n_choices)
{
	struct scheduler_request r = world_letters(letter, 2, 20);

	r.owner = owner;
	r.n_choices = n_choices;
	return world_submit_request(w, &r);
}

/* There are 8 seats. An owner that has seats gets no more than 4 in all while a request of another owner can be
 * admitted instead. */
TEST(fairness)
{
	struct scheduler_config c = world_config(0, 120, 64);
	struct world *w = world_new(&c);
	uint64_t first = 0, third = 0;

	for (char letter = 'a'; letter <= 'h'; letter++) {
		uint64_t id = submit_of(w, letter, 7, 1);

		first = letter == 'a' ? id : first;
		third = letter == 'c' ? id : third;
	}
	submit_of(w, 'x', 8, 1);
	submit_of(w, 'y', 0, 1);
	step_is(w, 1, "a0+2! b0+2! c0+2! d0+2! x0+2! y0+2! e0+2! f0+2!",
		"half of the seats, then the others, then the rest");
	submit_of(w, 'z', 8, 1);
	w->named = true;
	scheduler_abort(w->s, first);
	step_is(w, 1, "z0+2! b.0@2! c.0@2! d.0@2! x.0@2! y.0@2! e.0@2! f.0@2!",
		"a seat goes to the other one, though two came before");
	scheduler_abort(w->s, third);
	step_is(w, 1, "g0+2! b.0@3! d.0@3! x.0@3! y.0@3! e.0@3! f.0@3! z.0@2!",
		"no other waits: any number");

	w = world_new(&c);
	for (char letter = 'a'; letter <= 'e'; letter++)
		submit_of(w, letter, 0, 1);
	step_is(w, 1, "a0+2! b0+2! c0+2! d0+2! e0+2!", "without an owner none is held back");

	w = world_new(&c);
	submit_of(w, 'a', 7, 3);
	submit_of(w, 'b', 7, 2);
	submit_of(w, 'x', 8, 1);
	step_is(w, 1, "a0+2!!! x0+2! b0+2!!", "choices count");

	w = world_new(&c);
	submit_of(w, 'a', 7, 6);
	submit_of(w, 'x', 8, 1);
	step_is(w, 1, "a0+2!!!!!! x0+2!", "one request may need more");

	w = world_new(&c);
	submit_of(w, 'a', 7, 4);
	submit_of(w, 'x', 8, 1);
	submit_of(w, 'b', 7, 1);
	submit_of(w, 'y', 8, 4);
	step_is(w, 1, "a0+2!!!! x0+2! b0+2!",
		"if the others want too much as well, the first one goes");
}

/* An owner has more than half of the seats when a request of another owner comes: some of the first owner's requests
 * are retracted. */
TEST(give_way)
{
	struct scheduler_config c = world_config(0, 120, 64);
	struct world *w = world_new(&c);
	uint64_t wide;

	for (char letter = 'a'; letter <= 'h'; letter++)
		submit_of(w, letter, 7, 1);
	world_step(w, 1);
	world_step(w, 1);
	submit_of(w, 'x', 7, 1);
	world_step(w, 1);
	ok(world_stats(w).retractions == 0, "nothing for its own requests");
	submit_of(w, 'y', 8, 3);
	w->named = true;
	step_is(w, 1, "y0+2!!! a.0@4! b.0@4! c.0@4! d.0@4! e.0@4!",
		"the three newest of eight give way to another's request");
	wide = submit_of(w, 'z', 0, 3);
	step_is(w, 1, "a.0@5! b.0@5! c.0@5! d.0@5! e.0@5! y.0@2! y.1@2! y.2@2!",
		"none gives way if the other one would not get in");
	scheduler_abort(w->s, wide);
	submit_of(w, 'v', 9, 1);
	step_is(w, 1, "v0+2! a.0@6! b.0@6! c.0@6! d.0@6! y.0@3! y.1@3! y.2@3!",
		"one gives way to a request that would");
	submit_of(w, 'w', 9, 1);
	step_is(w, 1, "a.0@7! b.0@7! c.0@7! d.0@7! y.0@4! y.1@4! y.2@4! v.0@2!",
		"half of them stay");

	w = world_new(&c);
	submit_of(w, 'a', 7, 6);
	submit_of(w, 'b', 7, 2);
	world_step(w, 1);
	world_step(w, 1);
	submit_of(w, 'x', 8, 1);
	world_step(w, 1);
	ok(world_stats(w).retractions == 1, "the one whose absence leaves half");

	w = world_new(&c);
	submit_of(w, 'a', 7, 8);
	world_step(w, 1);
	world_step(w, 1);
	submit_of(w, 'x', 8, 1);
	world_step(w, 1);
	ok(world_stats(w).retractions == 0, "one request alone never does");

	c.max_plans_out = 2;
	w = world_new(&c);
	for (char letter = 'a'; letter <= 'h'; letter++)
		submit_of(w, letter, 7, 1);
	world_step(w, 1);
	world_step(w, 1);
	world_plan(w);
	submit_of(w, 'x', 8, 1);
	ok(!scheduler_plan(w->s), "not while a plan is out");
	world_commit(w, 1);
	step_is(w, 1, "x0+2! @4! @4! @4! @4! @4! @4! @4!", "but then");
}

TEST(bound)
{
	struct scheduler_config c = world_config(0, 10, 64);
	struct scheduler_request r = world_request("cccc", 1);
	struct world *w;
	struct err e = {0};
	uint64_t id = 77, a, b;

	c.max_waiting = 2;
	w = world_new(&c);
	a = world_submit(w, "aaaaaaaa", 8);
	b = world_submit(w, "bbbbbbbb", 8);
	is_int(scheduler_submit(w->s, &r, &id, &e), -EAGAIN, "two wait: a third is refused");
	ok(id == 77 && strstr(e.text, "2 requests are waiting"), "%s", e.text);
	world_step(w, 1);
	is_int(world_stats(w).waiting, 0, "both run");
	while (world_plan(w), !world_stats(w).retractions)
		world_commit(w, 1);
	ok(world_stats(w).waiting == 1 && w->plan, "one is retracted");
	r = world_request("cccccccccccc", 1);
	ok(scheduler_submit(w->s, &r, &id, NULL) == 0 &&
		   scheduler_submit(w->s, &r, &id, NULL) == 0 &&
		   scheduler_submit(w->s, &r, &id, NULL) == -EAGAIN,
	   "who was retracted does not count");
	for (int i = 0; i < 50 && w->plan && (!w->n_events || w->events[0].request == b); i++) {
		world_commit(w, 1);
		(void)world_plan(w);
	}
	ok(w->n_events && w->events[0].request == a, "and is ahead of whoever came later");
	if (w->plan)
		world_commit(w, 1);
	world_run(w, 1);
	is_int(world_stats(w).waiting, 0, "all end");
}

TEST_MAIN()
