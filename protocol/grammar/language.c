#include "protocol/grammar/language.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/mix.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/parts.h"

enum {
	DEAD,
	START,
	WORK_MAX = 1 << 23,
	AUTOMATON_BYTES = 64 << 20,
	INDEX = 4 * LANGUAGE_STATES_MAX
};

struct state {
	uint16_t next[256];
	bool accepts;
};

struct language {
	struct state *states; /* owned; [DEAD] leads nowhere, [START] is the first one */
	uint32_t n, cap;
	uint64_t items; /* of the automaton that has read them */
};

static int too_large(struct err *e)
{
	return err_set(
		e, E2BIG,
		"a pattern, together with others at the same place, needs more than %d states",
		LANGUAGE_STATES_MAX);
}

static struct language *new_language(void)
{
	struct language *l = calloc(1, sizeof(*l));

	if (!l || !array_grow(l->states, l->cap, 1)) {
		free(l);
		return NULL;
	}
	memset(&l->states[l->n++], 0, sizeof(*l->states));
	return l;
}

/* Returns the number of a new state; 0: an error. */
static uint32_t add_state(struct language *l, bool accepts, int *r, struct err *e)
{
	if (l->n == LANGUAGE_STATES_MAX) {
		*r = too_large(e);
		return DEAD;
	}
	if (!array_grow(l->states, l->cap, l->n + 1)) {
		*r = err_no_memory(e);
		return DEAD;
	}
	memset(&l->states[l->n], 0, sizeof(*l->states));
	l->states[l->n].accepts = accepts;
	return l->n++;
}

uint64_t language_work(const struct language *l)
{
	return 64 * (uint64_t)l->n + l->items / 4;
}

void language_free(struct language *l)
{
	if (!l)
		return;
	free(l->states);
	free(l);
}

/* The pairs of numbers that have become states. */
struct pairs {
	struct {
		uint32_t a, b, state; /* state 0: empty */
	} * index;		      /* [INDEX]; owned */
	uint32_t (*of)[2];	      /* [LANGUAGE_STATES_MAX]: by state, its pair; owned */
	struct language *l;
};

static int pairs_init(struct pairs *p, struct err *e)
{
	p->index = calloc(INDEX, sizeof(*p->index));
	p->of = calloc(LANGUAGE_STATES_MAX, sizeof(*p->of));
	p->l = new_language();
	return p->index && p->of && p->l ? 0 : err_no_memory(e);
}

static void pairs_release(struct pairs *p)
{
	free(p->index);
	free(p->of);
	language_free(p->l);
}

/* Returns the state of a pair, which is new if it is met for the first time. */
static uint32_t state_of(struct pairs *p, uint32_t a, uint32_t b, bool accepts, int *r,
			 struct err *e)
{
	uint64_t h = mix64((uint64_t)a << 32 | b);

	for (;; h++) {
		uint32_t at = (uint32_t)(h & (INDEX - 1));

		if (p->index[at].state && p->index[at].a == a && p->index[at].b == b)
			return p->index[at].state;
		if (p->index[at].state)
			continue;
		p->index[at].a = a;
		p->index[at].b = b;
		p->index[at].state = add_state(p->l, accepts, r, e);
		p->of[p->index[at].state][0] = a;
		p->of[p->index[at].state][1] = b;
		return p->index[at].state;
	}
}

static int explore(struct grammar_builder *b, struct automaton *a, struct pairs *p, struct err *e)
{
	int r = 0;

	state_of(p, AUTOMATON_START, 0, automaton_may_end(a, AUTOMATON_START), &r, e);
	for (uint32_t i = START; i < p->l->n && !r; i++) {
		uint32_t from = p->of[i][0];

		if (i % 64 == 0 && !grammar_goes_on(b))
			return err_set(e, ECANCELED, "the grammar is not wanted any more");
		if (automaton_work(a) > WORK_MAX)
			return too_large(e);
		for (unsigned c = 0; c < 256 && !r; c++) {
			uint32_t next = automaton_next(a, from, (uint8_t)c), to;

			if (next == AUTOMATON_DEAD)
				continue;
			to = state_of(p, next, 0, automaton_may_end(a, next), &r, e);
			p->l->states[i].next[c] = (uint16_t)to;
		}
	}
	p->l->items = automaton_work(a);
	return r ? r : automaton_failed(a, e);
}

