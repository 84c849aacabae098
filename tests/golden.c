#include "tests/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/macros.h"
#include "tests/memory_share.h"

/* the largest difference of a float32 log-probability that is allowed */
#define BOUND 2e-4f

/* Returns zeroed memory that lives until the program ends. */
static void *kept(size_t n, size_t size)
{
	static struct arena arena;
	void *p;

	if (!arena.max)
		arena_init(&arena, (size_t)1 << 32);
	p = arena_array(&arena, n, size);
	if (!p)
		abort();
	return p;
}

static void read_ids(const json_t *a, struct ids *out)
{
	out->v = kept(json_array_size(a), sizeof(*out->v));
	for (; out->len < json_array_size(a); out->len++)
		out->v[out->len] = (int32_t)json_integer_value(json_array_get(a, out->len));
}

bool golden_open(const char *dir, struct golden *ret)
{
	char path[4096];
	json_error_t error;
	json_t *root, *cases;

	snprintf(path, sizeof(path), "%s/golden.json", dir);
	root = json_load_file(path, 0, &error);
	cases = json_object_get(root, "cases");
	if (!json_is_array(cases)) {
		printf("# %s: %s\n", path, root ? "no cases" : error.text);
		json_decref(root);
		return false;
	}
	ret->n = json_array_size(cases);
	ret->cases = kept(ret->n, sizeof(*ret->cases));
	for (size_t i = 0; i < ret->n; i++) {
		const json_t *c = json_array_get(cases, i), *steps = json_object_get(c, "steps");
		const json_t *max = json_object_get(c, "max_tokens");
		struct golden_case *g = &ret->cases[i];
		const char *name = json_string_value(json_object_get(c, "name"));

		if (name)
			snprintf(g->name, sizeof(g->name), "%s", name);
		else
			snprintf(g->name, sizeof(g->name), "case %zu", i + 1);
		read_ids(json_object_get(c, "prompt_ids"), &g->prompt);
		read_ids(json_object_get(c, "output_ids"), &g->output);
		g->max_tokens = max ? (uint32_t)json_integer_value(max) : (uint32_t)g->output.len;
		g->steps = kept(json_array_size(steps), sizeof(*g->steps));
		for (size_t k = 0; k < json_array_size(steps); k++) {
			const json_t *s = json_array_get(steps, k);

			for (size_t j = 0; j < GOLDEN_TOP; j++) {
				g->steps[k].ids[j] = (int32_t)json_integer_value(
					json_array_get(json_object_get(s, "ids"), j));
				g->steps[k].logprobs[j] = (float)json_number_value(
					json_array_get(json_object_get(s, "logprobs"), j));
			}
			g->steps[k].margin = (float)json_number_value(json_object_get(s, "margin"));
		}
	}
	json_decref(root);
	return true;
}

struct sampling run_greedy(void)
{
	return (struct sampling){.top_p = 1,
				 .repetition_penalty = 1,
				 .n_logprobs = GOLDEN_TOP,
				 .want_logprobs = true};
}

static bool submit(struct scheduler *s, struct engine *g, struct run *r)
{
	const struct model_config *m = &engine_info(g)->model;
	struct scheduler_request q = {
		.prompt = r->prompt,
		.n_prompt = r->n_prompt,
		.max_tokens = r->max_tokens,
		.min_tokens = r->min_tokens,
		.allowed = r->allowed,
		.biases = r->biases,
		.n_biases = r->n_biases,
		.n_choices = r->n_choices ? r->n_choices : 1,
		.end_tokens = r->end_tokens ? r->end_tokens : m->end_tokens,
		.n_end_tokens = r->ignore_end	? 0
				: r->end_tokens ? r->n_end_tokens
						: m->n_end_tokens,
		.prompt_logprobs = r->prompt_logprobs,
		.first_score = r->first_score,
		.pooling = r->pooling,
		.n_prompt_logprobs = r->prompt_logprobs ? GOLDEN_TOP : 0,
		.sampling = r->sampling,
		.user = r,
	};
	struct err e = {0};
	uint64_t id;

	if (scheduler_submit(s, &q, &id, &e) == 0)
		return true;
	printf("# submit: %s\n", e.text);
	return false;
}

