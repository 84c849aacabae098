/* daemon/request/queue.c: which calls find room in the queue, which of them give way, and that threads together never
 * exceed the room. The inbox has no reader, so messages to the engine thread stay there until a call leaves. */
#include <sched.h>

#include "base/log.h"
#include "base/problem.h"
#include "daemon/lifecycle.h"
#include "daemon/request/call.h"
#include "tests/random.h"
#include "tests/tap.h"

/* The tests fill the memory of the queue. It has 16 units. */
enum { ROOM = 16, UNIT = (64 << 20) / ROOM };

static struct server server;
static const struct endpoint endpoint = {.id = "cmpl-", .parse = openai_parse_completion};

/* Makes a call of an owner whose prompts take n units of the queue. NULL: there is no room for them. */
static struct call *arrive(uint64_t owner, uint32_t n)
{
	struct call *c = call_new(&server, &endpoint);
	struct err e = {0};

	c->owner = owner;
	if (call_arrive(c, &e) == 0 && call_queue(c, QUEUE_BYTES, (uint64_t)n * UNIT, &e) == 0)
		return c;
	check(e.code == PROBLEM_QUEUE_FULL);
	call_unref(c);
	return NULL;
}

static bool waits(struct call *c)
{
	return atomic_load(&c->queued[QUEUE_BYTES]) && !c->shared.failure.code;
}

/* Drops the calls, NULL among them, and the messages to the engine thread, which have references. */
static void leave(struct call **calls, size_t n)
{
	struct queue_node *node;

	for (size_t i = 0; i < n; i++)
		call_unref(calls[i]);
	while ((node = queue_pop(&server.inbox)))
		call_unref(container_of(node, struct call_message, node)->call);
	for (size_t i = 0; i < QUEUE_MEASURES; i++)
		check(!atomic_load(&server.queued[i]));
	check(!atomic_load(&server.calls));
	check(!server.arrived.oldest);
}

/* A call is one request, however many prompts it has. */
TEST(requests)
{
	struct call *c[ROOM + 3];

	for (int i = 0; i < ROOM; i++)
		c[i] = arrive(1, 1);
	ok(c[ROOM - 1] && !arrive(1, 0), "an owner that is alone has all places, and no more");
	c[ROOM] = arrive(2, 0);
	ok(c[ROOM] && !waits(c[ROOM - 1]) && waits(c[ROOM - 2]), "its newest call gives way");
	is_int((long long)atomic_load(&server.queued[QUEUE_REQUESTS]), ROOM, "the queue is full");
	c[ROOM + 1] = arrive(1, 0);
	ok(!c[ROOM + 1], "and closed to it");
	c[ROOM + 2] = arrive(2, 0);
	ok(c[ROOM + 2] && !waits(c[ROOM - 2]), "but not to the other");
	leave(c, ROOM + 3);
	ok_all("nothing is left");
}

TEST(giving_way)
{
	struct call *c[8];

	for (int i = 0; i < 5; i++)
		c[i] = arrive(1, 3);
	ok(c[4] && !arrive(1, 2), "an owner that is alone has the queue, and no more");
	c[5] = arrive(2, 1);
	ok(c[5] && waits(c[4]), "another owner takes the last place");
	ok(!arrive(1, 1), "now the first one gets no further place");
	c[6] = arrive(2, 4);
	ok(c[6] && waits(c[2]) && !waits(c[3]) && !waits(c[4]),
	   "for four units of the other one two calls give way, the newest");
	is_int((long long)atomic_load(&server.queued[QUEUE_BYTES]) / UNIT, 14,
	       "the queue has what waits");
	ok(c[4]->shared.failure.code == PROBLEM_QUEUE_FULL && atomic_load(&c[4]->aborted),
	   "the clients of those get the error");
	c[7] = arrive(3, 2);
	ok(c[7] && waits(c[2]), "a third owner gets places that are free");
	leave(c, 8);
	ok_all("nothing is left");
}

/* Calls give way only for prompts that fit then. */
TEST(giving_way_in_vain)
{
	struct call *c[8];

	for (int i = 0; i < 5; i++)
		c[i] = arrive(1, 2);
	c[5] = arrive(2, 5);
	ok(c[5] && !arrive(3, 8), "eight prompts do not fit beside ten and five");
	for (int i = 0; i < 6; i++)
		check(waits(c[i]));
	ok_all("so no call gives way for them");
	c[6] = arrive(3, 3);
	ok(c[6] && waits(c[3]) && !waits(c[4]), "one call gives way for three prompts, which fit");
	c[7] = arrive(3, 3);
	ok(!c[7] && waits(c[3]), "but the owner of eight prompts keeps them: three do not fit");
	leave(c, 8);
	ok_all("nothing is left");
}

