/*
 * Byte pair encoding against a naive model: strings in a list, the best pair searched anew each
 * time. Random merges over few letters, so that words of all lengths merge deeply.
 */
#include <errno.h>
#include <stdlib.h>

#include "protocol/tokenizer/bpe.h"
#include "tests/impatient.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { MERGES = 60, WORD_MAX = 400 };

struct model {
	struct vocab vocab;
	struct bpe bpe;
	int32_t left[MERGES], right[MERGES], merged[MERGES]; /* by rank; left -2: no merge */
	size_t n;
};

static int32_t new_token(struct vocab *v, const char *bytes, size_t len)
{
	const struct vocab_slot *s = vocab_find(v, bytes, len);
	int32_t id = s ? (int32_t)s->id : (int32_t)v->n + (int32_t)random_below(2);

	if (!s) {
		check(vocab_set(v, id, bytes, len) == 0);
		check(vocab_index(v, id, bytes, len) == 0);
	}
	return id;
}

static int32_t random_token(const struct vocab *v)
{
	size_t id;

	do
		id = random_below(v->n);
	while (!v->tokens[id].len);
	return (int32_t)id;
}

/* Makes tokens for the letters, and merges of random tokens, with ranks in order or shuffled. */
static void model_init(struct model *m, const char *letters, bool ordered, bool ignore_merges)
{
	size_t order[MERGES];

	*m = (struct model){.n = 0};
	vocab_init(&m->vocab);
	for (const char *p = letters; *p; p++)
		new_token(&m->vocab, p, 1);
	while (m->n < MERGES) {
		int32_t left = random_token(&m->vocab), right = random_token(&m->vocab);
		struct vocab_token a = m->vocab.tokens[left], b = m->vocab.tokens[right];
		char text[64];

		if ((size_t)a.len + b.len > sizeof(text))
			continue;
		memcpy(text, m->vocab.bytes.data + a.start, a.len);
		memcpy(text + a.len, m->vocab.bytes.data + b.start, b.len);
		m->left[m->n] = left;
		m->right[m->n] = right;
		m->merged[m->n++] = new_token(&m->vocab, text, a.len + b.len);
	}
	/* In a trained tokenizer a merge comes behind the merges that make its parts; nothing says that a file must. */
	for (size_t i = 0; i < MERGES; i++)
		order[i] = i;
	for (size_t i = MERGES; !ordered && i-- > 1;) {
		size_t k = random_below(i + 1), keep = order[i];

		order[i] = order[k];
		order[k] = keep;
	}
	check(bpe_init(&m->bpe, &m->vocab, MERGES) == 0);
	for (size_t i = 0; i < MERGES; i++)
		bpe_add(&m->bpe, order[i], m->left[i], m->right[i], m->merged[i]);
	/* The model reads the merges by rank; of two for the same pair the one added last counts. */
	for (size_t i = 0; i < MERGES; i++)
		for (size_t k = i + 1; k < MERGES; k++)
			if (m->left[i] == m->left[k] && m->right[i] == m->right[k])
				m->left[i] = -2;
	{
		struct model old = *m;

		for (size_t i = 0; i < MERGES; i++) {
			m->left[order[i]] = old.left[i];
			m->right[order[i]] = old.right[i];
			m->merged[order[i]] = old.merged[i];
		}
	}
	check(bpe_finish(&m->bpe, ignore_merges) == 0);
}

static void model_release(struct model *m)
{
	bpe_release(&m->bpe);
	vocab_release(&m->vocab);
}

static size_t naive(const struct model *m, const char *word, size_t len, int32_t *ids)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		const struct vocab_slot *s = vocab_find(&m->vocab, word + i, 1);

		if (s)
			ids[n++] = (int32_t)s->id;
	}
	for (;;) {
		size_t best = MERGES, at = 0;

		for (size_t i = 0; i + 1 < n; i++)
			for (size_t k = 0; k < best; k++)
				if (m->left[k] == ids[i] && m->right[k] == ids[i + 1]) {
					best = k;
					at = i;
				}
		if (best == MERGES)
			return n;
		ids[at] = m->merged[best];
		memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof(*ids));
		n--;
	}
}

