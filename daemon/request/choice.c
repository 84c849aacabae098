#include "daemon/request/choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The most bytes of each text of a choice: content, reasoning, calls and piece. */
enum { TEXT_MAX = 256 << 20 };

static void take_event(void *to, const struct tools_event *e);

int choice_init(struct choice *c, const struct choice_config *config)
{
	*c = (struct choice){.config = config, .stop_token = -1};
	reasoning_init(&c->splitter, config->thinking, config->constrained);
	buf_init(&c->piece, TEXT_MAX);
	buf_init(&c->content, TEXT_MAX);
	buf_init(&c->reasoning, TEXT_MAX);
	openai_calls_init(&c->calls, TEXT_MAX);
	openai_tokens_init(&c->ready);
	c->detokenizer = detokenizer_new(config->tokenizer, config->stops);
	if (c->detokenizer && config->include_stop)
		detokenizer_include_stops(c->detokenizer);
	if (c->detokenizer && config->format)
		detokenizer_show(c->detokenizer, config->marks, config->n_marks);
	if (config->format)
		c->tools =
			tools_new(config->format, &config->tools, config->one_call, take_event, c);
	return c->detokenizer && (c->tools || !config->format) ? 0 : -ENOMEM;
}

void choice_release(struct choice *c)
{
	detokenizer_free(c->detokenizer);
	tools_free(c->tools);
	openai_calls_release(&c->calls);
	openai_runs_release(&c->runs);
	buf_release(&c->piece);
	buf_release(&c->content);
	buf_release(&c->reasoning);
	ids_release(&c->token_ids);
	openai_tokens_release(&c->ready);
	free(c->tokens);
	free(c->places);
}

static int reserve_tokens(struct choice *c, size_t n)
{
	size_t cap = c->cap;

	return array_grow(c->tokens, cap, c->n_tokens + n) &&
			       array_grow(c->places, c->cap, c->n_tokens + n)
		       ? 0
		       : -ENOMEM;
}

/* Adds a token of len raw bytes, whose log-probabilities are to be reported, to c->tokens. A token without bytes counts
 * as content, so that it is not dropped. */
static int remember_token(struct choice *c, const struct draw_result *draw, size_t len)
{
	size_t n_bytes;

	if (reserve_tokens(c, 1) < 0)
		return -ENOMEM;
	tokenizer_bytes(c->config->tokenizer, draw->token, &n_bytes);
	c->tokens[c->n_tokens] =
		(struct openai_token){.draw = *draw, .cut = (uint32_t)(n_bytes - len)};
	c->places[c->n_tokens++] =
		(struct choice_place){.begin = c->raw, .end = c->raw + len, .content = !len};
	return 0;
}

/* To be called when a stop string was found. The text ends where that string begins. Drops the tokens behind the end of
 * the text. Notes how many bytes of the last token that is left are no part of the text (`cut`). */
static void cut_tokens(struct choice *c)
{
	size_t released = detokenizer_released(c->detokenizer);

	while (c->n_tokens) {
		struct choice_place *p = &c->places[c->n_tokens - 1];

		if (p->end <= released)
			return;
		if (p->begin < released) {
			c->tokens[c->n_tokens - 1].cut = (uint32_t)(p->end - released);
			p->end = released;
			return;
		}
		c->n_tokens--;
	}
}

/* Counts the raw bytes from begin up to end as content of their tokens. These ranges come in order, but for a few
 * bytes where U+FFFD replaced invalid ones. So the search goes on where the last one has ended, and a long text that
 * was held back takes linear time. */
static void mark_content(struct choice *c, size_t begin, size_t end)
{
	size_t i = MIN(c->at, c->n_tokens);

	while (i > 0 && c->places[i - 1].end > begin)
		i--;
	while (i < c->n_tokens && c->places[i].end <= begin)
		i++;
	c->at = i;
	for (; i < c->n_tokens && c->places[i].begin < end; i++) {
		struct choice_place *p = &c->places[i];
		size_t from = MAX(begin, p->begin), to = MIN(end, p->end);

		if (from < to) {
			p->content += to - from;
			p->content_end = to;
		}
	}
}

/* Notes the order of text that has come out of the splitter: content and reasoning had these lengths before. `inside`:
 * the splitter was inside a think block then, so the reasoning came first. */
static void note_order(struct choice *c, size_t content, size_t reasoning, bool inside)
{
	const size_t more[] = {c->reasoning.len - reasoning, c->content.len - content};
	static const enum openai_kind kinds[] = {KIND_REASONING, KIND_CONTENT};

	for (int i = 0; i < 2; i++) {
		int k = inside ? i : !i;

		if (openai_runs_add(&c->runs, kinds[k], more[k]) < 0)
			c->content.failed = true;
	}
}

/* Passes text on to the splitter. */
static void split(struct choice *c, const char *text, size_t len)
{
	const size_t content = c->content.len, reasoning = c->reasoning.len;
	const bool inside = c->splitter.inside;

	reasoning_push(&c->splitter, text, len, &c->reasoning, &c->content);
	note_order(c, content, reasoning, inside);
	if (c->tools && inside && !c->splitter.inside && !c->splitter.content)
		tools_start_again(c->tools);
}