int language_new(struct grammar_builder *b, uint32_t expression, struct language **ret,
		 struct err *e)
{
	uint32_t root = grammar_rule(b, "a pattern");
	struct grammar *g = NULL;
	struct automaton *a = NULL;
	struct pairs p = {0};
	struct err none;
	int r;

	grammar_define(b, root, expression);
	r = pairs_init(&p, e);
	if (r < 0)
		goto out;
	r = grammar_build(b, root, &g, &none);
	if (r == -EINVAL) {
		/* No text at all. */
		r = 0;
		state_of(&p, AUTOMATON_START, 0, false, &r, e);
	} else if (r < 0) {
		if (e)
			*e = none;
	} else {
		r = automaton_new(g, AUTOMATON_BYTES, NULL, &a);
		if (r == -ENOMEM)
			err_no_memory(e);
		if (!r)
			r = explore(b, a, &p, e);
	}
	if (r == -ENOBUFS)
		r = too_large(e);
	if (!r) {
		*ret = p.l;
		p.l = NULL;
	}
out:
	automaton_free(a);
	grammar_free(g);
	pairs_release(&p);
	return r;
}

int language_multiples(uint32_t n, struct language **ret, struct err *e)
{
	struct language *l = n < LANGUAGE_STATES_MAX - 8 ? new_language() : NULL;
	int r = 0;
	uint32_t sign, first;

	if (!l)
		return n < LANGUAGE_STATES_MAX - 8 ? err_no_memory(e) : too_large(e);
	add_state(l, false, &r, e);
	sign = add_state(l, false, &r, e);
	/* State first + i: the digits so far are i more than a multiple. */
	first = l->n;
	for (uint32_t i = 0; i < n && !r; i++)
		add_state(l, i == 0, &r, e);
	if (r < 0) {
		language_free(l);
		return r;
	}
	l->states[START].next['-'] = (uint16_t)sign;
	for (uint32_t d = 0; d < 10; d++) {
		l->states[START].next['0' + d] = l->states[sign].next['0' + d] =
			(uint16_t)(first + d % n);
		for (uint32_t i = 0; i < n; i++)
			l->states[first + i].next['0' + d] =
				(uint16_t)(first + ((uint64_t)i * 10 + d) % n);
	}
	*ret = l;
	return 0;
}

int language_keep(struct language **l, const struct language *other, bool without, struct err *e)
{
	const struct language *one = *l;
	struct pairs p = {0};
	int r = pairs_init(&p, e);

	if (!r)
		state_of(&p, START, START,
			 one->states[START].accepts && other->states[START].accepts != without, &r,
			 e);
	for (uint32_t i = START; !r && i < p.l->n; i++) {
		const struct state *x = &one->states[p.of[i][0]], *y = &other->states[p.of[i][1]];

		for (unsigned c = 0; c < 256 && !r; c++) {
			uint32_t a = x->next[c], b = y->next[c], to;

			if (a == DEAD || (b == DEAD && !without))
				continue;
			to = state_of(&p, a, b,
				      one->states[a].accepts && other->states[b].accepts != without,
				      &r, e);
			p.l->states[i].next[c] = (uint16_t)to;
		}
	}
	if (!r) {
		language_free(*l);
		*l = p.l;
		p.l = NULL;
	}
	pairs_release(&p);
	return r;
}

/* Returns the texts from a state on. */
static uint32_t rest_of(struct grammar_builder *b, const struct state *x, uint32_t first_rule)
{
	struct parts p = {0};
	uint32_t rest;

	for (unsigned lo = 0; lo < 256;) {
		unsigned hi = lo;

		while (hi < 255 && x->next[hi + 1] == x->next[lo])
			hi++;
		if (x->next[lo] != DEAD)
			parts_add(&p, grammar_seq(b, grammar_byte(b, (uint8_t)lo, (uint8_t)hi),
						  grammar_call(b, first_rule + x->next[lo])));
		lo = hi + 1;
	}
	if (x->accepts)
		parts_add(&p, 0);
	if (p.failed)
		grammar_no_memory(b);
	rest = grammar_choice(b, p.v, p.n);
	parts_release(&p);
	return rest;
}

uint32_t language_expression(struct grammar_builder *b, const struct language *l)
{
	uint32_t first = 0;

	/* Rules get numbers one after the other. */
	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t rule = grammar_rule(b, "a pattern");

		if (!i)
			first = rule;
	}
	for (uint32_t i = 0; i < l->n && !grammar_failed(b); i++)
		grammar_define(b, first + i, rest_of(b, &l->states[i], first));
	return grammar_call(b, first + START);
}
