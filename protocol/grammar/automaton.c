#include "protocol/grammar/automaton_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/mix.h"
#include "protocol/grammar/grammar_internal.h"

enum { NO_FRAME = 0, BOTTOM = 0, SEEN_MIN = 64, INDEX_MIN = 64 };
enum { STEP_WORK_MAX = 1 << 20 }; /* work of one step: items are also found again and again */

static uint64_t pair(uint32_t node, uint32_t frame)
{
	return (uint64_t)node << 32 | frame;
}

static void fail(struct automaton *a, int r)
{
	if (!a->failed)
		a->failed = r;
}

static size_t bytes_of(const struct automaton *a)
{
	size_t words = (size_t)a->items_cap + a->returns_cap + a->pending_cap + a->found_cap +
		       a->calls_cap + a->set_cap + a->seen_cap;
	size_t halves = (size_t)a->states_cap + a->rows_cap + a->call_next_cap + a->seen_cap / 2 +
			a->state_index.cap + a->frame_index.cap + a->g->n_rules;

	/* A half for each state: masks note there where the state's mask is (token_mask.c). */
	return (size_t)a->states_cap * sizeof(*a->states) +
	       (size_t)a->frames_cap * sizeof(*a->frames) + words * sizeof(uint64_t) +
	       halves * sizeof(uint32_t);
}

/* Returns whether max_bytes and the account have room for so many more, which are then counted. */
static bool has_room(struct automaton *a, size_t bytes)
{
	size_t now = bytes_of(a);
	int r = 0;

	if (now > a->max_bytes || bytes > a->max_bytes - now) {
		fail(a, -ENOBUFS);
		return false;
	}
	if (!a->account || now + bytes <= a->counted)
		return true;
	r = account_take(a->account, now + bytes - a->counted);
	if (r < 0) {
		fail(a, r == -E2BIG ? -ENOBUFS : r);
		return false;
	}
	a->counted = now + bytes;
	return true;
}

/* As array_grow, within max_bytes: an array that grows at least doubles. */
#define grow(a, v, cap, n)                                                                        \
	(((n) <= (cap) || has_room(a, MAX((size_t)(n) - (cap), (size_t)(cap)) * sizeof(*(v)))) && \
	 (array_grow(v, cap, n) || (fail(a, -ENOMEM), false)))

/* ---- sets of items, kept once ---- */

static int compare(const void *x, const void *y)
{
	uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;

	return p < q ? -1 : p > q;
}

/* Sorts, removes doubles and returns the number that is left. */
static uint32_t sort_set(uint64_t *v, uint32_t n)
{
	uint32_t kept = 0;

	if (n < 2)
		return n;
	if (n <= 8) {
		for (uint32_t i = 1; i < n; i++) {
			uint64_t x = v[i];
			uint32_t k = i;

			for (; k && v[k - 1] > x; k--)
				v[k] = v[k - 1];
			v[k] = x;
		}
	} else {
		qsort(v, n, sizeof(*v), compare);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!i || v[i] != v[i - 1])
			v[kept++] = v[i];
	}
	return kept;
}

static uint64_t hash_set(const uint64_t *v, uint32_t n, bool flag)
{
	uint64_t h = flag;

	for (uint32_t i = 0; i < n; i++)
		h = mix_product(h ^ v[i], MIX_GOLDEN) ^ i;
	return mix64(h);
}

static uint64_t hash_of(const struct automaton *a, bool states, uint32_t i)
{
	if (states)
		return hash_set(a->items + a->states[i].first, a->states[i].n,
				a->states[i].may_end);
	return hash_set(a->returns + a->frames[i].first, a->frames[i].n, false);
}

/* Makes room for one more element. */
static bool index_grow(struct automaton *a, struct automaton_index *x, bool states)
{
	uint32_t cap = x->cap ? x->cap * 2 : INDEX_MIN, *v;

	if (2 * (x->n + 1) <= x->cap)
		return true;
	if (cap < x->cap)
		fail(a, -ENOBUFS);
	if (a->failed || !has_room(a, (cap - x->cap) * sizeof(*v)))
		return false;
	v = calloc(cap, sizeof(*v));
	if (!v) {
		fail(a, -ENOMEM);
		return false;
	}
	for (uint32_t i = 0; i < x->cap; i++) {
		uint64_t h;

		if (!x->v[i])
			continue;
		h = hash_of(a, states, x->v[i]);
		while (v[h & (cap - 1)])
			h++;
		v[h & (cap - 1)] = x->v[i];
	}
	free(x->v);
	x->v = v;
	x->cap = cap;
	return true;
}

