/* base/account: bounds of all objects and of an owner, reserves, and memory to spare. */
#include "base/account.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/tap.h"

static _Atomic uint64_t all, first, second;

static struct account_bounds bounds_of(_Atomic uint64_t *own)
{
	return (struct account_bounds){&all, own, 1000};
}

static struct account open(_Atomic uint64_t *own, uint64_t reserve)
{
	const struct account_bounds bounds = bounds_of(own);
	struct account a = {0};

	if (account_open(&a, &bounds, reserve) < 0)
		abort();
	return a;
}

TEST(bounds)
{
	struct account a = open(&first, 0), b = open(&first, 0), c = open(&second, 0);
	struct account d = open(&second, 0);

	is_int(account_take(&a, 501), -E2BIG,
	       "more than an owner may have is too much for an object");
	ok(!account_take(&a, 300) && !account_take(&b, 200), "two objects share the owner's half");
	is_int(account_take(&b, 1), -EDQUOT, "which is bounded");
	ok(!account_take(&c, 500) && all == 1000 && first == 500 && second == 500,
	   "another owner has the other half");
	account_give(&a, 100);
	is_int(account_take(&d, 1), -EDQUOT, "and no more");
	account_close(&c);
	ok(!account_take(&b, 50) && all == 450 && first == 450, "what was given is there again");
	account_add(&d, 600);
	ok(all == 1050 && account_take(&b, 1) == -ENOSPC, "what all take is bounded too");
	account_close(&a);
	account_close(&b);
	account_close(&d);
	account_close(&d);
	ok(!all && !first && !second, "nothing is left");
}

TEST(reserve)
{
	struct account a = open(&first, 100), b = open(&first, 200), c = {0};
	const struct account_bounds bounds = bounds_of(&first);

	is_int((long long)all, 300, "a reserve is counted at once");
	is_int(account_open(&c, &bounds, 201), -EDQUOT, "and refused if it does not fit");
	is_int(account_open(&c, &bounds, 501), -E2BIG, "also if it never will");
	ok(!account_take(&b, 400) && all == 500, "an object takes more");
	ok(!account_take(&a, 60) && !account_take(&a, 40) && account_take(&a, 1) == -EDQUOT,
	   "and another one its reserve all the same");
	account_give(&b, 350);
	ok(all == 300 && !account_take(&a, 20) && all == 320, "back to the reserve, not below");
	account_close(&a);
	account_close(&b);
	is_int((long long)all, 0, "nothing is left");
}

TEST(other_reserve)
{
	struct account a = open(&first, 100), b = open(&first, 0);

	account_reserve(&a, 450);
	ok(all == 450 && account_take(&b, 60) == -EDQUOT, "a reserve becomes larger");
	account_add(&a, 200);
	account_reserve(&a, 50);
	ok(all == 200 && first == 200, "or smaller than what is used");
	account_reserve(&a, 700);
	ok(all == 700 && first == 700, "or larger than the bound");
	account_close(&a);
	ok(!all && !first, "nothing is left");
}

TEST(spare)
{
	struct account a = open(&first, 0), b = open(&second, 0), none = {0};

	ok(account_take_spare(&a, 375) && !account_take_spare(&a, 1),
	   "memory to spare ends at three quarters of the owner's bound");
	ok(!account_is_tight(&a) && !account_take(&a, 1) && account_is_tight(&a) &&
		   !account_is_tight(&b),
	   "beyond that the owner's memory is tight");
	ok(account_take_spare(&b, 374) && !account_take_spare(&b, 1) && !account_is_tight(&b),
	   "or at three quarters of all");
	ok(!account_take(&b, 1) && account_is_tight(&b), "beyond that all memory is tight");
	account_close(&a);
	account_close(&b);
	is_int((long long)all, 0, "nothing is left");
	ok(!account_take(&none, UINT64_MAX / 2) && account_take_spare(&none, 1) &&
		   !account_is_tight(&none),
	   "without bounds there is always more");
	account_close(&none);
}

TEST_MAIN()
