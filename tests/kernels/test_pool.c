/* pool.cl: sums of hidden states. */
#include <string.h>

#include "kernels/step.h"
#include "tests/kernels/harness.h"

enum { TOKENS = 37, SEATS = 3, AT = 2 };

/* Pools the first n tokens of h into seat 1 in windows that end at `cuts`, each a launch of its own, beside a sum of
 * one token in seat 2. Returns the sum. */
static float *pooled(struct kernels *k, cl_mem h, const uint32_t *cuts, uint32_t n_cuts)
{
	uint32_t ld = KERNEL_LD(kernels_shape(k)->hidden);
	cl_mem sums = buffer_out((uint64_t)SEATS * ld * 4), result = buffer_out(2ull * ld * 4 + 4);
	uint32_t from = 0;
	float *got;

	for (uint32_t i = 0; i < n_cuts; from = cuts[i++]) {
		const int32_t step[AT + 2 * POOLING_INTS] = {
			[AT + POOLING_TOKEN] = (int32_t)from,
			[AT + POOLING_COUNT] = (int32_t)(cuts[i] - from),
			[AT + POOLING_SEAT] = 1,
			[AT + POOLING_BEGINS] = !from,
			[AT + POOLING_RESULT_AT] = i + 1 < n_cuts ? -1 : 1,
			[AT + POOLING_INTS + POOLING_TOKEN] = (int32_t)from,
			[AT + POOLING_INTS + POOLING_COUNT] = 1,
			[AT + POOLING_INTS + POOLING_SEAT] = 2,
			[AT + POOLING_INTS + POOLING_BEGINS] = 1,
			[AT + POOLING_INTS + POOLING_RESULT_AT] = (int32_t)(1 + ld),
		};

		kernel_pool(k, buffer_ints(step, ARRAY_SIZE(step)), AT, h, sums, result, 2);
	}
	set_finish(k);
	got = read_floats(result, 1 + 2ull * ld);
	check(harness_small() || is_poison(got[0]));
	check(harness_small() || is_poison(read_floats(sums, 1)[0]));
	return got + 1;
}

static void test(const struct way *w, struct kernels *k)
{
	uint32_t D = kernels_shape(k)->hidden, ld = KERNEL_LD(D);
	uint32_t T = harness_small() ? 5 : TOKENS;
	const uint32_t whole[] = {T}, cut[] = {1, 2, T - 1, T};
	float *h, *want, *got;
	cl_mem H;

	random_seed(D);
	h = case_matrix(T, D, ld, -1, 1);
	want = CASE_FLOATS(ld);
	H = buffer_floats(h, (uint64_t)T * ld);
	for (uint32_t t = 0; t < T; t++)
		for (uint32_t c = 0; c < ld; c++)
			want[c] += h[(size_t)t * ld + c];
	got = pooled(k, H, whole, 1);
	check(same_bits(got, want, ld));
	check(same_bits(got + ld, h, ld));
	got = pooled(k, H, cut, ARRAY_SIZE(cut));
	check(same_bits(got, want, ld));
	check(same_bits(got + ld, h + (size_t)(T - 1) * ld, ld));
	case_end();
	ok_way(w, "a sum of %u rows of %u numbers, whole and cut", T, D);
}

const struct kernel_test kernel_test = {.programs = "pool.cl", .shape = test, .floats = true};
