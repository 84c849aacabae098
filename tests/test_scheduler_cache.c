/* scheduler/ and the prefix cache: hits, the pages and states that requests leave, and which requests wait for which;
 * with two plans out; and how a request that was retracted comes back. scheduler_world.h says how plans are written. */
#include <errno.h>
#include <stdlib.h>

#include "tests/scheduler_world.h"
#include "tests/tap.h"

enum { END = WORLD_END };

static const struct prefix_space salted = {{1, 2}};

static uint64_t submit_with(struct world *w, const char *prompt, uint32_t max_tokens,
			    bool cache_disabled, struct prefix_space space)
{
	struct scheduler_request r = world_request(prompt, max_tokens);

	r.cache_disabled = cache_disabled;
	r.space = space;
	return world_submit_request(w, &r);
}

/* Runs a request that ends with its first token. Returns its hit. */
static struct scheduler_hit hit_of(struct world *w, const char *prompt, bool cache_disabled,
				   struct prefix_space space)
{
	(void)submit_with(w, prompt, 1, cache_disabled, space);
	(void)world_plan(w);
	while (w->plan && (world_commit(w, 1), !w->n_events))
		(void)world_plan(w);
	return w->events[0].hit;
}

TEST(hits)
{
	struct scheduler_config c = world_config(2, 100, 64);
	struct world *w = world_new(&c);
	const struct prefix_space none = {{0, 0}};
	struct scheduler_hit h;

	h = hit_of(w, "a", false, none);
	ok(h.n_cached == 0 && h.miss == PREFIX_MISS_SHORT, "no whole page: short");
	h = hit_of(w, "aabbcc", false, none);
	ok(h.n_cached == 0 && h.miss == PREFIX_MISS_COLD, "the first time: cold");
	h = hit_of(w, "aabbccd", false, none);
	ok(h.n_cached == 6 && h.miss == PREFIX_MISS_NONE, "the next turn finds all of it");
	h = hit_of(w, "aabbcc", false, none);
	ok(h.n_cached == 4 && h.miss == PREFIX_MISS_NONE,
	   "the same again: up to the last page before its last token");
	h = hit_of(w, "aabbcc", true, none);
	ok(h.n_cached == 0 && h.miss == PREFIX_MISS_DISABLED,
	   "a request that does not want the cache");
	h = hit_of(w, "aabbcc", false, salted);
	ok(h.n_cached == 0 && h.miss == PREFIX_MISS_SALT, "another salt");
	h = hit_of(w, "aabbcc", false, salted);
	ok(h.n_cached == 4, "which has a cache of its own");
	h = hit_of(w, "zzyyxx", true, none);
	h = hit_of(w, "zzyyxx", false, none);
	is_int(h.n_cached, 0, "and who does not want the cache leaves nothing");
	is_int(world_stats(w).misses[PREFIX_MISS_DISABLED], 2, "reasons are counted");
	ok(world_stats(w).cached_tokens == 14 && world_stats(w).prompt_tokens == 50, "and tokens");

	c.cache_disabled = true;
	w = world_new(&c);
	h = hit_of(w, "aabbcc", false, none);
	h = hit_of(w, "aabbcc", false, none);
	ok(h.n_cached == 0 && h.miss == PREFIX_MISS_DISABLED, "a server without a cache");
}

