/* Byte pair encoding. The ranks of pairs are in an open-addressing table. The ranks of pairs of single bytes, with
 * which a word begins, are also in a plain 256 x 256 array, for short words. */
#include "protocol/tokenizer/bpe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "base/utf8.h"

enum {
	SHORT_WORD = 64,
	/* pairs of a long word between two calls of pace_gives_up, which are a millisecond or so apart */
	LOOKS = 1 << 12,
};

int bpe_init(struct bpe *b, struct vocab *vocab, size_t n_merges)
{
	*b = (struct bpe){.vocab = vocab, .n_merges = n_merges, .n_pairs = 16};
	while (b->n_pairs / 2 < n_merges)
		b->n_pairs *= 2;
	b->pairs = malloc(b->n_pairs * sizeof(*b->pairs));
	b->merged = calloc(MAX(n_merges, (size_t)1), sizeof(*b->merged));
	b->byte_ranks = malloc(256 * sizeof(*b->byte_ranks));
	if (!b->pairs || !b->merged || !b->byte_ranks) {
		bpe_release(b);
		return -ENOMEM;
	}
	for (size_t i = 0; i < b->n_pairs; i++)
		b->pairs[i].rank = BPE_NEVER;
	return 0;
}

void bpe_release(struct bpe *b)
{
	free(b->pairs);
	free(b->merged);
	free(b->byte_ranks);
	*b = (struct bpe){0};
}

static struct bpe_pair *seek(const struct bpe *b, int32_t left, int32_t right)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	size_t mask = b->n_pairs - 1, at = mix_product(key, MIX_GOLDEN) & mask;

	while (b->pairs[at].rank != BPE_NEVER &&
	       (b->pairs[at].left != (uint32_t)left || b->pairs[at].right != (uint32_t)right))
		at = (at + 1) & mask;
	return &b->pairs[at];
}

static inline uint32_t rank_of(const struct bpe *b, int32_t left, int32_t right)
{
	return seek(b, left, right)->rank;
}

void bpe_add(struct bpe *b, size_t rank, int32_t left, int32_t right, int32_t merged)
{
	*seek(b, left, right) = (struct bpe_pair){.left = (uint32_t)left,
						  .right = (uint32_t)right,
						  .rank = (uint32_t)rank};
	b->merged[rank] = merged;
}

/* ---- spaces ---- */

void mark_spaces(const char *text, size_t len, struct buf *out)
{
	for (size_t at = 0, end; at < len; at = end + 1) {
		const char *space = memchr(text + at, ' ', len - at);

		end = space ? (size_t)(space - text) : len;
		buf_append(out, text + at, end - at);
		if (space)
			buf_append(out, SPACE_MARK, strlen(SPACE_MARK));
	}
}

void unmark_spaces(const char *text, size_t len, struct buf *out)
{
	const size_t mark = strlen(SPACE_MARK);

	for (size_t at = 0; at < len;) {
		bool space = len - at >= mark && !memcmp(text + at, SPACE_MARK, mark);

		buf_putc(out, space ? ' ' : text[at]);
		at += space ? mark : 1;
	}
}

/* ---- the beginning of a word ---- */

/* Writes the ids of a word's characters to ids [len], those of bytes for a character without a token. Returns their
 * number. */
static size_t split_characters(const struct bpe *b, const char *word, size_t len, int32_t *ids)
{
	size_t n = 0, step;

	for (size_t at = 0; at < len; at += step) {
		const struct vocab_slot *s;

		(void)utf8_decode(word + at, &step);
		s = vocab_find(b->vocab, word + at, step);
		if (s)
			ids[n++] = (int32_t)s->id;
		for (size_t i = 0; i < step && !s; i++)
			ids[n++] = b->byte_id[(unsigned char)word[at + i]];
	}
	return n;
}

/* ---- short words ---- */

