/* POST /api/chat and POST /api/generate: Ollama's API. */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/request/call.h"
#include "protocol/ollama/answer.h"
#include "protocol/ollama/request.h"

extern const struct endpoint endpoint_ollama_chat;

static struct ollama_head head_of(const struct call *c)
{
	return (struct ollama_head){
		.model = c->text.ask.model,
		.chat = c->endpoint == &endpoint_ollama_chat,
		.stream = c->text.ask.stream,
	};
}

/* Answers a request to load or unload the model, which stays as it is. */
static int run_errand(struct call *c, struct buf *out, struct err *e)
{
	const struct ollama_head head = head_of(c);

	ollama_body_errand(&head, c->text.ask.errand, clock_read_ns(CLOCK_REALTIME), out);
	return 0;
}

/* ---- the answer ---- */

struct writer {
	const struct call *call;
	struct ollama_answer *answer;
};

static void *begin(struct call *c, const struct openai_head *h)
{
	const struct ollama_head head = head_of(c);
	struct writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->call = c;
	w->answer = ollama_answer_new(h, &head);
	if (w->answer)
		return w;
	free(w);
	return NULL;
}

static int take(void *arg, const struct openai_delta *d)
{
	return ollama_answer_take(((struct writer *)arg)->answer, d, clock_read_ns(CLOCK_REALTIME));
}

static int end(void *arg, const struct openai_usage *u)
{
	const struct writer *w = arg;
	const struct call_report *r = &w->call->report;
	const uint64_t arrived = w->call->arrived_ns, now = clock_now_ns();
	const uint64_t begun = atomic_load(&r->begun_ns), first = atomic_load(&r->first_token_ns);
	const struct ollama_times times = {
		.total = now - arrived,
		.load = begun - arrived,
		.prompt = first - begun,
		.answer = now - first,
	};

	return ollama_answer_end(w->answer, u, &times, clock_read_ns(CLOCK_REALTIME));
}

static int fail(void *arg, const struct err *e)
{
	return ollama_answer_fail(((struct writer *)arg)->answer, e);
}

static bool write(void *arg, size_t enough, struct buf *out)
{
	return ollama_answer_write(((struct writer *)arg)->answer, enough, out);
}

static size_t bytes(const void *arg)
{
	return ollama_answer_bytes(((const struct writer *)arg)->answer);
}

static void release(void *arg)
{
	struct writer *w = arg;

	ollama_answer_free(w->answer);
	free(w);
}

static const struct answer_writer writer = {
	.begin = begin,
	.take = take,
	.end = end,
	.fail = fail,
	.write = write,
	.bytes = bytes,
	.release = release,
};

const struct endpoint endpoint_ollama_chat = {
	.path = "/api/chat",
	.post = true,
	.id = "ollama-",
	.dialect = &dialect_ollama,
	.parse = ollama_parse_chat,
	.reply = run_errand,
	.reasoning = true,
	.writer = &writer,
};

const struct endpoint endpoint_ollama_generate = {
	.path = "/api/generate",
	.post = true,
	.id = "ollama-",
	.dialect = &dialect_ollama,
	.parse = ollama_parse_generate,
	.reply = run_errand,
	.reasoning = true,
	.writer = &writer,
};
