/* The squares of the inputs of products (engine/layers/inputs.h) in the first layer of tiny models, beside those that are
 * computed here from the weights. The prompts have one token, which attends to itself alone, so the input of the output
 * projection is its value. Several of them are one step. */
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"
#include "engine/checkpoint/importance.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"
#include "tests/golden.h"
#include "tests/tap.h"

enum { PROMPTS = 7, COLS_MAX = 1024, EXPERTS_MAX = 64 };

struct reference {
	struct model_config c;
	struct weights *w;
	double squares[WEIGHT_ROLES][EXPERTS_MAX][COLS_MAX];
	uint32_t rows[WEIGHT_ROLES][EXPERTS_MAX];
};

static uint64_t rows_of(const struct reference *m, enum weight_role role)
{
	return weights_find(m->w, role, 0)->rows;
}

/* out = W x. Returns the rows of W. */
static uint64_t product(const struct reference *m, enum weight_role role, uint32_t expert,
			const double *x, double *out)
{
	const struct weight *w = weights_find(m->w, role, 0);
	float row[COLS_MAX];

	for (uint64_t r = 0; r < w->rows; r++) {
		weights_row(m->w, role, 0, expert, r, false, row);
		out[r] = 0;
		for (uint64_t i = 0; i < w->cols; i++)
			out[r] += (double)row[i] * x[i];
	}
	return w->rows;
}

static void norm(const struct reference *m, enum weight_role role, const double *x, double *out)
{
	uint32_t D = m->c.hidden_size;
	float w[COLS_MAX];
	double sum = 0;

	weights_row(m->w, role, 0, 0, 0, false, w);
	for (uint32_t i = 0; i < D; i++)
		sum += x[i] * x[i];
	for (uint32_t i = 0; i < D; i++)
		out[i] = x[i] / sqrt(sum / D + (double)m->c.rms_norm_eps) * (double)w[i];
}

static void note(struct reference *m, enum weight_role role, uint32_t expert, const double *x,
		 uint64_t cols)
{
	for (uint64_t i = 0; i < cols; i++)
		m->squares[role][expert][i] += x[i] * x[i];
	m->rows[role][expert]++;
}

static void run_mlp(struct reference *m, bool expert, uint32_t e, const double *h)
{
	double gate[COLS_MAX], up[COLS_MAX];
	uint64_t n = product(m, expert ? WEIGHT_EXPERT_GATE : WEIGHT_SHARED_GATE, e, h, gate);

	product(m, expert ? WEIGHT_EXPERT_UP : WEIGHT_SHARED_UP, e, h, up);
	for (uint64_t i = 0; i < n; i++)
		up[i] *= gate[i] / (1 + exp(-gate[i]));
	note(m, expert ? WEIGHT_EXPERT_GATE : WEIGHT_SHARED_GATE, e, h, m->c.hidden_size);
	note(m, expert ? WEIGHT_EXPERT_DOWN : WEIGHT_SHARED_DOWN, e, up, n);
}

/* Runs the experts with the largest logits. */
static void run_experts(struct reference *m, const double *h)
{
	double logits[COLS_MAX];

	product(m, WEIGHT_ROUTER, 0, h, logits);
	for (uint32_t k = 0; k < m->c.n_experts_per_token; k++) {
		uint32_t best = 0;

		for (uint32_t e = 1; e < m->c.n_experts; e++)
			if (logits[e] > logits[best])
				best = e;
		run_mlp(m, true, best, h);
		logits[best] = -INFINITY;
	}
}

static void run_token(struct reference *m, int32_t token)
{
	uint32_t D = m->c.hidden_size, size = m->c.head_dim, turns = m->c.n_heads / m->c.n_kv_heads;
	double x[COLS_MAX] = {0}, mixed[COLS_MAX] = {0}, h[COLS_MAX], v[COLS_MAX], out[COLS_MAX];
	float embed[COLS_MAX];

	weights_row(m->w, WEIGHT_EMBED, 0, 0, (uint64_t)token, false, embed);
	for (uint32_t i = 0; i < D; i++)
		x[i] = (double)embed[i];
	norm(m, WEIGHT_INPUT_NORM, x, h);
	note(m, WEIGHT_ATTN_Q, 0, h, D);
	product(m, WEIGHT_ATTN_V, 0, h, v);
	for (uint32_t i = 0; i < m->c.n_heads * size; i++)
		mixed[i] = v[i / size / turns * size + i % size];
	note(m, WEIGHT_ATTN_O, 0, mixed, m->c.n_heads * size);
	product(m, WEIGHT_ATTN_O, 0, mixed, out);
	for (uint32_t i = 0; i < D; i++)
		x[i] += out[i];
	norm(m, WEIGHT_POST_NORM, x, h);
	if (m->c.layers[0].mlp == LAYER_MOE)
		run_experts(m, h);
	else
		run_mlp(m, false, 0, h);
}

/* Has the engine run all tokens, each as a prompt of its own, in one step. */
static bool gather(const char *path, const char *dtype, const int32_t *tokens,
		   struct importance *squares)
{
	struct engine_options o = run_options(path, dtype, PROMPTS, 64);
	struct plan_row rows[PROMPTS];
	struct draw_result none;
	uint32_t pages[PROMPTS];
	struct plan plan = {.rows = rows,
			    .n_rows = PROMPTS,
			    .n_prefill_rows = PROMPTS,
			    .n_prefill_tokens = PROMPTS};
	struct engine *g;
	struct err e = {0};
	bool good;

