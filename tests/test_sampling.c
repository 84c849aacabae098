/*
 * Drawing tokens, as a request sees it: through scheduler and engine, on a real model.
 *
 *     test_sampling DIR
 *
 * A draw depends on the logits, the parameters and (seed, choice, position), nothing else; draws follow the
 * reported log-probabilities; penalties, bans and the cuts (top_k, top_p, min_p) change them as documented;
 * and only the bytes that were asked for cross to the host.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/golden.h"
#include "tests/tap.h"

enum { DRAWS = 512 };

static struct {
	struct engine *g;
	struct run_setup setup;
	struct golden golden;
	const struct golden_case *text; /* with a long prompt */
	struct ids open;		/* a prompt after which many tokens are likely */
	struct draw_result open_top;	/* of the draw behind it, with TOP_LOGPROBS_MAX tokens */
} f;

static struct sampling drawn(uint64_t seed)
{
	struct sampling s = run_greedy();

	s.temperature = 1;
	s.seed = seed;
	return s;
}

static struct run request(const struct ids *prompt, struct sampling s, uint32_t n_choices,
			  uint32_t max_tokens)
{
	struct run r = run_of(prompt->v, prompt->len, max_tokens);

	r.n_choices = n_choices;
	r.sampling = s;
	return r;
}

static void run_one(struct run *r)
{
	check(run_all(f.g, &f.setup, r, 1));
}

/* Runs a request alone, and returns it with its results. */
static struct run ran(const struct ids *prompt, struct sampling s, uint32_t n_choices,
		      uint32_t max_tokens)
{
	struct run r = request(prompt, s, n_choices, max_tokens);

	run_one(&r);
	return r;
}

static bool same_ids(const struct ids *a, const struct ids *b)
{
	return a->len == b->len && !memcmp(a->v, b->v, a->len * sizeof(*a->v));
}

/* Finds the step whose best token is least likely, in all golden answers to prompts of less than 512 tokens. f.open
 * gets the prompt and the tokens before that step. */
static void find_open_prompt(void)
{
	const struct golden_case *best = NULL;
	struct sampling s = run_greedy();
	size_t step = 0;
	struct run r;

	for (size_t i = 0; i < f.golden.n; i++) {
		const struct golden_case *c = &f.golden.cases[i];

		for (size_t k = 0; k < c->output.len && c->prompt.len < 512; k++)
			if (!best || c->steps[k].logprobs[0] < best->steps[step].logprobs[0]) {
				best = c;
				step = k;
			}
	}
	if (!best || ids_append(&f.open, best->prompt.v, best->prompt.len) < 0 ||
	    ids_append(&f.open, best->output.v, step) < 0)
		abort();
	s.n_logprobs = TOP_LOGPROBS_MAX;
	r = ran(&f.open, s, 1, 1);
	f.open_top = r.draws[0][0];
	printf("# %s, step %zu: the best token has probability %.3f\n", best->name, step,
	       (double)expf(f.open_top.logprob));
}

/* ---- inputs of a draw ---- */

TEST(seed)
{
	struct run a[2], b[2], other;

	a[0] = ran(&f.open, drawn(7), 1, 20);
	a[1] = ran(&f.golden.cases[0].prompt, drawn(7), 1, 20);
	b[0] = request(&f.open, drawn(7), 1, 20);
	b[1] = request(&f.golden.cases[0].prompt, drawn(7), 1, 20);
	b[0].arrival = 3;
	check(run_all(f.g, &f.setup, b, 2));
	check(run_same(&a[0], &b[0], "the same seed"));
	check(run_same(&a[1], &b[1], "the same seed"));
	other = ran(&f.open, drawn(8), 1, 20);
	check(!same_ids(&a[0].out[0], &other.out[0]));
	other = ran(&f.open, drawn(7 | (uint64_t)1 << 32), 1, 20);
	check(!same_ids(&a[0].out[0], &other.out[0]));
	ok_all("the same seed gives the same text in any company, another seed another");
}

static bool same_choice(const struct run *a, size_t i, const struct run *b, size_t k,
			const char *what)
{
	struct run x = {.n_prompt = a->n_prompt, .out = {a->out[i]}, .draws = {a->draws[i]}};
	struct run y = {.n_prompt = b->n_prompt, .out = {b->out[k]}, .draws = {b->draws[k]}};

	return run_same(&x, &y, what);
}

