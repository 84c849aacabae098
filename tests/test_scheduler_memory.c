/* scheduler/ and its memory. scheduler_new and scheduler_submit may fail at each of their allocations and then change
 * nothing. Later only drawn tokens and kept prefixes need memory; if there is none, requests complete all the same,
 * with the same tokens. A request that has finished leaves only cached prefixes.
 *
 * malloc, calloc, realloc, aligned_alloc and free are replaced by counting ones; where a sanitizer owns them, and
 * without glibc, this is skipped. */
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
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
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

void *realloc(void *p, size_t size)
{
	n_alive -= p != NULL;
	if (may_allocate())
		return __libc_realloc(p, size);
	n_alive += p != NULL;
	return NULL;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return may_allocate() ? __libc_memalign(alignment, size) : NULL;
}

void free(void *p)
{
	n_alive -= p != NULL;
	__libc_free(p);
}

enum { SEQS = 16, SLOTS = 40, PAGES = 100, TOKENS = 100 };

static struct scheduler *test_new(void)
{
	const struct scheduler_config config = {
		.page_tokens = 64,
		.state_tokens = 64,
		.n_pages = PAGES,
		.n_slots = SLOTS,
		.max_plans_out = 2,
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
	return !st.running && !st.waiting && st.cache.free_pages + st.cache.tree_pages == PAGES &&
	       st.cache.free_slots + st.cache.tree_slots == SLOTS;
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

/* Returns the token that a choice draws at a position. */
static int32_t token_of(uint64_t seed, uint32_t choice, uint32_t position)
{
	return (int32_t)((seed * 31 + choice * 7 + position * 3) % 997);
}

static void draw(const struct plan *p, struct draw_result *results)
{
	for (uint32_t i = 0; i < p->n_draws; i++)
		results[i] = (struct draw_result){.token = token_of(p->draws[i].sampling->seed,
								    p->draws[i].choice,
								    p->draws[i].position)};
}

/* Submits and runs three requests, of which one is aborted; while they run allocation number `fail`, counted from 0,
 * fails and no other (-1: none). Returns the number of all allocations. */
static unsigned long run_three(struct scheduler *s, struct scheduler_request r, long fail)
{
	static struct draw_result results[2][SEQS];
	static struct scheduler_event events[SEQS];
	uint32_t n_finished = 0, n_tokens = 0;
	unsigned long before = n_allocations;
	uint64_t id, aborted, n_made = 0, n_done = 0;

	for (uint32_t k = 0; k < 3; k++) {
		r.n_choices = k ? 5 : 1;
		r.sampling.seed = k;
		check(scheduler_submit(s, &r, k < 2 ? &id : &aborted, NULL) == 0);
	}
	fail_after = fail;
	/* Twice nothing to do, since an allocation may have failed: done. */
	for (int steps = 0, idle = 0; steps < 2000 && idle < 2; steps++) {
		const struct plan *p = n_made - n_done < 2 ? scheduler_plan(s) : NULL;
		uint32_t n;

		if (p)
			draw(p, results[++n_made % 2]);
		if (steps == 10)
			scheduler_abort(s, aborted);
		idle = n_made == n_done ? idle + 1 : 0;
		if (idle || (p && n_made - n_done < 2))
			continue;
		n = scheduler_commit(s, results[++n_done % 2], events);
		for (uint32_t i = 0; i < n; i++) {
			n_tokens++;
			n_finished += events[i].request_finished;
		}
	}
	fail_after = -1;
	check(n_finished == 2 && n_tokens >= 6 * TOKENS);
	check(at_baseline(s));
	prefix_cache_check(scheduler_cache(s));
	return n_allocations - before;
}

static void test_run(struct scheduler *s, const struct scheduler_request *r)
{
	long alive, n;
	unsigned long in_all = run_three(s, *r, -1);

	ok_all("three requests run");
	check(scheduler_flush(s) == 0);
	alive = n_alive;
	for (n = 0; n < (long)in_all; n++) {
		(void)run_three(s, *r, n);
		check(scheduler_flush(s) == 0);
		check(n_alive == alive);
	}
	ok_all("and complete, leaving nothing, when any of the %lu allocations in between fails",
	       in_all);
}

int main(void)
{
	static int32_t prompt[300];
	struct scheduler_request r = {
		.prompt = prompt,
		.n_prompt = 300,
		.max_tokens = TOKENS,
		.n_choices = 1,
		.sampling = {.repetition_penalty = 1.5f},
	};
	static char out[BUFSIZ];
	long alive = n_alive;
	struct scheduler *s;

	setvbuf(stdout, out, _IOFBF, sizeof(out)); /* or stdio allocates a buffer */
	s = test_new();
	test_submit(s, &r);
	test_run(s, &r);
	scheduler_free(s);
	is_int(n_alive - alive, 0, "scheduler_free frees everything");
	return done();
}

#endif