TEST(states_of_a_window)
{
	struct scheduler_config c = world_config(2, 100, 64);
	const uint32_t boundaries[] = {3, 5, 9, 13, 17};
	struct world *w = world_new(&c);
	struct scheduler_request r = world_request("aabbccddeeffgghhiijj", 1);

	r.boundaries = boundaries;
	r.n_boundaries = ARRAY_SIZE(boundaries);
	world_submit_request(w, &r);
	step_is(w, 1, "a0+20^2^12^16^18!",
		"the last page before the last token, the last and the first boundary, then from the back");
	ok(world_published_text(w, "aabbccddeeffgghhiijj", 20), "and the end of the prompt");

	/* A budget of 14 bytes, of which a page and a state take one each. */
	c.n_slots = 8;
	c.max_seqs = 1;
	c.cache_bytes = 12 + 2;
	w = world_new(&c);
	r = world_request("aabbccddeeffgghhiijj", 1);
	r.boundaries = boundaries;
	r.n_boundaries = ARRAY_SIZE(boundaries);
	world_submit_request(w, &r);
	step_is(w, 1, "a0+20^16^18!", "where slots are short: the most wanted ones");
	ok(world_stats(w).cache.used_bytes <= c.cache_bytes, "within the budget");
}

/* Plans a step; returns whether the state behind the first row becomes a checkpoint. */
static bool leaves(struct world *w, const char *want)
{
	bool ret;

	plan_is(w, want, "a part of a span");
	ret = w->plan->rows[0].leaves_state;
	world_commit(w, 1);
	return ret;
}

/* The pace makes windows smaller while a sequence decodes. The states that are kept are those of one large window. */
TEST(pace)
{
	struct scheduler_config c = world_config(2, 100, 64);
	const uint32_t boundaries[] = {3, 5, 9, 13, 17};
	struct world *w = world_new(&c);
	struct scheduler_request r;

	scheduler_pace(w->s, 4);
	world_submit(w, "zzyyxx", 20);
	step_is(w, 1, "z0+6^4!", "nothing decodes: the whole budget");
	scheduler_pace(w->s, 5);
	r = world_request("aabbccddeeffgghhiijj", 1);
	r.boundaries = boundaries;
	r.n_boundaries = ARRAY_SIZE(boundaries);
	world_submit_request(w, &r);
	ok(!leaves(w, "a0+4^2 @6!") && !leaves(w, "c4+4 @7!"),
	   "no checkpoint where only the pace ends a window");
	ok(leaves(w, "e8+4 @8!") && leaves(w, "g12+4 @9!"),
	   "but where one was chosen for the span");
	ok(leaves(w, "i16+4^18! @10!"), "and at the span's end");
	ok(world_published_text(w, "aabbccddeeffgghhiijj", 20), "the whole prompt can be hit");

	world_submit(w, "mmnnoo", 1);
	scheduler_pace(w->s, 0);
	ok(!leaves(w, "m0+2 @11!"), "at least a page");
	scheduler_pace(w->s, UINT32_MAX);
	ok(leaves(w, "n2+4^4! @12!"), "without a limit a span begins with each window");
	world_submit(w, "ppqqrrssttuuvvwwaabb", 1);
	scheduler_pace(w->s, 10);
	ok(!leaves(w, "p0+10 @13!") && leaves(w, "u10+10^18! @14!"),
	   "the next prompt at another pace");

	/* A span of 12 in windows of 8: its last window ends with it. */
	c.max_prefill_tokens = 12;
	w = world_new(&c);
	world_submit(w, "zzyyxx", 20);
	step_is(w, 1, "z0+6^4!", "one that decodes");
	scheduler_pace(w->s, 8);
	world_submit(w, "aabbccddeeffgg", 1);
	ok(!leaves(w, "a0+8 @6!") && leaves(w, "e8+4 @7!"),
	   "a window does not cross the end of its span");
	ok(leaves(w, "g12+2! @8!"), "the next span is the rest");

	/* Two prompts part at 12; the second one comes while the first window of the first one is planned. */
	world_submit(w, "mmnnooppqqrrssttu", 1);
	world_submit(w, "mmnnooppqqrrvv", 1);
	ok(!leaves(w, "m0+8 @9!"), "the first of two that share a beginning");
	is_int(world_stats(w).shared_waits, 1,
	       "the second one waits for it, though the pace has cut its prompt");
	ok(leaves(w, "q8+4 @10!"), "the state is kept where they part");
	plan_is(w, "s12+5^16! v12+2! @11!", "both go on behind it");
	world_commit(w, 1);
	is_int(world_stats(w).cached_tokens, 12, "what they share was computed once");
}

