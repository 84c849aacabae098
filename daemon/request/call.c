#include "daemon/request/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/lifecycle.h"

/* A token in call.tokens: this, then n_top ids, then n_top log-probabilities. */
struct record {
	uint32_t of; /* the choice; of a scored token the part */
	int32_t token;
	float logprob;
	uint32_t rank; /* 0: it was drawn */
	uint16_t finish, n_top;
};

enum {
	/* Everything a call allocates in its arena: prompts given as ids, texts, choices. */
	ARENA_MAX = 256 << 20,
	/* 4096 tokens of 64 choices with 20 log-probabilities each fit. */
	TOKENS_MAX = 64 << 20,
	/* Answers that are sent as a whole have their tokens taken at this many bytes. */
	TOKENS_PLENTY = 1 << 20,
};

static const char *const prefixes[] = {
	[CALL_CHAT] = "chatcmpl-",    [CALL_COMPLETION] = "cmpl-", [CALL_TOKENIZE] = "tok-",
	[CALL_DETOKENIZE] = "detok-", [CALL_CACHE] = "cache-",	   [CALL_FLUSH] = "flush-",
};

static void name_call(struct call *c)
{
	unsigned char random[16] = {0};
	size_t n = (size_t)snprintf(c->id, sizeof(c->id), "%s", prefixes[c->kind]);

	/* 16 bytes come at once or, before the kernel is seeded, not at all: then ids repeat. */
	if (getrandom(random, sizeof(random), 0) < 0)
		memcpy(random, &c->created, sizeof(c->created));
	for (size_t i = 0; i < sizeof(random); i++)
		n += (size_t)snprintf(c->id + n, sizeof(c->id) - n, "%02x", random[i]);
}

struct call *call_new(struct server *s, enum call_kind kind)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->server = s;
	c->kind = kind;
	c->created = time(NULL);
	name_call(c);
	atomic_init(&c->refs, 1);
	arena_init(&c->arena, ARENA_MAX);
	buf_init(&c->tokens, TOKENS_MAX);
	c->submit = (struct call_message){.type = CALL_SUBMIT, .call = c};
	c->control = (struct call_message){.type = CALL_CONTROL, .call = c};
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

struct call *call_ref(struct call *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

/* "stop", "stop+length", or "none" for a call that was over before any choice ended. */
static void describe_finish(struct call *c, char *out, size_t size)
{
	static const char *const names[METRICS_FINISHES] = {"stop", "length", "abort", "error"};
	size_t n = 0;

	snprintf(out, size, "none");
	for (size_t i = 0; i < METRICS_FINISHES; i++)
		if (atomic_load(&c->finished[i]) && n < size)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "+" : "", names[i]);
}

void call_hit(struct call *c, const struct scheduler_hit *hit)
{
	uint32_t none = PREFIX_MISS_NONE;

	atomic_compare_exchange_strong(&c->miss, &none, hit->miss);
	atomic_fetch_add(&c->n_cached, hit->n_cached);
	atomic_fetch_add(&c->n_received, hit->n_received);
	atomic_fetch_add(&c->n_hits, 1);
}

bool call_describe_hit(const struct call *c, char *out, size_t size)
{
	uint32_t received = atomic_load(&c->n_received);
	const char *reason;
	int n;

	if (!atomic_load(&c->n_hits))
		return false;
	reason = prefix_miss_name((enum prefix_miss)atomic_load(&c->miss));
	n = snprintf(out, size, "cached=%u; reason=%s", atomic_load(&c->n_cached), reason);
	if (received)
		snprintf(out + n, size - (size_t)n, "; received=%u", received);
	return true;
}

