/* engine/checkpoint/stored_type, types/: the number formats by safetensors' names and by ggml's numbers; blocks become the
 * floats of gguf-py, and floats the blocks of ggml, to the last bit (tests/golden/stored_types.py). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mix.h"
#include "engine/checkpoint/stored_type.h"
#include "engine/checkpoint/types/float16.h"
#include "engine/checkpoint/types/float8.h"
#include "tests/golden/stored_types.h"
#include "tests/tap.h"

enum { FLOATS_MAX = GOLDEN_BLOCKS * 256 };

TEST(ggml_numbers)
{
	/* name, elements and bytes of a block, as in gguf-py's constants and ggml's ggml-common.h */
	static const struct {
		uint32_t number;
		const char *name;
		uint32_t elements, bytes;
		bool loads;
	} rows[] = {
		{0, "F32", 1, 4, true},		 {1, "F16", 1, 2, true},
		{2, "Q4_0", 32, 18, true},	 {3, "Q4_1", 32, 20, true},
		{6, "Q5_0", 32, 22, true},	 {7, "Q5_1", 32, 24, true},
		{8, "Q8_0", 32, 34, true},	 {9, "Q8_1", 32, 36, false},
		{10, "Q2_K", 256, 84, true},	 {11, "Q3_K", 256, 110, true},
		{12, "Q4_K", 256, 144, true},	 {13, "Q5_K", 256, 176, true},
		{14, "Q6_K", 256, 210, true},	 {15, "Q8_K", 256, 292, false},
		{16, "IQ2_XXS", 256, 66, false}, {17, "IQ2_XS", 256, 74, false},
		{18, "IQ3_XXS", 256, 98, false}, {19, "IQ1_S", 256, 50, false},
		{20, "IQ4_NL", 32, 18, true},	 {21, "IQ3_S", 256, 110, false},
		{22, "IQ2_S", 256, 82, false},	 {23, "IQ4_XS", 256, 136, true},
		{24, "I8", 1, 1, false},	 {25, "I16", 1, 2, false},
		{26, "I32", 1, 4, false},	 {27, "I64", 1, 8, false},
		{28, "F64", 1, 8, false},	 {29, "IQ1_M", 256, 56, false},
		{30, "BF16", 1, 2, true},	 {34, "TQ1_0", 256, 54, false},
		{35, "TQ2_0", 256, 66, false},	 {39, "MXFP4", 32, 17, true},
		{40, "NVFP4", 64, 36, true},	 {41, "Q1_0", 128, 18, false},
		{42, "Q2_0", 64, 18, false},
	};
	size_t known = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct stored_type *t = stored_type_of_ggml(rows[i].number);

		check(t && !strcmp(t->name, rows[i].name) && t->elements == rows[i].elements &&
		      t->bytes == rows[i].bytes && !!t->to_float == rows[i].loads);
		check(256 % t->elements == 0);
	}
	ok_all("every type of ggml has its name and its sizes");
	for (uint32_t i = 0; i < 1000; i++)
		known += stored_type_of_ggml(i) != NULL;
	is_int(known, ARRAY_SIZE(rows), "there are no others");
	ok(!stored_type_of_ggml(UINT32_MAX), "nor is the largest number one");
	ok(stored_type_of_ggml(30) == stored_type_find("BF16"), "BF16 is that of safetensors");
	ok(!stored_type_find("Q4_K"), "safetensors has no blocks of ggml");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct stored_type *t = stored_type_named(rows[i].name);

		check(t == stored_type_of_ggml(rows[i].number) &&
		      stored_type_number(t) == (int)rows[i].number);
	}
	check(!stored_type_named("Q4_K_M") && !stored_type_named("U8"));
	check(stored_type_number(stored_type_find("U8")) == -1);
	ok_all("types are found by their names, and have their numbers");
}