/* Makes room for the results of a request. */
static void make_room(struct run *r)
{
	r->hit = (struct scheduler_hit){0};
	for (uint32_t c = 0; c < MAX(r->n_choices, 1u); c++) {
		r->out[c] = (struct ids){.v = kept(r->max_tokens, sizeof(*r->out[c].v))};
		r->draws[c] = kept(r->max_tokens, sizeof(*r->draws[c]));
	}
	r->scores = r->prompt_logprobs ? kept(r->n_prompt, sizeof(*r->scores)) : NULL;
	r->n_scores = r->prompt_logprobs ? MAX(r->first_score, 1u) : 0;
	r->n_pooled = 0;
}

/* Keeps the scores of an event; they must come in order, each once. */
static void keep_scores(struct run *r, const struct scheduler_event *ev)
{
	if (ev->first_score != r->n_scores || ev->n_scores > r->n_prompt - r->n_scores)
		abort();
	memcpy(r->scores + r->n_scores, ev->scores, ev->n_scores * sizeof(*r->scores));
	r->n_scores += ev->n_scores;
}

static void keep(struct engine *g, const struct scheduler_event *ev)
{
	struct run *r = ev->user;
	struct ids *out = &r->out[ev->choice];

	r->hit = ev->hit;
	if (ev->scores) {
		keep_scores(r, ev);
		return;
	}
	if (ev->pooled && !r->n_pooled) {
		r->n_pooled = engine_info(g)->model.hidden_size;
		r->pooled = kept(r->n_pooled, sizeof(*r->pooled));
		memcpy(r->pooled, engine_pooled(g, ev->pooling), r->n_pooled * sizeof(float));
	}
	if (!ev->draw && ev->request_finished && ev->finish == FINISH_LENGTH)
		return;
	if (out->len == r->max_tokens)
		abort();
	r->draws[ev->choice][out->len] = *ev->draw;
	out->v[out->len++] = ev->draw->token;
}

struct engine_options run_options(const char *dir, const char *dtype, uint32_t max_seqs,
				  uint32_t max_prefill_tokens)
{
	return (struct engine_options){
		.model_dir = dir,
		.dtype = strncmp(dtype, "bfloat16", strlen("bfloat16")) ? ENGINE_FLOAT32
									: ENGINE_BFLOAT16,
		.kv_dtype = strstr(dtype, ",int8") ? ENGINE_KV_INT8 : ENGINE_KV_AUTO,
		.program_cache = getenv("TIGON_PROGRAM_CACHE"),
		.device_memory_share = test_memory_share(),
		.page_tokens = 64,
		.max_seqs = max_seqs,
		.max_prefill_tokens = max_prefill_tokens,
	};
}

struct run *golden_runs(const struct golden *g)
{
	struct run *runs = kept(g->n, sizeof(*runs));

	for (size_t i = 0; i < g->n; i++)
		runs[i] = run_of(g->cases[i].prompt.v, g->cases[i].prompt.len,
				 g->cases[i].max_tokens);
	return runs;
}

struct run run_of(const int32_t *prompt, size_t n_prompt, uint32_t max_tokens)
{
	return (struct run){.prompt = prompt,
			    .n_prompt = (uint32_t)n_prompt,
			    .max_tokens = max_tokens,
			    .ignore_end = true,
			    .sampling = run_greedy()};
}

struct run_setup run_setup_of(const struct engine_options *o)
{
	return (struct run_setup){
		.max_seqs = o->max_seqs,
		.budget = o->max_prefill_tokens,
		.page_tokens = o->page_tokens,
	};
}

