/* Coded weights: every panel comes back bit for bit, and one of normally distributed weights takes about
 * three quarters of their bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/coded.h"
#include "tests/random.h"
#include "tests/tap.h"

static float uniform(void)
{
	return (float)random_below(1 << 24) * 0x1p-24f;
}

static uint16_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return (uint16_t)(u >> 16);
}

enum kind { NORMAL, ZEROS, ANY, TWO_SIZES, OUTLIERS, SPECIAL, KINDS };

static const char *const names[KINDS] = {"normal",    "zeros",	  "any bits",
					 "two sizes", "outliers", "infinities and NaN"};

static uint16_t weight(enum kind kind, uint64_t i)
{
	/* a normally distributed number, by the method of Box and Muller */
	float v = sqrtf(-2 * logf(uniform() + 0x1p-25f)) * cosf(6.2831853f * uniform()) * 0.02f;

	switch (kind) {
	case ZEROS: return random_below(2) ? 0 : 0x8000;
	case ANY: return (uint16_t)random_below(1 << 16);
	case TWO_SIZES: return bits_of(i % 7 ? v : v * 0x1p-20f);
	case OUTLIERS:
		return bits_of(random_below(1000) ? v : ldexpf(v, (int)random_below(80) - 40));
	case SPECIAL: return random_below(50) ? bits_of(v) : (uint16_t)(0x7f80 | random_below(128));
	default: return bits_of(v);
	}
}

static void round_trip(enum kind kind, uint64_t K)
{
	uint64_t n = K * 16, bound = coded_panel_bound(K);
	uint16_t *pairs = calloc(n, 2), *back = calloc(n, 2);
	uint8_t *out = calloc(bound + 64, 1);
	size_t size;

	if (!pairs || !back || !out)
		abort();
	for (uint64_t i = 0; i < n; i++)
		pairs[i] = weight(kind, i);
	memset(out + bound, 0xa5, 64);
	size = coded_panel(pairs, K, out);
	check(size <= bound && size % CODED_UNIT == 0);
	for (size_t i = 0; i < 64; i++)
		check(out[bound + i] == 0xa5);
	coded_panel_decode(out, K, back);
	check(!memcmp(pairs, back, n * 2));
	if (kind == ZEROS)
		check(size == bound - n / 2);
	if (kind == NORMAL && K >= 512)
		check((double)size < 0.78 * (double)n * 2);
	free(pairs);
	free(back);
	free(out);
}

int main(void)
{
	static const uint64_t K[] = {16, 32, 496, 512, 528, 1024, 2048, 8192};

	for (int kind = 0; kind < KINDS; kind++) {
		for (size_t i = 0; i < ARRAY_SIZE(K); i++) {
			random_state = K[i] * KINDS + (uint64_t)kind;
			round_trip((enum kind)kind, K[i]);
		}
		ok_all("%s come back", names[kind]);
	}
	return done();
}
