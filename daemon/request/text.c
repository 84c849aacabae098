#include "daemon/request/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "daemon/lifecycle.h"
#include "daemon/threads.h"
#include "daemon/request/turns.h"
#include "engine/checkpoint/checkpoint.h"
#include "protocol/openai/tokenizer_info.h"
#include "protocol/output/steering.h"

/* The kinds of calls, by the bytes that the work reads (load_of): at most SMALL_BODY, at most LARGE_BODY, more. */
enum kind { SMALL, LARGE, HUGE, KINDS };

enum { LARGE_BODY = 1 << 20 };

/* The longest time on a processor to parse the body of a call that counts as small: some ten times that of a body of
 * SMALL_BODY without a constraint. */
static const uint64_t small_ns = 3000000;

static const enum kind kinds[] = {SMALL, SMALL, LARGE, HUGE}; /* that each text thread takes */

/* One of the text threads. */
struct worker {
	struct text *text;
	pthread_t thread;
	enum kind kind;
	struct polite polite; /* not used for small calls */
	struct call *call;    /* the call that it works on, or NULL; guarded by text.lock */
};

/* Calls of one kind that wait for a worker, round after round. A round has at most one call of each owner (call.owner),
 * and its calls stand in the order of their loads, then of their arrival. So a client that sends many calls delays the
 * next call of another client by at most two of them, beside those on which workers work already: one of the present
 * round and one of the round after it. Nothing new joins the present round, so the call of most load is reached too. */
struct line {
	struct list calls; /* by call.text.node */
	uint64_t round;	   /* of the call that was taken last */
};

struct text {
	struct server *server;
	struct worker workers[ARRAY_SIZE(kinds)];
	size_t n_workers;
	pthread_mutex_t lock;
	pthread_cond_t ready;
	/* guarded by lock */
	struct line lines[KINDS];
	bool quit;
};

static int open_tokenizer(struct server *s, const struct checkpoint *k, struct err *e)
{
	struct checkpoint_text text;
	int r = checkpoint_read(k, CHECKPOINT_TOKENIZER, &text, e);

	if (r == 0)
		r = tokenizer_parse(text.name, buf_str(&text.bytes), text.bytes.len, &s->tokenizer,
				    e);
	checkpoint_text_release(&text);
	return r;
}

/* Chooses the format of tool calls, by the option or the template, and finds its marks in the tokenizer. */
static void choose_tools(struct server *s, const char *template)
{
	unsigned choice = s->options.tool_call_parser;
	const char *mark;
	int32_t id;

	if (choice == TOOL_CALLS_AUTO)
		s->tools = tools_detect(template);
	else if (choice >= TOOL_CALLS_FORMATS)
		s->tools = tools_format_at(choice - TOOL_CALLS_FORMATS);
	if (choice != TOOL_CALLS_NONE)
		log_info("tool calls: %s",
			 s->tools ? tools_name(s->tools) : "the format is not known");
	s->call_token = -1;
	for (size_t i = 0; s->tools && (mark = tools_mark(s->tools, i)); i++) {
		id = tokenizer_id(s->tokenizer, mark);
		if (!i)
			s->call_token = id;
		if (id >= 0 && tokenizer_is_special(s->tokenizer, id))
			s->tool_marks.v[s->tool_marks.n++] = id;
	}
}

/* Opens the chat template. Without one (as with many base models) only the endpoints that need it do not work. */
static int open_template(struct server *s, const struct checkpoint *k, struct err *e)
{
	struct checkpoint_text text;
	int r = checkpoint_read(k, CHECKPOINT_TEMPLATE, &text, e);

	if (r == -ENOENT) {
		log_warning("%s; requests with messages will not work", e->text);
		r = 0;
	} else if (r == 0) {
		r = template_parse(text.name, buf_str(&text.bytes), text.bytes.len, &s->template,
				   e);
		choose_tools(s, buf_str(&text.bytes));
	}
	checkpoint_text_release(&text);
	return r;
}

/* Reads a text that the checkpoint may lack: then *ret_text is NULL. The caller releases *ret, also after an error. */
static int read_optional(const struct checkpoint *k, enum checkpoint_part part,
			 struct checkpoint_text *ret, const char **ret_text, struct err *e)
{
	int r = checkpoint_read(k, part, ret, e);