/* Writes the ids of a word of at most SHORT_WORD bytes to `ids` and returns their number. */
static size_t merge_short(const struct bpe *b, const unsigned char *word, size_t len, int32_t *ids)
{
	uint32_t ranks[SHORT_WORD]; /* [i]: rank of the pair at ids[i]; BPE_NEVER for the last */
	unsigned char last = 0;
	size_t n = b->characters ? split_characters(b, (const char *)word, len, ids) : 0;

	for (size_t i = 0; i + 1 < n; i++)
		ranks[i] = rank_of(b, ids[i], ids[i + 1]);
	for (size_t i = 0; i < len && !b->characters; i++) {
		int32_t id = b->byte_id[word[i]];

		if (id < 0)
			continue;
		if (n)
			ranks[n - 1] = b->byte_ranks[last][word[i]];
		last = word[i];
		ids[n++] = id;
	}
	if (!n)
		return 0;
	ranks[n - 1] = BPE_NEVER;
	for (;;) {
		uint32_t best = ranks[0];
		size_t at = 0;

		for (size_t i = 1; i < n; i++)
			if (ranks[i] < best) {
				best = ranks[i];
				at = i;
			}
		if (best == BPE_NEVER)
			return n;
		ids[at] = b->merged[best];
		n--;
		memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof(*ids));
		memmove(ranks + at, ranks + at + 1, (n - at) * sizeof(*ranks));
		if (at + 1 < n)
			ranks[at] = rank_of(b, ids[at], ids[at + 1]);
		if (at)
			ranks[at - 1] = rank_of(b, ids[at - 1], ids[at]);
	}
}

/* ---- long words ---- */

/* A doubly linked list of the word's tokens, in arrays, and a heap (four children a node) of the pairs that can merge.
 * A pair's position is that of its left token. In the heap a pair is the number rank << 32 | position, so the smallest
 * number has the lowest rank and, of equal ranks, the leftmost position. A pair in the heap is out of date, and is
 * skipped, when ranks[position] is no longer its rank. */
struct long_word {
	int32_t *ids;
	uint32_t *next, *prev, *ranks; /* next[i] == n: none; prev[i] == NONE: none */
	uint64_t *heap;		       /* room for 2n: < n at first; a merge takes 1, adds <= 2 */
	size_t n, n_heap;
};

#define NONE UINT32_MAX

static void sift_down(uint64_t *heap, size_t n, size_t at)
{
	uint64_t v = heap[at];

	for (;;) {
		size_t child = at * 4 + 1, end = MIN(child + 4, n), least = child;

		if (child >= n)
			break;
		for (size_t i = child + 1; i < end; i++)
			if (heap[i] < heap[least])
				least = i;
		if (heap[least] >= v)
			break;
		heap[at] = heap[least];
		at = least;
	}
	heap[at] = v;
}

static void heap_push(struct long_word *w, uint32_t rank, uint32_t pos)
{
	uint64_t v = (uint64_t)rank << 32 | pos;
	size_t at = w->n_heap++;

	while (at && w->heap[(at - 1) / 4] > v) {
		w->heap[at] = w->heap[(at - 1) / 4];
		at = (at - 1) / 4;
	}
	w->heap[at] = v;
}

static uint64_t heap_pop(struct long_word *w)
{
	uint64_t top = w->heap[0];

	w->heap[0] = w->heap[--w->n_heap];
	if (w->n_heap)
		sift_down(w->heap, w->n_heap, 0);
	return top;
}

/* Finds the rank of the pair that now begins at pos, and adds the pair to the heap if it can merge. */
static void renew(const struct bpe *b, struct long_word *w, uint32_t pos)
{
	uint32_t next = w->next[pos];

	w->ranks[pos] = next < w->n ? rank_of(b, w->ids[pos], w->ids[next]) : BPE_NEVER;
	if (w->ranks[pos] != BPE_NEVER)
		heap_push(w, w->ranks[pos], pos);
}

/* Merges until no pair of the word can merge. -ECANCELED: pace_gives_up. */
static int merge_all(const struct bpe *b, struct long_word *w, const struct pace *pace)
{
	size_t n_looks = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		if (i % LOOKS == 0 && pace_gives_up(pace))
			return -ECANCELED;
		w->next[i] = i + 1;
		w->prev[i] = i ? i - 1 : NONE;
		w->ranks[i] = i + 1 < w->n ? rank_of(b, w->ids[i], w->ids[i + 1]) : BPE_NEVER;
		if (w->ranks[i] != BPE_NEVER)
			w->heap[w->n_heap++] = (uint64_t)w->ranks[i] << 32 | i;
	}
	for (size_t i = w->n_heap / 4 + 1; i-- > 0;)
		if (i < w->n_heap)
			sift_down(w->heap, w->n_heap, i);
	while (w->n_heap) {
		uint64_t top = heap_pop(w);
		uint32_t pos = (uint32_t)top, rank = (uint32_t)(top >> 32), gone;

		if (n_looks++ % LOOKS == 0 && pace_gives_up(pace))
			return -ECANCELED;
		if (w->ranks[pos] != rank)
			continue;
		gone = w->next[pos];
		w->ids[pos] = b->merged[rank];
		w->ids[gone] = -1;
		w->ranks[gone] = BPE_NEVER;
		w->next[pos] = w->next[gone];
		if (w->next[pos] < w->n)
			w->prev[w->next[pos]] = pos;
		renew(b, w, pos);
		if (w->prev[pos] != NONE)
			renew(b, w, w->prev[pos]);
	}
	return 0;
}

