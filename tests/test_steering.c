/* protocol/output/steering: masks of constraints, bad words and allowed tokens, over the tokenizer of lexis. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/constraint.h"
#include "protocol/output/reasoning.h"
#include "protocol/output/steering.h"
#include "scheduler/plan.h"
#include "tests/model_text.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { MAX_TOKENS = 400 };

static struct tokenizer *tokenizer;
static struct token_trie *trie;
static uint32_t vocab;
static int32_t ends[1];

static struct grammar *regex(const char *pattern)
{
	struct grammar *g = NULL;

	if (constraint_regex(pattern, strlen(pattern), &g, NULL) < 0)
		abort();
	return g;
}

static struct steering_config config_of(struct grammar *g)
{
	return (struct steering_config){.tokenizer = tokenizer,
					.trie = trie,
					.vocab_size = vocab,
					.n_choices = 1,
					.grammar = g,
					.automaton_bytes = STEERING_AUTOMATON_BYTES,
					.ends = ends,
					.n_ends = 1};
}

static struct steering *make(const struct steering_config *c)
{
	struct steering *s = NULL;

	if (steering_new(c, &s, NULL) < 0)
		abort();
	return s;
}

static const uint32_t *mask_of(struct steering *s, uint32_t choice)
{
	const uint32_t *mask = NULL;
	struct err e = {0};

	if (steering_mask(s, choice, &mask, &e) < 0)
		printf("# %s\n", e.text);
	return mask;
}

static bool allows(const uint32_t *mask, int32_t id)
{
	return !mask || mask[id / 32] >> id % 32 & 1;
}

static bool allows_end(struct steering *s)
{
	return allows(mask_of(s, 0), ends[0]);
}

static uint32_t count(const uint32_t *mask)
{
	uint32_t n = 0;

	for (size_t i = 0; i < PLAN_MASK_WORDS(vocab); i++)
		n += (uint32_t)__builtin_popcount(mask[i]);
	return n;
}

/* Encodes a text, and lets a choice take its tokens, each of which must be in the mask. */
static bool write_text(struct steering *s, uint32_t choice, const char *text)
{
	struct ids ids = {0};
	bool good = true;

	if (tokenizer_encode(tokenizer, text, strlen(text), true, NULL, &ids) < 0)
		abort();
	for (size_t i = 0; i < ids.len; i++) {
		good &= allows(mask_of(s, choice), ids.v[i]);
		good &= steering_take(s, choice, ids.v[i], NULL) == 0;
	}
	ids_release(&ids);
	return good;
}

/* The only token of a text. */
static int32_t token_of(const char *text)
{
	struct ids ids = {0};
	int32_t id;

	if (tokenizer_encode(tokenizer, text, strlen(text), true, NULL, &ids) < 0 || ids.len != 1)
		abort();
	id = ids.v[0];
	ids_release(&ids);
	return id;
}

TEST(nothing)
{
	struct steering_config c = config_of(NULL);
	struct steering *s = make(&c);

	ok(!steering_depends(s) && !mask_of(s, 0), "without rules there is no mask");
	steering_free(s);
	steering_free(NULL);
}

TEST(grammar)
{
	struct steering_config c = config_of(regex("(a|bow) [0-9]{2}"));
	struct steering *s = make(&c);
	const uint32_t *mask = mask_of(s, 0);

	ok(steering_depends(s) && allows(mask, token_of("a")) && allows(mask, token_of("b")) &&
		   !allows(mask, token_of("c")) && !allows_end(s),
	   "a mask has the tokens that lead on");
	ok(count(mask) < 20, "and no others");
	ok(write_text(s, 0, "bow 1") && !allows_end(s), "the text may not end here");
	ok(write_text(s, 0, "7"), "but here");
	is_int(count(mask_of(s, 0)), 1, "where nothing else may come");
	ok(allows_end(s) && steering_take(s, 0, ends[0], NULL) == 0, "than the end");
	steering_free(s);
}