	*ret_text = r == 0 ? buf_str(&ret->bytes) : NULL;
	return r == -ENOENT ? 0 : r;
}

/* Reads tokenizer_config.json: for clients, and the special tokens for the template. */
static int open_tokenizer_config(struct server *s, const struct checkpoint *k, struct err *e)
{
	struct checkpoint_text config, template = {0};
	const char *config_text, *template_text = NULL;
	int r = read_optional(k, CHECKPOINT_TOKENIZER_CONFIG, &config, &config_text, e);

	if (r == 0)
		r = read_optional(k, CHECKPOINT_TEMPLATE, &template, &template_text, e);
	if (r == 0) {
		buf_init(&s->tokenizer_info, SIZE_MAX / 2);
		r = openai_body_tokenizer_info(config_text, config.bytes.len, template_text,
					       template.bytes.len, &s->tokenizer_info, e);
		if (r == 0)
			r = openai_template_tokens(config_text, config.bytes.len,
						   s->template_arguments, e);
		if (r < 0)
			err_prefix(e, "%s", config.name);
	}
	checkpoint_text_release(&config);
	checkpoint_text_release(&template);
	return r;
}

/* Makes the trie of the tokens, for masks of draws. */
static int make_trie(struct server *s, struct err *e)
{
	uint64_t begin_ns = clock_now_ns();

	if (s->options.role == ROLE_PREFILL)
		return 0;
	if (steering_trie(s->tokenizer, s->tool_marks.v, s->tool_marks.n, &s->trie) < 0)
		return err_no_memory(e);
	log_info("token masks: a trie of %d tokens in %.0f ms, %.1f MiB",
		 tokenizer_size(s->tokenizer), (double)(clock_now_ns() - begin_ns) / 1e6,
		 (double)token_trie_bytes(s->trie) / (1 << 20));
	return 0;
}

static int open_texts(struct server *s, struct err *e)
{
	const char *path = s->options.tokenizer ? s->options.tokenizer : s->options.model;
	struct checkpoint *k;
	int r = checkpoint_open(path, &k, e);

	if (r < 0)
		return r;
	r = open_tokenizer(s, k, e);
	if (r == 0)
		r = open_template(s, k, e);
	if (r == 0)
		r = open_tokenizer_config(s, k, e);
	checkpoint_close(k);
	if (r == 0)
		r = make_trie(s, e);
	if (r == 0)
		s->turn_token =
			s->template ? turns_token(s->template, s->template_arguments, s->tokenizer)
				    : -1;
	return r;
}

static int answer_now(struct call *c, struct err *e)
{
	struct buf out;
	int r;

	buf_init(&out, SIZE_MAX / 2);
	r = c->endpoint->reply(c, &out, e);
	if (!r && out.failed)
		r = err_no_memory(e);
	if (!r)
		call_reply(c, &out);
	buf_release(&out);
	/* The arena has copies of the body's texts. They are freed now, because the answer may wait for its client
	 * for long. */
	arena_release(&c->text.arena);
	return r;
}

/* Drops the work's reference to a call whose client does not wait any more. Such a call counts as aborted: neither as
 * refused nor as a failure of the server. */
static void drop_aborted(struct call *c)
{
	if (c->endpoint->parse)
		call_count(c, METRICS_ABORT);
	call_unref(c);
}

/* Fails a call with *e, and drops the work's reference to it. */
static void drop_failed(struct call *c, const struct err *e)
{
	if (c->endpoint->parse)
		call_count_error(c, e->code);
	call_fail(c, e);
	call_unref(c);
}

/* Returns how many bytes the work on a call reads: those of the body, and those of the kept response that it is about
 * (text_weigh). */
static uint64_t load_of(const struct call *c)
{
	return c->text.body.len + c->text.weight;
}

static enum kind kind_of(const struct call *c)
{
	const uint64_t load = load_of(c);

	return load <= SMALL_BODY ? SMALL : load <= LARGE_BODY ? LARGE : HUGE;
}

int text_weigh(struct call *c, uint64_t bytes, struct err *e)
{
	const enum kind was = kind_of(c);

	c->text.weight = MAX(c->text.weight, bytes);
	if (kind_of(c) == was)
		return 0;
	return err_set(e, EAGAIN, "another text thread has to do the work");
}

