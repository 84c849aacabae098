#include "scheduler/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "scheduler/waiting.h"

/* Copies an array to *at, moves *at behind the copy, and returns the copy. */
static const void *append(char **at, const void *from, size_t bytes)
{
	void *copy = *at;

	if (bytes)
		memcpy(copy, from, bytes);
	*at += bytes;
	return copy;
}

static void copy_arrays(struct request *r, uint32_t n_keys, uint32_t n_words)
{
	struct scheduler_request *a = &r->ask;
	char *at = (char *)(r->choices + a->n_choices);

	if (a->page_keys)
		a->page_keys = append(&at, a->page_keys, n_keys * sizeof(*a->page_keys));
	a->prompt = append(&at, a->prompt, a->n_prompt * sizeof(*a->prompt));
	a->end_tokens = append(&at, a->end_tokens, a->n_end_tokens * sizeof(*a->end_tokens));
	a->boundaries = append(&at, a->boundaries, a->n_boundaries * sizeof(*a->boundaries));
	a->biases = append(&at, a->biases, a->n_biases * sizeof(*a->biases));
	if (a->allowed)
		a->allowed = append(&at, a->allowed, n_words * sizeof(*a->allowed));
	r->ship_pages = (uint32_t *)(void *)at;
	for (uint32_t i = 0; i < r->n_ship_pages; i++)
		r->ship_pages[i] = POOL_NONE;
}

static void init_choices(struct request *r)
{
	for (uint32_t i = 0; i < r->ask.n_choices; i++) {
		r->choices[i] = (struct sequence){
			.request = r,
			.choice = i,
			.seat = POOL_NONE,
			.slot = POOL_NONE,
			.source = POOL_NONE,
			.allowed = r->ask.allowed,
		};
		list_init(&r->choices[i].node);
	}
}

int request_new(const struct scheduler_request *from, const struct scheduler_config *config,
		struct request **ret)
{
	uint32_t whole = from->n_prompt / config->page_tokens;
	uint32_t n_keys = from->page_keys ? whole : 0;
	uint32_t n_words = from->allowed ? PLAN_MASK_WORDS(config->vocab_size) : 0;
	uint32_t n_ship_pages = from->handoff == HANDOFF_SEND ? whole : 0;
	uint64_t n_ids = (uint64_t)from->n_prompt + from->n_end_tokens + from->n_boundaries +
			 n_words + n_ship_pages;
	uint64_t size = sizeof(struct request) + from->n_choices * sizeof(struct sequence) +
			n_keys * sizeof(struct content_key) +
			from->n_biases * sizeof(struct plan_bias) +
			n_ids * sizeof(int32_t); /* < 2^40 */
	struct request *r;

	if (size > SIZE_MAX / 2)
		return -ENOMEM;
	r = malloc((size_t)size);
	if (!r)
		return -ENOMEM;
	*r = (struct request){
		.ask = *from,
		.waiting_index = WAITING_NONE,
		.state = REQUEST_SUBMITTED,
		.n_live = from->n_choices,
		.n_ship_pages = n_ship_pages,
	};
	if (from->handoff != HANDOFF_SEND)
		r->ask.n_have = 0;
	r->ask.first_score = MAX(from->first_score, 1u);
	list_init(&r->leading);
	list_init(&r->followers);
	list_init(&r->following);
	list_init(&r->receiving);
	copy_arrays(r, n_keys, n_words);
	init_choices(r);
	*ret = r;
	return 0;
}

void request_free(struct request *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		free(r->choices[i].generated);
	free(r);
}

static const char *const state_names[] = {
	[REQUEST_SUBMITTED] = "Submitted", [REQUEST_PREFILLING] = "Prefilling",
	[REQUEST_RECEIVING] = "Receiving", [REQUEST_PREFILL_DONE] = "PrefillDone",
	[REQUEST_DECODING] = "Decoding",   [REQUEST_RETRACTED] = "Retracted",
	[REQUEST_SHIPPING] = "Shipping",   [REQUEST_FINISHED] = "Finished",
	[REQUEST_ABORTED] = "Aborted",
};

/* The tables in request.h, a row for each event: its name, the states in which it may come, and the state that
 * follows. */
