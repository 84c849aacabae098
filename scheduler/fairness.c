#include "scheduler/fairness.h"

/* Whether the request would give its owner more than half of the seats. An owner without a seat may have as many as one
 * request needs. */
static bool is_too_much(const struct scheduler *s, const struct request *r)
{
	uint32_t most = CEIL_DIV(s->config.max_seqs, 2u), held = 0;

	if (!r->ask.owner)
		return false;
	for (uint32_t i = 0; i < s->config.max_seqs; i++)
		held += s->seat_owners[i] == r->ask.owner;
	return held && held + r->n_live > most;
}

struct request *fairness_first(const struct scheduler *s)
{
	struct request *first = waiting_first(&s->waiting), *best = NULL;

	/* Without a free seat none is admitted, and their order does not matter yet. */
	if (!first || !pool_available(s->seats) || !is_too_much(s, first))
		return first;
	for (size_t i = 0; i < s->waiting.n; i++) {
		struct request *r = s->waiting.v[i];

		if (r->ask.owner != first->ask.owner && (!best || waiting_before(r, best)) &&
		    !is_too_much(s, r))
			best = r;
	}
	return best ? best : first;
}