/* A prompt of p has the answer q, r, s, ... */
TEST(decoding)
{
	struct scheduler_config c = world_config(4, 100, 64);
	struct world *w = world_new(&c);
	int32_t tokens[32] = {'p', 'p', 'p', 'p', 'p'};
	struct scheduler_request r;

	world_submit(w, "ppppp", 11);
	for (int32_t i = 0; i < 10; i++) {
		world_step(w, tokens[5 + i] = 'q' + i);
	}
	ok(world_published(w, tokens, 4) && !world_published(w, tokens, 8) &&
		   world_published(w, tokens, 12),
	   "while decoding a sequence keeps its newest state, and those of its prompt");
	world_step(w, tokens[15] = END);
	is_int(world_stats(w).running, 0, "it ends");
	r = world_request("", 1);
	r.prompt = tokens;
	r.n_prompt = 16;
	tokens[15] = 'x';
	world_submit_request(w, &r);
	step_is(w, 1, "x12+4!", "the next turn begins where it left a state");

	c.refuse_decoded = true;
	w = world_new(&c);
	world_submit(w, "ppppp", 11);
	world_run(w, 'q');
	memset(tokens, 0, sizeof(tokens));
	for (int i = 0; i < 16; i++)
		tokens[i] = i < 5 ? 'p' : 'q';
	world_submit_request(w, &r);
	step_is(w, 1, "p4+12^12!", "unless decoded tokens are refused");
}

TEST(following)
{
	struct scheduler_config c = world_config(2, 1000, 8);
	struct world *w = world_new(&c);
	uint64_t first, second;

	/* Three that share 6 tokens; in the second world also one that shares nothing. */
	first = world_submit(w, "aabbccdd", 3);
	second = world_submit(w, "aabbccee", 3);
	world_submit(w, "aabbccff", 3);
	step_is(w, 1, "a0+8^6!", "the first of three that share a beginning");
	step_is(w, END, "e6+2! f6+2! @8!", "the others begin where it parts from them");
	ok(w->n_events == 3 && world_stats(w).shared_waits == 0,
	   "nobody waited: the budget was used up");

	c.max_prefill_tokens = 64;
	w = world_new(&c);
	first = world_submit(w, "aabbccdd", 3);
	second = world_submit(w, "aabbccee", 3);
	world_submit(w, "aabbccff", 3);
	world_submit(w, "xxyyzz", 3);
	plan_is(w, "a0+8^6! x0+6^4!", "two wait for the first one's prompt; the queue goes on");
	ok(world_stats(w).shared_waits == 2 && world_stats(w).waiting == 2, "which is counted");
	world_commit(w, 1);
	plan_is(w, "e6+2! f6+2! @8! @6!", "then they begin where it parts from them");
	is_int(world_stats(w).cached_tokens, 12, "so that it is computed once");
	world_commit(w, END);
	is_int(world_stats(w).running, 0, "all end");

	first = world_submit(w, "mmnnoopp", 3);
	second = world_submit(w, "mmnnooqq", 3);
	(void)world_plan(w);
	scheduler_abort(w->s, second);
	is_int(world_stats(w).waiting, 0, "one that waits is aborted");
	second = world_submit(w, "mmnnoorr", 3);
	scheduler_abort(w->s, first);
	world_commit(w, 1);
	plan_is(w, "r6+2!", "what an aborted request has computed counts as well");
	scheduler_abort(w->s, second);
	world_commit(w, 1);

	/* The prompt of a leader takes several steps; a follower that shares less of it does not wait for its end. */
	c.max_prefill_tokens = 4;
	c.max_plans_out = 2;
	w = world_new(&c);
	world_submit(w, "aabbccddee", 3);
	plan_is(w, "a0+4", "a long prompt");
	world_submit(w, "aabbx", 3);
	step_is(w, 1, "c4+4", "goes on");
	step_is(w, 1, "e8+2! x4+1!", "the other one follows no further than to what they share");
	world_commit(w, END);
}

