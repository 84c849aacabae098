/* Draws configurations, prompts and requests from the source. */
#include "tests/scheduler_model_internal.h"

#include <string.h>

uint32_t model_below(struct source *src, uint32_t n)
{
	uint32_t v = 0;

	if (src->bytes) {
		for (uint32_t k = n; k > 1 && src->n_bytes; k /= 256, src->n_bytes--)
			v = v << 8 | *src->bytes++;
		return v % n;
	}
	src->state = src->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(src->state >> 33) % n;
}

bool model_chance(struct model *m, uint32_t one_in)
{
	return model_below(m->src, one_in) == 0;
}

/* Draws a length. Those around page ends are as likely as all others together. */
static uint32_t draw_length(struct model *m)
{
	uint32_t P = m->config.page_tokens;

	switch (model_below(m->src, 4)) {
	case 0: return model_below(m->src, 8);
	case 1: return P * model_below(m->src, 8) + model_below(m->src, 3);
	case 2: return P * (1 + model_below(m->src, 8)) - 1;
	default: return model_below(m->src, m->config.max_model_len + 4);
	}
}

/* Draws a prompt that begins like an earlier text (model.texts) and mostly goes on otherwise. */
static void draw_prompt(struct model *m, struct rule_request *q)
{
	const struct text *t = &m->texts[model_below(m->src, REMEMBERED)];
	uint32_t n = model_chance(m, 2) ? t->n : model_below(m->src, t->n + 1);
	uint32_t length = model_chance(m, 2) ? n + model_below(m->src, 6) : draw_length(m);

	length = MIN(length, (uint32_t)RULES_LEN);
	for (uint32_t i = 0; i < length; i++)
		q->prompt[i] = i < n ? t->tokens[i] : (int32_t)model_below(m->src, LETTERS);
	q->r.n_prompt = length;
	if (!length && !model_chance(m, 16))
		q->prompt[q->r.n_prompt++] = 0;
	if (model_chance(m, 64) && length)
		q->prompt[model_below(m->src, length)] = VOCAB;
}

static bool memory_for(const struct model *m, const struct scheduler_request *r)
{
	const struct scheduler_config *c = &m->config;
	uint64_t pages = rules_pages_at_most(&m->rules, r);

	return pages <= c->n_pages &&
	       (!c->cache_bytes ||
		pages * c->page_bytes + (c->n_slots ? r->n_choices * c->slot_bytes : 0) <=
			c->cache_bytes);
}

const uint32_t *model_mask(struct model *m)
{
	/* the last two have only tokens that are end tokens of some requests */
	static const uint32_t masks[] = {0xffff, 0x00ff, 0x0f0f, 1u << END, 3u << END};

	return model_chance(m, 3) ? NULL : &masks[model_below(m->src, ARRAY_SIZE(masks))];
}

void model_draw_request(struct model *m, struct rule_request *q)
{
	static const struct plan_bias biases[] = {{.token = 1, .value = 1},
						  {.token = 4, .value = -2}};
	struct scheduler_request *r = &q->r;

	*q = (struct rule_request){.trunk = -1, .ship_slot = POOL_NONE};
	memset(q->ship_pages, 0xff, sizeof(q->ship_pages));
	for (uint32_t i = 0; i < RULES_SEQS; i++)
		q->choices[i].slot = q->choices[i].source = q->choices[i].seat = POOL_NONE;
	draw_prompt(m, q);
	r->max_tokens = model_chance(m, 5) ? draw_length(m) : 1 + model_below(m->src, 12);
	r->min_tokens = model_chance(m, 3) ? model_below(m->src, 5) : 0;
	r->n_choices = model_chance(m, 3) ? 1 + model_below(m->src, m->config.max_seqs) : 1;
	r->n_end_tokens = model_below(m->src, 3);
	r->priority = model_chance(m, 6) ? (int32_t)model_below(m->src, 3) - 1 : 0;
	r->owner = model_chance(m, 2) ? 0 : 1 + model_below(m->src, 2);
	r->cache_disabled = model_chance(m, 12);
	r->prompt_logprobs = model_chance(m, 10);
	r->n_prompt_logprobs = r->prompt_logprobs ? model_below(m->src, 3) : 0;
	if (r->prompt_logprobs && model_chance(m, 2))
		r->first_score = model_below(m->src, r->n_prompt + 2);
	r->space.id[0] = model_chance(m, 8) ? model_below(m->src, 3) : 0;
	r->sampling = (struct sampling){.seed = m->next_user, .repetition_penalty = 1};
	if (model_chance(m, 4))
		r->sampling.presence_penalty = 1;
	r->user = (void *)(uintptr_t)++m->next_user;
	for (uint32_t i = 0; i < r->n_end_tokens; i++)
		q->ends[i] = (int32_t)(END + i);
	r->n_boundaries =
		model_chance(m, 2) ? 0 : model_below(m->src, ARRAY_SIZE(q->boundaries) + 1);
	for (uint32_t i = 0, at = 0; i < r->n_boundaries; i++) {
		at += model_below(m->src, 10) + !model_chance(m, 64);
		q->boundaries[i] = at;
		if (at > r->n_prompt) /* rarely one boundary behind the prompt's end is left in */
			r->n_boundaries = model_chance(m, 32) ? i + 1 : i;
	}
	r->needs_last = model_chance(m, m->steered);
	if (model_chance(m, 4))
		r->allowed = model_mask(m);
	r->n_biases = model_chance(m, 4) ? model_below(m->src, 3) : 0;
	r->biases = biases;
	for (uint32_t i = 0; i < RULES_SEQS; i++)
		q->choices[i].allowed = r->allowed;
	r->handoff = m->handoff;
	if (m->handoff != HANDOFF_NONE && model_chance(m, 6))
		r->handoff = (enum scheduler_handoff)model_below(m->src, 3);
	if (r->handoff == HANDOFF_SEND && !model_chance(m, 32)) {
		r->max_tokens = 1;
		r->prompt_logprobs = false;
	}
	if (model_chance(m, 12)) {
		r->max_tokens = 0;
		r->pooling = (enum pooling)model_below(m->src, 3);
		r->n_choices = 1;
		r->handoff = HANDOFF_NONE;
	}
	if (model_chance(m, 32)) { /* rarely the request need not fit */
		r->max_tokens = draw_length(m);
		r->n_choices = model_below(m->src, m->config.max_seqs + 2);
		return;
	}
	/* Mostly the request fits, often only just. */
	r->n_prompt = MAX(MIN(r->n_prompt, m->config.max_model_len - 1), 1u);
	r->first_score = MIN(r->first_score, r->n_prompt);
	r->max_tokens = MIN(r->max_tokens, m->config.max_model_len - r->n_prompt);
	while (r->n_choices > 1 && !memory_for(m, r))
		r->n_choices--;
	while (r->max_tokens > 1 && !memory_for(m, r))
		r->max_tokens--;
	while (r->n_boundaries && q->boundaries[r->n_boundaries - 1] > r->n_prompt)
		r->n_boundaries--;
	if (r->handoff == HANDOFF_SEND && model_chance(m, 2)) {
		r->n_have = model_below(m->src, CEIL_DIV(r->n_prompt, m->config.page_tokens)) *
			    m->config.page_tokens;
		r->n_have += model_chance(m, 32);
	}
}

