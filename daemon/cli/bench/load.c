#include "daemon/cli/bench/load.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mix.h"
#include "engine/profile.h"

struct load {
	struct engine *engine;
	const struct engine_options *options;
	uint32_t n_pages; /* pages that are filled */
	bool bf16;
	/* The arrays of a plan and of its result: tokens [max_prefill_tokens + max_seqs]; rows, draws, results and
	 * roofline_rows [max_seqs]. */
	struct plan_row *rows;
	struct plan_draw *draws;
	struct draw_result *results;
	struct roofline_row *roofline_rows;
	uint32_t *pages; /* [n_pages] 0, 1, 2, ... in random order, which no prefetcher can guess */
	int32_t *tokens;
	uint64_t step, random;
	bool reported;		  /* draws have log-probabilities */
	load_beside_call *beside; /* or NULL */
	void *beside_user;
};

enum { DIGEST_STREAMS = 4 };

static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};
static const struct sampling greedy_reported = {.top_p = 1,
						.repetition_penalty = 1,
						.want_logprobs = true,
						.n_logprobs = TOP_LOGPROBS_MAX};

static int32_t random_token(struct load *l)
{
	return (int32_t)(mix_next(&l->random) % engine_info(l->engine)->model.vocab_size);
}

/* ---- filling ---- */

/* Fills memory with random numbers from -1 to 1, as bf16 or as float. */
static void fill(struct load *l, void *host, uint64_t bytes, bool bf16)
{
	uint16_t *halves = host;
	float *floats = host;

	for (uint64_t i = 0; bf16 && i < bytes / 2; i++) {
		float x = (float)(int32_t)(mix_next(&l->random) >> 32) * 0x1p-31f;
		uint32_t u;

		memcpy(&u, &x, sizeof(u));
		halves[i] = (uint16_t)(u >> 16);
	}
	for (uint64_t i = 0; !bf16 && i < bytes / 4; i++)
		floats[i] = (float)(int32_t)(mix_next(&l->random) >> 32) * 0x1p-31f;
}

/* Waits until fewer than `most` copies are under way. */
static int settle(struct load *l, uint32_t most, struct err *e)
{
	void *tags[ENGINE_ITEMS_OUT];
	uint32_t n;

	while (engine_items_out(l->engine) >= most) {
		int r = engine_items_done(l->engine, tags, ARRAY_SIZE(tags), &n, e);

		if (r < 0)
			return r;
		if (!n)
			sched_yield();
	}
	return 0;
}

/* Writes the same random numbers to n items, pages or states. Each item has memory of its own, so equal numbers make it
 * no easier for a cache to hold them. */
static int fill_items(struct load *l, enum tier_kind kind, uint32_t n, uint64_t bytes, bool bf16,
		      struct err *e)
{
	void *host = bytes && n ? malloc(bytes) : NULL;
	int r = 0;

	if (!bytes || !n)
		return 0;
	if (!host)
		return err_no_memory(e);
	fill(l, host, bytes, bf16);
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		r = settle(l, ENGINE_ITEMS_OUT, e);
		if (r == 0)
			r = engine_write_item(l->engine, kind, i, host, NULL, e);
	}
	if (settle(l, 1, r == 0 ? e : NULL) < 0 && r == 0)
		r = -EIO;
	free(host);
	return r;
}

int load_open(struct engine *g, const struct engine_options *o, uint32_t n_pages, struct load **ret,
	      struct err *e)
{
	const struct engine_info *info = engine_info(g);
	struct load *l = calloc(1, sizeof(*l));
	uint32_t n = MIN(n_pages, info->n_pages);
	int r = 0;

	if (!l)
		return err_no_memory(e);
	*l = (struct load){
		.engine = g,
		.options = o,
		.n_pages = n,
		.bf16 = o->dtype == ENGINE_BFLOAT16,
		.rows = calloc(o->max_seqs, sizeof(*l->rows)),
		.draws = calloc(o->max_seqs, sizeof(*l->draws)),
		.results = calloc(o->max_seqs, sizeof(*l->results)),
		.roofline_rows = calloc(o->max_seqs, sizeof(*l->roofline_rows)),
		.pages = calloc(MAX(n, 1u), sizeof(*l->pages)),
		.tokens = calloc((size_t)o->max_prefill_tokens + o->max_seqs, sizeof(*l->tokens)),
	};
	if (!l->rows || !l->draws || !l->results || !l->roofline_rows || !l->pages || !l->tokens)
		r = err_no_memory(e);
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		uint32_t k = (uint32_t)(mix_next(&l->random) % (i + 1));

