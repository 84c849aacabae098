/* Chunks and bodies of protocol/openai, written in pieces of every size, for tests of their text. */
#pragma once

#include <stdint.h>

#include "protocol/openai/response.h"
#include "tests/tap.h"

static struct openai_head head(bool chat)
{
	return (struct openai_head){.id = chat ? "chatcmpl-1" : "cmpl-1",
				    .model = "lex\"is",
				    .fingerprint = "tigon-1",
				    .created = 1700000000,
				    .shape = chat ? &openai_chat : &openai_completion};
}

static struct openai_token token(int32_t id, float logprob)
{
	return (struct openai_token){.draw = {.token = id, .logprob = logprob}};
}

/* out: the texts that write_out has written; pieces: the text that same_text writes. The program's main makes and
 * releases both. */
static struct buf out, pieces;
static size_t cuts = 2000; /* a text with fewer bytes is cut at every byte (write_out) */

/* Returns whether `o`, written in several calls, gives the text `want`. The first call appends at least `first` bytes,
 * and each further one at least `step`. */
static bool same_text(struct openai_output o, size_t first, size_t step, const char *want,
		      size_t len)
{
	size_t enough = first;
	bool over = false;

	buf_reset(&pieces);
	while (!over) {
		over = openai_write(&o, enough, &pieces);
		check(over || (pieces.len >= enough && pieces.len - enough < 25000));
		enough = pieces.len + step;
	}
	return pieces.len == len && !memcmp(buf_str(&pieces), want, len);
}

/* Appends all of an output to `out`. Checks that calls of openai_write which end elsewhere give the same text and leave
 * the same cursor: in a text with fewer than `cuts` bytes the first call ends at every byte, else at up to
 * four places. */
static void write_out(struct openai_output *o, struct openai_cursor *cursor)
{
	const struct openai_cursor before = cursor ? *cursor : (struct openai_cursor){0};
	const struct openai_output begun = *o;
	struct openai_cursor behind;
	size_t from = out.len, len;
	bool same = true;

	check(openai_write(o, SIZE_MAX, &out));
	len = out.len - from;
	behind = cursor ? *cursor : before;
	for (size_t first = 1; first <= len; first += len < cuts ? 1 : 1 + len / 4) {
		for (size_t step = 1; step < 200; step = len < cuts ? step * 3 + 1 : step * 100) {
			if (cursor)
				*cursor = before;
			same = same && same_text(begun, first, step, out.data + from, len);
			check(!cursor ||
			      (cursor->offset == behind.offset && cursor->n_held == behind.n_held));
		}
	}
	check(same);
}

static void stream_delta(const struct openai_head *h, const struct openai_delta *d)
{
	struct openai_output o;

	openai_chunks(&o, h, d, false, NULL);
	write_out(&o, d->cursor);
}

static void body_of(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		    const struct ids *prompts, size_t n_prompts, const struct openai_usage *u)
{
	struct openai_output o;

	openai_body(&o, h, choices, n, prompts, n_prompts, u);
	write_out(&o, NULL);
}

/* Makes a list of tokens. It is valid until the eighth call after this one. */
static const struct openai_tokens *list(const struct openai_token *tokens, size_t n)
{
	static struct openai_tokens lists[8];
	static size_t next;
	struct openai_tokens *t = &lists[next++ % ARRAY_SIZE(lists)];

	openai_tokens_release(t);
	openai_tokens_init(t);
	for (size_t i = 0; i < n; i++)
		check(openai_tokens_add(t, &tokens[i]) == 0);
	return t;
}