/* Passes text that is in no call on to the splitter. Unless U+FFFD replaced invalid ones, the text is the raw bytes
 * before `end`. */
static void pass_text(struct choice *c, const char *text, size_t len, size_t end)
{
	if (!c->config->logprobs) {
		split(c, text, len);
		return;
	}
	for (size_t i = 0; i < len; i++) {
		size_t before = c->content.len, at = end - MIN(len - 1 - i, end), n;

		split(c, text + i, 1);
		c->passed = at;
		at -= MIN((size_t)c->splitter.n_held, at);
		n = c->content.len - before;
		mark_content(c, at - MIN(n, at), at);
	}
}

/* Makes reasoning or content of the bytes that the splitter holds back. */
static void flush_splitter(struct choice *c)
{
	size_t before = c->content.len, reasoning = c->reasoning.len, n;

	reasoning_finish(&c->splitter, &c->reasoning, &c->content);
	note_order(c, before, reasoning, c->splitter.inside);
	n = c->content.len - before;
	if (c->config->logprobs)
		mark_content(c, c->passed - MIN(n, c->passed), c->passed);
}

static void take_event(void *to, const struct tools_event *e)
{
	struct choice *c = to;
	size_t pieces;

	if (e->type == TOOLS_BEGIN)
		flush_splitter(c); /* no tag of the splitter goes on behind a call */
	pieces = c->calls.n;
	switch (e->type) {
	case TOOLS_TEXT:
		pass_text(c, e->text, e->len, c->looked - MIN(tools_held(c->tools), c->looked));
		break;
	case TOOLS_BEGIN: openai_calls_begin(&c->calls, e->text, e->len); break;
	case TOOLS_ARGUMENTS: openai_calls_add(&c->calls, e->text, e->len); break;
	case TOOLS_END:
		if (e->cut)
			openai_calls_cut(&c->calls);
		break;
	}
	if (openai_runs_add(&c->runs, KIND_CALLS, c->calls.n - pieces) < 0)
		c->content.failed = true;
}

/* Returns whether calls are looked for in the text that comes now. A text with a constraint is either calls or content:
 * in content that has begun there is no call, whatever it has in it. */
static bool looks(const struct choice *c)
{
	return c->tools && !(c->config->constrained && c->splitter.content);
}

/* Looks for tool calls in a text, which ends at c->looked, and passes the rest on. Where its content begins decides where
 * calls may be, so the splitter has to have each byte before the next is looked at. */
static void look(struct choice *c, const char *text, size_t len)
{
	for (; len && looks(c) && (c->config->constrained || c->splitter.inside); text++, len--)
		tools_push(c->tools, text, 1);
	if (looks(c))
		tools_push(c->tools, text, len);
	else if (len)
		pass_text(c, text, len, c->looked);
}

/* Moves c->piece, the detokenizer's new text, on to the calls and the splitter, or to the content if reasoning is not
 * split off. The piece is the raw bytes from begin up to released, unless U+FFFD replaced invalid ones. */
static void split_piece(struct choice *c, size_t begin, size_t released)
{
	const struct choice_config *g = c->config;

	if (!g->reasoning) {
		buf_append(&c->content, buf_str(&c->piece), c->piece.len);
		note_order(c, c->content.len - c->piece.len, c->reasoning.len, false);
		if (g->logprobs)
			mark_content(c, begin, released);
	} else if (!g->logprobs) {
		look(c, buf_str(&c->piece), c->piece.len);
	} else {
		for (size_t i = 0; i < c->piece.len; i++) {
			c->looked = MIN(begin + i + 1, released);
			look(c, c->piece.data + i, 1);
		}
	}
	buf_reset(&c->piece);
}

/* To be called at the end of the text: makes calls, reasoning or content of the bytes that are held back. Does nothing
 * if reasoning is not split off. */
static void finish_split(struct choice *c)
{
	if (!c->config->reasoning)
		return;
	c->looked = detokenizer_released(c->detokenizer);
	if (c->tools)
		tools_finish(c->tools);
	flush_splitter(c);
}

/* The text may have ended with its only call: sets c->finish if no reason is set yet, and returns 1 if the engine
 * thread has to be told (`finish` is FINISH_NONE). Else returns r. */
static int end_with_call(struct choice *c, enum finish_reason finish, int r)
{
	if (!c->tools || !tools_over(c->tools) || c->finish)
		return r;
	c->finish = "stop";
	return finish == FINISH_NONE;
}

/* Names the finish reason of a choice that has ended with calls. */
static void name_finish(struct choice *c)
{
	if (c->tools && tools_calls(c->tools) && !tools_cut(c->tools) &&
	    (tools_over(c->tools) || !strcmp(c->finish, "stop")))
		c->finish = "tool_calls";
}

