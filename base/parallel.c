#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/macros.h"

enum { THREADS_MAX = 64 };

struct work {
	void (*each)(void *arg, size_t i);
	void *arg;
	size_t n;
	atomic_size_t next;
};

static void *run(void *data)
{
	struct work *w = data;
	size_t i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->n)
		w->each(w->arg, i);
	return NULL;
}

static size_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
}

void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg)
{
	struct work w = {.each = each, .arg = arg, .n = n};
	pthread_t threads[THREADS_MAX];
	size_t wanted = MIN(MIN(processors(), n), (size_t)THREADS_MAX), started = 0;
	sigset_t all, before;

	/* The new threads inherit this mask, which blocks all signals. So no signal interrupts a new thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (started + 1 < wanted && pthread_create(&threads[started], NULL, run, &w) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	run(&w);
	while (started)
		pthread_join(threads[--started], NULL);
}
