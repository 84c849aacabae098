/* The part of a call that http and the other threads share: no token and no wake-up is lost, and a connection is
 * resumed only when it is suspended. A semaphore stands for libmicrohttpd. */
#include "daemon/request/call.h"

#include <errno.h>
#include <semaphore.h>
#include <unistd.h>

#include "base/log.h"
#include "base/problem.h"
#include "daemon/lifecycle.h"
#include "daemon/request/responses.h"
#include "daemon/request/text.h"
#include "daemon/steps/loop.h"
#include "tests/tap.h"

enum { TOKENS = 20000, CHOICES = 3 };

static struct server server;
/* times that a text thread has entered wait_for_end, since a test set this to 0 */
static _Atomic int n_busy;
static const struct endpoint endpoint = {.id = "cmpl-", .parse = openai_parse_completion};

/* Stands for a connection of libmicrohttpd: `resumed` is posted when the connection is resumed. */
struct connection_double {
	sem_t resumed;
	_Atomic int suspended; /* 1 between suspend and resume */
	_Atomic int wrong; /* how often it was resumed while awake, or suspended while suspended */
};

static void suspend(void *connection)
{
	struct connection_double *c = connection;

	if (atomic_exchange(&c->suspended, 1))
		atomic_fetch_add(&c->wrong, 1);
}

static void resume(void *connection)
{
	struct connection_double *c = connection;

	if (!atomic_exchange(&c->suspended, 0))
		atomic_fetch_add(&c->wrong, 1);
	sem_post(&c->resumed);
}

static struct call *new_call(struct connection_double *connection)
{
	struct call *c = call_new(&server, &endpoint);
	struct err e = {0};

	sem_init(&connection->resumed, 0, 0);
	c->http.connection = connection;
	c->http.resume = resume;
	c->text.n = c->text.n_choices = CHOICES;
	c->text.ask.stream = true;
	c->text.ask.sampling.want_logprobs = true;
	c->shared.stop_wanted =
		arena_array(&c->text.arena, CHOICES, sizeof(*c->shared.stop_wanted));
	check(call_arrive(c, &e) == 0);
	return c;
}

/* Does the engine thread's part: pushes tokens that count up, for each choice in turn, at varying pace. */
static void *produce(void *arg)
{
	struct call *c = arg;

	call_accept(c);
	for (int i = 0; i < TOKENS; i++) {
		struct draw_result draw = {.token = i,
					   .logprob = (float)-i,
					   .n_top = (uint32_t)i % 3};

		for (uint32_t k = 0; k < draw.n_top; k++) {
			draw.top_ids[k] = i + (int32_t)k;
			draw.top_logprobs[k] = (float)k;
		}
		check(call_push(c, (uint32_t)i % CHOICES, FINISH_NONE, &draw) == 0);
		if (i % 7)
			call_wake(c);
		if (i % 1000 == 0)
			usleep(200);
	}
	call_end(c);
	call_wake(c);
	call_unref(c);
	return NULL;
}

static int take_records(const struct buf *tokens, int next)
{
	enum finish_reason finish;
	struct draw_result draw;
	uint32_t choice;
	size_t at = 0;

	while (call_record(tokens, &at, &choice, &finish, &draw)) {
		check(draw.token == next && choice == (uint32_t)next % CHOICES);
		check(draw.logprob == (float)-next && draw.n_top == (uint32_t)next % 3);
		check(!draw.n_top || (draw.top_ids[draw.n_top - 1] == next + (int)draw.n_top - 1 &&
				      draw.top_logprobs[0] == 0));
		next++;
	}
	return next;
}

TEST(tokens)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct call_news news = {0};
	pthread_t thread;
	int next = 0, sleeps = 0;

	pthread_create(&thread, NULL, produce, call_ref(c));
	while (news.stage != CALL_ENDED) {
		struct buf tokens;

		buf_init(&tokens, SIZE_MAX / 2);
		call_take(c, &tokens, suspend, &news);
		if (news.slept) {
			sem_wait(&connection.resumed);
			sleeps++;
		}
		next = take_records(&tokens, next);
		buf_release(&tokens);
	}
	pthread_join(thread, NULL);
	ok_all("records arrive whole and in order");
	is_int(next, TOKENS, "all of them (%d sleeps)", sleeps);
	is_int(atomic_load(&connection.wrong), 0, "never resumed awake, never suspended twice");
	call_unref(c);
}