TEST(small_numbers)
{
	for (uint32_t i = 0; i < 65536; i++) {
		float f = float_of_f16((uint16_t)i);

		check(isnan(f) ? isnan(float_of_f16(f16_of_float(f))) : f16_of_float(f) == i);
	}
	ok_all("every f16 number comes back");
	for (uint32_t i = 0; i < 0x7c00; i++) {
		float low = float_of_f16((uint16_t)i), high = float_of_f16((uint16_t)(i + 1));
		float middle = i == 0x7bff ? 65520 : (low + high) / 2;

		check(f16_of_float(nextafterf(middle, 0)) == i);
		check(f16_of_float(middle) == i + i % 2);
		check(f16_of_float(nextafterf(middle, INFINITY)) == i + 1);
		check(f16_of_float(-middle) == (0x8000 | (i + i % 2)));
	}
	ok_all("floats are rounded to the nearest, ties to even");
	ok(f16_of_float(1e30f) == 0x7c00 && f16_of_float(-INFINITY) == 0xfc00 &&
		   f16_of_float(1e-30f) == 0,
	   "beyond all of them they are infinite or 0");
	for (uint32_t i = 0; i < 256; i++) {
		int exponent = i >> 3 & 15, fraction = i & 7;
		float want = exponent ? ldexpf((float)(8 + fraction), exponent - 10)
				      : ldexpf((float)fraction, -9);

		want = i >> 7 ? -want : want;
		check((i & 127) == 127 ? isnan(float_of_e4m3((uint8_t)i))
				       : float_of_e4m3((uint8_t)i) == want);
		check(i == 255 ? isnan(float_of_e8m0((uint8_t)i))
			       : float_of_e8m0((uint8_t)i) == ldexpf(1, (int)i - 127));
	}
	ok_all("e4m3 and e8m0 are what their definitions say");
}

/* Numbers of plain types come back, and others are rounded to the nearest. */
TEST(plain)
{
	static const char *const names[] = {"F32", "F16", "BF16"};
	float x[7] = {0, -1.5f, 65504, 1e-5f, 3.14159265f, -2e-3f, 1 + 0x1p-8f}, once[7], twice[7];
	uint8_t bytes[29];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct stored_type *t = stored_type_find(names[i]);

		t->from_float(x, 7, NULL, bytes + 1);
		t->to_float(bytes + 1, once, 7);
		t->from_float(once, 7, NULL, bytes + 1);
		t->to_float(bytes + 1, twice, 7);
		check(!memcmp(once, twice, sizeof(once)));
		for (int k = 0; k < 7; k++)
			check(fabsf(once[k] - x[k]) <= fabsf(x[k]) * (i ? 0x1p-8f : 0));
	}
	ok_all("floats become plain numbers of fewer bits");
}

static uint64_t hash_words(const void *data, size_t n)
{
	const uint32_t *words = data;
	uint64_t h = 0;

	for (size_t i = 0; i < n; i++)
		h = mix_add(h, words[i]);
	return h;
}

/* Makes the random blocks of stored_types.py. */
static void random_blocks(const struct stored_type *t, uint32_t number, const uint8_t *halves,
			  int n_halves, uint8_t *out)
{
	size_t bytes = (size_t)GOLDEN_BLOCKS * t->bytes;
	uint64_t state = number;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t v = mix_next(&state);

		memcpy(out + i, &v, MIN(bytes - i, (size_t)8));
	}
	for (size_t i = 0; i < bytes; i += t->bytes)
		for (int k = 0; k < n_halves; k++)
			out[i + halves[k] + 1] &= 0xbf;
}

TEST(decoded)
{
	static uint8_t blocks[GOLDEN_BLOCKS * 256 + 1];
	static float floats[FLOATS_MAX], one[256];
	static uint16_t narrow[FLOATS_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(golden_decoded); i++) {
		const struct stored_type *t = stored_type_of_ggml(golden_decoded[i].type);
		size_t n = (size_t)GOLDEN_BLOCKS * t->elements;

		/* at an odd address */
		random_blocks(t, golden_decoded[i].type, golden_decoded[i].halves,
			      golden_decoded[i].n_halves, blocks + 1);
		stored_read(t, blocks + 1, n, false, floats);
		ok(hash_words(floats, n) == golden_decoded[i].hash, "%s: the floats of gguf-py",
		   t->name);
		for (size_t k = 0; k < n; k += t->elements) {
			stored_read(t, blocks + 1 + stored_bytes(t, k), t->elements, false, one);
			check(!memcmp(one, floats + k, t->elements * sizeof(*one)));
		}
		ok_all("%s: a block alone gives the same", t->name);
		stored_read(t, blocks + 1, n, true, narrow);
		for (size_t k = 0; k < n; k++)
			check(narrow[k] == bf16_of_float(floats[k]));
		ok_all("%s: and rounded to bf16", t->name);
	}
}

/* Makes the random rows and importances of stored_types.py. */
static void random_rows(float x[GOLDEN_ROWS][GOLDEN_ROW], float importance[GOLDEN_ROW])
{
	uint64_t state = 1000;

	for (int r = 0; r < GOLDEN_ROWS; r++)
		for (int i = 0; i < GOLDEN_ROW; i++) {
			int64_t v = (int64_t)(mix_next(&state) >> 40) - (1 << 23);
			float f = (float)v * 0x1p-23f;

			f = f * f * f * ldexpf(1, r % 16 - 12);
			x[r][i] = r == 0   ? 0
				  : r == 1 ? 1
				  : r == 2 ? -fabsf(f)
				  : r == 3 ? fabsf(f)
					   : f;
			if (r == 4 && i % 32 == 0)
				x[r][i] = 100;
			if (r == 5)
				x[r][i] *= 0x1p-80f;
			if (r == 6 && i >= 100 && i < 400)
				x[r][i] = 0;
		}
	state = 2000;
	for (int i = 0; i < GOLDEN_ROW; i++) {
		uint64_t v = mix_next(&state);

		importance[i] = v % 16 ? (float)(v >> 40) * 0x1p-24f : 0;
	}
}