bool model_acceptable(const struct model *m, const struct rule_request *q)
{
	const struct scheduler_config *c = &m->config;
	const struct scheduler_request *r = &q->r;

	if (!r->n_prompt || !r->n_choices || r->n_choices > c->max_seqs ||
	    r->n_prompt + r->max_tokens > c->max_model_len || r->first_score > r->n_prompt)
		return false;
	if (r->max_tokens ? r->pooling != POOLING_NONE
			  : r->n_choices != 1 || r->handoff != HANDOFF_NONE)
		return false;
	if (r->handoff == HANDOFF_SEND && (r->max_tokens != 1 || r->prompt_logprobs ||
					   r->n_have % c->page_tokens || r->n_have >= r->n_prompt))
		return false;
	for (uint32_t i = 0; i < r->n_prompt; i++)
		if (q->prompt[i] >= VOCAB)
			return false;
	for (uint32_t i = 0; i < r->n_boundaries; i++)
		if (q->boundaries[i] > r->n_prompt ||
		    (i && q->boundaries[i] <= q->boundaries[i - 1]))
			return false;
	return memory_for(m, r);
}

void model_draw_config(struct model *m)
{
	struct scheduler_config *c = &m->config;
	struct source *src = m->src;

	c->page_tokens = 1u << model_below(src, 3);
	c->state_tokens = model_chance(m, 4) ? 0 : c->page_tokens << model_below(src, 2);
	c->max_seqs = 1 + model_below(src, RULES_SEQS);
	c->n_slots =
		c->state_tokens ? c->max_seqs + model_below(src, model_chance(m, 2) ? 4 : 20) : 0;
	c->n_pages = 2 + model_below(src, model_chance(m, 2) ? 24 : RULES_PAGES - 2);
	if (model_chance(m, 2))
		c->n_pages = 2 + 2 * RULES_LEN / (3 * c->page_tokens) + model_below(src, 16);
	c->max_prefill_tokens = MAX(c->page_tokens, c->state_tokens);
	c->max_prefill_tokens += model_below(src, 8 * c->max_prefill_tokens);
	c->max_model_len =
		model_chance(m, 8) ? 2 + model_below(src, 20) : RULES_LEN - model_below(src, 40);
	c->vocab_size = VOCAB;
	c->page_bytes = 1 + model_below(src, 3);
	c->slot_bytes = 1 + model_below(src, 8);
	if (model_chance(m, 3))
		c->cache_bytes = 1 + model_below(src, (uint32_t)(c->n_pages * c->page_bytes +
								 c->n_slots * c->slot_bytes));
	c->cache_disabled = model_chance(m, 24);
	c->refuse_decoded = model_chance(m, 8);
	c->max_waiting = model_chance(m, 6) ? 1 + model_below(src, 4) : 0;
	c->max_plans_out = 1 + model_below(src, 2);
	c->handoff_min_tokens = model_below(src, 16);
	m->steered = 1 + model_below(src, 4);
	m->handoff = (enum scheduler_handoff)(model_chance(m, 2) ? 0 : model_below(src, 3));
}

void model_remember(struct model *m, const struct rule_request *q, const struct rule_choice *c)
{
	struct text *t = &m->texts[model_below(m->src, REMEMBERED)];

	t->n = 0;
	for (uint32_t i = 0; i < q->r.n_prompt; i++)
		t->tokens[t->n++] = q->prompt[i];
	for (uint32_t i = 0; i < c->n_generated; i++)
		t->tokens[t->n++] = c->generated[i];
}