bool text_too_long(struct call *c)
{
	struct text_time *t = &c->text.time;
	uint64_t now, used;

	if (!t->look_ns || (now = clock_now_ns()) < t->look_ns)
		return false;
	used = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_ns;
	if (used < small_ns) {
		t->look_ns = now + small_ns - used;
		return false;
	}
	c->text.weight = MAX(c->text.weight, (uint64_t)SMALL_BODY + 1);
	return true;
}

/* Returns whether a is taken before b, if a came later. */
static bool overtakes(const struct call *a, const struct call *b)
{
	if (a->text.round != b->text.round)
		return a->text.round < b->text.round;
	return load_of(a) < load_of(b);
}

/* Puts a call into a line before `next` (the head: at the end), or before more calls if it overtakes those in front of
 * `next`. Call with the lock held. */
static void line_place(struct line *l, struct call *c, struct list *next)
{
	while (next->prev != &l->calls &&
	       overtakes(c, container_of(next->prev, struct call, text.node)))
		next = next->prev;
	list_append(next, &c->text.node);
}

/* Gives a call its round, and adds it to the line. The round is the one after the last in which its owner has a call.
 * If the owner has none in the line, it is the one after the present round (l->round). Call with the lock held. */
static void line_add(struct line *l, struct call *c)
{
	c->text.round = l->round + 1;
	list_for_each (other, &l->calls, struct call, text.node)
		if (other->owner == c->owner)
			c->text.round = other->text.round + 1;
	line_place(l, c, &l->calls);
}

/* Takes a call out of the line before a worker has taken it. The later calls of its owner each move up by a round. Each
 * passes only the calls between, so all of this takes time in proportion to the line, and a client may leave with all
 * its calls. Call with the lock held. */
static void line_remove(struct line *l, struct call *c)
{
	list_remove(&c->text.node);
	list_for_each (other, &l->calls, struct call, text.node)
		if (other->owner == c->owner && other->text.round > c->text.round) {
			struct list *next = other->text.node.next;

			list_remove(&other->text.node);
			other->text.round--;
			line_place(l, other, next);
		}
}

static struct line *line_of(struct text *t, const struct call *c)
{
	return &t->lines[kind_of(c)];
}

/* Puts a call that a worker has begun into the line of its kind, which is not the worker's. */
static void move(struct text *t, struct call *c)
{
	bool drops;

	/* The body is parsed again there. */
	call_drop_work(c);
	pthread_mutex_lock(&t->lock);
	/* Neither text_forget nor text_free has found the call in a line. */
	drops = t->quit || atomic_load(&c->aborted);
	if (!drops) {
		line_add(line_of(t, c), c);
		pthread_cond_broadcast(&t->ready);
	}
	pthread_mutex_unlock(&t->lock);
	if (!drops)
		return;
	call_drop_body(c);
	drop_aborted(c);
}

/* Does a worker's work on a call. Takes the work's reference: hands it on to the engine thread or, with the call, to
 * another line, or drops it. */
static void prepare_or_answer(struct worker *w, struct call *c) ON(role_text)
{
	struct err e = {0};
	bool answers;
	int r;

	if (atomic_load(&c->aborted)) {
		drop_aborted(c);
		return;
	}
	r = c->endpoint->parse ? prepare_call(c, &e) : 0;
	/* An errand (protocol/openai/request.h) draws no tokens. */
	answers = !c->endpoint->parse || c->text.ask.errand;
	if (!r && answers)
		r = answer_now(c, &e);
	if (r < 0 && kind_of(c) != w->kind) {
		move(w->text, c);
		return;
	}
	call_drop_body(c);
	if (r < 0 && atomic_load(&c->aborted)) {
		drop_aborted(c);
		return;
	}
	if (!r && !answers) {
		call_submit(c);
		return;
	}
	if (r < 0)
		drop_failed(c, &e);
	else
		call_unref(c);
}

/* Takes the next call for this worker out of its line, with the work's reference. NULL: there is none. Call with the
 * lock held. */
static struct call *next_call(struct worker *w)
{
	struct line *l = &w->text->lines[w->kind];
	struct call *c = list_first(&l->calls, struct call, text.node);

	if (!c)
		return NULL;
	list_remove(&c->text.node);
	l->round = c->text.round;
	return c;
}