TEST(two_plans)
{
	struct scheduler_config c = world_config(2, 100, 64);
	struct world *w;
	struct scheduler_stats st;
	uint64_t id;

	c.max_plans_out = 2;
	w = world_new(&c);
	world_submit(w, "aabb", 9);
	plan_is(w, "a0+4^2!", "a prompt");
	plan_is(w, "@4?!", "the next plan is made before its token is known");
	is_int(w->plan->rows[0].token_draw, 0, "which is draw 0 of the plan before");
	world_commit(w, END);
	ok(w->n_events == 1 && w->events[0].request_finished,
	   "it was an end token: the request is finished");
	is_int(world_stats(w).running, 1, "but what the plan uses is kept");
	world_commit(w, 1);
	ok(w->n_events == 0 && world_stats(w).running == 0, "its row was for nothing");

	world_submit(w, "ccdd", 2);
	plan_is(w, "c0+4^2!", "two tokens are asked for");
	step_is(w, 1, "@4?!", "the second");
	step_is(w, 1, "nothing", "no third row");
	ok(w->n_events == 1 && w->events[0].finish == FINISH_LENGTH, "the end");

	id = world_submit(w, "eeff", 9);
	(void)world_plan(w);
	(void)world_plan(w);
	scheduler_abort(w->s, id);
	st = world_stats(w);
	world_commit(w, 1);
	is_int(w->n_events, 0, "aborted with two plans out: no event");
	is_int(world_stats(w).running, st.running, "nor is anything free");
	world_commit(w, 1);
	ok(w->n_events == 0 && world_stats(w).running == 0, "until both are through");

	id = world_submit(w, "gghh", 9);
	(void)world_plan(w);
	world_submit(w, "iijj", 9);
	(void)world_plan(w);
	w->n_events = scheduler_fail(w->s, w->events);
	ok(w->n_events == 2 && w->events[0].request == id && !w->events[0].draw,
	   "both plans fail: one event a request");
	st = world_stats(w);
	ok(!st.running && !st.cache.nodes,
	   "and the cache is empty: what the device wrote is not to be trusted");
}

/* A device error ends paused requests as well, and leaves no pages and states in the cache. */
TEST(fail_paused)
{
	struct scheduler_config c = world_config(2, 11, 64);
	struct world *w = world_new(&c);
	uint64_t a = world_submit(w, "aaaaaaaa", 6), b = world_submit(w, "bbbbbbbb", 6);
	struct scheduler_stats st;

	for (int i = 0; i < 3; i++) {
		check(strcmp(world_plan(w), "nothing") != 0);
		world_commit(w, 1);
	}
	world_submit(w, "cccccccccccc", 1);
	plan_is(w, "@10!", "one of two decodes, the other pauses, a third waits");
	w->n_events = scheduler_fail(w->s, w->events);
	ok(w->n_events == 2 && w->events[0].request == a && w->events[1].request == b &&
		   !w->events[1].draw && w->events[1].request_finished,
	   "the device fails: both end");
	st = world_stats(w);
	ok(st.running == 0 && st.waiting == 1 && st.cache.nodes == 0 &&
		   st.cache.free_pages == c.n_pages && st.cache.free_slots == c.n_slots,
	   "nothing of what it had is kept, and all is free");
	world_run(w, 1);
	ok(w->n_events == 1 && w->events[0].request_finished && w->events[0].hit.n_cached == 0,
	   "who waited runs");
}

/* Commits the newest plan: choice 0 draws `token`, choice 1 `token` + 1, and so on. */
static void commit_by_choice(struct world *w, int32_t token)
{
	for (uint32_t i = 0; i < w->plan->n_draws; i++)
		w->results[i] =
			(struct draw_result){.token = token + (int32_t)w->plan->draws[i].choice};
	w->n_events = scheduler_commit(w->s, w->results, w->events);
}

