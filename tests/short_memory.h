/* Allocations that fail, for tests of what happens when memory is short. The test program is linked with -Wl,--wrap
 * (see meson.build), so that all calls in it of malloc, calloc, aligned_alloc, realloc, reallocarray and free come
 * here. Calls inside shared libraries do not. Only the calling thread's allocations fail. */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/tap.h"

/* The linker's names. */
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
static _Thread_local bool short_failed; /* it has failed */
static _Atomic long short_blocks;	/* blocks that are not freed */

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

/* Calls attempt(arg, n) with n = 1, 2, ..., until no allocation fails; before that with 0, so that what lasts is
 * allocated. The attempt calls short_from(n) before what is tested and short_end behind it, and releases all that it
 * made: a block that is left counts as a failure. Returns how many allocations there are. */
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

/* Lets the n-th allocation from now on fail; 0: none. */
__attribute__((unused)) static void short_from(unsigned long n)
{
	short_countdown = n;
}

/* From now on none fails. True: one has failed since short_from. */
__attribute__((unused)) static bool short_end(void)
{
	short_countdown = 0;
	return short_failed;
}
