/* embed.cl: embedding rows and rotary angles. */
#include <math.h>

#include "kernels/step.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

#define BOUND 1e-6

enum { DRAWN = 7 };

static const int32_t far_positions[] = {0, 1, 2595, 40000, 262143, 999999};

static void embed(const struct way *w, struct kernels *k, uint32_t T)
{
	const struct kernel_shape *s = kernels_shape(k);
	uint32_t D = s->hidden, ld = KERNEL_LD(D), rot = s->rotary_dim, last = T - 1;
	uint32_t ropes = MAX(s->ropes, 1u), angles_n = ropes * rot;
	const float scale = s->embed_scale > 0 ? s->embed_scale : 1;
	float *table = case_matrix(s->vocab, D, ld, -1, 1), *inv_freq = CASE_FLOATS(angles_n / 2),
	      *x, *rope;
	int32_t *step = CASE_INTS(1 + 2 * T), drawn[RESULT_IDS + DRAWN];
	double *angles = CASE_DOUBLES((size_t)T * angles_n);
	cl_mem E = buffer_elements(w, table, (uint64_t)s->vocab * ld), F, S, N, X, R, X1, R1;

	for (uint32_t j = 0; j < angles_n / 2; j++)
		inv_freq[j] = 1 / powf(10000000, (float)(2 * j) / (float)angles_n);
	for (uint32_t t = 0; t < T; t++) {
		step[1 + t] = (int32_t)random_below(s->vocab);
		step[1 + T + t] = t < ARRAY_SIZE(far_positions) ? far_positions[t]
								: (int32_t)random_below(9999);
	}
	step[1 + last] = (int32_t)s->vocab - 1;
	/* Tokens that the step before has drawn, in any order and more than once. */
	drawn[RESULT_GIVEN_UP] = 0;
	for (uint32_t i = 0; i < DRAWN; i++)
		drawn[RESULT_IDS + i] = (int32_t)random_below(s->vocab);
	for (uint32_t t = 0; t < last; t += 3)
		step[1 + t] = -1 - (int32_t)random_below(DRAWN);
	N = buffer_ints(drawn, RESULT_IDS + DRAWN);
	F = buffer_floats(inv_freq, angles_n / 2);
	S = buffer_ints(step, 1 + 2 * (uint64_t)T);
	X = buffer_out((uint64_t)T * ld * 4);
	R = buffer_out((uint64_t)T * angles_n * 4);
	X1 = buffer_out((uint64_t)ld * 4);
	R1 = buffer_out((uint64_t)angles_n * 4);
	kernel_embed(k, S, 1, (cl_int)(1 + T), N, E, F, X, R, T);
	kernel_embed(k, S, (cl_int)(1 + last), (cl_int)(1 + T + last), N, E, F, X1, R1, 1);
	set_finish(k);

	x = read_floats(X, (uint64_t)T * ld);
	rope = read_floats(R, (uint64_t)T * angles_n);
	for (uint64_t i = 0; i < (uint64_t)s->vocab * ld; i++) {
		table[i] *= scale;
		if (w->bf16)
			table[i] = bf16_rounded(table[i]);
	}
	for (uint32_t t = 0; t < T; t++) {
		int32_t id = step[1 + t] < 0 ? drawn[RESULT_IDS - 1 - step[1 + t]] : step[1 + t];

		check(same_bits(x + t * ld, table + (size_t)id * ld, ld));
		for (uint32_t r = 0; r < ropes; r++)
			reference_rope_angles((uint32_t)step[1 + T + t], inv_freq + r * rot / 2,
					      rot, angles + t * angles_n + r * rot);
	}
	near(rope, angles, (size_t)T * angles_n, BOUND);
	check(same_bits(read_floats(X1, ld), x + last * ld, ld));
	check(same_bits(read_floats(R1, angles_n), rope + last * angles_n, angles_n));
	case_end();
}

static void test(const struct way *w, struct kernels *k)
{
	const struct kernel_shape *s = kernels_shape(k);

	random_seed(s->hidden);
	embed(w, k, 1);
	embed(w, k, harness_small() ? 3 : 37);
	ok_way(w, "rows of %u numbers, %u rotary dimensions%s", s->hidden, s->rotary_dim,
	       s->ropes > 1 ? ", two tables of angles, a scale" : "");
}

const struct kernel_test kernel_test = {.programs = "embed.cl", .shape = test};
