/* prefix_cache/ghosts: a bounded memory; of the hashes that share a line the oldest is forgotten first. */
#include "prefix_cache/ghosts.h"
#include "tests/tap.h"

int main(void)
{
	struct ghosts g;
	uint64_t n, room;

	ok(ghosts_init(&g, 10) == 0 && !ghosts_have(&g, 0) && !ghosts_have(&g, 1), "empty");
	n = g.n_lines;
	room = n * GHOSTS_LINE;
	for (uint64_t i = 0; i < room; i++)
		ghosts_add(&g, i);
	for (uint64_t i = 0; i < room; i++)
		check(ghosts_have(&g, i));
	ok_all("as many as there is room for");
	for (uint64_t i = 0; i < room; i++)
		ghosts_add(&g, i);
	ok(ghosts_have(&g, 0), "what is there already takes no room");
	for (uint64_t i = 0; i < 3; i++)
		ghosts_add(&g, (100 + i) * n + 7);
	for (uint64_t i = 0; i < room; i++)
		check(ghosts_have(&g, i) == (i % n != 7 || i / n >= 3));
	for (uint64_t i = 0; i < 3; i++)
		check(ghosts_have(&g, (100 + i) * n + 7));
	ok_all("three more of one line, and its three oldest are forgotten");
	for (uint64_t i = 0; i < 10 * room; i++)
		ghosts_add(&g, i << 32 | (i & (n - 1)));
	for (uint64_t i = 8 * room; i < 10 * room; i++)
		check(ghosts_have(&g, i << 32 | (i & (n - 1))) == (i >= 9 * room));
	ok_all("many times round");
	ghosts_clear(&g);
	ok(!ghosts_have(&g, (10 * room - 1) << 32 | (n - 1)) && !ghosts_have(&g, 0), "cleared");
	ghosts_add(&g, 5);
	ghosts_add(&g, 0);
	ok(ghosts_have(&g, 5) && ghosts_have(&g, 0), "and used again");
	ghosts_release(&g);

	ok(ghosts_init(&g, 100000) == 0 && g.n_lines * GHOSTS_LINE >= 200000,
	   "there is room for twice the pool");
	ghosts_release(&g);
	return done();
}
