/* Writes the log-probabilities of tokens in the form of chat, in the older form of completions, and as vLLM's list for
 * a prompt.
 *
 * In the first two forms a token's text is the characters that it completes. So a character whose bytes are spread over
 * several tokens belongs to the last of these tokens, and the texts of all tokens, joined, are the content. `bytes` (in
 * chat) are the token's own bytes, without those that `cut` of struct openai_token leaves out. The last token of a
 * choice or of an echoed prompt, and a token that is listed beside the drawn one, have no later token that could
 * complete their bytes; such incomplete bytes are shown as U+FFFD. With tokens_as_ids these two forms have vLLM's
 * "token_id:7" in the place of a token's text; `bytes` and offsets are those of the text all the same. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/openai/response_internal.h"
#include "protocol/openai/writer.h"

/* The bytes of a token that count as text. */
struct span {
	const char *bytes;
	size_t len;
};

static struct span span_of(const struct openai_head *h, int32_t id, size_t cut)
{
	struct span s = {0};

	s.bytes = tokenizer_bytes(h->tokenizer, id, &s.len);
	s.len -= MIN(cut, s.len);
	return s;
}

/* Continues a UTF-8 sequence that began in an earlier token. When the sequence is complete, or turns out to be invalid,
 * appends it (unless out is NULL). Returns the number of bytes of s that belong to the sequence. */
static size_t finish_held(struct openai_cursor *c, struct span s, struct buf *out)
{
	size_t n = c->n_held + MIN(s.len, (size_t)4), len;
	char join[8];
	bool cut;

	memcpy(join, c->held, c->n_held);
	memcpy(join + c->n_held, s.bytes, n - c->n_held);
	len = (size_t)abs(utf8_sequence(join, n, &cut));
	if (cut) { /* the sequence is still incomplete, so all of s belongs to it */
		memcpy(c->held, join, n);
		c->n_held = (uint32_t)n;
		return s.len;
	}
	n = len - c->n_held;
	c->n_held = 0;
	c->offset++;
	if (out)
		writer_escaped(out, join, len);
	return n;
}

/* Moves the cursor over the characters that a token completes and, unless out is NULL, appends them, escaped for JSON.
 * last: no later token completes the token's bytes, so incomplete ones become U+FFFD. */
static void token_text(struct openai_cursor *c, struct span s, bool last, struct buf *out)
{
	size_t at = 0, from;

	if (c->n_held && s.len)
		at = finish_held(c, s, out);
	from = at;
	while (at < s.len) {
		bool cut;
		int n = utf8_sequence(s.bytes + at, s.len - at, &cut);

		if (cut) {
			c->n_held = (uint32_t)(s.len - at);
			memcpy(c->held, s.bytes + at, c->n_held);
			break;
		}
		at += (size_t)abs(n);
		c->offset++;
	}
	if (out && at > from)
		writer_escaped(out, s.bytes + from, at - from);
	if (last && c->n_held) {
		if (out)
			buf_puts(out, UTF8_REPLACEMENT_TEXT);
		c->n_held = 0;
		c->offset++;
	}
}

/* Writes the text of token `id` at a place, or its id, in quotes, and returns its bytes. Among the best tokens the
 * place's own token has the same text as in its own entry, so that clients can find this token among the best. */
static struct span text_of(const struct openai_head *h, const struct openai_place *at, int32_t id,
			   struct buf *out)
{
	bool drawn = id == at->token->draw.token;
	struct span s = span_of(h, id, drawn ? at->token->cut : 0);
	struct openai_cursor c = *at->before;

	if (h->tokens_as_ids) {
		buf_printf(out, "\"token_id:%" PRId32 "\"", id);
		return s;
	}
	buf_putc(out, '"');
	token_text(&c, s, drawn ? at->last : true, out);
	buf_putc(out, '"');
	return s;
}

static uint32_t n_best(const struct openai_head *h, const struct draw_result *draw)
{
	uint32_t n = MIN(draw->n_top, h->n_logprobs);

	return MIN(n, (uint32_t)TOP_LOGPROBS_MAX);
}

void logprobs_pass(const struct openai_head *h, const struct openai_token *token, bool last,
		   struct openai_cursor *c)
{
	token_text(c, span_of(h, token->draw.token, token->cut), last, NULL);
}