/* Waits up to two seconds until n calls are left. */
static void wait_for_calls(uint32_t n)
{
	for (int i = 0; i < 2000 && atomic_load(&server.calls) > n; i++)
		usleep(1000);
	check(atomic_load(&server.calls) == n);
}

TEST(cancelling)
{
	struct connection_double connection = {0};
	struct call *a = new_call(&connection), *b = new_call(&connection),
		    *c = new_call(&connection);
	struct call *found;
	struct call_news news;
	struct buf tokens;
	struct err e = {0};
	char id[sizeof(b->id)];

	buf_init(&tokens, 1 << 20);
	for (int i = 0; i < 3; i++) {
		struct call *want = i == 0 ? a : i == 1 ? b : c;

		found = call_find(&server, want->id);
		ok(found == want && atomic_load(&want->refs) == 2, "found by its id");
		call_unref(found);
	}
	ok(!call_find(&server, "") && !call_find(&server, "cmpl-"), "no part of an id");
	snprintf(c->client_id, sizeof(c->client_id), "%s", a->id);
	found = call_find(&server, a->id);
	ok(found == a, "not a newer call whose client gave it the same id");
	call_unref(found);
	snprintf(c->client_id, sizeof(c->client_id), "mine");
	found = call_find(&server, "mine");
	ok(found == c, "found by the id that its client gave it");
	call_unref(found);
	err_set(&e, PROBLEM_ABORTED, "ended");
	call_cancel(b, &e);
	ok(atomic_load(&b->aborted) && !atomic_load(&b->queued[QUEUE_REQUESTS]),
	   "a call is cancelled: it waits no more");
	call_accept(b);
	call_take(b, &tokens, suspend, &news);
	ok(!news.slept && news.stage == CALL_ANSWERED && news.failure.code == PROBLEM_ABORTED,
	   "its client gets the error, even if it is accepted just then");
	snprintf(id, sizeof(id), "%s", b->id);
	call_unref(b);
	wait_for_calls(2); /* the engine thread drops the reference that its message has */
	ok(!call_find(&server, id), "when it is gone it is not found");
	call_accept(c);
	call_cancel(c, &e);
	call_take(c, &tokens, suspend, &news);
	ok(news.stage == CALL_ENDED && news.failure.code == PROBLEM_ABORTED, "one that runs ends");
	call_unref(c);
	call_unref(a);
	wait_for_calls(0);
	check(!server.arrived.oldest && !server.arrived.newest);
	ok_all("none is left");
}

TEST(stages)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct call_news news;
	struct buf tokens;
	struct err e = {0};

	buf_init(&tokens, 1 << 20);
	call_take(c, &tokens, suspend, &news);
	ok(news.slept, "sleeps while nothing is known");
	call_accept(c);
	ok(!atomic_load(&connection.suspended), "is woken when it runs");
	call_take(c, &tokens, suspend, &news);
	ok(!news.slept && news.stage == CALL_RUNNING, "which is news once");
	call_take(c, &tokens, suspend, &news);
	ok(news.slept, "and then no more");
	call_tick(c, UINT64_MAX);
	call_take(c, &tokens, suspend, &news);
	ok(!news.slept && news.comment_due, "a silent stream is woken for a comment");
	call_take(c, &tokens, suspend, &news);
	call_tick(c, 1);
	ok(news.slept && atomic_load(&connection.suspended), "not before its time");
	err_set(&e, EIO, "lost");
	call_fail(c, &e);
	call_take(c, &tokens, suspend, &news);
	ok(news.stage == CALL_ENDED && news.failure.code == EIO, "a failure ends it");
	err_set(&e, ENOMEM, "second");
	call_fail(c, &e);
	call_take(c, &tokens, suspend, &news);
	ok(!news.slept && news.failure.code == EIO, "the first one counts, and it sleeps no more");
	is_int(atomic_load(&server.queued[QUEUE_REQUESTS]), 0, "it waits no more");
	is_int(atomic_load(&server.calls), 1, "it is still there");
	call_unref(c);
	is_int(atomic_load(&server.calls), 0, "and then gone");

	c = new_call(&connection);
	call_fail(c, &e);
	call_take(c, &tokens, suspend, &news);
	ok(news.stage == CALL_ANSWERED && news.failure.code == ENOMEM,
	   "a failure before it runs is the answer");
	call_unref(c);

	c = new_call(&connection);
	call_take(c, &tokens, suspend, &news);
	call_close(c);
	call_take(c, &tokens, suspend, &news);
	ok(!news.slept && news.closing, "nothing sleeps while the daemon closes");
	call_unref(c);
	is_int(atomic_load(&connection.wrong), 0, "never resumed awake, never suspended twice");
}