		l->pages[i] = l->pages[k];
		l->pages[k] = i;
	}
	if (r == 0)
		/* The bytes of floats are codes too, and where scales lie they are floats. */
		r = fill_items(l, TIER_PAGE, n, info->page_bytes, engine_kv_number(o) == 2, e);
	if (r == 0)
		r = fill_items(l, TIER_STATE, MIN(o->max_seqs, info->n_slots), info->slot_bytes,
			       false, e);
	if (r < 0) {
		load_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

void load_close(struct load *l)
{
	if (!l)
		return;
	free(l->rows);
	free(l->draws);
	free(l->results);
	free(l->roofline_rows);
	free(l->pages);
	free(l->tokens);
	free(l);
}

static uint32_t pages_each(const struct load *l, uint32_t streams)
{
	return l->n_pages / streams;
}

uint32_t load_longest(const struct load *l, uint32_t streams)
{
	uint64_t tokens = (uint64_t)pages_each(l, streams) * l->options->page_tokens;

	if (streams > l->options->max_seqs)
		return 0;
	return (uint32_t)MIN(tokens, (uint64_t)engine_info(l->engine)->max_model_len);
}

/* ---- steps ---- */

static void add_roofline(struct load *l, const struct plan *p, double experts,
			 struct load_result *result)
{
	const struct roofline_step s = {
		.rows = l->roofline_rows,
		.n_rows = p->n_rows,
		.n_prefill_rows = p->n_prefill_rows,
		.n_logits = p->n_draws,
		.experts = experts,
		.weight = engine_info(l->engine)->quantised_bytes,
		.kv_number = engine_kv_number(l->options),
		.tensor = kernels_tensor(engine_kernels(l->engine)),
	};

	for (uint32_t i = 0; i < p->n_rows; i++)
		l->roofline_rows[i] = (struct roofline_row){p->rows[i].start, p->rows[i].n_tokens};
	roofline_add(&result->roofline, &engine_info(l->engine)->model, l->bf16, &s);
}

/* Plans tokens [start, start + n) of a prompt of `all` tokens. If they end the prompt, the plan has a draw. */
static void plan_prompt(struct load *l, uint32_t start, uint32_t n, uint32_t all, struct plan *ret)
{
	for (uint32_t i = 0; i < n; i++)
		l->tokens[i] = random_token(l);
	l->rows[0] = (struct plan_row){
		.tokens = l->tokens,
		.pages = l->pages,
		.n_tokens = n,
		.start = start,
		.n_pages = pages_each(l, 1),
		.state_src = start ? 0 : STATE_ZERO,
	};
	l->draws[0] = (struct plan_draw){.sampling = l->reported ? &greedy_reported : &greedy};
	*ret = (struct plan){
		.step = ++l->step,
		.rows = l->rows,
		.draws = l->draws,
		.n_rows = 1,
		.n_prefill_rows = 1,
		.n_prefill_tokens = n,
		.n_draws = start + n == all,
	};
}

/* Plans one token, at `position`, of each stream. */
static void plan_tokens(struct load *l, uint32_t streams, uint32_t position, struct plan *ret)
{
	for (uint32_t i = 0; i < streams; i++) {
		l->tokens[i] = random_token(l);
		l->rows[i] = (struct plan_row){
			.tokens = &l->tokens[i],
			.pages = l->pages + (size_t)i * pages_each(l, streams),
			.n_tokens = 1,
			.start = position,
			.n_pages = pages_each(l, streams),
			.state_src = position ? (int32_t)i : STATE_ZERO,
			.state_dst = i,
			.decode = true,
		};
		l->draws[i] =
			(struct plan_draw){.sampling = l->reported ? &greedy_reported : &greedy,
					   .row = i,
					   .seat = i};
	}
	*ret = (struct plan){
		.step = ++l->step,
		.rows = l->rows,
		.draws = l->draws,
		.n_rows = streams,
		.n_draws = streams,
	};
}

/* Queues a step, then waits for the step before it, if the measurement has one. */
static int submit(struct load *l, const struct plan *p, double experts, struct load_result *result,
		  struct err *e)
{
	int r = engine_submit(l->engine, p, e);

	if (r < 0)
		return r;
	add_roofline(l, p, experts, result);
	if (l->beside)
		r = l->beside(l->beside_user, e);
	if (!result->steps++ || r < 0)
		return r;
	return engine_wait(l->engine, l->results, e);
}

static void begin(struct load *l, struct load_result *result, uint64_t *ret_start)
{
	struct engine_counters c;

	engine_counters(l->engine, &c);
	*result = (struct load_result){.launches = c.launches};
	*ret_start = clock_now_ns();
}

/* Ends what begin() began: waits for the last step, unless an earlier one failed (r < 0), and completes *result. */
static int end(struct load *l, int r, uint64_t start, struct load_result *result, struct err *e)
{
	struct engine_counters c;

	if (r == 0)
		r = engine_wait(l->engine, l->results, e);
	result->seconds = (double)(clock_now_ns() - start) / 1e9;
	engine_counters(l->engine, &c);
	result->launches = c.launches - result->launches;
	return r;
}

uint32_t load_most(const struct load *l)
{
	return l->options->max_prefill_tokens / CHUNK_TOKENS * CHUNK_TOKENS;
}

int load_window(struct load *l, uint32_t from, uint32_t n, uint32_t of, double experts,
		struct load_result *result, struct err *e)
{
	uint32_t most = load_most(l), to = from + n;
	struct plan p;
	uint64_t start;
	int r = 0;

	begin(l, result, &start);
	for (uint32_t done = from; r == 0 && done < to; done += p.n_prefill_tokens) {
		plan_prompt(l, done, MIN(to - done, most), of, &p);
		r = submit(l, &p, experts, result, e);
	}
	return end(l, r, start, result, e);
}

int load_prefill(struct load *l, uint32_t n, double experts, struct load_result *result,
		 struct err *e)
{
	return load_window(l, 0, n, n, experts, result, e);
}

int load_decode(struct load *l, uint32_t streams, uint32_t context, uint32_t steps, double experts,
		struct load_result *result, struct err *e)
{
	struct plan p;
	uint64_t start;
	int r = 0;

	begin(l, result, &start);
	for (uint32_t i = 0; r == 0 && i < steps; i++) {
		plan_tokens(l, streams, context + i, &p);
		r = submit(l, &p, experts, result, e);
	}
	return end(l, r, start, result, e);
}

void load_beside(struct load *l, load_beside_call *call, void *user)
{
	l->beside = call;
	l->beside_user = user;
}

uint32_t load_pages(const struct load *l)
{
	return l->n_pages;
}

/* ---- seed and results ---- */

void load_seed(struct load *l, uint64_t seed, bool reported)
{
	l->random = seed;
	l->reported = reported;
}

static int digest_item(struct load *l, enum tier_kind kind, uint32_t id, uint64_t bytes,
		       struct hash128 *h, struct err *e)
{
	void *host = malloc(bytes);
	int r;

	if (!host)
		return err_no_memory(e);
	r = engine_read_item(l->engine, kind, id, host, NULL, e);
	if (r == 0)
		r = settle(l, 1, e);
	if (r == 0)
		hash128_update(h, host, bytes);
	free(host);
	return r;
}

int load_digest(struct load *l, uint32_t streams, struct hash128 *h, struct err *e)
{
	const struct engine_info *info = engine_info(l->engine);
	int r = 0;

	hash128_update(h, l->results, streams * sizeof(*l->results));
	for (uint32_t i = 0; r == 0 && i < MIN(streams, (uint32_t)DIGEST_STREAMS); i++) {
		if (info->page_bytes)
			r = digest_item(l, TIER_PAGE, l->pages[i * pages_each(l, streams)],
					info->page_bytes, h, e);
		if (r == 0 && info->slot_bytes)
			r = digest_item(l, TIER_STATE, i, info->slot_bytes, h, e);
	}
	return r;
}