static struct scheduler_config config_of(const struct engine_info *i, const struct run_setup *setup,
					 uint32_t plans_out)
{
	bool states = i->slot_bytes > 0;

	return (struct scheduler_config){
		.page_tokens = setup->page_tokens,
		.state_tokens = states ? setup->page_tokens : 0,
		.n_pages = setup->n_pages ? setup->n_pages : i->n_pages,
		.n_slots = !states	    ? 0
			   : setup->n_slots ? setup->n_slots
					    : i->n_slots,
		.page_bytes = i->page_bytes,
		.slot_bytes = i->slot_bytes,
		.cache_disabled = !setup->cache,
		.refuse_decoded = setup->refuse_decoded,
		.max_plans_out = plans_out,
		.max_seqs = setup->max_seqs,
		.max_prefill_tokens = setup->budget,
		.max_model_len = i->max_model_len,
		.vocab_size = i->model.vocab_size,
	};
}

/* Submits the requests whose arrival has come, each once; false: one was refused. */
static bool submit_arrived(struct scheduler *s, struct engine *g, struct run *runs, size_t n,
			   bool *submitted, uint32_t step)
{
	for (size_t k = 0; k < n; k++) {
		if (submitted[k] || runs[k].arrival > step)
			continue;
		submitted[k] = true;
		if (!submit(s, g, &runs[k]))
			return false;
	}
	return true;
}

/* Returns the number of the last step before which a request arrives. */
static uint32_t last_arrival(const struct run *runs, size_t n)
{
	uint32_t last = 0;

	for (size_t k = 0; k < n; k++)
		last = MAX(last, runs[k].arrival);
	return last;
}

/* Waits for the oldest plan, commits it, and keeps its results; false: the engine failed. p: with setup->watch, that
 * plan. */
static bool finish_step(struct scheduler *s, struct engine *g, const struct run_setup *setup,
			const struct plan *p, struct draw_result *results,
			struct scheduler_event *events)
{
	struct err e = {0};
	uint32_t n;

	if (engine_wait(g, results, &e) < 0) {
		printf("# step: %s\n", e.text);
		return false;
	}
	if (setup->watch)
		setup->watch(setup->arg, p, results);
	n = scheduler_commit(s, results, events);
	for (uint32_t k = 0; k < n; k++)
		keep(g, &events[k]);
	return true;
}

static bool all_there(const struct scheduler *s, const struct scheduler_config *c,
		      struct scheduler_stats *ret)
{
	const struct prefix_stats *p = &ret->cache;

	scheduler_stats(s, ret);
	prefix_cache_check(scheduler_cache(s));
	return !ret->running && !ret->waiting && p->free_pages + p->tree_pages == c->n_pages &&
	       p->free_slots + p->tree_slots == c->n_slots && p->evictable_pages == p->tree_pages &&
	       p->evictable_slots == p->tree_slots;
}

/* Checks, when all requests have ended, that every page and slot that is not free is the cache's and can be evicted,
 * and that a flush frees them. */
static bool idle_without_leaks(struct scheduler *s, const struct scheduler_config *c,
			       struct scheduler_stats *ret)
{
	struct scheduler_stats flushed;

	if (all_there(s, c, ret) && scheduler_flush(s) == 0 && all_there(s, c, &flushed) &&
	    !flushed.cache.nodes && !flushed.cache.used_bytes)
		return true;
	printf("# idle: %u running, %u waiting, of %u pages %llu free and %llu (%llu) cached, of %u slots %llu and "
	       "%llu (%llu)\n",
	       ret->running, ret->waiting, c->n_pages, (unsigned long long)ret->cache.free_pages,
	       (unsigned long long)ret->cache.tree_pages,
	       (unsigned long long)ret->cache.evictable_pages, c->n_slots,
	       (unsigned long long)ret->cache.free_slots, (unsigned long long)ret->cache.tree_slots,
	       (unsigned long long)ret->cache.evictable_slots);
	return false;
}