	o.unoptimised = true;
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s\n", e.text);
		return false;
	}
	for (uint32_t i = 0; i < PROMPTS; i++) {
		pages[i] = i;
		rows[i] = (struct plan_row){.tokens = &tokens[i],
					    .pages = &pages[i],
					    .n_tokens = 1,
					    .n_pages = 1,
					    .state_src = STATE_ZERO};
	}
	engine_gather(g, squares);
	good = engine_step(g, &plan, &none, &e) == 0 && !importance_failed(squares);
	engine_gather(g, NULL);
	good = good && engine_step(g, &plan, &none, &e) == 0; /* which adds nothing */
	if (!good)
		printf("# %s\n", e.text);
	engine_close(g);
	return good;
}

/* Returns the largest difference of a role's means, as a share of their mean; infinity: they are missing, or should be. */
static double apart(const struct reference *m, const struct importance *squares,
		    enum weight_role role, enum weight_role asked)
{
	const struct weight *w = weights_find(m->w, role, 0);
	float got[COLS_MAX];
	double worst = 0;

	for (uint32_t e = 0; e < w->experts; e++) {
		double mean = 0, n = m->rows[role][e];

		if (importance_of(squares, asked, 0, e, w->cols, got) != (n > 0))
			return INFINITY;
		for (uint64_t i = 0; i < w->cols; i++)
			mean += m->squares[role][e][i] / (double)w->cols;
		for (uint64_t i = 0; n && i < w->cols; i++)
			worst = fmax(worst,
				     fabs((double)got[i] * n - m->squares[role][e][i]) / mean);
	}
	return worst;
}

static void test_model(const char *path, const char *dtype, double most)
{
	static const enum weight_role all[][2] = {{WEIGHT_ATTN_Q, WEIGHT_ATTN_K},
						  {WEIGHT_ATTN_O, WEIGHT_ATTN_O},
						  {WEIGHT_SHARED_GATE, WEIGHT_SHARED_UP},
						  {WEIGHT_SHARED_DOWN, WEIGHT_SHARED_DOWN},
						  {WEIGHT_EXPERT_GATE, WEIGHT_EXPERT_UP},
						  {WEIGHT_EXPERT_DOWN, WEIGHT_EXPERT_DOWN},
						  {WEIGHT_EXPERT_GATE, WEIGHT_EXPERT_GATE}};
	struct reference *m = calloc(1, sizeof(*m));
	struct importance *squares = NULL;
	struct checkpoint *k = NULL;
	struct weight *table = NULL;
	struct err e = {0};
	int32_t tokens[PROMPTS];
	uint32_t known = 0;
	double worst = 0;

	if (!ok(checkpoint_open(path, &k, &e) == 0 && model_config_read(k, &m->c, &e) == 0 &&
			(table = layers_weights(&m->c)) &&
			weights_open(k, &m->c, table, &m->w, &e) == 0 &&
			(squares = importance_new(m->c.n_layers)),
		"%s opens", path))
		goto out;
	for (int32_t i = 0; i < PROMPTS; i++) {
		tokens[i] = 11 + 5 * i;
		run_token(m, tokens[i]);
	}
	if (!ok(gather(path, dtype, tokens, squares), "ran in %s", dtype))
		goto out;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (weights_find(m->w, all[i][0], 0)) {
			worst = fmax(worst, apart(m, squares, all[i][0], all[i][1]));
			known++;
		}
	check(rows_of(m, WEIGHT_ATTN_Q) > 0 && known >= 4);
	for (uint32_t i = 0; i < m->c.n_layers; i++) {
		float mean[COLS_MAX];

		check(importance_of(squares, WEIGHT_ATTN_O, i, 0,
				    weights_find(m->w, WEIGHT_ATTN_O, i)->cols, mean));
		check(!importance_of(squares, WEIGHT_ATTN_O, i, 0, 3, mean));
		check(importance_of(squares, WEIGHT_LM_HEAD, 0, 0, m->c.hidden_size, mean));
		check(!importance_of(squares, WEIGHT_ROUTER, i, 0, m->c.hidden_size, mean));
	}
	check(worst <= most);
	ok_all("%u kinds of matrices, apart by %.2g of their mean", known, worst);
out:
	importance_free(squares);
	weights_close(m->w);
	checkpoint_close(k);
	free(table);
	free(m);
}

TEST(arithmetic)
{
	struct importance *m = importance_new(2);
	float out[2];

	importance_add(m, WEIGHT_SHARED_UP, 1, 1, 0, (const float[]){3, 0}, 2);
	importance_add(m, WEIGHT_SHARED_GATE, 1, 1, 0, (const float[]){-1, 0}, 2);
	check(importance_of(m, WEIGHT_SHARED_GATE, 1, 0, 2, out));
	check(out[0] == 5 && out[1] > 0 && out[1] < 1e-5f);
	check(!importance_of(m, WEIGHT_SHARED_GATE, 0, 0, 2, out));
	importance_add(m, WEIGHT_EXPERT_DOWN, 0, 3, 1, (const float[]){0, 0}, 2);
	importance_add(m, WEIGHT_EXPERT_DOWN, 0, 3, 2, (const float[]){2, 4}, 2);
	check(!importance_of(m, WEIGHT_EXPERT_DOWN, 0, 0, 2, out));
	check(!importance_of(m, WEIGHT_EXPERT_DOWN, 0, 1, 2, out));
	check(!importance_of(m, WEIGHT_EXPERT_DOWN, 0, 3, 2, out));
	check(importance_of(m, WEIGHT_EXPERT_DOWN, 0, 2, 2, out) && out[0] == 4 && out[1] == 16);
	check(!importance_failed(m));
	ok_all("means of squares, by matrix and expert");
	importance_free(m);
}

TEST(models)
{
	test_model("tests/golden/tiny/25-llama", "float32", 1e-4);
	test_model("tests/golden/tiny/23-qwen3-moe", "float32", 1e-4);
	test_model("tests/golden/tiny/23-qwen3-moe", "bfloat16", 0.2);
}

TEST_MAIN()
