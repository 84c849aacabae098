#include "scheduler/sharing.h"

#include <string.h>

/* Returns how many tokens, from the first on, are the same in both prompts. */
static uint32_t common_tokens(const struct request *a, const struct request *b)
{
	uint32_t n = MIN(a->ask.n_prompt, b->ask.n_prompt), i = 0;

	while (i < n && a->ask.prompt[i] == b->ask.prompt[i])
		i++;
	return i;
}

/* Whether both prompts have tokens [from, from + n), and the same ones: a quick test before all tokens are compared. */
static bool both_have(const struct request *a, const struct request *b, uint32_t from, uint32_t n)
{
	return (uint64_t)from + n <= MIN(a->ask.n_prompt, b->ask.n_prompt) &&
	       !memcmp(a->ask.prompt + from, b->ask.prompt + from, n * sizeof(*a->ask.prompt));
}

static bool same_space(const struct request *a, const struct request *b)
{
	return a->ask.space.id[0] == b->ask.space.id[0] && a->ask.space.id[1] == b->ask.space.id[1];
}

static bool keeps_state_at(const struct request *r, uint32_t at)
{
	for (uint32_t i = 0; i < r->n_wanted; i++)
		if (r->wanted[i] == at)
			return true;
	return false;
}

/* Returns the deepest checkpoint in (after, at] that plans which are out leave in the leader's prompt; 0: there is
 * none. */
static uint32_t planned_checkpoint(struct scheduler *s, const struct request *leader,
				   uint32_t after, uint32_t at)
{
	uint32_t best = 0;

	for (uint64_t k = s->committed + 1; k <= s->planned; k++) {
		const struct step *t = step_of(s, k);

		for (uint32_t i = 0; i < t->plan.n_prefill_rows; i++) {
			const struct plan_row *row = &t->rows[i];
			uint32_t end = row->start + row->n_tokens;

			if (t->more[i].owner->request != leader)
				continue;
			for (uint32_t j = 0; j < row->n_snapshots; j++)
				if (row->snapshots[j].n_tokens > after &&
				    row->snapshots[j].n_tokens <= at)
					best = MAX(best, row->snapshots[j].n_tokens);
			if (t->more[i].handover != POOL_NONE && end > after && end <= at)
				best = MAX(best, end);
		}
	}
	return best;
}

/* Asks the leader to leave a state at `at`; false: WANTED_MAX other states of it are wanted already. */
static bool ask_for_state(struct request *leader, uint32_t at)
{
	uint32_t i;

	if (keeps_state_at(leader, at))
		return true;
	if (leader->n_wanted == WANTED_MAX)
		return false;
	for (i = leader->n_wanted++; i > 0 && leader->wanted[i - 1] > at; i--)
		leader->wanted[i] = leader->wanted[i - 1];
	leader->wanted[i] = at;
	return true;
}

static bool wait_for_leader(struct scheduler *s, struct request *r, struct request *leader,
			    uint32_t to)
{
	waiting_remove(&s->waiting, r);
	r->following_to = to;
	list_append(&leader->followers, &r->following);
	s->stats.shared_waits++;
	return true;
}

bool sharing_follow(struct scheduler *s, struct request *r, const struct prefix_match *m)
{
	uint32_t unit = s->align, cap = request_reusable(r) / unit * unit;

	if (r->ask.cache_disabled || s->config.cache_disabled || m->n_tokens >= cap)
		return false;
	list_for_each (leader, &s->leaders, struct request, leading) {
		uint32_t at, coming;

		if (leader->ask.cache_disabled || !leader->trunk || !leader->trunk->path ||
		    !same_space(r, leader))
			continue;
		/* A retracted request with origin_known must get its earlier bits again, and others must get the bits
		 * of a prefill (request_wants_prefilled). Neither can use the pages of a leader whose prompt was not
		 * all prefilled. */
		if (((r->admitted && r->origin_known) || request_wants_prefilled(r)) &&
		    leader->trunk->prompt_origin != PREFIX_PREFILLED)
			continue;
		if (!both_have(r, leader, m->n_tokens / unit * unit, unit))
			continue;
		at = MIN(common_tokens(r, leader) / unit * unit, cap);
		if (at <= m->n_tokens)
			continue;
		if (s->config.state_tokens ? at > leader->window_start && ask_for_state(leader, at)
					   : at > leader->trunk->n_computed)
			return wait_for_leader(s, r, leader, at);
		if (!s->config.state_tokens)
			continue;
		coming = planned_checkpoint(s, leader, m->n_tokens, at);
		if (coming)
			return wait_for_leader(s, r, leader, coming);
	}
	return false;
}

static void queue_again(struct scheduler *s, struct request *r)
{
	list_remove(&r->following);
	waiting_insert(&s->waiting, r);
}

void sharing_published(struct scheduler *s, struct request *leader, uint32_t n_tokens)
{
	list_for_each (r, &leader->followers, struct request, following)
		if (r->following_to <= n_tokens)
			queue_again(s, r);
}

void sharing_end(struct scheduler *s, struct request *r)
{
	list_remove(&r->leading);
	list_for_each (follower, &r->followers, struct request, following)
		queue_again(s, follower);
}

bool sharing_leave(struct scheduler *s, struct request *r)
{
	bool waited = r->waiting_index != WAITING_NONE || !list_empty(&r->following);

	waiting_remove(&s->waiting, r);
	list_remove(&r->following);
	return waited;
}
