/* The tokenizer: text to ids, and the bytes of each id. */
#include "protocol/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "protocol/tokenizer/tokenizer_internal.h"

enum { WORDS = 64 }; /* words between two calls of pace_gives_up */

struct encoding {
	const struct tokenizer *t;
	struct ids *out;
	struct tokenizer_bounds bounds;
	size_t end; /* the most that out->len may be */
	size_t n_words;
};

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	added_release(&t->raw);
	added_release(&t->normalized);
	splitter_free(t->splitter);
	bpe_release(&t->bpe);
	vocab_release(&t->vocab);
	ids_release(&t->prefix);
	ids_release(&t->suffix);
	free(t);
}

static int encode_word(void *arg, const char *word, size_t len)
{
	struct encoding *e = arg;
	int r;

	if (e->n_words++ % WORDS == 0 && pace_gives_up(e->bounds.pace))
		return -ECANCELED;
	if (bpe_least(&e->t->bpe, len) > e->end - e->out->len)
		return -EOVERFLOW;
	r = bpe_encode(&e->t->bpe, word, len, e->bounds.pace, e->out);
	return !r && e->out->len > e->end ? -EOVERFLOW : r;
}

static int encode_plain(struct encoding *e, const char *text, size_t len)
{
	return splitter_run(e->t->splitter, text, len, encode_word, e);
}

/* Appends the ids of the added tokens of `set` that are in the text. Passes the text before, between and behind them to
 * `rest`, which appends the ids of that text. */
static int encode_around(struct encoding *e, const struct added *set, const char *text, size_t len,
			 int (*rest)(struct encoding *e, const char *text, size_t len))
{
	struct added_scan scan = {0};
	struct added_match m;
	size_t done = 0;
	int r = 0;

	while (!r && added_next(set, text, len, &scan, &m)) {
		if (m.start > done)
			r = rest(e, text + done, m.start - done);
		if (!r && e->out->len == e->end)
			r = -EOVERFLOW;
		if (!r)
			r = ids_push(e->out, m.id);
		done = scan.done;
	}
	if (!r && done < len)
		r = rest(e, text + done, len - done);
	return r;
}

/* Encodes normalized text that may have added tokens of the set `normalized`. */
static int encode_normalized(struct encoding *e, const char *text, size_t len)
{
	return encode_around(e, &e->t->normalized, text, len, encode_plain);
}

static int normalize(struct encoding *e, const char *text, size_t len,
		     int (*then)(struct encoding *e, const char *text, size_t len))
{
	struct buf nfc, marked;
	int r;

	if (!e->t->nfc && !e->t->marked)
		return then(e, text, len);
	buf_init(&nfc, SIZE_MAX / 2);
	buf_init(&marked, SIZE_MAX / 2);
	r = e->t->nfc ? unicode_nfc(e->t->unicode, text, len, &nfc) : 0;
	if (r > 0) {
		text = buf_str(&nfc);
		len = nfc.len;
	}
	if (r >= 0 && e->t->marked) {
		mark_spaces(text, len, &marked);
		text = buf_str(&marked);
		len = marked.len;
		r = marked.failed ? -ENOMEM : 0;
	}
	if (r >= 0)
		r = then(e, text, len);
	buf_release(&nfc);
	buf_release(&marked);
	return r;
}

static int encode_between(struct encoding *e, const char *text, size_t len)
{
	return normalize(e, text, len, encode_normalized);
}

static int encode_valid(struct encoding *e, const char *text, size_t len, bool added)
{
	if (added)
		return encode_around(e, &e->t->raw, text, len, encode_between);
	return normalize(e, text, len, encode_plain);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool added,
		     const struct tokenizer_bounds *bounds, struct ids *out)
{
	struct encoding e = {.t = t, .out = out, .end = SIZE_MAX};
	size_t before = out->len;
	int r;

	if (bounds) {
		e.bounds = *bounds;
		e.end = bounds->ids < SIZE_MAX - before ? before + bounds->ids : SIZE_MAX;
	}
	if (utf8_valid(text, len) == len) {
		r = encode_valid(&e, text, len, added);
	} else {
		struct buf whole;

		buf_init(&whole, SIZE_MAX / 2);
		utf8_replace(text, len, &whole);
		r = whole.failed ? -ENOMEM : encode_valid(&e, buf_str(&whole), whole.len, added);
		buf_release(&whole);
	}
	if (r < 0)
		out->len = before;
	return r;
}

int tokenizer_encode_whole(const struct tokenizer *t, const char *text, size_t len,
			   const struct tokenizer_bounds *bounds, struct ids *out)
{
	size_t before = out->len;
	int r = ids_append(out, t->prefix.v, t->prefix.len);

	if (!r)
		r = tokenizer_encode(t, text, len, true, bounds, out);
	if (!r)
		r = ids_append(out, t->suffix.v, t->suffix.len);
	if (r < 0)
		out->len = before;
	return r;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len)
{
	*len = 0;
	if (id < 0 || (size_t)id >= t->vocab.n || !t->vocab.tokens[id].len)
		return NULL;
	*len = t->vocab.tokens[id].len;
	return t->vocab.bytes.data + t->vocab.tokens[id].start;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && (size_t)id < t->vocab.n && t->vocab.tokens[id].special;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *text)
{
	size_t len = strlen(text);
	const struct vocab_slot *s;
	int32_t id;

	if (!len)
		return -1;
	id = added_find(&t->raw, text, len);
	if (id < 0)
		id = added_find(&t->normalized, text, len);
	if (id >= 0)
		return id;
	s = vocab_find(&t->vocab, text, len);
	return s ? (int32_t)s->id : -1;
}

int32_t tokenizer_size(const struct tokenizer *t)
{
	return (int32_t)t->vocab.n;
}
