#include "daemon/request/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/request/choice.h"
#include "protocol/openai/response.h"

enum {
	RECORDS = 256,	   /* the most records that answer_feed takes at once */
	ENOUGH = 16 << 10, /* answer_feed makes no more of a stream once out has so many bytes */
};

struct answer {
	struct call *call;
	struct openai_head head;
	struct choice_config config;
	struct stops *stops;	/* of all choices; NULL: none */
	struct choice *choices; /* [call.text.n_choices] */
	void *writer;		/* endpoint->writer's object; NULL: the endpoint has none */
	bool ended;		/* the writer was told of the end */
	struct {
		bool begun; /* the choice's first chunks were written */
		struct openai_cursor cursor;
	} * streams; /* [call.text.n_choices]; NULL: the answer is sent whole */
	/* [call.text.n_parts] the log-probabilities of the prompts' tokens. NULL: the request does not want them. */
	struct scores {
		/* the first token, which has no log-probability, and those whose log-probabilities are known */
		struct openai_tokens list;
		size_t at; /* bytes of the echoed text before the next token */
	} * scores;
	uint32_t n_open;    /* choices that have not ended */
	uint32_t next, end; /* of a stream: choices next .. end - 1 may have something to write */
	/* a stream: `output` or the writer has text that is not written; a whole answer: `output` was begun */
	bool writing;
	struct openai_output output;
	struct openai_usage so_far;  /* the usage so far, for continuous_usage_stats */
	struct openai_blocks blocks; /* of a stream whose shape has blocks */
	/* of an answer that is sent whole; made by begin_body */
	struct openai_choice *bodies; /* [call.text.n_parts * call.text.ask.n] */
	struct ids *prompts;	      /* [call.text.n_parts] borrowed ids */
};

static const struct ids *prompt_of(const struct answer *a, uint32_t choice)
{
	return &a->call->text.parts[choice / a->call->text.n].prompt;
}

/* Returns the number of bytes that token `id`, which begins at byte `at`, has in the text of the echoed prompt. A
 * special token has bytes only if the client's text contains it at `at`. So it has none if the tokenizer alone added
 * it, or if the client gave the prompt as ids. */
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

/* Returns whether each choice reports the log-probabilities of its prompt's tokens, before those of its own. */
static bool echoes_scores(const struct answer *a)
{
	return a->scores && a->call->text.ask.echo && a->call->text.ask.sampling.want_logprobs;
}

/* Adds the next token of a part's prompt to the part's scores. */
static int add_score(struct answer *a, uint32_t part, const struct draw_result *score)
{
	const struct call *c = a->call;
	struct scores *s = &a->scores[part];
	struct openai_token token = {.draw = *score, .first = !s->list.n};

	if (echoes_scores(a)) {
		size_t shown = echoed_bytes(a, &c->text.ask.prompts[part], s->at, score->token),
		       len;

		tokenizer_bytes(c->server->tokenizer, score->token, &len);
		token.cut = (uint32_t)(len - shown);
		token.last = s->list.n + 1 == c->text.parts[part].prompt.len;
		s->at += shown;
	}
	return openai_tokens_add(&s->list, &token);
}

