#include "scheduler/publish.h"

#include <assert.h>

#include "scheduler/tiering.h"

/* HANDOFF_SEND: takes references to those of q's pages [first, first + n) that are to be shipped, because the tree may
 * replace them in q's block table by equal pages of its own. */
static void hold_shipped(struct scheduler *s, const struct sequence *q, uint32_t first, uint32_t n)
{
	const struct request *r = q->request;

	for (uint32_t i = first; i < MIN(first + n, r->n_ship_pages); i++)
		if (i * s->config.page_tokens >= r->ask.n_have && r->ship_pages[i] == POOL_NONE) {
			r->ship_pages[i] = q->pages[i];
			prefix_cache_ref_page(s->cache, q->pages[i]);
		}
}

/* Hands q's pages up to position `depth` (a multiple of page_tokens) over to the tree; false: the tree did not take
 * all of them. */
static bool extend_to(struct scheduler *s, struct sequence *q, uint32_t depth)
{
	const struct request *r = q->request;
	uint32_t P = s->config.page_tokens;

	while (q->n_tree * P < depth) {
		uint32_t from = q->n_tree * P, n = 1;
		const int32_t *tokens = s->page;
		uint64_t origin = q->decode_origin;
		struct prefix_node *node;

		if (from + P <= r->ask.n_prompt) {
			n = (MIN(depth, r->ask.n_prompt) - from) / P;
			tokens = r->ask.prompt + from;
			origin = q->prompt_origin;
		} else {
			request_tokens(q, from, P, s->page);
		}
		hold_shipped(s, q, q->n_tree, n);
		node = prefix_cache_extend(s->cache, q->path, tokens, q->pages + q->n_tree, n,
					   origin);
		if (!node)
			return false;
		q->path = node;
		tiering_published(s, q, q->n_tree, n, origin);
		q->n_tree += n;
	}
	return true;
}

/* Hands a slot over as a checkpoint at position `depth`. Puts the slot back instead if the tree does not have q's pages
 * up to that position (!there), or if q's path does not end at that position. */
static void add_checkpoint(struct scheduler *s, struct sequence *q, uint32_t depth, uint32_t slot,
			   enum prefix_checkpoint kind, bool there)
{
	if (!there || prefix_node_tokens(q->path) != depth) {
		prefix_cache_put_slot(s->cache, slot);
		return;
	}
	prefix_cache_checkpoint(s->cache, q->path, slot, kind);
	/* Of the states of an answer only the last goes to the tiers below, when the choice gives its memory back
	 * (admission_release). */
	if (kind != PREFIX_CHECKPOINT_DECODE)
		tiering_checkpoint(s, q, q->path);
}

uint32_t publish_give_slot(struct scheduler *s, struct sequence *q)
{
	uint32_t given = q->slot, slot = prefix_cache_take_slot(s->cache);

	assert(q->source == q->slot && !q->source_pinned);
	if (slot == POOL_NONE)
		return POOL_NONE;
	prefix_cache_pin(s->cache, given);
	q->source_pinned = true;
	q->slot = slot;
	return given;
}

void publish_received(struct scheduler *s, struct sequence *q)
{
	uint32_t n = q->request->ask.n_prompt, state_tokens = s->config.state_tokens, slot;

	if (!q->path || !extend_to(s, q, n - n % s->config.page_tokens) || !state_tokens ||
	    n % state_tokens)
		return;
	slot = publish_give_slot(s, q);
	if (slot != POOL_NONE)
		add_checkpoint(s, q, n, slot, PREFIX_CHECKPOINT_PROMPT, true);
}

void publish_row(struct scheduler *s, const struct plan_row *row, const struct step_row *more,
		 bool computed)
{
	struct sequence *q = more->owner;
	uint32_t end = row->start + row->n_tokens, P = s->config.page_tokens;
	bool there = computed && q->path;

	for (uint32_t i = 0; i < row->n_snapshots; i++) {
		there = there && extend_to(s, q, row->snapshots[i].n_tokens);
		add_checkpoint(s, q, row->snapshots[i].n_tokens, row->snapshots[i].slot,
			       more->snapshot_kinds[i], there);
	}
	if (more->handover != POOL_NONE && more->handover_kind == PREFIX_CHECKPOINT_DECODE &&
	    there && q->decoded)
		prefix_cache_retire(s->cache, q->decoded);
	there = there && extend_to(s, q, end - end % P);
	if (more->handover == POOL_NONE)
		return;
	add_checkpoint(s, q, end, more->handover, more->handover_kind, there);
	if (there && more->handover_kind == PREFIX_CHECKPOINT_DECODE)
		q->decoded = q->path;
}
