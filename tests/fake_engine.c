/*
 * An engine without a device, for tests of what is above it: engine.h over a pseudo model.
 *
 * It keeps what a real one keeps and nothing more: for every KV page the tokens written there, for
 * every state slot a running hash of its sequence. Each row reads its whole sequence back through
 * its block table and compares it with the state, so a plan that mixes up pages, slots or positions
 * ends the program. The next token is a function of the sequence: the recorded answer when the
 * model's golden.json has one for it, else a hash (with temperature: of seed, choice and position
 * too).
 *
 * Environment: FAKE_STEP_US, FAKE_LOAD_MS (delays), FAKE_PAGES (size of the KV pool),
 * FAKE_FAIL_STEP (that step fails as a lost device does), FAKE_LOAD_FAILS.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "engine/engine.h"

struct state {
	uint64_t hash;
	uint32_t len;
};

struct golden {
	struct ids prompt, output;
};

struct engine {
	struct engine_info info;
	struct engine_counters counters;
	uint32_t page_tokens;
	int32_t *kv;	      /* [n_pages][page_tokens] */
	struct state *states; /* [n_slots] */
	struct golden *goldens;
	size_t n_goldens;
	uint64_t fail_step, step_us;
};

#define must(condition)                                                                      \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			fprintf(stderr, "fake engine: wrong plan: %s (%s:%d)\n", #condition, \
				__FILE__, __LINE__);                                         \
			abort();                                                             \
		}                                                                            \
	} while (0)

static uint64_t setting(const char *name, uint64_t initial)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : initial;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
	h ^= h >> 30;
	h *= 0xbf58476d1ce4e5b9u;
	h ^= h >> 27;
	h *= 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

static void copy_ids(const json_t *array, struct ids *out)
{
	size_t i;
	json_t *v;

	json_array_foreach(array, i, v) must(ids_push(out, (int32_t)json_integer_value(v)) == 0);
}

static void load_goldens(struct engine *g, const char *dir)
{
	char path[4096];
	json_t *root, *cases, *c;
	size_t i;

	snprintf(path, sizeof(path), "%s/golden.json", dir);
	root = json_load_file(path, 0, NULL);
	cases = json_object_get(root, "cases");
	g->goldens = calloc(json_array_size(cases) + 1, sizeof(*g->goldens));
	must(g->goldens != NULL);
	json_array_foreach(cases, i, c)
	{
		copy_ids(json_object_get(c, "prompt_ids"), &g->goldens[i].prompt);
		copy_ids(json_object_get(c, "output_ids"), &g->goldens[i].output);
		g->n_goldens++;
	}
	json_decref(root);
}

int engine_open(const struct engine_options *o, struct engine **ret, struct err *e)
{
	struct engine *g = calloc(1, sizeof(*g));
	struct engine_info *info;
	int r;

	must(g != NULL);
	info = &g->info;
	r = model_config_open(o->model_dir, &info->model, e);
	usleep((useconds_t)setting("FAKE_LOAD_MS", 0) * 1000);
	if (!r && getenv("FAKE_LOAD_FAILS"))
		r = err_set(e, EINVAL, "the fake engine was told to fail");
	if (r < 0) {
		free(g);
		return r;
	}
	info->max_model_len =
		o->max_model_len ? o->max_model_len : info->model.max_position_embeddings;
	info->n_slots = o->max_seqs + 1;
	info->n_pages = (uint32_t)setting("FAKE_PAGES", o->max_seqs * CEIL_DIV(info->max_model_len,
									       o->page_tokens));
	snprintf(info->device_name, sizeof(info->device_name), "no device");
	snprintf(info->driver, sizeof(info->driver), "fake");
	snprintf(info->kernels, sizeof(info->kernels), "no");
	g->page_tokens = o->page_tokens;
	g->kv = calloc(info->n_pages, o->page_tokens * sizeof(*g->kv));
	g->states = calloc(info->n_slots, sizeof(*g->states));
	must(g->kv && g->states);
	g->fail_step = setting("FAKE_FAIL_STEP", 0);
	g->step_us = setting("FAKE_STEP_US", 0);
	load_goldens(g, o->model_dir);
	*ret = g;
	return 0;
}

void engine_close(struct engine *g)
{
	for (size_t i = 0; i < g->n_goldens; i++) {
		ids_release(&g->goldens[i].prompt);
		ids_release(&g->goldens[i].output);
	}
	free(g->goldens);
	free(g->kv);
	free(g->states);
	free(g);
}

const struct engine_info *engine_info(const struct engine *g)
{
	return &g->info;
}

void engine_counters(const struct engine *g, struct engine_counters *ret)
{
	*ret = g->counters;
}

void engine_settle_environment(const char *program_cache)
{
}

int engine_list_devices(FILE *out, struct err *e)
{
	fprintf(out, "0 no device\n");
	return 0;
}

