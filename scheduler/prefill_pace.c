#include "scheduler/prefill_pace.h"

#include "base/macros.h"

static void add(struct prefill_times *t, double value)
{
	t->values[t->n++ % PREFILL_PACE_STEPS] = value;
}

/* Returns the median, of an even number of values the larger one in the middle; 0: there is none. */
static double median(const struct prefill_times *t)
{
	uint32_t n = (uint32_t)MIN(t->n, (uint64_t)PREFILL_PACE_STEPS);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t below = 0;

		for (uint32_t k = 0; k < n; k++)
			below += t->values[k] < t->values[i] ||
				 (t->values[k] == t->values[i] && k < i);
		if (below == n / 2)
			return t->values[i];
	}
	return 0;
}

void prefill_pace_note(struct prefill_pace *p, uint32_t n_prompt_tokens, uint32_t n_decode_rows,
		       double seconds)
{
	if (!n_prompt_tokens) {
		add(&p->decode_s, seconds);
		return;
	}
	if (n_decode_rows)
		seconds -= median(&p->decode_s);
	if (seconds > 0)
		add(&p->token_s, seconds / n_prompt_tokens);
}

uint32_t prefill_pace_tokens(const struct prefill_pace *p)
{
	double token_s = median(&p->token_s), tokens;

	if (p->limit_s <= 0 || !p->token_s.n)
		return UINT32_MAX;
	tokens = p->limit_s / token_s;
	return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}
