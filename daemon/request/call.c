#include "daemon/request/call.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
#include "daemon/lifecycle.h"
#include "protocol/output/steering.h"

/* A record of call.shared.tokens: this struct, then n_top ids, then n_top log-probabilities. */
struct token_record {
	uint32_t of; /* choice of a drawn token, or part of a scored token of a prompt */
	int32_t token;
	float logprob;
	uint32_t rank; /* rank of a scored token; 0: the token was drawn */
	uint16_t finish, n_top;
};

enum {
	/* the most bytes of a call's arena: prompts given as ids, texts, choices */
	ARENA_MAX = 256 << 20,
	/* the most bytes of shared.tokens: 4096 tokens of each of 64 choices fit, with 20 log-probabilities for each
	 * token */
	TOKENS_MAX = 64 << 20,
	/* http takes the tokens of an answer that is sent whole whenever they have so many bytes */
	TOKENS_PLENTY = 1 << 20,
	LARGE = 1 << 20, /* freeing more bytes than that is worth a trim */
};

/* Counts `more` bytes of the answer that are kept for the client now, and `less` that are not kept any more. */
static void count_kept(struct call *c, size_t more, size_t less)
{
	uint64_t was = atomic_fetch_add(&c->kept, more - less);

	atomic_fetch_add(&c->server->metrics.unread_bytes, more - less);
	if (was + more - less > LARGE)
		atomic_store(&c->large, true);
}

struct call *call_new(struct server *s, const struct endpoint *endpoint)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->server = s;
	c->endpoint = endpoint;
	c->created = time(NULL);
	access_make_id(endpoint->id, c->id);
	atomic_init(&c->refs, 1);
	arena_init(&c->text.arena, ARENA_MAX);
	buf_init(&c->shared.tokens, TOKENS_MAX);
	list_init(&c->text.node);
	c->submit = (struct call_message){.call = c};
	c->control = (struct call_message){.call = c};
	pthread_mutex_init(&c->shared.lock, NULL);
	return c;
}

struct call *call_ref(struct call *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

/* Writes the reasons why the call's choices, or the call, ended, for the log: "stop", "stop+length", "abort", ...; or
 * "none" if no reason was noted. */
static void describe_finish(struct call *c, char *out, size_t size)
{
	size_t n = 0;

	snprintf(out, size, "none");
	for (size_t i = 0; i < METRICS_FINISHES; i++)
		if (atomic_load(&c->report.finished[i]) && n < size)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "+" : "",
					      metrics_finish_names[i]);
}

void call_hit(struct call *c, const struct scheduler_hit *hit)
{
	uint32_t none = PREFIX_MISS_NONE;

	atomic_compare_exchange_strong(&c->report.miss, &none, hit->miss);
	atomic_fetch_add(&c->report.n_cached, hit->n_cached);
	atomic_fetch_add(&c->report.n_received, hit->n_received);
	atomic_fetch_add(&c->report.n_hits, 1);
}

bool call_describe_hit(const struct call *c, char *out, size_t size)
{
	uint32_t received = atomic_load(&c->report.n_received);
	const char *reason;
	int n;

	if (!atomic_load(&c->report.n_hits))
		return false;
	reason = prefix_miss_name((enum prefix_miss)atomic_load(&c->report.miss));
	n = snprintf(out, size, "cached=%u; reason=%s", atomic_load(&c->report.n_cached), reason);
	if (received)
		snprintf(out + n, size - (size_t)n, "; received=%u", received);
	return true;
}

/* Writes, for the log, numbers of tokens, the time to the first token, and the reasons of the end. For calls that
 * draw tokens. */
static void describe_tokens(struct call *c, char *out, size_t size)
{
	uint64_t first = atomic_load(&c->report.first_token_ns);
	char finish[48], ttft[32] = "-", cached[64];

	describe_finish(c, finish, sizeof(finish));
	if (first)
		snprintf(ttft, sizeof(ttft), "%.1f", (double)(first - c->arrived_ns) / 1e6);
	if (!call_describe_hit(c, cached, sizeof(cached)))
		snprintf(cached, sizeof(cached), "cached=-");
	snprintf(out, size, ", prompt %u tokens (%s), generated %u, finish %s, ttft %s ms",
		 c->text.n_prompt, cached, atomic_load(&c->report.n_generated), finish, ttft);
}

/* Logs the request. The times `ttft` and `total` begin when the body has arrived; `upload` is the time from the
 * headers to then. */
