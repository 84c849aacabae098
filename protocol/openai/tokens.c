#include "protocol/openai/tokens.h"

#include <errno.h>
#include <string.h>

/* A token of a list: this struct, then n_top ids, then n_top log-probabilities. */
struct record {
	int32_t token;
	float logprob;
	uint32_t rank, cut;
	uint8_t n_top;
	bool first, last;
};

size_t openai_tokens_size(uint32_t n_top)
{
	return sizeof(struct record) + n_top * (sizeof(int32_t) + sizeof(float));
}

void openai_tokens_init(struct openai_tokens *t)
{
	*t = (struct openai_tokens){.n = 0};
	buf_init(&t->bytes, SIZE_MAX / 2);
}

void openai_tokens_release(struct openai_tokens *t)
{
	buf_release(&t->bytes);
	t->n = 0;
}

void openai_tokens_clear(struct openai_tokens *t)
{
	buf_reset(&t->bytes);
	t->n = 0;
}

int openai_tokens_reserve(struct openai_tokens *t, size_t n, uint32_t n_top)
{
	return buf_reserve(&t->bytes, n * openai_tokens_size(n_top)) < 0 ? -ENOMEM : 0;
}

int openai_tokens_add(struct openai_tokens *t, const struct openai_token *token)
{
	const struct draw_result *d = &token->draw;
	const struct record rec = {
		.token = d->token,
		.logprob = d->logprob,
		.rank = d->rank,
		.cut = token->cut,
		.n_top = (uint8_t)MIN(d->n_top, (uint32_t)TOP_LOGPROBS_MAX),
		.first = token->first,
		.last = token->last,
	};

	if (buf_reserve(&t->bytes, openai_tokens_size(rec.n_top)) < 0)
		return -ENOMEM;
	buf_append(&t->bytes, &rec, sizeof(rec));
	buf_append(&t->bytes, d->top_ids, rec.n_top * sizeof(int32_t));
	buf_append(&t->bytes, d->top_logprobs, rec.n_top * sizeof(float));
	t->n++;
	return 0;
}

bool openai_tokens_next(const struct openai_tokens *t, size_t *at, struct openai_token *ret)
{
	struct draw_result *d = &ret->draw;
	struct record rec;
	const char *p;

	if (*at >= t->bytes.len)
		return false;
	p = t->bytes.data + *at;
	memcpy(&rec, p, sizeof(rec));
	p += sizeof(rec);
	d->token = rec.token;
	d->logprob = rec.logprob;
	d->rank = rec.rank;
	d->n_top = rec.n_top;
	memcpy(d->top_ids, p, rec.n_top * sizeof(int32_t));
	p += rec.n_top * sizeof(int32_t);
	memcpy(d->top_logprobs, p, rec.n_top * sizeof(float));
	p += rec.n_top * sizeof(float);
	ret->cut = rec.cut;
	ret->first = rec.first;
	ret->last = rec.last;
	*at = (size_t)(p - t->bytes.data);
	return true;
}
