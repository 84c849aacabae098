/* A request's answer does not depend on how much of its prompt the prefix cache had: a hit gives the answer of a miss.
 *
 *     test_hits MODEL float32|bfloat16[,int8] [PROMPTS]      MODEL: models/lexis, or a file made of it; with ",int8" the
 *     KV cache is in int8
 *
 * Forty prompts, or PROMPTS (200 at most), of 1 to 3,000 tokens, walks through a random tree of beginnings, each run
 * cold and alone first. Then all of them use the cache, two plans out, arriving at random steps beside one another, with two prefill
 * budgets and renamed pages and slots, then with a third in so little memory that pages are evicted. Thirty-two
 * requests in memory for two are retracted and come back: with four caches, or with two if PROMPTS is below forty. Some
 * of the prompts want a vector of their hidden states, or the log-probabilities of their second half, in place of an
 * answer. Prefilled prefixes give every bit. Decoded ones give nearly equal numbers; conversations that continue from
 * their answers show how near.
 *
 * The last two are compared with the same requests together, cold and in plenty of memory. That a batch gives the bits
 * of each request alone is shown by test_invariance.c, and to compute them alone would take half of the test's time. */
#include <stdlib.h>

#include "base/macros.h"
#include "tests/golden.h"
#include "tests/tap.h"

enum {
	PROMPTS = 40,
	PROMPTS_MAX = 200,
	LONGEST = 3000,
	SEATS = 32,
	PREFILL_MAX = 1024,
	PAGE = 64,
	ANSWER_MAX = 160,
	CROWD = 32,	 /* requests that share a pool of pages for two */
	CROWD_PAGES = 9, /* pages of the longest of them */
	CHATS = 4,
	TURNS = 6,
	TURN_STEPS = 1000, /* more steps than a turn of all chats takes */
	CHAT_LONGEST = 4000,
};

static uint64_t random_state = 1;
static uint32_t n_prompts = PROMPTS;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((random_state >> 33) % n);
}

static void random_tokens(int32_t *out, uint32_t n, uint32_t vocab)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = (int32_t)random_below(vocab);
}

/* Returns a length in 1 .. most. Short ones are likelier: there are long prompts, and time for many. */
static uint32_t random_length(uint32_t most)
{
	uint32_t bound = 4;

	while (bound < most && random_below(7))
		bound *= 2;
	return 1 + random_below(MIN(bound, most));
}

/* ---- hits of a run ---- */

struct found {
	uint32_t requests;
	uint64_t tokens, of;
};

static struct found found_by(const struct run *runs, size_t n)
{
	struct found f = {0};

	for (size_t i = 0; i < n; i++) {
		f.requests += runs[i].hit.n_cached > 0;
		f.tokens += runs[i].hit.n_cached;
		f.of += runs[i].n_prompt;
	}
	return f;
}

static bool run_alone(struct engine *g, const struct engine_options *o, struct run *runs, size_t n)
{
	struct run_setup setup = run_setup_of(o);
	bool good = true;

	for (size_t i = 0; i < n && good; i++) {
		runs[i].arrival = 0;
		good = run_all(g, &setup, &runs[i], 1);
	}
	return good;
}

/* ---- random prompts ---- */

/* Makes prompt i: mostly with the beginning of an earlier one, or all of it, and maybe with tokens of its own. */
static void make_prompt(int32_t (*prompts)[LONGEST], uint32_t *lengths, uint32_t i, uint32_t vocab)
{
	uint32_t shared = 0, n = random_length(LONGEST);

	if (i && random_below(8)) {
		/* The longer of two is taken, so that long ones are taken more often. */
		uint32_t a = random_below(i), b = random_below(i);
		uint32_t from = lengths[a] > lengths[b] ? a : b;

		shared = random_below(3) ? random_below(lengths[from] + 1) : lengths[from];
		memcpy(prompts[i], prompts[from], shared * sizeof(**prompts));
		if (random_below(3))
			n = MIN(shared + random_length(400), (uint32_t)LONGEST);
		else if (!random_below(3))
			n = shared; /* the same again, or only its beginning */
	} else if (i == 0) {
		n = LONGEST;
	}
	shared = MIN(shared, n);
	lengths[i] = MAX(n, 1u);
	random_tokens(prompts[i] + shared, lengths[i] - shared, vocab);
}

