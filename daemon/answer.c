#include "daemon/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/openai/response.h"
#include "protocol/text/detokenizer.h"

/* Text of one choice at most, and of one body. */
enum { TEXT_MAX = 256 << 20 };

/* A token whose log-probabilities are still to be reported. */
struct pending {
	struct openai_token *v; /* [n], owned */
	size_t *end;		/* [n], owned: where each ends in the raw bytes */
	size_t n, cap;
};

struct choice {
	uint32_t index;
	struct detokenizer *detokenizer;
	bool begun;	    /* its first chunk is out */
	const char *finish; /* NULL: goes on */
	struct buf content; /* a stream: of this piece only; else all there is */
	struct ids token_ids;
	struct pending pending; /* a stream: not yet covered by text; else all there are */
	size_t raw_len;	    /* bytes of the tokens pushed */
	struct openai_cursor cursor;
};

struct answer {
	struct call *call;
	struct openai_head head;
	struct choice *choices; /* [call.n_choices] */
	uint32_t n_open;	/* choices that go on */
	struct openai_usage usage;
};

static bool choice_init(struct choice *ch, const struct call *c, uint32_t index)
{
	ch->index = index;
	buf_init(&ch->content, TEXT_MAX);
	ch->detokenizer = detokenizer_new(c->server->tokenizer, c->ask.stops, c->ask.n_stops);
	return ch->detokenizer != NULL;
}

static void choice_release(struct choice *ch)
{
	detokenizer_free(ch->detokenizer);
	buf_release(&ch->content);
	ids_release(&ch->token_ids);
	free(ch->pending.v);
	free(ch->pending.end);
}

static void echo_prompt(struct answer *a, struct choice *ch)
{
	const struct call *c = a->call;
	const struct openai_prompt *p = &c->ask.prompts[ch->index / c->n];

	if (p->text) {
		buf_append(&ch->content, p->text, p->text_len);
		return;
	}
	for (size_t i = 0; i < p->n_ids; i++) {
		size_t len;
		const char *bytes = tokenizer_bytes(c->server->tokenizer, p->ids[i], &len);

		if (!tokenizer_is_special(c->server->tokenizer, p->ids[i]))
			buf_append(&ch->content, bytes, len);
	}
}

struct answer *answer_new(struct call *c)
{
	struct answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->call = c;
	a->head = (struct openai_head){
		.id = c->id,
		.model = c->server->name,
		.created = c->created,
		.chat = c->ask.chat,
		.logprobs = c->ask.sampling.want_logprobs,
		.n_logprobs = c->ask.sampling.n_logprobs,
		.include_usage = c->ask.include_usage,
		.return_token_ids = c->ask.return_token_ids,
		.tokenizer = c->server->tokenizer,
	};
	a->usage.prompt_tokens = c->n_prompt;
	a->choices = calloc(c->n_choices, sizeof(*a->choices));
	for (uint32_t i = 0; a->choices && i < c->n_choices; i++) {
		if (!choice_init(&a->choices[i], c, i)) {
			answer_free(a);
			return NULL;
		}
		if (!c->ask.chat && c->ask.echo)
			echo_prompt(a, &a->choices[i]);
	}
	if (!a->choices) {
		answer_free(a);
		return NULL;
	}
	a->n_open = c->n_choices;
	return a;
}

void answer_free(struct answer *a)
{
	if (!a)
		return;
	for (uint32_t i = 0; a->choices && i < a->call->n_choices; i++)
		choice_release(&a->choices[i]);
	free(a->choices);
	free(a);
}

bool answer_complete(const struct answer *a)
{
	return !a->n_open;
}

static int add_pending(struct pending *p, const struct draw_result *draw, size_t end)
{
	if (p->n == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 16;
		struct openai_token *v = reallocarray(p->v, cap, sizeof(*v));
		size_t *ends;

		if (!v)
			return -ENOMEM;
		p->v = v;
		ends = reallocarray(p->end, cap, sizeof(*ends));
		if (!ends)
			return -ENOMEM;
		p->end = ends;
		p->cap = cap;
	}
	p->v[p->n] = (struct openai_token){.draw = *draw};
	p->end[p->n++] = end;
	return 0;
}

/* A stop string was met: tokens, or parts of one, behind the text that went out are cut off. */
static void cut_pending(struct choice *ch)
{
	struct pending *p = &ch->pending;
	size_t released = detokenizer_released(ch->detokenizer);

	while (p->n && p->end[p->n - 1] > released) {
		size_t begin = p->n > 1 ? p->end[p->n - 2] : 0;

		if (begin < released) {
			p->v[p->n - 1].cut = (uint32_t)(p->end[p->n - 1] - released);
			return;
		}
		p->n--;
	}
}