/* The memory of prompts is bounded and shared like the number of calls. */
TEST(memory)
{
	const uint64_t room = call_queue_room(&server, QUEUE_BYTES), half = room / 2;
	struct call *c[4];
	struct err e = {0};

	ok(room >= 64 << 20 && room < 65 << 20, "a small queue has room for %.1f MiB of prompts",
	   (double)room / (1 << 20));
	server.options.max_queued_requests = 1024;
	is_int((long long)call_queue_room(&server, QUEUE_BYTES), 256 << 20,
	       "one of 1,024 for 256 MiB");
	server.options.max_queued_requests = ROOM;
	for (int i = 0; i < 4; i++)
		c[i] = arrive(i < 2 ? 1 : (uint64_t)i, 0);
	check(call_queue(c[0], QUEUE_BYTES, half, &e) == 0);
	check(call_queue(c[1], QUEUE_BYTES, half, &e) == 0);
	ok_all("an owner whose prompts alone take memory may have all of it");
	ok(call_queue(c[1], QUEUE_BYTES, 1, &e) == -PROBLEM_QUEUE_FULL, "and no more");
	ok(call_queue(c[2], QUEUE_BYTES, 5, &e) == 0 && !waits(c[1]) && waits(c[0]),
	   "its newest call gives way to a prompt of another owner");
	ok(call_queue(c[0], QUEUE_BYTES, 1, &e) == -PROBLEM_QUEUE_FULL, "it has its half now");
	ok(call_queue(c[3], QUEUE_BYTES, half - 4, &e) == -PROBLEM_QUEUE_FULL && waits(c[0]),
	   "a third owner gets no more than what is left");
	is_int(call_queue(c[3], QUEUE_BYTES, half - 5, &e), 0, "and all of that");
	call_unqueue(c[0]);
	is_int((long long)atomic_load(&server.queued[QUEUE_BYTES]), (long long)half,
	       "a call that waits no more leaves the queue with its memory");
	leave(c, 4);
	ok_all("nothing is left");
}

/* Two threads, this one and another, begin each round at about the same time. */
static struct call *racing[2];
static _Atomic int begun, ended, n_queued;

static void queue_half(struct call *c)
{
	struct err e = {0};

	if (call_queue(c, QUEUE_BYTES, ROOM / 2 * UNIT, &e) == 0)
		atomic_fetch_add(&n_queued, 1);
}

static void *race(void *arg)
{
	for (int round = 1;; round++) {
		while (atomic_load(&begun) < round)
			sched_yield();
		if (!racing[1])
			return NULL;
		queue_half(racing[1]);
		atomic_store(&ended, round);
	}
}

/* Beside one other call the queue has room for one of two calls, whether these have one owner or two. */
TEST(threads)
{
	int exceeded = 0, round = 0;
	pthread_t thread;

	pthread_create(&thread, NULL, race, NULL);
	while (round < 20000) {
		struct call *other = arrive(9, 1);

		for (int i = 0; i < 2; i++) {
			racing[i] = call_new(&server, &endpoint);
			racing[i]->owner = round % 2 ? 1 : 1 + (uint64_t)i;
			racing[i]->arrived_ns = 1;
			atomic_fetch_add(&server.calls, 1);
			call_enter(racing[i]);
		}
		atomic_store(&n_queued, 0);
		atomic_store(&begun, ++round);
		for (uint32_t i = random_below(200); i;
		     i--) /* the other one may be late or early */
			atomic_load(&ended);
		queue_half(racing[0]);
		while (atomic_load(&ended) < round)
			sched_yield();
		exceeded += atomic_load(&server.queued[QUEUE_BYTES]) >
				    call_queue_room(&server, QUEUE_BYTES) ||
			    atomic_load(&n_queued) != 1;
		call_unref(other);
		leave(racing, 2);
	}
	memset(racing, 0, sizeof(racing));
	atomic_store(&begun, ++round);
	pthread_join(thread, NULL);
	is_int(exceeded, 0, "threads together exceed neither the room nor an owner's half");
	ok_all("nothing is left");
}

int main(void)
{
	struct err e = {0};

	log_set_level(LOG_LEVEL_ERROR);
	metrics_init(&server.metrics);
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	server.options.max_queued_requests = ROOM;
	queue_init(&server.inbox);
	run_tests();
	queue_release(&server.inbox);
	lifecycle_free(server.lifecycle);
	ok_all("no more");
	return done();
}