TEST(ends)
{
	const int32_t stops[] = {7};
	struct steering_config c = config_of(regex("[0-9]{1,3}"));
	struct steering_word words[10];
	int32_t behind[10][2];
	struct steering *s;

	c.stops = stops;
	c.n_stops = 1;
	s = make(&c);
	ok(!allows_end(s) && !allows(mask_of(s, 0), 7), "no end token where the text may not end");
	ok(write_text(s, 0, "1") && allows_end(s) && allows(mask_of(s, 0), 7),
	   "where it may: the model's and the request's");
	steering_free(s);

	c.grammar = regex("[0-9]{1,3}");
	c.ends_last = true;
	s = make(&c);
	ok(write_text(s, 0, "12") && !allows_end(s) && write_text(s, 0, "3") && allows_end(s),
	   "or only where nothing else may come");
	steering_free(s);

	for (int i = 0; i < 10; i++) {
		behind[i][0] = token_of("a");
		behind[i][1] = token_of((char[]){(char)('0' + i), 0});
		words[i] = (struct steering_word){behind[i], 2};
	}
	c.grammar = regex("a[0-9]?");
	c.words = words;
	c.n_words = 10;
	s = make(&c);
	ok(write_text(s, 0, "a") && count(mask_of(s, 0)) == 2 && allows_end(s) &&
		   allows(mask_of(s, 0), 7),
	   "because it would be a bad word");
	steering_free(s);
}

TEST(thinking)
{
	struct steering_config c = config_of(regex("yes|no"));
	struct steering *s;

	c.thinking = true;
	s = make(&c);
	ok(count(mask_of(s, 0)) == vocab - 1 && !allows_end(s),
	   "within reasoning any token may come but the end");
	ok(write_text(s, 0, "Is it <b>so</b>? </thin </think"), "also what is nearly a tag");
	ok(count(mask_of(s, 0)) == vocab - 1, "which is none");
	ok(write_text(s, 0, ">") && !allows(mask_of(s, 0), token_of("a")) &&
		   allows(mask_of(s, 0), token_of("\n")),
	   "behind the tag the constraint begins, with line ends before it");
	ok(write_text(s, 0, "\n") && write_text(s, 0, "\n") &&
		   !allows(mask_of(s, 0), token_of("\n")),
	   "two at most");
	ok(write_text(s, 0, "no") && count(mask_of(s, 0)) == 1 && allows_end(s), "then the text");
	steering_free(s);

	c.grammar = regex("yes|no");
	s = make(&c);
	ok(write_text(s, 0, "x</think>") && write_text(s, 0, "yes") && allows_end(s),
	   "a tag that is one token, and no line end");
	steering_free(s);

	c.grammar = regex("\\n?yes");
	s = make(&c);
	ok(write_text(s, 0, "x</think>") && write_text(s, 0, "\n") && write_text(s, 0, "yes") &&
		   allows_end(s),
	   "a line end that the constraint has itself");
	steering_free(s);
}

/* The content of an answer, without its reasoning, is a text of the grammar: also of one whose texts begin with line
 * ends. */
