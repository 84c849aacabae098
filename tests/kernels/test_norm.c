/* norm.cl: RMSNorm, and the end of an MLP with the norm behind it. */
#include <math.h>
#include <string.h>

#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

enum { TOKENS = 37, LOGITS = 5 };

#define BOUND 1e-6

static void rms_norm(const struct way *w, struct kernels *k, uint32_t T)
{
	const struct kernel_shape *s = kernels_shape(k);
	uint32_t D = s->hidden, ld = KERNEL_LD(D), R = MIN(T, (uint32_t)LOGITS);
	float *x, *weight = case_matrix(1, D, ld, 0, 2), *all, *some;
	int32_t step[3 + LOGITS];
	double *want;
	cl_mem X, W, h, h32, few, few32, table;

	/* Rows of very different size; the epsilon decides in the smallest. */
	x = case_matrix(T, D, ld, -1, 1);
	for (uint32_t t = 0; t < T; t++)
		for (uint32_t c = 0; c < D; c++)
			x[t * ld + c] *= powf(10, (float)(t % 9) - 5);
	memset(step, 0xff, sizeof(step));
	for (uint32_t r = 0; r < R; r++)
		step[3 + r] = (int32_t)random_below(T);
	X = buffer_floats(x, (uint64_t)T * ld);
	W = buffer_floats(weight, ld);
	table = buffer_ints(step, ARRAY_SIZE(step));
	h = buffer_out_elements(w, (uint64_t)T * ld);
	h32 = buffer_out((uint64_t)T * ld * 4);
	few = buffer_out_elements(w, (uint64_t)R * ld);
	few32 = buffer_out((uint64_t)R * ld * 4);
	kernel_rms_norm(k, table, -1, X, W, h, h32, T);
	kernel_rms_norm(k, table, 3, X, W, few, few32, R);
	set_finish(k);

	want = CASE_DOUBLES((size_t)T * ld);
	all = read_floats(h32, (uint64_t)T * ld);
	some = read_floats(few32, (uint64_t)R * ld);
	for (uint32_t t = 0; t < T; t++) {
		reference_rms_norm(x + t * ld, weight, D, s->eps, want + t * ld);
		near(all + t * ld, want + t * ld, ld, BOUND);
	}
	near_elements(w, read_elements(w, h, (uint64_t)T * ld), want, (size_t)T * ld, BOUND);
	for (uint32_t r = 0; r < R; r++)
		check(same_bits(some + r * ld, all + (uint32_t)step[3 + r] * ld, ld));
	check(same_bits(read_elements(w, few, ld),
			read_elements(w, h, (uint64_t)T * ld) + (uint32_t)step[3] * ld, ld));
	case_end();
}

static void combine_norm(const struct way *w, struct kernels *k, uint32_t mlp, uint32_t T)
{
	const struct kernel_shape *s = kernels_shape(k);
	const struct kernel_mlp *m = &s->mlps[mlp];
	uint32_t D = s->hidden, ld = KERNEL_LD(D), E = kernel_mlp_router_ld(m),
		 slots = kernel_mlp_slots(m);
	float *x = case_matrix(T, D, ld, -1, 1), *y = case_matrix((size_t)T * slots, D, ld, -1, 1);
	float *weights = case_matrix(T, m->topk, m->topk, 0, 1),
	      *router = case_matrix(T, E, E, -4, 4);
	float *norm = case_matrix(1, D, ld, 0, 2), *got, *got32;
	float *out_w = case_matrix(1, D, ld, 0, 2), *row = CASE_FLOATS(ld);
	double *added = CASE_DOUBLES((size_t)T * ld);
	double *sums = CASE_DOUBLES((size_t)T * ld), *sum_x = CASE_DOUBLES((size_t)T * ld);
	double *want = CASE_DOUBLES((size_t)T * ld);
	cl_mem X = buffer_floats(x, (uint64_t)T * ld),
	       Y = buffer_floats(y, (uint64_t)T * slots * ld);
	cl_mem P = buffer_floats(weights, (uint64_t)T * m->topk), W = buffer_floats(norm, ld);
	cl_mem R = buffer_floats(router, (uint64_t)T * E),
	       h = buffer_out_elements(w, (uint64_t)T * ld);
	cl_mem h32 = buffer_out((uint64_t)T * ld * 4), dump = buffer_out((uint64_t)T * ld * 4);
	cl_mem O = s->out_norms ? buffer_floats(out_w, ld) : NULL;
	cl_mem X1 = buffer_floats(x + (T - 1) * ld, ld), Y1, P1, R1, H1, H321;

	kernel_combine_norm(k, mlp, X, Y, P, R, O, W, h, h32, dump, T);
	/* The last token alone. */
	Y1 = buffer_floats(y + (size_t)(T - 1) * slots * ld, (uint64_t)slots * ld);
	P1 = buffer_floats(weights + (T - 1) * m->topk, m->topk);
	R1 = buffer_floats(router + (T - 1) * E, E);
	H1 = buffer_out_elements(w, ld);
	H321 = buffer_out((uint64_t)ld * 4);
	kernel_combine_norm(k, mlp, X1, Y1, P1, R1, O, W, H1, H321, buffer_out((uint64_t)ld * 4),
			    1);
	set_finish(k);

	for (uint32_t t = 0; t < T; t++) {
		double gate =
			m->shared_gate ? reference_sigmoid((double)router[t * E + m->experts]) : 1;

		for (uint32_t c = 0; c < D; c++) {
			double sum = m->shared_size
					     ? gate * y[((size_t)t * slots + m->topk) * ld + c]
					     : 0;

			for (uint32_t j = 0; j < m->topk; j++)
				sum += (double)weights[t * m->topk + j] *
				       y[((size_t)t * slots + j) * ld + c];
			sums[t * ld + c] = sum;
			row[c] = (float)sum;
		}
		memcpy(added + t * ld, sums + t * ld, D * sizeof(*added));
		if (s->out_norms)
			reference_rms_norm(row, out_w, D, s->eps, added + t * ld);
		for (uint32_t c = 0; c < D; c++)
			sum_x[t * ld + c] = x[t * ld + c] + added[t * ld + c];
	}
	got = read_floats(X, (uint64_t)T * ld);
	got32 = read_floats(h32, (uint64_t)T * ld);
	near(got, sum_x, (size_t)T * ld, BOUND);
	if (s->dump)
		near(read_floats(dump, (uint64_t)T * ld), added, (size_t)T * ld, BOUND);
	for (uint32_t t = 0; t < T; t++)
		reference_rms_norm(got + t * ld, norm, D, s->eps, want + t * ld);
	near(got32, want, (size_t)T * ld, BOUND);
	near_elements(w, read_elements(w, h, (uint64_t)T * ld), want, (size_t)T * ld, BOUND);
	check(same_bits(read_floats(X1, ld), got + (T - 1) * ld, ld));
	check(same_bits(read_floats(H321, ld), got32 + (T - 1) * ld, ld));
	same_as_generic(w, "combine_norm", s->hidden * 100 + mlp * 50 + T, got32,
			(size_t)T * ld * 4);
	case_end();
}

