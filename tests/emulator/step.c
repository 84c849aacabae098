/* The decode step in one launch of the nvidia variant (nvidia/decode_step.cl) on a CPU, with quantised or plain weights: its
 * embedding, products, norms and experts, with matrices of all types. The groups run at the same time and wait for each
 * other between phases. What they compute is compared with sums in double of the decoded weights. Inputs are rounded to
 * bf16, so results are near these sums. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/chains.h"
#include "kernels/groups.h"
#include "kernels/step.h"
#include "tests/emulator/matrix.h"
#include "tests/emulator/step_shape.h"
#include "tests/emulator/warp.h"
#include "tests/random.h"
#include "tests/tap.h"

enum {
	MIXED = HEADS * HD,
	SLOTS = TOPK + 1,
	LOGITS_LD = ROUND_UP(VOCAB, 16),
	ROUTER_LD = 16,
	WORK_AT = 1024,
	TABLE_INTS = 2048
};

void decode_step(int *step, int work_at, const unsigned long *at);

static int *step;
static unsigned long at[AT_LAYERS + AT_LAYER_COUNT];

static void call(void)
{
	decode_step(step, WORK_AT, at);
}

static double weight_of(const struct matrix *m, unsigned row, unsigned k)
{
	return (double)m->weights[(size_t)row * m->K + k];
}

static double dot(const struct matrix *m, unsigned row, const float *x)
{
	double sum = 0;

	for (unsigned k = 0; k < m->K; k++)
		sum += weight_of(m, row, k) * (double)x[k];
	return sum;
}

/* Returns a token whose embedding is quantised. */
static int random_token(const struct matrix *embedding)
{
	unsigned id;

	do
		id = random_below(VOCAB);
	while (!PLAIN && !embedding->quantised[id / 16]);
	return (int)id;
}

static void norm(const float *x, const float *w, float *out)
{
	double sum = 0;

	for (unsigned i = 0; i < HIDDEN; i++)
		sum += (double)x[i] * (double)x[i];
	for (unsigned i = 0; i < HIDDEN; i++)
		out[i] = (float)((double)x[i] / sqrt(sum / HIDDEN + (double)EPS)) * w[i];
}

/* Counts how far n numbers are from what they should be. */
static struct distance {
	double error, size;
} distance;

static void compare(double got, double want)
{
	distance.error += (got - want) * (got - want);
	distance.size += want * want;
}

/* Reports the distance. Rounding to bf16 is an error of a sixth of a percent of a normed row, and more behind products
 * of sums. */
static void ok_near(double most, const char *what)
{
	double share = sqrt(distance.error / distance.size);

	ok(share <= most, "%s: off by %.2f %%", what, 100 * share);
	distance = (struct distance){0, 0};
}

/* The experts of a row by its router logits, and their weights; the last one is the shared expert. */
static void choose(const float *logits, unsigned expert[SLOTS], double weight[SLOTS])
{
	unsigned best = 0, second = EXPERTS;
	double ratio;

	for (unsigned i = 1; i < EXPERTS; i++)
		best = logits[i] > logits[best] ? i : best;
	for (unsigned i = 0; i < EXPERTS; i++)
		if (i != best && (second == EXPERTS || logits[i] > logits[second]))
			second = i;
	ratio = exp((double)(logits[second] - logits[best]));
	expert[0] = best;
	expert[1] = second;
	expert[2] = EXPERTS;
	weight[0] = 1 / (1 + ratio);
	weight[1] = ratio / (1 + ratio);
	weight[2] = 1 / (1 + exp(-(double)logits[EXPERTS]));
}