bool run_all(struct engine *g, const struct run_setup *setup, struct run *runs, size_t n)
{
	uint32_t depth = setup->one_plan || setup->watch ? 1 : ENGINE_STEPS_OUT;
	struct scheduler_config config = config_of(engine_info(g), setup, depth);
	struct draw_result *results = calloc(setup->max_seqs + setup->budget, sizeof(*results));
	struct scheduler_event *events = calloc(2ull * setup->max_seqs, sizeof(*events));
	bool *submitted = calloc(n + 1, sizeof(*submitted));
	struct scheduler_stats stats = {0};
	struct scheduler *s = NULL;
	struct err e = {0};
	uint32_t step = 0, out = 0;
	bool good = scheduler_new(&config, &s, &e) == 0;

	if (!good)
		printf("# scheduler: %s\n", e.text);
	for (size_t i = 0; i < n; i++)
		make_room(&runs[i]);
	if (good && setup->shuffle)
		good = scheduler_shuffle(s, setup->shuffle) == 0;
	while (good) {
		const struct plan *p = NULL;

		good = submit_arrived(s, g, runs, n, submitted, step);
		if (good && out < depth)
			p = scheduler_plan(s);
		if (p) {
			good = engine_submit(g, p, &e) == 0;
			if (!good)
				printf("# step: %s\n", e.text);
			out++;
			step++;
		}
		if (!good || (p && out < depth))
			continue;
		if (out) {
			good = finish_step(s, g, setup, p, results, events);
			out--;
		} else if (step++ >= last_arrival(runs, n)) {
			break;
		}
	}
	good = good && idle_without_leaks(s, &config, &stats);
	if (setup->stats)
		*setup->stats = stats;
	scheduler_free(s);
	free(results);
	free(events);
	free(submitted);
	return good;
}

size_t golden_same_steps(const struct golden_case *c, const struct run *r, float margin)
{
	const struct ids *out = &r->out[0];
	size_t n = 0;

	while (n < c->output.len && n < out->len && out->v[n] == c->output.v[n])
		n++;
	if ((n == c->output.len && n == out->len) ||
	    (n < c->output.len && c->steps[n].margin < margin))
		return n;
	printf("# %s, step %zu of %zu: %d instead of %d, margin %g\n", c->name, n, c->output.len,
	       n < out->len ? out->v[n] : -1, n < c->output.len ? c->output.v[n] : -1,
	       n < c->output.len ? (double)c->steps[n].margin : 0);
	return SIZE_MAX;
}

/* Returns the largest difference of the log-probabilities that a step lists. Where two are nearly equal, the last of
 * ours may be that of another token; it stands in for a listed token that we lack. */
static float step_difference(const struct golden_step *s, const struct draw_result *d)
{
	float most = 0;

	for (size_t j = 0; j < GOLDEN_TOP; j++) {
		float ours = d->n_top ? d->top_logprobs[d->n_top - 1] : -INFINITY;

		for (size_t k = 0; k < d->n_top; k++)
			if (d->top_ids[k] == s->ids[j])
				ours = d->top_logprobs[k];
		ours = fabsf(ours - s->logprobs[j]);
		most = fmaxf(most, isnan(ours) ? INFINITY : ours);
	}
	return most;
}

bool golden_scores_match(const struct golden_case *c, const struct run *r, float *worst)
{
	for (size_t k = 0; k < c->output.len; k++) {
		size_t at = c->prompt.len + k;
		float most;

		if (at >= r->n_scores || r->scores[at].token != c->output.v[k]) {
			printf("# %s: %u of the prompt's %u tokens\n", c->name, r->n_scores,
			       r->n_prompt);
			return false;
		}
		most = step_difference(&c->steps[k], &r->scores[at]);
		*worst = fmaxf(*worst, most);
		if (most <= BOUND)
			continue;
		printf("# %s, token %zu: a log-probability is off by %g\n", c->name, at,
		       (double)most);
		return false;
	}
	return true;
}