/* Waits for the next call, and takes it with the work's reference. NULL: the thread has to end. */
static struct call *wait_for_call(struct worker *w)
{
	struct text *t = w->text;

	pthread_mutex_lock(&t->lock);
	for (;;) {
		w->call = next_call(w);
		if (w->call || t->quit)
			break;
		pthread_cond_wait(&t->ready, &t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return w->call;
}

static void *text_main(void *arg)
{
	struct worker *w = arg;
	struct server *s = w->text->server;
	struct err e = {0};
	struct call *c;

	role_begin(&role_text);
	/* The first thread opens tokenizer and template. The others need not wait for that, because no call comes
	 * before the server is ready. */
	if (w == w->text->workers) {
		if (open_texts(s, &e) < 0)
			lifecycle_fail(s->lifecycle, &e);
		else
			lifecycle_loaded(s->lifecycle);
	}
	while ((c = wait_for_call(w))) {
		/* prepare_or_answer hands the work's reference on or drops it. So the worker has one of its own:
		 * text_fail_all may use the call as long as it is w->call. */
		call_ref(c);
		c->text.time = (struct text_time){0};
		if (w->kind != SMALL) {
			polite_begin(&w->polite);
			c->text.polite = &w->polite;
		} else {
			c->text.time.cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
			c->text.time.look_ns = clock_now_ns() + small_ns;
		}
		prepare_or_answer(w, c);
		pthread_mutex_lock(&w->text->lock);
		w->call = NULL;
		pthread_mutex_unlock(&w->text->lock);
		call_unref(c);
	}
	return NULL;
}

int text_start(struct server *s, struct err *e)
{
	struct text *t = calloc(1, sizeof(*t));
	int r = 0;

	if (!t)
		return err_no_memory(e);
	t->server = s;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->ready, NULL);
	for (size_t i = 0; i < KINDS; i++)
		list_init(&t->lines[i].calls);
	s->text = t;
	while (!r && t->n_workers < ARRAY_SIZE(kinds)) {
		struct worker *w = &t->workers[t->n_workers];

		w->text = t;
		w->kind = kinds[t->n_workers];
		r = pthread_create(&w->thread, NULL, text_main, w);
		t->n_workers += !r;
	}
	return r ? err_set(e, r, "cannot start a text thread: %s", strerror(r)) : 0;
}

void text_submit(struct text *t, struct call *c)
{
	call_ref(c);
	pthread_mutex_lock(&t->lock);
	line_add(line_of(t, c), c);
	/* Wakes all workers: if only one were woken, it might be one for another kind of calls. */
	pthread_cond_broadcast(&t->ready);
	pthread_mutex_unlock(&t->lock);
}

void text_forget(struct text *t, struct call *c)
{
	bool waits;

	pthread_mutex_lock(&t->lock);
	waits = !list_empty(&c->text.node);
	if (waits)
		line_remove(line_of(t, c), c);
	pthread_mutex_unlock(&t->lock);
	if (!waits)
		return;
	call_drop_body(c);
	drop_aborted(c);
}

/* Drops the work's references to all calls that wait. A call that was aborted counts as aborted. The others fail with
 * *e. If e is NULL, the others count as aborted, too, because nobody waits for their answers any more. Call with the
 * lock held. */
static void drop_calls(struct text *t, const struct err *e)
{
	for (size_t i = 0; i < KINDS; i++)
		list_for_each (c, &t->lines[i].calls, struct call, text.node) {
			list_remove(&c->text.node);
			if (!e || atomic_load(&c->aborted))
				drop_aborted(c);
			else
				drop_failed(c, e);
		}
}

void text_fail_all(struct text *t, const struct err *e)
{
	pthread_mutex_lock(&t->lock);
	drop_calls(t, e);
	for (size_t i = 0; i < t->n_workers; i++)
		if (t->workers[i].call)
			call_cancel(t->workers[i].call, e);
	pthread_mutex_unlock(&t->lock);
}

void text_free(struct text *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	drop_calls(t, NULL);
	t->quit = true;
	pthread_cond_broadcast(&t->ready);
	pthread_mutex_unlock(&t->lock);
	for (size_t i = 0; i < t->n_workers; i++)
		pthread_join(t->workers[i].thread, NULL);
	pthread_cond_destroy(&t->ready);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
