#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/macros.h"

enum { THREADS_MAX = 64 };

struct job {
	void (*run)(void *arg);
	void *arg;
};

static void *run_job(void *arg)
{
	const struct job *j = arg;

	j->run(j->arg);
	return NULL;
}

static size_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
}

void parallel_run(size_t most, void (*run)(void *arg), void *arg)
{
	struct job j = {run, arg};
	pthread_t threads[THREADS_MAX];
	size_t wanted = MIN(MIN(processors(), most), (size_t)THREADS_MAX), started = 0;
	sigset_t all, before;

	/* The new threads inherit this mask, which blocks all signals. So no signal interrupts a new thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (started + 1 < wanted && pthread_create(&threads[started], NULL, run_job, &j) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	run(arg);
	while (started)
		pthread_join(threads[--started], NULL);
}

struct numbers {
	void (*each)(void *arg, size_t i);
	void *arg;
	size_t n;
	atomic_size_t next;
};

static void run_numbers(void *arg)
{
	struct numbers *w = arg;
	size_t i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->n)
		w->each(w->arg, i);
}

void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg)
{
	struct numbers w = {.each = each, .arg = arg, .n = n};

	parallel_run(n, run_numbers, &w);
}
