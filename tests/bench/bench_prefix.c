/* The cost of the prefix cache at 1,000, 10,000 and 100,000 nodes: matching a known prompt of 50 pages, using the
 * match and giving it back, growing by a page with a state, and taking a slot or a page from a full pool (one
 * eviction each).
 * It prints the time of this thread, median and 99th percentile, in microseconds, which should not depend on the
 * number of nodes. An operation may take less time than to read the clock, so a sample is the mean of ten operations in a row.
 *
 * The tree: a shared system prompt of 8 pages, then conversations of 14 turns of 3 pages, a state after each turn. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "prefix_cache/prefix_cache.h"

enum { PAGE = 64, SYSTEM = 8, TURNS = 14, TURN = 3, DEPTH = SYSTEM + TURNS * TURN };
enum { BATCH = 10, SAMPLES = 200, OPERATIONS = BATCH * SAMPLES };

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

static void report(uint32_t nodes, const char *what, double *samples, uint32_t n)
{
	if (!n)
		return;
	qsort(samples, n, sizeof(*samples), by_value);
	printf("%7u nodes  %-28s %8.3f %8.3f\n", nodes, what, samples[n / 2],
	       samples[n * 99 / 100]);
}

/* Takes slots or pages from a full pool, until there are enough samples or the tree has no more to evict. Returns the
 * number of samples. */
static uint32_t take(struct prefix_cache *c, uint32_t (*one)(struct prefix_cache *c),
		     double samples[SAMPLES])
{
	for (uint32_t i = 0; i < SAMPLES; i++) {
		double before = now_us();

		for (uint32_t k = 0; k < BATCH; k++)
			if (one(c) == POOL_NONE)
				return i;
		samples[i] = (now_us() - before) / BATCH;
	}
	return SAMPLES;
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
		.n_pages = conversations * TURNS * TURN + SYSTEM + OPERATIONS + 8,
		.n_slots = conversations * TURNS + 1 + OPERATIONS + 8,
		.page_bytes = 1 << 20,
		.slot_bytes = 64 << 20,
	};
	struct prefix_cache *c = prefix_cache_new(&config);
	static int32_t tokens[BATCH][DEPTH * PAGE + 1], page[BATCH][PAGE];
	static double match[SAMPLES], use[SAMPLES], grow[SAMPLES], unlock[SAMPLES], evict[SAMPLES],
		slots[SAMPLES];
	uint32_t pages[DEPTH], n_slots, n_pages;
	struct prefix_stats s;

	if (!c)
		exit(1);
	for (uint32_t i = 0; i < conversations; i++)
		if (!publish(c, i))
			exit(1);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		struct prefix_key keys[BATCH];
		struct prefix_match m[BATCH];
		struct prefix_node *n[BATCH];
		double t[5];

		for (uint32_t k = 0; k < BATCH; k++) {
			uint32_t at = i * BATCH + k;

			prompt(tokens[k], (uint32_t)((uint64_t)at * 7919 % conversations));
			fill(page[k], at, DEPTH + at);
			keys[k] = (struct prefix_key){.tokens = tokens[k],
						      .n_tokens = DEPTH * PAGE + 1,
						      .origin_any = true};
		}
		t[0] = now_us();
		for (uint32_t k = 0; k < BATCH; k++)
			prefix_cache_match(c, &keys[k], &m[k]);
		t[1] = now_us();
		for (uint32_t k = 0; k < BATCH; k++)
			n[k] = prefix_cache_use(c, &keys[k], &m[k], pages);
		t[2] = now_us();
		for (uint32_t k = 0; k < BATCH; k++) {
			uint32_t id = prefix_cache_take_page(c), slot = prefix_cache_take_slot(c);

			n[k] = n[k] ? prefix_cache_extend(c, n[k], page[k], &id, 1,
							  PREFIX_PREFILLED)
				    : NULL;
			if (!n[k])
				exit(1);
			prefix_cache_checkpoint(c, n[k], slot, PREFIX_CHECKPOINT_DECODE);
		}
		t[3] = now_us();
		for (uint32_t k = 0; k < BATCH; k++) {
			prefix_cache_unpin(c, m[k].slot);
			prefix_cache_unlock(c, n[k]);
		}
		t[4] = now_us();
		match[i] = (t[1] - t[0]) / BATCH;
		use[i] = (t[2] - t[1]) / BATCH;
		grow[i] = (t[3] - t[2]) / BATCH;
		unlock[i] = (t[4] - t[3]) / BATCH;
	}
	while (prefix_cache_stats(c, &s), s.free_slots)
		if (prefix_cache_take_slot(c) == POOL_NONE)
			exit(1);
	n_slots = take(c, prefix_cache_take_slot, slots);
	while (prefix_cache_stats(c, &s), s.free_pages)
		if (prefix_cache_take_page(c) == POOL_NONE)
			exit(1);
	n_pages = take(c, prefix_cache_take_page, evict);
	report(n_nodes, "match 50 pages", match, SAMPLES);
	report(n_nodes, "use 50 pages", use, SAMPLES);
	report(n_nodes, "take, extend, checkpoint", grow, SAMPLES);
	report(n_nodes, "unpin, unlock", unlock, SAMPLES);
	report(n_nodes, "take a slot (evicting)", slots, n_slots);
	report(n_nodes, "take a page (evicting)", evict, n_pages);
	prefix_cache_free(c);
}

int main(void)
{
	printf("%-43s %8s %8s  (us)\n", "", "median", "p99");
	for (uint32_t n = 1000; n <= 100000; n *= 10)
		bench(n);
	return 0;
}
