/* The cost of the prefix cache at 1,000, 10,000 and 100,000 nodes: matching a known prompt of 50 pages, using the
 * match and giving it back, growing by a page with a state, and taking a slot or a page from a full pool (one
 * eviction each).
 * It prints the time of this thread, median and 99th percentile, in microseconds, which should not depend on the
 * number of nodes.
 *
 * The tree: a shared system prompt of 8 pages, then conversations of 14 turns of 3 pages, a state after each turn. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "prefix_cache/prefix_cache.h"

enum { PAGE = 64, SYSTEM = 8, TURNS = 14, TURN = 3, DEPTH = SYSTEM + TURNS * TURN, SAMPLES = 2000 };

static double now_us(void)
{
	return (double)clock_read_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-3;
}

/* The tokens of a conversation's page. */
static void fill(int32_t *tokens, uint32_t conversation, uint32_t page)
{
	uint64_t x = page < SYSTEM ? page : (uint64_t)conversation * DEPTH + page;

	for (uint32_t i = 0; i < PAGE; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		tokens[i] = (int32_t)(x >> 40);
	}
}

static void prompt(int32_t *tokens, uint32_t conversation)
{
	for (uint32_t p = 0; p < DEPTH; p++)
		fill(tokens + p * PAGE, conversation, p);
	tokens[DEPTH * PAGE] = 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(uint32_t nodes, const char *what, double *samples)
{
	qsort(samples, SAMPLES, sizeof(*samples), by_value);
	printf("%7u nodes  %-28s %8.2f %8.2f\n", nodes, what, samples[SAMPLES / 2],
	       samples[SAMPLES * 99 / 100]);
}

/* One conversation, published turn by turn. False when pages, slots or memory are out. */
static bool publish(struct prefix_cache *c, uint32_t conversation)
{
	static int32_t tokens[DEPTH * PAGE + 1];
	struct prefix_key key = {.tokens = tokens, .n_tokens = 1, .origin_any = true};
	uint32_t pages[DEPTH], slot;
	struct prefix_match m;
	struct prefix_node *n;

	prompt(tokens, conversation);
	prefix_cache_match(c, &key, &m);
	n = prefix_cache_use(c, &key, &m, pages);
	for (uint32_t at = 0; n && at < DEPTH; at += at ? TURN : SYSTEM) {
		uint32_t k = at ? TURN : SYSTEM;

		for (uint32_t i = 0; i < k; i++)
			if ((pages[i] = prefix_cache_take_page(c)) == POOL_NONE)
				return false;
		n = prefix_cache_extend(c, n, tokens + at * PAGE, pages, k, PREFIX_PREFILLED);
		slot = prefix_cache_take_slot(c);
		if (!n || slot == POOL_NONE)
			return false;
		prefix_cache_checkpoint(c, n, slot, PREFIX_CHECKPOINT_PROMPT);
	}
	if (n)
		prefix_cache_unlock(c, n);
	return n != NULL;
}

static void bench(uint32_t n_nodes)
{
	uint32_t conversations = n_nodes / TURNS;
	struct prefix_cache_config config = {
		.page_tokens = PAGE,
		.state_tokens = PAGE,
		.n_pages = conversations * TURNS * TURN + SYSTEM + SAMPLES + 8,
		.n_slots = conversations * TURNS + 1 + SAMPLES + 8,
		.page_bytes = 1 << 20,
		.slot_bytes = 64 << 20,
	};
	struct prefix_cache *c = prefix_cache_new(&config);
	static int32_t tokens[DEPTH * PAGE + 1], page[PAGE];
	static double match[SAMPLES], use[SAMPLES], grow[SAMPLES], unlock[SAMPLES], evict[SAMPLES],
		slots[SAMPLES];
	struct prefix_key key = {.tokens = tokens,
				 .n_tokens = DEPTH * PAGE + 1,
				 .origin_any = true};
	uint32_t pages[DEPTH];
	struct prefix_stats s;

	if (!c)
		exit(1);
	for (uint32_t i = 0; i < conversations; i++)
		if (!publish(c, i))
			exit(1);
	prefix_cache_stats(c, &s);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		struct prefix_match m;
		struct prefix_node *n;
		uint32_t id, slot;
		double t[5];

		prompt(tokens, (uint32_t)((uint64_t)i * 7919 % conversations));
		fill(page, i, DEPTH + i);
		t[0] = now_us();
		prefix_cache_match(c, &key, &m);
		t[1] = now_us();
		n = prefix_cache_use(c, &key, &m, pages);
		t[2] = now_us();
		id = prefix_cache_take_page(c);
		slot = prefix_cache_take_slot(c);
		n = n ? prefix_cache_extend(c, n, page, &id, 1, PREFIX_PREFILLED) : NULL;
		if (!n)
			exit(1);
		prefix_cache_checkpoint(c, n, slot, PREFIX_CHECKPOINT_DECODE);
		t[3] = now_us();
		prefix_cache_unpin(c, m.slot);
		prefix_cache_unlock(c, n);
		t[4] = now_us();
		match[i] = t[1] - t[0];
		use[i] = t[2] - t[1];
		grow[i] = t[3] - t[2];
		unlock[i] = t[4] - t[3];
	}
	while (prefix_cache_stats(c, &s), s.free_slots)
		if (prefix_cache_take_slot(c) == POOL_NONE)
			exit(1);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		double before = now_us();

		/* A small tree runs out of states. The samples behind that are about 0. */
		if (prefix_cache_take_slot(c) == POOL_NONE)
			before = now_us();
		slots[i] = now_us() - before;
	}
	while (prefix_cache_stats(c, &s), s.free_pages)
		if (prefix_cache_take_page(c) == POOL_NONE)
			exit(1);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		double before = now_us();

		if (prefix_cache_take_page(c) == POOL_NONE)
			exit(1);
		evict[i] = now_us() - before;
	}
	report(n_nodes, "match 50 pages", match);
	report(n_nodes, "use 50 pages", use);
	report(n_nodes, "take, extend, checkpoint", grow);
	report(n_nodes, "unpin, unlock", unlock);
	report(n_nodes, "take a slot (evicting)", slots);
	report(n_nodes, "take a page (evicting)", evict);
	prefix_cache_free(c);
}

int main(void)
{
	printf("%-43s %8s %8s  (us)\n", "", "median", "p99");
	for (uint32_t n = 1000; n <= 100000; n *= 10)
		bench(n);
	return 0;
}