/* Returns the number of the frame that returns to these places. */
static uint32_t frame_of(struct automaton *a, const uint64_t *v, uint32_t n)
{
	uint64_t h = hash_set(v, n, false);
	uint32_t at;

	if (!index_grow(a, &a->frame_index, false))
		return NO_FRAME;
	for (;; h++) {
		at = a->frame_index.v[h & (a->frame_index.cap - 1)];
		if (!at)
			break;
		if (a->frames[at].n == n &&
		    !memcmp(a->returns + a->frames[at].first, v, n * sizeof(*v)))
			return at;
	}
	if (!grow(a, a->frames, a->frames_cap, a->n_frames + 1) ||
	    !grow(a, a->returns, a->returns_cap, a->n_returns + n))
		return NO_FRAME;
	memcpy(a->returns + a->n_returns, v, n * sizeof(*v));
	a->frames[a->n_frames] = (struct automaton_set){a->n_returns, n};
	a->n_returns += n;
	a->frame_index.v[h & (a->frame_index.cap - 1)] = a->n_frames;
	a->frame_index.n++;
	return a->n_frames++;
}

static uint32_t state_of(struct automaton *a, const uint64_t *v, uint32_t n, bool may_end)
{
	uint64_t h = hash_set(v, n, may_end);
	uint32_t at;

	if (!n && !may_end)
		return AUTOMATON_DEAD;
	if (!index_grow(a, &a->state_index, true))
		return AUTOMATON_DEAD;
	for (;; h++) {
		at = a->state_index.v[h & (a->state_index.cap - 1)];
		if (!at)
			break;
		if (a->states[at].n == n && a->states[at].may_end == may_end &&
		    (!n || !memcmp(a->items + a->states[at].first, v, n * sizeof(*v))))
			return at;
	}
	if (!grow(a, a->states, a->states_cap, a->n_states + 1) ||
	    !grow(a, a->items, a->items_cap, a->n_items + n))
		return AUTOMATON_DEAD;
	if (n)
		memcpy(a->items + a->n_items, v, n * sizeof(*v));
	a->states[a->n_states] =
		(struct automaton_state){AUTOMATON_UNKNOWN, a->n_items, n, may_end};
	a->n_items += n;
	a->state_index.v[h & (a->state_index.cap - 1)] = a->n_states;
	a->state_index.n++;
	return a->n_states++;
}

/* ---- one step ---- */

static bool seen_grow(struct automaton *a)
{
	uint32_t cap = a->seen_cap ? a->seen_cap * 2 : SEEN_MIN;
	uint32_t *places;
	uint64_t *v;

	if (!has_room(a, (cap - a->seen_cap) * (sizeof(*v) + sizeof(*places) / 2)))
		return false;
	places = reallocarray(a->seen_places, cap / 2, sizeof(*places));
	if (places)
		a->seen_places = places;
	v = places ? calloc(cap, sizeof(*v)) : NULL;
	if (!v) {
		fail(a, -ENOMEM);
		return false;
	}
	for (uint32_t i = 0; i < a->n_seen; i++) {
		uint64_t key = a->seen[places[i]], h = mix64(key);

		while (v[h & (cap - 1)])
			h++;
		places[i] = (uint32_t)(h & (cap - 1));
		v[places[i]] = key;
	}
	free(a->seen);
	a->seen = v;
	a->seen_cap = cap;
	return true;
}

/* Adds a node with a frame to those that the step has to look at, once. */
static void visit(struct automaton *a, uint32_t node, uint32_t frame)
{
	uint64_t key = pair(node, frame) + 1, h = mix64(key);

	if (++a->work > a->work_max) {
		a->over = true;
		return;
	}
	if (2 * (a->n_seen + 1) > a->seen_cap && !seen_grow(a))
		return;
	for (; a->seen[h & (a->seen_cap - 1)]; h++) {
		if (a->seen[h & (a->seen_cap - 1)] == key)
			return;
	}
	if (a->n_seen >= AUTOMATON_ITEMS_MAX) {
		a->over = true;
		return;
	}
	if (!grow(a, a->pending, a->pending_cap, a->n_pending + 1))
		return;
	a->seen_places[a->n_seen] = (uint32_t)(h & (a->seen_cap - 1));
	a->seen[a->seen_places[a->n_seen++]] = key;
	a->pending[a->n_pending++] = pair(node, frame);
}

