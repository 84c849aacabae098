#include "protocol/grammar/token_mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "protocol/grammar/automaton_internal.h"

enum {
	SLICES = 32,	    /* the most code points of a token in the trie of plain tokens */
	OTHER = SLICES + 1, /* `chars` in the trie of other tokens: more than any slice */
	FOLLOW_MAX =
		8, /* states that are looked at together to find how many code points may follow */
	WORK_MAX = 1 << 22, /* items, for one mask, without its last step */
};

/* A trie in the order of its bytes: the nodes below node i are i + 1 to end - 1. */
struct trie_node {
	uint32_t end;
	int32_t token;	      /* -1: none ends here */
	uint16_t depth : 15;  /* of the node, from 1 */
	uint16_t several : 1; /* several tokens end here: `same` has the others */
	uint8_t byte;
	uint8_t chars; /* the most code points of a token at the node or below it */
};

struct trie {
	struct trie_node *nodes; /* owned */
	uint32_t n, cap;
};

struct token_trie {
	struct trie plain, other;
	uint32_t *
		slices; /* [SLICES + 1][words]: the plain tokens with up to so many code points; owned */
	int32_t *same;	  /* [n]: another token with the same bytes; -1: none; owned */
	int32_t *ends, n; /* ends: owned */
	size_t n_ends, words;
};

struct sorted {
	const uint8_t *bytes;
	uint32_t len;
	int32_t id;
};

static int by_bytes(const void *x, const void *y)
{
	const struct sorted *a = x, *b = y;
	int r = memcmp(a->bytes, b->bytes, MIN(a->len, b->len));

	if (r)
		return r;
	return a->len != b->len ? (a->len < b->len ? -1 : 1) : (a->id > b->id) - (a->id < b->id);
}

/* Returns the number of code points, if a string of JSON has all of them as they are; else OTHER. */
static uint8_t plain_chars(const uint8_t *p, size_t len)
{
	unsigned n = 0;

	if (utf8_valid((const char *)p, len) != len)
		return OTHER;
	for (size_t i = 0; i < len; i++) {
		if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\')
			return OTHER;
		n += (p[i] & 0xc0) != 0x80;
	}
	return n <= SLICES ? (uint8_t)n : OTHER;
}

/* Adds the tokens of v, which are sorted, that have (plain) or do not have (!plain) a number of plain code points. */
static int fill(struct token_trie *t, struct trie *to, const struct sorted *v, size_t n, bool plain)
{
	static const struct sorted none;
	const struct sorted *last = &none;
	uint32_t path[TOKEN_BYTES_MAX + 1]; /* by depth: the node of the last token's bytes */
	uint32_t depth = 0;

	for (size_t i = 0; i < n; i++) {
		uint8_t chars = plain_chars(v[i].bytes, v[i].len);
		struct trie_node *end;
		uint32_t common = 0;

		if ((chars != OTHER) != plain)
			continue;
		while (common < MIN(last->len, v[i].len) &&
		       last->bytes[common] == v[i].bytes[common])
			common++;
		for (; depth > common; depth--)
			to->nodes[path[depth]].end = to->n;
		for (; depth < v[i].len; depth++) {
			if (!array_grow(to->nodes, to->cap, to->n + 1))
				return -ENOMEM;
			path[depth + 1] = to->n;
			to->nodes[to->n++] = (struct trie_node){.token = -1,
								.depth = (uint16_t)(depth + 1),
								.byte = v[i].bytes[depth]};
		}
		for (uint32_t k = 1; k <= depth; k++)
			to->nodes[path[k]].chars = MAX(to->nodes[path[k]].chars, chars);
		end = &to->nodes[path[depth]];
		end->several = end->token >= 0;
		t->same[v[i].id] = end->token;
		end->token = v[i].id;
		for (uint32_t k = chars; k <= SLICES; k++)
			t->slices[k * t->words + (uint32_t)v[i].id / 32] |= UINT32_C(1)
									    << v[i].id % 32;
		last = &v[i];
	}
	for (; depth; depth--)
		to->nodes[path[depth]].end = to->n;
	return 0;
}

