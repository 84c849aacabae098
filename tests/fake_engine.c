/* An engine without a device, for tests of the rooms above it: engine.h over a pseudo model.
 *
 * Plans run on the fake device (fake_device.h): a plan that mixes up pages, slots or positions, or whose rows write
 * data that another one uses, ends the program. The next token is a function of the sequence: the recorded answer if
 * the model's golden.json has one for it, else a hash (with temperature always a hash, of seed, choice and position,
 * too). In the log-probabilities the ids after this best one follow, each less likely than the one before. So without
 * temperature a scored token is as likely as when it is drawn.
 *
 * A token that a draw may not give (a ban, the mask, a bias of -50 or less) makes way for the next id that it may give,
 * and a bias of 50 or more decides the token.
 *
 * The hidden state of a token has a one at the column that is the hash of the sequence up to the token, else zeros. So
 * the sum over a prompt counts how often each hash comes, and is exact.
 *
 * A plan is computed when it is submitted; its delay passes while it is out, one plan after the other as on a
 * device's queue. A row's state must have the history of its pages, so a slot that is written too early or read too
 * late shows as a wrong state.
 *
 * Environment: FAKE_STEP_US, FAKE_TOKEN_US, FAKE_LOAD_MS (delays of a step, of a prompt token and of engine_open),
 * FAKE_SLOW (a file: while it exists steps take a hundred times as long), FAKE_PAGES (size of the KV pool), FAKE_SLOTS
 * (of the state pool), FAKE_FAIL_STEP (that step, counted from 1, and all later ones fail as if the device were lost),
 * FAKE_LOAD_FAILS (if set, engine_open fails), FAKE_FAIL_PIECES (that copy of pieces, counted from 1, fails, and so
 * does every later step), FAKE_NAN_SEED (a draw with that seed + n fails at position n, as if logits were NaN),
 * FAKE_NAN_SCORE (each score of that token id fails in the same way, and its hidden state has a NaN), FAKE_EXIT_MS (an
 * exit handler takes so long, as that of an OpenCL driver may). */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/layers/weights.h"
#include "tests/fake_device.h"

struct golden {
	struct ids prompt, output;
};

/* The parts that a layer keeps of a sequence. */
struct fake_layer {
	struct layer_part parts[LAYER_PARTS_MAX];
	uint32_t n;
};

struct engine {
	struct engine_info info;
	struct engine_counters counters;
	struct fake_device *device;
	struct golden *goldens;
	size_t n_goldens;
	uint64_t fail_step, step_us, token_us, fail_pieces, n_pieces_calls, nan_seed, nan_score;
	bool pieces_failed;
	const char *slow;
	/* plans that are out, oldest at head % ENGINE_STEPS_OUT */
	struct step {
		uint64_t done_ns;
		uint32_t n_results;
		bool fails;
		struct draw_result *results; /* [max_seqs + max_prefill_tokens] */
		float *pooled;		     /* [max_seqs][hidden_size] a row for each pooling */
	} steps[ENGINE_STEPS_OUT];
	float *sums;		   /* [max_seqs][hidden_size] a row for each seat */
	uint64_t head, tail;	   /* numbers of plans waited for and submitted */
	engine_on_layer *on_layer; /* NULL: it is not called */
	void *on_layer_user;
	struct fake_layer *layers;     /* [n_layers] */
	void *items[ENGINE_ITEMS_OUT]; /* [n_items] tags of copies that are out */
	uint32_t n_items;
	uint32_t page_tokens, max_seqs, max_prefill_tokens;
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

/* Gives all pieces of an item the same size, and slot_bytes a size that they fill. */
static void share_items(struct engine *g)
{
	const struct model_config *c = &g->info.model;
	uint32_t n[2] = {0};

	g->layers = calloc(c->n_layers, sizeof(*g->layers));
	must(g->layers != NULL);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		struct fake_layer *l = &g->layers[i];

		l->n = layer_parts(c, i, 2, g->page_tokens, l->parts);
		for (uint32_t k = 0; k < l->n; k++)
			n[l->parts[k].kind]++;
	}
	if (n[TIER_STATE])
		g->info.slot_bytes -= g->info.slot_bytes % n[TIER_STATE];
	for (uint32_t i = 0; i < c->n_layers; i++)
		for (uint32_t k = 0; k < g->layers[i].n; k++) {
			struct layer_part *p = &g->layers[i].parts[k];

			p->bytes = p->kind == TIER_PAGE ? g->info.page_bytes : g->info.slot_bytes;
			p->bytes /= n[p->kind];
		}
}