/* An answer counts with all the memory of its buffers, which grow by doubling. */
TEST(kept)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct draw_result draw = {.n_top = TOP_LOGPROBS_MAX};
	struct call_news news;
	struct buf tokens, body;

	call_accept(c);
	for (int i = 0; i < 300; i++) {
		check(call_push(c, 0, FINISH_NONE, &draw) == 0);
		check(atomic_load(&c->kept) == c->shared.tokens.cap);
	}
	check(c->shared.tokens.cap > c->shared.tokens.len + 10000);
	ok_all("records count with their buffer");
	buf_init(&tokens, SIZE_MAX / 2);
	check(buf_reserve(&tokens, 1000) == 0);
	call_take(c, &tokens, suspend, &news);
	is_int((long long)atomic_load(&c->kept), 1001, "once http has them, with its empty one");
	buf_init(&body, 1 << 20);
	buf_puts(&body, "an answer");
	check(buf_reserve(&body, 5000) == 0);
	call_reply(c, &body);
	is_int((long long)atomic_load(&c->kept), 1001 + 5010, "and so does a body");
	call_take_reply(c, &body);
	is_int((long long)atomic_load(&c->kept), 1001, "until http has it");
	buf_release(&body);
	buf_release(&tokens);
	call_unref(c);
	is_int((long long)atomic_load(&server.metrics.unread_bytes), 0, "nothing is left");
}

/* A body that comes when the call has failed is freed, and not counted. */
TEST(late_reply)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct call_news news;
	struct buf tokens, body;
	struct err e = {0};

	buf_init(&tokens, 1 << 20);
	buf_init(&body, 1 << 20);
	buf_puts(&body, "an answer");
	err_set(&e, PROBLEM_ABORTED, "ended");
	call_accept(c);
	call_fail(c, &e);
	call_reply(c, &body);
	ok(!body.data && !c->shared.reply.data, "a body that comes after a failure is freed");
	is_int((long long)atomic_load(&c->kept), 0, "and not counted");
	call_take(c, &tokens, suspend, &news);
	ok(news.stage == CALL_ENDED && news.failure.code == PROBLEM_ABORTED,
	   "the error stays, and the stage");
	call_unref(c);
}

/* Suspends the connection of a call for which there is no news. */
static void sleep_call(struct call *c)
{
	struct call_news news;
	struct buf tokens;

	buf_init(&tokens, 1 << 20);
	do
		call_take(c, &tokens, suspend, &news);
	while (!news.slept);
	buf_release(&tokens);
}

/* Of several calls that sleep, one is woken, and http wakes the others. */
TEST(wake_all)
{
	struct connection_double connections[4] = {0};
	struct call *calls[4];
	int wrong = 0;

	for (int i = 0; i < 4; i++) {
		calls[i] = new_call(&connections[i]);
		call_accept(calls[i]);
		if (i) /* the first call is awake */
			sleep_call(calls[i]);
	}
	call_wake_all(calls, 4);
	ok(!atomic_load(&connections[1].suspended) && atomic_load(&connections[2].suspended) &&
		   atomic_load(&connections[3].suspended),
	   "of the calls that sleep, one is woken");
	call_wake_all(calls, 4);
	ok(atomic_load(&connections[2].suspended) && atomic_load(&connections[3].suspended),
	   "once more: those that http is to wake are left to it");
	call_close(calls[3]);
	ok(!atomic_load(&connections[3].suspended), "any thread may wake one of these before");
	call_wake_others(calls[0]);
	ok(atomic_load(&connections[2].suspended), "a call that woke by itself wakes no other");
	call_wake_others(calls[1]);
	ok(!atomic_load(&connections[2].suspended), "the one that was woken wakes the rest");
	sleep_call(calls[2]);
	call_wake_others(calls[1]);
	ok(atomic_load(&connections[2].suspended), "once");
	call_wake_all(&calls[2], 1);
	ok(!atomic_load(&connections[2].suspended), "and it can be woken again");
	call_wake_all(calls, 0);
	for (int i = 0; i < 4; i++) {
		wrong += atomic_load(&connections[i].wrong);
		call_unref(calls[i]);
	}
	is_int(wrong, 0, "never resumed awake, never suspended twice");
	is_int(atomic_load(&server.calls), 0, "no reference is left");
}

