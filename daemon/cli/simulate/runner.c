#include "daemon/cli/simulate/runner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"

struct sim {
	struct workload *w;
	const struct cost_model *cost;
	struct scheduler *s;
	struct sim_result *result;
	struct draw_result *draws; /* [max_seqs] */
	struct scheduler_event *events;
	/* Plans that are out, oldest first. end: when the device has ended the step. */
	struct {
		struct sim_step step;
		double end;
	} out[2];
	struct prefill_pace pace;
	uint32_t n_out;
	double now, device_free;
	uint64_t in_flight;
};

struct flight *flight_new(struct workload *w)
{
	struct sim_request q;
	struct flight *f = NULL;

	if (workload_next(w, &q) == 0)
		f = calloc(1, sizeof(*f) + q.n_output * sizeof(f->output[0]));
	if (f)
		f->q = q;
	return f;
}

int flight_submit(struct flight *f, struct scheduler *s, enum scheduler_handoff handoff,
		  struct err *e)
{
	const struct sim_request *q = &f->q;
	const struct scheduler_request r = {
		.prompt = q->prompt,
		.n_prompt = q->n_prompt,
		.max_tokens = q->n_output,
		.n_choices = 1,
		.boundaries = q->boundaries,
		.n_boundaries = q->n_boundaries,
		.priority = q->priority,
		.space = q->space,
		.handoff = handoff,
		.sampling = {.top_p = 1, .repetition_penalty = 1},
		.user = f,
	};
	uint64_t id;

	return scheduler_submit(s, &r, &id, e);
}

int flight_end(struct flight *f, struct workload *w, double now)
{
	int r = workload_done(w, f->q.tag, now, f->output, f->n);

	free(f);
	return r;
}

static double thread_us(void)
{
	return (double)clock_read_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-3;
}

static int submit_next(struct sim *m, struct err *e)
{
	struct flight *f = flight_new(m->w);
	int r;

	if (!f)
		return err_no_memory(e);
	m->result->requests++;
	r = flight_submit(f, m->s, HANDOFF_NONE, e);
	if (r == 0) {
		m->in_flight++;
		return 0;
	}
	free(f);
	m->result->failed++;
	return r == -ENOMEM ? r : 0; /* a request that can never run is counted and skipped */
}

struct sim_step sim_step_of(const struct cost_model *c, const struct plan *p)
{
	return (struct sim_step){.n_draws = p->n_draws,
				 .n_prompt_tokens = p->n_prefill_tokens,
				 .n_decode_rows = p->n_rows - p->n_prefill_rows,
				 .seconds = cost_of(c, p)};
}

static int note_plan(struct sim *m, const struct plan *p, double us)
{
	struct sim_result *r = m->result;
	struct scheduler_stats stats;

	if (!array_grow(r->plans, r->plans_room, r->steps + 1))
		return -ENOMEM;
	scheduler_stats(m->s, &stats);
	r->plans[r->steps++] = (struct plan_sample){.nodes = (float)stats.cache.nodes,
						    .plan_us = (float)us,
						    .rows = p->n_rows};
	r->peak_bytes = MAX(r->peak_bytes, stats.cache.used_bytes);
	r->peak_nodes = MAX(r->peak_nodes, stats.cache.nodes);
	r->peak_running = MAX(r->peak_running, stats.running);
	r->computed_tokens += p->n_prefill_tokens;
	return 0;
}

/* Plans one step if there is work; *planned: a plan was made. -ENOMEM. */
static int plan_step(struct sim *m, bool *planned)
{
	double begin = thread_us();
	const struct plan *p;
	struct sim_step step;

	scheduler_pace(m->s, prefill_pace_tokens(&m->pace));
	p = scheduler_plan(m->s);
	begin = thread_us() - begin;
	*planned = p;
	if (!p)
		return 0;
	step = sim_step_of(m->cost, p);
	/* The step's tokens are made up when the step is committed (workload_token). */
	m->device_free = MAX(m->device_free, m->now) + step.seconds;
	m->out[m->n_out].step = step;
	m->out[m->n_out++].end = m->device_free;
	if (note_plan(m, p, begin) < 0 || samples_add(&m->result->step_s, step.seconds) < 0)
		return -ENOMEM;
	return 0;
}

static int take_event(struct sim *m, const struct scheduler_event *ev)
{
	struct flight *f = ev->user;

	if (!f->n && samples_add(&m->result->ttft_s, m->now - f->q.at) < 0)
		return -ENOMEM;
	f->output[f->n++] = ev->draw->token;
	m->result->generated_tokens++;
	if (!ev->request_finished)
		return 0;
	m->in_flight--;
	return flight_end(f, m->w, m->now);
}

static int commit_oldest(struct sim *m)
{
	double begin;
	uint32_t n;
	uint64_t step = m->result->steps - m->n_out;
	const struct sim_step *done = &m->out[0].step;

	m->now = MAX(m->now, m->out[0].end);
	prefill_pace_note(&m->pace, done->n_prompt_tokens, done->n_decode_rows, done->seconds);
	for (uint32_t i = 0; i < done->n_draws; i++)
		m->draws[i] = (struct draw_result){.token = workload_token(step, i)};
	begin = thread_us();
	n = scheduler_commit(m->s, m->draws, m->events);
	m->result->plans[step].commit_us = (float)(thread_us() - begin);
	m->out[0] = m->out[1];
	m->n_out--;
	for (uint32_t i = 0; i < n; i++)
		if (take_event(m, &m->events[i]) < 0)
			return -ENOMEM;
	return 0;
}

static int run_steps(struct sim *m, uint32_t plans_out, struct err *e)
{
	for (;;) {
		bool planned = false;
		double at;
		int r;

		while (workload_peek(m->w, &at) && at <= m->now) {
			r = submit_next(m, e);
			if (r < 0)
				return r;
		}
		r = plan_step(m, &planned);
		if (r == 0 && m->n_out && (!planned || m->n_out == plans_out))
			r = commit_oldest(m);
		else if (r == 0 && !planned) {
			if (!workload_peek(m->w, &at))
				return 0;
			m->now = MAX(m->now, at);
		}
		if (r < 0)
			return err_set(e, -r, "out of memory");
	}
}

int sim_run(struct workload *w, const struct scheduler_config *config,
	    const struct cost_model *cost, struct sim_result *ret, struct err *e)
{
	struct sim m = {.w = w, .cost = cost, .result = ret, .pace.limit_s = cost->max_prefill_s};
	int r = scheduler_new(config, &m.s, e);

	*ret = (struct sim_result){0};
	if (r < 0)
		return r;
	m.draws = calloc(config->max_seqs, sizeof(*m.draws));
	m.events = calloc(config->max_seqs, sizeof(*m.events));
	r = m.draws && m.events ? run_steps(&m, config->max_plans_out, e) : err_no_memory(e);
	/* Only a stuck scheduler, or a run that failed, leaves requests behind. */
	ret->failed += m.in_flight;
	scheduler_stats(m.s, &ret->end);
	ret->prompt_tokens = ret->end.prompt_tokens;
	ret->cached_tokens = ret->end.cached_tokens;
	ret->seconds = m.now;
	scheduler_free(m.s);
	free(m.draws);
	free(m.events);
	return r;
}

void sim_result_release(struct sim_result *r)
{
	samples_release(&r->ttft_s);
	samples_release(&r->step_s);
	free(r->plans);
	*r = (struct sim_result){0};
}