/* Runs until a request is retracted; the plan that is made then is not committed. False: none was. */
static bool run_until_retraction(struct world *w, int32_t token)
{
	for (int i = 0; i < 100; i++) {
		w->plan = scheduler_plan(w->s);
		if (!w->plan)
			return false;
		if (world_stats(w).retractions)
			return true;
		commit_by_choice(w, token);
	}
	return false;
}

TEST(coming_back)
{
	struct scheduler_config c = world_config(4, 14, 64);
	struct world *w;
	uint64_t a;

	/* 28 tokens of memory; both want 20. */
	w = world_new(&c);
	a = world_submit(w, "aaaaaa", 14);
	world_submit(w, "bbbbbb", 14);
	ok(run_until_retraction(w, 'x'), "two that do not fit together: one is retracted");
	ok(world_stats(w).running == 1 && world_stats(w).waiting == 1, "and waits");
	world_commit(w, END);
	ok(w->n_events == 1 && w->events[0].request != a, "the older one");
	world_run(w, 'x');
	ok(w->n_events == 1 && w->events[0].request == a && w->events[0].finish == FINISH_LENGTH,
	   "it comes back when the other one is through");
	ok(world_stats(w).replayed_tokens < 4 && world_stats(w).running == 0,
	   "and computes again what is behind its newest state: %d tokens",
	   (int)world_stats(w).replayed_tokens);

	/* The same when the cache keeps no decoded pages. */
	c.refuse_decoded = true;
	w = world_new(&c);
	world_submit(w, "aaaaaa", 14);
	world_submit(w, "bbbbbb", 14);
	ok(run_until_retraction(w, 'x'), "decoded tokens are refused: one is retracted");
	world_commit(w, 'x');
	world_run(w, 'x');
	ok(world_stats(w).replayed_tokens >= 6,
	   "and replays all that it had generated, token by token");

	/* A cached state leaves no room for the request's own: if no other runs, the request begins without the
	 * cache. */
	c = world_config(2, 10, 64);
	c.n_slots = c.max_seqs = 1;
	w = world_new(&c);
	world_submit(w, "aabb", 1);
	world_run(w, 1);
	world_submit(w, "aabb", 1);
	step_is(w, 1, "a0+4!", "one slot only: alone a request always fits");
	ok(w->events[0].request_finished && w->events[0].hit.n_cached == 0, "and completes");
}

/* When a retracted request comes back, its choices are forked behind its prompt, from a state that is written by
 * then. */
TEST(choices_coming_back)
{
	struct scheduler_config c = world_config(2, 12, 64);
	struct world *w = world_new(&c);
	struct scheduler_request r = world_request("aaaaa", 8);
	uint32_t forks = 0;

	r.n_choices = 2;
	world_submit_request(w, &r);
	world_submit(w, "bbb", 12);
	ok(run_until_retraction(w, 'x'), "a request of two choices is retracted");
	commit_by_choice(w, 'x');
	for (int i = 0; i < 100 && (w->plan = scheduler_plan(w->s)); i++) {
		/* A fork copies states that an earlier plan wrote. */
		for (uint32_t k = 0; k < w->plan->n_state_copies; k++) {
			for (uint32_t n = 0; n < w->plan->n_prefill_rows; n++)
				check(w->plan->rows[n].state_dst != w->plan->state_copies[k].src);
			forks++;
		}
		commit_by_choice(w, 'x');
	}
	ok_all("its choices are forked in the plan after its prompt's");
	ok(forks == 1 && !world_stats(w).running && !world_stats(w).waiting, "and all complete");
}

