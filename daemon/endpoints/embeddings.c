/* POST /v1/embeddings. */
#include "protocol/openai/embeddings.h"

#include <stdlib.h>

#include "daemon/request/call.h"

struct writer {
	const struct call *call;
	const struct openai_head *head;
	struct openai_usage usage;
	bool begun;
	uint32_t next; /* number of the part whose vector is written next */
};

static void *begin(struct call *c, const struct openai_head *h)
{
	struct writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->call = c;
	w->head = h;
	return w;
}

static int end(void *arg, const struct openai_usage *u)
{
	struct writer *w = arg;

	w->usage = *u;
	return 0;
}

static bool write(void *arg, size_t enough, struct buf *out)
{
	struct writer *w = arg;
	const struct call_text *t = &w->call->text;

	if (!w->begun)
		openai_embeddings_begin(w->head, out);
	w->begun = true;
	for (; w->next < t->n_parts && out->len < enough; w->next++)
		openai_embedding(w->next, t->parts[w->next].vector, t->ask.embed.dimensions,
				 t->ask.embed.base64, out);
	if (w->next < t->n_parts)
		return false;
	openai_embeddings_end(&w->usage, out);
	return true;
}

static size_t bytes(const void *arg)
{
	const struct writer *w = arg;

	return (size_t)w->call->text.n_parts * w->call->server->info.model.hidden_size *
	       sizeof(float);
}

static const struct answer_writer writer = {
	.begin = begin,
	.end = end,
	.write = write,
	.bytes = bytes,
	.release = free,
};

const struct endpoint endpoint_embeddings = {
	.path = "/v1/embeddings",
	.post = true,
	.id = "embd-",
	.parse = openai_parse_embeddings,
	.writer = &writer,
};