bool golden_matches(const struct golden_case *c, const struct run *r, float *worst)
{
	size_t n = golden_same_steps(c, r, 2 * BOUND);

	for (size_t k = 0; n != SIZE_MAX && k < n; k++) {
		float most = step_difference(&c->steps[k], &r->draws[0][k]);

		*worst = fmaxf(*worst, most);
		if (most <= BOUND)
			continue;
		printf("# %s, step %zu: a log-probability is off by %g\n", c->name, k,
		       (double)most);
		return false;
	}
	return n != SIZE_MAX;
}

static bool same_bits(float a, float b)
{
	return !memcmp(&a, &b, sizeof(a));
}

static bool same_draw(const struct draw_result *a, const struct draw_result *b)
{
	bool same = a->token == b->token && same_bits(a->logprob, b->logprob) &&
		    a->n_top == b->n_top && a->rank == b->rank;

	for (uint32_t k = 0; same && k < a->n_top; k++)
		same = a->top_ids[k] == b->top_ids[k] &&
		       same_bits(a->top_logprobs[k], b->top_logprobs[k]);
	return same;
}

static bool same_scores(const struct run *a, const struct run *b, const char *name)
{
	if (a->n_scores != b->n_scores) {
		printf("# %s: %u and %u of %u tokens of the prompt\n", name, a->n_scores,
		       b->n_scores, a->n_prompt);
		return false;
	}
	for (uint32_t i = 1; i < a->n_scores; i++)
		if (!same_draw(&a->scores[i], &b->scores[i])) {
			printf("# %s: token %u of %u of the prompt: %.9g and %.9g\n", name, i,
			       a->n_prompt, (double)a->scores[i].logprob,
			       (double)b->scores[i].logprob);
			return false;
		}
	return true;
}

static bool same_pooled(const struct run *a, const struct run *b, const char *name)
{
	if (a->n_pooled == b->n_pooled &&
	    (!a->n_pooled || !memcmp(a->pooled, b->pooled, a->n_pooled * sizeof(*a->pooled))))
		return true;
	printf("# %s: %u prompt tokens: vectors of %u and %u numbers differ\n", name, a->n_prompt,
	       a->n_pooled, b->n_pooled);
	return false;
}

bool run_same(const struct run *a, const struct run *b, const char *name)
{
	if (!same_scores(a, b, name) || !same_pooled(a, b, name))
		return false;
	for (size_t c = 0; c < RUN_CHOICES; c++) {
		size_t n = MIN(a->out[c].len, b->out[c].len);

		for (size_t k = 0; k < n; k++) {
			const struct draw_result *x = &a->draws[c][k], *y = &b->draws[c][k];

			if (same_draw(x, y))
				continue;
			printf("# %s: %u prompt tokens, choice %zu, step %zu: %d at %.9g, and %d at %.9g\n",
			       name, a->n_prompt, c, k, x->token, (double)x->logprob, y->token,
			       (double)y->logprob);
			return false;
		}
		if (a->out[c].len == b->out[c].len)
			continue;
		printf("# %s: %u prompt tokens, choice %zu: %zu tokens, and %zu\n", name,
		       a->n_prompt, c, a->out[c].len, b->out[c].len);
		return false;
	}
	return true;
}

float runs_apart(const struct run *a, const struct run *b, size_t n, size_t *ret_tokens)
{
	float apart = 0;

	*ret_tokens = 0;
	for (size_t i = 0; i < n; i++) {
		const struct ids *x = &a[i].out[0], *y = &b[i].out[0];
		bool same = x->len == y->len && !memcmp(x->v, y->v, x->len * sizeof(*x->v));

		if (!same) {
			printf("# %s: pair %zu has other tokens\n", __func__, i);
			return INFINITY;
		}
		for (size_t k = 0; k < x->len; k++, ++*ret_tokens)
			apart = fmaxf(apart,
				      fabsf(a[i].draws[0][k].logprob - b[i].draws[0][k].logprob));
	}
	return apart;
}
