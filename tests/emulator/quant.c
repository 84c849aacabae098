/* The products with quantised weights of the nvidia variant (nvidia/panel.clh) on a CPU: every type and plain panels
 * side by side, odd numbers of rows and of terms. The bits are those of plain panels with the same numbers, and these
 * are near the sums in double. With PLAIN (matrix.h) all panels are plain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/chains.h"
#include "kernels/step.h"
#include "tests/emulator/matrix.h"
#include "tests/emulator/quant_shape.h"
#include "tests/emulator/warp.h"
#include "tests/random.h"
#include "tests/tap.h"

/* The kernels. */
void gemm_store(const elem_t *A, unsigned lda, const elem_t *W, float *C, unsigned ldc, unsigned M,
		unsigned N, unsigned K);
void gemm_add(const elem_t *A, unsigned lda, const elem_t *W, float *C, unsigned ldc, unsigned M,
	      unsigned N, unsigned K, float *dump);
void moe_gate_up(const elem_t *h, const elem_t *experts, const elem_t *shared, const int *tasks,
		 const int *rows, elem_t *act);
void moe_down(const elem_t *act, const elem_t *experts, const elem_t *shared, const int *tasks,
	      const int *rows, float *y);

/* Their arguments. */
static struct {
	const elem_t *A, *W, *shared;
	float *C;
	elem_t *act;
	unsigned lda, ldc, M, N, K;
	const int *tasks, *rows;
} a;

static void call_store(void)
{
	gemm_store(a.A, a.lda, a.W, a.C, a.ldc, a.M, a.N, a.K);
}

static void call_add(void)
{
	gemm_add(a.A, a.lda, a.W, a.C, a.ldc, a.M, a.N, a.K, NULL);
}

static void call_gate_up(void)
{
	moe_gate_up(a.A, a.W, a.shared, a.tasks, a.rows, a.act);
}

static void call_down(void)
{
	moe_down(a.A, a.W, a.shared, a.tasks, a.rows, a.C);
}

static void run(void (*kernel)(void), unsigned x, unsigned y)
{
	for (unsigned j = 0; j < y; j++)
		for (unsigned i = 0; i < x; i++)
			emulate(kernel, LANES, i, j, x);
}

/* ---- products ---- */

/* Whether a sum is near that of a row's numbers. */
static bool is_near(const struct matrix *m, unsigned row, const float *x, float got)
{
	double sum = 0, size = 0;

	for (unsigned k = 0; k < m->K; k++) {
		double v = (double)m->weights[(size_t)row * m->K + k] * (double)x[k];

		sum += v;
		size += fabs(v);
	}
	return fabs((double)got - sum) <= 1e-5 * size;
}

static void test_product(unsigned M, unsigned N, unsigned K)
{
	const unsigned ldc = N + 16;
	struct matrix m = make_matrix(N, K);
	float *x = random_elements((size_t)M * K), *c[4];

	for (unsigned i = 0; i < 4; i++) {
		c[i] = emulated_memory((size_t)M * ldc * sizeof(float));
		for (size_t j = 0; j < (size_t)M * ldc; j++)
			c[i][j] = (float)(j % 7);
	}
	a.A = make_inputs(x, M, K);
	a.lda = K;
	a.ldc = ldc;
	a.M = M;
	a.N = N;
	a.K = K;
	for (unsigned i = 0; i < 4; i++) {
		a.W = i < 2 ? m.packed : m.decoded;
		a.C = c[i];
		run(i % 2 ? call_add : call_store, K > CHAIN_TERMS ? N / 16 : CEIL_DIV(N, 32u),
		    CEIL_DIV(M, ROW_BLOCK));
	}
	for (unsigned r = 0; r < M; r++)
		for (unsigned n = 0; n < ldc; n++) {
			size_t at = (size_t)r * ldc + n;
			float before = (float)(at % 7);

			if (n >= N) { /* behind the product's columns */
				check(c[0][at] == before && c[1][at] == before);
				continue;
			}
			check(is_near(&m, n, x + (size_t)r * K, c[0][at]));
			check(K > CHAIN_TERMS || c[1][at] == before + c[0][at]);
			check(c[2][at] == c[0][at] && c[3][at] == c[1][at]);
		}
	ok_all("%u rows, %u columns of %u terms", M, N, K);
}

/* ---- experts ---- */

/* The columns of a task's expert. */
static unsigned columns_of(unsigned expert)
{
	return expert < EXPERTS ? EXPERT_SIZE : SHARED_SIZE;
}

