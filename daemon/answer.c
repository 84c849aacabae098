#include "daemon/answer.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/choice.h"
#include "protocol/openai/response.h"

struct answer {
	struct call *call;
	struct openai_head head;
	struct choice_config config;
	struct choice *choices; /* [call.n_choices] */
	struct {
		bool begun; /* its first chunk is out */
		struct openai_cursor cursor;
	} * streams;	 /* [call.n_choices]; NULL: no stream */
	uint32_t n_open; /* choices that go on */
};

static void echo_prompt(struct answer *a, uint32_t index)
{
	const struct call *c = a->call;
	const struct openai_prompt *p = &c->ask.prompts[index / c->n];
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

static int make_choices(struct answer *a)
{
	const struct call *c = a->call;

	a->choices = calloc(c->n_choices, sizeof(*a->choices));
	if (c->ask.stream)
		a->streams = calloc(c->n_choices, sizeof(*a->streams));
	if (!a->choices || (c->ask.stream && !a->streams))
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_choices; i++) {
		if (choice_init(&a->choices[i], &a->config) < 0)
			return -ENOMEM;
		if (!c->ask.chat && c->ask.echo)
			echo_prompt(a, i);
	}
	return 0;
}

struct answer *answer_new(struct call *c)
{
	const struct sampling *s = &c->ask.sampling;
	struct answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->call = c;
	a->n_open = c->n_choices;
	a->head = (struct openai_head){
		.id = c->id,
		.model = c->server->name,
		.fingerprint = c->server->fingerprint,
		.created = c->created,
		.chat = c->ask.chat,
		.logprobs = s->want_logprobs,
		.n_logprobs = s->n_logprobs,
		.include_usage = c->ask.include_usage,
		.return_token_ids = c->ask.return_token_ids,
		.tokenizer = c->server->tokenizer,
	};
	a->config = (struct choice_config){
		.tokenizer = c->server->tokenizer,
		.stops = c->ask.stops,
		.n_stops = c->ask.n_stops,
		.chat = c->ask.chat,
		.thinking = c->ask.chat && c->ask.thinking,
		.logprobs = s->want_logprobs,
		.token_ids = c->ask.return_token_ids,
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
	for (uint32_t i = 0; a->choices && i < a->call->n_choices; i++)
		choice_release(&a->choices[i]);
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

/* Sends what there is of a choice. Ids wait for a chunk that has more to say. */
static void stream_choice(struct answer *a, uint32_t index, struct buf *out)
{
	const struct ids *prompt = &a->call->parts[index / a->call->n].prompt;
	struct choice *ch = &a->choices[index];
	struct openai_delta d;

	if (!a->streams[index].begun) {
		openai_stream_role(&a->head, index, prompt->v, prompt->len, out);
		a->streams[index].begun = true;
	}
	if (!ch->content.len && !ch->reasoning.len && !ch->n_ready && !ch->finish)
		return;
	d = delta_of(a, index);
	d.cursor = &a->streams[index].cursor;
	openai_stream_delta(&a->head, &d, out);
	choice_clear(ch);
}

int answer_feed(struct answer *a, const struct buf *tokens, struct buf *out)
{
	enum finish_reason finish;
	struct draw_result draw;
	uint32_t index;
	size_t at = 0;

	while (call_record(tokens, &at, &index, &finish, &draw)) {
		struct choice *ch = &a->choices[index];
		int r;

		/* Drawn before the engine heard of the stop string. */
		if (ch->finish)
			continue;
		r = choice_push(ch, &draw, finish);
		if (r < 0)
			return r;
		if (r > 0)
			call_stop_choice(a->call, index);
		if (ch->finish)
			a->n_open--;
		if (out)
			stream_choice(a, index, out);
	}
	return 0;
}

static struct openai_usage usage(const struct answer *a)
{
	struct openai_usage u = {.prompt_tokens = a->call->n_prompt,
				 .cached_tokens = atomic_load(&a->call->n_cached)};

	for (uint32_t i = 0; i < a->call->n_choices; i++) {
		u.completion_tokens += a->choices[i].n_drawn;
		u.reasoning_tokens += a->choices[i].n_reasoning;
	}
	return u;
}

void answer_end_stream(const struct answer *a, struct buf *out)
{
	struct openai_usage u = usage(a);

	openai_stream_usage(&a->head, &u, out);
	openai_stream_done(out);
}

void answer_body(const struct answer *a, struct buf *out)
{
	const struct call *c = a->call;
	struct openai_choice *choices = calloc(c->n_choices, sizeof(*choices));
	struct ids *prompts = calloc(c->n_parts, sizeof(*prompts));
	struct openai_usage u = usage(a);

	if (choices && prompts) {
		for (uint32_t i = 0; i < c->n_choices; i++)
			choices[i].all = delta_of(a, i);
		for (uint32_t i = 0; i < c->n_parts; i++)
			prompts[i] = c->parts[i].prompt;
		openai_body(&a->head, choices, c->n_choices,
			    c->ask.return_token_ids ? prompts : NULL, c->n_parts, &u, out);
	} else {
		out->failed = true;
	}
	free(choices);
	free(prompts);
}