static int32_t *cell(struct engine *g, const struct plan_row *row, uint32_t position)
{
	must(position / g->page_tokens < row->n_pages);
	must(row->pages[position / g->page_tokens] < g->info.n_pages);
	return &g->kv[(size_t)row->pages[position / g->page_tokens] * g->page_tokens +
		      position % g->page_tokens];
}

static void run_row(struct engine *g, const struct plan_row *row)
{
	struct state s = {0}, check = {0};

	must(row->n_tokens > 0 && row->state_dst < g->info.n_slots);
	must(row->state_src == STATE_ZERO || (uint32_t)row->state_src < g->info.n_slots);
	must(!row->decode || row->n_tokens == 1);
	must(row->decode || row->start % CHUNK_TOKENS == 0);
	if (row->state_src != STATE_ZERO)
		s = g->states[row->state_src];
	must(s.len == row->start);
	for (uint32_t i = 0; i < row->n_tokens; i++) {
		must(row->tokens[i] >= 0 && (uint32_t)row->tokens[i] < g->info.model.vocab_size);
		*cell(g, row, row->start + i) = row->tokens[i];
		s.hash = mix(s.hash, (uint64_t)row->tokens[i]);
		s.len++;
	}
	for (; check.len < s.len; check.len++)
		check.hash = mix(check.hash, (uint64_t)*cell(g, row, check.len));
	must(check.hash == s.hash);
	g->states[row->state_dst] = s;
}

/* The recorded answer's next token, or -1. */
static int32_t golden_token(struct engine *g, const struct plan_row *row, uint32_t len)
{
	for (size_t i = 0; i < g->n_goldens; i++) {
		const struct golden *c = &g->goldens[i];
		uint32_t p = 0;

		if (len < c->prompt.len || len >= c->prompt.len + c->output.len)
			continue;
		while (p < len &&
		       *cell(g, row, p) == (p < c->prompt.len ? c->prompt.v[p]
							      : c->output.v[p - c->prompt.len]))
			p++;
		if (p == len)
			return c->output.v[len - c->prompt.len];
	}
	return -1;
}

static bool is_banned(const struct plan_draw *d, int32_t token)
{
	for (uint32_t i = 0; i < d->n_banned; i++)
		if (d->banned[i] == token)
			return true;
	return false;
}

static void draw(struct engine *g, const struct plan *plan, const struct plan_draw *d,
		 struct draw_result *ret)
{
	const struct plan_row *row = &plan->rows[d->row];
	const struct model_config *m = &g->info.model;
	const struct state *s = &g->states[row->state_dst];
	uint64_t h = s->hash;
	int32_t token = d->sampling->temperature > 0 ? -1 : golden_token(g, row, s->len);

	if (d->sampling->temperature > 0)
		h = mix(mix(mix(h, d->sampling->seed), d->choice), d->position);
	if (token < 0)
		token = h % 64 ? (int32_t)(h / 64 % m->vocab_size) : m->end_tokens[0];
	while (is_banned(d, token))
		token = (int32_t)(((uint32_t)token + 1) % m->vocab_size);
	*ret = (struct draw_result){.token = token};
	if (!d->sampling->want_logprobs)
		return;
	ret->logprob = -(float)(h % 1000) / 1000;
	ret->n_top = d->sampling->n_logprobs;
	for (uint32_t i = 0; i < ret->n_top; i++) {
		ret->top_ids[i] = (int32_t)(((uint32_t)token + i) % m->vocab_size);
		ret->top_logprobs[i] = ret->logprob - (float)i;
	}
}

int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e)
{
	const struct engine_info *info = &g->info;

	g->counters.steps++;
	if (g->step_us)
		usleep((useconds_t)g->step_us);
	if (g->fail_step && g->counters.steps >= g->fail_step)
		return err_set(e, EIO, "the device is lost");
	for (uint32_t i = 0; i < plan->n_page_copies; i++) {
		const struct plan_copy *c = &plan->page_copies[i];

		must(c->src < info->n_pages && c->dst < info->n_pages);
		memcpy(g->kv + (size_t)c->dst * g->page_tokens,
		       g->kv + (size_t)c->src * g->page_tokens, g->page_tokens * sizeof(*g->kv));
	}
	for (uint32_t i = 0; i < plan->n_state_copies; i++) {
		const struct plan_copy *c = &plan->state_copies[i];

		must(c->src < info->n_slots && c->dst < info->n_slots);
		g->states[c->dst] = g->states[c->src];
	}
	for (uint32_t i = 0; i < plan->n_rows; i++)
		run_row(g, &plan->rows[i]);
	for (uint32_t i = 0; i < plan->n_draws; i++) {
		must(plan->draws[i].row < plan->n_rows);
		draw(g, plan, &plan->draws[i], &results[i]);
	}
	return 0;
}
