/* Cuts a prompt into windows (the tokens that a request prefills in one step), and chooses which states inside a window
 * are kept.
 *
 * A window ends at the end of the prompt or at a multiple of `align`, the larger of page_tokens and state_tokens. In
 * the engine both are multiples of CHUNK_TOKENS. So every window begins at an absolute multiple of CHUNK_TOKENS, the
 * same chunks are computed whatever the budget was, and a page is whole before another request can share it. A window
 * that does not reach the end of the prompt has a multiple of align as its length, and leaves the rest of the budget
 * unused.
 *
 * A span is the window that the whole prefill budget gives. If sequences can decode, scheduler_pace may make the
 * windows smaller; then a span has several windows, and the last one ends with it. States are chosen for a span, so
 * that small windows leave no more of them than a large one. */
#pragma once

#include "scheduler/request.h"

/* Returns the number of tokens of the window that begins at `start` (a multiple of align, < n_prompt). 0: the budget is
 * too small; never with a budget of `align` or more. */
uint32_t chunking_window(uint32_t align, uint32_t start, uint32_t n_prompt, uint32_t budget);

/* A state to keep, behind the first n_tokens tokens of the prompt. */
struct kept_state {
	uint32_t n_tokens;
	enum prefix_checkpoint kind;
};

/* Chooses up to SNAPSHOTS_MAX states inside the span [start, end) of r's prompt that are worth a slot, at multiples n
 * of state_tokens with start < n < end. Returns their number. The most valuable comes first:
 *
 *     1. in the prompt's last span, the last multiple before the prompt's last token: the same prompt, or its next
 *        turn, resumes there
 *     2. the positions in r->wanted, behind which the prompt parts from another prompt or from the cached prefixes
 *     3. of the request's boundaries in the span, rounded down: the last, then the first (in the first span often
 *        the end of a system prompt), then the others from the back */
uint32_t chunking_checkpoints(const struct request *r, uint32_t start, uint32_t end,
			      uint32_t state_tokens, struct kept_state out[SNAPSHOTS_MAX]);