TEST(line_ends)
{
	static const char *const patterns[] = {"\\n{1,2}(yes|no)", "\\n{0,4}a?", "[ab]+",
					       "(\\n|\\r|b){1,6}", "\\n\\n\\nc"};
	static const char *const tags[] = {"</think>", "</think>\n", "</think>\n\n"};

	for (int i = 0; i < 300; i++) {
		const char *pattern = patterns[i % ARRAY_SIZE(patterns)];
		const char *tag = tags[random_below(ARRAY_SIZE(tags))];
		struct steering_config c = config_of(regex(pattern));
		struct grammar *g = regex(pattern);
		struct buf thought, content;
		struct automaton *a = NULL;
		struct reasoning split;
		struct steering *s;
		int n = 0;

		c.thinking = true;
		s = make(&c);
		buf_init(&thought, 1 << 10);
		buf_init(&content, 1 << 20);
		reasoning_init(&split, true, true);
		if (automaton_new(g, 1 << 24, NULL, &a) < 0)
			abort();
		check(write_text(s, 0, tag));
		reasoning_push(&split, tag, strlen(tag), &thought, &content);
		while (n++ < 40 && (!allows_end(s) || random_below(4))) {
			const uint32_t *mask = mask_of(s, 0);
			int32_t id =
				random_below(3) ? token_of("\n") : (int32_t)random_below(vocab);
			const char *text;
			size_t len;

			if (allows_end(s) && count(mask) == 1)
				break;
			while (id == ends[0] || !allows(mask, id))
				id = (id + 1) % (int32_t)vocab;
			check(steering_take(s, 0, id, NULL) == 0);
			text = tokenizer_bytes(tokenizer, id, &len);
			reasoning_push(&split, text, len, &thought, &content);
		}
		reasoning_finish(&split, &thought, &content);
		check(!thought.len);
		check(automaton_may_end(a, automaton_read(a, AUTOMATON_START, buf_str(&content),
							  content.len)) == allows_end(s));
		check(allows_end(s) || n > 40);
		steering_free(s);
		automaton_free(a);
		grammar_free(g);
		buf_release(&thought);
		buf_release(&content);
	}
	ok_all("what the grammar reads is the content");
}

TEST(tokens)
{
	const int32_t allowed[] = {40, 50, 60, (int32_t)vocab - 1}, one[] = {50}, two[] = {40, 60},
		      three[] = {40, 40, 40};
	const struct steering_word words[] = {{one, 1}, {two, 2}, {three, 3}};
	struct steering_config c = config_of(NULL);
	struct steering *s;

	c.allowed = allowed;
	c.n_allowed = 4;
	s = make(&c);
	ok(!steering_depends(s) && count(mask_of(s, 0)) == 4 && allows(mask_of(s, 0), 60),
	   "allowed tokens are a mask that does not change");
	steering_free(s);

	c.words = words;
	c.n_words = 1;
	s = make(&c);
	ok(!steering_depends(s) && count(mask_of(s, 0)) == 3 && !allows(mask_of(s, 0), 50),
	   "less a bad word of one token");
	steering_free(s);

	c.n_words = 3;
	c.n_choices = 2;
	s = make(&c);
	ok(steering_depends(s) && allows(mask_of(s, 0), 60), "a longer one depends on the text");
	check(steering_take(s, 0, 40, NULL) == 0);
	ok(!allows(mask_of(s, 0), 60) && allows(mask_of(s, 0), 40) && allows(mask_of(s, 1), 60),
	   "of the choice");
	check(steering_take(s, 0, 40, NULL) == 0);
	ok(!allows(mask_of(s, 0), 60) && !allows(mask_of(s, 0), 40), "two words end here");
	check(steering_take(s, 0, (int32_t)vocab - 1, NULL) == 0);
	ok(count(mask_of(s, 0)) == 3, "and none here");
	steering_free(s);

	c.allowed = NULL;
	c.n_allowed = 0;
	s = make(&c);
	ok(count(mask_of(s, 0)) == vocab - 1, "without allowed tokens all others may come");
	steering_free(s);
}

/* Without a grammar: allowed tokens of which nothing is left. */
TEST(nothing_left)
{
	struct steering_config c = config_of(NULL);
	int32_t a = token_of("a"), both[] = {a, ends[0]};
	const struct steering_word word = {&a, 1};
	const uint32_t *mask;
	struct steering *s;

	c.allowed = both;
	c.n_allowed = 1;
	c.words = &word;
	c.n_words = 1;
	s = make(&c);
	ok(steering_mask(s, 0, &mask, NULL) == -PROBLEM_CONSTRAINT,
	   "the only allowed token is a bad word");
	steering_free(s);

	c.n_allowed = 2;
	s = make(&c);
	ok(count(mask_of(s, 0)) == 1 && allows_end(s), "an end token alone is left");
	steering_free(s);
}