/* Notes that `rule` is called and returns to `place`. */
static void note_call(struct automaton *a, uint32_t rule, uint64_t place)
{
	a->work++;
	if (a->n_calls >= 4 * AUTOMATON_ITEMS_MAX) {
		a->over = true;
		return;
	}
	if (!grow(a, a->calls, a->calls_cap, a->n_calls + 1) ||
	    !grow(a, a->call_next, a->call_next_cap, a->n_calls + 1))
		return;
	a->calls[a->n_calls] = place;
	a->call_next[a->n_calls] = a->rule_calls[rule];
	a->rule_calls[rule] = ++a->n_calls;
	a->waiting[rule / 64] |= UINT64_C(1) << rule % 64;
}

static void call(struct automaton *a, const struct grammar_node *node, uint32_t frame)
{
	if (node->b == GRAMMAR_RETURN) {
		const struct automaton_set *f = &a->frames[frame];

		for (uint32_t i = 0; i < f->n && !a->over; i++)
			note_call(a, node->a, a->returns[f->first + i]);
	} else {
		note_call(a, node->a, pair(node->b, frame));
	}
	/* The empty text of the rule is read here, so a rule never returns where it was called. */
	if (a->g->rules[node->a].nullable)
		visit(a, node->b, frame);
}

/* Looks at the nodes in pending. fresh: their frame was made in this step, so that a return from it was done by
 * `call`. */
static void close_items(struct automaton *a, bool fresh)
{
	const struct grammar *g = a->g;

	while (a->n_pending && !a->over && !a->failed) {
		uint64_t item = a->pending[--a->n_pending];
		uint32_t frame = (uint32_t)item;
		const struct grammar_node *node = &g->nodes[item >> 32];

		switch (node->kind) {
		case NODE_ACCEPT: a->accepts = true; break;
		case NODE_BYTES:
			if (grow(a, a->found, a->found_cap, a->n_found + 1))
				a->found[a->n_found++] = item;
			break;
		case NODE_FORK:
			for (uint32_t i = 0; i < node->b && !a->over; i++) {
				uint32_t next = g->edges[node->a + i].next;

				if (next != GRAMMAR_GONE)
					visit(a, next, frame);
			}
			break;
		case NODE_CALL: call(a, node, frame); break;
		case NODE_RETURN:
			for (uint32_t i = 0; !fresh && i < a->frames[frame].n && !a->over; i++) {
				uint64_t place = a->returns[a->frames[frame].first + i];

				visit(a, (uint32_t)(place >> 32), (uint32_t)place);
			}
			break;
		}
	}
}

/* Enters each rule that was called, in the order of their numbers: when a rule's turn comes, all its calls are
 * known. */
static void enter_rules(struct automaton *a)
{
	for (uint32_t w = 0; w < CEIL_DIV(a->g->n_rules, 64u); w++) {
		while (a->waiting[w] && !a->over && !a->failed) {
			uint32_t rule = w * 64 + (uint32_t)__builtin_ctzll(a->waiting[w]), frame;

			a->waiting[w] &= a->waiting[w] - 1;
			a->n_set = 0;
			for (uint32_t i = a->rule_calls[rule]; i; i = a->call_next[i - 1]) {
				if (!grow(a, a->set, a->set_cap, a->n_set + 1))
					return;
				a->set[a->n_set++] = a->calls[i - 1];
			}
			a->rule_calls[rule] = 0;
			a->n_set = sort_set(a->set, a->n_set);
			frame = frame_of(a, a->set, a->n_set);
			if (a->failed)
				return;
			visit(a, a->g->rules[rule].entry, frame);
			close_items(a, true);
		}
	}
}

static void clear_step(struct automaton *a)
{
	for (uint32_t i = 0; i < a->n_seen; i++)
		a->seen[a->seen_places[i]] = 0;
	a->n_seen = a->n_pending = a->n_found = a->n_calls = 0;
	a->accepts = a->over = false;
}

/* Makes the state of the items in pending and of all that follow from them. */
static uint32_t close_state(struct automaton *a)
{
	uint32_t state = AUTOMATON_DEAD;

	close_items(a, false);
	enter_rules(a);
	if (a->over || a->failed) {
		memset(a->waiting, 0, CEIL_DIV(a->g->n_rules, 64u) * sizeof(*a->waiting));
		memset(a->rule_calls, 0, a->g->n_rules * sizeof(*a->rule_calls));
	} else {
		a->n_found = sort_set(a->found, a->n_found);
		state = state_of(a, a->found, a->n_found, a->accepts);
	}
	clear_step(a);
	return a->failed ? (uint32_t)AUTOMATON_DEAD : state;
}