/* Some prompts end at the last position of a page, others one position before or behind it. */
TEST(choices)
{
	static const uint32_t lengths[] = {1, 63, 64, 65, 128};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct ids prompt = {f.text->prompt.v, lengths[i], lengths[i]};
		struct run one = ran(&prompt, drawn(99), 1, 70);
		struct run four = ran(&prompt, drawn(99), 4, 70);
		struct run greedy = ran(&prompt, run_greedy(), 1, 70);
		struct run together[2] = {request(&prompt, drawn(99), 8, 70),
					  request(&prompt, run_greedy(), 4, 70)};
		const struct run *eight = &together[0], *greedy_four = &together[1];

		check(run_all(f.g, &f.setup, together, 2));
		for (size_t k = 0; k < 4; k++) {
			check(same_choice(&four, k, eight, k, "a choice of four and of eight"));
			check(same_choice(&greedy, 0, greedy_four, k,
					  "greedy, alone and as a choice"));
		}
		check(same_choice(&one, 0, &four, 0, "alone and as the first choice"));
		for (size_t k = 0; k < 8; k++)
			for (size_t j = 0; j < k; j++)
				check(!same_ids(&eight->out[k], &eight->out[j]));
	}
	ok_all("choice k is the same of four and of eight, whatever page the prompt ends on, and no other");
}

/* The log-probabilities of a choice are close to those of a request whose prompt is the choice's text so far: no choice
 * reads another's pages or state. */
TEST(choice_paths)
{
	static const uint32_t lengths[] = {60, 64, 100};
	float worst = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct ids prompt = {f.text->prompt.v, lengths[i], lengths[i]};
		struct run r = ran(&prompt, drawn(5), 5, 40);

		for (size_t k = 0; k < 5; k++)
			for (size_t step = 3; step < r.out[k].len; step += 18) {
				struct ids text = {0};
				struct run whole;

				if (ids_append(&text, prompt.v, prompt.len) < 0 ||
				    ids_append(&text, r.out[k].v, step) < 0)
					abort();
				whole = ran(&text, run_greedy(), 1, 1);
				for (size_t t = 0; t < 3; t++) {
					const struct draw_result *x = &r.draws[k][step],
								 *y = whole.draws[0];

					check(x->top_ids[t] == y->top_ids[t]);
					worst = fmaxf(worst, fabsf(x->top_logprobs[t] -
								   y->top_logprobs[t]));
				}
				ids_release(&text);
			}
	}
	check(worst <= 2e-4f);
	ok_all("the path of every choice is that of its own text (%.2g)", (double)worst);
}

/* ---- distributions of draws ---- */

/* Draws DRAWS tokens behind the open prompt: one for each of RUN_CHOICES choices of many seeds. */
static void draw_many(struct sampling s, int32_t out[DRAWS])
{
	struct run runs[DRAWS / RUN_CHOICES];

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		s.seed = i;
		s.want_logprobs = false;
		runs[i] = request(&f.open, s, RUN_CHOICES, 1);
	}
	check(run_all(f.g, &f.setup, runs, ARRAY_SIZE(runs)));
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++)
		for (size_t k = 0; k < RUN_CHOICES; k++)
			out[i * RUN_CHOICES + k] = runs[i].out[k].len ? runs[i].out[k].v[0] : -1;
}

/*
 * Pearson's chi-square of draws against probabilities p [n] of the best n tokens. All other tokens, and those
 * that expect fewer than five draws, are one more bin. If that bin expects half a draw or less, it does not
 * count, but more than three draws in it are a failure. Prints the chi-square with its degrees of freedom.
 * Returns whether there are at least three bins, and the chi-square is below the value that a fair draw passes
 * once in ten thousand (Wilson and Hilferty's approximation). The seeds are fixed, so a test that fails once
 * always fails.
 */
