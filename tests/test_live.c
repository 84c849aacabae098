/* daemon/steps/live.c over a scheduler without a device: the records that a call gets of its prompts, and the numbers
 * that are counted for them. */
#include "daemon/steps/live.h"

#include <errno.h>

#include "base/log.h"
#include "daemon/lifecycle.h"
#include "tests/scheduler_world.h"

enum { PROMPT = 6 }; /* tokens of each prompt */

static struct server server;
static struct live live;
static const struct endpoint endpoint = {.id = "cmpl-", .parse = openai_parse_completion};

/* Makes a call of n_parts prompts, each of which has n choices. */
static struct call *make_call(enum openai_task task, uint32_t n_parts, uint32_t n)
{
	struct call *c = call_new(&server, &endpoint);
	struct err e = {0};

	c->text.ask.task = task;
	c->text.ask.best_of = c->text.ask.n = c->text.n = n;
	c->text.ask.sampling.top_p = c->text.ask.sampling.repetition_penalty = 1;
	c->text.n_parts = n_parts;
	c->text.n_choices = n_parts * n;
	c->text.parts = arena_array(&c->text.arena, n_parts, sizeof(*c->text.parts));
	c->text.choices = arena_array(&c->text.arena, n_parts * n, sizeof(*c->text.choices));
	c->shared.stop_wanted =
		arena_array(&c->text.arena, n_parts * n, sizeof(*c->shared.stop_wanted));
	for (uint32_t i = 0; i < n_parts; i++) {
		struct call_part *p = &c->text.parts[i];

		for (uint32_t k = 0; k < PROMPT; k++)
			check(ids_push(&p->prompt, (int32_t)((i * PROMPT + k) % WORLD_END)) == 0);
		p->n_prompt = PROMPT;
		p->first_score = 4;
	}
	check(call_arrive(c, &e) == 0);
	return c;
}

/* Runs steps until nothing is left to compute. */
static void run(struct world *w)
{
	while (world_plan(w), w->plan) {
		live_planned(&live, w->plan->step);
		world_commit(w, 'x');
		live_deliver(&live, w->events, w->n_events);
	}
}

static void suspend(void *connection)
{
}

/* The records that http finds in a call: the ends of choices. */
struct records {
	uint32_t n, stops, lengths;
};

static struct records take(struct call *c)
{
	struct records all = {0};
	enum finish_reason finish;
	struct draw_result draw;
	struct call_news news;
	struct buf tokens;
	uint32_t of;
	size_t at = 0;

	buf_init(&tokens, 1 << 20);
	call_take(c, &tokens, suspend, &news);
	check(news.stage == CALL_ENDED && !news.failure.code);
	for (; call_record(&tokens, &at, &of, &finish, &draw); all.n++) {
		check(of == all.n);
		all.stops += finish == FINISH_STOP;
		all.lengths += finish == FINISH_LENGTH;
	}
	buf_release(&tokens);
	return all;
}

static struct world *new_world(void)
{
	const struct scheduler_config config = world_config(0, 64, 8);
	struct world *w = world_new(&config);

	live.scheduler = w->s;
	return w;
}

/* A score is all that was asked for, so its end is no cut. */
TEST(end_of_a_score)
{
	struct world *w = new_world();
	struct call *c = make_call(TASK_SCORE, 2, 1);
	struct records got;

	live_submit(&live, call_ref(c));
	run(w);
	got = take(c);
	ok(got.n == 2 && got.stops == 2 && atomic_load(&c->report.finished[METRICS_STOP]) == 2,
	   "the records and the log say that it stopped");
	is_int((long long)atomic_load(&server.metrics.scored_texts), 2, "two are counted");
	call_unref(c);
	ok(world_at_baseline(w), "nothing is left");
}

/* max_tokens 0: the prompt is computed once, nothing is drawn, and all choices end there. */
TEST(prompt_only)
{
	struct world *w = new_world();
	struct call *c = make_call(TASK_GENERATE, 2, 3);
	uint64_t generated = atomic_load(&server.metrics.generation_tokens);
	uint32_t n_rows = 0, n_draws = 0;
	struct records got;

	c->text.ask.prompt_only = true;
	live_submit(&live, call_ref(c));
	while (world_plan(w), w->plan) {
		n_rows += w->plan->n_rows;
		n_draws += w->plan->n_draws;
		live_planned(&live, w->plan->step);
		world_commit(w, WORLD_END);
		live_deliver(&live, w->events, w->n_events);
	}
	is_int(n_draws, 0, "nothing is drawn");
	is_int(n_rows, 3, "two prompts of six tokens are three rows of at most eight a step");
	got = take(c);
	ok(got.n == 6 && got.lengths == 6 && atomic_load(&c->report.finished[METRICS_LENGTH]) == 6,
	   "six choices are cut");
	ok(atomic_load(&server.metrics.generation_tokens) == generated &&
		   !atomic_load(&c->report.n_generated) &&
		   atomic_load(&server.metrics.scored_texts) == 2,
	   "no token is counted, nor a score");
	call_unref(c);
	ok(world_at_baseline(w), "nothing is left");
}

