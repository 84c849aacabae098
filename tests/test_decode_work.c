/* The work list of a decode step: a ticket never waits for a higher one, every part of every operation is in exactly
 * one ticket, and a phase before has written all data that a phase reads. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/decode_work.h"
#include "kernels/kernels.h"
#include "tests/random.h"
#include "tests/tap.h"

static const struct decode_cut cuts[] = {
	{.columns = 64, .rows = 64, .router_columns = 64},
	{.resident = true, .columns = 64, .rows = 64, .router_columns = 64},
};

struct setup {
	const char *name;
	uint32_t layers, interval, experts, topk, tokens, logits;
};

static const struct setup setups[] = {
	{"one token", 24, 4, 64, 8, 1, 1},
	{"three tokens", 24, 4, 64, 8, 3, 3},
	{"eight tokens", 8, 4, 16, 2, 8, 8},
	{"many tokens, few logits", 4, 2, 256, 8, 200, 7},
	{"no logits", 3, 3, 8, 1, 2, 0},
	{"attention alone", 2, 1, 8, 2, 2, 2},
	{"delta alone", 2, 100, 8, 2, 2, 2},
	{"a dense MLP", 4, 4, 0, 0, 5, 5},
	{"many of everything", 64, 4, 512, 10, 256, 256},
};

static void make(const struct setup *s, struct model_config *c, struct kernel_shape *k,
		 struct model_step *step)
{
	memset(c, 0, sizeof(*c));
	c->n_layers = s->layers;
	for (uint32_t i = 0; i < s->layers; i++)
		c->layers[i] =
			(struct layer_kinds){(i + 1) % s->interval ? LAYER_DELTA : LAYER_ATTENTION,
					     s->experts ? LAYER_MOE : LAYER_DENSE};
	*k = (struct kernel_shape){
		.hidden = 1000,
		.vocab = 32000,
		.heads = 8,
		.kv_heads = 2,
		.head_dim = 128,
		.attention_gate = true,
		.key_heads = 8,
		.value_heads = 16,
		.key_dim = 128,
		.value_dim = 128,
		.bf16 = true,
		.n_mlps = 1,
		.mlps = {{s->experts, s->topk, s->experts ? 250 : 0, 300, true, s->experts > 0}},
	};
	*step = (struct model_step){.n_tokens = s->tokens,
				    .n_rows = s->tokens,
				    .n_tiles = s->tokens,
				    .n_logits = s->logits,
				    .tokens_at = 3,
				    .logits_at = 77};
}

static uint32_t op_at(const int32_t *phase)
{
	return (uint32_t)phase[PHASE_OP];
}

/* Whether earlier phases write all data that each phase reads. Without experts no phase chooses any, so the buffers
 * with the experts' numbers and weights count as written. */
static bool ordered(const int32_t *phase, bool experts, bool resident)
{
	const uint32_t chosen = 1u << AT_EXPERTS | 1u << AT_WEIGHTS;
	const uint32_t inputs = 1u << AT_RESULT | 1u << AT_EMBED | 1u << AT_INV_FREQ |
				1u << AT_FINAL_NORM | 1u << AT_LM_HEAD | PHASE_OWN;
	uint32_t written = experts ? inputs : inputs | chosen;

	for (; op_at(phase) != OP_END; phase += PHASE_INTS) {
		struct phase_order o = decode_work_order((int)op_at(phase), resident);

		/* A layer uses its own projections, experts and router's logits, never another layer's. */
		if (op_at(phase) == OP_ATTENTION_IN || op_at(phase) == OP_DELTA_IN)
			written &= ~(1u << AT_PROJ | 1u << AT_MIXED | 1u << AT_Q |
				     1u << AT_PARTIAL | 1u << AT_STATS);
		if (op_at(phase) == OP_ROUTER)
			written &= ~(1u << AT_H | 1u << AT_ROUTER_LOGITS | 1u << AT_EXPERTS |
				     1u << AT_WEIGHTS | 1u << AT_ROWS | 1u << AT_TASKS |
				     1u << AT_ACT | 1u << AT_Y) |
				   (experts ? 0 : chosen);
		if (o.reads & ~written)
			return false;
		written |= o.writes;
	}
	return true;
}