static void log_call(struct call *c)
{
	const struct access *a = &c->http.access;
	char tokens[256] = "", middle[384];

	if (c->endpoint->parse)
		describe_tokens(c, tokens, sizeof(tokens));
	snprintf(middle, sizeof(middle), ", %s%s, upload %.1f ms, total %.1f ms", c->id, tokens,
		 (double)(c->arrived_ns - a->begun_ns) / 1e6,
		 (double)(a->ended_ns - c->arrived_ns) / 1e6);
	access_log(a, middle);
}

void call_drop_work(struct call *c)
{
	if (c->text.asked)
		openai_request_release(&c->text.ask);
	c->text.asked = false;
	for (uint32_t i = 0; i < c->text.n_parts; i++)
		ids_release(&c->text.parts[i].prompt);
	c->text.n_parts = 0;
	steering_free(c->text.steering);
	c->text.steering = NULL;
	arena_release(&c->text.arena);
}

void call_unref(struct call *c)
{
	struct server *s;
	bool large;

	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	if (c->arrived_ns) {
		if (c->http.access.ended_ns)
			log_call(c);
		call_unqueue(c);
		call_leave(c);
		if (atomic_fetch_sub(&c->server->calls, 1) == 1)
			lifecycle_notify(c->server->lifecycle);
	}
	s = c->server;
	count_kept(c, 0, atomic_load(&c->kept));
	call_drop_body(c);
	large = atomic_load(&c->large);
	buf_release(&c->shared.tokens);
	buf_release(&c->shared.reply);
	if (c->http.own)
		c->endpoint->release(c->http.own);
	call_drop_work(c);
	pthread_mutex_destroy(&c->shared.lock);
	free(c);
	if (large)
		atomic_store(&s->trim, true);
}

int call_arrive(struct call *c, struct err *e)
{
	c->arrived_ns = clock_now_ns();
	atomic_fetch_add(&c->server->calls, 1);
	call_enter(c);
	/* A visit takes no place in the queue: it waits neither for a text thread nor for the scheduler. */
	return c->endpoint->visit ? 0 : call_queue(c, QUEUE_REQUESTS, 1, e);
}

void call_submit(struct call *c)
{
	queue_push(&c->server->inbox, &c->submit.node);
}

void call_unqueue(struct call *c)
{
	for (size_t i = 0; i < QUEUE_MEASURES; i++)
		atomic_fetch_sub(&c->server->queued[i], atomic_exchange(&c->queued[i], 0));
}

void call_drop_body(struct call *c)
{
	size_t len = c->text.body.len;

	server_count_body(c->server, c->owner, len, 0);
	buf_release(&c->text.body);
	if (len > LARGE)
		atomic_store(&c->server->trim, true);
}

void call_drop_steering(struct call *c)
{
	steering_free(c->text.steering);
	c->text.steering = NULL;
}

void call_count(struct call *c, enum metrics_finish why)
{
	atomic_fetch_add(&c->server->metrics.finished[why], 1);
	atomic_fetch_add(&c->report.finished[why], 1);
}

void call_count_error(struct call *c, int code)
{
	if (openai_status(code) >= 500)
		call_count(c, METRICS_ERROR);
	else
		atomic_fetch_add(&c->report.finished[METRICS_ERROR], 1);
}

void call_keep(struct call *c, size_t bytes)
{
	count_kept(c, bytes, c->http.kept);
	c->http.kept = bytes;
}

void call_waits(struct call *c, bool waits)
{
	atomic_store(&c->waits_ns, waits ? clock_now_ns() : 0);
}

static struct call_shared *lock(struct call *c)
{
	pthread_mutex_lock(&c->shared.lock);
	return &c->shared;
}

static void unlock(struct call *c)
{
	pthread_mutex_unlock(&c->shared.lock);
}

/* Resumes the connection if it is suspended. Call with the lock held. */
static void wake_locked(struct call *c)
{
	if (!c->shared.suspended)
		return;
	c->shared.suspended = false;
	c->http.resume(c->http.connection);
}

static void wake_and_unlock(struct call *c)
{
	wake_locked(c);
	unlock(c);
}

void call_wake(struct call *c)
{
	lock(c);
	wake_and_unlock(c);
}

/* The calls of a chain are suspended, and their connections exist, until they are resumed. That may happen before http
 * comes to them, because another thread may wake a call at any time; waking it once more does nothing then. So all that
 * a chain needs of its calls is that their memory is there: a reference to each. A call that gets a chain is awake from
 * then on, and http takes the chain from it before it suspends the call again (call_wake_others), so no call has
 * two. */
void call_wake_all(struct call *const *calls, uint32_t n)
{
	struct call *chain = NULL;

	while (n) {
		struct call *c = calls[--n];
		struct call_shared *s = lock(c);

		if (s->suspended && !s->chained) {
			s->chained = true;
			s->next = chain;
			chain = call_ref(c);
		}
		unlock(c);
	}
	while (chain) {
		struct call *c = chain;
		struct call_shared *s = lock(c);

		chain = s->next;
		s->chained = false;
		/* If it is suspended, its connection cannot run before the chain is here. */
		if (s->suspended) {
			assert(!s->others);
			s->others = chain;
			chain = NULL;
		}
		wake_and_unlock(c);
		call_unref(c);
	}
}