static void exit_slowly(void)
{
	log_info("the fake engine's exit handler");
	usleep((useconds_t)setting("FAKE_EXIT_MS", 0) * 1000);
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
	if (layer_part_bytes(&info->model, 2, o->page_tokens, TIER_STATE))
		info->n_slots = (uint32_t)setting("FAKE_SLOTS", 8ull * o->max_seqs);
	info->max_seqs = o->max_seqs;
	info->n_pages = (uint32_t)setting("FAKE_PAGES", o->max_seqs * CEIL_DIV(info->max_model_len,
									       o->page_tokens));
	snprintf(info->device_name, sizeof(info->device_name), "no device");
	snprintf(info->driver, sizeof(info->driver), "fake");
	snprintf(info->kernels, sizeof(info->kernels), "no");
	snprintf(info->abilities, sizeof(info->abilities), "none");
	info->page_bytes = 4096ull * o->page_tokens;
	info->n_parameters = layers_parameters(&info->model);
	/* A MiB, less the part that equal pieces cannot fill. */
	if (info->n_slots)
		info->slot_bytes = 1u << 20;
	g->page_tokens = o->page_tokens;
	share_items(g);
	g->max_seqs = o->max_seqs;
	g->max_prefill_tokens = o->max_prefill_tokens;
	for (size_t i = 0; i < ENGINE_STEPS_OUT; i++) {
		g->steps[i].results = calloc((size_t)o->max_seqs + o->max_prefill_tokens,
					     sizeof(*g->steps[i].results));
		g->steps[i].pooled = calloc((size_t)o->max_seqs * info->model.hidden_size,
					    sizeof(*g->steps[i].pooled));
		must(g->steps[i].results != NULL && g->steps[i].pooled != NULL);
	}
	g->sums = calloc((size_t)o->max_seqs * info->model.hidden_size, sizeof(*g->sums));
	must(g->sums != NULL);
	g->device = fake_device_new(&(struct scheduler_config){
		.page_tokens = o->page_tokens,
		.n_pages = info->n_pages,
		.n_slots = info->n_slots,
		.max_seqs = o->max_seqs,
		.vocab_size = info->model.vocab_size,
	});
	g->fail_step = setting("FAKE_FAIL_STEP", 0);
	g->fail_pieces = setting("FAKE_FAIL_PIECES", 0);
	g->nan_seed = setting("FAKE_NAN_SEED", 0);
	g->nan_score = setting("FAKE_NAN_SCORE", 0);
	g->step_us = setting("FAKE_STEP_US", 0);
	g->token_us = setting("FAKE_TOKEN_US", 0);
	g->slow = getenv("FAKE_SLOW");
	load_goldens(g, o->model_dir);
	if (getenv("FAKE_EXIT_MS"))
		atexit(exit_slowly);
	*ret = g;
	return 0;
}

