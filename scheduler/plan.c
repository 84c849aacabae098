/*
 * Putting one step together: windows of prompts, then a row for every decoding sequence, what each
 * of them draws, and the resets and copies that come before.
 */
#include <assert.h>

#include "scheduler/admission.h"
#include "scheduler/chunking.h"
#include "scheduler/scheduler_internal.h"

static void add_row(struct scheduler *s, struct sequence *owner, struct plan_row row)
{
	uint32_t i = s->step.plan.n_rows++;

	assert(i < s->config.max_seqs);
	row.pages = owner->pages;
	row.n_pages = CEIL_DIV(row.start + row.n_tokens, s->config.page_tokens);
	row.state_dst = owner->slot;
	row.state_src = row.start ? (int32_t)owner->slot : STATE_ZERO;
	s->step.rows[i] = row;
	s->step.row_owners[i] = owner;
}

/* The sequence draws from the row added last. A seat's counts begin with the first draw. */
static void add_draw(struct scheduler *s, struct sequence *q)
{
	const struct request *r = q->request;
	struct plan *p = &s->step.plan;
	struct plan_draw *d = &s->step.draws[p->n_draws];

	assert(p->n_draws < s->config.max_seqs);
	*d = (struct plan_draw){
		.sampling = &r->sampling,
		.row = p->n_rows - 1,
		.seat = q->seat,
		.choice = q->choice,
		.position = q->n_generated,
	};
	if (q->n_generated < r->min_tokens) {
		d->banned = r->end_tokens;
		d->n_banned = r->n_end_tokens;
	}
	s->step.draw_owners[p->n_draws++] = q;
	if (q->n_generated == 0 && sampling_penalised(&r->sampling))
		s->step.resets[p->n_resets++] = (struct plan_seat_reset){
			.prompt = r->prompt,
			.n_prompt = r->n_prompt,
			.seat = q->seat,
		};
}

/* The next window of a prompt; the last one draws the first token of every choice. */
static void add_window(struct scheduler *s, struct request *r, uint32_t n_tokens)
{
	add_row(s, r->trunk,
		(struct plan_row){
			.tokens = r->prompt + r->n_prefilled,
			.n_tokens = n_tokens,
			.start = r->n_prefilled,
		});
	s->step.plan.n_prefill_rows++;
	s->step.plan.n_prefill_tokens += n_tokens;
	if (r->n_prefilled + n_tokens < r->n_prompt)
		return;
	for (uint32_t i = 0; i < r->n_choices; i++)
		if (!r->choices[i].ended)
			add_draw(s, &r->choices[i]);
}

static void plan_prefills(struct scheduler *s)
{
	uint32_t budget = s->config.max_prefill_tokens;

	while (s->head || !list_empty(&s->waiting)) {
		struct request *r = s->head;
		uint32_t n_tokens;

		if (!r)
			r = container_of(s->waiting.next, struct request, waiting);
		n_tokens =
			chunking_window(s->config.page_tokens, r->n_prefilled, r->n_prompt, budget);
		if (!n_tokens || (r != s->head && !admission_admit(s, r)))
			return;
		add_window(s, r, n_tokens);
		budget -= n_tokens;
		s->head = r->n_prefilled + n_tokens < r->n_prompt ? r : NULL;
		if (s->head)
			return;
	}
}

/* What the prefill left in the trunk goes to the other living choices, before any of them runs. */
static void add_fork(struct scheduler *s, struct request *r)
{
	struct plan *p = &s->step.plan;
	uint32_t partial = r->n_prompt / s->config.page_tokens;

	for (uint32_t i = r->trunk->choice + 1; i < r->n_choices; i++) {
		const struct sequence *q = &r->choices[i];

		if (q->ended)
			continue;
		s->step.state_copies[p->n_state_copies++] =
			(struct plan_copy){.src = r->trunk->slot, .dst = q->slot};
		if (r->n_prompt % s->config.page_tokens)
			s->step.page_copies[p->n_page_copies++] =
				(struct plan_copy){.src = r->trunk->pages[partial],
						   .dst = q->pages[partial]};
	}
	r->trunk = NULL;
}

static void plan_decodes(struct scheduler *s)
{
	list_for_each (node, &s->decoding) {
		struct sequence *q = container_of(node, struct sequence, node);
		struct request *r = q->request;

		if (r->trunk)
			add_fork(s, r);
		add_row(s, q,
			(struct plan_row){
				.tokens = &q->last_token,
				.n_tokens = 1,
				.start = r->n_prompt + q->n_generated - 1,
				.decode = true,
			});
		add_draw(s, q);
	}
}

bool plan_build(struct scheduler *s)
{
	struct step *step = &s->step;

	step->plan = (struct plan){
		.step = step->plan.step,
		.rows = step->rows,
		.draws = step->draws,
		.resets = step->resets,
		.page_copies = step->page_copies,
		.state_copies = step->state_copies,
	};
	plan_prefills(s);
	plan_decodes(s);
	if (!step->plan.n_rows)
		return false;
	step->plan.step++;
	return true;
}