/* Lists the tokens that have bytes. Returns their number. */
static size_t take_tokens(struct token_trie *t, const struct token_source *source, struct sorted *v)
{
	size_t n = 0;

	for (int32_t id = 0; id < source->n; id++) {
		size_t len = 0;
		const char *bytes = source->bytes(source->arg, id, &len);

		t->same[id] = -1;
		if (bytes && len && len <= TOKEN_BYTES_MAX)
			v[n++] = (struct sorted){(const uint8_t *)bytes, (uint32_t)len, id};
	}
	return n;
}

int token_trie_new(const struct token_source *source, struct token_trie **ret)
{
	struct token_trie *t = calloc(1, sizeof(*t));
	size_t room = (size_t)source->n + 1, n;
	struct sorted *v = calloc(room, sizeof(*v));
	int r = -ENOMEM;

	if (!t || !v)
		goto out;
	t->n = source->n;
	t->words = CEIL_DIV(room, (size_t)32);
	t->slices = calloc((SLICES + 1) * t->words, sizeof(*t->slices));
	t->same = calloc(room, sizeof(*t->same));
	t->ends = calloc(source->n_ends + 1, sizeof(*t->ends));
	if (!t->slices || !t->same || !t->ends)
		goto out;
	n = take_tokens(t, source, v);
	for (size_t i = 0; i < source->n_ends; i++)
		t->ends[i] = source->ends[i];
	t->n_ends = source->n_ends;
	qsort(v, n, sizeof(*v), by_bytes);
	if (fill(t, &t->plain, v, n, true) < 0 || fill(t, &t->other, v, n, false) < 0)
		goto out;
	*ret = t;
	t = NULL;
	r = 0;
out:
	free(v);
	token_trie_free(t);
	return r;
}

void token_trie_free(struct token_trie *t)
{
	if (!t)
		return;
	free(t->plain.nodes);
	free(t->other.nodes);
	free(t->slices);
	free(t->same);
	free(t->ends);
	free(t);
}

size_t token_trie_words(const struct token_trie *t)
{
	return t->words;
}

size_t token_trie_bytes(const struct token_trie *t)
{
	return sizeof(*t) + (t->plain.cap + (size_t)t->other.cap) * sizeof(*t->plain.nodes) +
	       ((SLICES + 1) * t->words + (size_t)t->n + 1 + t->n_ends + 1) * sizeof(uint32_t);
}

/* ---- masks ---- */

struct kept {
	uint32_t *bits; /* [words]; owned */
	uint32_t state; /* AUTOMATON_DEAD: none */
};

struct token_masks {
	const struct token_trie *t;
	struct automaton *a;
	struct kept *kept; /* [n_kept]; owned */
	uint32_t *place;   /* [place_cap]: by state, where its mask is kept, plus 1; owned */
	uint32_t n_kept, kept_cap, kept_max, turn,
		place_cap;		    /* turn: the place that is used again next */
	uint32_t path[TOKEN_BYTES_MAX + 1]; /* by depth: the state there */
};

/* Returns the bytes that a mask takes while it is kept. */
static size_t kept_bytes(const struct token_masks *m)
{
	return m->t->words * sizeof(uint32_t) + sizeof(struct kept);
}

/* Makes a place for a mask, which is counted already, behind the others. */
static int add_place(struct token_masks *m)
{
	uint32_t *bits = calloc(m->t->words, sizeof(*bits));

	if (!bits || !array_grow(m->kept, m->kept_cap, m->n_kept + 1)) {
		free(bits);
		return -ENOMEM;
	}
	m->kept[m->n_kept++] = (struct kept){.bits = bits, .state = AUTOMATON_DEAD};
	return 0;
}