void engine_close(struct engine *g)
{
	for (size_t i = 0; i < g->n_goldens; i++) {
		ids_release(&g->goldens[i].prompt);
		ids_release(&g->goldens[i].output);
	}
	for (size_t i = 0; i < ENGINE_STEPS_OUT; i++) {
		free(g->steps[i].results);
		free(g->steps[i].pooled);
	}
	free(g->sums);
	free(g->goldens);
	free(g->layers);
	fake_device_free(g->device);
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

int engine_report_devices(FILE *out, const char *program_cache, struct err *e)
{
	return engine_list_devices(out, e);
}

/* The token at a position of a row that was run. */
static int32_t token_at(const struct engine *g, const struct plan_row *row, uint32_t position)
{
	return (int32_t)(fake_device_cell(g->device, row, position)->mark / 2);
}

static uint64_t hash_of(const struct engine *g, const struct plan_row *row, uint32_t n_tokens)
{
	uint64_t h = 0;

	for (uint32_t i = 0; i < n_tokens; i++)
		h = mix(h, (uint64_t)token_at(g, row, i));
	return h;
}

/* Returns the next token of the recorded answer to this sequence, or -1. */
static int32_t golden_token(struct engine *g, const struct plan_row *row, uint32_t len)
{
	for (size_t i = 0; i < g->n_goldens; i++) {
		const struct golden *c = &g->goldens[i];
		uint32_t p = 0;

		if (len < c->prompt.len || len >= c->prompt.len + c->output.len)
			continue;
		while (p < len &&
		       token_at(g, row, p) == (p < c->prompt.len ? c->prompt.v[p]
								 : c->output.v[p - c->prompt.len]))
			p++;
		if (p == len)
			return c->output.v[len - c->prompt.len];
	}
	return -1;
}

/* Whether a draw may not give the token: it is banned, not in the mask, or has a bias of -50 or less. */
static bool is_banned(const struct plan_draw *d, int32_t token)
{
	if (d->allowed && !(d->allowed[token / 32] >> token % 32 & 1))
		return true;
	for (uint32_t i = 0; i < d->n_banned; i++)
		if (d->banned[i] == token)
			return true;
	for (uint32_t i = 0; i < d->n_biases; i++)
		if (d->biases[i].token == token && d->biases[i].value <= -50)
			return true;
	return false;
}

/* Returns the token with the largest bias of those that are at least 50 and may be drawn; -1: there is none. */
static int32_t biased_token(const struct plan_draw *d)
{
	float most = 50;
	int32_t token = -1;

	for (uint32_t i = 0; i < d->n_biases; i++)
		if (d->biases[i].value >= most && !is_banned(d, d->biases[i].token)) {
			most = d->biases[i].value;
			token = d->biases[i].token;
		}
	return token;
}

/* The best token by a hash of its sequence. */
static int32_t hashed_token(const struct model_config *m, uint64_t h)
{
	return h % 64 ? (int32_t)(h / 64 % m->vocab_size) : m->end_tokens[0];
}

/* Writes the log-probabilities and the rank of ret->token; `first` is the best token. */
static void report(const struct model_config *m, uint64_t h, int32_t first, uint32_t n_top,
		   struct draw_result *ret)
{
	float best = -(float)(h % 1000) / 1000;

	ret->rank = (ret->token >= first ? 0 : m->vocab_size) + (uint32_t)(ret->token - first) + 1;
	ret->logprob = best - (float)(ret->rank - 1);
	ret->n_top = n_top;
	for (uint32_t i = 0; i < ret->n_top; i++) {
		ret->top_ids[i] = (int32_t)(((uint32_t)first + i) % m->vocab_size);
		ret->top_logprobs[i] = best - (float)i;
	}
}

static struct draw_result *score(struct engine *g, const struct plan *plan,
				 const struct plan_score *s, struct draw_result *ret)
{
	const struct plan_row *row = &plan->rows[s->row];
	uint64_t h = hash_of(g, row, row->start + s->first);

	must(s->row < plan->n_prefill_rows && s->n_tokens &&
	     s->first + s->n_tokens <= row->n_tokens);
	for (uint32_t i = 0; i < s->n_tokens; i++) {
		uint32_t len = row->start + s->first + i + 1;
		int32_t best = golden_token(g, row, len);

		must(s->first + i + 1 == row->n_tokens ||
		     s->next[i] == row->tokens[s->first + i + 1]);
		h = mix(h, (uint64_t)row->tokens[s->first + i]);
		*ret = (struct draw_result){.token = s->next[i]};
		report(&g->info.model, h, best < 0 ? hashed_token(&g->info.model, h) : best,
		       s->n_top, ret);
		if (g->nan_score && (uint64_t)s->next[i] == g->nan_score)
			ret->token = -1;
		ret++;
	}
	return ret;
}

static void draw(struct engine *g, const struct plan *plan, const struct plan_draw *d,
		 struct draw_result *ret)
{
	const struct plan_row *row = &plan->rows[d->row];
	const struct model_config *m = &g->info.model;
	uint32_t len = row->start + row->n_tokens;
	uint64_t h = hash_of(g, row, len);
	int32_t token = d->sampling->temperature > 0 ? -1 : golden_token(g, row, len);

	if (d->sampling->temperature > 0)
		h = mix(mix(mix(h, d->sampling->seed), d->choice), d->position);
	if (token < 0)
		token = hashed_token(m, h);
	if (biased_token(d) >= 0)
		token = biased_token(d);
	for (uint32_t i = 0; is_banned(d, token); i++) {
		must(i < m->vocab_size);
		token = (int32_t)(((uint32_t)token + 1) % m->vocab_size);
	}
	*ret = (struct draw_result){.token = token};
	if (!d->sampling->want_logprobs)
		return;
	report(m, h, token, d->sampling->n_logprobs, ret);
	ret->rank = 0;
}

/* Ends the program if a condition failed on the fake device. condition: NULL, or that condition. */
static void must_not(const char *condition)
{
	if (!condition)
		return;
	fprintf(stderr, "fake engine: wrong plan: %s\n", condition);
	abort();
}

static void pool(struct engine *g, const struct plan *plan, const struct plan_pooling *p,
		 float *ret)
{
	const struct plan_row *row = &plan->rows[p->row];
	uint32_t D = g->info.model.hidden_size;
	float *sum = g->sums + (size_t)p->seat * D;
	uint64_t h = hash_of(g, row, row->start + p->first);

	must(p->row < plan->n_prefill_rows && p->first < row->n_tokens && p->seat < g->max_seqs);
	if (p->begins)
		memset(sum, 0, D * sizeof(*sum));
	for (uint32_t i = p->first; i < row->n_tokens; i++) {
		h = mix(h, (uint64_t)row->tokens[i]);
		sum[h % D] += 1;
		if (g->nan_score && (uint64_t)row->tokens[i] == g->nan_score)
			sum[0] = NAN;
	}
	memcpy(ret, sum, D * sizeof(*sum));
}

static void run_plan(struct engine *g, const struct plan *plan, struct step *step)
{
	struct draw_result *results = step->results + plan->n_draws;

	must(plan->n_rows <= g->max_seqs);
	for (uint32_t i = 0; i < plan->n_rows; i++)
		must(plan->rows[i].decode || plan->rows[i].start % CHUNK_TOKENS == 0);
	must_not(fake_device_run(g->device, plan, NULL));
	for (uint32_t i = 0; i < plan->n_draws; i++) {
		must(plan->draws[i].row < plan->n_rows);
		draw(g, plan, &plan->draws[i], &step->results[i]);
	}
	must_not(fake_device_draw(g->device, plan, NULL, step->results));
	for (uint32_t i = 0; i < plan->n_draws; i++)
		if (g->nan_seed &&
		    plan->draws[i].sampling->seed == g->nan_seed + plan->draws[i].position)
			step->results[i].token = -1;
	must(plan->n_scored_tokens <= g->max_prefill_tokens);
	for (uint32_t i = 0; i < plan->n_scores; i++)
		results = score(g, plan, &plan->scores[i], results);
	must(results == step->results + step->n_results);
	must(plan->n_poolings <= g->max_seqs);
	for (uint32_t i = 0; i < plan->n_poolings; i++)
		pool(g, plan, &plan->poolings[i],
		     step->pooled + (size_t)i * g->info.model.hidden_size);
}

int engine_submit(struct engine *g, const struct plan *plan, struct err *e)
{
	struct step *step = &g->steps[g->tail % ENGINE_STEPS_OUT];
	uint64_t now = clock_now_ns(), begin = now;

	must(g->tail - g->head < ENGINE_STEPS_OUT);
	must(plan->n_draws <= g->max_seqs);
	if (g->tail > g->head) {
		uint64_t before = g->steps[(g->tail - 1) % ENGINE_STEPS_OUT].done_ns;

		begin = before > now ? before : now;
	}
	g->counters.steps++;
	step->done_ns = begin + (g->step_us + g->token_us * plan->n_prefill_tokens) * 1000 *
					(g->slow && access(g->slow, F_OK) == 0 ? 100 : 1);
	step->n_results = plan->n_draws + plan->n_scored_tokens;
	/* The daemon must not use what is computed behind a failed copy. */
	step->fails = g->pieces_failed || (g->fail_step && g->counters.steps >= g->fail_step);
	if (!step->fails)
		run_plan(g, plan, step);
	for (uint32_t i = 0; g->on_layer && i < g->info.model.n_layers; i++)
		g->on_layer(g->on_layer_user, plan, i);
	g->tail++;
	return 0;
}

int engine_wait(struct engine *g, struct draw_result *results, struct err *e)
{
	struct step *step = &g->steps[g->head % ENGINE_STEPS_OUT];
	uint64_t now = clock_now_ns();

	must(g->head < g->tail);
	if (step->done_ns > now)
		usleep((useconds_t)((step->done_ns - now) / 1000));
	g->head++;
	if (step->fails)
		return err_set(e, EIO, "this step was to fail");
	memcpy(results, step->results, step->n_results * sizeof(*results));
	return engine_pieces_check(g, e);
}

const float *engine_pooled(const struct engine *g, uint32_t pooling)
{
	const struct step *step = &g->steps[(g->head + ENGINE_STEPS_OUT - 1) % ENGINE_STEPS_OUT];

	return step->pooled + (size_t)pooling * g->info.model.hidden_size;
}

int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e)
{
	int r;

	must(g->head == g->tail);
	r = engine_submit(g, plan, e);
	return r < 0 ? r : engine_wait(g, results, e);
}