enum { STREAMS = 5 };

/* Does the engine thread's part for several calls: a token of each in every step. */
static void *produce_steps(void *arg)
{
	struct call **calls = arg, *wake[STREAMS];

	for (int i = 0; i < TOKENS / STREAMS; i++) {
		struct draw_result draw = {.token = i};
		uint32_t n = 0;

		for (int k = 0; k < STREAMS; k++) {
			check(call_push(calls[k], 0, FINISH_NONE, &draw) == 0);
			if ((i + k) % 4) /* the set of calls differs from step to step */
				wake[n++] = calls[k];
		}
		call_wake_all(wake, n);
		if (i % 100 == 0)
			usleep(100);
	}
	for (int k = 0; k < STREAMS; k++) {
		call_end(calls[k]);
		call_wake(calls[k]);
	}
	return NULL;
}

/* Does the watch thread's part: wakes streams for comments. */
static void *tick_streams(void *arg)
{
	struct call **calls = arg;

	for (int i = 0; i < TOKENS; i++)
		call_tick(calls[i % STREAMS], UINT64_MAX);
	return NULL;
}

/* Three threads as in tigond: whichever of them wakes a call, no wake is lost. */
TEST(chains)
{
	struct connection_double connections[STREAMS] = {0};
	struct call *calls[STREAMS];
	pthread_t engine, watch;
	int n_ended = 0, n_tokens[STREAMS] = {0}, wrong = 0;
	bool ended[STREAMS] = {0};

	for (int k = 0; k < STREAMS; k++) {
		calls[k] = new_call(&connections[k]);
		call_accept(calls[k]);
	}
	pthread_create(&engine, NULL, produce_steps, calls);
	pthread_create(&watch, NULL, tick_streams, calls);
	while (n_ended < STREAMS) {
		for (int k = 0; k < STREAMS; k++) {
			enum finish_reason finish;
			struct draw_result draw;
			struct call_news news;
			struct buf tokens;
			uint32_t choice;
			size_t at = 0;

			if (ended[k] || atomic_load(&connections[k].suspended))
				continue;
			buf_init(&tokens, SIZE_MAX / 2);
			call_wake_others(calls[k]);
			call_take(calls[k], &tokens, suspend, &news);
			while (call_record(&tokens, &at, &choice, &finish, &draw))
				check(draw.token == n_tokens[k]++);
			ended[k] = news.stage == CALL_ENDED;
			n_ended += ended[k];
			buf_release(&tokens);
		}
	}
	pthread_join(engine, NULL);
	pthread_join(watch, NULL);
	for (int k = 0; k < STREAMS; k++) {
		check(n_tokens[k] == TOKENS / STREAMS);
		wrong += atomic_load(&connections[k].wrong);
		call_wake_others(calls[k]);
	}
	for (int k = 0; k < STREAMS; k++)
		call_unref(calls[k]);
	ok_all("all tokens of all streams arrive");
	is_int(wrong, 0, "never resumed awake, never suspended twice");
	is_int(atomic_load(&server.calls), 0, "no reference is left");
}

/* The hits of a call: none is reported before it is known, those of its prompts add up, and the first reason for a miss
 * counts. */
TEST(hit)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	char text[80] = "untouched";

	ok(!call_describe_hit(c, text, sizeof(text)), "nothing is known");
	is_str(text, "untouched", "or said");
	call_hit(c, &(struct scheduler_hit){.n_cached = 128, .miss = PREFIX_MISS_NONE});
	ok(call_describe_hit(c, text, sizeof(text)), "a first prompt");
	is_str(text, "cached=128; reason=none", "that was found whole");
	call_hit(c, &(struct scheduler_hit){.n_cached = 64, .miss = PREFIX_MISS_EVICTED_STATE});
	call_hit(c, &(struct scheduler_hit){.n_cached = 0, .miss = PREFIX_MISS_COLD});
	call_describe_hit(c, text, sizeof(text));
	is_str(text, "cached=192; reason=evicted-state", "the sum, and the first reason");
	call_unref(c);
}

