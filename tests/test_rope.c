/* engine/rope: the frequencies are those that transformers 5.23.0 computes, but for the last bits of a power. */
#include <math.h>

#include "base/macros.h"
#include "engine/rope.h"
#include "tests/tap.h"

enum { SOME = 8 };

static const struct {
	const char *name;
	struct model_config config;
	struct {
		uint32_t j;
		float f;
	} of[SOME];
} cases[] = {
	{"Llama 3.1",
	 {.rotary_dim = 128,
	  .rope_theta = 500000,
	  .rope_scaling = ROPE_LLAMA3,
	  .rope_factor = 8,
	  .rope_low_factor = 1,
	  .rope_high_factor = 4,
	  .rope_original_context = 8192},
	 {{0, 0x1p+0f},
	  {1, 0x1.a11582p-1f},
	  {26, 0x1.3d2804p-8f},
	  {28, 0x1.a4ee4p-9f},
	  {30, 0x1.67a23ap-10f},
	  {32, 0x1.132ba4p-11f},
	  {34, 0x1.765ba4p-13f},
	  {63, 0x1.4985fep-22f}}},
	{"Llama 3.2",
	 {.rotary_dim = 64,
	  .rope_theta = 500000,
	  .rope_scaling = ROPE_LLAMA3,
	  .rope_factor = 32,
	  .rope_low_factor = 1,
	  .rope_high_factor = 4,
	  .rope_original_context = 8192},
	 {{0, 0x1p+0f},
	  {1, 0x1.53c38cp-1f},
	  {10, 0x1.0f5386p-6f},
	  {12, 0x1.ddee9ep-8f},
	  {14, 0x1.a4ee4p-9f},
	  {16, 0x1.c26c4p-12f},
	  {18, 0x1.46831ap-16f},
	  {31, 0x1.9483600p-24f}}},
	{"linear",
	 {.rotary_dim = 256, .rope_theta = 1e6, .rope_scaling = ROPE_LINEAR, .rope_factor = 8},
	 {{0, 0x1p-3f},
	  {1, 0x1.cb9da6p-4f},
	  {58, 0x1.f4f1ep-13f},
	  {60, 0x1.93aeb8p-13f},
	  {62, 0x1.454deep-13f},
	  {64, 0x1.0624dep-13f},
	  {66, 0x1.a67e5p-14f},
	  {127, 0x1.2b07b4p-23f}}},
	{"as it is",
	 {.rotary_dim = 8, .rope_theta = 10000},
	 {{0, 1}, {1, 0.1f}, {2, 0.01f}, {3, 0.001f}}},
};

TEST(recorded)
{
	float f[128];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		rope_frequencies(&cases[i].config, f);
		for (size_t k = 0; k < SOME && cases[i].of[k].f > 0; k++) {
			float want = cases[i].of[k].f, got = f[cases[i].of[k].j];

			/* In the middle of Llama 3's range an error of the power weighs four times. */
			check(fabsf(got - want) <= 4 * 0x1p-23f * want);
		}
		ok_all("%s", cases[i].name);
	}
}

TEST_MAIN()