int token_masks_new(const struct token_trie *t, struct automaton *a, size_t max_bytes,
		    struct token_masks **ret)
{
	struct token_masks *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->t = t;
	m->a = a;
	m->kept_max = (uint32_t)MIN(MAX(max_bytes / kept_bytes(m), (size_t)1), (size_t)1 << 20);
	r = a->account ? account_take(a->account, kept_bytes(m)) : 0;
	if (r < 0) {
		free(m);
		return r == -E2BIG ? -ENOBUFS : r;
	}
	r = add_place(m);
	if (r < 0) {
		if (a->account)
			account_give(a->account, kept_bytes(m));
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

/* Frees the masks behind the first n. */
static void keep_first(struct token_masks *m, uint32_t n)
{
	for (uint32_t i = n; i < m->n_kept; i++) {
		if (m->kept[i].state != AUTOMATON_DEAD)
			m->place[m->kept[i].state] = 0;
		free(m->kept[i].bits);
	}
	if (m->a->account)
		account_give(m->a->account, (m->n_kept - n) * kept_bytes(m));
	m->n_kept = n;
	m->turn = 0;
}

void token_masks_drop(struct token_masks *m)
{
	keep_first(m, 1);
}

void token_masks_free(struct token_masks *m)
{
	if (!m)
		return;
	keep_first(m, 0);
	free(m->kept);
	free(m->place);
	free(m);
}

/* Finds a place for one more mask: a new one, if there is memory to spare, else the one whose turn it is. */
static int take_place(struct token_masks *m, uint32_t *ret)
{
	struct account *account = m->a->account;
	struct kept *k;

	if (m->n_kept < m->kept_max && (!account || account_take_spare(account, kept_bytes(m)))) {
		*ret = m->n_kept;
		if (add_place(m) == 0)
			return 0;
		if (account)
			account_give(account, kept_bytes(m));
		return -ENOMEM;
	}
	*ret = m->turn;
	m->turn = (m->turn + 1) % m->n_kept;
	k = &m->kept[*ret];
	if (k->state != AUTOMATON_DEAD)
		m->place[k->state] = 0;
	k->state = AUTOMATON_DEAD;
	return 0;
}

struct states {
	uint32_t v[FOLLOW_MAX], n;
	bool dead, many; /* some state is dead, or there are more than FOLLOW_MAX */
};

static void add_state(struct states *s, uint32_t state)
{
	if (state == AUTOMATON_DEAD) {
		s->dead = true;
		return;
	}
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->v[i] == state)
			return;
	}
	if (s->n == FOLLOW_MAX)
		s->many = true;
	else
		s->v[s->n++] = state;
}

/* Adds the states after the bytes from lo to hi, one for each class. At `most` work of the automaton there are many. */
static void follow_bytes(struct automaton *a, const struct states *from, unsigned lo, unsigned hi,
			 uint64_t most, struct states *to)
{
	for (uint32_t i = 0; i < from->n; i++) {
		for (unsigned c = lo; c <= hi && !to->dead && !to->many; c++) {
			if (c == lo || a->g->class_of[c] != a->g->class_of[c - 1])
				add_state(to, automaton_at(a, from->v[i], (uint8_t)c));
			to->many = to->many || a->work > most;
		}
	}
}

/* Adds the states after one plain code point. */
static void follow_char(struct automaton *a, const struct states *from, uint64_t most,
			struct states *to)
{
	static const struct {
		uint8_t lead_lo, lead_hi, lo, hi, more;
	} forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1},
		     {0xe1, 0xec, 0x80, 0xbf, 1}, {0xed, 0xed, 0x80, 0x9f, 1},
		     {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
		     {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2}};

	follow_bytes(a, from, 0x20, '"' - 1, most, to);
	follow_bytes(a, from, '"' + 1, '\\' - 1, most, to);
	follow_bytes(a, from, '\\' + 1, 0x7f, most, to);
	for (size_t i = 0; i < ARRAY_SIZE(forms) && !to->dead && !to->many; i++) {
		struct states step = {0}, next = {0};

		follow_bytes(a, from, forms[i].lead_lo, forms[i].lead_hi, most, &step);
		follow_bytes(a, &step, forms[i].lo, forms[i].hi, most, &next);
		for (int k = 0; k < forms[i].more; k++) {
			struct states then = {.dead = next.dead, .many = next.many};

			follow_bytes(a, &next, 0x80, 0xbf, most, &then);
			next = then;
		}
		to->dead = to->dead || step.dead || next.dead;
		to->many = to->many || step.many || next.many;
		for (uint32_t k = 0; k < next.n; k++)
			add_state(to, next.v[k]);
	}
}