/* Routes T tokens to random experts, as moe_route.cl does. Returns the number of tasks. of: the expert of each row. */
static unsigned make_tasks(unsigned T, int *tasks, int *rows, unsigned *of)
{
	unsigned n = 0, n_tasks = 0, (*choice)[TOPK] = calloc(T, sizeof(*choice));

	for (unsigned t = 0; t < T; t++) {
		choice[t][0] = random_below(EXPERTS);
		choice[t][1] = (choice[t][0] + 1 + random_below(EXPERTS - 1)) % EXPERTS;
	}
	for (unsigned expert = 0; expert <= EXPERTS; expert++) {
		unsigned first = n;

		for (unsigned t = 0; t < T; t++)
			for (unsigned s = 0; s <= TOPK; s++)
				if (s < TOPK ? choice[t][s] == expert : expert == EXPERTS) {
					of[n] = expert;
					rows[n++] = (int)(t * (TOPK + 1) + s);
				}
		for (; first < n; n_tasks++) {
			int *task = tasks + TASK_AT(n_tasks);

			task[TASK_EXPERT] = (int)expert;
			task[TASK_FIRST] = (int)first;
			task[TASK_COUNT] = (int)MIN(n - first, (unsigned)TASK_ROWS);
			first += (unsigned)task[TASK_COUNT];
		}
	}
	tasks[0] = (int)n_tasks;
	free(choice);
	return n_tasks;
}

static void test_experts(unsigned T)
{
	const unsigned R = T * (TOPK + 1);
	struct matrix gate_up = make_matrix(EXPERTS * 2 * EXPERT_SIZE, HIDDEN),
		      down = make_matrix(EXPERTS * HIDDEN, EXPERT_SIZE);
	struct matrix shared_gate_up = make_matrix(2 * SHARED_SIZE, HIDDEN),
		      shared_down = make_matrix(HIDDEN, SHARED_SIZE);
	float *x = random_elements((size_t)T * HIDDEN), *y[2], in[SHARED_SIZE];
	int *rows = emulated_memory(R * sizeof(*rows)),
	    *tasks = emulated_memory(TASK_AT(R) * sizeof(*tasks));
	unsigned *of = emulated_memory(R * sizeof(*of)), n_tasks = make_tasks(T, tasks, rows, of);
	elem_t *act[2];

	a.tasks = tasks;
	a.rows = rows;
	for (unsigned i = 0; i < 2; i++) {
		a.A = make_inputs(x, T, HIDDEN);
		a.W = i ? gate_up.decoded : gate_up.packed;
		a.shared = i ? shared_gate_up.decoded : shared_gate_up.packed;
		a.act = act[i] = emulated_memory((size_t)R * ACT_LD * sizeof(elem_t));
		run(call_gate_up, CEIL_DIV(SHARED_SIZE, 16), n_tasks + 1);
		a.A = act[0];
		a.W = i ? down.decoded : down.packed;
		a.shared = i ? shared_down.decoded : shared_down.packed;
		a.C = y[i] = emulated_memory((size_t)R * HIDDEN * sizeof(float));
		run(call_down, CEIL_DIV(HIDDEN, 32), n_tasks + 1);
	}
	check(!memcmp(act[0], act[1], (size_t)R * ACT_LD * sizeof(elem_t)));
	check(!memcmp(y[0], y[1], (size_t)R * HIDDEN * sizeof(float)));
	for (unsigned r = 0; r < R; r++) {
		const bool shared = of[r] == EXPERTS;
		const struct matrix *m = shared ? &shared_gate_up : &gate_up;
		const float *token = x + (size_t)(rows[r] / (TOPK + 1)) * HIDDEN;
		const unsigned N = columns_of(of[r]);
		const elem_t *own = act[0] + (size_t)r * ACT_LD;

		for (unsigned n = 0; n < N; n++) {
			/* Gate and up panels alternate. */
			unsigned row =
				(shared ? 0 : of[r] * 2 * EXPERT_SIZE) + n / 16 * 32 + n % 16;
			double both[2] = {0, 0}, want;

			for (unsigned side = 0; side < 2; side++)
				for (unsigned k = 0; k < HIDDEN; k++)
					both[side] += (double)m->weights[(size_t)(row + side * 16) *
										 HIDDEN +
									 k] *
						      (double)token[k];
			want = both[0] / (1 + exp(-both[0])) * both[1];
			in[n] = float_of(own[n]);
			check(fabs((double)in[n] - want) <= 0.01 * fabs(want) + 1e-3);
		}
		m = shared ? &shared_down : &down;
		for (unsigned n = 0; n < HIDDEN; n++)
			check(is_near(m, (shared ? 0 : of[r] * HIDDEN) + n, in,
				      y[0][(size_t)rows[r] * HIDDEN + n]));
	}
	ok_all("%u tokens, %u tasks of experts", T, n_tasks);
}

int main(void)
{
	static const unsigned products[][3] = {{1, 16, 32},    {5, 80, 544},   {9, 48, 1280},
					       {33, 272, 256}, {66, 272, 512}, {130, 32, 288},
					       {7, 48, 2304},  {40, 48, 2304}};
	static const unsigned tokens[] = {3, 40, 150};

	for (size_t i = 0; i < ARRAY_SIZE(products); i++)
		test_product(products[i][0], products[i][1], products[i][2]);
	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++)
		test_experts(tokens[i]);
	return done();
}