/* The engine thread has no model here and fails every call; it still drops the calls that it gets. */
TEST(abort)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct call_news news;
	struct buf tokens;

	buf_init(&tokens, 1 << 20);
	call_take(c, &tokens, suspend, &news);
	call_abort(c);
	ok(!atomic_load(&connection.suspended), "an abort wakes");
	call_abort(c);
	call_stop_choice(c, 1);
	call_submit(call_ref(c));
	call_take(c, &tokens, suspend, &news);
	ok(!news.slept, "and lets nothing sleep");
	call_unref(c);
	wait_for_calls(0);
	ok_all("the engine thread drops its references");
}

/* The tokens of an answer that is no stream are taken, too, before they are too many to keep. */
TEST(plenty)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct draw_result draw = {.n_top = TOP_LOGPROBS_MAX};
	struct call_news news;
	struct buf tokens;
	int quiet = 0;

	c->text.ask.stream = false;
	call_accept(c);
	while (quiet < 1000000 && !call_wants_tokens(c)) {
		check(call_push(c, 0, FINISH_NONE, &draw) == 0);
		quiet++;
	}
	ok(quiet > 1000 && quiet < 100000, "a whole answer's tokens are taken after %d", quiet);
	buf_init(&tokens, SIZE_MAX / 2);
	call_take(c, &tokens, suspend, &news);
	buf_release(&tokens);
	check(call_push(c, 0, FINISH_NONE, &draw) == 0);
	ok(!call_wants_tokens(c), "and then left to gather again");
	call_unref(c);
}

/* Scored tokens of prompts go the same way as drawn ones; only they have a rank. */
TEST(scores)
{
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct draw_result scores[2] = {{.token = 7, .logprob = -1, .rank = 3, .n_top = 1},
					{.token = 8, .logprob = -2, .rank = 1}},
			   draw = {.token = 9, .logprob = -3}, got;
	enum finish_reason finish;
	struct call_news news;
	struct buf tokens;
	uint32_t of;
	size_t at = 0;

	scores[0].top_ids[0] = 5;
	scores[0].top_logprobs[0] = -0.5f;
	c->text.ask.sampling.want_logprobs = false;
	call_accept(c);
	check(call_push_scores(c, 4, scores, 2) == 0);
	check(call_push(c, 1, FINISH_LENGTH, &draw) == 0);
	buf_init(&tokens, SIZE_MAX / 2);
	call_take(c, &tokens, suspend, &news);
	ok(call_record(&tokens, &at, &of, &finish, &got) && of == 4 && got.token == 7 &&
		   got.rank == 3 && got.logprob == -1 && got.n_top == 1 && got.top_ids[0] == 5 &&
		   got.top_logprobs[0] == -0.5f,
	   "a token of a prompt, with the best whatever choices report");
	ok(call_record(&tokens, &at, &of, &finish, &got) && of == 4 && got.token == 8 &&
		   got.rank == 1,
	   "the next");
	ok(call_record(&tokens, &at, &of, &finish, &got) && of == 1 && got.token == 9 &&
		   !got.rank && finish == FINISH_LENGTH,
	   "then one that was drawn");
	ok(!call_record(&tokens, &at, &of, &finish, &got), "that is all");
	buf_release(&tokens);
	call_unref(c);
}

/* An answer that takes too much memory is given up, but not if it has begun to be sent. */
TEST(giving_up)
{
	for (int sent = 0; sent < 2; sent++) {
		struct connection_double connection = {0};
		struct call *c = new_call(&connection);
		struct err e = {0}, why = {0};

		err_set(&why, PROBLEM_UNREAD, "too much");
		call_accept(c);
		if (sent) {
			ok(call_begin_answer(c, &e), "an answer begins");
			ok(!call_give_up(c, &why), "so it is not given up");
		} else {
			ok(call_give_up(c, &why), "an answer is given up");
			ok(!call_begin_answer(c, &e) && e.code == PROBLEM_UNREAD,
			   "so it does not begin, and its client gets the error");
		}
		call_unref(c);
	}
}

static int wait_for_end(const struct pace *pace, struct err *e)
{
	atomic_fetch_add(&n_busy, 1);
	while (!pace_gives_up(pace))
		usleep(100);
	return err_set(e, ECANCELED, "given up");
}

