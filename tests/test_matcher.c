/* protocol/grammar/matcher: which users share one, what is counted for them, and how they leave one that is full. */
#include "protocol/grammar/matcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/grammar/constraint.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { RESERVE = 64 << 10, MOST = 16 << 20 };

static struct token_trie *trie;
static _Atomic uint64_t all, own[2];

/* Every byte is a token. */
static const char *byte_of(const void *arg, int32_t id, size_t *len)
{
	*len = 1;
	return (const char *)arg + id;
}

static struct grammar *regex(const char *pattern)
{
	struct grammar *g = NULL;

	if (constraint_regex(pattern, strlen(pattern), &g, NULL) < 0)
		abort();
	return g;
}

static struct matcher *make(const char *pattern, uint64_t owner, size_t automaton_bytes)
{
	const struct matcher_config config = {
		.trie = trie,
		.automaton_bytes = automaton_bytes,
		.masks_bytes = 1 << 20,
		.bounds = {&all, &own[owner], MOST},
		.reserve = RESERVE,
		.owner = owner,
	};
	struct matcher *m = NULL;

	if (matcher_new(&config, regex(pattern), &m) < 0)
		abort();
	return m;
}

TEST(equal_grammars)
{
	static const char *const patterns[] = {"[a-z]{2,9} no", "[a-z]{2,9} na", "[a-z]{2,8} no",
					       "[a-y]{2,9} no", "([a-z]{2,9} no)?"};

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
		for (size_t k = 0; k < ARRAY_SIZE(patterns); k++) {
			struct grammar *a = regex(patterns[i]), *b = regex(patterns[k]);

			check(grammar_equal(a, b) == (i == k));
			check((grammar_hash(a) == grammar_hash(b)) == (i == k));
			grammar_free(a);
			grammar_free(b);
		}
	ok_all("grammars of the same text are equal, and no others");
}

TEST(sharing)
{
	struct matcher *a = make("[a-z]{2,9} no", 0, 1 << 20),
		       *b = make("[a-z]{2,9} no", 0, 1 << 20),
		       *c = make("[a-z]{2,9} no", 1, 1 << 20),
		       *d = make("[a-z]{2,9} na", 0, 1 << 20);
	uint64_t one = own[1];
	struct matcher *first = a;
	const uint32_t *mask;
	struct list shared;
	uint32_t state;
	int n = 0;

	list_init(&shared);
	matcher_share(&a, &shared);
	matcher_share(&b, &shared);
	matcher_share(&c, &shared);
	matcher_share(&d, &shared);
	ok(a == first && b == a, "the second of an owner uses the first");
	ok(c != a && d != a && c != d, "not that of another owner, nor that of another grammar");
	ok(own[0] == 2 * one + RESERVE && own[1] == one,
	   "each user has its reserve, and the grammar is counted once");
	state = automaton_read(a->automaton, AUTOMATON_START, "bow", 3);
	matcher_leave(a);
	check(token_mask(b->masks, state, &mask, NULL) == 0);
	for (size_t i = 0; i < token_trie_words(b->config.trie); i++)
		n += __builtin_popcount(mask[i]);
	ok(n == 27 && own[0] == 2 * one, "when the first leaves, the second goes on");
	a = make("[a-z]{2,9} no", 0, 1 << 20);
	matcher_share(&a, &shared);
	ok(a == first, "and a third one joins it");
	matcher_leave(a);
	matcher_leave(b);
	a = make("[a-z]{2,9} no", 0, 1 << 20);
	matcher_share(&a, &shared);
	ok(own[0] == 2 * one, "one that nobody uses is gone");
	matcher_leave(a);
	matcher_leave(c);
	matcher_leave(d);
	matcher_leave(NULL);
	ok(list_empty(&shared) && !all && !own[0] && !own[1], "nothing is left");
}

/* A state for each text of 12 letters. */
static const char hungry[] = "[a-z ]*[a-m][a-z ]{12}";