#define IN(state) (1u << REQUEST_##state)
#define ALIVE                                                                               \
	(IN(SUBMITTED) | IN(PREFILLING) | IN(RECEIVING) | IN(PREFILL_DONE) | IN(DECODING) | \
	 IN(RETRACTED))

static const struct {
	const char *name;
	unsigned from;
	enum request_state to;
} events[] = {
	[REQUEST_ADMIT] = {"admit", IN(SUBMITTED) | IN(RETRACTED), REQUEST_PREFILLING},
	[REQUEST_PROMPT_PLANNED] = {"prompt planned", IN(PREFILLING), REQUEST_PREFILL_DONE},
	[REQUEST_ROW_PLANNED] = {"row planned", IN(PREFILL_DONE) | IN(DECODING), REQUEST_DECODING},
	[REQUEST_RETRACT] = {"retract", IN(PREFILL_DONE) | IN(DECODING), REQUEST_RETRACTED},
	[REQUEST_FINISH] = {"finish", ALIVE, REQUEST_FINISHED},
	[REQUEST_ABORT] = {"abort", ALIVE | IN(SHIPPING), REQUEST_ABORTED},
	[REQUEST_RECEIVE] = {"receive", IN(SUBMITTED), REQUEST_RECEIVING},
	[REQUEST_ARRIVE] = {"arrive", IN(RECEIVING), REQUEST_PREFILL_DONE},
	[REQUEST_GIVE_BACK] = {"give back", IN(RECEIVING), REQUEST_SUBMITTED},
	[REQUEST_SENT] = {"sent", IN(PREFILL_DONE), REQUEST_SHIPPING},
	[REQUEST_SHIPPED] = {"shipped", IN(SHIPPING), REQUEST_FINISHED},
};

void request_advance(struct request *r, enum request_event event)
{
	if (!(events[event].from >> r->state & 1)) {
		log_error("bug: request %llu got the event '%s' in the state %s",
			  (unsigned long long)r->id, events[event].name, state_names[r->state]);
		abort();
	}
	r->state = events[event].to;
}

void request_end_choice(struct sequence *q)
{
	struct request *r = q->request;

	if (q->ended)
		return;
	q->ended = true;
	if (--r->n_live == 0)
		request_advance(r, r->ask.handoff == HANDOFF_SEND && q->n_generated
					   ? REQUEST_SENT
					   : REQUEST_FINISH);
}

void request_abort(struct request *r)
{
	if (request_over(r) && !request_ships(r))
		return;
	request_advance(r, REQUEST_ABORT);
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		r->choices[i].ended = true;
	r->n_live = 0;
}

int request_reserve_draw(struct sequence *q)
{
	return array_grow(q->generated, q->generated_room, q->n_generated + q->n_drawing + 1)
		       ? 0
		       : -ENOMEM;
}

int request_reserve_first_draws(struct request *r)
{
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended && request_reserve_draw(&r->choices[i]) < 0)
			return -ENOMEM;
	return 0;
}

bool request_ends_with(const struct request *r, int32_t token)
{
	for (uint32_t i = 0; i < r->ask.n_end_tokens; i++)
		if (r->ask.end_tokens[i] == token)
			return true;
	return false;
}

enum finish_reason request_draw(struct sequence *q, int32_t token)
{
	const struct request *r = q->request;
	enum finish_reason finish = FINISH_NONE;

	q->generated[q->n_generated++] = token;
	if (q->n_generated == r->ask.max_tokens)
		finish = FINISH_LENGTH;
	if (request_ends_with(r, token))
		finish = FINISH_STOP;
	if (finish != FINISH_NONE)
		request_end_choice(q);
	return finish;
}

uint64_t request_length(const struct request *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			n += request_known(&r->choices[i]);
	return n;
}

struct sequence *request_first_live(struct request *r)
{
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			return &r->choices[i];
	return NULL;
}

void request_tokens(const struct sequence *q, uint32_t from, uint32_t n, int32_t *out)
{
	const struct request *r = q->request;
	uint32_t in_prompt = from < r->ask.n_prompt ? MIN(n, r->ask.n_prompt - from) : 0;

	if (in_prompt)
		memcpy(out, r->ask.prompt + from, in_prompt * sizeof(*out));
	if (n > in_prompt)
		memcpy(out + in_prompt, q->generated + (from + in_prompt - r->ask.n_prompt),
		       (n - in_prompt) * sizeof(*out));
}