/* A tokenizer with more tokens than the model. */
TEST(beyond_the_model)
{
	struct steering_config c = config_of(NULL);
	int32_t a = token_of("a"), far[] = {a, (int32_t)vocab - 1};
	const struct steering_word words[] = {{far + 1, 1}, {far, 2}};
	struct steering *s;

	c.vocab_size = 64;
	c.words = words;
	c.n_words = 2;
	s = make(&c);
	check(mask_of(s, 0) && steering_take(s, 0, a, NULL) == 0);
	ok(mask_of(s, 0)[0] == UINT32_MAX && mask_of(s, 0)[1] == UINT32_MAX,
	   "bad words that the model cannot write clear nothing");
	steering_free(s);
}

TEST(failures)
{
	struct steering_config c = config_of(regex("yes"));
	const int32_t allowed[] = {token_of("a")};
	const uint32_t *mask;
	struct steering *s;
	struct err e = {0};

	c.allowed = allowed;
	c.n_allowed = 1;
	s = make(&c);
	ok(steering_mask(s, 0, &mask, &e) == -PROBLEM_CONSTRAINT && strstr(e.text, "no token"),
	   "no token leads on: %s", e.text);
	steering_free(s);

	c = config_of(regex("([a-z]{1,40} ){1,40}"));
	c.automaton_bytes = 1 << 10;
	s = NULL;
	e = (struct err){0};
	ok(steering_new(&c, &s, &e) == -PROBLEM_CONSTRAINT ||
		   steering_mask(s, 0, &mask, &e) == -PROBLEM_CONSTRAINT,
	   "too little memory: %s", e.text);
	steering_free(s);

	c = config_of(regex("yes"));
	c.thinking = true;
	s = make(&c);
	check(steering_take(s, 0, token_of("</think>"), NULL) == 0);
	check(steering_take(s, 0, token_of("a"), NULL) == 0);
	ok(steering_mask(s, 0, &mask, &e) == -PROBLEM_CONSTRAINT, "a token that was not allowed");
	steering_free(s);
}

/* Objects that share bounds: of two owners, the second at the index 1. */
static _Atomic uint64_t bytes_of_all, bytes_of[2];

static struct steering_config counted(int owner, uint64_t most)
{
	struct steering_config c = config_of(NULL);

	c.bounds = (struct account_bounds){&bytes_of_all, &bytes_of[owner], most};
	return c;
}

/* Lets the choices of two objects take the same n random tokens each, and checks that their masks are equal. After each
 * token the others take all memory that is left, up to `most`; NULL: there are no others. Returns the number of tokens
 * before an error of the first, which is in *e then. */
static int take_random(struct steering *s, struct steering *twin, uint32_t choices, int n,
		       struct account *others, uint64_t most, struct err *e)
{
	const uint32_t *mask;

	for (int i = 0; i < n * (int)choices; i++) {
		int32_t id = (int32_t)random_below(vocab);
		uint32_t k = (uint32_t)i % choices;

		if (others && bytes_of_all < most)
			account_add(others, most - bytes_of_all);
		if (steering_mask(s, k, &mask, e) < 0)
			return i;
		check(!memcmp(mask, mask_of(twin, k), PLAN_MASK_WORDS(vocab) * sizeof(*mask)));
		while (!allows(mask, id) || id == ends[0])
			id = (id + 1) % (int32_t)vocab;
		if (steering_take(s, k, id, e) < 0)
			return i;
		check(steering_take(twin, k, id, NULL) == 0);
	}
	return n;
}

