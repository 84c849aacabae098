/* Merges of a vocabulary with scores, as models of SentencePiece have it. There, of all neighbours whose texts together
 * are a token, those are joined first whose token has the highest score. tokenizer.json has a list of pairs in the place
 * of scores. The list has every way to cut a token into two others, in the order of the converter of transformers
 * (generate_merges in convert_slow_tokenizer.py): by the score of the token, of equal ones those with the longer left
 * part first, then those with the smaller number.
 *
 * Tokens that the user defined come before all others, because SentencePiece does not cut them. Their scores are not
 * read: llama.cpp's converter writes -1000. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "engine/checkpoint/formats/gguf_texts.h"

/* The longest token that is cut. SentencePiece's have at most 16 characters if its user does not choose otherwise. */
enum { PIECE_MAX = 512, TEXTS_MAX = 1 << 30 };

struct piece {
	const char *text; /* in tokenizer.json */
	uint32_t len;
	uint32_t id;
	float score;
};

/* A token, cut into two. */
struct merge {
	float score;
	uint16_t left, right; /* characters */
	uint32_t piece;	      /* of the token, in the order of ids */
	uint32_t cut;	      /* bytes of the left part */
};

struct merges {
	const struct gguf_source *s;
	const struct gguf_vocab *vocab;
	const struct gguf_key *scores;
	struct buf texts;     /* of all pieces, each behind the other */
	struct piece *pieces; /* owned, [n_pieces], in the order of ids */
	struct piece *sorted; /* owned, [n_pieces], by text */
	size_t n_pieces;
	struct merge *v; /* owned, [n] */
	size_t n, cap;
	struct err *e;
};

static int out_of_memory(const struct merges *m)
{
	return err_set(m->e, ENOMEM, "%s: out of memory for the tokenizer", m->s->keys->shown);
}

static int find_scores(struct merges *m)
{
	static const char name[] = "tokenizer.ggml.scores";
	const struct gguf_key *k = gguf_find(m->s->keys, name);

	if (!k)
		return err_set(m->e, EINVAL, "%s: key %s is missing", m->s->keys->shown, name);
	if (!k->array || k->type != GGUF_F32 || k->n != m->vocab->tokens->n)
		return err_set(m->e, EINVAL,
			       "%s: key %s is no list of a number of 32 bits for each token",
			       m->s->keys->shown, name);
	m->scores = k;
	return 0;
}

/* ---- pieces ---- */

/* Returns whether words are made of tokens of this type. */
static bool is_piece(uint64_t type)
{
	return type != GGUF_TOKEN_CONTROL && type != GGUF_TOKEN_UNKNOWN &&
	       type != GGUF_TOKEN_UNUSED && type != GGUF_TOKEN_BYTE;
}

static int add_piece(struct merges *m, uint64_t id, uint64_t type, const char *text, size_t len)
{
	struct piece p = {.id = (uint32_t)id, .score = INFINITY};

	if (type != GGUF_TOKEN_USER)
		memcpy(&p.score, m->scores->value + id * sizeof(p.score), sizeof(p.score));
	if (type != GGUF_TOKEN_USER && !isfinite(p.score))
		return err_set(m->e, EINVAL, "%s: number %llu of key %s is not finite",
			       m->s->keys->shown, (unsigned long long)id, m->scores->name);
	p.len = (uint32_t)m->texts.len;
	gguf_append_marked(type, text, len, &m->texts);
	p.len = (uint32_t)m->texts.len - p.len;
	if (p.len > PIECE_MAX)
		return err_set(m->e, ENOTSUP,
			       "%s: text %llu of key %s is above %d bytes, which is not supported",
			       m->s->keys->shown, (unsigned long long)id, m->vocab->tokens->name,
			       PIECE_MAX);
	m->pieces[m->n_pieces++] = p;
	return m->texts.failed ? out_of_memory(m) : 0;
}

static int compare_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	size_t len = x->len < y->len ? x->len : y->len;
	int c = memcmp(x->text, y->text, len);

	return c ? c : (x->len > y->len) - (x->len < y->len);
}

