/*
 * How a prompt is cut: the prompt tokens that a request runs in one step.
 *
 * A window ends where the prompt ends or where a page does. Pages are a multiple of CHUNK_TOKENS,
 * so that every window begins at an absolute multiple of it and the engine computes the same chunks
 * whatever the budget was; and a page is written whole before anyone could share it. What the floor
 * leaves over of the budget is not used.
 */
#ifndef SCHEDULER_CHUNKING_H
#define SCHEDULER_CHUNKING_H

#include <stdint.h>

/* Tokens of the window that begins at `start` (a multiple of page_tokens, < n_prompt); 0: not in
 * this step. With a budget of a page or more it is never 0. */
uint32_t chunking_window(uint32_t page_tokens, uint32_t start, uint32_t n_prompt, uint32_t budget);

#endif
