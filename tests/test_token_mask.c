/* protocol/grammar/token_mask: masks of a vocabulary compared with reading each token, in the states of random answers. */
#include "protocol/grammar/token_mask.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "protocol/grammar/constraint.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { TOKENS = 3000, MAX_BYTES = 64 << 20, END_TOKEN = 7, SPECIAL = 9 };

static struct {
	char bytes[48];
	size_t len;
} tokens[TOKENS];

static const char *bytes_of(const void *arg, int32_t id, size_t *len)
{
	*len = tokens[id].len;
	return id == END_TOKEN || id == SPECIAL ? NULL : tokens[id].bytes;
}

/* Single bytes, then pieces of JSON and of text, some of them twice, some cut within a code point. */
static struct token_trie *vocabulary(void)
{
	static const char *const pieces[] = {"a",	   "b",	   "the ",   "\"",	 "\\",
					     "\\n",	   "{",	   "}",	     "[",	 "]",
					     ",",	   ":",	   " ",	     "\n",	 "1",
					     "-",	   ".5",   "e",	     "\u00e9",	 "\u4e16",
					     "\U0001F600", "\xe4", "\xb8",   "\xf0\x9f", "true",
					     "null",	   "\": ", "\", \"", "xyz"};
	static const int32_t ends[] = {END_TOKEN};
	struct token_source source = {.n = TOKENS, .bytes = bytes_of, .ends = ends, .n_ends = 1};
	struct token_trie *t = NULL;

	for (int i = 0; i < TOKENS; i++) {
		if (i < 256) {
			tokens[i].bytes[0] = (char)i;
			tokens[i].len = 1;
		} else {
			tokens[i].len = random_pieces(pieces, ARRAY_SIZE(pieces), i % 9 ? 4 : 14,
						      tokens[i].bytes, sizeof(tokens[i].bytes));
		}
	}
	if (token_trie_new(&source, &t) < 0)
		abort();
	return t;
}

static void walk(const struct token_trie *t, const char *name, struct grammar *g)
{
	struct automaton *a = NULL, *naive = NULL;
	struct token_masks *m = NULL;
	const uint32_t *mask;
	struct err e;
	unsigned long masks = 0, bits = 0;

	/* Two masks are kept, so that they are also made again. */
	if (automaton_new(g, MAX_BYTES, NULL, &a) < 0 ||
	    automaton_new(g, MAX_BYTES, NULL, &naive) < 0 ||
	    token_masks_new(t, a, 2 * 4 * token_trie_words(t), &m) < 0)
		abort();
	for (int answer = 0; answer < 6; answer++) {
		uint32_t state = AUTOMATON_START, same = AUTOMATON_START;

		for (int step = 0; step < 25; step++) {
			uint32_t n = 0;
			int32_t chosen = -1;

			if (token_mask(m, state, &mask, &e) < 0)
				abort();
			masks++;
			for (int32_t id = 0; id < TOKENS; id++) {
				bool in = mask[id / 32] >> id % 32 & 1, want;
				uint32_t next = AUTOMATON_DEAD;

				if (id != END_TOKEN && id != SPECIAL && tokens[id].len)
					next = automaton_read(naive, same, tokens[id].bytes,
							      tokens[id].len);
				want = id == END_TOKEN ? automaton_may_end(naive, same)
						       : next != AUTOMATON_DEAD;
				check(in == want);
				if (in && id != END_TOKEN && !random_below(++n))
					chosen = id;
			}
			bits += n + automaton_may_end(naive, same);
			if (chosen < 0)
				break;
			state = automaton_read(a, state, tokens[chosen].bytes, tokens[chosen].len);
			same = automaton_read(naive, same, tokens[chosen].bytes,
					      tokens[chosen].len);
		}
	}
	if (token_mask(m, AUTOMATON_DEAD, &mask, &e) < 0)
		abort();
	for (size_t i = 0; i < token_trie_words(t); i++)
		check(!mask[i]);
	ok_all("%s: %lu masks with %lu bits", name, masks, bits);
	token_masks_free(m);
	automaton_free(a);
	automaton_free(naive);
	grammar_free(g);
}

