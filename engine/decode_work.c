#include "engine/decode_work.h"

#include <string.h>

/* the most phases of one layer, and the most outside all layers */
enum { LAYER_PHASES = 10, OTHER_PHASES = 4 };

uint64_t decode_work_ints(const struct model_config *c)
{
	return WORK_INTS + ((uint64_t)c->n_layers * LAYER_PHASES + OTHER_PHASES) * PHASE_INTS;
}

uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work)
{
	uint32_t T = s->n_tokens;
	struct phase_list l = {
		.shape = k,
		.cut = cut,
		.n_tokens = T,
		.phase = work + WORK_INTS,
	};

	memset(work, 0, WORK_INTS * sizeof(*work));
	work[WORK_TOKENS] = (int32_t)T;
	work[WORK_LOGITS] = (int32_t)s->n_logits;
	work[WORK_TOKENS_AT] = s->tokens_at;
	work[WORK_POSITIONS_AT] = s->positions_at;
	work[WORK_TOKEN_ROWS_AT] = s->token_rows_at;
	work[WORK_ROWS_AT] = s->rows_at;
	work[WORK_RING_ROWS_AT] = s->ring_rows_at;
	work[WORK_TILES_AT] = s->tiles_at;
	work[WORK_LOGITS_AT] = s->logits_at;
	if (s->n_batches) {
		work[WORK_SPLITS_AT] = s->batches[0].splits_at;
		work[WORK_SPLITS] = (int32_t)s->batches[0].n_splits;
	}
	phase_add(&l, OP_EMBED, 0, 1, T, 1);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		layer_ops[c->layers[i].mixer]->phases(&l, i);
		layer_ops[c->layers[i].mlp]->phases(&l, i);
	}
	if (s->n_logits) {
		if (!cut->resident)
			phase_add(&l, OP_LAST_NORM, 0, 1, s->n_logits, 1);
		phase_add_product(&l, OP_LOGITS, 0, KERNEL_LD(k->vocab), KERNEL_LD(k->hidden),
				  phase_row_blocks(&l, s->n_logits));
	}
	phase_add(&l, OP_END, 0, 0, 0, 1);
	return (uint64_t)(l.phase - work);
}

static const struct phase_order ends[] = {
	{OP_EMBED, 1u << AT_RESULT | 1u << AT_EMBED | 1u << AT_INV_FREQ,
	 1u << AT_X | 1u << AT_H | 1u << AT_H32 | 1u << AT_ROPE},
	{OP_LAST_NORM, 1u << AT_X | 1u << AT_FINAL_NORM, 1u << AT_H | 1u << AT_H32},
	{OP_LOGITS, 1u << AT_H | 1u << AT_LM_HEAD, 1u << AT_LOGITS},
	{OP_END, 0, 0},
};

static const struct phase_order resident_ends[] = {
	{OP_EMBED, 1u << AT_RESULT | 1u << AT_EMBED | 1u << AT_INV_FREQ,
	 1u << AT_X | 1u << AT_ROPE},
	{OP_LOGITS, 1u << AT_X | 1u << AT_FINAL_NORM | 1u << AT_LM_HEAD, 1u << AT_LOGITS},
	{OP_END, 0, 0},
};

static const struct phase_order *find_order(const struct phase_order *list, int op)
{
	while (list->op != OP_END && list->op != op)
		list++;
	return list;
}

struct phase_order decode_work_order(int op, bool resident)
{
	const struct phase_order *found = find_order(resident ? resident_ends : ends, op);

	for (int kind = 0; found->op == OP_END && kind < LAYER_KINDS; kind++) {
		const struct layer_ops *ops = layer_ops[kind];
		const struct phase_order *list = resident ? ops->resident_order : ops->order;

		if (list)
			found = find_order(list, op);
	}
	return *found;
}