static bool add_row(struct automaton *a, uint32_t state)
{
	size_t n = a->g->n_classes, at = a->n_rows * n;

	if (!grow(a, a->rows, a->rows_cap, at + n))
		return false;
	for (size_t i = 0; i < n; i++)
		a->rows[at + i] = state == AUTOMATON_DEAD ? (uint32_t)AUTOMATON_DEAD
							  : (uint32_t)AUTOMATON_UNKNOWN;
	a->states[state].row = (uint32_t)a->n_rows++;
	return true;
}

uint32_t automaton_step(struct automaton *a, uint32_t state, uint32_t class)
{
	const struct grammar *g = a->g;
	struct automaton_state from = a->states[state];
	uint8_t byte = g->of_class[class];
	uint32_t next;

	if (a->failed)
		return AUTOMATON_DEAD;
	if (from.row == AUTOMATON_UNKNOWN) {
		if (!add_row(a, state))
			return AUTOMATON_DEAD;
		from.row = a->states[state].row;
	}
	a->work_max = a->work + STEP_WORK_MAX;
	for (uint32_t i = 0; i < from.n && !a->over; i++) {
		uint64_t item = a->items[from.first + i];
		const struct grammar_node *node = &g->nodes[item >> 32];

		a->work += node->b;
		for (uint32_t k = 0; k < node->b; k++) {
			const struct grammar_edge *edge = &g->edges[node->a + k];

			if (edge->lo <= byte && byte <= edge->hi)
				visit(a, edge->next, (uint32_t)item);
		}
	}
	next = close_state(a);
	if (!a->failed)
		a->rows[(size_t)from.row * g->n_classes + class] = next;
	return next;
}

int automaton_new(const struct grammar *g, size_t max_bytes, struct account *account,
		  struct automaton **ret)
{
	struct automaton *a = calloc(1, sizeof(*a));
	uint64_t accept = pair(GRAMMAR_ACCEPT, BOTTOM);
	int r;

	if (!a)
		return -ENOMEM;
	a->g = g;
	a->max_bytes = max_bytes;
	a->account = account;
	a->work_max = STEP_WORK_MAX;
	a->rule_calls = calloc(g->n_rules, sizeof(*a->rule_calls));
	a->waiting = calloc(CEIL_DIV(g->n_rules, 64u), sizeof(*a->waiting));
	if (!a->rule_calls || !a->waiting)
		fail(a, -ENOMEM);
	/* Frame 0 and state 0 are in no index. */
	if (!a->failed && grow(a, a->frames, a->frames_cap, 1))
		a->frames[a->n_frames++] = (struct automaton_set){0, 0};
	if (!a->failed && grow(a, a->states, a->states_cap, 1)) {
		a->states[a->n_states++] = (struct automaton_state){AUTOMATON_UNKNOWN, 0, 0, false};
		add_row(a, AUTOMATON_DEAD);
	}
	if (!a->failed)
		note_call(a, g->root, accept);
	if (!a->failed && g->rules[g->root].nullable)
		a->accepts = true;
	if (!a->failed)
		close_state(a);
	if (!a->failed && a->n_states < 2)
		fail(a, -ENOBUFS); /* more items than AUTOMATON_ITEMS_MAX before the first byte */
	r = a->failed;
	if (r < 0)
		automaton_free(a);
	else
		*ret = a;
	return r;
}

/* Frees the arrays. */
static void release(struct automaton *a)
{
	if (a->account)
		account_give(a->account, a->counted);
	free(a->states);
	free(a->frames);
	free(a->rows);
	free(a->items);
	free(a->returns);
	free(a->state_index.v);
	free(a->frame_index.v);
	free(a->pending);
	free(a->found);
	free(a->calls);
	free(a->set);
	free(a->call_next);
	free(a->rule_calls);
	free(a->waiting);
	free(a->seen);
	free(a->seen_places);
}

void automaton_free(struct automaton *a)
{
	if (!a)
		return;
	release(a);
	free(a);
}

/* ---- forgetting ---- */

enum { NEEDED = UINT32_MAX };

/* Makes b->set of places or items of another automaton, whose frames have the numbers frames[] in b. */
static uint32_t translate(struct automaton *b, const uint64_t *v, uint32_t n,
			  const uint32_t *frames)
{
	if (!grow(b, b->set, b->set_cap, n))
		return 0;
	for (uint32_t i = 0; i < n; i++)
		b->set[i] = pair((uint32_t)(v[i] >> 32), frames[(uint32_t)v[i]]);
	return sort_set(b->set, n);
}