static int read_pieces(struct merges *m)
{
	const uint8_t *at = m->vocab->tokens->value;
	const char *text;
	size_t len, n = m->vocab->tokens->n;
	int r = 0;

	m->pieces = calloc(n + 1, sizeof(*m->pieces));
	m->sorted = calloc(n + 1, sizeof(*m->sorted));
	if (!m->pieces || !m->sorted || n > UINT32_MAX)
		return out_of_memory(m);
	for (uint64_t id = 0; r == 0 && id < n; id++) {
		uint64_t type = gguf_token_type(m->vocab, id);

		text = gguf_next_string(&at, &len);
		if (len && is_piece(type))
			r = add_piece(m, id, type, text, len);
	}
	if (r < 0)
		return r;
	text = buf_str(&m->texts);
	for (size_t i = 0; i < m->n_pieces; text += m->pieces[i++].len)
		m->pieces[i].text = text;
	memcpy(m->sorted, m->pieces, m->n_pieces * sizeof(*m->pieces));
	qsort(m->sorted, m->n_pieces, sizeof(*m->sorted), compare_pieces);
	return 0;
}

static bool has_piece(const struct merges *m, const char *text, size_t len)
{
	const struct piece key = {.text = text, .len = (uint32_t)len};

	return bsearch(&key, m->sorted, m->n_pieces, sizeof(key), compare_pieces);
}

/* ---- merges ---- */

/* Adds all ways to cut a piece. Its text is UTF-8. */
static int cut_piece(struct merges *m, uint32_t i)
{
	const struct piece *p = &m->pieces[i];
	uint16_t chars = 0, left = 0;
	size_t step;

	for (size_t at = 0; at < p->len; at += step, chars++)
		(void)utf8_decode(p->text + at, &step);
	for (size_t at = 0; at < p->len; at += step, left++) {
		(void)utf8_decode(p->text + at, &step);
		if (!at || !has_piece(m, p->text, at) || !has_piece(m, p->text + at, p->len - at))
			continue;
		if (!array_grow(m->v, m->cap, m->n + 1))
			return out_of_memory(m);
		m->v[m->n++] = (struct merge){.score = p->score,
					      .left = left,
					      .right = (uint16_t)(chars - left),
					      .piece = i,
					      .cut = (uint32_t)at};
	}
	return 0;
}

static int compare_merges(const void *a, const void *b)
{
	const struct merge *x = a, *y = b;

	if (x->score < y->score || x->score > y->score)
		return x->score < y->score ? 1 : -1;
	if (x->left != y->left)
		return x->left < y->left ? 1 : -1;
	if (x->right != y->right)
		return x->right < y->right ? 1 : -1;
	return (x->piece > y->piece) - (x->piece < y->piece);
}

static int put_merges(struct merges *m, struct buf *out)
{
	int r = find_scores(m);

	if (r == 0)
		r = read_pieces(m);
	for (uint32_t i = 0; r == 0 && i < m->n_pieces; i++)
		r = cut_piece(m, i);
	if (r < 0)
		return r;
	if (m->n)
		qsort(m->v, m->n, sizeof(*m->v), compare_merges);
	for (size_t i = 0; i < m->n; i++) {
		const struct piece *p = &m->pieces[m->v[i].piece];
		size_t cut = m->v[i].cut;

		buf_puts(out, i ? ",[" : "[");
		if (!gguf_quote(p->text, cut, out))
			return out_of_memory(m);
		buf_putc(out, ',');
		if (!gguf_quote(p->text + cut, p->len - cut, out))
			return out_of_memory(m);
		buf_putc(out, ']');
	}
	return 0;
}

int gguf_merges(const struct gguf_source *s, const struct gguf_vocab *v, struct buf *out,
		struct err *e)
{
	struct merges m = {.s = s, .vocab = v, .e = e};
	int r;

	buf_init(&m.texts, TEXTS_MAX);
	r = put_merges(&m, out);
	buf_release(&m.texts);
	free(m.pieces);
	free(m.sorted);
	free(m.v);
	return r;
}
