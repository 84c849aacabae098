#include "engine/decode_work.h"

#include <string.h>

#include "base/macros.h"
#include "kernels/kernels.h"

/* Weights that a ticket should read, at least: what the counters cost is then hardly a hundredth. */
enum { TICKET_BYTES = 64 << 10 };

/* For so few tokens a phase of its own costs more than choosing their experts one after the other. */
enum { TOPK_ALONE = 3 };

enum { LAYER_PHASES = 9, OTHER_PHASES = 4 };

struct list {
	int32_t *phase; /* the next one */
	uint64_t tickets;
};

uint64_t decode_work_ints(const struct model_config *c)
{
	return WORK_INTS + ((uint64_t)c->n_layers * LAYER_PHASES + OTHER_PHASES) * PHASE_INTS;
}

static void add(struct list *l, int op, uint32_t layer, uint64_t columns, uint64_t rows,
		uint64_t take)
{
	const int32_t phase[PHASE_INTS] = {
		[PHASE_OP] = op,
		[PHASE_LAYER] = (int32_t)layer,
		[PHASE_FIRST] = (int32_t)l->tickets,
		[PHASE_COLUMNS] = (int32_t)columns,
		[PHASE_TAKE] = (int32_t)take,
	};

	memcpy(l->phase, phase, sizeof(phase));
	l->phase += PHASE_INTS;
	l->tickets += CEIL_DIV(columns, take) * rows;
}

/* A product with N columns and K terms, over `rows` row blocks or tasks. */
static void add_product(struct list *l, int op, uint32_t layer, const struct kernel_shape *k,
			const struct decode_cut *cut, uint64_t N, uint64_t K, uint64_t rows)
{
	uint64_t columns = CEIL_DIV(N, cut->columns), bytes = cut->columns * K * (k->bf16 ? 2 : 4);

	add(l, op, layer, columns, rows, MAX(TICKET_BYTES / MAX(bytes, (uint64_t)1), (uint64_t)1));
}

static void add_mixer(struct list *l, uint32_t layer, bool attention, const struct kernel_shape *k,
		      const struct decode_cut *cut, uint32_t T)
{
	uint64_t D = KERNEL_LD(k->hidden), blocks = CEIL_DIV(T, cut->rows);
	uint64_t width = attention ? (uint64_t)k->heads * k->head_dim
				   : (uint64_t)k->value_heads * k->value_dim;

	if (attention) {
		add_product(l, OP_ATTENTION_IN, layer, k, cut, kernels_attention_ld(k), D, blocks);
		add(l, OP_ATTENTION, layer, k->kv_heads, T, 1);
		add_product(l, OP_ATTENTION_OUT, layer, k, cut, D, width, blocks);
	} else {
		add_product(l, OP_DELTA_IN, layer, k, cut, kernels_delta_ld(k), D, blocks);
		add(l, OP_DELTA, layer, k->value_heads, T, 1);
		add_product(l, OP_DELTA_OUT, layer, k, cut, D, width, blocks);
	}
}

static void add_mlp(struct list *l, uint32_t layer, const struct kernel_shape *k,
		    const struct decode_cut *cut, uint32_t T)
{
	const struct kernel_mlp *m = &k->mlps[0];
	uint64_t D = KERNEL_LD(k->hidden), tasks = kernels_max_tasks(m, T);
	uint64_t width = KERNEL_LD(MAX(m->expert_size, m->shared_size));

	add(l, OP_ROUTER, layer, CEIL_DIV(KERNEL_LD(m->experts + 1), cut->router_columns), T, 1);
	if (m->experts && T > TOPK_ALONE)
		add(l, OP_TOPK, layer, 1, T, 1);
	add(l, m->experts && T <= TOPK_ALONE ? OP_TOPK_SORT : OP_SORT, layer, 1, 1, 1);
	add_product(l, OP_GATE_UP, layer, k, cut, width, 2 * D, tasks);
	add_product(l, OP_DOWN, layer, k, cut, D, width, tasks);
	add(l, OP_COMBINE, layer, 1, T, 1);
}

uint64_t decode_work_build(const struct model_config *c, const struct kernel_shape *k,
			   const struct decode_cut *cut, const struct model_step *s, int32_t *work)
{
	struct list l = {.phase = work + WORK_INTS};
	uint32_t T = s->n_tokens;

	memset(work, 0, WORK_INTS * sizeof(*work));
	work[WORK_TOKENS] = (int32_t)T;
	work[WORK_LOGITS] = (int32_t)s->n_logits;
	work[WORK_TOKENS_AT] = s->tokens_at;
	work[WORK_POSITIONS_AT] = s->positions_at;
	work[WORK_TOKEN_ROWS_AT] = s->token_rows_at;
	work[WORK_ROWS_AT] = s->rows_at;
	work[WORK_TILES_AT] = s->tiles_at;
	work[WORK_LOGITS_AT] = s->logits_at;
	add(&l, OP_EMBED, 0, 1, T, 1);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		add_mixer(&l, i, c->layers[i].mixer == LAYER_ATTENTION, k, cut, T);
		add_mlp(&l, i, k, cut, T);
	}
	if (s->n_logits) {
		add(&l, OP_LAST_NORM, 0, 1, s->n_logits, 1);
		add_product(&l, OP_LOGITS, 0, k, cut, KERNEL_LD(k->vocab), KERNEL_LD(k->hidden),
			    CEIL_DIV(s->n_logits, cut->rows));
	}
	add(&l, OP_END, 0, 0, 0, 1);
	return (uint64_t)(l.phase - work);
}

struct decode_order decode_work_order(int op)
{
#define B(at) (1u << AT_##at)
	static const struct decode_order order[OP_COUNT] = {
		[OP_EMBED] = {B(RESULT) | B(EMBED) | B(INV_FREQ), B(X) | B(H) | B(H32) | B(ROPE)},
		[OP_ATTENTION_IN] = {B(H), B(PROJ)},
		[OP_ATTENTION] = {B(PROJ) | B(ROPE) | DECODE_STATE, B(Q) | B(MIXED) | DECODE_STATE},
		[OP_ATTENTION_OUT] = {B(MIXED) | B(X), B(X)},
		[OP_DELTA_IN] = {B(H), B(PROJ)},
		[OP_DELTA] = {B(PROJ) | DECODE_STATE, B(MIXED) | DECODE_STATE},
		[OP_DELTA_OUT] = {B(MIXED) | B(X), B(X)},
		[OP_ROUTER] = {B(X), B(H) | B(H32) | B(ROUTER_LOGITS)},
		[OP_TOPK] = {B(ROUTER_LOGITS), B(EXPERTS) | B(WEIGHTS)},
		[OP_SORT] = {B(EXPERTS), B(ROWS) | B(TASKS)},
		[OP_TOPK_SORT] = {B(ROUTER_LOGITS), B(EXPERTS) | B(WEIGHTS) | B(ROWS) | B(TASKS)},
		[OP_GATE_UP] = {B(H) | B(TASKS) | B(ROWS), B(ACT)},
		[OP_DOWN] = {B(ACT) | B(TASKS) | B(ROWS), B(Y)},
		[OP_COMBINE] = {B(X) | B(Y) | B(WEIGHTS) | B(ROUTER_LOGITS), B(X) | B(H) | B(H32)},
		[OP_LAST_NORM] = {B(X) | B(FINAL_NORM), B(H) | B(H32)},
		[OP_LOGITS] = {B(H) | B(LM_HEAD), B(LOGITS)},
	};
#undef B

	return order[op];
}