/* Log-probabilities of a prompt's tokens. */
TEST(scores)
{
	struct scheduler_config c = world_config(2, 40, 4);
	struct world *w = world_new(&c);
	struct scheduler_request r = world_request("abcdefg", 2);
	const struct plan_score *s;

	world_run(w, 'x');
	world_submit_request(w, &r);
	world_run(w, 'x');
	r = world_request("abcdefg", 2);
	r.prompt_logprobs = true;
	r.n_prompt_logprobs = 3;
	world_submit_request(w, &r);
	plan_is(w, "a0+4", "they need every token computed, whatever is known");
	s = w->plan->scores;
	ok(w->plan->n_scores == 1 && w->plan->n_scored_tokens == 4 && s->row == 0 &&
		   s->n_tokens == 4 && s->n_top == 3 && s->next[0] == 'b' && s->next[3] == 'e',
	   "behind each of a window is one that is known");
	for (uint32_t i = 0; i < 4; i++)
		w->results[i].rank = i + 1;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 1 && !w->events[0].draw && w->events[0].scores == w->results &&
		   w->events[0].first_score == 1 && w->events[0].n_scores == 4 &&
		   !w->events[0].request_finished && w->events[0].hit.miss == PREFIX_MISS_LOGPROBS,
	   "an event says so, and why nothing was found");
	plan_is(w, "e4+3^6!", "the last window draws");
	ok(w->plan->n_scored_tokens == 2 && w->plan->scores[0].next[0] == 'f',
	   "and nobody knows what comes behind its last token");
	world_commit(w, 'x');
	ok(w->n_events == 2 && w->events[0].first_score == 5 && w->events[0].n_scores == 2 &&
		   w->events[0].scores == w->results + 1 && w->events[1].draw == w->results,
	   "first the prompt, then what is drawn");
	world_run(w, 'x');
	is_int(world_stats(w).misses[PREFIX_MISS_LOGPROBS], 1, "counted once");
	r = world_request("abcdefg", 2);
	world_submit_request(w, &r);
	step_is(w, 'x', "g6+1!", "whoever does not ask finds what is known");
	world_run(w, 'x');

	/* Others may use the pages of such a request; the first token of a prompt has no log-probability. */
	w = world_new(&c);
	r = world_request("abcdefg", 1);
	r.prompt_logprobs = true;
	world_submit_request(w, &r);
	world_run(w, 'x');
	world_submit(w, "abcdefg", 1);
	step_is(w, 'x', "g6+1!", "what it computed is remembered");
	r = world_request("z", 1);
	r.prompt_logprobs = true;
	world_submit_request(w, &r);
	plan_is(w, "z0+1!", "a prompt of one token");
	ok(!w->plan->n_scores, "has nothing to say");
	world_commit(w, 'x');
	r = world_request("abc", 1);
	r.n_prompt_logprobs = TOP_LOGPROBS_MAX + 1;
	ok(scheduler_submit(w->s, &r, &(uint64_t){0}, NULL) == -EINVAL, "too many of the best");
}

/* Log-probabilities of the end of a prompt, of a request that draws nothing. */
TEST(scores_of_the_end)
{
	struct scheduler_config c = world_config(0, 40, 8);
	struct world *w = world_new(&c);
	struct scheduler_request r;
	const struct plan_score *s;

	world_submit(w, "abcdxx", 1);
	world_run(w, 'x');
	r = world_request("abcdefg", 0);
	r.prompt_logprobs = true;
	r.first_score = 5;
	world_submit_request(w, &r);
	plan_is(w, "e4+3", "tokens before those that are scored may be cached");
	s = w->plan->scores;
	ok(w->plan->n_scores == 1 && s->first == 0 && s->n_tokens == 2 && s->next[0] == 'f',
	   "the first token behind the cached ones is known");
	world_commit(w, 'x');
	ok(w->n_events == 2 && w->events[0].first_score == 5 && !w->events[0].request_finished &&
		   w->events[0].hit.n_cached == 4,
	   "scores of the last two");
	ok(w->events[1].request_finished && !w->events[1].draw && !w->events[1].scores &&
		   w->events[1].finish == FINISH_LENGTH && !w->events[1].pooled,
	   "then the end");
	r = world_request("abcdefg", 0);
	r.prompt_logprobs = true;
	r.first_score = 4;
	world_submit_request(w, &r);
	plan_is(w, "c2+5", "the token before the first one that is scored is computed");
	ok(w->plan->scores[0].first == 1 && w->plan->scores[0].n_tokens == 3 &&
		   w->plan->scores[0].next[0] == 'e',
	   "scores of earlier tokens are not asked for");
	world_commit(w, 'x');
	r.first_score = 8;
	ok(scheduler_submit(w->s, &r, &(uint64_t){0}, NULL) == -EINVAL,
	   "a first score behind the prompt is refused");
	ok(world_at_baseline(w), "nothing is left");
}