/* ---- items: plans run when they are submitted, so a copy is made at once ---- */

/* Returns a page or state of the fake device, and its size, which is far less than the host's block has. */
static void *item_of(struct engine *g, enum tier_kind kind, uint32_t id, size_t *ret_bytes)
{
	must(id < (kind == TIER_PAGE ? g->info.n_pages : g->info.n_slots));
	if (kind == TIER_STATE) {
		*ret_bytes = sizeof(*g->device->states);
		return &g->device->states[id];
	}
	*ret_bytes = g->page_tokens * sizeof(*g->device->cells);
	return g->device->cells + (size_t)id * g->page_tokens;
}

/* Data from the host may be a part of a page, which its sequence goes on to fill. */
static void fill_page(struct engine *g, enum tier_kind kind, uint32_t id)
{
	if (kind == TIER_PAGE)
		g->device->fills[id] = (struct fake_fill){g->page_tokens, true};
}

int engine_read_item(struct engine *g, enum tier_kind kind, uint32_t id, void *host, void *tag,
		     struct err *e)
{
	size_t bytes;
	const void *item = item_of(g, kind, id, &bytes);

	if (g->n_items == ENGINE_ITEMS_OUT)
		return err_set(e, EBUSY, "too many copies are out");
	memset(host, 0, kind == TIER_PAGE ? g->info.page_bytes : g->info.slot_bytes);
	memcpy(host, item, bytes);
	g->items[g->n_items++] = tag;
	return 0;
}

