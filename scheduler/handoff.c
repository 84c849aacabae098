#include "scheduler/handoff.h"

#include <assert.h>
#include <errno.h>

#include "scheduler/admission.h"
#include "scheduler/publish.h"

int handoff_check(const struct scheduler_config *c, const struct scheduler_request *r,
		  struct err *e)
{
	if (r->handoff != HANDOFF_SEND)
		return 0;
	if (r->max_tokens != 1)
		return err_set(e, EINVAL,
			       "%u tokens are to be generated of a prompt that another worker "
			       "decodes, not 1",
			       r->max_tokens);
	if (r->prompt_logprobs)
		return err_set(
			e, EINVAL,
			"the log-probabilities of a prompt cannot be sent to another worker");
	if (r->n_have % c->page_tokens || r->n_have >= r->n_prompt)
		return err_set(e, EINVAL,
			       "of a prompt of %u tokens another worker has %u: not whole pages "
			       "of %u before its end",
			       r->n_prompt, r->n_have, c->page_tokens);
	return 0;
}

/* ---- receiving ---- */

bool handoff_possible(const struct request *r)
{
	return r->ask.handoff == HANDOFF_RECEIVE && !r->admitted && !r->ask.prompt_logprobs;
}

bool handoff_wanted(const struct scheduler *s, const struct request *r,
		    const struct prefix_match *m)
{
	return handoff_possible(r) && r->ask.n_prompt - m->n_tokens >= s->config.handoff_min_tokens;
}

static void describe_prepare(const struct scheduler *s, const struct request *r,
			     struct scheduler_prepare *ret)
{
	uint32_t P = s->config.page_tokens, first = r->ask.n_have / P;

	*ret = (struct scheduler_prepare){
		.request = r->id,
		.user = r->ask.user,
		.ask = r->ask,
		.pages = r->trunk->pages + first,
		.n_pages = CEIL_DIV(r->ask.n_prompt, P) - first,
		.slot = r->trunk->slot,
	};
	ret->ask.handoff = HANDOFF_SEND;
	ret->ask.max_tokens = 1;
	ret->ask.page_keys = NULL;
	ret->ask.user = NULL;
	while (r->choices[ret->ask.n_choices - 1].ended)
		ret->ask.n_choices--;
}

bool scheduler_next_prepare(struct scheduler *s, struct scheduler_prepare *ret)
{
	list_for_each (r, &s->receiving, struct request, receiving) {
		if (r->prepared)
			continue;
		r->prepared = true;
		describe_prepare(s, r, ret);
		return true;
	}
	return false;
}

static struct request *find_receiving(const struct scheduler *s, uint64_t id)
{
	struct request *r = find_request(s, id);

	return r && r->state == REQUEST_RECEIVING ? r : NULL;
}

uint32_t scheduler_received(struct scheduler *s, uint64_t id, const struct draw_result *draws,
			    struct scheduler_event *events)
{
	struct request *r = find_receiving(s, id);
	struct sequence *trunk;
	uint32_t n_events = 0;

	if (!r)
		return 0;
	list_remove(&r->receiving);
	request_advance(r, REQUEST_ARRIVE);
	admission_received(s, r);
	trunk = r->trunk;
	trunk->n_planned = trunk->n_computed = r->ask.n_prompt;
	trunk->source = trunk->slot;
	publish_received(s, trunk);
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			list_append(&s->decoding, &r->choices[i].node);
	for (uint32_t i = 0; i < r->ask.n_choices; i++) {
		if (r->choices[i].ended)
			continue;
		assert(draws[i].token >= 0 && (uint32_t)draws[i].token < s->config.vocab_size);
		n_events += scheduler_draw(&r->choices[i], &draws[i], &events[n_events]);
	}
	scheduler_note_ended(s, r);
	scheduler_settle(s);
	return n_events;
}

void scheduler_receive_failed(struct scheduler *s, uint64_t id, bool again)
{
	struct request *r = find_receiving(s, id);

	if (!r)
		return;
	list_remove(&r->receiving);
	request_advance(r, REQUEST_GIVE_BACK);
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		admission_release(s, &r->choices[i]);
	r->trunk = NULL;
	if (!again)
		r->ask.handoff = HANDOFF_NONE;
	waiting_insert(&s->waiting, r);
	s->n_waiting++;
	s->stats.receives_failed++;
}

/* ---- sending ---- */

void handoff_ship(const struct scheduler *s, struct request *r, struct plan *p,
		  struct plan_ship *ships)
{
	const struct plan_row *row = &p->rows[p->n_rows - 1];
	uint32_t P = s->config.page_tokens, end = row->start + row->n_tokens;
	uint32_t first = MAX(r->n_shipped, r->ask.n_have / P);
	bool last = end == r->ask.n_prompt;
	uint32_t final = last ? CEIL_DIV(end, P) : end / P;

	if (final <= first)
		return; /* every page that is whole by now was shipped before, or the other worker has it */
	ships[p->n_ships++] = (struct plan_ship){
		.request = r->id,
		.row = p->n_rows - 1,
		.first_page = first,
		.n_pages = final - first,
		.state = last && s->config.n_slots,
	};
	r->n_shipped = final;
}

void scheduler_shipped(struct scheduler *s, uint64_t id)
{
	struct request *r = find_request(s, id);

	if (!r || !request_ships(r))
		return;
	request_advance(r, REQUEST_SHIPPED);
	scheduler_settle(s);
}

void handoff_drop_ships(struct scheduler *s)
{
	list_for_each (q, &s->ending, struct sequence, node)
		if (request_ships(q->request))
			request_abort(q->request);
}
