#include "scheduler/sharing.h"

#include <string.h>

/* Tokens that two prompts have in common. */
static uint32_t common(const struct request *a, const struct request *b)
{
	uint32_t n = MIN(a->n_prompt, b->n_prompt), i = 0;

	while (i < n && a->prompt[i] == b->prompt[i])
		i++;
	return i;
}

/* Whether they have the tokens [from, from + n) in common: told at once of most that do not. */
static bool both_have(const struct request *a, const struct request *b, uint32_t from, uint32_t n)
{
	return (uint64_t)from + n <= MIN(a->n_prompt, b->n_prompt) &&
	       !memcmp(a->prompt + from, b->prompt + from, n * sizeof(*a->prompt));
}

static bool same_space(const struct request *a, const struct request *b)
{
	return a->space.id[0] == b->space.id[0] && a->space.id[1] == b->space.id[1];
}

static bool wants(const struct request *r, uint32_t at)
{
	for (uint32_t i = 0; i < r->n_wanted; i++)
		if (r->wanted[i] == at)
			return true;
	return false;
}

/*
 * A checkpoint in (after, at] that plans which are out leave in the leader's prompt; 0: none. The
 * deepest one.
 */
static uint32_t on_its_way(struct scheduler *s, const struct request *leader, uint32_t after,
			   uint32_t at)
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

/* The leader is asked to leave a state at `at`. */
static bool ask(struct request *leader, uint32_t at)
{
	uint32_t i;

	if (wants(leader, at))
		return true;
	if (leader->n_wanted == WANTED_MAX)
		return false;
	for (i = leader->n_wanted++; i > 0 && leader->wanted[i - 1] > at; i--)
		leader->wanted[i] = leader->wanted[i - 1];
	leader->wanted[i] = at;
	return true;
}

static bool follow(struct scheduler *s, struct request *r, struct request *leader, uint32_t to)
{
	waiting_remove(&s->waiting, r);
	r->following_to = to;
	list_append(&leader->followers, &r->following);
	s->shared_waits++;
	return true;
}

bool sharing_follow(struct scheduler *s, struct request *r, const struct prefix_match *m)
{
	uint32_t unit = s->align, cap = (r->n_prompt - 1) / unit * unit;

	if (r->cache_disabled || s->config.cache_disabled || m->n_tokens >= cap)
		return false;
	list_for_each (node, &s->leaders) {
		struct request *leader = container_of(node, struct request, leading);
		uint32_t at, coming;

		if (leader->cache_disabled || !leader->trunk || !leader->trunk->path ||
		    !same_space(r, leader))
			continue;
		/* Who asks for the bits it had, or those of a prefill, cannot use others. */
		if (((r->admitted && r->origin_known) || r->handoff == HANDOFF_SEND) &&
		    leader->trunk->prompt_origin != PREFIX_PREFILLED)
			continue;
		if (!both_have(r, leader, m->n_tokens / unit * unit, unit))
			continue;
		at = MIN(common(r, leader) / unit * unit, cap);
		if (at <= m->n_tokens)
			continue;
		if (s->config.state_tokens ? at > leader->window_start && ask(leader, at)
					   : at > leader->trunk->n_computed)
			return follow(s, r, leader, at);
		if (!s->config.state_tokens)
			continue;
		coming = on_its_way(s, leader, m->n_tokens, at);
		if (coming)
			return follow(s, r, leader, coming);
	}
	return false;
}

static void come_back(struct scheduler *s, struct request *r)
{
	list_remove(&r->following);
	waiting_insert(&s->waiting, r);
}

void sharing_published(struct scheduler *s, struct request *leader, uint32_t n_tokens)
{
	list_for_each (node, &leader->followers) {
		struct request *r = container_of(node, struct request, following);

		if (r->following_to <= n_tokens)
			come_back(s, r);
	}
}

void sharing_end(struct scheduler *s, struct request *r)
{
	list_remove(&r->leading);
	list_for_each (node, &r->followers)
		come_back(s, container_of(node, struct request, following));
}

bool sharing_leave(struct scheduler *s, struct request *r)
{
	bool waited = r->waiting_index != WAITING_NONE || !list_empty(&r->following);

	waiting_remove(&s->waiting, r);
	list_remove(&r->following);
	return waited;
}
