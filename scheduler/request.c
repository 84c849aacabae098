#include "scheduler/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "prefix_cache/pool.h"

int request_new(const struct scheduler_request *from, struct request **ret)
{
	uint64_t n_ids = (uint64_t)from->n_prompt + from->n_end_tokens;
	uint64_t size = sizeof(struct request) + from->n_choices * sizeof(struct sequence) +
			n_ids * sizeof(int32_t); /* < 2^40 */
	struct request *r;

	if (size > SIZE_MAX / 2)
		return -ENOMEM;
	r = malloc((size_t)size);
	if (!r)
		return -ENOMEM;
	*r = (struct request){
		.user = from->user,
		.state = REQUEST_SUBMITTED,
		.n_prompt = from->n_prompt,
		.max_tokens = from->max_tokens,
		.min_tokens = from->min_tokens,
		.n_end_tokens = from->n_end_tokens,
		.n_choices = from->n_choices,
		.n_live = from->n_choices,
		.sampling = from->sampling,
	};
	list_init(&r->waiting);
	for (uint32_t i = 0; i < r->n_choices; i++) {
		r->choices[i] = (struct sequence){
			.request = r,
			.choice = i,
			.seat = POOL_NONE,
			.slot = POOL_NONE,
		};
		list_init(&r->choices[i].node);
	}
	r->prompt = (int32_t *)(r->choices + r->n_choices);
	r->end_tokens = r->prompt + r->n_prompt;
	memcpy(r->prompt, from->prompt, r->n_prompt * sizeof(int32_t));
	if (r->n_end_tokens)
		memcpy(r->end_tokens, from->end_tokens, r->n_end_tokens * sizeof(int32_t));
	*ret = r;
	return 0;
}

void request_free(struct request *r)
{
	free(r);
}

static const char *state_name(enum request_state s)
{
	switch (s) {
	case REQUEST_SUBMITTED: return "Submitted";
	case REQUEST_PREFILLING: return "Prefilling";
	case REQUEST_DECODING: return "Decoding";
	case REQUEST_FINISHED: return "Finished";
	case REQUEST_ABORTED: return "Aborted";
	}
	return "?";
}

static const char *event_name(enum request_event e)
{
	switch (e) {
	case REQUEST_ADMIT: return "admit";
	case REQUEST_PREFILLED: return "prefilled";
	case REQUEST_FINISH: return "finish";
	case REQUEST_ABORT: return "abort";
	}
	return "?";
}

void request_advance(struct request *r, enum request_event event)
{
	bool alive = r->state != REQUEST_FINISHED && r->state != REQUEST_ABORTED;

	if (event == REQUEST_ADMIT && r->state == REQUEST_SUBMITTED) {
		r->state = REQUEST_PREFILLING;
	} else if (event == REQUEST_PREFILLED && r->state == REQUEST_PREFILLING) {
		r->state = REQUEST_DECODING;
	} else if (event == REQUEST_FINISH && alive) {
		r->state = REQUEST_FINISHED;
	} else if (event == REQUEST_ABORT && alive) {
		r->state = REQUEST_ABORTED;
	} else {
		log_error("bug: request %llu got the event '%s' in the state %s",
			  (unsigned long long)r->id, event_name(event), state_name(r->state));
		abort();
	}
}

void request_end_choice(struct sequence *q)
{
	if (q->ended)
		return;
	q->ended = true;
	if (--q->request->n_live == 0)
		request_advance(q->request, REQUEST_FINISH);
}

void request_abort(struct request *r)
{
	if (request_over(r))
		return;
	request_advance(r, REQUEST_ABORT);
	for (uint32_t i = 0; i < r->n_choices; i++)
		r->choices[i].ended = true;
	r->n_live = 0;
}

enum finish_reason request_draw(struct sequence *q, int32_t token)
{
	const struct request *r = q->request;
	enum finish_reason finish = FINISH_NONE;

	q->last_token = token;
	q->n_generated++;
	if (q->n_generated == r->max_tokens)
		finish = FINISH_LENGTH;
	for (uint32_t i = 0; i < r->n_end_tokens; i++)
		if (r->end_tokens[i] == token)
			finish = FINISH_STOP;
	if (finish != FINISH_NONE)
		request_end_choice(q);
	return finish;
}

struct sequence *request_first_live(struct request *r)
{
	for (uint32_t i = 0; i < r->n_choices; i++)
		if (!r->choices[i].ended)
			return &r->choices[i];
	return NULL;
}