static void log_call(struct call *c)
{
	uint64_t first = atomic_load(&c->first_token_ns);
	char finish[48], ttft[32] = "-", cached[64];

	describe_finish(c, finish, sizeof(finish));
	if (first)
		snprintf(ttft, sizeof(ttft), "%.1f", (double)(first - c->arrived_ns) / 1e6);
	if (!call_describe_hit(c, cached, sizeof(cached)))
		snprintf(cached, sizeof(cached), "cached=-");
	log_info("%s: prompt %u tokens (%s), generated %u, ttft %s ms, total %.1f ms, finish %s",
		 c->id, c->n_prompt, cached, atomic_load(&c->n_generated), ttft,
		 (double)(clock_now_ns() - c->arrived_ns) / 1e6, finish);
}

void call_unref(struct call *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	if (c->arrived_ns) {
		if (c->kind == CALL_CHAT || c->kind == CALL_COMPLETION)
			log_call(c);
		call_unqueue(c);
		if (atomic_fetch_sub(&c->server->calls, 1) == 1)
			lifecycle_notify(c->server->lifecycle);
	}
	for (uint32_t i = 0; i < c->n_parts; i++)
		ids_release(&c->parts[i].prompt);
	if (c->asked)
		openai_request_release(&c->ask);
	call_drop_body(c);
	buf_release(&c->tokens);
	buf_release(&c->reply);
	tree_free(c->tree);
	arena_release(&c->arena);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void call_arrive(struct call *c)
{
	c->arrived_ns = clock_now_ns();
	atomic_fetch_add(&c->server->calls, 1);
	/* Looking at the cache is no work, and must do when the queue is full. */
	if (c->kind == CALL_CACHE || c->kind == CALL_FLUSH)
		return;
	atomic_store(&c->queued, true);
	atomic_fetch_add(&c->server->queued, 1);
}

void call_submit(struct call *c)
{
	queue_push(&c->server->inbox, &c->submit.node);
}

void call_administer(struct call *c)
{
	c->submit.type = CALL_ADMIN;
	call_submit(call_ref(c));
}

void call_unqueue(struct call *c)
{
	if (atomic_exchange(&c->queued, false))
		atomic_fetch_sub(&c->server->queued, 1);
}

void call_drop_body(struct call *c)
{
	atomic_fetch_sub(&c->server->body_bytes, c->body.len);
	buf_release(&c->body);
}

void call_count(struct call *c, enum metrics_finish why)
{
	atomic_fetch_add(&c->server->metrics.finished[why], 1);
	atomic_fetch_add(&c->finished[why], 1);
}

/* Call with the lock held. */
static void wake_locked(struct call *c)
{
	if (!c->suspended)
		return;
	c->suspended = false;
	c->resume(c->connection);
}

void call_wake(struct call *c)
{
	pthread_mutex_lock(&c->lock);
	wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}

bool call_wants_tokens(const struct call *c)
{
	return c->ask.stream || c->ask.n_stops || c->plenty;
}

void call_fail(struct call *c, const struct err *e)
{
	pthread_mutex_lock(&c->lock);
	if (!c->failure.code && c->stage <= CALL_RUNNING) {
		c->failure = *e;
		c->stage = c->stage == CALL_RUNNING ? CALL_ENDED : CALL_ANSWERED;
	}
	wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	call_unqueue(c);
}

void call_reply(struct call *c, struct buf *body)
{
	pthread_mutex_lock(&c->lock);
	c->reply = *body;
	*body = (struct buf){0};
	c->stage = CALL_ANSWERED;
	wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	call_unqueue(c);
}

void call_show(struct call *c, struct tree *tree)
{
	pthread_mutex_lock(&c->lock);
	c->tree = tree;
	c->stage = CALL_ANSWERED;
	wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}

void call_accept(struct call *c)
{
	pthread_mutex_lock(&c->lock);
	c->stage = CALL_RUNNING;
	if (c->ask.stream)
		wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}

/* All or nothing: half a record would make the rest unreadable. Call with the lock held. */
static bool append_locked(struct call *c, uint32_t of, enum finish_reason finish,
			  const struct draw_result *draw, uint32_t n_top)
{
	struct record rec = {
		.of = of,
		.token = draw->token,
		.logprob = draw->logprob,
		.rank = draw->rank,
		.finish = (uint16_t)finish,
		.n_top = (uint16_t)MIN(n_top, (uint32_t)TOP_LOGPROBS_MAX),
	};

	if (buf_reserve(&c->tokens, sizeof(rec) + rec.n_top * (sizeof(int32_t) + sizeof(float))))
		c->tokens.failed = true;
	c->plenty = c->tokens.len >= TOKENS_PLENTY;
	if (c->tokens.failed)
		return false;
	buf_append(&c->tokens, &rec, sizeof(rec));
	buf_append(&c->tokens, draw->top_ids, rec.n_top * sizeof(int32_t));
	buf_append(&c->tokens, draw->top_logprobs, rec.n_top * sizeof(float));
	return true;
}

int call_push(struct call *c, uint32_t choice, enum finish_reason finish,
	      const struct draw_result *draw)
{
	bool good;

	pthread_mutex_lock(&c->lock);
	good = append_locked(c, choice, finish, draw,
			     c->ask.sampling.want_logprobs ? draw->n_top : 0);
	pthread_mutex_unlock(&c->lock);
	return good ? 0 : -ENOMEM;
}

int call_push_scores(struct call *c, uint32_t part, const struct draw_result *scores, uint32_t n)
{
	bool good = true;

	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; good && i < n; i++)
		good = append_locked(c, part, FINISH_NONE, &scores[i], scores[i].n_top);
	pthread_mutex_unlock(&c->lock);
	return good ? 0 : -ENOMEM;
}