/* Whether tickets are numbered without a gap, and the number of each phase's tickets is a multiple of PHASE_COLUMNS /
 * PHASE_TAKE, rounded up. */
static bool numbered(const int32_t *phase)
{
	int64_t next = 0;

	for (;; phase += PHASE_INTS) {
		if (phase[PHASE_FIRST] != next)
			return false;
		if (op_at(phase) == OP_END)
			return true;
		if (phase[PHASE_COLUMNS] < 1 || phase[PHASE_TAKE] < 1)
			return false;
		next = phase[PHASE_INTS + PHASE_FIRST];
		if (next <= phase[PHASE_FIRST] ||
		    (next - phase[PHASE_FIRST]) % CEIL_DIV(phase[PHASE_COLUMNS], phase[PHASE_TAKE]))
			return false;
	}
}

/* Runs groups as the kernel does, in random order: a ticket waits until all tickets of earlier phases have run. Returns
 * whether all groups come to the end, and every ticket has run. */
static bool runs(const int32_t *work, uint32_t groups)
{
	struct {
		const int32_t *phase;
		int32_t ticket; /* -1: none; -2: at the end */
	} g[16];
	int32_t next = 0, finished = 0;
	uint32_t ended = 0;

	for (uint32_t i = 0; i < groups; i++) {
		g[i].phase = work + WORK_INTS;
		g[i].ticket = -1;
	}
	for (uint64_t turn = 0; ended < groups; turn++) {
		uint32_t i = random_below(groups);

		if (turn > (uint64_t)10000000)
			return false; /* stuck */
		if (g[i].ticket == -2)
			continue;
		if (g[i].ticket == -1) {
			g[i].ticket = next++;
			while (op_at(g[i].phase) != OP_END &&
			       g[i].ticket >= g[i].phase[PHASE_INTS + PHASE_FIRST])
				g[i].phase += PHASE_INTS;
			if (op_at(g[i].phase) == OP_END) {
				g[i].ticket = -2;
				ended++;
			}
		} else if (finished >= g[i].phase[PHASE_FIRST]) {
			finished++;
			g[i].ticket = -1;
		}
	}
	for (const int32_t *p = work + WORK_INTS;; p += PHASE_INTS)
		if (op_at(p) == OP_END)
			return finished == p[PHASE_FIRST];
}

/* Whether each phase counts as one ticket: resident groups have no others. */
static bool one_each(const int32_t *phase)
{
	for (int32_t i = 0; op_at(phase) != OP_END; phase += PHASE_INTS, i++)
		if (phase[PHASE_FIRST] != i)
			return false;
	return true;
}

int main(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(setups) * ARRAY_SIZE(cuts); i++) {
		const struct setup *s = &setups[i / ARRAY_SIZE(cuts)];
		const struct decode_cut *cut = &cuts[i % ARRAY_SIZE(cuts)];
		struct model_config *c = calloc(1, sizeof(*c));
		struct kernel_shape k;
		struct model_step step;
		int32_t *work;
		uint64_t n;

		make(s, c, &k, &step);
		work = calloc(decode_work_ints(c), sizeof(*work));
		n = decode_work_build(c, &k, cut, &step, work);
		ok(n <= decode_work_ints(c) && work[n - PHASE_INTS + PHASE_OP] == OP_END,
		   "%s: the list fits and ends", s->name);
		ok(work[WORK_TOKENS] == (int32_t)s->tokens && work[WORK_LOGITS_AT] == 77 &&
			   !work[WORK_NEXT] && !work[WORK_DONE],
		   "%s: the step's numbers, counters at zero", s->name);
		ok(numbered(work + WORK_INTS), "%s: tickets without a gap", s->name);
		ok(ordered(work + WORK_INTS, s->experts, cut->resident),
		   "%s: nothing is read before it is written%s", s->name,
		   cut->resident ? " by resident groups" : "");
		if (cut->resident)
			ok(one_each(work + WORK_INTS), "%s: resident groups take a phase at a time",
			   s->name);
		ok(runs(work, 1) && runs(work, 2) && runs(work, 16),
		   "%s: 1, 2 and 16 groups get through", s->name);
		free(work);
		free(c);
	}
	return done();
}