static void make_requests(struct run *runs, int32_t (*prompts)[LONGEST], uint32_t vocab)
{
	uint32_t lengths[PROMPTS_MAX];

	for (uint32_t i = 0; i < n_prompts; i++) {
		make_prompt(prompts, lengths, i, vocab);
		runs[i] = run_of(prompts[i], lengths[i],
				 random_below(9) ? 1 + random_below(6)
						 : 100 + random_below(ANSWER_MAX - 100));
		runs[i].n_choices = random_below(10) ? 1 : 2;
		if (runs[i].n_choices == 1 && i % 5 > 1) {
			runs[i].max_tokens = 0;
			runs[i].pooling = i % 5 == 2 ? POOLING_LAST : POOLING_NONE;
			runs[i].pooling = i % 5 == 3 ? POOLING_MEAN : runs[i].pooling;
			runs[i].prompt_logprobs = i % 5 == 4;
			runs[i].first_score = i % 5 == 4 ? lengths[i] / 2 : 0;
			continue;
		}
		if (i % 3 && runs[i].n_choices == 1)
			continue;
		runs[i].sampling.temperature = 1;
		runs[i].sampling.seed = 7 + i;
		if (i % 2)
			runs[i].sampling.repetition_penalty = 1.2f;
	}
}

/* Every request with the cache has, bit by bit, the answer that it had alone. */
static void test_budget(struct engine *g, struct run_setup setup, const struct run *alone,
			const char *dtype)
{
	struct run *runs = calloc(n_prompts, sizeof(*runs));
	struct scheduler_stats stats = {0};
	struct found f;
	uint32_t step = 0;

	memcpy(runs, alone, n_prompts * sizeof(*runs));
	for (uint32_t i = 0; i < n_prompts; i++) {
		/* Some arrive at once, some a few steps later; where memory is little, all at once. */
		step += setup.n_pages || random_below(3) ? 0
							 : random_below(1 + 4096 / setup.budget);
		runs[i].arrival = step;
	}
	setup.cache = true;
	setup.stats = &stats;
	check(run_all(g, &setup, runs, n_prompts));
	for (uint32_t i = 0; i < n_prompts; i++)
		check(run_same(&alone[i], &runs[i], "cold and alone, and after a hit"));
	f = found_by(runs, n_prompts);
	check(f.requests >= n_prompts / 3);
	check(f.tokens * 5 >= f.of * (setup.n_pages ? 1 : 2));
	check(!setup.n_pages || stats.cache.evicted_pages > 0);
	ok_all("%s, budget %u%s%s: %u of %u requests hit, %llu of %llu tokens, %llu retractions; the bits of each "
	       "alone",
	       dtype, setup.budget, setup.refuse_decoded ? ", only prefilled prefixes" : "",
	       setup.n_pages ? ", little memory" : "", f.requests, n_prompts,
	       (unsigned long long)f.tokens, (unsigned long long)f.of,
	       (unsigned long long)stats.retractions);
	free(runs);
}

static void test_prompts(struct engine *g, const struct engine_options *o, const char *dtype)
{
	static const uint32_t budgets[] = {64, PREFILL_MAX};
	int32_t(*prompts)[LONGEST] = calloc(n_prompts, sizeof(*prompts));
	struct run *alone = calloc(n_prompts, sizeof(*alone));
	struct run_setup setup = run_setup_of(o);

	make_requests(alone, prompts, engine_info(g)->model.vocab_size);
	ok(run_alone(g, o, alone, n_prompts), "%s: %u prompts, each cold and alone", dtype,
	   n_prompts);
	setup.refuse_decoded = true;
	setup.shuffle = 3;
	for (size_t i = 0; i < ARRAY_SIZE(budgets); i++) {
		setup.budget = budgets[i];
		test_budget(g, setup, alone, dtype);
	}
	/* Decoded pages are remembered, too, and none of these prompts goes on with one; a retracted request does. */
	setup.refuse_decoded = false;
	setup.budget = 256;
	setup.n_pages = CEIL_DIV(LONGEST + 2 * ANSWER_MAX, PAGE);
	setup.n_slots = SEATS + 24;
	test_budget(g, setup, alone, dtype);
	free(alone);
	free(prompts);
}

