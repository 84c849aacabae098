/* Any bytes as an answer, whole or as a chunk of a stream: its choices, texts, tool calls, tokens with
 * log-probabilities and ids. However many calls of openai_write write it, and wherever these calls end, the text is
 * the same. A whole answer is JSON; of a stream each chunk is. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/openai/response.h"

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

enum { CHOICES = 3, VOCABULARY = 64 };

/* The input stands in place of the real vocabulary: a token is up to four of its bytes, which may be a part of a
 * character. */
static struct {
	const uint8_t *bytes;
	size_t len;
} vocabulary;

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len)
{
	size_t at = (size_t)id * 4 % (vocabulary.len + 1);

	*len = MIN((size_t)id % 4 + 1, vocabulary.len - at);
	return (const char *)vocabulary.bytes + at;
}

/* The rest of the input, which nothing has used yet. `take` takes its next byte, and zeros behind its end. */
struct input {
	const uint8_t *data;
	size_t len;
};

static uint8_t take(struct input *in)
{
	if (!in->len)
		return 0;
	in->len--;
	return *in->data++;
}

/* Takes a text. Every text of the daemon is valid UTF-8, so each byte is made one of ASCII. Letters follow behind the
 * end of the input. */
static char *take_text(struct input *in, size_t *ret_len)
{
	size_t n = take(in) * (size_t)(take(in) % 4 ? 1 : 80);
	char *text = malloc(n + 1);

	CHECK(text);
	for (size_t i = 0; i < n; i++)
		text[i] = (char)(in->len ? take(in) & 127 : 'a' + i % 26);
	*ret_len = n;
	return text;
}

static struct openai_token take_token(struct input *in, bool first, bool last)
{
	struct openai_token t = {.draw = {.token = take(in) % VOCABULARY,
					  .logprob = -(float)take(in) / 16,
					  .rank = take(in) + 1u,
					  .n_top = take(in) % (TOP_LOGPROBS_MAX + 1u)},
				 .first = first,
				 .last = last};
	size_t len;

	tokenizer_bytes(NULL, t.draw.token, &len);
	t.cut = take(in) % 8 ? 0 : (uint32_t)len;
	for (uint32_t i = 0; i < t.draw.n_top; i++) {
		t.draw.top_ids[i] = (t.draw.token + (int32_t)i) % VOCABULARY;
		t.draw.top_logprobs[i] = t.draw.logprob - (float)i;
	}
	return t;
}

static void take_tokens(struct input *in, bool echoed, struct openai_tokens *ret)
{
	size_t n = take(in) % 40;

	openai_tokens_init(ret);
	for (size_t i = 0; i < n; i++) {
		struct openai_token t = take_token(in, echoed && !i, echoed && i + 1 == n);

		CHECK(!openai_tokens_add(ret, &t));
	}
}

/* One choice, and the lists and the cursor that it borrows. */
struct made {
	struct openai_choice choice;
	struct openai_tokens echoed, tokens, prompt;
	struct openai_calls calls;
	struct ids ids;
	struct openai_cursor cursor;
};

/* Takes calls. Those of a stream may go on with one that a chunk before has begun. */
static void take_calls(struct input *in, bool stream, struct openai_calls *ret)
{
	ret->n_begun = stream ? take(in) % 3 : 0;
	for (size_t n = take(in) % 8; n; n--) {
		size_t len;
		char *text = take_text(in, &len);

		if (!ret->n_begun || take(in) & 1)
			openai_calls_begin(ret, text, len);
		else
			openai_calls_add(ret, text, len);
		free(text);
	}
	CHECK(!ret->text.failed);
}

static void make(struct input *in, uint32_t index, bool chat, bool stream, struct made *m)
{
	struct openai_delta *d = &m->choice.all;

	*m = (struct made){0};
	take_tokens(in, true, &m->echoed);
	take_tokens(in, false, &m->tokens);
	take_tokens(in, true, &m->prompt);
	for (size_t n = take(in); n; n--)
		CHECK(!ids_push(&m->ids, take(in)));
	d->index = index;
	d->content = take_text(in, &d->content_len);
	openai_calls_init(&m->calls, 1 << 24);
	if (chat)
		take_calls(in, stream, &m->calls);
	d->calls = &m->calls;
	if (chat)
		d->reasoning = take_text(in, &d->reasoning_len);
	else
		d->echo = take_text(in, &d->echo_len);
	d->echoed = take(in) & 1 ? &m->echoed : NULL;
	d->tokens = &m->tokens;
	d->token_ids = m->ids.v;
	d->n_token_ids = m->ids.len;
	d->finish_reason = take(in) & 1 ? "stop" : NULL;
	m->choice.prompt = &m->prompt;
}

