#include "base/account.h"

#include <errno.h>

/* Adds to a counter, unless it would then be above `most`. */
static bool add_within(_Atomic uint64_t *counter, uint64_t bytes, uint64_t most)
{
	uint64_t now = atomic_load(counter);

	do {
		if (bytes > most || now > most - bytes)
			return false;
	} while (!atomic_compare_exchange_weak(counter, &now, now + bytes));
	return true;
}

static uint64_t three_quarters(uint64_t bytes)
{
	return bytes - bytes / 4;
}

/* Returns how many bytes more are in the counters when the object uses `used`. */
static uint64_t beyond(const struct account *a, uint64_t used)
{
	return MAX(used, a->reserve) - MAX(a->used, a->reserve);
}

/* Adds to both counters, within these bounds, and to neither on failure. */
static int count(const struct account *a, uint64_t bytes, uint64_t most_own, uint64_t most_all)
{
	if (!a->bounds.all || !bytes)
		return 0;
	if (!add_within(a->bounds.own, bytes, most_own))
		return -EDQUOT;
	if (add_within(a->bounds.all, bytes, most_all))
		return 0;
	atomic_fetch_sub(a->bounds.own, bytes);
	return -ENOSPC;
}

static void uncount(const struct account *a, uint64_t bytes)
{
	if (!a->bounds.all)
		return;
	atomic_fetch_sub(a->bounds.own, bytes);
	atomic_fetch_sub(a->bounds.all, bytes);
}

int account_open(struct account *a, const struct account_bounds *bounds, uint64_t reserve)
{
	struct account new = {.bounds = *bounds};
	const uint64_t half = bounds->most / 2;
	int r;

	if (bounds->all && reserve > half)
		return -E2BIG;
	r = count(&new, reserve, half, bounds->most);
	if (r < 0)
		return r;
	new.reserve = reserve;
	*a = new;
	return 0;
}

void account_close(struct account *a)
{
	uncount(a, MAX(a->used, a->reserve));
	*a = (struct account){0};
}

int account_take(struct account *a, uint64_t bytes)
{
	const uint64_t used = a->used + bytes, half = a->bounds.most / 2;
	int r;

	if (a->bounds.all && used > half)
		return -E2BIG;
	r = count(a, beyond(a, used), half, a->bounds.most);
	if (r < 0)
		return r;
	a->used = used;
	return 0;
}

bool account_take_spare(struct account *a, uint64_t bytes)
{
	const uint64_t used = a->used + bytes, most = a->bounds.most;

	if (account_is_tight(a) ||
	    count(a, beyond(a, used), three_quarters(most / 2), three_quarters(most)) < 0)
		return false;
	a->used = used;
	return true;
}

void account_reserve(struct account *a, uint64_t reserve)
{
	const uint64_t before = MAX(a->used, a->reserve), after = MAX(a->used, reserve);

	a->reserve = reserve;
	if (!a->bounds.all)
		return;
	/* Unsigned, so that fewer are right too. */
	atomic_fetch_add(a->bounds.own, after - before);
	atomic_fetch_add(a->bounds.all, after - before);
}

void account_add(struct account *a, uint64_t bytes)
{
	const uint64_t more = beyond(a, a->used + bytes);

	a->used += bytes;
	if (!a->bounds.all)
		return;
	atomic_fetch_add(a->bounds.own, more);
	atomic_fetch_add(a->bounds.all, more);
}

void account_give(struct account *a, uint64_t bytes)
{
	const uint64_t before = MAX(a->used, a->reserve);

	a->used -= bytes;
	uncount(a, before - MAX(a->used, a->reserve));
}

bool account_is_tight(const struct account *a)
{
	const struct account_bounds *b = &a->bounds;

	return b->all && (atomic_load(b->all) > three_quarters(b->most) ||
			  atomic_load(b->own) > three_quarters(b->most / 2));
}