/* Makes a->scores if the request wants them. The first token of a prompt has no log-probability, because it follows
 * no token. So no record comes for it, and it is added here. */
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
	for (uint32_t i = 0; i < c->text.n_parts; i++)
		openai_tokens_init(&a->scores[i].list);
	for (uint32_t i = 0; !r && i < c->text.n_parts; i++) {
		const struct ids *prompt = &c->text.parts[i].prompt;

		r = openai_tokens_reserve(&a->scores[i].list, prompt->len, n_top);
		if (!r)
			r = add_score(a, i, &(struct draw_result){.token = prompt->v[0]});
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
	for (uint32_t i = 0; i < c->text.n_choices; i++)
		if (choice_init(&a->choices[i], &a->config) < 0)
			return -ENOMEM;
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
	if (c->text.ask.n_stops)
		a->stops = stops_new(c->text.ask.stops, c->text.ask.n_stops);
	a->head = (struct openai_head){
		.id = c->id,
		.model = c->server->name,
		.fingerprint = c->server->fingerprint,
		.created = c->created,
		.shape = c->endpoint->shape,
		.logprobs = s->want_logprobs,
		.brief_call_ids = c->server->tools && tools_brief_ids(c->server->tools),
		.n_logprobs = s->n_logprobs,
		.prompt_logprobs = c->text.ask.prompt_logprobs,
		.n_prompt_logprobs = c->text.ask.n_prompt_logprobs,
		.include_usage = c->text.ask.include_usage,
		.so_far = c->text.ask.continuous_usage ? &a->so_far : NULL,
		.blocks = &a->blocks,
		.wants_edits = c->text.ask.wants_edits,
		.return_token_ids = c->text.ask.return_token_ids,
		.tokens_as_ids = c->text.ask.tokens_as_ids,
		.tokenizer = c->server->tokenizer,
	};
	a->config = (struct choice_config){
		.tokenizer = c->server->tokenizer,
		.stops = a->stops,
		.reasoning = c->endpoint->reasoning,
		.thinking = c->text.ask.thinking,
		.constrained = c->text.ask.constraint,
		.format = c->text.ask.tools.n && !c->text.ask.no_calls ? c->server->tools : NULL,
		.tools = c->text.ask.tools,
		.marks = c->server->tool_marks.v,
		.n_marks = c->server->tool_marks.n,
		.one_call = c->text.ask.one_call,
		.logprobs = s->want_logprobs,
		.token_ids = c->text.ask.return_token_ids,
		.include_stop = c->text.ask.include_stop,
		.model_ends = c->text.end_tokens,
		.n_model_ends = c->text.n_model_ends,
		.every_token = c->text.ask.echo,
	};
	if (c->endpoint->writer)
		a->writer = c->endpoint->writer->begin(c, &a->head);
	if ((c->text.ask.n_stops && !a->stops) || make_choices(a) < 0 ||
	    (c->endpoint->writer && !a->writer)) {
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
		openai_tokens_release(&a->scores[i].list);
	if (a->writer)
		a->call->endpoint->writer->release(a->writer);
	stops_free(a->stops);
	free(a->scores);
	free(a->bodies);
	free(a->prompts);
	free(a->choices);
	free(a->streams);
	free(a);
}

bool answer_complete(const struct answer *a)
{
	return !a->n_open;
}

size_t answer_bytes(const struct answer *a)
{
	size_t n = a->writer ? a->call->endpoint->writer->bytes(a->writer) : 0;

	for (uint32_t i = 0; i < a->call->text.n_choices; i++)
		n += choice_bytes(&a->choices[i]);
	/* make_scores reserves all that a list will ever need. The system gives memory for what is written there. */
	for (uint32_t i = 0; a->scores && i < a->call->text.n_parts; i++)
		n += a->scores[i].list.bytes.len;
	return n;
}

/* Returns the results of a choice. The echoed prompt is with them, unless it was written before. */
static struct openai_delta delta_of(const struct answer *a, uint32_t index)
{
	const struct choice *ch = &a->choices[index];
	const struct openai_request *ask = &a->call->text.ask;
	const struct call_part *part = &a->call->text.parts[index / a->call->text.n];
	struct openai_delta d = {
		.index = index,
		.content = buf_str(&ch->content),
		.content_len = ch->content.len,
		.reasoning = buf_str(&ch->reasoning),
		.reasoning_len = ch->reasoning.len,
		.calls = &ch->calls,
		.runs = &ch->runs,
		.tokens = &ch->ready,
		.token_ids = ch->token_ids.v,
		.n_token_ids = ch->token_ids.len,
		.finish_reason = ch->finish,
		.stop = ch->stop,
		.stop_token = ch->stop_token < 0 ? NULL : &ch->stop_token,
		.clamped = ask->max_tokens > part->max_tokens,
	};

	if (a->streams && a->streams[index].begun)
		return d;
	d.echo = part->echo;
	d.echo_len = part->echo_len;
	if (echoes_scores(a))
		d.echoed = &a->scores[index / a->call->text.n].list;
	return d;
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

/* Returns whether a choice of a stream has text, calls, log-probabilities or a finish reason to write. Token ids alone
 * are not written, but wait for one of these. */
static bool has_news(const struct answer *a, uint32_t index)
{
	const struct openai_delta d = delta_of(a, index);

	return d.echo_len || d.content_len || d.reasoning_len || d.calls->n || d.echoed ||
	       d.tokens->n || d.finish_reason;
}

static void begin_chunks(struct answer *a, uint32_t index, bool news)
{
	struct openai_delta d = delta_of(a, index);

	if (a->head.so_far)
		a->so_far = usage(a);
	if (!news)
		d.n_token_ids = 0;
	d.cursor = &a->streams[index].cursor;
	a->call->endpoint->chunks(&a->output, &a->head, &d, !a->streams[index].begun,
				  prompt_of(a, index));
}

/* For each of the choices next .. end - 1: writes its first chunks, unless they were written before, and the chunks of
 * its news (has_news). Where calls are looked for, the first chunks wait for news, because the first of them has a
 * call that nothing comes before. False: `out` is full before all are written. */
static bool write_news(struct answer *a, struct buf *out)
{
	for (; a->next < a->end; a->next++) {
		bool *begun = &a->streams[a->next].begun, news = has_news(a, a->next);

		if (!news && (*begun || a->config.format))
			continue;
		if (!a->writing)
			begin_chunks(a, a->next, news);
		a->writing = !openai_write(&a->output, ENOUGH, out);
		if (a->writing)
			return false;
		*begun = true;
		if (news)
			choice_clear(&a->choices[a->next]);
	}
	return true;
}

/* Hands the news of the one choice to the writer, unless that was done before, and writes what waits there. out NULL:
 * the answer is sent whole, and nothing is written. 1: `out` is full before all is written; 0; -ENOMEM. */
static int tell_writer(struct answer *a, struct buf *out)
{
	const struct answer_writer *w = a->call->endpoint->writer;

	for (; a->next < a->end; a->next++) {
		const struct openai_delta d = delta_of(a, a->next);
		const bool news = has_news(a, a->next);

		if (!a->writing && news && w->take && w->take(a->writer, &d) < 0)
			return -ENOMEM;
		a->writing = out && !w->write(a->writer, ENOUGH, out);
		if (a->writing)
			return 1;
		if (news)
			choice_clear(&a->choices[a->next]);
	}
	return 0;
}

/* Takes a drawn token of a choice; with prompt_only the end of a choice, which has no token. */
static int take_token(struct answer *a, uint32_t index, const struct draw_result *draw,
		      enum finish_reason finish)
{
	struct choice *ch = &a->choices[index];
	int r = 0;

	if (a->call->text.ask.prompt_only)
		ch->finish = finish == FINISH_STOP ? "stop" : "length";
	else
		r = choice_push(ch, draw, finish);
	if (r > 0)
		call_stop_choice(a->call, index);
	if (ch->finish)
		a->n_open--;
	return MIN(r, 0);
}

/* Takes a record: a scored token of part `of` (draw->rank above 0), or a drawn token of choice `of`. Sets a->next and
 * a->end if choices may have something to write then. */
static int take_record(struct answer *a, uint32_t of, enum finish_reason finish,
		       const struct draw_result *draw)
{
	const struct call *c = a->call;

	if (draw->rank) {
		if (add_score(a, of, draw) < 0)
			return -ENOMEM;
		if (echoes_scores(a) && a->scores[of].list.n == c->text.parts[of].prompt.len) {
			a->next = of * c->text.n;
			a->end = a->next + c->text.n;
		}
		return 0;
	}
	/* A stop string or its only call has ended the choice. The engine thread drew this token before it learned of
	 * that. */
	if (a->choices[of].finish)
		return 0;
	a->next = of;
	a->end = of + 1;
	return take_token(a, of, draw, finish);
}

int answer_feed(struct answer *a, const struct buf *tokens, size_t *at, struct buf *out)
{
	enum finish_reason finish;
	struct draw_result draw;
	uint32_t of;

	for (uint32_t n = 0;; n++) {
		int r = a->writer ? tell_writer(a, out) : out && !write_news(a, out);

		if (r)
			return r < 0 || out->failed ? -ENOMEM : 1;
		if (n == RECORDS)
			return 1;
		if (!call_record(tokens, at, &of, &finish, &draw))
			return 0;
		if (take_record(a, of, finish, &draw) < 0)
			return -ENOMEM;
	}
}

/* Tells the writer that the answer is complete, unless it knows, and appends some of what waits there. 1: there is
 * more; 0; -ENOMEM. */
static int end_writer(struct answer *a, size_t enough, struct buf *out)
{
	const struct answer_writer *w = a->call->endpoint->writer;
	struct openai_usage u = usage(a);

	if (!a->ended && w->end(a->writer, &u) < 0)
		return -ENOMEM;
	a->ended = true;
	if (!w->write(a->writer, enough, out))
		return 1;
	return out->failed ? -ENOMEM : 0;
}

int answer_end_stream(struct answer *a, struct buf *out)
{
	struct openai_usage u = usage(a);

	if (a->writer)
		return end_writer(a, ENOUGH, out);
	a->call->endpoint->end(&a->head, &u, out);
	return 0;
}

int answer_fail_stream(struct answer *a, const struct err *e, struct buf *out)
{
	const struct endpoint *endpoint = a->call->endpoint;
	const struct answer_writer *w = endpoint->writer;

	if (!a->writer) {
		endpoint_dialect(endpoint)->stream_error(e, out);
		return 0;
	}
	if (w->fail(a->writer, e) < 0)
		return -ENOMEM;
	w->write(a->writer, SIZE_MAX, out);
	return 0;
}

/* Returns the mean log-probability of a choice's tokens; 0: it has none. */
static double likelihood(const struct answer *a, uint32_t index)
{
	const struct choice *ch = &a->choices[index];

	return ch->n_drawn ? ch->logprob / ch->n_drawn : 0;
}

/* Writes the numbers of the choices of a part that are in the answer to ret [ask.n]: all, in the order in which they
 * were begun, or the likeliest, the best first. */
static void best_choices(const struct answer *a, uint32_t part, uint32_t *ret)
{
	const uint32_t drawn = a->call->text.n, n = a->call->text.ask.n;

	for (uint32_t i = part * drawn, k = 0; k < drawn; i++, k++) {
		uint32_t at = MIN(k, n);

		for (; drawn > n && at && likelihood(a, i) > likelihood(a, ret[at - 1]); at--)
			if (at < n)
				ret[at] = ret[at - 1];
		if (at < n)
			ret[at] = i;
	}
}

/* Fills a->bodies. */
static int make_bodies(struct answer *a)
{
	const struct call *c = a->call;
	const uint32_t n = c->text.ask.n;
	uint32_t *best = calloc(n, sizeof(*best));

	a->bodies = calloc((size_t)c->text.n_parts * n, sizeof(*a->bodies));
	for (uint32_t part = 0; a->bodies && best && part < c->text.n_parts; part++) {
		best_choices(a, part, best);
		for (uint32_t k = 0; k < n; k++) {
			struct openai_choice *to = &a->bodies[part * n + k];

			to->all = delta_of(a, best[k]);
			to->all.index = part * n + k;
			if (a->scores)
				to->prompt = &a->scores[part].list;
		}
	}
	free(best);
	return a->bodies && best ? 0 : -ENOMEM;
}

/* Begins the body: gives its choices to a->output, so that openai_write can write it. */
static int begin_body(struct answer *a)
{
	const struct call *c = a->call;
	struct openai_usage u = usage(a);

	a->prompts = calloc(c->text.n_parts, sizeof(*a->prompts));
	if (!a->prompts || make_bodies(a) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->text.n_parts; i++)
		a->prompts[i] = c->text.parts[i].prompt;
	c->endpoint->whole(&a->output, &a->head, a->bodies, (size_t)c->text.n_parts * c->text.ask.n,
			   a->prompts, c->text.n_parts, &u);
	a->writing = true;
	return 0;
}

int answer_write(struct answer *a, size_t enough, struct buf *out)
{
	if (a->writer)
		return end_writer(a, enough, out);
	if (!a->writing && begin_body(a) < 0)
		return -ENOMEM;
	if (!openai_write(&a->output, enough, out))
		return 1;
	return out->failed ? -ENOMEM : 0;
}
