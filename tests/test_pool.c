/* prefix_cache/pool, compared with a plain array of reference counts. */
#include <stdlib.h>

#include "prefix_cache/pool.h"
#include "tests/random.h"
#include "tests/tap.h"

TEST(smallest_first)
{
	struct pool *p = pool_new(200);

	for (uint32_t i = 0; i < 200; i++)
		check(pool_get(p) == i);
	check(pool_get(p) == POOL_NONE && pool_available(p) == 0);
	ok_all("ids come in rising order, then none");
	pool_put(p, 150);
	pool_put(p, 7);
	pool_put(p, 64);
	is_int(pool_get(p), 7, "the smallest free id first, whatever the order of the puts");
	is_int(pool_get(p), 64, "then the next");
	pool_ref(p, 3);
	is_int(pool_refs(p, 3), 2, "two references");
	pool_put(p, 3);
	is_int(pool_available(p), 1, "one of two references given back frees nothing");
	pool_put(p, 3);
	is_int(pool_get(p), 3, "the last one frees the id");
	pool_free(p);
}

TEST(edges)
{
	struct pool *p = pool_new(0);

	ok(p && pool_get(p) == POOL_NONE && pool_size(p) == 0, "a pool of nothing");
	pool_shuffle(p, 1);
	pool_free(p);
	pool_free(NULL);
	p = pool_new(1);
	ok(pool_get(p) == 0 && pool_get(p) == POOL_NONE, "a pool of one");
	pool_free(p);
	for (uint32_t size = 63; size <= 65; size++) {
		p = pool_new(size * size);
		for (uint32_t i = 0; i < size * size; i++)
			check(pool_get(p) == i);
		check(pool_get(p) == POOL_NONE);
		pool_free(p);
	}
	ok_all("sizes around the width of a word, two and three levels");
}

/* Random get, ref and put on a pool of n ids. pool_get has to give out the free id that is first in `order`. */
static void run_model(struct pool *p, uint32_t n, const uint32_t *order, uint32_t events)
{
	uint32_t *refs = calloc(n, sizeof(*refs)), used = 0;

	for (uint32_t e = 0; e < events; e++) {
		/* In some phases most events take an id, in others most give one back, so that the pool is empty at
		 * times and full at times. */
		uint32_t op = random_below(10), filling = (e / (2 * n)) % 2 ? 6 : 3;

		if (op < filling) {
			uint32_t want = POOL_NONE;

			for (uint32_t i = 0; i < n && want == POOL_NONE; i++)
				want = refs[order[i]] ? POOL_NONE : order[i];
			check(pool_get(p) == want);
			if (want != POOL_NONE) {
				refs[want] = 1;
				used++;
			}
		} else {
			uint32_t id = random_below(n);

			if (!refs[id])
				continue;
			if (op == 9) {
				pool_ref(p, id);
				refs[id]++;
			} else {
				pool_put(p, id);
				used -= --refs[id] == 0;
			}
			check(pool_refs(p, id) == refs[id]);
		}
		check(pool_available(p) == n - used);
	}
	for (uint32_t id = 0; id < n; id++) {
		check(pool_refs(p, id) == refs[id]);
		while (refs[id]) {
			pool_put(p, id);
			refs[id]--;
		}
	}
	check(pool_available(p) == pool_size(p));
	free(refs);
}

TEST(random)
{
	static const uint32_t sizes[] = {1, 2, 63, 64, 65, 200, 4096, 4097};

	for (uint32_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		uint32_t n = sizes[k];
		uint32_t *order = calloc(n, sizeof(*order));
		struct pool *p = pool_new(n);

		for (uint32_t i = 0; i < n; i++)
			order[i] = i;
		run_model(p, n, order, MIN(20000u, 400 * n));
		for (uint64_t seed = 1; seed <= 3; seed++) {
			bool *seen = calloc(n, sizeof(*seen));

			pool_shuffle(p, seed);
			for (uint32_t i = 0; i < n; i++) {
				order[i] = pool_get(p);
				check(order[i] < n && !seen[order[i]]);
				seen[order[i]] = true;
			}
			check(pool_get(p) == POOL_NONE);
			for (uint32_t i = 0; i < n; i++)
				pool_put(p, i);
			run_model(p, n, order, MIN(20000u, 400 * n));
			free(seen);
		}
		pool_free(p);
		free(order);
	}
	ok_all("random events on pools of 1 to 4097 ids, shuffled and not, as the model says");
}

TEST(shuffle)
{
	struct pool *a = pool_new(1000), *b = pool_new(1000), *c = pool_new(1000);
	uint32_t same = 0, moved = 0;

	pool_shuffle(a, 5);
	pool_shuffle(b, 5);
	pool_shuffle(c, 6);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t ia = pool_get(a), ib = pool_get(b), ic = pool_get(c);

		check(ia == ib);
		same += ia == ic;
		moved += ia != i;
	}
	ok_all("one seed, one permutation");
	ok(same < 20 && moved > 980, "another seed, another permutation (%u same, %u moved)", same,
	   moved);
	pool_free(a);
	pool_free(b);
	pool_free(c);
}

TEST_MAIN()
