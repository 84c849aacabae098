#include "scheduler/limits.h"

#include <errno.h>
#include <math.h>

#include "scheduler/admission.h"
#include "scheduler/handoff.h"

int limits_check_config(const struct scheduler_config *c, struct err *e)
{
	uint32_t align = MAX(c->page_tokens, c->state_tokens);

	if (!c->page_tokens || c->page_tokens > INT32_MAX)
		return err_set(e, EINVAL, "a page of %u tokens is not between 1 and %d",
			       c->page_tokens, INT32_MAX);
	if (c->state_tokens % c->page_tokens)
		return err_set(e, EINVAL, "checkpoints every %u tokens do not end with pages of %u",
			       c->state_tokens, c->page_tokens);
	if (c->max_prefill_tokens < align)
		return err_set(e, EINVAL,
			       "a prefill budget of %u tokens is less than a page of %u tokens",
			       c->max_prefill_tokens, align);
	if (!c->n_pages || !c->max_seqs)
		return err_set(e, EINVAL, "%u pages and %u sequences: both must be at least 1",
			       c->n_pages, c->max_seqs);
	if (c->n_slots > INT32_MAX)
		return err_set(e, EINVAL, "%u state slots are more than %d", c->n_slots, INT32_MAX);
	if (c->state_tokens && c->n_slots < c->max_seqs)
		return err_set(
			e, EINVAL,
			"there is memory for %u states, and %u sequences that may run at once "
			"(--max-num-seqs) take one each",
			c->n_slots, c->max_seqs);
	if (!c->state_tokens && c->n_slots)
		return err_set(e, EINVAL, "%u state slots for a model without state", c->n_slots);
	if (c->max_model_len < 2 || c->max_model_len > INT32_MAX)
		return err_set(e, EINVAL, "a context length of %u is not between 2 and %d",
			       c->max_model_len, INT32_MAX);
	if (!c->vocab_size || c->vocab_size > INT32_MAX)
		return err_set(e, EINVAL, "a vocabulary of %u tokens is not between 1 and %d",
			       c->vocab_size, INT32_MAX);
	if (c->max_plans_out < 1 || c->max_plans_out > STEPS_OUT_MAX)
		return err_set(e, EINVAL, "%u plans out are not between 1 and %d", c->max_plans_out,
			       STEPS_OUT_MAX);
	return 0;
}

static int check_tokens(const int32_t *ids, uint32_t n, uint32_t vocab_size, const char *param,
			struct err *e)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= vocab_size)
			return err_param(e, EINVAL, param,
					 "token %d (number %u) is not in the vocabulary of %u",
					 ids[i], i, vocab_size);
	return 0;
}

/* Checks lengths and the number of choices, and the memory that they need. */
static int check_sizes(const struct scheduler_config *c, const struct scheduler_request *q,
		       struct err *e)
{
	uint64_t length = (uint64_t)q->n_prompt + q->max_tokens, n_pages, bytes;

	if (!q->n_prompt)
		return err_param(e, EINVAL, "prompt", "the prompt has no tokens");
	if (!q->max_tokens && (q->n_choices != 1 || q->handoff != HANDOFF_NONE))
		return err_param(e, EINVAL, "max_tokens",
				 "max_tokens is 0, but more than one choice is wanted, or another "
				 "worker is to share the work");
	if (q->max_tokens && q->pooling != POOLING_NONE)
		return err_param(e, EINVAL, "max_tokens",
				 "max_tokens is %u, but a request for a vector generates nothing",
				 q->max_tokens);
	if (q->first_score > q->n_prompt)
		return err_set(
			e, EINVAL,
			"log-probabilities are wanted from token %u on, and the prompt has %u",
			q->first_score, q->n_prompt);
	if (length > c->max_model_len)
		return err_param(e, EINVAL, "max_tokens",
				 "%u prompt tokens and %u to generate are more than the context "
				 "length of %u tokens",
				 q->n_prompt, q->max_tokens, c->max_model_len);
	if (!q->n_choices || q->n_choices > c->max_seqs)
		return err_param(e, EINVAL, "n",
				 "%u choices are not between 1 and the %u sequences that can run "
				 "at the same time",
				 q->n_choices, c->max_seqs);
	n_pages = admission_pages(c, q->n_prompt, q->max_tokens, q->n_choices);
	if (n_pages > c->n_pages)
		return err_param(e, EINVAL, "max_tokens",
				 "the request needs %llu KV pages of %u tokens, and there are %u",
				 (unsigned long long)n_pages, c->page_tokens, c->n_pages);
	bytes = n_pages * c->page_bytes + (c->n_slots ? q->n_choices * c->slot_bytes : 0);
	if (c->cache_bytes && bytes > c->cache_bytes)
		return err_param(
			e, EINVAL, "max_tokens",
			"the request needs %llu bytes of KV pages and states, and there are %llu",
			(unsigned long long)bytes, (unsigned long long)c->cache_bytes);
	return 0;
}

static int check_biases(const struct scheduler_config *c, const struct scheduler_request *q,
			struct err *e)
{
	int64_t before = -1;

	if (q->n_biases > PLAN_BIASES_MAX)
		return err_param(e, EINVAL, "logit_bias", "%u biases are more than %d", q->n_biases,
				 PLAN_BIASES_MAX);
	for (uint32_t i = 0; i < q->n_biases; before = q->biases[i++].token) {
		const struct plan_bias *b = &q->biases[i];

		if (b->token <= before || (uint32_t)b->token >= c->vocab_size)
			return err_param(e, EINVAL, "logit_bias",
					 "token %d (number %u) is not in the vocabulary of %u, or "
					 "not rising",
					 b->token, i, c->vocab_size);
		if (!isfinite(b->value))
			return err_param(e, EINVAL, "logit_bias",
					 "the bias of token %d is not finite", b->token);
	}
	return 0;
}

int limits_check_request(const struct scheduler_config *c, const struct scheduler_request *q,
			 struct err *e)
{
	int r = check_sizes(c, q, e);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < q->n_boundaries; i++)
		if (q->boundaries[i] > q->n_prompt ||
		    (i && q->boundaries[i] <= q->boundaries[i - 1]))
			return err_set(e, EINVAL,
				       "boundary %u of the prompt is %u: not rising, or not in it",
				       i, q->boundaries[i]);
	if (q->sampling.n_logprobs > TOP_LOGPROBS_MAX)
		return err_param(e, EINVAL, "top_logprobs",
				 "%u log-probabilities a token are more than %d",
				 q->sampling.n_logprobs, TOP_LOGPROBS_MAX);
	if (q->n_prompt_logprobs > TOP_LOGPROBS_MAX)
		return err_param(e, EINVAL, "prompt_logprobs",
				 "%u log-probabilities a token of the prompt are more than %d",
				 q->n_prompt_logprobs, TOP_LOGPROBS_MAX);
	if (q->n_end_tokens > PLAN_BANNED_MAX)
		return err_param(e, EINVAL, "stop_token_ids",
				 "%u tokens that end an answer are more than %d", q->n_end_tokens,
				 PLAN_BANNED_MAX);
	r = handoff_check(c, q, e);
	if (r == 0)
		r = check_biases(c, q, e);
	if (r < 0)
		return r;
	r = check_tokens(q->prompt, q->n_prompt, c->vocab_size, "prompt", e);
	if (r < 0)
		return r;
	return check_tokens(q->end_tokens, q->n_end_tokens, c->vocab_size, "stop_token_ids", e);
}
