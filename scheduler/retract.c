#include "scheduler/retract.h"

#include <assert.h>

#include "scheduler/admission.h"

/* Tokens of all living choices. */
static uint64_t tokens_of(const struct request *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			n += request_known(&r->choices[i]);
	return n;
}

static struct request *choose_victim(const struct scheduler *s)
{
	struct request *best = NULL;
	uint64_t most = 0;

	list_for_each (q, &s->decoding, struct sequence, node) {
		struct request *r = q->request;
		uint64_t n = tokens_of(r);

		if (!best || n > most || (n == most && r->id < best->id)) {
			best = r;
			most = n;
		}
	}
	return best;
}

bool retract_one(struct scheduler *s)
{
	struct request *r = choose_victim(s);

	assert(!plans_out(s));
	if (!r)
		return false;
	request_advance(r, REQUEST_RETRACT);
	r->trunk = NULL;
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		admission_release(s, &r->choices[i]);
	waiting_insert(&s->waiting, r);
	s->n_waiting++;
	s->n_retracted++;
	r->retracted = true;
	s->stats.retractions++;
	return true;
}