/* A mixer's output is normed and added, and the sum normed. */
static void add_norm(const struct way *w, struct kernels *k, uint32_t T)
{
	const struct kernel_shape *s = kernels_shape(k);
	uint32_t D = s->hidden, ld = KERNEL_LD(D);
	float *x = case_matrix(T, D, ld, -1, 1), *y = case_matrix(T, D, ld, -3, 3), *got, *got32;
	float *out_w = case_matrix(1, D, ld, 0, 2), *norm = case_matrix(1, D, ld, 0, 2);
	double *sum = CASE_DOUBLES((size_t)T * ld), *want = CASE_DOUBLES((size_t)T * ld);
	cl_mem X = buffer_floats(x, (uint64_t)T * ld), Y = buffer_floats(y, (uint64_t)T * ld);
	cl_mem O = buffer_floats(out_w, ld), W = buffer_floats(norm, ld);
	cl_mem h = buffer_out_elements(w, (uint64_t)T * ld), h32 = buffer_out((uint64_t)T * ld * 4);
	cl_mem X1 = buffer_floats(x + (T - 1) * ld, ld), Y1 = buffer_floats(y + (T - 1) * ld, ld);
	cl_mem H1 = buffer_out_elements(w, ld), H321 = buffer_out((uint64_t)ld * 4);

	kernel_add_norm(k, X, Y, O, W, h, h32, buffer_out((uint64_t)T * ld * 4), T);
	kernel_add_norm(k, X1, Y1, O, W, H1, H321, buffer_out((uint64_t)ld * 4), 1);
	set_finish(k);
	for (uint32_t t = 0; t < T; t++) {
		reference_rms_norm(y + t * ld, out_w, D, s->eps, sum + t * ld);
		for (uint32_t c = 0; c < D; c++)
			sum[t * ld + c] += x[t * ld + c];
	}
	got = read_floats(X, (uint64_t)T * ld);
	got32 = read_floats(h32, (uint64_t)T * ld);
	near(got, sum, (size_t)T * ld, BOUND);
	for (uint32_t t = 0; t < T; t++)
		reference_rms_norm(got + t * ld, norm, D, s->eps, want + t * ld);
	near(got32, want, (size_t)T * ld, BOUND);
	near_elements(w, read_elements(w, h, (uint64_t)T * ld), want, (size_t)T * ld, BOUND);
	check(same_bits(read_floats(X1, ld), got + (T - 1) * ld, ld));
	check(same_bits(read_floats(H321, ld), got32 + (T - 1) * ld, ld));
	same_as_generic(w, "add_norm", T, got32, (size_t)T * ld * 4);
	case_end();
}

static void test(const struct way *w, struct kernels *k)
{
	const struct kernel_shape *s = kernels_shape(k);
	uint32_t T = harness_small() ? 2 : TOKENS;

	random_seed(s->hidden);
	rms_norm(w, k, 1);
	rms_norm(w, k, T);
	ok_way(w, "rms_norm of %u numbers", s->hidden);
	for (uint32_t mlp = 0; mlp < s->n_mlps; mlp++) {
		combine_norm(w, k, mlp, 1);
		combine_norm(w, k, mlp, T);
	}
	ok_way(w, "combine_norm of %u numbers%s", s->hidden,
	       s->out_norms ? ", normed before they are added" : "");
	if (!s->out_norms)
		return;
	add_norm(w, k, 1);
	add_norm(w, k, T);
	ok_way(w, "add_norm of %u numbers", s->hidden);
}

const struct kernel_test kernel_test = {.programs = "norm.cl", .shape = test};
