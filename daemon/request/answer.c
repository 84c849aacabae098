#include "daemon/request/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/request/choice.h"
#include "protocol/openai/response.h"

struct answer {
	struct call *call;
	struct openai_head head;
	struct choice_config config;
	struct choice *choices; /* [call.text.n_choices] */
	struct {
		bool begun; /* the choice's first chunk was written */
		struct openai_cursor cursor;
	} * streams; /* [call.text.n_choices]; NULL: the answer is sent whole */
	/* [call.text.n_parts] the log-probabilities of the prompts' tokens. NULL: the request does not want them. */
	struct scores {
		/* [tokens of the prompt] The first n are known. They include v[0], which has no log-probability. */
		struct draw_result *v;
		size_t n;
	} * scores;
	uint32_t n_open;	    /* choices that have not ended */
	struct openai_usage so_far; /* for continuous_usage_stats */
};

static const struct ids *prompt_of(const struct answer *a, uint32_t choice)
{
	return &a->call->text.parts[choice / a->call->text.n].prompt;
}

static void echo_prompt(struct answer *a, uint32_t index)
{
	const struct call *c = a->call;
	const struct openai_prompt *p = &c->text.ask.prompts[index / c->text.n];
	const struct tokenizer *t = c->server->tokenizer;
	struct buf *out = &a->choices[index].content;

	if (p->text) {
		buf_append(out, p->text, p->text_len);
		return;
	}
	for (size_t i = 0; i < p->n_ids; i++) {
		size_t len;
		const char *bytes = tokenizer_bytes(t, p->ids[i], &len);

		if (!tokenizer_is_special(t, p->ids[i]))
			buf_append(out, bytes, len);
	}
}

/* Returns the number of bytes that token `id`, which begins at byte `at`, has in the text of the echoed prompt. A
 * special token has bytes only if the client's text contains it at `at`. It has none if the tokenizer added it, or if
 * the client gave the prompt as ids. */
static size_t echoed_bytes(const struct answer *a, const struct openai_prompt *p, size_t at,
			   int32_t id)
{
	const struct tokenizer *t = a->call->server->tokenizer;
	size_t len;
	const char *bytes = tokenizer_bytes(t, id, &len);

	if (!tokenizer_is_special(t, id))
		return len;
	return p->text && len <= p->text_len - MIN(at, p->text_len) &&
			       !memcmp(p->text + at, bytes, len)
		       ? len
		       : 0;
}

/* To be called when all prompt tokens of a part (call.h) are scored. With echo and logprobs, gives these tokens to all
 * choices of the part, which report them first. Otherwise does nothing. */
static int echo_scores(struct answer *a, uint32_t part)
{
	const struct call *c = a->call;
	struct scores *s = &a->scores[part];
	struct openai_token *tokens;
	size_t at = 0;
	int r = 0;

	if (!c->text.ask.echo || !c->text.ask.sampling.want_logprobs)
		return 0;
	tokens = calloc(s->n, sizeof(*tokens));
	if (!tokens)
		return -ENOMEM;
	s->v[0].token = c->text.parts[part].prompt.v[0];
	for (size_t i = 0; i < s->n; i++) {
		size_t shown = echoed_bytes(a, &c->text.ask.prompts[part], at, s->v[i].token), len;

		tokenizer_bytes(c->server->tokenizer, s->v[i].token, &len);
		tokens[i] = (struct openai_token){.draw = s->v[i],
						  .cut = (uint32_t)(len - shown),
						  .first = !i,
						  .last = i + 1 == s->n};
		at += shown;
	}
	for (uint32_t i = 0; !r && i < c->text.n; i++)
		r = choice_echo(&a->choices[part * c->text.n + i], tokens, s->n);
	free(tokens);
	return r;
}

/* Makes a->scores if the request wants them. The first token of a prompt has no log-probability, because it follows no
 * token. So nothing is awaited for it, and n begins at 1. */