static bool follows(const struct draw_result *top, const double *p, uint32_t n,
		    const int32_t draws[DRAWS], const char *name)
{
	double chi = 0, small_want = 0, rest = 1, limit;
	uint32_t seen_in_bins = 0, small_seen = 0, bins = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t seen = 0;

		for (uint32_t k = 0; k < DRAWS; k++)
			seen += draws[k] == top->top_ids[i];
		rest -= p[i];
		seen_in_bins += seen;
		if (p[i] * DRAWS < 5) {
			small_want += p[i] * DRAWS;
			small_seen += seen;
			continue;
		}
		chi += (seen - p[i] * DRAWS) * (seen - p[i] * DRAWS) / (p[i] * DRAWS);
		bins++;
	}
	small_want += fmax(rest, 0) * DRAWS;
	small_seen += DRAWS - seen_in_bins;
	if (small_want > 0.5) {
		chi += (small_seen - small_want) * (small_seen - small_want) / small_want;
		bins++;
	} else if (small_seen > 3) {
		printf("# %s: %u draws of what is all but impossible\n", name, small_seen);
		return false;
	}
	limit = bins - 1;
	limit *= pow(1 - 2 / (9 * limit) + 3.719 * sqrt(2 / (9 * limit)), 3);
	printf("# %s: chi-square %.1f with %u degrees of freedom (limit %.1f)\n", name, chi,
	       bins - 1, limit);
	return bins >= 3 && chi < limit;
}

TEST(distribution)
{
	static const float temperatures[] = {1, 0.6f, 1.5f};
	const struct draw_result *top = &f.open_top;
	int32_t draws[DRAWS];

	for (size_t t = 0; t < ARRAY_SIZE(temperatures); t++) {
		struct sampling s = drawn(0);
		double p[TOP_LOGPROBS_MAX], sum = 0;
		char name[32];

		/* At a temperature other than 1 the sum over all tokens is not known, so top_k leaves only those whose
		 * log-probabilities are known. */
		s.temperature = temperatures[t];
		s.top_k = temperatures[t] == 1 ? 0 : TOP_LOGPROBS_MAX;
		for (uint32_t i = 0; i < top->n_top; i++) {
			p[i] = exp((double)top->top_logprobs[i] / (double)s.temperature);
			sum += p[i];
		}
		for (uint32_t i = 0; s.top_k && i < top->n_top; i++)
			p[i] /= sum;
		draw_many(s, draws);
		snprintf(name, sizeof(name), "temperature %.1f", (double)s.temperature);
		check(top->n_top == TOP_LOGPROBS_MAX);
		check(follows(top, p, top->n_top, draws, name));
	}
	ok_all("%d draws follow the log-probabilities at three temperatures", DRAWS);
}

/* Checks draws with parameters that leave the best n tokens: only those are drawn, each with its probability divided by
 * the sum of all n. */
static void test_one_cut(struct sampling s, uint32_t n, const char *name)
{
	const struct draw_result *top = &f.open_top;
	double p[TOP_LOGPROBS_MAX], sum = 0;
	int32_t draws[DRAWS];

	for (uint32_t i = 0; i < n; i++)
		sum += exp((double)top->top_logprobs[i]);
	for (uint32_t i = 0; i < n; i++)
		p[i] = exp((double)top->top_logprobs[i]) / sum;
	draw_many(s, draws);
	for (uint32_t k = 0; k < DRAWS; k++) {
		bool inside = false;

		for (uint32_t i = 0; i < n; i++)
			inside |= draws[k] == top->top_ids[i];
		check(inside);
	}
	check(follows(top, p, n, draws, name));
}

TEST(cuts)
{
	const struct draw_result *top = &f.open_top;
	struct sampling s;
	double sum = 0;

	s = drawn(0);
	s.top_k = 4;
	test_one_cut(s, 4, "top_k 4");
	/* top_p is between the sums of the best four and of the best five tokens: five are left. */
	for (uint32_t i = 0; i < 5; i++)
		sum += exp((double)top->top_logprobs[i]);
	s = drawn(0);
	s.top_p = (float)(sum - exp((double)top->top_logprobs[4]) / 2);
	test_one_cut(s, 5, "top_p");
	/* min_p times the best token's probability is between the probabilities of the sixth and the seventh token:
	 * six are left. */
	s = drawn(0);
	s.min_p = expf((top->top_logprobs[5] + top->top_logprobs[6]) / 2 - top->top_logprobs[0]);
	test_one_cut(s, 6, "min_p");
	ok_all("top_k, top_p and min_p keep the tokens they say, and their proportions");
}

