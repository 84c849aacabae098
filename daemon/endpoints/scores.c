/* POST /v1/score and /v1/rerank. */
#include "protocol/openai/scores.h"

#include <stdlib.h>

#include "daemon/request/call.h"

struct writer {
	const struct call *call;
	struct openai_scores scores;
	struct openai_score list[]; /* [n_parts] */
};

static void *begin(struct call *c, const struct openai_head *h)
{
	struct writer *w = calloc(1, sizeof(*w) + c->text.n_parts * sizeof(w->list[0]));

	if (!w)
		return NULL;
	w->call = c;
	w->scores.head = h;
	w->scores.list = w->list;
	return w;
}

static int end(void *arg, const struct openai_usage *u)
{
	struct writer *w = arg;
	const struct call_text *t = &w->call->text;

	for (uint32_t i = 0; i < t->n_parts; i++) {
		const struct call_part *p = &t->parts[i];

		w->list[i] = (struct openai_score){
			.index = i,
			.score = (float)(p->logprobs / (p->n_prompt - p->first_score)),
			.text = p->echo,
			.len = p->echo_len,
		};
	}
	w->scores.usage = *u;
	w->scores.n = t->n_parts;
	if (!t->ask.score.top)
		return 0;
	openai_rank(w->list, t->n_parts);
	w->scores.n = MIN(t->n_parts, t->ask.score.top);
	return 0;
}

static bool write_scores(void *arg, size_t enough, struct buf *out)
{
	return openai_scores_write(&((struct writer *)arg)->scores, enough, out);
}

static bool write_ranking(void *arg, size_t enough, struct buf *out)
{
	struct writer *w = arg;

	return w->call->text.ask.score.plain ? openai_plain_ranking_write(&w->scores, enough, out)
					     : openai_ranking_write(&w->scores, enough, out);
}

static size_t bytes(const void *arg)
{
	const struct writer *w = arg;

	return sizeof(*w) + w->call->text.n_parts * sizeof(w->list[0]);
}

static const struct answer_writer scores = {
	.begin = begin,
	.end = end,
	.write = write_scores,
	.bytes = bytes,
	.release = free,
};

static const struct answer_writer ranking = {
	.begin = begin,
	.end = end,
	.write = write_ranking,
	.bytes = bytes,
	.release = free,
};

const struct endpoint endpoint_score = {
	.path = "/v1/score",
	.post = true,
	.id = "score-",
	.parse = openai_parse_score,
	.writer = &scores,
};

const struct endpoint endpoint_rerank = {
	.path = "/v1/rerank",
	.post = true,
	.id = "rerank-",
	.parse = openai_parse_rerank,
	.writer = &ranking,
};
