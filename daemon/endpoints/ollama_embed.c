/* POST /api/embed and POST /api/embeddings: vectors in the shape of Ollama's API. */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/request/call.h"
#include "protocol/ollama/embed.h"
#include "protocol/ollama/request.h"

/* Answers a request without text, which asks to load or unload the model. */
static int embed_nothing(struct call *c, struct buf *out, struct err *e)
{
	ollama_embed_nothing(c->text.ask.model, out);
	return 0;
}

static int embedding_nothing(struct call *c, struct buf *out, struct err *e)
{
	ollama_embedding_nothing(out);
	return 0;
}

struct writer {
	const struct call *call;
	struct openai_usage usage;
	struct ollama_times times;
	bool begun;
	uint32_t next; /* number of the part whose vector is written next */
};

static void *begin(struct call *c, const struct openai_head *h)
{
	struct writer *w = calloc(1, sizeof(*w));

	if (w)
		w->call = c;
	return w;
}

static int end(void *arg, const struct openai_usage *u)
{
	struct writer *w = arg;
	const uint64_t arrived = w->call->arrived_ns;

	w->usage = *u;
	w->times.total = clock_now_ns() - arrived;
	w->times.load = atomic_load(&w->call->report.begun_ns) - arrived;
	return 0;
}

static bool write_embed(void *arg, size_t enough, struct buf *out)
{
	struct writer *w = arg;
	const struct call_text *t = &w->call->text;

	if (!w->begun)
		ollama_embed_begin(t->ask.model, out);
	w->begun = true;
	for (; w->next < t->n_parts && out->len < enough; w->next++)
		ollama_embed_vector(w->next, t->parts[w->next].vector, t->ask.embed.dimensions,
				    out);
	if (w->next < t->n_parts)
		return false;
	ollama_embed_end(&w->usage, &w->times, out);
	return true;
}

static bool write_embedding(void *arg, size_t enough, struct buf *out)
{
	const struct call_text *t = &((struct writer *)arg)->call->text;

	ollama_embedding(t->parts[0].vector, t->ask.embed.dimensions, out);
	return true;
}

static size_t bytes(const void *arg)
{
	const struct writer *w = arg;

	return (size_t)w->call->text.n_parts * w->call->server->info.model.hidden_size *
	       sizeof(float);
}

static const struct answer_writer embed = {
	.begin = begin,
	.end = end,
	.write = write_embed,
	.bytes = bytes,
	.release = free,
};

static const struct answer_writer embedding = {
	.begin = begin,
	.end = end,
	.write = write_embedding,
	.bytes = bytes,
	.release = free,
};

const struct endpoint endpoint_ollama_embed = {
	.path = "/api/embed",
	.post = true,
	.id = "ollama-",
	.dialect = &dialect_ollama,
	.parse = ollama_parse_embed,
	.reply = embed_nothing,
	.writer = &embed,
};

const struct endpoint endpoint_ollama_embeddings = {
	.path = "/api/embeddings",
	.post = true,
	.id = "ollama-",
	.dialect = &dialect_ollama,
	.parse = ollama_parse_embeddings,
	.reply = embedding_nothing,
	.writer = &embedding,
};