/* Takes the tokens of which all bytes have passed the splitter, or all tokens if the choice has ended. Each one with
 * content becomes ready to be reported, each other one is dropped. */
static int settle_tokens(struct choice *c)
{
	size_t held = c->splitter.n_held + (c->tools ? tools_held(c->tools) : 0), i = 0;
	size_t released = detokenizer_released(c->detokenizer);
	size_t through = released - MIN(held, released);

	if (!c->n_tokens)
		return 0;
	for (; i < c->n_tokens && (c->finish || c->places[i].end <= through); i++) {
		const struct choice_place *p = &c->places[i];

		if (!p->content)
			continue;
		/* The token's last bytes are of a call, a tag or a line end that was dropped. */
		if (p->content_end)
			c->tokens[i].cut += (uint32_t)(p->end - p->content_end);
		if (openai_tokens_add(&c->ready, &c->tokens[i]) < 0)
			return -ENOMEM;
	}
	if (!i)
		return 0;
	memmove(c->tokens, c->tokens + i, (c->n_tokens - i) * sizeof(*c->tokens));
	memmove(c->places, c->places + i, (c->n_tokens - i) * sizeof(*c->places));
	c->n_tokens -= i;
	c->at -= MIN(c->at, i);
	return 0;
}

/* Returns whether the log-probabilities of a token with len raw bytes may be reported. Those of a token without bytes
 * are reported only with every_token. */
static bool reported(const struct choice *c, size_t len)
{
	return c->config->logprobs && (len || c->config->every_token);
}

/* Ends the text for this reason. Text that was held back is appended, with U+FFFD for an incomplete UTF-8 sequence. If
 * that completes a stop string, the reason is "stop" instead. */
static int finish_text(struct choice *c, const char *reason)
{
	int r = detokenizer_finish(c->detokenizer, &c->piece);

	c->finish = r > 0 ? "stop" : reason;
	if (r > 0)
		cut_tokens(c);
	return MIN(r, 0);
}

static int push_text(struct choice *c, const struct draw_result *draw, enum finish_reason finish)
{
	size_t len = detokenizer_bytes(c->detokenizer, draw->token);
	int r;

	if (reported(c, len) && remember_token(c, draw, len) < 0)
		return -ENOMEM;
	c->raw += len;
	r = detokenizer_push(c->detokenizer, draw->token, &c->piece);
	if (r > 0) {
		c->finish = "stop";
		cut_tokens(c);
		return finish == FINISH_NONE;
	}
	if (r < 0 || finish == FINISH_NONE)
		return r;
	return finish_text(c, finish == FINISH_LENGTH ? "length" : "stop");
}

static bool is_model_end(const struct choice *c, int32_t token)
{
	for (size_t i = 0; i < c->config->n_model_ends; i++)
		if (c->config->model_ends[i] == token)
			return true;
	return false;
}

int choice_push(struct choice *c, const struct draw_result *draw, enum finish_reason finish)
{
	size_t begin = detokenizer_released(c->detokenizer);
	int r;

	c->n_drawn++;
	c->logprob += (double)draw->logprob;
	if (c->config->reasoning && c->splitter.inside)
		c->n_reasoning++;
	if (c->config->token_ids && ids_push(&c->token_ids, draw->token) < 0)
		return -ENOMEM;
	if (finish == FINISH_STOP && !c->config->include_stop) {
		/* the text does not include the end token */
		r = reported(c, 0) ? remember_token(c, draw, 0) : 0;
		if (!r)
			r = finish_text(c, "stop");
	} else {
		r = push_text(c, draw, finish);
	}
	if (r < 0)
		return r;
	split_piece(c, begin, detokenizer_released(c->detokenizer));
	r = end_with_call(c, finish, r);
	if (c->finish) {
		finish_split(c);
		name_finish(c);
		c->stop = detokenizer_stop(c->detokenizer);
		if (finish == FINISH_STOP && !c->stop && !is_model_end(c, draw->token))
			c->stop_token = draw->token;
	}
	if (c->config->logprobs && settle_tokens(c) < 0)
		return -ENOMEM;
	if (c->content.failed || c->reasoning.failed || c->piece.failed || c->calls.text.failed ||
	    (c->tools && tools_failed(c->tools)))
		return -ENOMEM;
	return r;
}

void choice_clear(struct choice *c)
{
	buf_reset(&c->content);
	buf_reset(&c->reasoning);
	openai_calls_clear(&c->calls);
	c->runs.n = 0;
	c->token_ids.len = 0;
	openai_tokens_clear(&c->ready);
}

size_t choice_bytes(const struct choice *c)
{
	return c->content.cap + c->reasoning.cap + c->piece.cap + openai_calls_bytes(&c->calls) +
	       c->runs.cap * sizeof(*c->runs.v) + c->ready.bytes.cap +
	       c->token_ids.cap * sizeof(*c->token_ids.v) +
	       c->cap * (sizeof(*c->tokens) + sizeof(*c->places)) +
	       (c->tools ? tools_bytes(c->tools) : 0);
}