TEST(greedy)
{
	struct run greedy = ran(&f.open, run_greedy(), 1, 40), r;
	struct sampling cuts[3] = {drawn(1), drawn(2), drawn(3)};

	cuts[0].top_k = 1;
	cuts[1].top_p = 1e-6f;
	cuts[2].min_p = 1;
	for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
		r = ran(&f.open, cuts[i], 1, 40);
		check(run_same(&greedy, &r, "a cut that leaves one token"));
	}
	for (size_t k = 0; k < greedy.out[0].len; k++) {
		const struct draw_result *d = &greedy.draws[0][k];

		check(d->token == d->top_ids[0] && d->logprob == d->top_logprobs[0]);
		for (uint32_t i = 1; i < d->n_top; i++)
			check(d->top_logprobs[i] <= d->top_logprobs[i - 1]);
	}
	ok_all("a cut that leaves one token is greedy");
}

/* ---- changes of the logits ---- */

static uint32_t count(const struct ids *ids, size_t n, int32_t id)
{
	uint32_t times = 0;

	for (size_t i = 0; i < n; i++)
		times += ids->v[i] == id;
	return times;
}

/* Greedy under presence and frequency penalties: the host does the same arithmetic on the reported
 * log-probabilities, which are of the raw logits. A token that is not reported can only lose. So the best of the
 * reported ones is the best of all, unless penalties put it below the last log-probability that is reported. Such steps
 * and near ties are left out. */
TEST(presence_frequency)
{
	static const float penalties[][2] = {{0, 0.5f}, {1.5f, 0}, {0.4f, 0.8f}, {2, 2}};
	size_t moved = 0, known = 0;

	for (size_t i = 0; i < ARRAY_SIZE(penalties); i++) {
		struct sampling s = run_greedy();
		struct run r;

		s.n_logprobs = TOP_LOGPROBS_MAX;
		s.presence_penalty = penalties[i][0];
		s.frequency_penalty = penalties[i][1];
		r = ran(&f.open, s, 1, 120);
		for (size_t k = 0; k < r.out[0].len; k++) {
			const struct draw_result *d = &r.draws[0][k];
			float best = -INFINITY, second = -INFINITY;
			int32_t id = -1;

			for (uint32_t j = 0; j < d->n_top; j++) {
				uint32_t n = count(&r.out[0], k, d->top_ids[j]);
				float v = d->top_logprobs[j] -
					  (n ? s.presence_penalty + s.frequency_penalty * (float)n
					     : 0);

				if (v > best) {
					second = best;
					best = v;
					id = d->top_ids[j];
				} else {
					second = fmaxf(second, v);
				}
			}
			if (best < d->top_logprobs[d->n_top - 1] || best - second < 1e-4f)
				continue;
			known++;
			moved += id != d->top_ids[0];
			check(d->token == id);
		}
	}
	check(known > 300 && moved > 20);
	ok_all("presence and frequency penalties: the host's choice in %zu steps, %zu of them not the likeliest",
	       known, moved);
}

/* A repetition penalty beyond all measure: no token of the prompt or of the answer comes again. Then a penalty of
 * 1, which changes nothing. All of it twice: the counts of a seat begin anew with each request. */
TEST(repetition)
{
	struct sampling s = run_greedy();
	struct run greedy = ran(&f.open, s, 1, 40), r;

	check(count(&greedy.out[0], greedy.out[0].len, greedy.out[0].v[0]) > 0);
	for (int again = 0; again < 2; again++) {
		s.repetition_penalty = 1e6f;
		r = ran(&f.open, s, 1, 40);
		check(!same_ids(&r.out[0], &greedy.out[0]));
		for (size_t k = 0; k < r.out[0].len; k++) {
			check(!count(&r.out[0], k, r.out[0].v[k]));
			check(!count(&f.open, f.open.len, r.out[0].v[k]));
		}
		s.repetition_penalty = 1;
		s.presence_penalty = 1e-9f; /* counts are used, but no draw changes */
		r = ran(&f.open, s, 1, 40);
		check(run_same(&greedy, &r, "no penalty to speak of"));
		s.presence_penalty = 0;
	}
	ok_all("a great repetition penalty lets no token come twice, and the next request knows nothing of it");
}

