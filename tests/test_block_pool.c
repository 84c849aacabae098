/* engine/store/block_pool.c: blocks of the pool never overlap, whatever comes and goes in which order, and blocks
 * without a place are made of ordinary memory. */
#include <stdlib.h>

#include "engine/store/block_pool.h"
#include "tests/random.h"
#include "tests/tap.h"

enum {
	UNIT = 4096,
	PAGE = UNIT - 100,
	STATE = 5 * UNIT,
	REGION = 40 * UNIT + 50,
	REGIONS = 2,
	MOST = 100
};

static char *regions[REGIONS];

static struct block_pool *open_pool(void)
{
	struct block_pool *p = block_pool_new(PAGE, STATE);

	for (int i = 0; i < REGIONS; i++) {
		void *memory;

		if (posix_memalign(&memory, UNIT, REGION))
			abort();
		regions[i] = memory;
		check(block_pool_add(p, memory, REGION) == 0);
	}
	return p;
}

static void close_pool(struct block_pool *p)
{
	block_pool_free(p);
	for (int i = 0; i < REGIONS; i++)
		free(regions[i]);
}

static bool pooled(const struct store_block *b)
{
	const char *data = b->data;
	bool inside = false;

	for (int i = 0; i < REGIONS; i++)
		inside |= data >= regions[i] && data + b->bytes <= regions[i] + REGION;
	check(inside == (b->pool != NULL) && (uintptr_t)data % UNIT == 0);
	return inside;
}

TEST(random_blocks)
{
	struct block_pool *p = open_pool();
	struct store_block *blocks[MOST] = {NULL};
	uint32_t taken = 0, outside = 0;

	for (uint32_t i = 0; i < 50000; i++) {
		uint32_t at = random_below(MOST);
		struct store_block *b = blocks[at];

		if (b) {
			for (size_t k = 0; k < b->bytes; k += 97)
				check(((uint8_t *)b->data)[k] == at);
			store_block_put(b);
			blocks[at] = NULL;
			continue;
		}
		/* states are rare in one half of the time, and common in the other one */
		b = block_pool_take(p, random_below(20) < (i / 5000 % 2 ? 1 : 8) ? STATE : PAGE);
		if (!b)
			abort();
		memset(b->data, (int)at, b->bytes);
		taken++;
		outside += !pooled(b);
		blocks[at] = b;
	}
	for (uint32_t i = 0; i < MOST; i++)
		store_block_put(blocks[i]);
	close_pool(p);
	ok_all("no block changes another one, and all come back");
	ok(outside > 100 && outside < taken / 2, "%u of %u blocks had no place", outside, taken);
}

TEST(full)
{
	struct block_pool *p = open_pool();
	struct store_block *states[2 * 8 + 1], *page, *odd = block_pool_take(p, PAGE + 1);
	size_t n = 0;

	for (; n < ARRAY_SIZE(states); n++) {
		states[n] = block_pool_take(p, STATE);
		if (!pooled(states[n]))
			break;
	}
	is_int((long)n, 16, "states fill both regions");
	page = block_pool_take(p, PAGE);
	ok(!pooled(page), "then a page has no place");
	store_block_put(page);
	store_block_put(states[7]);
	page = block_pool_take(p, PAGE);
	ok(pooled(page), "but it has one where the last state of a region was");
	store_block_put(states[0]);
	states[0] = block_pool_take(p, STATE);
	ok(pooled(states[0]), "a state takes the place of a state");
	ok(!pooled(odd), "a block of another size has none");
	store_block_put(store_block_ref(page));
	ok(pooled(page), "a block is there until its last reference");
	store_block_put(page);
	store_block_put(odd);
	for (size_t i = 0; i <= n; i++)
		store_block_put(i == 7 ? NULL : states[i]);
	close_pool(p);
	ok_all("and all come back");
}

TEST(without_a_pool)
{
	struct store_block *b = block_pool_take(NULL, 10);

	ok(b && !b->pool && b->bytes == 10, "without a pool a block is made of ordinary memory");
	store_block_put(b);
	block_pool_free(NULL);
}

TEST_MAIN()