static uint64_t hash_quantised(const struct stored_type *t, float x[GOLDEN_ROWS][GOLDEN_ROW],
			       const float *importance, uint8_t *first)
{
	size_t bytes = stored_bytes(t, GOLDEN_ROW);
	uint8_t *out = malloc(bytes);
	uint64_t h = 0;

	for (int r = 0; r < GOLDEN_ROWS; r++) {
		t->from_float(x[r], GOLDEN_ROW, importance, out);
		if (r == 8)
			memcpy(first, out, t->bytes);
		for (size_t i = 0; i < bytes; i++)
			h = mix_add(h, out[i]);
	}
	free(out);
	return h;
}

TEST(quantised)
{
	static float x[GOLDEN_ROWS][GOLDEN_ROW], importance[GOLDEN_ROW];
	size_t quantised = 0;

	random_rows(x, importance);
	for (size_t i = 0; i < ARRAY_SIZE(golden_encoded); i++) {
		const struct stored_type *t = stored_type_of_ggml(golden_encoded[i].type);
		uint8_t first[256];
		char hex[513];

		ok(hash_quantised(t, x, importance, first) == golden_encoded[i].weighted_hash,
		   "%s: the blocks of ggml with importance", t->name);
		ok(hash_quantised(t, x, NULL, first) == golden_encoded[i].hash, "%s: and without",
		   t->name);
		for (size_t k = 0; k < t->bytes; k++)
			snprintf(hex + 2 * k, 3, "%02x", first[k]);
		is_str(hex, golden_encoded[i].first, "%s: a block byte by byte", t->name);
	}
	for (uint32_t i = 0; i < 64; i++) {
		const struct stored_type *t = stored_type_of_ggml(i);

		quantised += t && t->from_float && t->elements > 1;
	}
	is_int(quantised, ARRAY_SIZE(golden_encoded), "every type that quantises was tested");
}

/* Returns the root of the mean squared error of quantising n numbers, relative to that of the numbers. */
static double relative_error(const struct stored_type *t, const float *x, size_t n)
{
	float *back = malloc(n * sizeof(*back));
	void *blocks = malloc(stored_bytes(t, n));
	double error = 0, square = 0;

	t->from_float(x, n, NULL, blocks);
	t->to_float(blocks, back, n);
	for (size_t i = 0; i < n; i++) {
		error += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
		square += (double)x[i] * (double)x[i];
	}
	free(back);
	free(blocks);
	return sqrt(error / square);
}

TEST(errors)
{
	/* Sums of 12 uniform numbers are nearly normal. A code of b bits leaves an error near 2^-b. */
	static const struct {
		uint32_t type;
		double least, most;
	} bounds[] = {{8, 0.004, 0.008}, {14, 0.01, 0.022}, {13, 0.02, 0.045},
		      {12, 0.05, 0.085}, {2, 0.06, 0.105},  {39, 0.09, 0.14}};
	static float x[65536], tiny[256];
	uint64_t state = 5;

	for (size_t i = 0; i < ARRAY_SIZE(x); i++) {
		double sum = -6;

		for (int k = 0; k < 12; k++)
			sum += (double)(mix_next(&state) >> 11) * 0x1p-53;
		x[i] = (float)sum;
	}
	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		const struct stored_type *t = stored_type_of_ggml(bounds[i].type);
		double error = relative_error(t, x, ARRAY_SIZE(x));

		ok(error > bounds[i].least && error < bounds[i].most,
		   "%s loses %.4f of normal numbers", t->name, error);
	}
	/* Numbers below the least scale become 0, not infinities or NaN. */
	for (size_t i = 0; i < ARRAY_SIZE(tiny); i++)
		tiny[i] = ldexpf(i % 2 ? 1 : -1, -120 - (int)(i % 30));
	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		const struct stored_type *t = stored_type_of_ggml(bounds[i].type);
		uint8_t blocks[8 * 34];
		float back[256];

		t->from_float(tiny, 256, NULL, blocks);
		t->to_float(blocks, back, 256);
		for (int k = 0; k < 256; k++)
			check(fabsf(back[k]) <= 0x1p-118f);
	}
	ok_all("tiny numbers stay tiny");
}

TEST_MAIN()