/* Writes the members of a token in the form of chat, behind the brace that opens them. */
static void chat_members(const struct openai_head *h, const struct openai_place *at, int32_t id,
			 float logprob, struct buf *out)
{
	struct span s;

	buf_puts(out, "\"token\":");
	s = text_of(h, at, id, out);
	buf_puts(out, ",\"logprob\":");
	writer_logprob(out, logprob);
	buf_puts(out, ",\"bytes\":");
	writer_bytes(out, (const unsigned char *)s.bytes, s.len);
}

void logprobs_chat_item(const struct openai_head *h, const struct openai_place *at, struct buf *out)
{
	const struct draw_result *draw = &at->token->draw;

	buf_putc(out, '{');
	chat_members(h, at, draw->token, draw->logprob, out);
	buf_puts(out, ",\"top_logprobs\":[");
	for (uint32_t i = 0; i < n_best(h, draw); i++) {
		buf_puts(out, i ? ",{" : "{");
		chat_members(h, at, draw->top_ids[i], draw->top_logprobs[i], out);
		buf_putc(out, '}');
	}
	buf_puts(out, "]}");
}

/* The keys that a top_logprobs object of completions has so far: texts of tokens. A token with the same text as one
 * before it is left out. */
struct keys {
	size_t from[TOP_LOGPROBS_MAX + 1], len[TOP_LOGPROBS_MAX + 1]; /* positions in the buffer */
	uint32_t n;
};

static void best_entry(const struct openai_head *h, const struct openai_place *at, int32_t id,
		       float logprob, struct keys *keys, struct buf *out)
{
	size_t start = out->len, from, len;

	if (keys->n)
		buf_putc(out, ',');
	from = out->len;
	text_of(h, at, id, out);
	len = out->len - from;
	if (out->failed)
		return;
	for (uint32_t i = 0; i < keys->n; i++) {
		if (keys->len[i] != len || memcmp(out->data + keys->from[i], out->data + from, len))
			continue;
		out->len = start;
		out->data[start] = 0;
		return;
	}
	keys->from[keys->n] = from;
	keys->len[keys->n++] = len;
	buf_putc(out, ':');
	writer_logprob(out, logprob);
}

/* Writes the best tokens as an object of texts with their log-probabilities. The text of the drawn token is always
 * among them. */
static void best_object(const struct openai_head *h, const struct openai_place *at, struct buf *out)
{
	const struct draw_result *draw = &at->token->draw;
	struct keys keys = {.n = 0};
	bool drawn = false;

	buf_putc(out, '{');
	for (uint32_t i = 0; i < n_best(h, draw); i++) {
		best_entry(h, at, draw->top_ids[i], draw->top_logprobs[i], &keys, out);
		drawn |= draw->top_ids[i] == draw->token;
	}
	if (!drawn)
		best_entry(h, at, draw->token, draw->logprob, &keys, out);
	buf_putc(out, '}');
}

void logprobs_token(const struct openai_head *h, const struct openai_place *at, struct buf *out)
{
	text_of(h, at, at->token->draw.token, out);
}

void logprobs_logprob(const struct openai_head *h, const struct openai_place *at, struct buf *out)
{
	if (at->token->first)
		buf_puts(out, "null");
	else
		writer_logprob(out, at->token->draw.logprob);
}

void logprobs_best(const struct openai_head *h, const struct openai_place *at, struct buf *out)
{
	if (at->token->first)
		buf_puts(out, "null");
	else
		best_object(h, at, out);
}

void logprobs_offset(const struct openai_head *h, const struct openai_place *at, struct buf *out)
{
	buf_printf(out, "%zu", at->before->offset);
}

static void prompt_entry(const struct openai_head *h, int32_t id, float logprob, uint32_t rank,
			 struct buf *out)
{
	struct span s = span_of(h, id, 0);

	buf_putc(out, '"');
	writer_number(out, id);
	buf_puts(out, "\":{\"logprob\":");
	writer_logprob(out, logprob);
	buf_puts(out, ",\"rank\":");
	writer_number(out, (int32_t)rank);
	buf_puts(out, ",\"decoded_token\":");
	writer_string(out, s.bytes, s.len);
	buf_putc(out, '}');
}

void logprobs_prompt_item(const struct openai_head *h, const struct draw_result *p, struct buf *out)
{
	buf_putc(out, '{');
	prompt_entry(h, p->token, p->logprob, p->rank, out);
	for (uint32_t k = 0; k < MIN(p->n_top, h->n_prompt_logprobs); k++) {
		if (p->top_ids[k] == p->token)
			continue;
		buf_putc(out, ',');
		prompt_entry(h, p->top_ids[k], p->top_logprobs[k], k + 1, out);
	}
	buf_putc(out, '}');
}
