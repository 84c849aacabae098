/* Cuts a prompt into windows (the tokens that a request prefills in one step), and chooses the states inside a window
 * to keep.
 *
 * A window ends at the end of the prompt or at a multiple of `align`, the larger of page_tokens and state_tokens. In
 * the engine both are multiples of CHUNK_TOKENS. So every window begins at an absolute multiple of CHUNK_TOKENS, the same
 * chunks are computed whatever the budget was, and a page is whole before another request can share it. The part of
 * the budget below a multiple of align is not used. */
#pragma once

#include "scheduler/request.h"

/* Tokens of the window that begins at `start` (a multiple of align, < n_prompt). 0: the budget is too small; never with a budget of
 * `align` or more. */
uint32_t chunking_window(uint32_t align, uint32_t start, uint32_t n_prompt, uint32_t budget);

struct checkpoint {
	uint32_t n_tokens;
	enum prefix_checkpoint kind;
};

/* Chooses states inside the window [start, end) of r's prompt that are worth a slot, at multiples n of state_tokens
 * with start < n < end. Returns their number. The most valuable comes first:
 *
 *     1. the last one before the prompt's last token: the same prompt, or its next turn, resumes there
 *     2. those where the prompt leaves another one (r->wanted)
 *     3. the last boundary of the request, then the first (the end of a system prompt), then the others from the back */
uint32_t chunking_checkpoints(const struct request *r, uint32_t start, uint32_t end,
			      uint32_t state_tokens, struct checkpoint out[SNAPSHOTS_MAX]);