TEST(admission)
{
	enum { MOST = 8 << 20 };
	struct steering_config c = counted(0, MOST), d = counted(1, MOST);
	struct steering *s[64], *other;
	struct err e = {0};
	int n = 0, r = 0;

	while (n < 64) {
		c.grammar = regex("[a-z ]{4,90}");
		r = steering_new(&c, &s[n], &e);
		if (r < 0)
			break;
		n++;
	}
	ok(r == -PROBLEM_CONSTRAINT_MEMORY && strstr(e.text, "this client's"),
	   "an owner is refused: %s", e.text);
	ok(n > 4 && n < 9 && bytes_of[0] <= MOST / 2, "at half of the memory: %d objects", n);
	d.grammar = regex("[a-z ]{4,90}");
	ok(steering_new(&d, &other, &e) == 0, "another owner is not");
	steering_free(other);
	while (n)
		steering_free(s[--n]);
	is_int((long long)bytes_of_all, 0, "all memory is given back");

	c.grammar = regex("[a-z]{2,60000} [a-z]{2,50000}");
	is_int(steering_new(&c, &other, &e), -PROBLEM_CONSTRAINT,
	       "a grammar that never fits is the request's fault");
	is_int((long long)bytes_of_all, 0, "nothing was counted");
}

/* Draws random tokens from the masks of three choices, and checks each mask against a second automaton without a bound:
 * of some tokens whether they are in it, and that the text stays one that the grammar begins with. A second steering
 * must give the same masks. Its automaton has at most so many bytes and forgets at this bound, at least
 * least_forgotten times: until then its memory only grows. An end token is drawn only where nothing else may come.
 * Returns the bytes of the steering without a bound. */
static size_t walk(const char *name, struct grammar *(*grammar)(void), size_t bytes,
		   uint32_t least_forgotten)
{
	enum { CHOICES = 3 };
	_Atomic uint64_t whole_bytes = 0, small_bytes = 0, all = 0;
	struct steering_config c = config_of(grammar()), small_c = config_of(grammar());
	struct steering *s, *small;
	struct automaton *naive = NULL;
	uint32_t states[CHOICES], tokens = 0, ended = 0, forgotten = 0;
	size_t before = 0, unbounded;

	c.n_choices = small_c.n_choices = CHOICES;
	c.automaton_bytes = (size_t)1 << 30;
	small_c.automaton_bytes = bytes;
	c.bounds = (struct account_bounds){&all, &whole_bytes, UINT64_MAX};
	small_c.bounds = (struct account_bounds){&all, &small_bytes, UINT64_MAX};
	s = make(&c);
	small = make(&small_c);
	if (automaton_new(c.grammar, (size_t)1 << 30, NULL, &naive) < 0)
		abort();
	for (int i = 0; i < CHOICES; i++)
		states[i] = AUTOMATON_START;
	for (int k = 0; k < MAX_TOKENS * CHOICES && ended < CHOICES; k++) {
		uint32_t i = (uint32_t)k % CHOICES;
		const uint32_t *mask, *other;
		int32_t id = (int32_t)random_below(vocab);
		const char *text;
		size_t len;

		if (states[i] == AUTOMATON_DEAD)
			continue;
		mask = mask_of(s, i);
		other = mask_of(small, i);
		if (!mask || !other)
			abort();
		forgotten += small_bytes < before;
		before = small_bytes;
		check(!memcmp(mask, other, PLAN_MASK_WORDS(vocab) * sizeof(*mask)));
		check(allows(mask, ends[0]) == automaton_may_end(naive, states[i]));
		for (int t = 0; t < 50; t++) {
			int32_t any = (int32_t)random_below(vocab);

			text = tokenizer_bytes(tokenizer, any, &len);
			if (any != ends[0])
				check(allows(mask, any) ==
				      (len && !tokenizer_is_special(tokenizer, any) &&
				       automaton_read(naive, states[i], text, len) !=
					       AUTOMATON_DEAD));
		}
		while (!allows(mask, id) || (id == ends[0] && count(mask) > 1))
			id = (id + 1) % (int32_t)vocab;
		check(steering_take(s, i, id, NULL) == 0 && steering_take(small, i, id, NULL) == 0);
		forgotten += small_bytes < before;
		before = small_bytes;
		tokens++;
		if (id == ends[0]) {
			states[i] = AUTOMATON_DEAD;
			ended++;
			continue;
		}
		text = tokenizer_bytes(tokenizer, id, &len);
		states[i] = automaton_read(naive, states[i], text, len);
		check(states[i] != AUTOMATON_DEAD);
	}
	check(tokens > 20 && forgotten >= least_forgotten);
	unbounded = whole_bytes;
	ok_all("%s: %u tokens, %u times forgotten at %zu KiB, else %zu KiB", name, tokens,
	       forgotten, bytes >> 10, unbounded >> 10);
	automaton_free(naive);
	steering_free(s);
	steering_free(small);
	return unbounded;
}