/* A reply that is never ready: it ends when its pace gives up. */
static int endless(struct call *c, struct buf *out, struct err *e)
{
	const struct pace pace = prepare_pace(c);

	return wait_for_end(&pace, e);
}

/* Parses a body with a prompt, and never ends either. */
static int parse_endlessly(const char *body, size_t len, const struct pace *pace,
			   const struct openai_limits *limits, struct arena *arena,
			   struct openai_request *ret, struct err *e)
{
	return wait_for_end(pace, e);
}

/* Lengths of bodies in the order in which a text thread took them. */
static struct {
	size_t v[8];
	_Atomic int n;
} taken;

static int note_length(struct call *c, struct buf *out, struct err *e)
{
	taken.v[atomic_load(&taken.n)] = c->text.body.len;
	atomic_fetch_add(&taken.n, 1);
	return 0;
}

/* Submits a call of an owner with a body of this length. */
static struct call *submit_body(struct connection_double *connection,
				const struct endpoint *endpoint_, uint64_t owner, size_t len)
{
	struct call *c = new_call(connection);

	c->endpoint = endpoint_;
	c->owner = owner;
	buf_init(&c->text.body, SIZE_MAX / 2);
	check(buf_reserve(&c->text.body, len) == 0);
	c->text.body.len = len;
	server_count_body(&server, owner, 0, len);
	text_submit(server.text, c);
	return c;
}

static bool reaches(_Atomic int *v, int n)
{
	for (int i = 0; i < 2000 && atomic_load(v) < n; i++)
		usleep(1000);
	return atomic_load(v) == n;
}

/* A body waits neither for longer ones of another kind, nor in its round for longer ones of its kind. */
TEST(lines)
{
	static const struct endpoint slow = {.id = "slow-", .reply = endless},
				     quick = {.id = "quick-", .reply = note_length};
	static const struct {
		uint64_t owner;
		size_t len;
	} later[] = {{1, 900000}, {2, 800000}, {1, 70000}, {3, 100000}};
	struct connection_double connection[8] = {0};
	struct call *c[8];
	struct err e = {0};
	int n = 0;

	atomic_store(&n_busy, 0);
	check(text_start(&server, &e) == 0);
	c[n] = submit_body(&connection[n], &slow, 9, 2 << 20), n++;
	check(reaches(&n_busy, 1));
	c[n] = submit_body(&connection[n], &quick, 8, 1 << 20), n++;
	ok(reaches(&taken.n, 1), "a body of 1 MiB does not wait for one of 2 MiB");
	c[n] = submit_body(&connection[n], &slow, 9, 100000), n++;
	check(reaches(&n_busy, 2));
	c[n] = submit_body(&connection[n], &quick, 8, SMALL_BODY), n++;
	ok(reaches(&taken.n, 2), "a small one does not wait for one of 100 KB");
	for (size_t i = 0; i < ARRAY_SIZE(later); i++, n++)
		c[n] = submit_body(&connection[n], &quick, later[i].owner, later[i].len);
	call_abort(c[2]);
	ok(reaches(&taken.n, 6), "when that one is given up, those behind it are taken");
	ok(taken.v[2] == 100000 && taken.v[3] == 800000 && taken.v[4] == 900000 &&
		   taken.v[5] == 70000,
	   "one of each client, the shortest first, then the second one of a client");
	call_abort(c[0]);
	text_free(server.text);
	while (n)
		call_unref(c[--n]);
	wait_for_calls(0);
	is_int((long long)atomic_load(&server.metrics.body_bytes), 0, "no body is left");
}

/* Keeps a response of owner 5 whose conversation has one message of so many bytes. */
static void keep_response(const char *id, size_t len)
{
	static const char answer[] = "{\"role\":\"assistant\",\"content\":\"Yes.\"}";
	struct buf item;

	buf_init(&item, SIZE_MAX / 2);
	buf_puts(&item, "{\"role\":\"user\",\"content\":\"");
	while (item.len < len)
		buf_puts(&item, "many words ");
	buf_puts(&item, "\"}");
	responses_put(&server,
		      &(struct response_record){.id = id,
						.owner = 5,
						.input = {buf_str(&item), item.len},
						.output = {answer, sizeof(answer) - 1},
						.head = {"[", 1},
						.tail = {"]", 1}},
		      NULL);
	buf_release(&item);
}

