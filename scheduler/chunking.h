/*
 * How a prompt is cut: the tokens that a request prefills in one step, and which states of it are
 * kept.
 *
 * A window ends where the prompt ends or at a multiple of `align`, the larger of page and state
 * chunk. For the engine both are multiples of CHUNK_TOKENS, so that every window begins at an
 * absolute multiple of it and the same chunks are computed whatever the budget was; and a page is
 * written whole before anyone could share it. What the floor leaves over of the budget is not used.
 */
#ifndef SCHEDULER_CHUNKING_H
#define SCHEDULER_CHUNKING_H

#include "scheduler/request.h"

/* Tokens of the window that begins at `start` (a multiple of align, < n_prompt); 0: not in this
 * step. With a budget of `align` or more it is never 0. */
uint32_t chunking_window(uint32_t align, uint32_t start, uint32_t n_prompt, uint32_t budget);

struct checkpoint {
	uint32_t n_tokens;
	enum prefix_checkpoint kind;
};

/*
 * The states inside the window [start, end) of r's prompt that are worth a slot: multiples of
 * state_tokens, start < n < end, the most wanted ones first: the last
 * that lies before the prompt's last token (the same prompt again, or its next turn, begins there);
 * where the prompt left what is known (r->wanted); the last boundary, the first one (a system
 * prompt ends there), and the others from the back.
 */
uint32_t chunking_checkpoints(const struct request *r, uint32_t start, uint32_t end,
			      uint32_t state_tokens, struct checkpoint out[SNAPSHOTS_MAX]);

#endif