void call_wake_others(struct call *c)
{
	struct call *other, *next;

	lock(c);
	other = c->shared.others;
	c->shared.others = NULL;
	unlock(c);
	for (; other; other = next) {
		lock(other);
		next = other->shared.next;
		other->shared.chained = false;
		wake_and_unlock(other);
		call_unref(other);
	}
}

bool call_shows_ids(const struct call *c)
{
	uint32_t n_top;

	return c->text.ask.return_token_ids || openai_wants_scores(&c->text.ask, &n_top);
}

bool call_wants_tokens(const struct call *c)
{
	const struct openai_request *ask = &c->text.ask;

	return ask->stream || ask->n_stops || (ask->one_call && ask->tools.n) || c->engine.plenty;
}

/* Ends the call with this error. False: it has ended before, and nothing is changed. Call with the lock held. */
static bool fail_locked(struct call *c, const struct err *e)
{
	struct call_shared *s = &c->shared;

	if (s->failure.code || s->stage > CALL_RUNNING)
		return false;
	s->failure = *e;
	s->stage = s->stage == CALL_RUNNING ? CALL_ENDED : CALL_ANSWERED;
	return true;
}

void call_fail(struct call *c, const struct err *e)
{
	lock(c);
	fail_locked(c, e);
	wake_and_unlock(c);
	call_unqueue(c);
}

bool call_give_up(struct call *c, const struct err *e)
{
	struct call_shared *s = lock(c);
	/* http has taken the end of the stream, and does not look at the failure any more. A call that was RUNNING has
	 * an `ask` that no text thread changes. */
	const bool ends = s->seen == CALL_ENDED && c->text.ask.stream;
	const bool told = !ends && !atomic_load(&c->waits_ns);

	/* Also when nothing is left to compute, http looks at the failure before it begins the answer. */
	if (told && !fail_locked(c, e) && !s->failure.code)
		s->failure = *e;
	wake_and_unlock(c);
	/* The error may wait long for a client that does not read. The engine must not go on meanwhile. */
	if (told)
		call_abort(c);
	return told;
}

bool call_begin_answer(struct call *c, struct err *ret)
{
	bool begins;

	*ret = lock(c)->failure;
	begins = ret->code != PROBLEM_UNREAD;
	if (begins)
		call_waits(c, true);
	unlock(c);
	return begins;
}

void call_reply(struct call *c, struct buf *body)
{
	struct call_shared *s = lock(c);

	if (!s->failure.code) {
		count_kept(c, body->cap, 0);
		s->reply = *body;
		*body = (struct buf){0};
		s->stage = CALL_ANSWERED;
	}
	wake_and_unlock(c);
	buf_release(body);
	call_unqueue(c);
}

void call_accept(struct call *c)
{
	lock(c);
	if (c->shared.stage == CALL_WORKING) /* else it has failed meanwhile */
		c->shared.stage = CALL_RUNNING;
	if (c->text.ask.stream)
		wake_locked(c);
	unlock(c);
}

/* Appends a record, all of it or nothing, because behind half a record all others would be unreadable. -ENOBUFS:
 * there is no room for it; -ENOMEM. Call with the lock held. */
static int append_locked(struct call *c, uint32_t of, enum finish_reason finish,
			 const struct draw_result *draw, uint32_t n_top) ON(role_engine)
{
	struct buf *tokens = &c->shared.tokens;
	size_t before = tokens->cap;
	struct token_record rec = {
		.of = of,
		.token = draw->token,
		.logprob = draw->logprob,
		.rank = draw->rank,
		.finish = (uint16_t)finish,
		.n_top = (uint16_t)MIN(n_top, (uint32_t)TOP_LOGPROBS_MAX),
	};
	int r = buf_reserve(tokens, sizeof(rec) + rec.n_top * (sizeof(int32_t) + sizeof(float)));

	c->engine.plenty = tokens->len >= TOKENS_PLENTY;
	if (r < 0)
		return r;
	buf_append(tokens, &rec, sizeof(rec));
	buf_append(tokens, draw->top_ids, rec.n_top * sizeof(int32_t));
	buf_append(tokens, draw->top_logprobs, rec.n_top * sizeof(float));
	count_kept(c, tokens->cap, before);
	return 0;
}