static void test_random(const char *letters, const char *text_letters, bool ordered)
{
	struct ids got = {0};

	for (int i = 0; i < 60; i++) {
		struct model m;

		model_init(&m, letters, ordered, false);
		for (int k = 0; k < 150; k++) {
			char word[WORD_MAX];
			int32_t want[WORD_MAX];
			size_t most = random_below(4) ? 20 : WORD_MAX;
			size_t len = 1 + random_below(most), n;

			for (size_t c = 0; c < len; c++)
				word[c] = text_letters[random_below(strlen(text_letters))];
			n = naive(&m, word, len, want);
			got.len = 0;
			check(bpe_encode(&m.bpe, word, len, NULL, &got) == 0);
			check(got.len == n && (!n || !memcmp(got.v, want, n * sizeof(*want))));
		}
		model_release(&m);
	}
	ok_all("random merges of \"%s\" in words of \"%s\", ranks %s", letters, text_letters,
	       ordered ? "in order" : "shuffled");
	ids_release(&got);
}

TEST(ignore_merges)
{
	struct ids ids = {0};
	struct vocab v;
	struct bpe b;

	vocab_init(&v);
	check(new_token(&v, "a", 1) >= 0 && new_token(&v, "b", 1) >= 0);
	check(vocab_set(&v, 50, "abab", 4) == 0 && vocab_index(&v, 50, "abab", 4) == 0);
	check(bpe_init(&b, &v, 0) == 0 && bpe_finish(&b, false) == 0);
	check(bpe_encode(&b, "abab", 4, NULL, &ids) == 0 && ids.len == 4);
	ok_all("a token that merges do not make is not made");
	check(bpe_finish(&b, true) == 0);
	ids.len = 0;
	check(bpe_encode(&b, "abab", 4, NULL, &ids) == 0 && ids.len == 1 && ids.v[0] == 50);
	check(bpe_encode(&b, "ababa", 5, NULL, &ids) == 0 && ids.len == 6);
	check(bpe_encode(&b, "cdc", 3, NULL, &ids) == 0 && ids.len == 6);
	ok_all("unless merges are ignored; bytes without a token are dropped");
	bpe_release(&b);
	vocab_release(&v);
	ids_release(&ids);
}

/* a -> aa -> aaaa -> ...: all letters of a long word merge, level by level. */
TEST(long)
{
	enum { LEVELS = 10, LEN = 1 << 21 };
	char *word = malloc(LEN);
	int left = 3;
	const struct pace pace = {impatient, &left};
	struct ids ids = {0};
	struct vocab v;
	struct bpe b;

	memset(word, 'a', LEN);
	vocab_init(&v);
	for (int i = 0; i <= LEVELS; i++) {
		check(vocab_set(&v, i, word, (size_t)1 << i) == 0);
		check(vocab_index(&v, i, word, (size_t)1 << i) == 0);
	}
	check(bpe_init(&b, &v, LEVELS) == 0);
	for (int i = 0; i < LEVELS; i++)
		bpe_add(&b, (size_t)i, i, i, i + 1);
	check(bpe_finish(&b, false) == 0);
	check(bpe_encode(&b, word, LEN - 1, NULL, &ids) == 0);
	check(ids.len == (LEN >> LEVELS) - 1 + LEVELS);
	for (size_t i = 0; i < ids.len; i++)
		check(ids.v[i] == (i < (LEN >> LEVELS) - 1
					   ? LEVELS
					   : LEVELS - 1 - (int)(i - (LEN >> LEVELS) + 1)));
	ok_all("two million letters that all merge");
	ids.len = 0;
	is_int(bpe_encode(&b, word, LEN - 1, &pace, &ids), -ECANCELED,
	       "given up while the letters are read");
	left = (LEN >> 12) + 100; /* one question for 4096 letters, then one for 4096 pairs */
	is_int(bpe_encode(&b, word, LEN - 1, &pace, &ids), -ECANCELED,
	       "given up while they are merged");
	is_int((long long)ids.len, 0, "which leaves nothing behind");
	bpe_release(&b);
	vocab_release(&v);
	ids_release(&ids);
	free(word);
}

int main(void)
{
	test_random("abc", "abc", true);
	test_random("ab", "ab", false);
	test_random("abcdefgh", "abcdefgh", false);
	test_random("abd", "abcd", true);
	run_tests();
	return done();
}
