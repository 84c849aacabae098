/* prefix_cache/ghosts: a bounded memory, the oldest forgotten first. */
#include "prefix_cache/ghosts.h"
#include "tests/tap.h"

int main(void)
{
	struct ghosts g;
	uint64_t n;

	ok(ghosts_init(&g, 10) == 0 && !ghosts_have(&g, 0) && !ghosts_have(&g, 1), "empty");
	n = g.cap;
	/* Multiples of the capacity meet in one bucket, the others spread. */
	for (uint64_t i = 0; i < n; i++)
		ghosts_add(&g, i % 3 ? i : i * n);
	for (uint64_t i = 0; i < n; i++)
		check(ghosts_have(&g, i % 3 ? i : i * n));
	ok_all("as many as there is room for");
	ghosts_add(&g, 1);
	ok(ghosts_have(&g, 0), "what is there already takes no room");
	for (uint64_t i = 0; i < 100; i++)
		ghosts_add(&g, (i + 1) * n + 1);
	for (uint64_t i = 0; i < n; i++)
		check(ghosts_have(&g, i % 3 ? i : i * n) == (i >= 100));
	for (uint64_t i = 0; i < 100; i++)
		check(ghosts_have(&g, (i + 1) * n + 1));
	ok_all("a hundred more, and the hundred oldest are forgotten");
	for (uint64_t i = 0; i < 10 * n; i++)
		ghosts_add(&g, i << 32);
	ok(ghosts_have(&g, (10 * n - 1) << 32) && ghosts_have(&g, 9 * n << 32) &&
		   !ghosts_have(&g, (9 * n - 1) << 32),
	   "many times round");
	ghosts_clear(&g);
	ok(!ghosts_have(&g, 9 * n << 32), "cleared");
	ghosts_add(&g, 5);
	ok(ghosts_have(&g, 5), "and used again");
	ghosts_release(&g);
	return done();
}