/* Returns whether no plain code point may follow after any of the states. */
static bool plain_ends(struct automaton *a, const struct states *at, uint64_t most)
{
	for (uint32_t i = 0; i < at->n; i++) {
		for (unsigned c = 0x20; c < 256; c++) {
			if (c == '"' || c == '\\')
				continue;
			if (automaton_at(a, at->v[i], (uint8_t)c) != AUTOMATON_DEAD ||
			    a->work > most)
				return false;
		}
	}
	return true;
}

/* Returns a number of plain code points, up to SLICES, any of which may follow after `state`. *ends: no plain code
 * point may follow behind them, as at the end of a string whose length is limited; else there may be more. */
static uint32_t plain_depth(struct automaton *a, uint32_t state, uint64_t most, bool *ends)
{
	struct states at = {.v = {state}, .n = 1};

	*ends = false;
	for (uint32_t k = 0; k < SLICES; k++) {
		struct states next = {0};

		follow_char(a, &at, most, &next);
		if (next.dead || next.many) {
			*ends = plain_ends(a, &at, most);
			return k;
		}
		if (next.n == at.n && !memcmp(next.v, at.v, at.n * sizeof(*at.v)))
			return SLICES;
		at = next;
	}
	return SLICES;
}

/* Sets the bits of tokens with more than `chars` code points. most: the work of the automaton at which it ends. */
static int walk(struct token_masks *m, const struct trie *trie, uint32_t state, uint32_t chars,
		uint64_t most, uint32_t *bits)
{
	const struct trie_node *nodes = trie->nodes;
	struct automaton *a = m->a;

	m->path[0] = state;
	for (uint32_t i = 0; i < trie->n;) {
		const struct trie_node *node = &nodes[i];
		uint32_t next;

		if (node->chars <= chars) {
			i = node->end;
			continue;
		}
		if (a->work > most)
			return -E2BIG;
		next = automaton_at(a, m->path[node->depth - 1], node->byte);
		if (next == AUTOMATON_DEAD) {
			i = node->end;
			continue;
		}
		m->path[node->depth] = next;
		/* `same` has the order of ids, so a look into it costs more than all else here. */
		for (int32_t id = node->token; id >= 0; id = node->several ? m->t->same[id] : -1)
			bits[id / 32] |= UINT32_C(1) << id % 32;
		i++;
	}
	return 0;
}

static int make_mask(struct token_masks *m, uint32_t state, uint32_t *bits, struct err *e)
{
	const struct token_trie *t = m->t;
	uint64_t most = m->a->work + WORK_MAX;
	bool ends;
	uint32_t chars = plain_depth(m->a, state, most, &ends);
	int r;

	memcpy(bits, t->slices + chars * t->words, t->words * sizeof(*bits));
	r = chars < SLICES && !ends ? walk(m, &t->plain, state, chars, most, bits) : 0;
	if (!r)
		r = walk(m, &t->other, state, SLICES, most, bits);
	if (automaton_failed(m->a, e) < 0)
		return automaton_failed(m->a, NULL);
	if (r < 0)
		return err_set(
			e, -r,
			"the grammar is so ambiguous that the next tokens take too much work");
	for (size_t i = 0; automaton_may_end(m->a, state) && i < t->n_ends; i++)
		bits[t->ends[i] / 32] |= UINT32_C(1) << t->ends[i] % 32;
	return 0;
}

int token_mask(struct token_masks *m, uint32_t state, const uint32_t **ret, struct err *e)
{
	uint32_t at, cap = m->place_cap;
	struct kept *k;
	int r;

	if (state >= m->place_cap) {
		/* Not more than the automaton counts in its bytes. */
		if (!array_grow(m->place, m->place_cap, m->a->states_cap))
			return err_no_memory(e);
		memset(m->place + cap, 0, (m->place_cap - cap) * sizeof(*m->place));
	}
	at = m->place[state];
	if (!at) {
		if (take_place(m, &at) < 0)
			return err_no_memory(e);
		k = &m->kept[at];
		r = make_mask(m, state, k->bits, e);
		if (r < 0)
			return r;
		k->state = state;
		/* The dead state's mask is empty, and is not kept. */
		if (state != AUTOMATON_DEAD)
			m->place[state] = at + 1;
	} else {
		k = &m->kept[at - 1];
	}
	*ret = k->bits;
	return 0;
}
