#include "scheduler/publish.h"

#include "scheduler/tiering.h"

/* Pages up to `depth` (a multiple of page_tokens) go to the tree; false when it does not take them
 * all. */
static bool extend_to(struct scheduler *s, struct sequence *q, uint32_t depth)
{
	const struct request *r = q->request;
	uint32_t P = s->config.page_tokens;

	while (q->n_tree * P < depth) {
		uint32_t from = q->n_tree * P, n = 1;
		const int32_t *tokens = s->page;
		uint64_t history = q->decode_history;
		struct prefix_node *node;

		if (from + P <= r->n_prompt) {
			n = (MIN(depth, r->n_prompt) - from) / P;
			tokens = r->prompt + from;
			history = q->prompt_history;
		} else {
			request_tokens(q, from, P, s->page);
		}
		node = prefix_cache_extend(s->cache, q->path, tokens, q->pages + q->n_tree, n,
					   history);
		if (!node)
			return false;
		q->path = node;
		tiering_published(s, q, q->n_tree, n, history);
		q->n_tree += n;
	}
	return true;
}

static void attach(struct scheduler *s, struct sequence *q, uint32_t depth, uint32_t slot,
		   enum prefix_checkpoint kind, bool there)
{
	if (!there || prefix_node_tokens(q->path) != depth) {
		prefix_cache_put_slot(s->cache, slot);
		return;
	}
	prefix_cache_checkpoint(s->cache, q->path, slot, kind);
	/* The newest state of an answer is kept below when the answer ends. */
	if (kind != PREFIX_CHECKPOINT_DECODE)
		tiering_checkpoint(s, q, q->path);
}

void publish_row(struct scheduler *s, const struct plan_row *row, const struct step_row *more,
		 bool computed)
{
	struct sequence *q = more->owner;
	uint32_t end = row->start + row->n_tokens, P = s->config.page_tokens;
	bool there = computed && q->path;

	for (uint32_t i = 0; i < row->n_snapshots; i++) {
		there = there && extend_to(s, q, row->snapshots[i].n_tokens);
		attach(s, q, row->snapshots[i].n_tokens, row->snapshots[i].slot,
		       more->snapshot_kinds[i], there);
	}
	if (more->handover != POOL_NONE && more->handover_kind == PREFIX_CHECKPOINT_DECODE &&
	    there && q->decoded)
		prefix_cache_retire(s->cache, q->decoded);
	there = there && extend_to(s, q, end - end % P);
	if (more->handover == POOL_NONE)
		return;
	attach(s, q, end, more->handover, more->handover_kind, there);
	if (there && more->handover_kind == PREFIX_CHECKPOINT_DECODE)
		q->decoded = q->path;
}
