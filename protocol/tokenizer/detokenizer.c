/* The streaming detokenizer: two buffers in a row hold text back.
 *
 * `part` gathers bytes until they are a whole UTF-8 sequence, or can no longer become one. Whole characters go to
 * `held`, and from there to the caller, except for the longest suffix that begins a stop string. */
#include "base/utf8.h"
#include "protocol/tokenizer/detokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct detokenizer {
	const struct tokenizer *tokenizer;
	const struct stops *stops; /* borrowed; NULL: none */
	const int32_t *shown;	   /* [n_shown] special tokens that add text; borrowed */
	size_t n_shown;
	size_t *states; /* [stops_n] of the stops' automata; owned */
	char part[4];	/* an incomplete UTF-8 sequence */
	size_t n_part;
	struct buf held; /* whole characters that the caller does not have yet */
	/* for each byte of held, as a byte: the number of bytes of tokens that it stands for */
	struct buf cost;
	size_t released;
	bool include; /* the text includes the stop string */
	bool stopped;
};

struct detokenizer *detokenizer_new(const struct tokenizer *t, const struct stops *stops)
{
	struct detokenizer *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->tokenizer = t;
	d->stops = stops;
	buf_init(&d->held, SIZE_MAX / 2);
	buf_init(&d->cost, SIZE_MAX / 2);
	if (!stops)
		return d;
	d->states = calloc(MAX(stops_n(stops), (size_t)1), sizeof(*d->states));
	if (d->states)
		return d;
	detokenizer_free(d);
	return NULL;
}

void detokenizer_free(struct detokenizer *d)
{
	if (!d)
		return;
	free(d->states);
	buf_release(&d->held);
	buf_release(&d->cost);
	free(d);
}

/* Moves the first n bytes of held to out, and counts the bytes of tokens for which they stand. */
static void release(struct detokenizer *d, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++)
		d->released += (unsigned char)d->cost.data[i];
	buf_append(out, buf_str(&d->held), n);
	if (n) {
		buf_consume(&d->held, n);
		buf_consume(&d->cost, n);
	}
}

/* Adds a whole character to held. Its first byte stands for `cost` bytes of tokens; each other byte for one if `each`,
 * else for none. If the character completes a stop string, sets `stopped`, and cuts the string off unless `include`. */
static void take_character(struct detokenizer *d, const char *text, size_t len, size_t cost,
			   bool each)
{
	for (size_t i = 0; i < len; i++) {
		size_t match = d->stops ? stops_step(d->stops, d->states, text[i]) : 0;

		buf_putc(&d->held, text[i]);
		buf_putc(&d->cost, (char)(i ? each : cost));
		if (!match || d->held.failed || d->cost.failed)
			continue;
		d->stopped = true;
		if (d->include)
			return;
		d->held.len -= match;
		d->cost.len -= match;
		return;
	}
}

static void take_broken(struct detokenizer *d, size_t n)
{
	take_character(d, UTF8_REPLACEMENT_TEXT, strlen(UTF8_REPLACEMENT_TEXT), n, false);
}

/* Moves whole sequences from `part` to `held`. Bytes that can never become a sequence are moved as U+FFFD. */
static void take_part(struct detokenizer *d)
{
	while (d->n_part && !d->stopped) {
		bool cut;
		int n = utf8_sequence(d->part, d->n_part, &cut);
		size_t used = (size_t)abs(n);

		if (cut)
			return;
		if (n > 0)
			take_character(d, d->part, used, 1, true);
		else
			take_broken(d, used);
		d->n_part -= used;
		memmove(d->part, d->part + used, d->n_part);
	}
}

static int flush(struct detokenizer *d, size_t keep, struct buf *out)
{
	if (d->held.failed || d->cost.failed)
		return -ENOMEM;
	release(d, d->held.len - keep, out);
	return out->failed ? -ENOMEM : 0;
}

void detokenizer_show(struct detokenizer *d, const int32_t *ids, size_t n)
{
	d->shown = ids;
	d->n_shown = n;
}

void detokenizer_include_stops(struct detokenizer *d)
{
	d->include = true;
}

size_t detokenizer_bytes(const struct detokenizer *d, int32_t id)
{
	bool adds = !tokenizer_is_special(d->tokenizer, id);
	size_t len;

	for (size_t i = 0; i < d->n_shown && !adds; i++)
		adds = d->shown[i] == id;
	return adds && tokenizer_bytes(d->tokenizer, id, &len) ? len : 0;
}

int detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out)
{
	size_t len = detokenizer_bytes(d, id), keep = 0, all;
	const char *bytes = tokenizer_bytes(d->tokenizer, id, &all);
	int r;

	if (d->stopped)
		return 1;
	if (!len)
		return 0;
	for (size_t i = 0; i < len && !d->stopped; i++) {
		d->part[d->n_part++] = bytes[i];
		take_part(d);
	}
	for (size_t k = 0; d->stops && k < stops_n(d->stops) && !d->stopped && !d->include; k++)
		keep = MAX(keep, d->states[k]);
	r = flush(d, keep, out);
	return r < 0 ? r : d->stopped;
}

int detokenizer_finish(struct detokenizer *d, struct buf *out)
{
	if (d->n_part && !d->stopped)
		take_broken(d, d->n_part);
	d->n_part = 0;
	return flush(d, 0, out) < 0 ? -ENOMEM : d->stopped;
}

size_t detokenizer_released(const struct detokenizer *d)
{
	return d->released;
}

const char *detokenizer_stop(const struct detokenizer *d)
{
	/* No byte has moved the states on since a string was found. */
	return d->stopped ? stops_found(d->stops, d->states) : NULL;
}