int engine_write_item(struct engine *g, enum tier_kind kind, uint32_t id, const void *host,
		      void *tag, struct err *e)
{
	size_t bytes;
	void *item = item_of(g, kind, id, &bytes);

	if (g->n_items == ENGINE_ITEMS_OUT)
		return err_set(e, EBUSY, "too many copies are out");
	memcpy(item, host, bytes);
	fill_page(g, kind, id);
	g->items[g->n_items++] = tag;
	return 0;
}

int engine_items_done(struct engine *g, void **tags, uint32_t max, uint32_t *ret_n, struct err *e)
{
	uint32_t n = MIN(max, g->n_items);

	(void)e;
	memcpy(tags, g->items, n * sizeof(*tags));
	memmove(g->items, g->items + n, (g->n_items - n) * sizeof(*tags));
	g->n_items -= n;
	*ret_n = n;
	return 0;
}

uint32_t engine_items_out(const struct engine *g)
{
	return g->n_items;
}

/* ---- pieces: every piece of an item has its share of the item's bytes, so that none may be missing ---- */

const struct layer_part *engine_layer_parts(const struct engine *g, uint32_t layer, uint32_t *ret_n)
{
	must(layer < g->info.model.n_layers);
	*ret_n = g->layers[layer].n;
	return g->layers[layer].parts;
}

