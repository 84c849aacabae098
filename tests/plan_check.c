#include "tests/plan_check.h"

#include <string.h>

#include "tests/fake_device.h"

static const char *check_state(const struct scheduler_config *c, const struct plan_row *row,
			       const struct rule_row *want)
{
	EXPECT(row->n_snapshots == want->n_snapshots);
	for (uint32_t i = 0; i < row->n_snapshots; i++)
		EXPECT(row->snapshots[i].n_tokens == want->snapshots[i]);
	if (!c->n_slots) {
		EXPECT(row->state_src == STATE_ZERO && !row->n_snapshots);
		return NULL;
	}
	EXPECT(row->leaves_state == want->handover);
	EXPECT(want->own == POOL_NONE || row->state_dst == want->own);
	if (want->pinned)
		EXPECT(row->state_src == (int32_t)want->source &&
		       row->state_src != (int32_t)row->state_dst);
	else if (!row->start)
		EXPECT(row->state_src == STATE_ZERO);
	else
		EXPECT(row->state_src == (int32_t)row->state_dst);
	return NULL;
}

static const char *check_row(const struct rules *r, const struct plan_row *row,
			     const struct rule_row *want)
{
	const struct rule_request *q = &r->requests[want->q];
	const struct rule_choice *c = &q->choices[want->c];
	uint32_t end = row->start + row->n_tokens, at = row->start - q->r.n_prompt;

	EXPECT(row->decode == want->decode);
	EXPECT(row->start == want->start && row->n_tokens == want->n_tokens);
	EXPECT(row->n_pages == CEIL_DIV(end, r->config.page_tokens) && row->n_pages <= c->n_pages);
	for (uint32_t i = 0; i < row->n_pages; i++)
		EXPECT(c->pages[i] == POOL_NONE || c->pages[i] == row->pages[i]);
	if (!row->decode)
		EXPECT(!memcmp(row->tokens, q->prompt + row->start,
			       row->n_tokens * sizeof(*row->tokens)));
	else if (at < c->n_generated)
		EXPECT(row->tokens && row->tokens[0] == c->generated[at]);
	else
		EXPECT(!row->tokens);
	return check_state(&r->config, row, want);
}

static const char *check_draw(const struct rules *r, const struct plan_draw *d,
			      const struct rule_row *row, uint32_t k)
{
	const struct rule_request *q = &r->requests[row->q];
	const struct rule_choice *c = &q->choices[row->draws[k]];
	/* the tokens of the mask, which is one word, less end tokens */
	uint32_t others = c->allowed ? *c->allowed : UINT32_MAX;

	EXPECT(d->choice == row->draws[k] && d->position == row->positions[k]);
	EXPECT(!memcmp(d->sampling, &q->r.sampling, sizeof(*d->sampling)));
	for (uint32_t i = 0; c->allowed && i < q->r.n_end_tokens; i++)
		others &= ~(1u << q->ends[i]);
	if (d->position < q->r.min_tokens && others) {
		EXPECT(d->n_banned == q->r.n_end_tokens && d->n_banned <= PLAN_BANNED_MAX);
		for (uint32_t i = 0; i < d->n_banned; i++)
			EXPECT(d->banned[i] == q->ends[i]);
	} else {
		EXPECT(d->n_banned == 0);
	}
	EXPECT(!d->allowed == !c->allowed && (!d->allowed || *d->allowed == *c->allowed));
	EXPECT(d->n_biases == q->r.n_biases);
	for (uint32_t i = 0; i < d->n_biases; i++)
		EXPECT(d->biases[i].token == q->r.biases[i].token);
	/* A choice keeps its seat, and no other choice that holds memory has the same one. */
	EXPECT(d->seat < r->config.max_seqs && (c->seat == POOL_NONE || c->seat == d->seat));
	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		for (uint32_t j = 0; r->requests[i].used && j < r->requests[i].r.n_choices; j++) {
			const struct rule_choice *other = &r->requests[i].choices[j];

			EXPECT(other == c || !other->held || other->seat != d->seat);
		}
	return NULL;
}