TEST(masks)
{
	static const char *const schemas[] = {
		"{}",
		"{\"type\":\"string\",\"maxLength\":12}",
		"{\"type\":\"string\",\"minLength\":20,\"maxLength\":60}",
		"{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
		"{\"type\":\"string\",\"pattern\":\"^[^a]*b.{3}$\"}",
		"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"the \":{\"type\":\"string\"}},\"required\":[\"a\"],\"additionalProperties\":true}",
		"{\"const\":\"the xyz\"}",
	};
	static const char *const texts[] = {"root ::= [^\"\\\\]* | \"a\"{3}", "root ::= .*",
					    "root ::= \"a\" | \"the \" root \"b\"",
					    "root ::= [a-z \\u4e16]{0,40} [^a]?"};
	struct token_trie *t = vocabulary();

	for (size_t i = 0; i < ARRAY_SIZE(schemas); i++) {
		json_t *schema = json_loads(schemas[i], 0, NULL);
		struct grammar *g = NULL;

		if (constraint_json_schema(schema, &g, NULL) < 0)
			abort();
		json_decref(schema);
		walk(t, schemas[i], g);
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct grammar *g = NULL;

		if (constraint_gbnf(texts[i], strlen(texts[i]), &g, NULL) < 0)
			abort();
		walk(t, texts[i], g);
	}
	token_trie_free(t);
}

/* A mask of an extremely ambiguous grammar fails with a sentence, or is made with bounded work. */
TEST(work)
{
	static const char text[] =
		"root ::= [a-z\"\\\\ ]+ x*\nx ::= [a-z]* y* [a-z]*\ny ::= [a-z] x* [a-z] x* | [a-z ]+ \"\\\"\"";
	struct token_trie *t = vocabulary();
	struct token_masks *m = NULL;
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	const uint32_t *mask;
	struct err e = {0};
	uint64_t before;
	int r;

	r = constraint_gbnf(text, strlen(text), &g, &e);
	if (r < 0) {
		ok(e.text[0], "refused: %s", e.text);
	} else {
		if (automaton_new(g, MAX_BYTES, NULL, &a) < 0 || token_masks_new(t, a, 1, &m) < 0)
			abort();
		before = automaton_work(a);
		r = token_mask(m, AUTOMATON_START, &mask, &e);
		ok(r == 0 || e.text[0], "a mask, or a sentence: %s", e.text);
		ok(automaton_work(a) - before < UINT64_C(1) << 24, "bounded work");
	}
	token_masks_free(m);
	automaton_free(a);
	grammar_free(g);
	token_trie_free(t);
}

/* A state after each byte that no other text has, with many items, and no dead state: the work of a mask ends all the
 * same. */
TEST(work_without_dead_states)
{
	struct token_trie *t = vocabulary();
	struct token_masks *m = NULL;
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	const uint32_t *mask;
	struct err e = {0};
	struct buf text;
	uint64_t before;

	buf_init(&text, 1 << 20);
	buf_puts(&text, "root ::= b* (");
	for (unsigned i = 0; i < 256; i++)
		buf_printf(&text, "%sb* [\\x%02x-\\U0010ffff] b{10,500}", i ? " | " : "", i);
	buf_puts(&text, ")\nb ::= .");
	if (constraint_gbnf(text.data, text.len, &g, &e) < 0 ||
	    automaton_new(g, (size_t)1 << 30, NULL, &a) < 0 || token_masks_new(t, a, 1, &m) < 0)
		abort();
	before = automaton_work(a);
	is_int(token_mask(m, AUTOMATON_START, &mask, &e), -E2BIG, "the mask takes too much work");
	ok(automaton_work(a) - before < (1 << 22) + (1 << 20), "bounded work: %lu",
	   (unsigned long)(automaton_work(a) - before));
	buf_release(&text);
	token_masks_free(m);
	automaton_free(a);
	grammar_free(g);
	token_trie_free(t);
}

/* Each plain code point has many classes of bytes, and each of them costs much: the work ends within the code point. */
TEST(work_of_one_code_point)
{
	struct token_trie *t = vocabulary();
	struct token_masks *m = NULL;
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	const uint32_t *mask;
	struct err e = {0};
	struct buf text;
	uint64_t before;

	buf_init(&text, 1 << 20);
	buf_puts(&text, "root ::= \"\\n\" cut | any*\nany ::= ");
	for (unsigned i = 0; i < 400; i++)
		buf_printf(&text, "%s.{%u}", i ? " | " : "", 1 + i % 20);
	buf_puts(&text, "\ncut ::= ");
	for (unsigned i = 0x20; i < 0x7f; i++)
		buf_printf(&text, "%s[\\x%02x] .{%u}", i > 0x20 ? " | " : "", i, i);
	if (constraint_gbnf(text.data, text.len, &g, &e) < 0 ||
	    automaton_new(g, (size_t)1 << 30, NULL, &a) < 0 || token_masks_new(t, a, 1, &m) < 0)
		abort();
	before = automaton_work(a);
	is_int(token_mask(m, AUTOMATON_START, &mask, &e), -E2BIG, "the mask takes too much work");
	ok(automaton_work(a) - before < (1 << 22) + (1 << 20), "bounded work: %lu",
	   (unsigned long)(automaton_work(a) - before));
	buf_release(&text);
	token_masks_free(m);
	automaton_free(a);
	grammar_free(g);
	token_trie_free(t);
}

TEST_MAIN()
