/* base/heap, against a search of all elements. */
#include <stdint.h>
#include <stdlib.h>

#include "base/heap.h"
#include "base/macros.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { N = 500 };

struct thing {
	uint64_t key;
	size_t place;
	bool in;
};

static struct thing things[N];

static bool before(const void *a, const void *b)
{
	const struct thing *x = *(struct thing *const *)a, *y = *(struct thing *const *)b;

	return x->key != y->key ? x->key < y->key : x < y;
}

static void moved(void *element, size_t place)
{
	(*(struct thing **)element)->place = place;
}

static const struct heap_kind kind = {.size = sizeof(struct thing *),
				      .before = before,
				      .moved = moved};

static void check_heap(struct thing *const *v, size_t n)
{
	size_t in = 0;

	for (uint32_t i = 0; i < N; i++) {
		const struct thing *t = &things[i];

		in += t->in;
		check(!t->in || (v[t->place] == t && !before(&t, v)));
	}
	check(in == n);
}

TEST(random)
{
	struct thing *v[N];
	size_t n = 0;

	for (int event = 0; event < 20000; event++) {
		struct thing *t = &things[random_below(N)];

		if (!t->in || random_below(2)) {
			t->key = random_below(50);
			if (t->in)
				heap_settle(&kind, v, n, t->place);
			else
				heap_add(&kind, v, n++, &t);
			t->in = true;
		} else {
			heap_take(&kind, v, n--, t->place);
			t->in = false;
		}
		if (event % 7 == 0)
			check_heap(v, n);
	}
	ok_all("additions, changes and removals keep the first on top and every place right");
	check(n > N / 4);
	while (n) {
		struct thing *first = v[0];

		heap_take(&kind, v, n--, 0);
		check(!n || before(&first, v));
	}
	ok_all("and come out in order");
}

static bool smaller(const void *a, const void *b)
{
	return *(const int *)a < *(const int *)b;
}

TEST(plain)
{
	static const struct heap_kind ints = {.size = sizeof(int), .before = smaller};
	int v[100];

	for (int i = 0; i < 100; i++) {
		int element = i * 37 % 100;

		heap_add(&ints, v, (size_t)i, &element);
	}
	for (int i = 0; i < 100; i++) {
		check(v[0] == i);
		heap_take(&ints, v, (size_t)(100 - i), 0);
	}
	ok_all("elements that need not know their places");
}

TEST_MAIN()