/* Returns how many prompts of a call the scheduler has that are not computed. */
static uint32_t ahead(const struct call *c)
{
	return c->engine.n_submitted - c->engine.n_prefilled;
}

/* A call of more prompts than the queue has places waits as one, in parts. */
TEST(parts)
{
	struct world *w = new_world();
	struct call *many = make_call(TASK_SCORE, 200, 1), *one;
	uint32_t most = 0, behind = 0, n;
	struct records got;

	many->owner = 1;
	live_submit(&live, call_ref(many));
	is_int(ahead(many), 2 * server.options.max_num_seqs, "so many prompts are ahead");
	is_int((long long)live.n_behind, 200 - ahead(many), "the others are behind");
	is_int((long long)atomic_load(&server.queued[QUEUE_REQUESTS]), 1,
	       "it waits as one request");
	one = make_call(TASK_SCORE, 1, 1);
	one->owner = 2;
	live_submit(&live, call_ref(one));
	while (world_plan(w), w->plan) {
		live_planned(&live, w->plan->step);
		world_commit(w, 'x');
		live_deliver(&live, w->events, w->n_events);
		most = MAX(most, ahead(many));
		if (one->engine.n_prefilled && !behind)
			behind = 200 - many->engine.n_prefilled;
	}
	is_int(most, 2 * server.options.max_num_seqs, "never more");
	ok(behind > 180, "a request that came later had its turn before %u of them", behind);
	got = take(many);
	ok(got.n == 200 && got.stops == 200, "all are computed, in their order");
	n = take(one).n;
	is_int(n, 1, "and the other one");
	call_unref(many);
	call_unref(one);
	ok(!live.n_ahead && !live.n_behind && !atomic_load(&server.queued[QUEUE_REQUESTS]) &&
		   world_at_baseline(w),
	   "nothing is left");
}

/* Many calls together: each has one prompt ahead at least, and further ones while there is room. */
TEST(parts_of_many_calls)
{
	struct world *w = new_world();
	struct call *calls[20];

	for (int i = 0; i < 20; i++)
		calls[i] = make_call(TASK_SCORE, 5, 1);
	server.options.max_queued_requests = 10;
	for (int i = 0; i < 20; i++) {
		live_submit(&live, call_ref(calls[i]));
		check(ahead(calls[i]) == (i < 2 ? 4u : i == 2 ? 2u : 1u));
	}
	is_int((long long)live.n_ahead, 27, "ten places, and one of each call beyond them");
	call_abort(calls[0]);
	call_abort(calls[19]);
	live_control(&live, calls[0]);
	live_control(&live, calls[19]);
	ok(live.n_ahead == 22 && live.n_behind == 68, "calls that leave take theirs along");
	run(w);
	for (int i = 0; i < 20; i++) {
		check(i % 19 == 0 || take(calls[i]).n == 5);
		call_unref(calls[i]);
	}
	ok_all("the others have all their results");
	while (queue_pop(&server.inbox))
		;
	ok(!live.n_ahead && !live.n_behind && world_at_baseline(w), "nothing is left");
	server.options.max_queued_requests = 1024;
}

/* A prompt that the scheduler does not accept fails its call, also when others of it have been computed. */
TEST(part_refused)
{
	for (uint32_t bad = 0; bad < 200; bad += 199) {
		struct world *w = new_world();
		struct call *c = make_call(TASK_SCORE, 200, 1);
		struct call_news news;
		struct buf tokens;

		c->text.parts[bad].prompt.v[2] = WORLD_VOCAB;
		live_submit(&live, call_ref(c));
		run(w);
		buf_init(&tokens, 1 << 20);
		call_take(c, &tokens, suspend, &news);
		ok(news.failure.code == EINVAL && strstr(news.failure.text, "vocabulary"),
		   "number %u: %s", bad, news.failure.text);
		buf_release(&tokens);
		call_unref(c);
		ok(!live.n_ahead && !live.n_behind && world_at_baseline(w), "nothing is left");
	}
}

int main(void)
{
	struct err e = {0};

	role_begin(&role_engine);
	log_set_level(LOG_LEVEL_ERROR);
	metrics_init(&server.metrics);
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	server.options.max_queued_requests = 1024;
	server.options.max_num_seqs = 2;
	queue_init(&server.inbox);
	live.server = &server;
	list_init(&live.calls);
	live.touched = calloc(WORLD_SEQS_MAX, sizeof(*live.touched));
	live.steered = calloc(WORLD_SEQS_MAX, sizeof(*live.steered));
	run_tests();
	free(live.touched);
	free(live.steered);
	queue_release(&server.inbox);
	lifecycle_free(server.lifecycle);
	ok_all("no more");
	return done();
}