/* Lets a user read a byte. Returns 0, or the code of a renewal that failed. */
static int read_byte(struct matcher **m, uint32_t *state, uint8_t byte)
{
	uint32_t next = automaton_next((*m)->automaton, *state, byte);
	int r = automaton_failed((*m)->automaton, NULL);

	matcher_count(*m);
	if (r < 0) {
		r = matcher_renew(m, state, 1, r);
		if (r == 0)
			next = automaton_next((*m)->automaton, *state, byte);
	}
	*state = next;
	return r;
}

TEST(full)
{
	enum { USERS = 5, BYTES = 2000 };
	struct grammar *g = regex(hungry);
	struct automaton *naive = NULL;
	struct matcher *m[USERS], *shared_one, *late;
	uint32_t states[USERS], naives[USERS], left = 0;
	struct list shared;

	list_init(&shared);
	check(automaton_new(g, 1 << 30, NULL, &naive) == 0);
	for (int i = 0; i < USERS; i++) {
		m[i] = make(hungry, 0, 256 << 10);
		matcher_share(&m[i], &shared);
		check(m[i] == m[0]);
		states[i] = naives[i] = AUTOMATON_START;
	}
	shared_one = m[0];
	for (int k = 0; k < BYTES * USERS; k++) {
		int i = k % USERS;
		uint8_t byte = (uint8_t)("abcdefghijklmnopqrstuvwxyz "[random_below(27)]);
		struct matcher *before = m[i];

		check(read_byte(&m[i], &states[i], byte) == 0);
		naives[i] = automaton_next(naive, naives[i], byte);
		check(automaton_may_end(m[i]->automaton, states[i]) ==
		      automaton_may_end(naive, naives[i]));
		if (m[i] == before)
			continue;
		check(before == shared_one);
		if (++left < USERS - 1)
			continue;
		late = make(hungry, 0, 256 << 10);
		matcher_share(&late, &shared);
		check(late != shared_one);
		matcher_leave(late);
	}
	ok_all("the users of a full automaton go on with their states");
	ok(left == USERS - 1, "all but the last leave it: %u", left);
	for (int i = 0; i < USERS; i++)
		matcher_leave(m[i]);
	automaton_free(naive);
	grammar_free(g);
	ok(list_empty(&shared) && !all && !own[0], "nothing is left");
}

TEST(no_memory)
{
	const struct account_bounds bounds = {&all, &own[1], MOST};
	struct account others = {0};
	struct matcher *m[3];
	uint32_t states[3], own_before;
	struct list shared;
	bool good = true;

	list_init(&shared);
	for (int i = 0; i < 3; i++) {
		m[i] = make(hungry, 0, 4 << 20);
		matcher_share(&m[i], &shared);
		states[i] = AUTOMATON_START;
	}
	check(account_open(&others, &bounds, 0) == 0);
	account_add(&others, MOST - all);
	own_before = (uint32_t)own[0];
	for (int k = 0; k < 3000; k++)
		good &= read_byte(&m[k % 3], &states[k % 3], (uint8_t)('a' + random_below(26))) ==
			0;
	ok(good && m[0] != m[1] && m[1] != m[2],
	   "while others have all memory, each has its reserve");
	ok(own[0] <= own_before + 3 * RESERVE, "and not much more: %lu bytes, before %u",
	   (unsigned long)own[0], own_before);
	for (int i = 0; i < 3; i++)
		matcher_leave(m[i]);
	account_close(&others);
	ok(!all && !own[0] && !own[1], "nothing is left");
}

int main(void)
{
	static uint8_t bytes[256];
	struct token_source source = {.n = 256, .bytes = byte_of, .arg = bytes};

	for (int i = 0; i < 256; i++)
		bytes[i] = (uint8_t)i;
	if (token_trie_new(&source, &trie) < 0)
		return 2;
	run_tests();
	token_trie_free(trie);
	return done();
}