static int make_scores(struct answer *a)
{
	const struct call *c = a->call;
	uint32_t n_top;
	int r = 0;

	if (!openai_wants_scores(&c->text.ask, &n_top))
		return 0;
	a->scores = calloc(c->text.n_parts, sizeof(*a->scores));
	if (!a->scores)
		return -ENOMEM;
	for (uint32_t i = 0; !r && i < c->text.n_parts; i++) {
		struct scores *s = &a->scores[i];

		s->v = calloc(c->text.parts[i].prompt.len, sizeof(*s->v));
		s->n = 1;
		if (!s->v)
			return -ENOMEM;
		if (c->text.parts[i].prompt.len == 1)
			r = echo_scores(a, i);
	}
	return r;
}

static int make_choices(struct answer *a)
{
	const struct call *c = a->call;

	a->choices = calloc(c->text.n_choices, sizeof(*a->choices));
	if (c->text.ask.stream)
		a->streams = calloc(c->text.n_choices, sizeof(*a->streams));
	if (!a->choices || (c->text.ask.stream && !a->streams))
		return -ENOMEM;
	for (uint32_t i = 0; i < c->text.n_choices; i++) {
		if (choice_init(&a->choices[i], &a->config) < 0)
			return -ENOMEM;
		if (c->text.ask.echo)
			echo_prompt(a, i);
	}
	return make_scores(a);
}

struct answer *answer_new(struct call *c)
{
	const struct sampling *s = &c->text.ask.sampling;
	struct answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->call = c;
	a->n_open = c->text.n_choices;
	a->head = (struct openai_head){
		.id = c->id,
		.model = c->server->name,
		.fingerprint = c->server->fingerprint,
		.created = c->created,
		.shape = c->endpoint->shape,
		.logprobs = s->want_logprobs,
		.n_logprobs = s->n_logprobs,
		.prompt_logprobs = c->text.ask.prompt_logprobs,
		.n_prompt_logprobs = c->text.ask.n_prompt_logprobs,
		.include_usage = c->text.ask.include_usage,
		.so_far = c->text.ask.continuous_usage ? &a->so_far : NULL,
		.return_token_ids = c->text.ask.return_token_ids,
		.tokenizer = c->server->tokenizer,
	};
	a->config = (struct choice_config){
		.tokenizer = c->server->tokenizer,
		.stops = c->text.ask.stops,
		.n_stops = c->text.ask.n_stops,
		.reasoning = c->endpoint->reasoning,
		.thinking = c->text.ask.thinking,
		.logprobs = s->want_logprobs,
		.token_ids = c->text.ask.return_token_ids,
		.every_token = c->text.ask.echo,
	};
	if (make_choices(a) < 0) {
		answer_free(a);
		return NULL;
	}
	return a;
}

void answer_free(struct answer *a)
{
	if (!a)
		return;
	for (uint32_t i = 0; a->choices && i < a->call->text.n_choices; i++)
		choice_release(&a->choices[i]);
	for (uint32_t i = 0; a->scores && i < a->call->text.n_parts; i++)
		free(a->scores[i].v);
	free(a->scores);
	free(a->choices);
	free(a->streams);
	free(a);
}

bool answer_complete(const struct answer *a)
{
	return !a->n_open;
}

static struct openai_delta delta_of(const struct answer *a, uint32_t index)
{
	const struct choice *ch = &a->choices[index];

	return (struct openai_delta){
		.index = index,
		.content = buf_str(&ch->content),
		.content_len = ch->content.len,
		.reasoning = buf_str(&ch->reasoning),
		.reasoning_len = ch->reasoning.len,
		.tokens = ch->tokens,
		.n_tokens = ch->n_ready,
		.token_ids = ch->token_ids.v,
		.n_token_ids = ch->token_ids.len,
		.finish_reason = ch->finish,
	};
}

static struct openai_usage usage(const struct answer *a)
{
	struct openai_usage u = {.prompt_tokens = a->call->text.n_prompt,
				 .cached_tokens = atomic_load(&a->call->report.n_cached)};