bool call_record(const struct buf *tokens, size_t *offset, uint32_t *ret_of,
		 enum finish_reason *ret_finish, struct draw_result *ret_draw)
{
	struct record rec;
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
	pthread_mutex_lock(&c->lock);
	if (c->stage == CALL_RUNNING)
		c->stage = CALL_ENDED;
	pthread_mutex_unlock(&c->lock);
}

void call_take(struct call *c, struct buf *tokens, void (*suspend)(void *connection),
	       struct call_news *ret)
{
	pthread_mutex_lock(&c->lock);
	*ret = (struct call_news){
		.stage = c->stage,
		.closing = c->closing,
		.comment_due = c->comment_due,
		.failure = c->failure,
	};
	if (c->tokens.len || c->stage != c->seen || c->stage >= CALL_ENDED || c->comment_due ||
	    c->closing || atomic_load(&c->aborted)) {
		struct buf empty = *tokens;

		*tokens = c->tokens;
		c->tokens = empty;
		c->comment_due = false;
		c->seen = c->stage;
	} else {
		suspend(c->connection);
		c->suspended = ret->slept = true;
	}
	/* Until then `ask` is the text thread's. */
	if (c->stage >= CALL_RUNNING && c->ask.stream)
		c->sent_ns = clock_now_ns();
	pthread_mutex_unlock(&c->lock);
}

/* Puts the call's control message into the inbox, once. Call with the lock held. */
static void control_locked(struct call *c)
{
	if (c->control_queued)
		return;
	c->control_queued = true;
	queue_push(&c->server->inbox, &call_ref(c)->control.node);
}

void call_abort(struct call *c)
{
	if (atomic_exchange(&c->aborted, true))
		return;
	pthread_mutex_lock(&c->lock);
	control_locked(c);
	wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}

void call_stop_choice(struct call *c, uint32_t choice)
{
	pthread_mutex_lock(&c->lock);
	c->stop_wanted[choice] = true;
	control_locked(c);
	pthread_mutex_unlock(&c->lock);
}

void call_close(struct call *c)
{
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}

void call_tick(struct call *c, uint64_t before_ns)
{
	pthread_mutex_lock(&c->lock);
	if (c->suspended && c->sent_ns && c->sent_ns < before_ns) {
		c->comment_due = true;
		wake_locked(c);
	}
	pthread_mutex_unlock(&c->lock);
}
