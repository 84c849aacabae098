#include "scheduler/chunking.h"

uint32_t chunking_window(uint32_t page_tokens, uint32_t start, uint32_t n_prompt, uint32_t budget)
{
	uint32_t left = n_prompt - start;

	return left <= budget ? left : budget - budget % page_tokens;
}