/* ---- a pool for two ---- */

/* Runs requests all at once without a cache. Returns whether none was retracted. */
static bool run_cold(struct engine *g, const struct engine_options *o, struct run *runs, size_t n)
{
	struct run_setup setup = run_setup_of(o);
	struct scheduler_stats stats = {0};

	setup.stats = &stats;
	return run_all(g, &setup, runs, n) && !stats.retractions;
}

static void test_crowd(struct engine *g, struct run_setup setup, const struct run *cold,
		       const char *name)
{
	struct run runs[CROWD];
	struct scheduler_stats stats = {0};
	struct found f;

	memcpy(runs, cold, CROWD * sizeof(*runs));
	setup.stats = &stats;
	check(run_all(g, &setup, runs, CROWD));
	for (uint32_t i = 0; i < CROWD; i++)
		check(run_same(&cold[i], &runs[i], "in plenty of memory, and in the pool for two"));
	check(stats.retractions > 0);
	f = found_by(runs, CROWD);
	check(setup.cache || !f.requests);
	check(setup.n_slots < 2 * SEATS || f.requests > 1);
	ok_all("%u requests in memory for two, %s: %u hit, %llu retractions, %llu tokens replayed, and the bits of plenty",
	       CROWD, name, f.requests, (unsigned long long)stats.retractions,
	       (unsigned long long)stats.replayed_tokens);
}

static void test_tight(struct engine *g, const struct engine_options *o)
{
	int32_t(*prompts)[CROWD_PAGES * PAGE] = calloc(CROWD, sizeof(*prompts));
	struct run_setup setup = run_setup_of(o);
	struct run cold[CROWD];

	for (uint32_t i = 0; i < CROWD; i++) {
		uint32_t n = i % 4 ? 1 + random_below(62) : 330 + random_below(60);

		random_tokens(prompts[i], n, engine_info(g)->model.vocab_size);
		/* The long prompts begin alike. */
		if (i % 4 == 0)
			memcpy(prompts[i], prompts[0], 4 * PAGE * sizeof(**prompts));
		cold[i] = run_of(prompts[i], n,
				 i % 4 == 1 ? 1 + random_below(20) : 130 + random_below(50));
	}
	check(run_cold(g, o, cold, CROWD));
	setup.n_pages = 2 * CROWD_PAGES;
	test_crowd(g, setup, cold, "no cache");
	setup.cache = true;
	if (n_prompts >= PROMPTS) {
		setup.n_slots = SEATS + 1;
		test_crowd(g, setup, cold, "hardly a checkpoint");
	}
	setup.n_slots = 3 * SEATS;
	if (n_prompts >= PROMPTS)
		test_crowd(g, setup, cold, "many checkpoints");
	setup.refuse_decoded = true;
	setup.budget = 128;
	test_crowd(g, setup, cold, "only prefilled prefixes");
	free(prompts);
}

/* ---- conversations ---- */

static float margin(const struct draw_result *d)
{
	return d->n_top > 1 ? d->top_logprobs[0] - d->top_logprobs[1] : 0;
}

/* Returns the largest difference of log-probabilities before the first token that differs. 1: that token is no near
 * tie, or the lengths differ. Adds the number of compared tokens to *n_compared. */
static float nearly_same(const struct run *cold, const struct run *warm, uint32_t *n_compared)
{
	float most = 0;

	for (size_t k = 0; k < cold->out[0].len; k++) {
		const struct draw_result *a = &cold->draws[0][k], *b = &warm->draws[0][k];

		if (k >= warm->out[0].len)
			return 1;
		if (a->token != b->token)
			return margin(a) < 2e-3f ? most : 1;
		most = MAX(most, a->logprob > b->logprob ? a->logprob - b->logprob
							 : b->logprob - a->logprob);
		++*n_compared;
	}
	return warm->out[0].len == cold->out[0].len ? most : 1;
}

