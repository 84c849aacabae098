/*
 * scheduler/ and its memory: only scheduler_new and scheduler_submit allocate, either may fail at
 * each of its allocations and then changes nothing, and a request that has finished leaves nothing.
 *
 * malloc, calloc and free are replaced by counting ones; where a sanitizer owns them this is
 * skipped.
 */
#include <errno.h>
#include <stdlib.h>

#include "scheduler/scheduler.h"
#include "tests/tap.h"

#if defined(__has_feature)
#define HAS_FEATURE(f) __has_feature(f)
#else
#define HAS_FEATURE(f) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__) || \
	HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer) ||                  \
	HAS_FEATURE(memory_sanitizer)

int main(void)
{
	check(true);
	return skip_all("malloc belongs to a sanitizer");
}

#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void __libc_free(void *p);

static unsigned long n_allocations;
static long n_alive;	     /* allocations not freed; only its changes mean anything */
static long fail_after = -1; /* allocations until one fails; -1: never */

static bool may_allocate(void)
{
	n_allocations++;
	if (fail_after >= 0 && fail_after-- == 0)
		return false;
	n_alive++;
	return true;
}

void *malloc(size_t size)
{
	return may_allocate() ? __libc_malloc(size) : NULL;
}

void *calloc(size_t n, size_t size)
{
	return may_allocate() ? __libc_calloc(n, size) : NULL;
}

void free(void *p)
{
	n_alive -= p != NULL;
	__libc_free(p);
}

enum { SEQS = 16, PAGES = 100 };

static struct scheduler *test_new(void)
{
	const struct scheduler_config config = {
		.page_tokens = 64,
		.n_pages = PAGES,
		.n_slots = SEQS,
		.max_seqs = SEQS,
		.max_prefill_tokens = 128,
		.max_model_len = 1000,
		.vocab_size = 1000,
	};
	struct scheduler *s = NULL;
	long alive = n_alive;
	int failures = 0, err = -ENOMEM;

	for (long n = 0; err == -ENOMEM; n++) {
		fail_after = n;
		err = scheduler_new(&config, &s, NULL);
		fail_after = -1;
		failures += err == -ENOMEM;
		check(err == 0 || (err == -ENOMEM && !s && n_alive == alive));
	}
	ok_all("scheduler_new without memory fails and leaves nothing");
	ok(err == 0 && failures > 10, "at each of %d allocations", failures);
	return s;
}

static bool at_baseline(const struct scheduler *s)
{
	struct scheduler_stats st;

	scheduler_stats(s, &st);
	return !st.running && !st.waiting && st.free_pages == PAGES && st.free_slots == SEQS;
}

/* More requests than the map of requests has room for at first, so that it must grow as well. */
static void test_submit(struct scheduler *s, const struct scheduler_request *r)
{
	uint64_t ids[200], id;
	int failures = 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(ids); i++) {
		int err = -ENOMEM;

		for (long n = 0; err == -ENOMEM; n++) {
			struct scheduler_stats st;
			long alive = n_alive;

			id = 7;
			fail_after = n;
			err = scheduler_submit(s, r, &id, NULL);
			fail_after = -1;
			scheduler_stats(s, &st);
			check(st.waiting == i + (err == 0));
			if (err == 0)
				break;
			failures++;
			check(err == -ENOMEM && id == 7);
			check(n_alive <= alive + 1); /* the map may have grown */
		}
		ids[i] = id;
		check(i == 0 || ids[i] == ids[i - 1] + 1);
	}
	ok_all("scheduler_submit without memory fails and changes nothing");
	ok(failures >= (int)ARRAY_SIZE(ids), "at each of %d allocations", failures);
	for (uint32_t i = 0; i < ARRAY_SIZE(ids); i++)
		scheduler_abort(s, ids[i]);
	ok(at_baseline(s), "baseline");
}

static void test_run(struct scheduler *s, struct scheduler_request *r)
{
	struct draw_result results[SEQS] = {0};
	struct scheduler_event events[SEQS];
	long alive = n_alive;
	unsigned long before;
	uint64_t id, aborted;
	int steps = 0;

	check(scheduler_submit(s, r, &id, NULL) == 0);
	r->n_choices = 5;
	check(scheduler_submit(s, r, &id, NULL) == 0);
	check(scheduler_submit(s, r, &aborted, NULL) == 0);
	before = n_allocations;
	for (; scheduler_plan(s); steps++) {
		if (steps == 10)
			scheduler_abort(s, aborted);
		scheduler_commit(s, results, events);
	}
	ok_all("three requests");
	ok(steps > 100 && at_baseline(s), "run for %d steps", steps);
	is_int(n_allocations - before, 0, "without one allocation");
	is_int(n_alive - alive, 0, "and leave nothing when they are over");
}

int main(void)
{
	static int32_t prompt[300];
	struct scheduler_request r = {
		.prompt = prompt,
		.n_prompt = 300,
		.max_tokens = 100,
		.n_choices = 1,
		.sampling = {.repetition_penalty = 1.5f},
	};
	static char out[BUFSIZ];
	long alive = n_alive;
	struct scheduler *s;

	setvbuf(stdout, out, _IOFBF, sizeof(out)); /* or stdio allocates one */
	s = test_new();
	test_submit(s, &r);
	test_run(s, &r);
	scheduler_free(s);
	is_int(n_alive - alive, 0, "scheduler_free frees everything");
	return done();
}

#endif
