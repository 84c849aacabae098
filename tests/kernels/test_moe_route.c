/* moe_route.cl: which experts a token takes, and the rows sorted by expert. */
#include <string.h>

#include "kernels/step.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

#define BOUND 2e-6 /* the probabilities are summed one after the other on a CPU */

/* Router logits: many equal ones when `ties`, so that the order of indices decides. */
static float *random_router(uint32_t T, uint32_t ld, bool ties)
{
	float *r = case_matrix(T, ld, ld, -8, 8);

	for (size_t i = 0; ties && i < (size_t)T * ld; i++)
		r[i] = (float)random_below(3);
	return r;
}

/* Checks that the tasks cover all rows in order, each within one expert and no longer than TASK_ROWS. */
static void check_tasks(const struct kernel_mlp *m, const int32_t *tasks, const int32_t *rows,
			const int32_t *ids, uint32_t T)
{
	uint32_t slots = kernel_mlp_slots(m), at = 0;

	for (int32_t i = 0; i < tasks[0]; i++) {
		const int32_t *task = tasks + TASK_AT(i);
		uint32_t expert = (uint32_t)task[TASK_EXPERT], first = (uint32_t)task[TASK_FIRST];
		uint32_t count = (uint32_t)task[TASK_COUNT];

		check(first == at && count > 0 && count <= TASK_ROWS);
		for (uint32_t r = first; r < first + count && r < T * slots; r++) {
			uint32_t token = (uint32_t)rows[r] / slots,
				 slot = (uint32_t)rows[r] % slots;

			check(expert == (slot == m->topk ? m->experts
							 : (uint32_t)ids[token * m->topk + slot]));
		}
		/* A task that could have been longer is the last of its expert. */
		check(count == TASK_ROWS || i + 1 == tasks[0] ||
		      tasks[TASK_AT(i + 1) + TASK_EXPERT] != (int32_t)expert);
		at += count;
	}
	check(at == T * slots);
}

static void route(const struct way *w, struct kernels *k, uint32_t mlp, uint32_t T, bool ties)
{
	const struct kernel_mlp *m = &kernels_shape(k)->mlps[mlp];
	uint32_t ld = kernel_mlp_router_ld(m), slots = kernel_mlp_slots(m);
	uint64_t choices = (uint64_t)T * m->topk, ints = kernels_task_ints(m, T);
	float *router = random_router(T, ld, ties), *weights;
	int32_t *want_ids = CASE_INTS(choices), *want_rows = CASE_INTS((uint64_t)T * slots);
	int32_t *ids, *rows, *tasks;
	double *want = CASE_DOUBLES(choices);
	cl_mem R = buffer_floats(router, (uint64_t)T * ld), I = buffer_out(choices * 4);
	cl_mem W = buffer_out(choices * 4), O = buffer_out((uint64_t)T * slots * 4),
	       L = buffer_out(ints * 4);

	kernel_moe_route(k, mlp, R, I, W, O, L, T);
	set_finish(k);
	ids = read_ints(I, choices);
	weights = read_floats(W, choices);
	rows = read_ints(O, (uint64_t)T * slots);
	tasks = read_ints(L, ints);
	for (uint32_t t = 0; t < T && m->experts; t++)
		reference_moe_topk(router + t * ld, m->experts, m->topk, m->norm_topk,
				   want_ids + t * m->topk, want + t * m->topk);
	check(!memcmp(ids, want_ids, choices * sizeof(*ids)));
	near(weights, want, choices, BOUND);
	reference_moe_sort(want_ids, T, m->experts, m->topk, slots, want_rows);
	check(!memcmp(rows, want_rows, (size_t)T * slots * sizeof(*rows)));
	if (check(tasks[0] >= 0 && TASK_AT((uint64_t)tasks[0]) <= ints))
		check_tasks(m, tasks, want_rows, want_ids, T);
	same_as_generic(w, "route", m->experts * 10000 + T * 2 + ties, weights, choices * 4);
	if (m->experts) { /* the last token alone */
		cl_mem R1 = buffer_floats(router + (T - 1) * ld, ld), W1 = buffer_out(m->topk * 4u);

		kernel_moe_route(k, mlp, R1, I, W1, O, L, 1);
		set_finish(k);
		check(same_bits(read_floats(W1, m->topk), weights + (T - 1) * m->topk, m->topk));
	}
	case_end();
}

static void test(const struct way *w, struct kernels *k)
{
	static const uint32_t many[] = {1, 2, 63, 64, 65, 300}, few[] = {1, 3};
	const uint32_t *tokens = harness_small() ? few : many;
	size_t n = harness_small() ? ARRAY_SIZE(few) : ARRAY_SIZE(many);

	for (uint32_t mlp = 0; mlp < kernels_shape(k)->n_mlps; mlp++) {
		const struct kernel_mlp *m = &kernels_shape(k)->mlps[mlp];

		for (size_t t = 0; t < n; t++)
			for (int ties = 0; ties < (m->experts ? 2 : 1); ties++) {
				random_seed(tokens[t] * 2 + (unsigned)ties);
				route(w, k, mlp, tokens[t], ties);
			}
		if (m->experts)
			ok_way(w, "%u of %u experts%s%s", m->topk, m->experts,
			       m->norm_topk ? ", normalised" : "",
			       m->shared_size ? "" : ", none of them shared");
		else
			ok_way(w, "a dense MLP");
	}
}

const struct kernel_test kernel_test = {.programs = "moe_route.cl", .shape = test};
