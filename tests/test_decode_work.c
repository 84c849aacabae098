/* The work list of a decode step: a ticket never waits for a higher one, every part of every operation is in exactly
 * one ticket, and a phase before has written all data that a phase reads. Lists of a few shapes by name, of the
 * published shapes, and of random ones. */
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

enum { RANDOM_SHAPES = 300 };

/* The sizes of a layer's parts. */
struct sizes {
	uint32_t hidden, vocab, heads, kv_heads, head_dim, key_heads, value_heads, expert, shared;
};

struct setup {
	const char *name;
	uint32_t layers, interval, experts, topk, tokens, logits;
	struct sizes sizes;
	/* On a CPU alone. windows: layers without full attention have sliding windows, not Gated DeltaNet. out_norms: only
	 * with windows. */
	bool windows, out_norms;
};

#define SMALL                                           \
	{                                               \
		1000, 32000, 8, 2, 128, 8, 16, 250, 300 \
	}
static const struct setup setups[] = {
	{"one token", 24, 4, 64, 8, 1, 1, SMALL},
	{"three tokens", 24, 4, 64, 8, 3, 3, SMALL},
	{"eight tokens", 8, 4, 16, 2, 8, 8, SMALL},
	{"many tokens, few logits", 4, 2, 256, 8, 200, 7, SMALL},
	{"no logits", 3, 3, 8, 1, 2, 0, SMALL},
	{"attention alone", 2, 1, 8, 2, 2, 2, SMALL},
	{"delta alone", 2, 100, 8, 2, 2, 2, SMALL},
	{"a dense MLP", 4, 4, 0, 0, 5, 5, SMALL},
	{"many of everything", 64, 4, 512, 10, 256, 256, SMALL},
	{"sliding windows", 6, 6, 0, 0, 4, 4, SMALL, .windows = true},
	{"normed outputs", 12, 6, 0, 0, 3, 2, SMALL, .windows = true, .out_norms = true},
	{"normed outputs of experts", 4, 2, 16, 2, 8, 8, SMALL, .windows = true, .out_norms = true},
	{"Qwen3.5-35B-A3B", 40, 4, 256, 8, 1, 1, {2048, 248320, 16, 2, 256, 16, 32, 512, 512}},
	{"Qwen3-Next-80B-A3B", 48, 4, 512, 10, 8, 8, {2048, 151936, 16, 2, 256, 16, 32, 512, 512}},
};

/* Returns `least` to `most`, with small numbers more often than large ones. */
static uint32_t some(uint32_t least, uint32_t most)
{
	return least + random_below(1 + random_below(most - least + 1));
}

static struct setup random_setup(bool resident)
{
	struct setup s = {.name = "a random shape",
			  .layers = some(1, 64),
			  .interval = some(1, 8),
			  .tokens = some(1, 256)};

	if (random_below(4)) {
		s.experts = some(1, 512);
		s.topk = 1 + random_below(MIN(s.experts, 16u));
	}
	s.logits = random_below(s.tokens + 1);
	s.sizes.hidden = some(1, 5000);
	s.sizes.vocab = some(2, 250000);
	s.sizes.kv_heads = some(1, 8);
	s.sizes.heads = s.sizes.kv_heads * some(1, 8);
	s.sizes.head_dim = 2 * some(1, 128);
	s.sizes.key_heads = some(1, 32);
	s.sizes.value_heads = s.sizes.key_heads * some(1, 4);
	s.sizes.expert = some(1, 2000);
	s.sizes.shared = !s.experts || random_below(2) ? some(1, 2000) : 0;
	s.windows = !resident && random_below(3) == 0;
	s.out_norms = s.windows && random_below(2);
	return s;
}

static void make(const struct setup *s, struct model_config *c, struct kernel_shape *k,
		 struct model_step *step)
{
	const struct sizes *z = &s->sizes;

