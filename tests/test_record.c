/* daemon/steps/record.c and daemon/cli/simulate/replay.c: recorded calls make the same plans again, also if
 * prompts come from another worker or are sent to one. (Recordings of a whole daemon are in http/test_simulate.py.) */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/simulate/replay.h"
#include "daemon/steps/record.h"
#include "tests/scheduler_world.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct record *begin(const struct world *w, const char *path)
{
	struct record *r;

	if (record_open(path, &w->config, &r, NULL) < 0)
		abort();
	return r;
}

static uint64_t submit(struct world *w, struct record *r, const char *prompt, uint32_t max_tokens,
		       enum scheduler_handoff handoff, uint32_t n_have)
{
	struct scheduler_request q = world_request(prompt, max_tokens);
	uint64_t id;

	q.handoff = handoff;
	q.n_have = n_have;
	id = world_submit_request(w, &q);
	record_submit(r, id, &q);
	return id;
}

static bool plan(struct world *w, struct record *r)
{
	(void)world_plan(w);
	record_plan(r, w->plan);
	return w->plan;
}

/* Runs and records steps until there is none to plan. Every drawn token is 1. */
static void run(struct world *w, struct record *r)
{
	while (plan(w, r)) {
		uint32_t n = w->plan->n_draws;

		world_commit(w, 1);
		record_commit(r, w->results, n);
	}
}

/* Replays a record, with standard output to /dev/null. */
static int replay(const char *path, struct err *e)
{
	int out, nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), result;

	fflush(stdout);
	out = dup(STDOUT_FILENO);
	if (nowhere < 0 || out < 0 || dup2(nowhere, STDOUT_FILENO) < 0)
		abort();
	result = replay_file(path, e);
	fflush(stdout);
	if (dup2(out, STDOUT_FILENO) < 0)
		abort();
	close(out);
	close(nowhere);
	return result;
}

/* Records requests of a decode worker. forget: the arrival of the first prompt (scheduler_received) is not recorded. */
static void decode(const char *path, bool forget)
{
	struct scheduler_config c = world_config(2, 30, 64);
	struct world *w;
	struct record *r;
	uint64_t id[3];

	c.handoff_min_tokens = 4;
	w = world_new(&c);
	r = begin(w, path);
	id[0] = submit(w, r, "abcdefgh", 4, HANDOFF_RECEIVE, 0);
	id[1] = submit(w, r, "abc", 2, HANDOFF_RECEIVE, 0);
	id[2] = submit(w, r, "mnopqr", 4, HANDOFF_RECEIVE, 0);
	run(w, r);
	w->results[0] = (struct draw_result){.token = 5};
	w->n_events = scheduler_received(w->s, id[0], w->results, w->events);
	if (!forget)
		record_received(r, id[0], w->results, 1);
	scheduler_receive_failed(w->s, id[2], true);
	record_receive_failed(r, id[2], true);
	run(w, r);
	scheduler_receive_failed(w->s, id[2], false);
	record_receive_failed(r, id[2], false);
	run(w, r);
	ok(world_stats(w).running == 0, "all have run");
	record_close(r);
}

static void prefill(const char *path, uint32_t n_have)
{
	/* There are pages for one request: the second one begins when the first one was shipped. */
	struct scheduler_config c = world_config(2, 6, 64);
	struct world *w = world_new(&c);
	struct record *r = begin(w, path);
	uint64_t id = submit(w, r, "abcdefgh", 1, HANDOFF_SEND, n_have);

	(void)submit(w, r, "mnopqrst", 1, HANDOFF_SEND, 0);
	run(w, r);
	ok(world_stats(w).waiting == 1, "the second waits for the first one's pages");
	scheduler_shipped(w->s, id);
	record_shipped(r, id);
	run(w, r);
	ok(world_stats(w).waiting == 0, "and not for ever");
	record_close(r);
}

/* Two owners want more seats than there are. With `forget` the record does not have the owners, so that its replay
 * makes other plans. */
static void owners(const char *path, bool forget)
{
	struct scheduler_config c = world_config(2, 60, 64);
	struct world *w = world_new(&c);
	struct record *r = begin(w, path);

	for (char letter = 'a'; letter <= 'l'; letter++) {
		struct scheduler_request q = world_letters(letter, 4, 3);
		uint64_t id;

		q.owner = (UINT64_C(1) << 62) + (letter > 'h');
		id = world_submit_request(w, &q);
		if (forget)
			q.owner = 0;
		record_submit(r, id, &q);
	}
	run(w, r);
	ok(world_stats(w).waiting == 0, "all have run");
	record_close(r);
}

/* A prompt comes in three windows, because a sequence decodes. With `forget` the record does not have the pace. */
static void pace(const char *path, bool forget)
{
	struct scheduler_config c = world_config(2, 60, 64);
	struct world *w = world_new(&c);
	struct record *r = begin(w, path);
	uint32_t n;

	(void)submit(w, r, "abcdefgh", 9, HANDOFF_NONE, 0);
	check(plan(w, r));
	n = w->plan->n_draws;
	world_commit(w, 1);
	record_commit(r, w->results, n);
	for (uint32_t k = 0; k < 2; k++) {
		scheduler_pace(w->s, 2);
		if (!forget)
			record_pace(r, 2);
	}
	(void)submit(w, r, "mnopqr", 1, HANDOFF_NONE, 0);
	run(w, r);
	ok(world_stats(w).running == 0, "all have run");
	record_close(r);
}

TEST(record)
{
	const char *path = scratch_path("record");
	struct err e = {0};

	decode(path, false);
	ok(replay(path, &e) == 0, "prompts that come from elsewhere: the same plans%s", e.text);
	decode(path, true);
	ok(replay(path, &e) == -EINVAL, "another course is noticed: %s", e.text);
	e = (struct err){0};
	prefill(path, 0);
	ok(replay(path, &e) == 0, "prompts that go elsewhere: the same plans%s", e.text);
	prefill(path, 4);
	ok(replay(path, &e) == 0, "also where some is there%s", e.text);
	owners(path, false);
	ok(replay(path, &e) == 0, "owners that share the seats: the same plans%s", e.text);
	owners(path, true);
	ok(replay(path, &e) == -EINVAL, "another order is noticed: %s", e.text);
	e = (struct err){0};
	pace(path, false);
	ok(replay(path, &e) == 0, "windows that the pace has cut: the same plans%s", e.text);
	pace(path, true);
	ok(replay(path, &e) == -EINVAL, "another pace is noticed: %s", e.text);
}

TEST(fifo)
{
	const char *path = scratch_path("fifo");
	struct scheduler_config c = world_config(2, 6, 64);
	struct record *r = NULL;
	struct err e = {0};
	int reader;

	check(mkfifo(path, 0600) == 0);
	is_int(record_open(path, &c, &r, &e), -ENXIO, "a FIFO that nobody reads is refused");
	ok(strstr(e.text, "a FIFO that nobody reads"), "%s", e.text);
	reader = open(path, O_RDONLY | O_NONBLOCK);
	is_int(record_open(path, &c, &r, &e), 0, "one that is read is not");
	for (int i = 0; i < 100000; i++)
		record_abort(r, 1);
	ok(true, "and never stops the daemon, though it is full");
	record_close(r);
	close(reader);
}

TEST_MAIN()
