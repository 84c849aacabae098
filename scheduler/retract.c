#include "scheduler/retract.h"

#include <assert.h>

#include "scheduler/admission.h"

static struct request *choose_victim(const struct scheduler *s)
{
	struct request *best = NULL;
	uint64_t most = 0;

	list_for_each (q, &s->decoding, struct sequence, node) {
		struct request *r = q->request;
		uint64_t n = request_length(r);

		if (!best || n > most || (n == most && r->id < best->id)) {
			best = r;
			most = n;
		}
	}
	return best;
}

void retract(struct scheduler *s, struct request *r)
{
	assert(!plans_out(s));
	request_advance(r, REQUEST_RETRACT);
	r->trunk = NULL;
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		admission_release(s, &r->choices[i]);
	waiting_insert(&s->waiting, r);
	s->n_waiting++;
	s->n_retracted++;
	r->retracted = true;
	s->stats.retractions++;
}

bool retract_one(struct scheduler *s)
{
	struct request *r = choose_victim(s);

	if (r)
		retract(s, r);
	return r;
}