/* How many of the pending tokens the text covers that went out. */
static size_t covered(const struct choice *ch)
{
	size_t released = detokenizer_released(ch->detokenizer), n = 0;

	while (n < ch->pending.n && ch->pending.end[n] <= released)
		n++;
	return ch->finish ? ch->pending.n : n;
}

static void drop_pending(struct pending *p, size_t n)
{
	memmove(p->v, p->v + n, (p->n - n) * sizeof(*p->v));
	memmove(p->end, p->end + n, (p->n - n) * sizeof(*p->end));
	p->n -= n;
}

/* Pushes a token through; sets ch->finish when the choice ends with it. */
static int push_token(struct answer *a, struct choice *ch, enum finish_reason finish,
		      const struct draw_result *draw)
{
	const struct call *c = a->call;
	const struct tokenizer *t = c->server->tokenizer;
	size_t len;
	int r;

	a->usage.completion_tokens++;
	if (c->ask.return_token_ids && ids_push(&ch->token_ids, draw->token) < 0)
		return -ENOMEM;
	/* An end token is no part of the text. */
	if (finish == FINISH_STOP) {
		ch->finish = "stop";
		return detokenizer_finish(ch->detokenizer, &ch->content);
	}
	tokenizer_bytes(t, draw->token, &len);
	if (!tokenizer_is_special(t, draw->token))
		ch->raw_len += len;
	if (a->head.logprobs && add_pending(&ch->pending, draw, ch->raw_len) < 0)
		return -ENOMEM;
	r = detokenizer_push(ch->detokenizer, draw->token, &ch->content);
	if (r < 0)
		return r;
	if (r > 0) {
		ch->finish = "stop";
		cut_pending(ch);
		if (finish == FINISH_NONE)
			call_stop_choice(a->call, ch->index);
		return 0;
	}
	if (finish == FINISH_LENGTH) {
		ch->finish = "length";
		return detokenizer_finish(ch->detokenizer, &ch->content);
	}
	return 0;
}

static struct openai_delta delta_of(const struct choice *ch, size_t n_tokens)
{
	return (struct openai_delta){
		.index = ch->index,
		.content = buf_str(&ch->content),
		.content_len = ch->content.len,
		.tokens = ch->pending.v,
		.n_tokens = n_tokens,
		.token_ids = ch->token_ids.v,
		.n_token_ids = ch->token_ids.len,
		.finish_reason = ch->finish,
	};
}

/* Sends what there is of a choice. Ids wait for a chunk that has more to say. */
static void stream_choice(struct answer *a, struct choice *ch, struct buf *out)
{
	const struct ids *prompt = &a->call->parts[ch->index / a->call->n].prompt;
	size_t n = covered(ch);
	struct openai_delta d;

	if (!ch->begun) {
		openai_stream_role(&a->head, ch->index, prompt->v, prompt->len, out);
		ch->begun = true;
	}
	if (!ch->content.len && !n && !ch->finish)
		return;
	d = delta_of(ch, n);
	d.cursor = &ch->cursor;
	openai_stream_delta(&a->head, &d, out);
	buf_reset(&ch->content);
	ch->token_ids.len = 0;
	drop_pending(&ch->pending, n);
}

int answer_feed(struct answer *a, const struct buf *tokens, struct buf *out)
{
	enum finish_reason finish;
	struct draw_result draw;
	uint32_t index;
	size_t at = 0;

	while (call_record(tokens, &at, &index, &finish, &draw)) {
		struct choice *ch = &a->choices[index];

		/* Drawn before the engine heard of the stop string. */
		if (ch->finish)
			continue;
		if (push_token(a, ch, finish, &draw) < 0 || ch->content.failed)
			return -ENOMEM;
		if (ch->finish)
			a->n_open--;
		if (out)
			stream_choice(a, ch, out);
	}
	return 0;
}

void answer_end_stream(const struct answer *a, struct buf *out)
{
	openai_stream_usage(&a->head, &a->usage, out);
	openai_stream_done(out);
}

void answer_body(const struct answer *a, struct buf *out)
{
	const struct call *c = a->call;
	struct openai_choice *choices = calloc(c->n_choices, sizeof(*choices));
	struct ids *prompts = calloc(c->n_parts, sizeof(*prompts));

	if (!choices || !prompts) {
		out->failed = true;
	} else {
		for (uint32_t i = 0; i < c->n_choices; i++)
			choices[i].all = delta_of(&a->choices[i], a->choices[i].pending.n);
		for (uint32_t i = 0; i < c->n_parts; i++)
			prompts[i] = c->parts[i].prompt;
		openai_body(&a->head, choices, c->n_choices,
			    c->ask.return_token_ids ? prompts : NULL, c->n_parts, &a->usage, out);
	}
	free(choices);
	free(prompts);
}