/* Every choice has its own counts: greedy choices under a penalty are equal to each other and to a single choice. */
TEST(penalised_choices)
{
	struct sampling s = run_greedy();
	struct run one, five;

	s.frequency_penalty = 1;
	s.repetition_penalty = 1.3f;
	one = ran(&f.open, s, 1, 60);
	five = ran(&f.open, s, 5, 60);
	for (size_t k = 0; k < 5; k++)
		check(same_ids(&one.out[0], &five.out[k]));
	ok_all("choices count their own tokens");
}

static bool is_end(int32_t id)
{
	const struct model_config *m = &engine_info(f.g)->model;

	for (uint32_t i = 0; i < m->n_end_tokens; i++)
		if (m->end_tokens[i] == id)
			return true;
	return false;
}

/* min_tokens: where the answer would have ended, the second best token is drawn. The log-probabilities still have the
 * end token as the best one. */
TEST(min_tokens)
{
	size_t tried = 0;

	for (size_t i = 0; i < f.golden.n && tried < 5; i++) {
		const struct golden_case *c = &f.golden.cases[i];
		uint32_t end = (uint32_t)c->output.len, min = end + 6;
		struct run r;

		if (!end || end > 40 || c->prompt.len > 200 || !is_end(c->output.v[end - 1]))
			continue;
		r = request(&c->prompt, run_greedy(), 2, min + 20);
		r.ignore_end = false;
		r.min_tokens = min;
		tried++;
		run_one(&r);
		for (uint32_t k = 0; k < 2; k++) {
			const struct draw_result *d =
				r.out[k].len >= end ? &r.draws[k][end - 1] : NULL;

			check(r.out[k].len >= min);
			check(d && is_end(d->top_ids[0]) && d->token == d->top_ids[1]);
			check(d && d->logprob == d->top_logprobs[1]);
			for (uint32_t t = 0; t < r.out[k].len; t++)
				check(t >= min || !is_end(r.out[k].v[t]));
		}
	}
	check(tried == 5);
	ok_all("below min_tokens no answer ends, and the log-probabilities are of the raw logits");
}

/* As many end tokens as a request of the API may have: 256 that it names, and 16 of the model. The last
 * ones are the first tokens of the greedy answer. */
TEST(many_bans)
{
	enum { BANNED = 272, MIN_TOKENS = 6 };
	uint32_t vocab = engine_info(f.g)->model.vocab_size;
	struct run greedy = ran(&f.open, run_greedy(), 1, MIN_TOKENS), r;
	int32_t banned[BANNED];

	for (uint32_t i = 0; i < BANNED; i++)
		banned[i] = i < BANNED - MIN_TOKENS ? (int32_t)(vocab - 1 - i)
						    : greedy.out[0].v[BANNED - 1 - i];
	r = request(&f.open, run_greedy(), 1, 3 * MIN_TOKENS);
	r.ignore_end = false;
	r.end_tokens = banned;
	r.n_end_tokens = BANNED;
	r.min_tokens = MIN_TOKENS;
	run_one(&r);
	check(r.out[0].len >= MIN_TOKENS);
	for (uint32_t i = 0; i < MIN_TOKENS && i < r.out[0].len; i++)
		for (uint32_t k = 0; k < BANNED; k++)
			check(r.out[0].v[i] != banned[k]);
	ok_all("%d end tokens are banned, the last like the first", BANNED);
}

/* A token mask and biases reach the draws of all choices; the log-probabilities stay those of the raw logits. */
TEST(masks_and_biases)
{
	enum { LEN = 6 };
	uint32_t vocab = engine_info(f.g)->model.vocab_size;
	struct run greedy = ran(&f.open, run_greedy(), 1, LEN), r;
	uint32_t *mask = calloc(PLAN_MASK_WORDS(vocab), sizeof(*mask));
	const int32_t first = greedy.out[0].v[0];
	const struct plan_bias biases[] = {{.token = 5, .value = -1000},
					   {.token = (int32_t)vocab - 1, .value = 1000}};

	for (uint32_t i = 0; i < vocab; i++)
		if (i % 7 == 3 && i != (uint32_t)first)
			mask[i / 32] |= 1u << i % 32;
	r = request(&f.open, run_greedy(), 3, LEN);
	r.sampling.want_logprobs = true;
	r.sampling.n_logprobs = 2;
	r.allowed = mask;
	run_one(&r);
	for (uint32_t k = 0; k < 3; k++) {
		check(r.out[k].len == LEN);
		for (uint32_t i = 0; i < r.out[k].len; i++)
			check(r.out[k].v[i] % 7 == 3 && r.out[k].v[i] != first);
		check(r.draws[k][0].top_ids[0] == first);
		check(r.draws[k][0].logprob < r.draws[k][0].top_logprobs[0]);
	}
	ok_all("draws of a mask");
	r.allowed = NULL;
	r.biases = biases;
	r.n_biases = 2;
	run_one(&r);
	for (uint32_t k = 0; k < 3; k++) {
		for (uint32_t i = 0; i < r.out[k].len; i++)
			check(r.out[k].v[i] == (int32_t)vocab - 1);
		check(r.draws[k][0].top_ids[0] == first);
	}
	ok_all("a large bias wins");
	free(mask);
}