/* Checks the ships of the plan's rows. */
static const char *check_ships(const struct rules *r, const struct plan *p,
			       const struct rule_plan *want)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &want->rows[i];
		const struct plan_ship *s = &p->ships[k];

		EXPECT(row->n_ships || !row->ships_state);
		if (!row->n_ships)
			continue;
		EXPECT(k++ < p->n_ships && s->row == i && s->request == r->requests[row->q].id);
		EXPECT(s->first_page == row->first_ship && s->n_pages == row->n_ships);
		EXPECT(s->state == row->ships_state);
		EXPECT(s->first_page + s->n_pages <= p->rows[i].n_pages);
	}
	EXPECT(k == p->n_ships);
	return NULL;
}

const char *plan_check(const struct rules *r, const struct plan *p)
{
	const struct rule_plan *want = &r->plans[r->planned % 2];
	uint32_t d = 0, n_resets = 0, n_prefill_rows = 0, n_prefill_tokens = 0;

	EXPECT(p->step == r->planned);
	EXPECT(p->n_rows == want->n_rows);
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &want->rows[i];
		const char *failed = check_row(r, &p->rows[i], row);

		if (failed)
			return failed;
		if (!row->decode) {
			EXPECT(n_prefill_rows == i);
			n_prefill_rows++;
			n_prefill_tokens += row->n_tokens;
		}
		for (uint32_t k = 0; k < row->n_draws; k++, d++) {
			EXPECT(d < p->n_draws && p->draws[d].row == i);
			failed = check_draw(r, &p->draws[d], row, k);
			if (failed)
				return failed;
			if (row->counts[k]) {
				EXPECT(n_resets < p->n_resets);
				EXPECT(p->resets[n_resets].seat == p->draws[d].seat);
				n_resets++;
			}
		}
	}
	EXPECT(d == p->n_draws && n_resets == p->n_resets);
	EXPECT(n_prefill_rows == p->n_prefill_rows && n_prefill_tokens == p->n_prefill_tokens);
	EXPECT(n_prefill_tokens <= r->config.max_prefill_tokens);
	EXPECT(p->n_page_copies == want->n_page_copies &&
	       p->n_state_copies == want->n_state_copies);
	return check_ships(r, p, want);
}

void plan_learn_ids(struct rules *r, const struct plan *p)
{
	struct rule_plan *plan = &r->plans[r->planned % 2];
	uint32_t d = 0;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *from = &p->rows[i];
		struct rule_row *row = &plan->rows[i];
		struct rule_choice *c = &r->requests[row->q].choices[row->c];

		memcpy(c->pages, from->pages, from->n_pages * sizeof(*c->pages));
		row->dst = from->state_dst;
		for (uint32_t k = row->first_ship; k < row->first_ship + row->n_ships; k++)
			r->requests[row->q].ship_pages[k] = from->pages[k];
		if (row->ships_state)
			r->requests[row->q].ship_slot = from->state_dst;
		*(row->handover ? &c->source : &c->slot) = from->state_dst;
		for (uint32_t k = 0; k < from->n_snapshots; k++)
			row->snapshot_slots[k] = from->snapshots[k].slot;
		for (uint32_t k = 0; k < row->n_draws; k++)
			r->requests[row->q].choices[row->draws[k]].seat = p->draws[d++].seat;
	}
	r->new_slots = 0;
}

/* Whether id a of one scheduler stands for id b of the other, now as before; notes the pair if neither was seen. */
static bool same_name(struct id_names *n, uint32_t a, uint32_t b)
{
	if (a >= RULES_PAGES || b >= RULES_PAGES)
		return false;
	if (!n->to[a] && !n->from[b]) {
		n->to[a] = b + 1;
		n->from[b] = a + 1;
	}
	return n->to[a] == b + 1 && n->from[b] == a + 1;
}