/* Submits a call of owner 5 to an endpoint of responses, with the id in the path and, if it has a body, there. */
static struct call *submit_response(struct connection_double *connection,
				    const struct endpoint *endpoint_, const char *id)
{
	static const char *const values[ENDPOINT_ARGUMENTS];
	struct call *c = new_call(connection);
	struct err e = {0};

	c->endpoint = endpoint_;
	c->owner = 5;
	check(endpoint_->ask(&server, id, values, &c->http.own, &e) == 0);
	buf_init(&c->text.body, SIZE_MAX / 2);
	if (endpoint_->parse)
		buf_printf(&c->text.body, "{\"input\":\"So?\",\"previous_response_id\":\"%s\"}",
			   id);
	text_submit(server.text, c);
	return c;
}

static bool answered(struct call *c)
{
	bool r;

	pthread_mutex_lock(&c->shared.lock);
	r = c->shared.stage == CALL_ANSWERED;
	pthread_mutex_unlock(&c->shared.lock);
	return r;
}

static bool comes(struct call *c)
{
	for (int i = 0; i < 2000 && !answered(c); i++)
		usleep(1000);
	return answered(c);
}

/* A call that reads a long conversation waits with bodies of such a length, though its own body is short. */
TEST(kept_responses)
{
	extern const struct endpoint endpoint_responses, endpoint_response_input_items;
	const struct endpoint *post = &endpoint_responses, *items = &endpoint_response_input_items;
	static const struct endpoint slow = {.id = "slow-", .reply = endless},
				     quick = {.id = "quick-", .reply = note_length};
	enum { QUICK = 6 };
	struct connection_double connection[6 + QUICK] = {0};
	struct call *c[6 + QUICK];
	struct err e = {0};
	int n = 0;

	server.options.response_store_memory = 64 << 20;
	server.options.response_store_seconds = 1000;
	server.limits.max_choices = 8;
	check(responses_open(&server, &e) == 0 && text_start(&server, &e) == 0);
	keep_response("resp_short", 1000);
	keep_response("resp_long", 100000);
	atomic_store(&n_busy, 0);
	atomic_store(&taken.n, 0);
	c[n] = submit_body(&connection[n], &slow, 9, 100000), n++;
	check(reaches(&n_busy, 1));
	c[n] = submit_response(&connection[n], post, "resp_long"), n++;
	c[n] = submit_response(&connection[n], items, "resp_long"), n++;
	c[n] = submit_response(&connection[n], items, "resp_long"), n++;
	c[n] = submit_response(&connection[n], post, "resp_short"), n++;
	c[n] = submit_response(&connection[n], items, "resp_short"), n++;
	ok(comes(c[4]) && comes(c[5]), "a short conversation is read at once");
	for (int i = 0; i < QUICK; i++, n++)
		c[n] = submit_body(&connection[n], &quick, 5, 10);
	ok(reaches(&taken.n, QUICK), "small bodies are taken");
	ok(!answered(c[1]) && !answered(c[2]) && !answered(c[3]),
	   "but a long conversation waits for a body of 100 KB");
	call_abort(c[3]);
	text_forget(server.text, c[3]);
	check(responses_delete(&server, "resp_long", 6) == false);
	call_abort(c[0]);
	ok(comes(c[1]) && comes(c[2]), "and is read behind it");
	ok(c[1]->shared.failure.code == EINVAL && strstr(c[1]->shared.failure.text, "template"),
	   "once more from the beginning: %s", c[1]->shared.failure.text);
	ok(!c[2]->shared.failure.code && c[2]->shared.reply.len > 100000 && !answered(c[3]),
	   "the client that has left gets nothing");
	text_free(server.text);
	while (n)
		call_unref(c[--n]);
	wait_for_calls(0);
	check(responses_delete(&server, "resp_long", 5) &&
	      responses_delete(&server, "resp_short", 5));
	is_int((long long)atomic_load(&server.metrics.stored_response_bytes), 0,
	       "nothing holds a conversation any more");
	responses_close(&server);
}

static uint64_t n_finished(enum metrics_finish why)
{
	return atomic_load(&server.metrics.finished[why]);
}

