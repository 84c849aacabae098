/* prefix_cache/tiers.c, compared with a table that is searched from end to end. */
#include <stdlib.h>

#include "prefix_cache/tiers.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { PAGES = 7, HISTORIES = 3, ROUNDS = 60000 };

/* there: which items are in the index, by page, origin and kind. parents: the origin of the page before. */
static bool there[PAGES][HISTORIES][2];
static uint64_t parents[PAGES][HISTORIES];
static struct content_key keys[PAGES];

static struct tier_item item_of(uint32_t page, uint64_t origin, enum tier_kind kind)
{
	return (struct tier_item){.key = keys[page],
				  .origin = origin,
				  .parent_origin = parents[page][origin],
				  .kind = kind};
}

/* Pairs of keys have the same first half, so that they share a bucket though pages are few. */
static void make_keys(void)
{
	for (uint32_t i = 0; i < PAGES; i++) {
		keys[i] = (struct content_key){{i / 2, 100 + i}};
		for (uint32_t h = 0; h < HISTORIES; h++)
			parents[i][h] = h && i ? random_below(HISTORIES) : 0;
	}
}

struct ask {
	uint32_t n, from, pages_a_state;
	uint64_t origin;
	bool needs_state, clean_only;
};

/* Returns how many pages the longest path has that goes on with page i, behind a page of this origin; 0: there is
 * none. */
static uint32_t deepest(const struct ask *a, uint32_t i, uint64_t origin)
{
	uint32_t best = 0;

	for (uint64_t h = 0; i < a->n && h < (a->clean_only ? 1 : HISTORIES); h++) {
		uint32_t end;

		if (!there[i][h][TIER_PAGE] || parents[i][h] != origin)
			continue;
		if ((!a->needs_state || there[i][h][TIER_STATE]) && (i + 1) % a->pages_a_state == 0)
			best = MAX(best, i + 1);
		end = deepest(a, i + 1, h);
		best = MAX(best, end);
	}
	return best;
}

static void check_match(const struct tiers *t)
{
	uint64_t path[PAGES], origins[PAGES], before;
	struct ask a = {
		.n = random_below(PAGES + 1),
		.pages_a_state = 1 + random_below(2),
		.needs_state = random_below(2),
		.clean_only = random_below(4) == 0,
	};
	uint32_t want, got;

	a.from = random_below(a.n + 1);
	a.origin = a.clean_only ? 0 : random_below(HISTORIES);
	want = MAX(deepest(&a, a.from, a.origin), a.from);
	got = tiers_match(t, keys, a.n, a.from, a.origin, a.pages_a_state, a.needs_state,
			  a.clean_only, path, origins);
	check(got == want);
	before = a.origin;
	for (uint32_t i = a.from; i < got; i++) {
		check(origins[i] < HISTORIES && there[i][origins[i]][TIER_PAGE]);
		check(parents[i][origins[i]] == before && (!a.clean_only || !origins[i]));
		before = origins[i];
	}
	if (got > a.from && a.needs_state)
		check(there[got - 1][before][TIER_STATE]);
}

TEST(random)
{
	struct tiers *t = tiers_new();
	size_t n[2] = {0};

	make_keys();
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t page = random_below(PAGES), h = random_below(HISTORIES);
		enum tier_kind kind = random_below(2) ? TIER_STATE : TIER_PAGE;
		struct tier_item item = item_of(page, h, kind);
		bool *has = &there[page][h][kind];

		check(tiers_has(t, &item) == *has);
		if (random_below(5) < 3) {
			check(tiers_add(t, &item) == 0);
			n[kind] += !*has;
			*has = true;
		} else {
			tiers_remove(t, &item);
			n[kind] -= *has;
			*has = false;
		}
		check(tiers_count(t, TIER_PAGE) == n[TIER_PAGE]);
		check(tiers_count(t, TIER_STATE) == n[TIER_STATE]);
		check_match(t);
		if (random_below(3000) == 0) {
			tiers_clear(t);
			memset(there, 0, sizeof(there));
			n[0] = n[1] = 0;
			make_keys();
		}
	}
	ok_all("whatever comes and goes: what is there, how far it goes and which way");
	tiers_free(t);
}

TEST(many)
{
	struct tiers *t = tiers_new();

	for (uint64_t i = 0; i < 50000; i++) {
		struct tier_item item = {.key = {{i * 7919, i}}, .origin = i % 3};

		check(tiers_add(t, &item) == 0 && tiers_add(t, &item) == 0);
	}
	for (uint64_t i = 0; i < 50000; i++) {
		struct tier_item item = {.key = {{i * 7919, i}}, .origin = i % 3};

		check(tiers_has(t, &item));
		item.origin++;
		check(!tiers_has(t, &item));
	}
	check(tiers_count(t, TIER_PAGE) == 50000 && tiers_count(t, TIER_STATE) == 0);
	tiers_clear(t);
	check(tiers_count(t, TIER_PAGE) == 0);
	ok_all("the table grows and is cleared");
	tiers_free(t);
	tiers_free(NULL);
}

/* Every page has two origins, and no page follows the second one: these are more branches than a search tries. */
TEST(partings)
{
	enum { LONG = 60 };
	struct tiers *t = tiers_new();
	struct content_key long_keys[LONG];
	uint64_t path[LONG], origins[LONG];
	uint32_t got;

	for (uint32_t i = 0; i < LONG; i++) {
		struct tier_item item = {.key = {{i, i}}, .kind = TIER_PAGE};

		long_keys[i] = item.key;
		check(tiers_add(t, &item) == 0);
		item.origin = 100 + i;
		check(tiers_add(t, &item) == 0);
	}
	got = tiers_match(t, long_keys, LONG, 0, 0, 1, false, false, path, origins);
	check(got == LONG);
	for (uint32_t i = 0; i + 1 < LONG; i++)
		check(origins[i] == 0);
	ok_all("where ways part often the clean one is followed to its end");
	tiers_free(t);
}

TEST_MAIN()
