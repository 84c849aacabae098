#include "scheduler/chunking.h"

uint32_t chunking_window(uint32_t align, uint32_t start, uint32_t n_prompt, uint32_t budget)
{
	uint32_t left = n_prompt - start;

	return left <= budget ? left : budget - budget % align;
}

struct chosen {
	uint32_t start, end, state_tokens;
	struct kept_state *out;
	uint32_t n;
};

/* Chooses the state at `at`, rounded down, if it is inside the window, not chosen yet, and there is room for it. */
static void choose(struct chosen *c, uint32_t at, enum prefix_checkpoint kind)
{
	at -= at % c->state_tokens;
	if (at <= c->start || at >= c->end || c->n == SNAPSHOTS_MAX)
		return;
	for (uint32_t i = 0; i < c->n; i++)
		if (c->out[i].n_tokens == at)
			return;
	c->out[c->n++] = (struct kept_state){.n_tokens = at, .kind = kind};
}

/* Returns the index of the request's first boundary >= from, by bisection; n_boundaries: there is none. */
static uint32_t boundary_from(const struct request *r, uint32_t from)
{
	uint32_t low = 0, high = r->ask.n_boundaries;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (r->ask.boundaries[mid] < from)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

uint32_t chunking_checkpoints(const struct request *r, uint32_t start, uint32_t end,
			      uint32_t state_tokens, struct kept_state out[SNAPSHOTS_MAX])
{
	struct chosen c = {.start = start, .end = end, .state_tokens = state_tokens, .out = out};
	uint32_t first, last;

	if (!state_tokens || end - start <= state_tokens)
		return 0;
	/* A boundary below start + state_tokens rounds down to start or less. */
	first = boundary_from(r, start + state_tokens);
	last = boundary_from(r, end);
	if (end == r->ask.n_prompt)
		choose(&c, r->ask.n_prompt - 1, PREFIX_CHECKPOINT_PROMPT);
	for (uint32_t i = 0; i < r->n_wanted; i++)
		choose(&c, r->wanted[i], PREFIX_CHECKPOINT_MESSAGE);
	if (first < last) {
		choose(&c, r->ask.boundaries[last - 1], PREFIX_CHECKPOINT_MESSAGE);
		choose(&c, r->ask.boundaries[first], PREFIX_CHECKPOINT_MESSAGE);
	}
	for (uint32_t i = last; i > first && c.n < SNAPSHOTS_MAX; i--)
		choose(&c, r->ask.boundaries[i - 1], PREFIX_CHECKPOINT_MESSAGE);
	return c.n;
}
