#include "scheduler/prefill_pace.h"

#include "tests/tap.h"

TEST(unlimited)
{
	struct prefill_pace p = {0};

	prefill_pace_note(&p, 100, 0, 1);
	ok(prefill_pace_tokens(&p) == UINT32_MAX, "no limit");
	p = (struct prefill_pace){.limit_s = 0.2};
	ok(prefill_pace_tokens(&p) == UINT32_MAX, "no step with prompt tokens yet");
	prefill_pace_note(&p, 0, 8, 0.1);
	ok(prefill_pace_tokens(&p) == UINT32_MAX, "one without says nothing");
	prefill_pace_note(&p, 2048, 0, 0);
	ok(prefill_pace_tokens(&p) == UINT32_MAX, "nor does one that took no time");
	prefill_pace_note(&p, 1u << 20, 0, 1e-12);
	ok(prefill_pace_tokens(&p) == UINT32_MAX, "nearly none is no limit");
}

TEST(limit)
{
	struct prefill_pace p = {.limit_s = 0.25};

	prefill_pace_note(&p, 1024, 0, 1);
	is_int(prefill_pace_tokens(&p), 256, "a quarter of a second at 1,024 tokens a second");
	p = (struct prefill_pace){.limit_s = 0.25};
	prefill_pace_note(&p, 0, 8, 0.5);
	prefill_pace_note(&p, 1024, 8, 1.5);
	is_int(prefill_pace_tokens(&p), 256, "what the sequences take is not the prompt's");
	prefill_pace_note(&p, 64, 8, 0.4);
	prefill_pace_note(&p, 64, 8, 0.4);
	is_int(prefill_pace_tokens(&p), 256,
	       "a step that was faster than those without a prompt says nothing");
}

TEST(outliers)
{
	struct prefill_pace p = {.limit_s = 0.25};

	for (int i = 0; i < 3; i++)
		prefill_pace_note(&p, 1024, 0, 1);
	prefill_pace_note(&p, 64, 0, 60);
	prefill_pace_note(&p, 64, 0, 60);
	is_int(prefill_pace_tokens(&p), 256,
	       "two of five steps that compiled for a minute count as little as others");
	prefill_pace_note(&p, 64, 0, 60);
	is_int(prefill_pace_tokens(&p), 0, "three of the last five count");
	for (int i = 0; i < 3; i++)
		prefill_pace_note(&p, 512, 0, 1);
	is_int(prefill_pace_tokens(&p), 128, "until there are three of another speed");
}

/* A device whose steps take a fixed time and besides a time for each token. */
TEST(convergence)
{
	struct prefill_pace p = {.limit_s = 0.3};
	uint32_t n = 2048;

	for (int i = 0; i < 60; i++) {
		prefill_pace_note(&p, 0, 8, 0.1);
		prefill_pace_note(&p, n, 8, 0.1 + 0.1 + 0.001 * n);
		n = prefill_pace_tokens(&p);
		n = n < 64 ? 64 : n > 2048 ? 2048 : n;
	}
	ok(n >= 195 && n <= 205, "%u tokens, of the 200 that fill the time", n);
}

TEST_MAIN()