	memset(c, 0, sizeof(*c));
	c->n_layers = s->layers;
	for (uint32_t i = 0; i < s->layers; i++)
		c->layers[i] = (struct layer_kinds){(i + 1) % s->interval == 0 ? LAYER_ATTENTION
						    : s->windows	       ? LAYER_SLIDING
									       : LAYER_DELTA,
						    s->experts ? LAYER_MOE : LAYER_DENSE};
	*k = (struct kernel_shape){
		.hidden = z->hidden,
		.vocab = z->vocab,
		.heads = z->heads,
		.kv_heads = z->kv_heads,
		.head_dim = z->head_dim,
		.attention_gate = true,
		.window = s->windows ? 100 : 0,
		.out_norms = s->out_norms,
		.key_heads = z->key_heads,
		.value_heads = z->value_heads,
		.key_dim = 128,
		.value_dim = 128,
		.bf16 = true,
		.n_mlps = 1,
		.mlps = {{s->experts, s->topk, s->experts ? z->expert : 0, z->shared, true,
			  s->experts > 0}},
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
 * with the router's logits and the experts' numbers and weights count as written. */
static bool ordered(const int32_t *phase, bool experts, bool resident)
{
	const uint32_t chosen = 1u << AT_ROUTER_LOGITS | 1u << AT_EXPERTS | 1u << AT_WEIGHTS;
	const uint32_t inputs = 1u << AT_RESULT | 1u << AT_EMBED | 1u << AT_INV_FREQ |
				1u << AT_FINAL_NORM | 1u << AT_LM_HEAD | PHASE_OWN;
	uint32_t written = experts ? inputs : inputs | chosen;

	for (; op_at(phase) != OP_END; phase += PHASE_INTS) {
		const struct phase_order o = decode_work_order((int)op_at(phase), resident);
		const bool first = op_at(phase) == OP_ATTENTION_IN || op_at(phase) == OP_DELTA_IN;

		/* A layer uses its own projections, experts and router's logits, never another layer's. */
		if (first)
			written &= ~(1u << AT_PROJ | 1u << AT_MIXED | 1u << AT_Q |
				     1u << AT_PARTIAL | 1u << AT_STATS | 1u << AT_ROUTER_LOGITS |
				     1u << AT_EXPERTS | 1u << AT_WEIGHTS | 1u << AT_ROWS |
				     1u << AT_TASKS | 1u << AT_ACT | 1u << AT_Y) |
				   (experts ? 0 : chosen);
		if (o.reads & ~written)
			return false;
		written |= o.writes;
		/* Each mixer and each MLP has normed rows and outputs of its own. */
		if (first || op_at(phase) == OP_GATE_UP)
			written &= ~(1u << AT_H | 1u << AT_H32);
		if (op_at(phase) == OP_ROUTER || op_at(phase) == OP_ADD_NORM)
			written &= ~(1u << AT_Y);
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

/* The checks of one list. */
struct checked {
	bool ends, numbers, numbered, ordered, one_each, runs;
};

static struct checked check_list(const struct setup *s, const struct decode_cut *cut)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct kernel_shape k;
	struct model_step step;
	struct checked ret;
	const int32_t *phases;
	int32_t *work;
	uint64_t n;

	make(s, c, &k, &step);
	work = calloc(decode_work_ints(c), sizeof(*work));
	phases = work + WORK_INTS;
	n = decode_work_build(c, &k, cut, &step, work);
	ret.ends = n <= decode_work_ints(c) && work[n - PHASE_INTS + PHASE_OP] == OP_END;
	ret.numbers = work[WORK_TOKENS] == (int32_t)s->tokens && work[WORK_LOGITS_AT] == 77 &&
		      !work[WORK_NEXT] && !work[WORK_DONE];
	ret.numbered = numbered(phases);
	ret.ordered = ordered(phases, s->experts, cut->resident);
	ret.one_each = !cut->resident || one_each(phases);
	ret.runs = runs(work, 1) && runs(work, 2) && runs(work, 16);
	free(work);
	free(c);
	return ret;
}

int main(void)
{
	uint32_t good = 0;

	for (size_t i = 0; i < ARRAY_SIZE(setups) * ARRAY_SIZE(cuts); i++) {
		const struct setup *s = &setups[i / ARRAY_SIZE(cuts)];
		const struct decode_cut *cut = &cuts[i % ARRAY_SIZE(cuts)];
		struct checked x;

		if (s->windows && cut->resident)
			continue;
		x = check_list(s, cut);
		ok(x.ends, "%s: the list fits and ends", s->name);
		ok(x.numbers, "%s: the step's numbers, counters at zero", s->name);
		ok(x.numbered, "%s: tickets without a gap", s->name);
		ok(x.ordered, "%s: nothing is read before it is written%s", s->name,
		   cut->resident ? " by resident groups" : "");
		if (cut->resident)
			ok(x.one_each, "%s: resident groups take a phase at a time", s->name);
		ok(x.runs, "%s: 1, 2 and 16 groups get through", s->name);
	}
	for (uint32_t i = 0; i < RANDOM_SHAPES; i++) {
		const struct decode_cut *cut = &cuts[i % ARRAY_SIZE(cuts)];
		struct setup s = random_setup(cut->resident);
		struct checked x = check_list(&s, cut);

		if (x.ends && x.numbers && x.numbered && x.ordered && x.one_each && x.runs)
			good++;
		else
			printf("# %u layers, one of %u attention, %u experts, %u tokens, %u logits, hidden %u"
			       "%s%s%s\n",
			       s.layers, s.interval, s.experts, s.tokens, s.logits, s.sizes.hidden,
			       s.windows ? ", windows" : "", s.out_norms ? ", normed outputs" : "",
			       cut->resident ? ", resident groups" : "");
	}
	ok(good == RANDOM_SHAPES, "%u of %d random shapes pass all of these", good, RANDOM_SHAPES);
	ok(decode_work_order(OP_SLIDING, true).op == OP_END &&
		   decode_work_order(OP_ADD_NORM, true).op == OP_END,
	   "resident groups have no operation for sliding windows and normed outputs");
	return done();
}
