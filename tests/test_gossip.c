/* protocol/transfer/gossip: which newly cached pages each decode worker is told. */
#include <stdlib.h>

#include "protocol/transfer/gossip.h"
#include "tests/tap.h"

static struct wire_key key(uint32_t i)
{
	struct wire_key k = {{0}};

	for (int byte = 0; byte < 4; byte++)
		k.bytes[byte] = (uint8_t)(i >> 8 * byte);
	return k;
}

static uint32_t number(const struct wire_key *k)
{
	return k->bytes[0] | (uint32_t)k->bytes[1] << 8 | (uint32_t)k->bytes[2] << 16;
}

static void add(struct gossip *g, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		struct wire_key k = key(i);

		gossip_add(g, &k, 1);
	}
}

/* Tells one decode worker all keys that it was not told yet. Returns whether they are first .. first + n - 1, and the
 * worker is told to forget earlier keys exactly if `forgotten`. */
static bool hears(const struct gossip *g, uint64_t *told, uint32_t first, uint32_t n,
		  bool forgotten)
{
	struct wire_key keys[GOSSIP_TOLD];
	bool same = true, begins = true;

	for (;;) {
		struct wire_pong pong = {0};

		gossip_tell(g, told, keys, &pong);
		same &= pong.forgotten == (begins && forgotten) && pong.n_keys <= n;
		begins = false;
		if (!pong.n_keys || !same)
			return same && !n;
		for (uint32_t i = 0; i < pong.n_keys; i++)
			same &= number(&pong.keys[i]) == first++;
		n -= pong.n_keys;
	}
}

int main(void)
{
	struct gossip *g = calloc(1, sizeof(*g));
	uint64_t a = 0, b = 0, late = 0;

	if (!g)
		abort();
	ok(hears(g, &a, 0, 0, false), "nothing is cached");
	add(g, 0, 1000);
	ok(hears(g, &a, 0, 1000, false), "who listens hears all of it, in parts");
	add(g, 1000, 10);
	ok(hears(g, &a, 1000, 10, false), "then only what is new");
	ok(hears(g, &b, 0, 1010, false), "and somebody else all");
	add(g, 1010, GOSSIP_KEYS + 5);
	ok(hears(g, &a, 1015, GOSSIP_KEYS, false), "what was overwritten is not told");
	gossip_clear(g);
	ok(hears(g, &a, 0, 0, true), "who had heard all hears that it is forgotten");
	ok(hears(g, &a, 0, 0, false), "once");
	add(g, 5, 3);
	ok(hears(g, &a, 5, 3, false), "and what is cached after it");
	ok(hears(g, &b, 5, 3, true), "who had not hears both, and nothing of what was before");
	ok(hears(g, &late, 5, 3, true), "so does who comes now: it may come again");
	gossip_clear(g);
	gossip_clear(g);
	ok(hears(g, &b, 0, 0, true) && hears(g, &b, 0, 0, false), "twice is once");
	free(g);
	return done();
}
