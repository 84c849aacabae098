/* protocol/tokenizer/vocab: tokens of every length that a struct vocab_slot treats in its own way, gaps and
 * refusals. */
#include <errno.h>
#include <stdlib.h>

#include "protocol/tokenizer/vocab.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { TOKENS = 20000, LONGEST = 40 };

static size_t make(char *out, size_t i)
{
	size_t len = 3 + i % (LONGEST - 2);

	/* Tokens of a length are alike but for four bytes or fewer, one of them at a changing place, so that each byte
	 * of a token counts. */
	memset(out, 'x', len);
	out[i * 7 % len] = (char)('a' + i % 23);
	out[0] = (char)(i >> 8);
	out[len - 1] = (char)i;
	out[len / 2] ^= (char)(i >> 12);
	return len;
}

TEST(many)
{
	struct vocab v;
	char text[LONGEST];
	int *owner = calloc(TOKENS, sizeof(*owner));
	size_t n = 0;

	vocab_init(&v);
	ok(!vocab_find(&v, "a", 1), "an empty vocabulary has nothing");
	for (size_t i = 0; i < TOKENS; i++) {
		size_t len = make(text, i);
		const struct vocab_slot *s = vocab_find(&v, text, len);

		owner[i] = s ? (int)s->id : (int)i * 2;
		check(vocab_set(&v, (int64_t)i * 2, text, len) == 0);
		check(vocab_index(&v, (int64_t)i * 2, text, len) == (s ? -EEXIST : 0));
		n += !s;
	}
	check(n > TOKENS / 2 && v.n_used == n && v.n_slots >= 2 * n && v.n == 2 * TOKENS - 1);
	ok_all("%zu different tokens go in", n);
	for (size_t i = 0; i < TOKENS; i++) {
		size_t len = make(text, i);
		const struct vocab_slot *s = vocab_find(&v, text, len);
		struct vocab_token t = v.tokens[2 * i];

		check(s && (int)s->id == owner[i] && s->len == len && !s->whole);
		check(t.len == len && !memcmp(v.bytes.data + t.start, text, len));
		check(i + 1 == TOKENS || v.tokens[2 * i + 1].len == 0);
		text[len / 3] ^= 0x40;
		s = vocab_find(&v, text, len);
		check(!s || (int)s->id != owner[i]);
	}
	ok_all("each is found by its bytes and by its id, and by no others");
	vocab_release(&v);
	free(owner);
}

TEST(short)
{
	struct vocab v;
	char text[17];

	vocab_init(&v);
	for (int i = 0; i < 256; i++) {
		text[0] = (char)i;
		check(vocab_index(&v, i, text, 1) == 0);
	}
	for (int i = 0; i < 65536; i++) {
		text[0] = (char)i;
		text[1] = (char)(i >> 8);
		check(vocab_index(&v, 256 + i, text, 2) == 0);
	}
	for (int i = 0; i < 4096; i++) {
		text[0] = (char)(i >> 8);
		text[1] = (char)(i >> 4 & 15);
		text[2] = (char)(i & 15);
		check(vocab_index(&v, 70000 + i, text, 3) == 0);
	}
	for (int i = 0; i < 65536; i++) {
		const struct vocab_slot *s;

		text[0] = (char)i;
		text[1] = (char)(i >> 8);
		s = vocab_find(&v, text, 2);
		check(s && (int)s->id == 256 + i);
		s = vocab_find(&v, text, 1);
		check(s && (int)s->id == (i & 255));
	}
	ok_all("all single bytes and pairs of them are told apart");
	memset(text, 'z', sizeof(text));
	for (size_t len = 4; len <= 17; len++)
		check(!vocab_find(&v, text, len));
	ok_all("longer bytes are not found");
	vocab_release(&v);
}

TEST(refused)
{
	struct vocab v;

	vocab_init(&v);
	is_int(vocab_set(&v, -1, "a", 1), -EINVAL, "no id below 0");
	is_int(vocab_set(&v, VOCAB_MAX, "a", 1), -EINVAL, "none past the end");
	is_int(vocab_set(&v, INT64_MAX, "a", 1), -EINVAL, "none far past the end");
	is_int(vocab_set(&v, 0, "a", 0), -EINVAL, "no token without bytes");
	is_int(vocab_index(&v, VOCAB_MAX, "a", 1), -EINVAL, "nor in the index");
	ok(v.n == 0 && v.n_used == 0, "nothing went in");
	is_int(vocab_set(&v, 7, "abc", 3), 0, "an id");
	is_int(vocab_set(&v, 7, "de", 2), 0, "gets other bytes");
	ok(v.n == 8 && v.tokens[7].len == 2, "and has them");
	is_int(vocab_index(&v, 7, "abc", 3), 0, "it is found by others");
	is_int(vocab_index(&v, 7, "abc", 3), 0, "twice is once");
	is_int(vocab_index(&v, 8, "abc", 3), -EEXIST, "not for another id");
	vocab_release(&v);
}

TEST_MAIN()
