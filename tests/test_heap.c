/* prefix_cache/heap: against sorting. */
#include <stdlib.h>

#include "prefix_cache/heap.h"
#include "prefix_cache/radix.h"
#include "tests/tap.h"

enum { N = 500 };

static uint64_t random_state = 7;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(random_state >> 33) % n;
}

static void random_key(struct heap_key *ret, uint64_t id)
{
	*ret = (struct heap_key){
		.score = random_below(10),
		.hit = random_below(2),
		.depth = random_below(3),
		.used = random_below(5),
		.id = id,
	};
}

static void test_order(void)
{
	static const struct heap_key rising[] = {
		{.score = 1, .hit = true, .depth = 9, .used = 9, .id = 9},
		{.score = 2, .hit = false, .depth = 1, .used = 5, .id = 5},
		{.score = 2, .hit = false, .depth = 1, .used = 6, .id = 3},
		{.score = 2, .hit = false, .depth = 1, .used = 6, .id = 4},
		{.score = 2, .hit = false, .depth = 2, .used = 1, .id = 2},
		{.score = 2, .hit = true, .depth = 1, .used = 1, .id = 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rising); i++)
		for (size_t k = 0; k < ARRAY_SIZE(rising); k++)
			check(heap_key_before(&rising[i], &rising[k]) == (i < k));
	ok_all("score, never hit, shallow, unused for longest, number");
}

static void check_first(const struct heap *h, const struct prefix_node *nodes,
			const struct heap_key *keys, const bool *in)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N; i++) {
		if (!in[i])
			continue;
		n++;
		check(h->entries[nodes[i].seat.place].node == &nodes[i]);
		check(!heap_key_before(&keys[i], &h->entries[0].key));
	}
	check(h->n == n);
}

static void test_random(void)
{
	struct prefix_node *nodes = calloc(N, sizeof(*nodes));
	struct heap_key keys[N];
	bool in[N] = {false};
	struct heap h;

	check(heap_init(&h, N) == 0);
	for (int event = 0; event < 20000; event++) {
		uint32_t i = random_below(N);

		if (!in[i]) {
			random_key(&keys[i], i);
			heap_push(&h, &nodes[i], &keys[i]);
			in[i] = true;
		} else if (random_below(2)) {
			random_key(&keys[i], i);
			heap_change(&h, &nodes[i], &keys[i]);
		} else {
			heap_remove(&h, &nodes[i]);
			in[i] = false;
		}
		if (event % 7 == 0)
			check_first(&h, nodes, keys, in);
	}
	ok_all("push, change and remove keep the first on top and every place right");
	while (h.n) {
		struct heap_entry first = h.entries[0];

		heap_remove(&h, first.node);
		check(!h.n || heap_key_before(&first.key, &h.entries[0].key));
	}
	ok_all("and come out in order");
	heap_release(&h);
	free(nodes);
}

int main(void)
{
	test_order();
	test_random();
	return done();
}