/* ---- bytes that cross to the host ---- */

struct traffic {
	struct engine *g;
	uint64_t before;
	uint32_t steps, without_draws, wrong;
};

static void watch_traffic(void *arg, const struct plan *p, const struct draw_result *results)
{
	struct traffic *t = arg;
	struct engine_counters now;
	uint64_t want = 4; /* RESULT_GIVEN_UP */

	engine_counters(t->g, &now);
	for (uint32_t i = 0; i < p->n_draws; i++) {
		const struct sampling *s = p->draws[i].sampling;

		want += 4 + (s->want_logprobs ? 4 + 8u * s->n_logprobs : 0);
	}
	if (now.bytes_from_device - t->before != want && !t->wrong++)
		printf("# step %llu: %llu bytes, want %llu for %u draws\n",
		       (unsigned long long)p->step,
		       (unsigned long long)(now.bytes_from_device - t->before),
		       (unsigned long long)want, p->n_draws);
	t->before = now.bytes_from_device;
	t->steps++;
	t->without_draws += !p->n_draws;
}

TEST(traffic)
{
	static const uint8_t tops[] = {0, 1, 5, TOP_LOGPROBS_MAX};
	struct run_setup setup = f.setup;
	struct traffic t = {.g = f.g};
	struct engine_counters before, after;
	struct run runs[6];

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		runs[i] = request(i ? &f.open : &f.text->prompt, drawn(i), i % 3 + 1,
				  (uint32_t)(10 + 3 * i));
		runs[i].sampling.want_logprobs = i < ARRAY_SIZE(tops);
		runs[i].sampling.n_logprobs = tops[i % ARRAY_SIZE(tops)];
		runs[i].sampling.frequency_penalty = i == 2;
		runs[i].arrival = (uint32_t)i;
	}
	setup.budget = 128;
	setup.watch = watch_traffic;
	setup.arg = &t;
	engine_counters(f.g, &before);
	t.before = before.bytes_from_device;
	check(run_all(f.g, &setup, runs, ARRAY_SIZE(runs)));
	engine_counters(f.g, &after);
	check(!t.wrong && t.without_draws > 0);
	check(after.steps - before.steps == t.steps);
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		for (size_t k = 0; k < RUN_CHOICES; k++)
			for (size_t d = 0; d < runs[i].out[k].len; d++)
				check(runs[i].draws[k][d].n_top ==
				      (runs[i].sampling.want_logprobs ? runs[i].sampling.n_logprobs
								      : 0));
	}
	ok_all("%u steps: 4 bytes a step and 4 a draw, and 4 + 8 n where log-probabilities are wanted",
	       t.steps);
}

/* The first case whose prompt has at least n tokens; NULL: none. */
static const struct golden_case *long_case(const struct golden *g, size_t n)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->cases[i].prompt.len >= n)
			return &g->cases[i];
	return NULL;
}

int main(int argc, char **argv)
{
	struct engine_options o;
	struct err e = {0};

	if (argc < 2)
		return 2;
	o = run_options(argv[1], "float32", 64, 1024);
	f.setup = run_setup_of(&o);
	if (!golden_open(o.model_dir, &f.golden) || !(f.text = long_case(&f.golden, 512)))
		return 2;
	if (engine_open(&o, &f.g, &e) < 0) {
		printf("# %s\n", e.text);
		return 2;
	}
	find_open_prompt();
	run_tests();
	engine_close(f.g);
	ids_release(&f.open);
	return done();
}