static void test_step(unsigned T, unsigned groups)
{
	static const int ops[] = {OP_EMBED,   OP_ATTENTION_IN, OP_ATTENTION_OUT, OP_ROUTER,
				  OP_GATE_UP, OP_DOWN,	       OP_LOGITS,	 OP_END};
	struct matrix in = make_matrix(ATTENTION_LD, HIDDEN), out = make_matrix(HIDDEN, MIXED);
	struct matrix gate_up = make_matrix(EXPERTS * 2 * EXPERT_SIZE, HIDDEN),
		      down = make_matrix(EXPERTS * HIDDEN, EXPERT_SIZE);
	struct matrix shared_gate_up = make_matrix(2 * SHARED_SIZE, HIDDEN),
		      shared_down = make_matrix(HIDDEN, SHARED_SIZE);
	struct matrix head = make_matrix(LOGITS_LD, HIDDEN),
		      embedding = make_matrix(LOGITS_LD, HIDDEN);
	float *x = emulated_memory(T * HIDDEN * sizeof(*x)),
	      *proj = emulated_memory(T * ATTENTION_LD * sizeof(*proj));
	float *logits = emulated_memory(T * LOGITS_LD * sizeof(*logits)),
	      *router_logits = emulated_memory(T * ROUTER_LD * sizeof(*router_logits));
	float *mixed = random_elements(T * MIXED), *router = random_elements(ROUTER_LD * HIDDEN);
	float *norms[3], *before = emulated_memory(T * HIDDEN * sizeof(*before)), h[HIDDEN];
	elem_t *act = emulated_memory(T * SLOTS * ACT_LD * sizeof(elem_t));
	int *result = emulated_memory(4096 * sizeof(*result)), *work;
	unsigned long *layer = at + AT_LAYERS;

	for (unsigned i = 0; i < ROUTER_LD * HIDDEN; i++)
		router[i] /= 20;
	for (unsigned i = 0; i < 3; i++) {
		norms[i] = random_elements(HIDDEN);
		for (unsigned k = 0; k < HIDDEN; k++)
			norms[i][k] = 1 + norms[i][k] / 4;
	}
	step = emulated_memory(TABLE_INTS * sizeof(*step));
	work = step + WORK_AT;
	at[AT_X] = (unsigned long)x;
	at[AT_ROPE] = (unsigned long)emulated_memory(T * ROT * sizeof(float));
	at[AT_INV_FREQ] = (unsigned long)emulated_memory(ROT * sizeof(float));
	at[AT_PROJ] = (unsigned long)proj;
	at[AT_MIXED] = (unsigned long)make_inputs(mixed, T, MIXED);
	at[AT_ROUTER_LOGITS] = (unsigned long)router_logits;
	at[AT_ACT] = (unsigned long)act;
	at[AT_LOGITS] = (unsigned long)logits;
	at[AT_RESULT] = (unsigned long)result;
	at[AT_EMBED] = (unsigned long)embedding_of(&embedding);
	at[AT_FINAL_NORM] = (unsigned long)norms[2];
	at[AT_LM_HEAD] = (unsigned long)head.packed;
	layer[AT_INPUT_NORM] = (unsigned long)norms[0];
	layer[AT_POST_NORM] = (unsigned long)norms[1];
	layer[AT_Q_NORM] = layer[AT_K_NORM] = (unsigned long)random_elements(HD);
	layer[AT_IN_PROJ] = (unsigned long)in.packed;
	layer[AT_OUT_PROJ] = (unsigned long)out.packed;
	layer[AT_ROUTER] = (unsigned long)router;
	layer[AT_EXPERTS_GATE_UP] = (unsigned long)gate_up.packed;
	layer[AT_EXPERTS_DOWN] = (unsigned long)down.packed;
	layer[AT_SHARED_GATE_UP] = (unsigned long)shared_gate_up.packed;
	layer[AT_SHARED_DOWN] = (unsigned long)shared_down.packed;

	work[WORK_TOKENS] = work[WORK_LOGITS] = (int)T;
	work[WORK_POSITIONS_AT] = 16;
	work[WORK_ROWS_AT] = 32;
	work[WORK_LOGITS_AT] = 512;
	for (unsigned i = 0; i < T; i++) {
		step[i] = random_token(&embedding);
		step[work[WORK_ROWS_AT] + (int)i * ROW_INTS + ROW_TOKEN] = (int)i;
		step[work[WORK_LOGITS_AT] + (int)i] = (int)(T - 1 - i);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		work[WORK_INTS + i * PHASE_INTS + PHASE_OP] = ops[i];
	emulate_together(call, STEP_LANES, groups);
	ok(!result[RESULT_GIVEN_UP], "%u rows, %u groups: the step ends", T, groups);

	for (unsigned r = 0; r < T; r++) {
		float *own = before + (size_t)r * HIDDEN;

		for (unsigned n = 0; n < HIDDEN; n++)
			own[n] = embedding.exact[(unsigned)step[r] * HIDDEN + n];
		norm(own, norms[0], h);
		for (unsigned n = 0; n < ATTENTION_LD; n++)
			compare((double)proj[r * ATTENTION_LD + n], dot(&in, n, h));
		for (unsigned n = 0; n < HIDDEN; n++)
			own[n] += (float)dot(&out, n, mixed + (size_t)r * MIXED);
	}
	ok_near(0.003, "the first projection of normed rows");
	for (unsigned r = 0; r < T; r++) {
		unsigned expert[SLOTS];
		double weight[SLOTS];

		choose(router_logits + r * ROUTER_LD, expert, weight);
		norm(before + (size_t)r * HIDDEN, norms[1], h);
		for (unsigned s = 0; s < SLOTS; s++) {
			const bool shared = expert[s] == EXPERTS;
			const struct matrix *m = shared ? &shared_gate_up : &gate_up;
			const unsigned N = shared ? SHARED_SIZE : EXPERT_SIZE,
				       from = shared ? 0 : expert[s];

			for (unsigned n = 0; n < N; n++) {
				/* Gate and up panels alternate. */
				unsigned row = from * 2 * EXPERT_SIZE + n / 16 * 32 + n % 16;
				double gate = dot(m, row, h);

				compare((double)float_of(act[(r * SLOTS + s) * ACT_LD + n]),
					gate / (1 + exp(-gate)) * dot(m, row + 16, h));
			}
		}
	}
	ok_near(0.01, "activations of the experts");
	for (unsigned r = 0; r < T; r++) {
		unsigned expert[SLOTS];
		double weight[SLOTS];

		choose(router_logits + r * ROUTER_LD, expert, weight);
		for (unsigned n = 0; n < HIDDEN; n++) {
			double sum = (double)before[(size_t)r * HIDDEN + n];

			for (unsigned s = 0; s < SLOTS; s++) {
				const bool shared = expert[s] == EXPERTS;
				float in_row[SHARED_SIZE];

				for (unsigned k = 0; k < (shared ? SHARED_SIZE : EXPERT_SIZE); k++)
					in_row[k] = float_of(act[(r * SLOTS + s) * ACT_LD + k]);
				sum += weight[s] * dot(shared ? &shared_down : &down,
						       (shared ? 0 : expert[s] * HIDDEN) + n,
						       in_row);
			}
			compare((double)x[(size_t)r * HIDDEN + n], sum);
		}
	}
	ok_near(0.005, "the residual stream behind the experts");
	for (unsigned r = 0; r < T; r++) {
		norm(x + (size_t)(T - 1 - r) * HIDDEN, norms[2], h);
		for (unsigned n = 0; n < LOGITS_LD; n++)
			compare((double)logits[r * LOGITS_LD + n], dot(&head, n, h));
	}
	ok_near(0.005, "logits");
}

int main(void)
{
	test_step(1, 3);
	test_step(5, 2);
	test_step(8, 3);
	return done();
}