static const char *compare_row(struct plan_names *n, const struct plan_row *a,
			       const struct plan_row *b)
{
	EXPECT(a->n_tokens == b->n_tokens && a->start == b->start);
	EXPECT(a->decode == b->decode && a->n_pages == b->n_pages && !a->tokens == !b->tokens);
	EXPECT(a->tokens || a->token_draw == b->token_draw);
	EXPECT(!a->tokens || !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof(*a->tokens)));
	for (uint32_t k = 0; k < a->n_pages; k++)
		EXPECT(same_name(&n->pages, a->pages[k], b->pages[k]));
	EXPECT((a->state_src == STATE_ZERO) == (b->state_src == STATE_ZERO));
	EXPECT(a->n_snapshots == b->n_snapshots);
	for (uint32_t k = 0; k < a->n_snapshots; k++)
		EXPECT(a->snapshots[k].n_tokens == b->snapshots[k].n_tokens &&
		       same_name(&n->slots, a->snapshots[k].slot, b->snapshots[k].slot));
	if (!n->n_slots)
		return NULL;
	EXPECT(same_name(&n->slots, a->state_dst, b->state_dst));
	EXPECT(a->state_src == STATE_ZERO ||
	       same_name(&n->slots, (uint32_t)a->state_src, (uint32_t)b->state_src));
	return NULL;
}

const char *plan_compare_prepare(struct plan_names *n, const struct scheduler_prepare *a,
				 const struct scheduler_prepare *b)
{
	EXPECT(a->user == b->user && a->n_pages == b->n_pages);
	EXPECT(a->ask.n_have == b->ask.n_have && a->ask.n_choices == b->ask.n_choices);
	EXPECT((a->slot == POOL_NONE) == (b->slot == POOL_NONE));
	for (uint32_t i = 0; i < a->n_pages; i++)
		EXPECT(same_name(&n->pages, a->pages[i], b->pages[i]));
	EXPECT(a->slot == POOL_NONE || same_name(&n->slots, a->slot, b->slot));
	return NULL;
}

const char *plan_compare(struct plan_names *n, const struct plan *a, const struct plan *b)
{
	EXPECT(!a == !b);
	if (!a)
		return NULL;
	EXPECT(a->n_rows == b->n_rows && a->n_draws == b->n_draws && a->n_resets == b->n_resets);
	EXPECT(a->n_page_copies == b->n_page_copies && a->n_state_copies == b->n_state_copies);
	EXPECT(a->n_ships == b->n_ships);
	EXPECT(plan_hash(a) == plan_hash(b));
	for (uint32_t i = 0; i < a->n_rows; i++) {
		const char *failed = compare_row(n, &a->rows[i], &b->rows[i]);

		if (failed)
			return failed;
	}
	for (uint32_t i = 0; i < a->n_draws; i++)
		EXPECT(same_name(&n->seats, a->draws[i].seat, b->draws[i].seat));
	for (uint32_t i = 0; i < a->n_resets; i++)
		EXPECT(same_name(&n->seats, a->resets[i].seat, b->resets[i].seat));
	EXPECT(a->n_poolings == b->n_poolings);
	for (uint32_t i = 0; i < a->n_poolings; i++)
		EXPECT(same_name(&n->seats, a->poolings[i].seat, b->poolings[i].seat));
	for (uint32_t i = 0; i < a->n_page_copies; i++)
		EXPECT(same_name(&n->pages, a->page_copies[i].src, b->page_copies[i].src) &&
		       same_name(&n->pages, a->page_copies[i].dst, b->page_copies[i].dst));
	for (uint32_t i = 0; i < a->n_state_copies; i++)
		EXPECT(same_name(&n->slots, a->state_copies[i].src, b->state_copies[i].src) &&
		       same_name(&n->slots, a->state_copies[i].dst, b->state_copies[i].dst));
	return NULL;
}