/* Returns the place of a piece's share. *ret_bytes: bytes of the share; *ret_size: bytes of the piece on the host. */
static char *share_of(struct engine *g, const struct engine_piece *p, size_t *ret_bytes,
		      size_t *ret_size)
{
	const struct layer_part *own;
	uint32_t n_own, n = 0, nth = 0;
	size_t bytes;
	char *item;

	own = engine_layer_parts(g, p->layer, &n_own);
	must(p->part < n_own);
	for (uint32_t i = 0; i < g->info.model.n_layers; i++)
		for (uint32_t k = 0; k < g->layers[i].n; k++) {
			bool same = g->layers[i].parts[k].kind == own[p->part].kind;

			n += same;
			nth += same && (i < p->layer || (i == p->layer && k < p->part));
		}
	item = item_of(g, own[p->part].kind, p->id, &bytes);
	*ret_bytes = bytes * (nth + 1) / n - bytes * nth / n;
	*ret_size = own[p->part].bytes;
	return item + bytes * nth / n;
}

/* Ends a copy of pieces. If it fails, its data are spoilt, so that a use of them shows. */
static void end_pieces(struct engine *g, engine_done *done, void *tag, char *bytes, size_t n)
{
	bool good = ++g->n_pieces_calls != g->fail_pieces;

	if (!good) {
		g->pieces_failed = true;
		memset(bytes, 0xa5, n);
	}
	done(tag, good);
}

int engine_pieces_check(struct engine *g, struct err *e)
{
	return g->pieces_failed ? err_set(e, EIO, "a copy of pieces failed") : 0;
}

int engine_read_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n, void *host,
		       engine_done *done, void *tag, struct err *e)
{
	char *to = host;

	(void)e;
	must(n > 0);
	for (uint32_t i = 0; i < n; i++) {
		size_t bytes, size;
		const char *share = share_of(g, &pieces[i], &bytes, &size);

		memset(to, 0, size);
		memcpy(to, share, bytes);
		to += size;
	}
	end_pieces(g, done, tag, host, (size_t)(to - (char *)host));
	return 0;
}

int engine_write_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n,
			const void *host, engine_done *done, void *tag, struct err *e)
{
	const char *from = host;
	char *last = NULL;
	size_t n_last = 0;

	(void)e;
	must(n > 0);
	for (uint32_t i = 0; i < n; i++) {
		size_t bytes, size;
		char *share = share_of(g, &pieces[i], &bytes, &size);

		memcpy(share, from, bytes);
		fill_page(g, g->layers[pieces[i].layer].parts[pieces[i].part].kind, pieces[i].id);
		last = share;
		n_last = bytes;
		from += size;
	}
	end_pieces(g, done, tag, last, n_last);
	return 0;
}

void engine_finish(struct engine *g)
{
}

struct engine_block {
	char data[1];
};

int engine_block_new(struct engine *g, uint64_t bytes, struct engine_block **ret, struct err *e)
{
	(void)g;
	*ret = malloc(bytes);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

void *engine_block_data(struct engine_block *b)
{
	return b->data;
}

void engine_block_free(struct engine_block *b)
{
	free(b);
}

void engine_set_on_layer(struct engine *g, engine_on_layer *call, void *user)
{
	g->on_layer = call;
	g->on_layer_user = user;
}