	for (uint32_t i = 0; i < a->call->text.n_choices; i++) {
		u.completion_tokens += a->choices[i].n_drawn;
		u.reasoning_tokens += a->choices[i].n_reasoning;
	}
	return u;
}

/* Writes the first chunk of a choice, if that was not done yet, and then the choice's new text. Token ids wait for a
 * chunk that has text, log-probabilities or the finish reason. */
static void stream_choice(struct answer *a, uint32_t index, struct buf *out)
{
	const struct ids *prompt = prompt_of(a, index);
	struct choice *ch = &a->choices[index];
	struct openai_delta d;

	if (a->head.so_far)
		a->so_far = usage(a);
	if (!a->streams[index].begun) {
		a->call->endpoint->begin(&a->head, index, prompt->v, prompt->len, out);
		a->streams[index].begun = true;
	}
	if (!ch->content.len && !ch->reasoning.len && !ch->n_ready && !ch->finish)
		return;
	d = delta_of(a, index);
	d.cursor = &a->streams[index].cursor;
	a->call->endpoint->token(&a->head, &d, out);
	choice_clear(ch);
}

/* Takes the next scored token of a part's prompt. */
static int take_score(struct answer *a, uint32_t part, const struct draw_result *score,
		      struct buf *out)
{
	const struct call *c = a->call;
	struct scores *s = &a->scores[part];
	int r;

	s->v[s->n++] = *score;
	if (s->n < c->text.parts[part].prompt.len)
		return 0;
	r = echo_scores(a, part);
	for (uint32_t i = 0; !r && out && i < c->text.n; i++)
		stream_choice(a, part * c->text.n + i, out);
	return r;
}

/* Takes a drawn token of a choice. With prompt_only (max_tokens is 0) the token is not shown, and the choice ends. */
static int take_token(struct answer *a, uint32_t index, const struct draw_result *draw,
		      enum finish_reason finish)
{
	struct choice *ch = &a->choices[index];
	int r = 0;

	if (a->call->text.ask.prompt_only)
		ch->finish = "length";
	else
		r = choice_push(ch, draw, finish);
	if (r > 0)
		call_stop_choice(a->call, index);
	if (ch->finish)
		a->n_open--;
	return MIN(r, 0);
}

int answer_feed(struct answer *a, const struct buf *tokens, struct buf *out)
{
	enum finish_reason finish;
	struct draw_result draw;
	uint32_t index;
	size_t at = 0;

	while (call_record(tokens, &at, &index, &finish, &draw)) {
		int r;

		if (draw.rank) {
			r = take_score(a, index, &draw, out);
			if (r < 0)
				return r;
			continue;
		}
		/* The token was drawn before the engine thread was told of the stop string that ended the choice. */
		if (a->choices[index].finish)
			continue;
		r = take_token(a, index, &draw, finish);
		if (r < 0)
			return r;
		if (out)
			stream_choice(a, index, out);
	}
	return 0;
}

void answer_end_stream(const struct answer *a, struct buf *out)
{
	struct openai_usage u = usage(a);

	a->call->endpoint->end(&a->head, &u, out);
}

void answer_body(const struct answer *a, struct buf *out)
{
	const struct call *c = a->call;
	struct openai_choice *choices = calloc(c->text.n_choices, sizeof(*choices));
	struct ids *prompts = calloc(c->text.n_parts, sizeof(*prompts));
	struct openai_usage u = usage(a);

	if (choices && prompts) {
		for (uint32_t i = 0; i < c->text.n_choices; i++) {
			choices[i].all = delta_of(a, i);
			if (a->scores) {
				choices[i].prompt = a->scores[i / c->text.n].v;
				choices[i].n_prompt = a->scores[i / c->text.n].n;
			}
		}
		for (uint32_t i = 0; i < c->text.n_parts; i++)
			prompts[i] = c->text.parts[i].prompt;
		c->endpoint->whole(&a->head, choices, c->text.n_choices,
				   c->text.ask.return_token_ids ? prompts : NULL, c->text.n_parts,
				   &u, out);
	} else {
		out->failed = true;
	}
	free(choices);
	free(prompts);
}