static void release(struct made *m)
{
	free((char *)(uintptr_t)m->choice.all.content);
	free((char *)(uintptr_t)m->choice.all.reasoning);
	free((char *)(uintptr_t)m->choice.all.echo);
	openai_tokens_release(&m->echoed);
	openai_tokens_release(&m->tokens);
	openai_tokens_release(&m->prompt);
	openai_calls_release(&m->calls);
	ids_release(&m->ids);
}

/* Checks that the text is JSON, or chunks of JSON behind "data: ". A key may have a NUL byte, which JSON allows and
 * jansson does not read. */
static void check_json(const struct buf *text, bool stream)
{
	const char *at = buf_str(text), *end = at + text->len;

	while (at < end) {
		const char *stop = stream ? strstr(at, "\n\n") : end;
		json_t *parsed;
		json_error_t e;

		CHECK(stop && (!stream || !strncmp(at, "data: ", 6)));
		at += stream ? 6 : 0;
		parsed = json_loadb(at, (size_t)(stop - at), JSON_ALLOW_NUL, &e);
		CHECK(json_is_object(parsed) || json_error_code(&e) == json_error_null_byte_in_key);
		json_decref(parsed);
		at = stop + (stream ? 2 : 0);
	}
}

/* Writes a copy of *o at once, and then *o in pieces, whose sizes the input decides. Checks that both give the same
 * text and leave *cursor, that of a stream, the same. */
static void write_twice(struct input *in, struct openai_output *o, struct openai_cursor *cursor,
			bool stream)
{
	const struct openai_cursor before = *cursor;
	struct openai_output once = *o;
	struct openai_cursor behind;
	struct buf whole, pieces;
	size_t enough = 0;
	bool over = false;

	buf_init(&whole, 64 << 20);
	buf_init(&pieces, 64 << 20);
	CHECK(openai_write(&once, SIZE_MAX, &whole));
	behind = *cursor;
	*cursor = before;
	while (!over) {
		size_t had = pieces.len;

		enough = pieces.len + 1 + take(in) * 8;
		over = openai_write(o, enough, &pieces);
		CHECK(over || (pieces.len >= enough && pieces.len > had));
	}
	CHECK(!whole.failed && !pieces.failed && whole.len == pieces.len &&
	      !memcmp(buf_str(&whole), buf_str(&pieces), whole.len));
	CHECK(!memcmp(&behind, cursor, sizeof(behind)));
	check_json(&whole, stream);
	buf_release(&whole);
	buf_release(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint8_t flags = take(&in), more = take(&in);
	const bool chat = flags & 1, stream = flags & 2;
	const struct openai_usage u = {1, 2, 3, 4};
	const struct openai_head h = {.shape = chat ? &openai_chat : &openai_completion,
				      .id = "x",
				      .model = "lexis",
				      .logprobs = flags & 4,
				      .include_usage = flags & 8,
				      .so_far = flags & 16 ? &u : NULL,
				      .return_token_ids = flags & 32,
				      .prompt_logprobs = flags & 64,
				      .n_logprobs = more % 21,
				      .n_prompt_logprobs = more % 7};
	const size_t n = stream ? 1 : 1 + more % CHOICES;
	struct openai_choice choices[CHOICES];
	struct made made[CHOICES];
	struct ids prompts[CHOICES];
	struct openai_output o;

	vocabulary.bytes = data;
	vocabulary.len = size;
	for (size_t i = 0; i < n; i++) {
		make(&in, (uint32_t)i, chat, stream, &made[i]);
		choices[i] = made[i].choice;
		prompts[i] = made[i].ids;
	}
	if (stream) {
		choices[0].all.cursor = &made[0].cursor;
		openai_chunks(&o, &h, &choices[0].all, more & 128, &prompts[0]);
	} else {
		openai_body(&o, &h, choices, n, prompts, more & 64 ? n : 1, &u);
	}
	write_twice(&in, &o, &made[0].cursor, stream);
	for (size_t i = 0; i < n; i++)
		release(&made[i]);
	return 0;
}
