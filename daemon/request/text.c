#include "daemon/request/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/lifecycle.h"
#include "daemon/threads.h"
#include "daemon/request/turns.h"
#include "engine/checkpoint/checkpoint.h"

struct text {
	struct server *server;
	struct queue queue; /* calls, by call.text.node */
	pthread_t thread;
	_Atomic bool quit;
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

/* Opens the chat template. Without one (as with many base models) only the endpoints that need it do not work. */
static int open_template(struct server *s, const struct checkpoint *k, struct err *e)
{
	struct checkpoint_text text;
	int r = checkpoint_read(k, CHECKPOINT_TEMPLATE, &text, e);

	if (r == -ENOENT) {
		log_warning("%s; /v1/chat/completions will not work", e->text);
		r = 0;
	} else if (r == 0) {
		r = template_parse(text.name, buf_str(&text.bytes), text.bytes.len, &s->template,
				   e);
	}
	checkpoint_text_release(&text);
	return r;
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
	checkpoint_close(k);
	if (r == 0)
		s->turn_token = s->template ? turns_token(s->template, s->tokenizer) : -1;
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
	return r;
}

/* Does the text thread's work on a call. Takes the work's reference: hands it on to the engine thread, or drops it. */
static void prepare_or_answer(struct call *c) ON(role_text)
{
	struct err e = {0};
	int r;

	if (atomic_load(&c->aborted)) {
		call_count(c, METRICS_ABORT);
		call_unref(c);
		return;
	}
	if (c->endpoint->reply) {
		if (answer_now(c, &e) < 0)
			call_fail(c, &e);
		call_drop_body(c);
		call_unref(c);
		return;
	}
	r = prepare_call(c, &e);
	call_drop_body(c);
	if (r < 0) {
		call_fail(c, &e);
		call_count(c, METRICS_ERROR);
		call_unref(c);
		return;
	}
	call_submit(c);
}

static void *text_main(void *arg)
{
	struct text *t = arg;
	struct err e = {0};

	role_begin(&role_text);
	if (open_texts(t->server, &e) < 0)
		lifecycle_fail(t->server->lifecycle, &e);
	else
		lifecycle_loaded(t->server->lifecycle);
	for (;;) {
		struct queue_node *node = queue_pop(&t->queue);

		if (node) {
			struct call *c = container_of(node, struct call, text.node);

			if (atomic_load(&t->quit))
				call_unref(c);
			else
				prepare_or_answer(c);
		} else if (atomic_load(&t->quit)) {
			return NULL;
		} else {
			queue_wait(&t->queue, 0);
		}
	}
}

int text_start(struct server *s, struct err *e)
{
	struct text *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_no_memory(e);
	t->server = s;
	queue_init(&t->queue);
	s->text = t;
	r = pthread_create(&t->thread, NULL, text_main, t);
	if (r) {
		s->text = NULL;
		queue_release(&t->queue);
		free(t);
		return err_set(e, r, "cannot start the text thread: %s", strerror(r));
	}
	return 0;
}

void text_submit(struct text *t, struct call *c)
{
	queue_push(&t->queue, &call_ref(c)->text.node);
}

void text_free(struct text *t)
{
	if (!t)
		return;
	atomic_store(&t->quit, true);
	queue_wake(&t->queue);
	pthread_join(t->thread, NULL);
	queue_release(&t->queue);
	free(t);
}