/* Vectors of hidden states, of requests that draw nothing. */
TEST(poolings)
{
	struct scheduler_config c = world_config(2, 40, 4);
	struct world *w = world_new(&c);
	struct scheduler_request r = world_request("abcdefg", 0);
	const struct plan_pooling *p;
	uint32_t seat;

	r.pooling = POOLING_LAST;
	world_submit_request(w, &r);
	plan_is(w, "a0+4", "a prompt in two windows");
	is_int(w->plan->n_poolings, 0, "the first one does not have its last token");
	world_commit(w, 'x');
	is_int(w->n_events, 0, "and no event");
	plan_is(w, "e4+3^6", "the second one draws nothing");
	p = w->plan->poolings;
	ok(w->plan->n_poolings == 1 && p->row == 0 && p->first == 2 && p->begins && p->ends,
	   "its last token is pooled");
	world_commit(w, 'x');
	ok(w->n_events == 1 && w->events[0].request_finished && w->events[0].pooled &&
		   w->events[0].pooling == 0 && w->events[0].finish == FINISH_LENGTH,
	   "the event names the pooling");
	world_submit_request(w, &r);
	plan_is(w, "g6+1", "a cached prefix is used");
	world_commit(w, 'x');

	r.pooling = POOLING_MEAN;
	world_submit_request(w, &r);
	world_submit(w, "zz", 1);
	plan_is(w, "a0+4", "the mean needs every token computed");
	p = w->plan->poolings;
	ok(w->plan->n_poolings == 1 && p->first == 0 && p->begins && !p->ends,
	   "its sum begins with the first window");
	seat = p->seat;
	world_commit(w, 'x');
	plan_is(w, "e4+3^6", "and goes on");
	p = w->plan->poolings;
	ok(p->first == 0 && !p->begins && p->ends && p->seat == seat, "in the same seat");
	world_commit(w, 'x');
	ok(w->n_events == 1 && w->events[0].pooled &&
		   w->events[0].hit.miss == PREFIX_MISS_MEAN_POOLING,
	   "to its end");
	world_run(w, 'x');

	r.max_tokens = 1;
	ok(scheduler_submit(w->s, &r, &(uint64_t){0}, NULL) == -EINVAL, "it draws nothing");
	r.max_tokens = 0;
	r.n_choices = 2;
	ok(scheduler_submit(w->s, &r, &(uint64_t){0}, NULL) == -EINVAL, "and has one choice");
	ok(world_at_baseline(w), "nothing is left");
}

/* Pages of generated tokens can have other bits than those of a prompt, so no vector follows from them. */
TEST(poolings_of_decoded)
{
	struct scheduler_config c = world_config(2, 40, 8);
	struct world *w = world_new(&c);
	struct scheduler_request r;

	world_submit(w, "abc", 5);
	world_run(w, 'x');
	world_submit(w, "abcxxxy", 1);
	step_is(w, 'x', "y6+1!", "a request that draws uses them");
	world_run(w, 'x');
	r = world_request("abcxxxz", 0);
	r.pooling = POOLING_LAST;
	world_submit_request(w, &r);
	step_is(w, 'x', "c2+5^6", "a vector is made from prefilled ones alone");
	world_run(w, 'x');
}

TEST_MAIN()