/* Copies states of a to b. frames: [a->n_frames] zeros. */
static void copy_states(const struct automaton *a, struct automaton *b, uint32_t *frames,
			uint32_t *states, uint32_t n_states)
{
	uint32_t n;

	for (uint32_t i = 0; i < n_states; i++) {
		const struct automaton_state *s = &a->states[states[i]];

		for (uint32_t k = 0; k < s->n; k++)
			frames[(uint32_t)a->items[s->first + k]] = NEEDED;
	}
	/* A frame is made after those that its places have. */
	for (uint32_t f = a->n_frames - 1; f > BOTTOM; f--)
		for (uint32_t k = 0; frames[f] && k < a->frames[f].n; k++)
			frames[(uint32_t)a->returns[a->frames[f].first + k]] = NEEDED;
	frames[BOTTOM] = BOTTOM;
	for (uint32_t f = BOTTOM + 1; f < a->n_frames && !b->failed; f++) {
		if (!frames[f])
			continue;
		n = translate(b, a->returns + a->frames[f].first, a->frames[f].n, frames);
		if (!b->failed)
			frames[f] = frame_of(b, b->set, n);
	}
	for (uint32_t i = 0; i < n_states && !b->failed; i++) {
		const struct automaton_state *s = &a->states[states[i]];

		n = translate(b, a->items + s->first, s->n, frames);
		if (!b->failed)
			states[i] = state_of(b, b->set, n, s->may_end);
	}
	b->work += a->work + a->n_frames + b->n_items + b->n_returns;
}

/* Makes a copy whose memory is counted nowhere. */
static int copy(const struct automaton *a, uint32_t *states, uint32_t n, struct automaton **ret)
{
	uint32_t *frames = calloc(a->n_frames, sizeof(*frames));
	struct automaton *b = NULL;
	int r = frames ? automaton_new(a->g, a->max_bytes, NULL, &b) : -ENOMEM;

	if (r == 0) {
		copy_states(a, b, frames, states, n);
		r = b->failed;
	}
	free(frames);
	if (r < 0)
		automaton_free(b);
	else
		*ret = b;
	return r;
}

/* Counts the memory of an automaton that is counted nowhere. */
static void count_in(struct automaton *a, struct account *account)
{
	a->account = account;
	if (!account)
		return;
	a->counted = bytes_of(a);
	account_add(account, a->counted);
}

int automaton_copy(const struct automaton *a, struct account *account, uint32_t *states, uint32_t n,
		   struct automaton **ret)
{
	int r = copy(a, states, n, ret);

	if (r == 0)
		count_in(*ret, account);
	return r;
}

int automaton_forget(struct automaton *a, uint32_t *states, uint32_t n)
{
	struct account *account = a->account;
	struct automaton *b;
	int r = copy(a, states, n, &b);

	if (r < 0) {
		fail(a, r);
		return r;
	}
	release(a);
	*a = *b;
	free(b);
	count_in(a, account);
	return 0;
}

/* ---- reading ---- */

uint32_t automaton_next(struct automaton *a, uint32_t state, uint8_t byte)
{
	return automaton_at(a, state, byte);
}

uint32_t automaton_read(struct automaton *a, uint32_t state, const void *text, size_t len)
{
	for (size_t i = 0; i < len && state != AUTOMATON_DEAD; i++)
		state = automaton_at(a, state, ((const uint8_t *)text)[i]);
	return state;
}

bool automaton_may_end(const struct automaton *a, uint32_t state)
{
	return a->states[state].may_end;
}

int automaton_failed(const struct automaton *a, struct err *e)
{
	if (a->failed == -ENOMEM)
		return err_no_memory(e);
	if (a->failed == -ENOSPC || a->failed == -EDQUOT)
		return err_set(e, -a->failed,
			       "the automaton of the grammar needs more memory than is left");
	if (a->failed)
		return err_set(e, ENOBUFS, "the automaton of the grammar needs more than %zu bytes",
			       a->max_bytes);
	return 0;
}

uint32_t automaton_size(const struct automaton *a)
{
	return a->n_states;
}

uint64_t automaton_work(const struct automaton *a)
{
	return a->work;
}

size_t automaton_bytes(const struct automaton *a)
{
	return bytes_of(a);
}