/* Puts the prompt and the answer of the turn before in front of r's own tokens, which stand at `prompt`. */
static void continue_chat(struct run *r, const struct run *before, int32_t *prompt)
{
	uint32_t n = before->n_prompt, n_out = (uint32_t)before->out[0].len;

	memmove(prompt + n + n_out, prompt, r->n_prompt * sizeof(*prompt));
	memcpy(prompt, before->prompt, n * sizeof(*prompt));
	memcpy(prompt + n, before->out[0].v, n_out * sizeof(*prompt));
	r->n_prompt += n + n_out;
}

/* Each turn's prompt is the prompt of the turn before, the answer of that turn without a cache, and new tokens. */
static void test_chats(struct engine *g, const struct engine_options *o)
{
	int32_t(*prompts)[CHAT_LONGEST] = calloc(CHATS * TURNS, sizeof(*prompts));
	struct run *cold = calloc(CHATS * TURNS, sizeof(*cold));
	struct run *warm = calloc(CHATS * TURNS, sizeof(*warm));
	struct run_setup setup = run_setup_of(o);
	uint32_t n_compared = 0, beyond = 0, tokens = 0;
	float worst = 0;

	/* New tokens of a turn stand at first where its prompt begins. */
	for (uint32_t chat = 0; chat < CHATS; chat++)
		for (uint32_t turn = 0; turn < TURNS; turn++) {
			uint32_t i = turn * CHATS + chat, more = 1 + random_below(90);

			random_tokens(prompts[i], more, engine_info(g)->model.vocab_size);
			cold[i] = run_of(prompts[i], more, 40 + random_below(120));
			tokens += cold[i].max_tokens;
		}
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		for (uint32_t i = turn * CHATS; turn && i < (turn + 1) * CHATS; i++)
			continue_chat(&cold[i], &cold[i - CHATS], prompts[i]);
		check(run_cold(g, o, &cold[turn * CHATS], CHATS));
	}
	memcpy(warm, cold, CHATS * TURNS * sizeof(*warm));
	for (uint32_t i = 0; i < CHATS * TURNS; i++)
		warm[i].arrival = i / CHATS * TURN_STEPS + random_below(5);
	setup.cache = true;
	check(run_all(g, &setup, warm, CHATS * TURNS));
	for (uint32_t i = 0; i < CHATS * TURNS; i++) {
		float most = nearly_same(&cold[i], &warm[i], &n_compared);

		worst = MAX(worst, most);
		if (most > 1e-3f)
			printf("# chat %u, turn %u: %u of %u cached, off by %g\n", i % CHATS,
			       i / CHATS, warm[i].hit.n_cached, warm[i].n_prompt, (double)most);
		/* The turn continued from tokens that the turn before had generated. */
		beyond += i >= CHATS && warm[i].hit.n_cached > cold[i - CHATS].n_prompt;
	}
	check(worst <= 1e-3f);
	check(n_compared >= tokens * 3 / 4);
	check(beyond >= CHATS * (TURNS - 1) / 2);
	ok_all("%u chats of %u turns, %u of which go on from generated tokens: the same %u greedy tokens (of %u), "
	       "log-probabilities within %.2g",
	       CHATS, TURNS, beyond, n_compared, tokens, (double)worst);
	free(cold);
	free(warm);
	free(prompts);
}

int main(int argc, char **argv)
{
	struct engine_options o;
	struct err e = {0};
	struct engine *g;

	if (argc < 3)
		return 2;
	if (argc > 3)
		n_prompts = (uint32_t)MIN(strtoul(argv[3], NULL, 10), (unsigned long)PROMPTS_MAX);
	o = run_options(argv[1], argv[2], SEATS, PREFILL_MAX);
	o.max_model_len = CHAT_LONGEST + ANSWER_MAX;
	if (engine_open(&o, &g, &e) < 0) {
		ok(false, "%s", e.text);
		return done();
	}
	test_prompts(g, &o, argv[2]);
	test_tight(g, &o);
	if (o.dtype == ENGINE_FLOAT32)
		test_chats(g, &o);
	engine_close(g);
	return done();
}