/* Lets all calls fail while two text threads are busy with calls of this endpoint and the other calls wait. */
static void fail_texts(const struct endpoint *slow)
{
	enum { CALLS = 9, THREADS = 2 };
	struct connection_double connection[CALLS] = {0};
	struct call *calls[CALLS];
	struct call_news news;
	struct buf tokens;
	struct err e = {0}, why = {0};

	buf_init(&tokens, 1 << 20);
	atomic_store(&n_busy, 0);
	check(text_start(&server, &e) == 0);
	for (int i = 0; i < CALLS; i++) {
		calls[i] = new_call(&connection[i]);
		calls[i]->endpoint = slow;
		text_submit(server.text, calls[i]);
	}
	for (int i = 0; i < 2000 && atomic_load(&n_busy) < THREADS; i++)
		usleep(1000);
	is_int(atomic_load(&n_busy), THREADS, "two threads are busy with small texts");
	err_set(&why, ESHUTDOWN, "the end");
	text_fail_all(server.text, &why);
	text_free(server.text);
	ok(true, "when all texts have failed, the threads end");
	for (int i = 0; i < CALLS; i++) {
		call_take(calls[i], &tokens, suspend, &news);
		check(news.stage == CALL_ANSWERED && news.failure.code == ESHUTDOWN);
		call_unref(calls[i]);
	}
	ok_all("and every client gets the error");
	wait_for_calls(0);
	ok_all("none is left");
}

TEST(texts)
{
	static const struct endpoint replies = {.id = "slow-", .reply = endless},
				     parses = {.id = "slow-", .parse = parse_endlessly};
	uint64_t errors = n_finished(METRICS_ERROR), aborts = n_finished(METRICS_ABORT);

	fail_texts(&replies);
	ok(n_finished(METRICS_ERROR) == errors && n_finished(METRICS_ABORT) == aborts,
	   "texts that draw no tokens are not counted");
	fail_texts(&parses);
	is_int((long long)(n_finished(METRICS_ERROR) - errors), 7, "those that waited are errors");
	is_int((long long)(n_finished(METRICS_ABORT) - aborts), 2,
	       "the two that were read are aborted");
}

TEST(text_of_a_client_that_left)
{
	static const struct endpoint slow = {.id = "slow-", .reply = endless};
	struct connection_double connection = {0};
	struct call *c = new_call(&connection);
	struct call_news news;
	struct buf tokens;
	struct err e = {0};

	buf_init(&tokens, 1 << 20);
	atomic_store(&n_busy, 0);
	check(text_start(&server, &e) == 0);
	c->endpoint = &slow;
	text_submit(server.text, c);
	for (int i = 0; i < 2000 && !atomic_load(&n_busy); i++)
		usleep(1000);
	call_abort(c);
	text_free(server.text);
	call_take(c, &tokens, suspend, &news);
	ok(!news.failure.code && call_left(c), "no error is noted for a client that left");
	call_unref(c);
	wait_for_calls(0);
	ok_all("none is left");
}

/* A large body is counted until call_drop_body drops it (parsed), or until its call is freed (!parsed). */
TEST(bodies)
{
	for (int parsed = 0; parsed < 2; parsed++) {
		struct connection_double connection = {0};
		struct call *c = new_call(&connection);

		buf_init(&c->text.body, SIZE_MAX / 2);
		for (size_t n = 0; n <= SMALL_BODY; n = c->text.body.len) {
			buf_puts(&c->text.body, "twelve bytes");
			server_count_body(&server, 0, n, c->text.body.len);
		}
		check(atomic_load(&server.metrics.body_bytes) == c->text.body.len);
		if (parsed) {
			call_drop_body(c);
			check(atomic_load(&server.metrics.body_bytes) == 0 && !c->text.body.data);
		}
		call_unref(c);
		is_int((long long)atomic_load(&server.metrics.body_bytes), 0,
		       "no body is left counted");
	}
}

int main(void)
{
	struct err e = {0};

	log_set_level(LOG_LEVEL_ERROR);
	metrics_init(&server.metrics);
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	server.options = (struct options){.model = "/nowhere",
					  .max_num_seqs = 4,
					  .max_queued_requests = 100,
					  .page_size = 64,
					  .max_batched_tokens = 64};
	check(loop_start(&server, &e) == 0);
	run_tests();
	loop_free(server.loop);
	lifecycle_free(server.lifecycle);
	ok_all("no more");
	return done();
}