static struct grammar *any_object(void)
{
	struct grammar *g = NULL;

	if (constraint_json_object(&g, NULL) < 0)
		abort();
	return g;
}

static struct grammar *words(void)
{
	return regex("((a[a-z]{1,40}|b[a-z]{1,40}|c[a-z]{1,40}|d[a-z]{1,40}|[e-i][a-z]{1,40}|"
		     "[k-o][a-z]{1,40}|[p-z][a-z]{1,40})[ ,]){200}");
}

/* A state for each text of 12 letters. */
static struct grammar *hungry(void)
{
	return regex("[a-z ]*[a-m][a-z ]{12}");
}

/* While others take all memory, and whatever is given back, masks are dropped, and automata forget when they would grow.
 * The answers go on all the same. */
TEST(pressure)
{
	enum { MOST = 24 << 20, OBJECTS = 3, TOKENS = 200 };
	const struct account_bounds bounds = {&bytes_of_all, &bytes_of[1], MOST};
	struct steering_config c = counted(0, MOST), free_c = config_of(NULL);
	struct steering *s[OBJECTS], *twins[OBJECTS];
	struct account others = {0};
	struct err e = {0};
	uint64_t before;

	for (int i = 0; i < OBJECTS; i++) {
		c.grammar = hungry();
		free_c.grammar = hungry();
		s[i] = make(&c);
		twins[i] = make(&free_c);
		check(take_random(s[i], twins[i], 1, TOKENS, NULL, 0, &e) == TOKENS);
	}
	before = bytes_of_all;
	ok(before > OBJECTS * 2 * STEERING_RESERVE, "memory is counted as it grows: %lu bytes",
	   (unsigned long)before);
	check(account_open(&others, &bounds, 0) == 0);
	account_add(&others, MOST * 3 / 4 + 1 - before);
	for (int i = 0; i < OBJECTS; i++)
		steering_trim(s[i]);
	ok(bytes_of[0] < before - OBJECTS * (TOKENS / 4) * PLAN_MASK_WORDS(vocab) * 4,
	   "masks are dropped when it is tight: %lu bytes", (unsigned long)bytes_of[0]);
	before = bytes_of[0];
	for (int i = 0; i < OBJECTS; i++)
		is_int(take_random(s[i], twins[i], 1, TOKENS, &others, MOST, &e), TOKENS,
		       "without any more, answer %d goes on", i);
	ok(bytes_of[0] < before + OBJECTS * 4096, "in the same memory: %lu bytes",
	   (unsigned long)bytes_of[0]);
	for (int i = 0; i < OBJECTS; i++) {
		steering_free(s[i]);
		steering_free(twins[i]);
	}
	ok_all("with the masks of objects without bounds");

	/* Long texts, and several choices: the states of one text alone do not fit into the reserve. */
	for (uint32_t choices = 1; choices <= 4; choices += 3) {
		const char *pattern =
			choices == 1 ? "[a-z ]{1,60000}" : "([a-z ]{1,3000}[.,;]){1,40}";

		c.grammar = regex(pattern);
		free_c.grammar = regex(pattern);
		c.n_choices = free_c.n_choices = choices;
		account_give(&others, 8 << 20);
		s[0] = make(&c);
		twins[0] = make(&free_c);
		is_int(take_random(s[0], twins[0], choices, 2000 / (int)choices, &others, MOST, &e),
		       2000 / (int)choices, "long answers of %u choices go on", choices);
		steering_free(s[0]);
		steering_free(twins[0]);
	}
	account_close(&others);
	is_int((long long)bytes_of_all, 0, "all memory is given back");
}

