#include "scheduler/fairness.h"

#include "base/majority.h"

static uint32_t half_of_seats(const struct scheduler *s)
{
	return CEIL_DIV(s->config.max_seqs, 2u);
}

static uint32_t seats_of(const struct scheduler *s, uint64_t owner)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->config.max_seqs; i++)
		n += s->seat_owners[i] == owner;
	return n;
}

/* Whether the admission of a waiting request would give its owner more than half of the seats. False if the owner has
 * no seat, so that a request with many choices can run at all, and if there is no owner. */
static bool is_too_much(const struct scheduler *s, const struct request *r)
{
	uint32_t held = r->ask.owner ? seats_of(s, r->ask.owner) : 0;

	return held && held + r->n_live > half_of_seats(s);
}

/* Returns the first waiting request of another owner for which is_too_much is false; NULL: there is none. */
static struct request *first_of_others(const struct scheduler *s, uint64_t owner)
{
	struct request *best = NULL;

	for (size_t i = 0; i < s->waiting.n; i++) {
		struct request *r = s->waiting.v[i];

		if (r->ask.owner != owner && (!best || waiting_before(r, best)) &&
		    !is_too_much(s, r))
			best = r;
	}
	return best;
}

struct request *fairness_first(const struct scheduler *s)
{
	struct request *first = waiting_first(&s->waiting), *other;

	/* Without a free seat no request is admitted, so the order of the requests does not matter yet. */
	if (!first || !pool_available(s->seats) || !is_too_much(s, first))
		return first;
	other = first_of_others(s, first->ask.owner);
	return other ? other : first;
}

/* Returns the owner of more than half of the seats, if there is one; else any owner, or 0. */
static uint64_t owner_of_most(const struct scheduler *s)
{
	struct majority m = {0};

	for (uint32_t i = 0; i < s->config.max_seqs; i++)
		majority_vote(&m, s->seat_owners[i], 1);
	return m.leader;
}

/* Whether a is the better one of two requests to retract: fewer tokens may have to be computed again, or, of equally
 * many, it is the younger one. */
static bool is_cheaper(const struct request *a, const struct request *b)
{
	uint64_t n = request_length(a), m = request_length(b);

	return n != m ? n < m : a->id > b->id;
}

struct request *fairness_victim(const struct scheduler *s)
{
	uint32_t most = half_of_seats(s), n_free = pool_available(s->seats), held;
	uint64_t owner;
	struct request *next, *best = NULL;

	if (!s->waiting.n || s->head || !(owner = owner_of_most(s)))
		return NULL;
	held = seats_of(s, owner);
	if (held <= most)
		return NULL;
	next = first_of_others(s, owner);
	if (!next || next->n_live <= n_free || next->n_live > n_free + held - most)
		return NULL;
	list_for_each (q, &s->decoding, struct sequence, node) {
		struct request *r = q->request;

		if (r->ask.owner == owner && r->origin_known && held - r->n_held >= most &&
		    (!best || is_cheaper(r, best)))
			best = r;
	}
	return best;
}