static int encode_long(const struct bpe *b, const char *word, size_t len, const struct pace *pace,
		       struct ids *out)
{
	enum { A_BYTE = 4 * sizeof(uint32_t) + 2 * sizeof(uint64_t) };
	struct long_word w = {0};
	int r;

	if (len >= NONE || len > SIZE_MAX / A_BYTE)
		return -ENOMEM;
	w.heap = malloc(len * A_BYTE);
	if (!w.heap)
		return -ENOMEM;
	w.ids = (int32_t *)(w.heap + 2 * len);
	w.next = (uint32_t *)(w.ids + len);
	w.prev = w.next + len;
	w.ranks = w.prev + len;
	if (b->characters)
		w.n = split_characters(b, word, len, w.ids);
	for (size_t i = 0; i < len && !b->characters; i++) {
		w.ids[w.n] = b->byte_id[(unsigned char)word[i]];
		w.n += w.ids[w.n] >= 0;
	}
	r = merge_all(b, &w, pace);
	for (size_t i = 0; i < w.n && !r; i++)
		if (w.ids[i] >= 0)
			r = ids_push(out, w.ids[i]);
	free(w.heap);
	return r;
}

static int encode_merging(const struct bpe *b, const char *word, size_t len,
			  const struct pace *pace, struct ids *out)
{
	int32_t ids[SHORT_WORD];

	if (len > SHORT_WORD)
		return encode_long(b, word, len, pace, out);
	return ids_append(out, ids, merge_short(b, (const unsigned char *)word, len, ids));
}

int bpe_encode(const struct bpe *b, const char *word, size_t len, const struct pace *pace,
	       struct ids *out)
{
	const struct vocab_slot *s = vocab_find(b->vocab, word, len);

	if (s && s->whole)
		return ids_push(out, (int32_t)s->id);
	return encode_merging(b, word, len, pace, out);
}

size_t bpe_least(const struct bpe *b, size_t len)
{
	return b->dropping ? 0 : CEIL_DIV(len, MAX(b->vocab->longest, 1u));
}

/* ---- loading ---- */

int bpe_finish(struct bpe *b, bool ignore_merges)
{
	struct vocab *v = b->vocab;
	struct ids ids = {0};
	struct buf word;
	int r = 0;

	for (int i = 0; i < 256 && !b->characters; i++) {
		char byte = (char)i;
		const struct vocab_slot *s = vocab_find(v, &byte, 1);

		b->byte_id[i] = s ? (int32_t)s->id : -1;
		b->dropping |= !s;
	}
	for (int i = 0; i < 256; i++)
		for (int k = 0; k < 256; k++)
			b->byte_ranks[i][k] = b->byte_id[i] < 0 || b->byte_id[k] < 0
						      ? BPE_NEVER
						      : rank_of(b, b->byte_id[i], b->byte_id[k]);
	buf_init(&word, SIZE_MAX / 2);
	for (size_t i = 0; i < v->n_slots && !r; i++) {
		struct vocab_slot *s = &v->slots[i];
		struct vocab_token t;

		if (!s->len)
			continue;
		if (ignore_merges) {
			s->whole = 1;
			continue;
		}
		t = v->tokens[s->id];
		ids.len = 0;
		buf_reset(&word);
		if (b->characters)
			mark_spaces(v->bytes.data + t.start, t.len, &word);
		else
			buf_append(&word, v->bytes.data + t.start, t.len);
		r = word.failed ? -ENOMEM : encode_merging(b, word.data, word.len, NULL, &ids);
		s->whole = !r && ids.len == 1 && ids.v[0] == (int32_t)s->id;
	}
	ids_release(&ids);
	buf_release(&word);
	return r;
}
