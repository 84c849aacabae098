/* kernels/int8.c: sizes, quantising and packing on the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/macros.h"
#include "kernels/int8.h"
#include "tests/kernels/reference.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { K_MAX = 400 };

TEST(sizes)
{
	check(int8_group_valid(32) && int8_group_valid(128) && int8_group_valid(INT8_GROUP_MAX));
	check(!int8_group_valid(0) && !int8_group_valid(16) && !int8_group_valid(130) &&
	      !int8_group_valid(INT8_GROUP_MAX + 32));
	ok_all("groups are multiples of 32, to a limit");
	is_int(int8_row_words(1024, 128), 256 + 8, "a row of eight groups");
	is_int(int8_row_words(200, 128), 208 / 4 + 2, "the last group is what is left, padded");
	is_int(int8_row_words(200, INT8_GROUP_MAX), 208 / 4 + 1, "a group that is the whole row");
	is_int(int8_panel_words(200, 128), 208 * 4 + 2 * 32, "a panel");
	is_int(int8_matrix_bytes(17, 200, 128), 2 * 4 * (208 * 4 + 2 * 32),
	       "a part of a panel is one");
	is_int(int8_matrix_bytes(UINT64_MAX, 1 << 20, 128), 0, "a matrix that is too large");
	check(int8_matrix_bytes(1024, 1024, 128) * 8 == 1024ull * 1024 * 8 + 1024ull * 1024 / 2);
	ok_all("8.5 bits a weight");
}

/* Fills a row with numbers of one of seven kinds. */
static void fill(float *x, uint32_t K, uint32_t kind)
{
	for (uint32_t k = 0; k < K; k++) {
		float u = (float)random_below(1 << 24) * 0x1p-23f - 1;

		switch (kind % 7) {
		case 0: x[k] = u; break;
		case 1: x[k] = u * 3e38f; break;
		case 2: x[k] = u * 1e-35f; break;
		case 3: x[k] = u * 1e-39f; break;
		case 4: x[k] = 0; break;
		case 5: x[k] = k % 50 == 7 ? 127 : (float)(k % 9) / 2 - 2; break; /* ties */
		case 6: x[k] = k == 1 ? NAN : k == 140 ? -INFINITY : u; break;
		}
	}
}

static bool same_floats(const float *a, const float *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (float_bits(a[i]) != float_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
			return false;
	return true;
}

TEST(quantize)
{
	static const uint32_t groups[] = {32, 96, 128, INT8_GROUP_MAX};
	static const uint32_t sizes[] = {1, 16, 37, 128, 200, K_MAX};
	int8_t q[K_MAX], want[K_MAX];
	float x[K_MAX], scales[K_MAX], want_scales[K_MAX];

	for (size_t g = 0; g < ARRAY_SIZE(groups); g++)
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
			for (uint32_t kind = 0; kind < 7; kind++) {
				uint32_t K = sizes[s];

				fill(x, K, kind);
				int8_quantize(x, K, groups[g], q, scales);
				reference_quantize(x, K, groups[g], want, want_scales);
				check(!memcmp(q, want, K));
				check(same_floats(scales, want_scales, int8_groups(K, groups[g])));
			}
	ok_all("quantising is the reference's: huge, tiny and no numbers, ties");

	fill(x, 128, 5);
	int8_quantize(x, 128, 128, q, scales);
	check(scales[0] == 1 && q[7] == 127);
	for (uint32_t k = 0; k < 128; k++)
		check(k % 50 == 7 || fabsf((float)q[k] - x[k]) == 0 ||
		      (q[k] % 2 == 0 && fabsf((float)q[k] - x[k]) == 0.5f));
	ok_all("halves go to the even neighbour");
	x[3] = NAN;
	int8_quantize(x, 128, 32, q, scales);
	ok(isnan(scales[0]) && !q[7] && scales[1] == 1.0f * 127 / 127, "NaN spoils its own group");
	fill(x, 64, 0);
	for (uint32_t k = 0; k < 32; k++)
		x[k] *= 0x1p-120f;
	int8_quantize(x, 64, 32, q, scales);
	ok(scales[0] == 0 && !q[0] && scales[1] > 0, "a group below the smallest scale is zero");
}

/* Packs a panel. Checks that every byte of every word is as int8.h says, and that nothing behind them is written. */
static void panel(uint32_t rows, uint32_t K, uint32_t group)
{
	const uint32_t padded = KERNEL_LD(K), groups = int8_groups(K, group);
	const uint64_t words = int8_panel_words(K, group), ldq = K + 3, lds = groups + 1;
	int8_t *q = calloc(16 * ldq, 1);
	float *scales = calloc(16 * lds, sizeof(*scales));
	uint32_t *out = malloc((words + 1) * sizeof(*out)), *at = out;

	check(q && scales && out);
	for (uint64_t i = 0; i < 16 * ldq; i++)
		q[i] = (int8_t)random_below(1 << 24);
	for (uint64_t i = 0; i < 16 * lds; i++)
		scales[i] = (float)random_below(1 << 24);
	memset(out, 0xa5, (words + 1) * sizeof(*out));
	int8_pack_panel(q, ldq, scales, lds, rows, K, group, out);
	for (uint32_t g = 0; g < groups; g++) {
		uint32_t first = g * group, end = MIN(first + group, padded);

		for (uint32_t r = 0; r < 16; r++) {
			int32_t sum = 0;

			for (uint32_t k = first; k < end; k++) {
				int8_t want = r < rows && k < K ? q[r * ldq + k] : 0;
				uint32_t word = at[32 + (k - first) / 4 * 16 + r];

				sum += want;
				check((int8_t)(word >> (k - first) % 4 * 8) == want);
			}
			check(bits_float(at[r]) == (r < rows ? scales[r * lds + g] : 0));
			check((int32_t)at[16 + r] == -128 * sum);
		}
		at += 32 + (end - first) * 4;
	}
	check(at == out + words && *at == 0xa5a5a5a5);
	free(q);
	free(scales);
	free(out);
}

TEST(pack)
{
	static const uint32_t groups[] = {32, 96, 128, INT8_GROUP_MAX};
	static const uint32_t sizes[] = {1, 16, 37, 128, 203, K_MAX};

	for (size_t g = 0; g < ARRAY_SIZE(groups); g++)
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
			panel(16, sizes[s], groups[g]);
			panel(5, sizes[s], groups[g]);
		}
	ok_all("panels: scales, sums and words of four k, whole and in part");
}

TEST_MAIN()
