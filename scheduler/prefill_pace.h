/* How many prompt tokens a step may have while sequences decode, so that the prompts delay every answer by about a
 * given time in each step. A device computes a step's prompt tokens at a speed that is not known before, and that
 * changes with their number. So the time of a step is measured, and what the last such steps took for a token decides
 * how many tokens the next one gets. This is the token budget of Sarathi-Serve (Agrawal et al., OSDI 2024, section
 * 4.2), found while the daemon runs instead of before.
 *
 * A step with prompt tokens takes longer than one without by the time of its prompt tokens. Of each of the two kinds
 * the median of the last PREFILL_PACE_STEPS steps counts, because a single step may be very slow: kernels are compiled,
 * or another process has the processor. While prompts wait all the time, no step is without prompt tokens. What such a
 * step takes is then known of an earlier batch of sequences only. If that is more than the whole of a later step, the
 * later step says nothing.
 *
 * Pure: times are arguments. One thread. */
#pragma once

#include <stdint.h>

enum { PREFILL_PACE_STEPS = 5 };

/* The last values of one kind; all zeros: none yet. */
struct prefill_times {
	double values[PREFILL_PACE_STEPS];
	uint64_t n; /* how many have been added */
};

/* The pace of one device. Set limit_s, and zero the rest. */
struct prefill_pace {
	double limit_s; /* the most seconds that prompt tokens add to a step; 0: no limit */
	struct prefill_times decode_s; /* seconds of a step without prompt tokens */
	struct prefill_times token_s;  /* seconds of a prompt token */
};

/* Notes a step that took `seconds` on the device, after the step before it had ended. n_decode_rows: its sequences that
 * decoded. */
void prefill_pace_note(struct prefill_pace *p, uint32_t n_prompt_tokens, uint32_t n_decode_rows,
		       double seconds);

/* Returns the most prompt tokens of a step in which sequences decode, for scheduler_pace. UINT32_MAX: there is no
 * limit, or no step with prompt tokens has been measured. */
uint32_t prefill_pace_tokens(const struct prefill_pace *p);
