#include "daemon/cli/simulate/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/simulate/lines.h"
#include "daemon/steps/record.h"

struct replay {
	struct scheduler *s;
	struct draw_result *draws;	/* [max_seqs + max_prefill_tokens] */
	struct scheduler_event *events; /* [2 max_seqs] */
	uint32_t max_seqs, max_out, vocab_size;
	uint32_t n_draws[2], n_out; /* [n_out] draws of the plans that are out, oldest first */
	uint64_t plans, requests, tokens;
};

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static uint64_t hex(const json_t *v)
{
	const char *text = json_string_value(v);

	return text ? strtoull(text, NULL, 16) : 0;
}

static int read_config(const json_t *from, struct scheduler_config *ret, struct err *e)
{
#define FIELD(name, max)                                                                 \
	if (number(from, #name) > (max))                                                 \
		return err_set(e, EINVAL, "\"" #name "\" is not between 0 and %" PRIu64, \
			       (uint64_t)(max));                                         \
	ret->name = (__typeof__(ret->name))number(from, #name);
	RECORD_CONFIG(FIELD)
#undef FIELD
	return 0;
}

static int begin(struct replay *p, const json_t *line, struct err *e)
{
	struct scheduler_config config = {0};
	int r;

	if (number(line, "tigond_record") != 1)
		return err_set(e, EINVAL, "not a file of tigond --record");
	r = read_config(json_object_get(line, "config"), &config, e);
	if (r == 0)
		r = scheduler_new(&config, &p->s, e);
	if (r < 0)
		return r;
	p->max_seqs = config.max_seqs;
	p->max_out = config.max_plans_out;
	p->vocab_size = config.vocab_size;
	p->draws = calloc((size_t)config.max_seqs + config.max_prefill_tokens, sizeof(*p->draws));
	p->events = calloc(config.max_seqs, 2 * sizeof(*p->events));
	return p->draws && p->events ? 0 : err_no_memory(e);
}

/* Returns the numbers of a line's member, such as token ids, in an array that the caller frees. NULL: out of memory. */
static int32_t *ids(const json_t *line, const char *key, uint32_t *ret_n)
{
	const json_t *array = json_object_get(line, key), *v;
	int32_t *out = calloc(json_array_size(array) + 1, sizeof(*out));
	size_t i;

	*ret_n = (uint32_t)json_array_size(array);
	if (out)
		json_array_foreach(array, i, v) out[i] = (int32_t)json_integer_value(v);
	return out;
}

static enum scheduler_handoff handoff_of(uint64_t v)
{
	return v == HANDOFF_RECEIVE || v == HANDOFF_SEND ? (enum scheduler_handoff)v : HANDOFF_NONE;
}

static enum pooling pooling_of(uint64_t v)
{
	return v == POOLING_LAST || v == POOLING_MEAN ? (enum pooling)v : POOLING_NONE;
}

static int submit(struct replay *p, const json_t *line, struct err *e)
{
	const json_t *space = json_object_get(line, "space");
	struct scheduler_request q = {
		.max_tokens = (uint32_t)number(line, "max_tokens"),
		.min_tokens = (uint32_t)number(line, "min_tokens"),
		.n_choices = (uint32_t)number(line, "n"),
		.priority = (int32_t)json_integer_value(json_object_get(line, "priority")),
		.space.id = {hex(json_array_get(space, 0)), hex(json_array_get(space, 1))},
		.cache_disabled = number(line, "cache_disabled"),
		.prompt_logprobs = number(line, "prompt_logprobs"),
		.first_score = (uint32_t)number(line, "first_score"),
		.pooling = pooling_of(number(line, "pooling")),
		.handoff = handoff_of(number(line, "handoff")),
		.n_have = (uint32_t)number(line, "n_have"),
		.owner = number(line, "owner"),
		.needs_last = number(line, "needs_last"),
		.sampling = {.top_p = 1, .repetition_penalty = number(line, "penalised") ? 2 : 1},
	};
	int32_t *prompt = ids(line, "prompt", &q.n_prompt),
		*ends = ids(line, "end_tokens", &q.n_end_tokens),
		*boundaries = ids(line, "boundaries", &q.n_boundaries);
	uint64_t id = 0;
	int r = -ENOMEM;

	q.prompt = prompt;
	q.end_tokens = ends;
	q.boundaries = (const uint32_t *)boundaries;
	if (prompt && ends && boundaries)
		r = scheduler_submit(p->s, &q, &id, e);
	if (r == 0 && id != number(line, "submit"))
		r = err_set(e, EINVAL, "the request has number %" PRIu64 " here", id);
	p->requests++;
	free(prompt);
	free(ends);
	free(boundaries);
	return r;
}

static int plan(struct replay *p, const json_t *wanted, struct err *e)
{
	const struct plan *got;

	if (p->n_out == p->max_out)
		return err_set(e, EINVAL, "more plans are out than %u", p->max_out);
	got = scheduler_plan(p->s);
	if (!got != json_is_null(wanted))
		return err_set(e, EINVAL, "there is %s plan here", got ? "a" : "no");
	if (!got)
		return 0;
	if (plan_hash(got) != hex(wanted))
		return err_set(e, EINVAL, "plan %" PRIu64 " is another here (%016" PRIx64 ")",
			       got->step, plan_hash(got));
	p->n_draws[p->n_out++] = got->n_draws;
	p->plans++;
	return 0;
}

/* Reads recorded tokens into p->draws. least: the smallest number that is allowed, 0 or -1; -1 stands for a draw that
 * failed. -EINVAL: there are more tokens than max_seqs, or one of them is smaller than `least` or beyond the
 * vocabulary. */
static int read_draws(struct replay *p, const json_t *tokens, int least, struct err *e)
{
	size_t i;
	json_t *v;

	if (json_array_size(tokens) > p->max_seqs)
		return err_set(e, EINVAL, "more tokens than sequences can run");
	json_array_foreach(tokens, i, v)
	{
		json_int_t token = json_integer_value(v);

		if (!json_is_integer(v) || token < least || token >= p->vocab_size)
			return err_set(e, EINVAL, "a drawn number is no token");
		p->draws[i] = (struct draw_result){.token = (int32_t)token};
	}
	return 0;
}

static int commit(struct replay *p, const json_t *tokens, struct err *e)
{
	uint32_t n;
	int r;

	if (!p->n_out || json_array_size(tokens) != p->n_draws[0])
		return err_set(e, EINVAL, "the plan that is out draws %u tokens",
			       p->n_out ? p->n_draws[0] : 0);
	r = read_draws(p, tokens, -1, e);
	if (r < 0)
		return r;
	n = scheduler_commit(p->s, p->draws, p->events);
	for (uint32_t k = 0; k < n; k++)
		p->tokens += p->events[k].draw != NULL;
	p->n_draws[0] = p->n_draws[1];
	p->n_out--;
	return 0;
}

/* Calls scheduler_received, with the first tokens of a prompt that another worker computed. */
static int received(struct replay *p, const json_t *line, struct err *e)
{
	int r;

	/* The line may have fewer tokens than the request has choices; the other choices then get token 0. */
	memset(p->draws, 0, p->max_seqs * sizeof(*p->draws));
	r = read_draws(p, json_object_get(line, "tokens"), 0, e);
	if (r == 0)
		p->tokens +=
			scheduler_received(p->s, number(line, "received"), p->draws, p->events);
	return r;
}

static int replay_line(struct replay *p, const json_t *line, struct err *e)
{
	const json_t *v;

	if (!p->s)
		return begin(p, line, e);
	if (json_object_get(line, "submit"))
		return submit(p, line, e);
	if ((v = json_object_get(line, "plan")))
		return plan(p, v, e);
	if ((v = json_object_get(line, "commit")))
		return commit(p, v, e);
	if (json_object_get(line, "pace")) {
		scheduler_pace(p->s, (uint32_t)number(line, "pace"));
		return 0;
	}
	if (json_object_get(line, "abort")) {
		scheduler_abort(p->s, number(line, "abort"));
		return 0;
	}
	if (json_object_get(line, "finish")) {
		scheduler_finish_choice(p->s, number(line, "finish"),
					(uint32_t)number(line, "choice"));
		return 0;
	}
	if (json_object_get(line, "received"))
		return received(p, line, e);
	if (json_object_get(line, "receive_failed")) {
		scheduler_receive_failed(p->s, number(line, "receive_failed"),
					 number(line, "again"));
		return 0;
	}
	if (json_object_get(line, "shipped")) {
		scheduler_shipped(p->s, number(line, "shipped"));
		return 0;
	}
	if (json_object_get(line, "fail")) {
		if (p->n_out)
			scheduler_fail(p->s, p->events);
		p->n_out = 0;
		return 0;
	}
	if (json_object_get(line, "flush"))
		return scheduler_flush(p->s) < 0 ? err_set(e, EBUSY, "requests live here") : 0;
	return err_set(e, EINVAL, "no call that is known");
}

int replay_file(const char *path, struct err *e)
{
	struct replay p = {0};
	struct lines l;
	bool cut = false;
	int r = lines_open(&l, path, e);

	if (r < 0)
		return r;
	while (!cut && (r = lines_next(&l, e)) > 0) {
		json_t *line = json_loadb(buf_str(&l.text), l.text.len, 0, NULL);

		/* A daemon that was killed may leave an incomplete last line. */
		cut = p.s && !line && !l.ended && buf_str(&l.text)[0] == '{';
		r = cut			   ? 0
		    : json_is_object(line) ? replay_line(&p, line, e)
					   : err_set(e, EINVAL, "not JSON");
		json_decref(line);
		if (r < 0) {
			err_prefix(e, "%s, line %lu", path, l.number);
			break;
		}
	}
	if (r == 0 && !p.s)
		r = err_set(e, EINVAL, "%s is empty", path);
	if (r == 0)
		printf("%" PRIu64 " plans of %" PRIu64 " requests and %" PRIu64
		       " tokens: all as recorded\n",
		       p.plans, p.requests, p.tokens);
	if (r == 0 && cut)
		printf("the last line, %lu, is cut off: the recording did not come to its end\n",
		       l.number);
	scheduler_free(p.s);
	free(p.draws);
	free(p.events);
	lines_close(&l);
	return r;
}
