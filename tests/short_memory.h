/* Allocations that fail, for tests of code that is short of memory. The test program is linked with -Wl,--wrap (see
 * meson.build), so that its own calls of malloc, calloc, aligned_alloc, realloc, reallocarray and free come here. Calls
 * inside shared libraries do not. A thread lets only its own allocations fail. */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/tap.h"

/* Names that --wrap gives: a call of NAME becomes one of __wrap_NAME, and __real_NAME is the library's function. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void __wrap_free(void *p);

static _Thread_local unsigned long
	short_countdown;		/* the allocation that fails: 1 is the next; 0: none */
static _Thread_local bool short_failed; /* that allocation has failed */
static _Atomic long short_blocks;	/* blocks allocated, less those freed */

static bool fails_now(void)
{
	if (!short_countdown || --short_countdown)
		return false;
	short_failed = true;
	errno = ENOMEM;
	return true;
}

static void *counted(void *p)
{
	if (p)
		atomic_fetch_add(&short_blocks, 1);
	return p;
}

void *__wrap_malloc(size_t size)
{
	return fails_now() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails_now() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return fails_now() ? NULL : counted(__real_aligned_alloc(align, size));
}

void *__wrap_realloc(void *p, size_t size)
{
	if (fails_now())
		return NULL;
	return p ? __real_realloc(p, size) : counted(__real_realloc(p, size));
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	if (fails_now())
		return NULL;
	return p ? __real_reallocarray(p, n, size) : counted(__real_reallocarray(p, n, size));
}

void __wrap_free(void *p)
{
	if (p)
		atomic_fetch_sub(&short_blocks, 1);
	__real_free(p);
}

/* Calls attempt(arg, n) with n = 1, 2, ..., until no allocation fails. Calls it with 0 before, so that blocks which stay
 * for good are allocated then. The attempt calls short_from(n) before the code that is tested, and short_end after it.
 * It releases all that it made: a block that is left fails a check. Returns the number of allocations that failed. */
__attribute__((unused)) static unsigned long
each_allocation(void (*attempt)(void *arg, unsigned long n), void *arg)
{
	unsigned long n = 0;

	attempt(arg, n);
	do {
		long before = atomic_load(&short_blocks);

		short_failed = false;
		attempt(arg, ++n);
		short_countdown = 0;
		check(atomic_load(&short_blocks) == before);
	} while (short_failed && n < 100000);
	return n - 1;
}

/* Lets the n-th allocation of this thread from now on fail; 0: none. */
__attribute__((unused)) static void short_from(unsigned long n)
{
	short_countdown = n;
}

/* Lets no allocation fail from now on. True: one has failed since short_from. */
__attribute__((unused)) static bool short_end(void)
{
	short_countdown = 0;
	return short_failed;
}