/* A state is the set of those of the last 24 letters that were in [a-d], so nearly every text has a state of its own,
 * and the states that a mask has looked at are seldom needed again. */
static struct grammar *letters(void)
{
	return regex("[a-h]*[a-d][a-h]{24}");
}

/* Objects of two owners with two grammars come and go, and share automata that are full again and again, and for a while
 * without memory. Each has the masks of a twin that shares nothing. */
TEST(shared)
{
	enum { MOST = 24 << 20, PLACES = 8, ROUNDS = 400 };
	const struct account_bounds bounds = {&bytes_of_all, &bytes_of[1], MOST};
	struct steering *s[PLACES] = {NULL}, *twins[PLACES] = {NULL};
	struct account others = {0};
	struct list matchers;
	struct err e = {0};

	list_init(&matchers);
	check(account_open(&others, &bounds, 0) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t i = random_below(PLACES), owner = random_below(4) == 0, choices;
		struct steering_config c = counted((int)owner, MOST), free_c = config_of(NULL);
		bool tight = round / 50 % 4 == 3;

		if (!tight && others.used)
			account_give(&others, others.used);
		choices = 1 + i % 2;
		if (s[i] && !random_below(5)) {
			steering_free(s[i]);
			steering_free(twins[i]);
			s[i] = twins[i] = NULL;
		}
		if (!s[i] && tight)
			continue;
		if (!s[i]) {
			bool all_states = random_below(2);

			c.grammar = all_states ? hungry() : letters();
			free_c.grammar = all_states ? hungry() : letters();
			c.owner = owner;
			c.automaton_bytes = 4 << 20;
			c.n_choices = free_c.n_choices = choices;
			c.thinking = free_c.thinking = !random_below(3);
			s[i] = make(&c);
			twins[i] = make(&free_c);
			steering_share(s[i], &matchers);
		}
		check(take_random(s[i], twins[i], choices, 40, tight ? &others : NULL, MOST, &e) ==
		      40);
	}
	for (uint32_t i = 0; i < PLACES; i++) {
		steering_free(s[i]);
		steering_free(twins[i]);
	}
	account_close(&others);
	ok_all("objects that share automata have the masks of others");
	ok(list_empty(&matchers) && !bytes_of_all && !bytes_of[0] && !bytes_of[1],
	   "nothing is left");
}

TEST(random)
{
	size_t unbounded = 0;

	for (int i = 0; i < 3; i++) {
		walk("words", words, 1600 << 10, 1);
		walk("any object", any_object, 6 << 20, 0);
		/* It may forget once in 64 tokens of each choice, a sixth of the walk. */
		unbounded = walk("letters", letters,
				 i ? unbounded * 3 / 10 : STEERING_AUTOMATON_BYTES, i ? 3 : 0);
	}
}

int main(void)
{
	struct err e = {0};

	if (model_tokenizer("models/lexis", &tokenizer, &e) < 0) {
		printf("# %s\n", e.text);
		return 2;
	}
	vocab = (uint32_t)tokenizer_size(tokenizer) +
		5; /* models have more tokens than their tokenizers */
	ends[0] = tokenizer_id(tokenizer, "<|im_end|>");
	if (steering_trie(tokenizer, NULL, 0, &trie) < 0)
		return 2;
	run_tests();
	token_trie_free(trie);
	tokenizer_free(tokenizer);
	return done();
}
