#include "tests/scheduler_world.h"

#include <stdlib.h>
#include <string.h>

struct scheduler_config world_config(uint32_t state_tokens, uint32_t n_pages, uint32_t budget)
{
	return (struct scheduler_config){
		.page_tokens = 2,
		.state_tokens = state_tokens,
		.n_pages = n_pages,
		.n_slots = state_tokens ? 4 * WORLD_SEQS : 0,
		.page_bytes = 1,
		.slot_bytes = 1,
		.max_plans_out = 1,
		.max_seqs = WORLD_SEQS,
		.max_prefill_tokens = budget,
		.max_model_len = WORLD_LEN,
		.vocab_size = WORLD_VOCAB,
	};
}

struct world *world_open(const struct scheduler_config *config)
{
	struct world *w = calloc(1, sizeof(*w));

	w->config = *config;
	buf_init(&w->text, 4096);
	if (scheduler_new(&w->config, &w->s, NULL) < 0)
		abort();
	return w;
}

void world_close(void *world)
{
	struct world *w = world;

	prefix_cache_check(scheduler_cache(w->s));
	scheduler_free(w->s);
	buf_release(&w->text);
	free(w);
}

struct scheduler_request world_request(const char *prompt, uint32_t max_tokens)
{
	static const int32_t end = WORLD_END;
	static int32_t tokens[WORLD_LEN];
	struct scheduler_request r = {
		.prompt = tokens,
		.n_prompt = (uint32_t)strlen(prompt),
		.max_tokens = max_tokens,
		.n_choices = 1,
		.end_tokens = &end,
		.n_end_tokens = 1,
		.sampling = {.top_p = 1, .repetition_penalty = 1},
	};

	for (uint32_t i = 0; i < r.n_prompt; i++)
		tokens[i] = prompt[i];
	return r;
}

uint64_t world_submit_request(struct world *w, const struct scheduler_request *r)
{
	uint64_t id = 0;

	if (scheduler_submit(w->s, r, &id, NULL) < 0)
		abort();
	return id;
}

uint64_t world_submit(struct world *w, const char *prompt, uint32_t max_tokens)
{
	struct scheduler_request r = world_request(prompt, max_tokens);

	return world_submit_request(w, &r);
}

struct scheduler_request world_letters(char letter, uint32_t n_prompt, uint32_t max_tokens)
{
	static int32_t prompts[128][WORLD_LETTERS_MAX];
	struct scheduler_request r = world_request("", max_tokens);
	int32_t *prompt = prompts[(int)letter];

	for (uint32_t i = 0; i < WORLD_LETTERS_MAX; i++)
		prompt[i] = letter;
	r.prompt = r.user = prompt;
	r.n_prompt = n_prompt;
	r.sampling.seed = (uint64_t)letter;
	return r;
}

uint64_t world_submit_letters(struct world *w, char letter, uint32_t n_prompt, uint32_t max_tokens)
{
	struct scheduler_request r = world_letters(letter, n_prompt, max_tokens);

	return world_submit_request(w, &r);
}

const char *world_plan(struct world *w)
{
	const struct plan *p = w->plan = scheduler_plan(w->s);
	uint32_t d = 0;

	buf_reset(&w->text);
	if (!p)
		return "nothing";
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *row = &p->rows[i];

		if (i)
			buf_putc(&w->text, ' ');
		if (row->decode && w->named)
			buf_printf(&w->text, "%c.%u", (char)p->draws[d].sampling->seed,
				   p->draws[d].choice);
		if (row->decode)
			buf_printf(&w->text, "@%u%s", row->start, row->tokens ? "" : "?");
		else
			buf_printf(&w->text, "%c%u+%u", row->tokens[0], row->start, row->n_tokens);
		for (uint32_t k = 0; k < row->n_snapshots; k++)
			buf_printf(&w->text, "^%u", row->snapshots[k].n_tokens);
		for (; d < p->n_draws && p->draws[d].row == i; d++)
			buf_putc(&w->text, '!');
	}
	return buf_str(&w->text);
}

void world_commit(struct world *w, int32_t token)
{
	for (uint32_t i = 0; i < WORLD_SEQS_MAX; i++)
		w->results[i] = (struct draw_result){.token = token};
	w->n_events = scheduler_commit(w->s, w->results, w->events);
}

void world_step(struct world *w, int32_t token)
{
	(void)world_plan(w);
	world_commit(w, token);
}

void world_run(struct world *w, int32_t token)
{
	while (scheduler_plan(w->s))
		world_commit(w, token);
}

struct scheduler_stats world_stats(const struct world *w)
{
	struct scheduler_stats st;

	scheduler_stats(w->s, &st);
	return st;
}

bool world_at_baseline(struct world *w)
{
	struct scheduler_stats st;

	if (scheduler_flush(w->s) < 0)
		return false;
	st = world_stats(w);
	return !st.running && !st.waiting && st.cache.free_pages == w->config.n_pages &&
	       st.cache.free_slots == w->config.n_slots;
}

/* A search for the node that ends behind `depth` tokens. Parents come before their children, so the nodes on the way to
 * that node come in order. */
struct look {
	const int32_t *tokens;
	uint32_t depth;
	bool with_slot, found;
	uint64_t on_path[WORLD_LEN];
	uint32_t n;
};

static bool look_at(void *arg, const struct prefix_view *v)
{
	struct look *l = arg;
	bool below = !v->parent;

	for (uint32_t i = 0; i < l->n; i++)
		below |= l->on_path[i] == v->parent;
	if (!below || v->depth > l->depth || l->n == WORLD_LEN ||
	    memcmp(v->tokens, l->tokens + v->depth - v->n_tokens, v->n_tokens * sizeof(*v->tokens)))
		return true;
	l->on_path[l->n++] = v->id;
	l->found |= v->depth == l->depth && (!l->with_slot || v->slot != POOL_NONE);
	return true;
}

bool world_published(const struct world *w, const int32_t *tokens, uint32_t depth)
{
	struct look l = {.tokens = tokens, .depth = depth, .with_slot = w->config.state_tokens > 0};

	prefix_cache_walk(scheduler_cache(w->s), look_at, &l);
	return l.found;
}

bool world_published_text(const struct world *w, const char *text, uint32_t depth)
{
	int32_t tokens[WORLD_LEN];

	for (uint32_t i = 0; i < depth; i++)
		tokens[i] = text[i];
	return world_published(w, tokens, depth);
}