int call_push(struct call *c, uint32_t choice, enum finish_reason finish,
	      const struct draw_result *draw)
{
	int r;

	lock(c);
	r = append_locked(c, choice, finish, draw,
			  c->text.ask.sampling.want_logprobs ? draw->n_top : 0);
	unlock(c);
	return r;
}

int call_push_scores(struct call *c, uint32_t part, const struct draw_result *scores, uint32_t n)
{
	int r = 0;

	lock(c);
	for (uint32_t i = 0; !r && i < n; i++)
		r = append_locked(c, part, FINISH_NONE, &scores[i], scores[i].n_top);
	unlock(c);
	return r;
}

bool call_record(const struct buf *tokens, size_t *offset, uint32_t *ret_of,
		 enum finish_reason *ret_finish, struct draw_result *ret_draw)
{
	struct token_record rec;
	const char *p;

	if (*offset >= tokens->len)
		return false;
	p = tokens->data + *offset;
	memcpy(&rec, p, sizeof(rec));
	p += sizeof(rec);
	ret_draw->token = rec.token;
	ret_draw->logprob = rec.logprob;
	ret_draw->rank = rec.rank;
	ret_draw->n_top = rec.n_top;
	memcpy(ret_draw->top_ids, p, rec.n_top * sizeof(int32_t));
	p += rec.n_top * sizeof(int32_t);
	memcpy(ret_draw->top_logprobs, p, rec.n_top * sizeof(float));
	p += rec.n_top * sizeof(float);
	*offset = (size_t)(p - tokens->data);
	*ret_of = rec.of;
	*ret_finish = (enum finish_reason)rec.finish;
	return true;
}

void call_end(struct call *c)
{
	struct call_shared *s = lock(c);

	if (s->stage == CALL_RUNNING)
		s->stage = CALL_ENDED;
	unlock(c);
}

void call_take(struct call *c, struct buf *tokens, void (*suspend)(void *connection),
	       struct call_news *ret)
{
	struct call_shared *s = lock(c);

	*ret = (struct call_news){
		.stage = s->stage,
		.closing = s->closing,
		.comment_due = s->comment_due,
		.failure = s->failure,
	};
	if (s->tokens.len || s->stage != s->seen || s->stage >= CALL_ENDED || s->comment_due ||
	    s->closing || atomic_load(&c->aborted)) {
		struct buf empty = *tokens;

		empty.max = s->tokens.max;
		*tokens = s->tokens;
		s->tokens = empty;
		count_kept(c, empty.cap, tokens->cap);
		s->comment_due = false;
		s->seen = s->stage;
	} else {
		assert(!s->others);
		suspend(c->http.connection);
		s->suspended = ret->slept = true;
	}
	/* Before RUNNING `ask` belongs to the text thread, and a call that fails there is ANSWERED. */
	if ((s->stage == CALL_RUNNING || s->stage == CALL_ENDED) && c->text.ask.stream)
		s->sent_ns = clock_now_ns();
	unlock(c);
}

void call_take_reply(struct call *c, struct buf *ret)
{
	struct call_shared *s = lock(c);

	*ret = s->reply;
	s->reply = (struct buf){0};
	count_kept(c, 0, ret->cap);
	unlock(c);
}

/* Puts the call's control message into the inbox, unless it is there already. Call with the lock held. */
static void control_locked(struct call *c)
{
	if (c->shared.control_queued)
		return;
	c->shared.control_queued = true;
	queue_push(&c->server->inbox, &call_ref(c)->control.node);
}

void call_abort(struct call *c)
{
	if (atomic_exchange(&c->aborted, true))
		return;
	lock(c);
	control_locked(c);
	wake_and_unlock(c);
}

void call_cancel(struct call *c, const struct err *why)
{
	call_fail(c, why);
	call_abort(c);
}

bool call_left(struct call *c)
{
	bool left = atomic_load(&c->aborted);

	if (left) {
		left = !lock(c)->failure.code;
		unlock(c);
	}
	return left;
}

void call_stop_choice(struct call *c, uint32_t choice)
{
	lock(c);
	c->shared.stop_wanted[choice] = true;
	control_locked(c);
	unlock(c);
}

void call_control_taken(struct call *c)
{
	lock(c)->control_queued = false;
	unlock(c);
}

bool call_stop_wanted(struct call *c, uint32_t choice)
{
	bool wanted = lock(c)->stop_wanted[choice];

	unlock(c);
	return wanted;
}

void call_close(struct call *c)
{
	lock(c);
	c->shared.closing = true;
	wake_and_unlock(c);
}

void call_tick(struct call *c, uint64_t before_ns)
{
	struct call_shared *s = lock(c);

	if (s->suspended && s->sent_ns && s->sent_ns < before_ns) {
		s->comment_due = true;
		wake_locked(c);
	}
	unlock(c);
}
