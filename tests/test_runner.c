/* Steps on the queue: neither two plans out at a time, nor tokens that only the device knows, nor states that
 * are kept inside a prompt may change a single bit.
 *
 *     test_runner MODEL float32|bfloat16 [few]      MODEL: models/lexis, or a file made of it
 *
 * `few` leaves out most of the prompts, and what the types of weights do not change: for files whose weights have other
 * types than those of a model that is tested in full.
 *
 * Plans are made here, without a scheduler, so that every case is certain to occur. After each submit the plan's
 * memory is overwritten: the engine may need nothing of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "base/file.h"
#include "tests/memory_share.h"
#include "tests/random.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum {
	PAGE = 64,
	SEQS = 8,
	PAGES = 16,
	OUT_MAX = 24,
	KEEP_MAX = 16,
	BUDGET_MAX = 1024,
	LENGTH_MAX = PAGE * PAGES
};

static bool few;

/* ---- sequences and the plans that run them ---- */

struct seq {
	const int32_t *prompt;
	uint32_t n_prompt, n_out;
	struct sampling sampling;
	const int32_t *banned;
	uint32_t n_banned;
	uint32_t arrival; /* the first step, counted from 0, that may run the sequence */
	/* of a further choice the sequence that computes the prompt; else NULL */
	const struct seq *parent;
	uint32_t pages[PAGES], slot;
	struct plan_snapshot keep[KEEP_MAX]; /* states to be kept, by rising n_tokens */
	uint32_t n_keep;
	/* progress: planned positions, planned draws, and results that came back */
	uint32_t position, planned, got;
	int32_t state; /* the slot that has the state at `position`, or STATE_ZERO */
	uint32_t draw; /* the index that the newest draw has in its plan */
	bool copy;     /* the parent's partial page and state are still to be copied */
	struct draw_result out[OUT_MAX];
};

/* A plan and all it points to. */
struct made {
	struct plan plan;
	struct plan_row rows[SEQS];
	struct plan_draw draws[SEQS];
	struct plan_seat_reset resets[SEQS];
	struct plan_copy page_copies[SEQS], state_copies[SEQS];
	struct sampling samplings[SEQS];
	int32_t banned[SEQS][4];
	uint32_t pages[SEQS][PAGES];
	int32_t tokens[BUDGET_MAX + SEQS], prompts[SEQS][LENGTH_MAX];
	uint32_t n_tokens;
};

struct out {
	struct seq *owners[SEQS];
	uint32_t n;
};

static bool penalised_first_draw(const struct seq *s)
{
	return s->planned == 0 && sampling_penalised(&s->sampling);
}

static void add_draw(struct made *m, struct out *o, struct seq *s, uint32_t seat, uint32_t row)
{
	uint32_t i = m->plan.n_draws++;

	m->samplings[i] = s->sampling;
	for (uint32_t k = 0; k < s->n_banned; k++)
		m->banned[i][k] = s->banned[k];
	m->draws[i] = (struct plan_draw){
		.sampling = &m->samplings[i],
		.banned = m->banned[i],
		.n_banned = s->n_banned,
		.row = row,
		.seat = seat,
		.choice = s->parent != NULL,
		.position = s->planned,
	};
	if (penalised_first_draw(s)) {
		memcpy(m->prompts[i], s->prompt, s->n_prompt * sizeof(*s->prompt));
		m->resets[m->plan.n_resets++] = (struct plan_seat_reset){.prompt = m->prompts[i],
									 .n_prompt = s->n_prompt,
									 .seat = seat};
	}
	s->draw = i;
	s->planned++;
	o->owners[o->n++] = s;
}

/* Adds a row of the next n tokens of s. If the host has not seen the token of a row, the row names the token's draw. */
static struct plan_row *add_row(struct made *m, struct seq *s, uint32_t n)
{
	uint32_t i = m->plan.n_rows++;
	struct plan_row *row = &m->rows[i];
	int32_t *tokens = m->tokens + m->n_tokens;

	memcpy(m->pages[i], s->pages, sizeof(s->pages));
	*row = (struct plan_row){.tokens = tokens,
				 .pages = m->pages[i],
				 .n_tokens = n,
				 .start = s->position,
				 .n_pages = PAGES,
				 .state_src = s->state,
				 .state_dst = s->slot};
	for (uint32_t k = 0; k < n; k++) {
		uint32_t p = s->position + k;

		if (p >= s->n_prompt && p - s->n_prompt >= s->got) {
			row->tokens = NULL;
			row->token_draw = s->draw;
		} else {
			tokens[k] = p < s->n_prompt ? s->prompt[p] : s->out[p - s->n_prompt].token;
		}
	}
	m->n_tokens += n;
	/* A state to keep at the row's end stays in a slot of its own, and the next row writes to s->slot again. A
	 * state to keep inside the row is a snapshot. */
	for (uint32_t k = 0; k < s->n_keep; k++)
		if (s->keep[k].n_tokens == s->position + n)
			row->state_dst = s->keep[k].slot;
		else if (s->keep[k].n_tokens > s->position && s->keep[k].n_tokens < s->position + n)
			row->snapshots[row->n_snapshots++] = s->keep[k];
	s->position += n;
	s->state = (int32_t)row->state_dst;
	return row;
}

static void add_fork(struct made *m, struct out *o, struct seq *seqs, uint32_t i, uint32_t row)
{
	struct seq *s = &seqs[i];
	uint32_t whole = s->n_prompt / PAGE;

	memcpy(s->pages, s->parent->pages, whole * sizeof(*s->pages));
	s->position = s->n_prompt;
	s->copy = true;
	add_draw(m, o, s, i, row);
}

static void add_prefill(struct made *m, struct out *o, struct seq *seqs, uint32_t n, uint32_t step,
			uint32_t budget)
{
	for (uint32_t i = 0; i < n; i++) {
		struct seq *s = &seqs[i];
		uint32_t take = MIN(s->n_prompt - s->position, budget), row = m->plan.n_rows;

		if (s->parent || s->arrival > step || s->position >= s->n_prompt)
			continue;
		if (take < s->n_prompt - s->position)
			take = take / CHUNK_TOKENS * CHUNK_TOKENS;
		if (!take)
			continue;
		budget -= take;
		add_row(m, s, take);
		m->plan.n_prefill_tokens += take;
		if (s->position < s->n_prompt || !s->n_out)
			continue;
		add_draw(m, o, s, i, row);
		for (uint32_t k = 0; k < n; k++)
			if (seqs[k].parent == s)
				add_fork(m, o, seqs, k, row);
	}
	m->plan.n_prefill_rows = m->plan.n_rows;
}

/* Adds rows of the sequences that have drawn in an earlier plan. drawn [n]: draws of each sequence before this plan. */
static void add_decode(struct made *m, struct out *o, struct seq *seqs, uint32_t n,
		       const uint32_t *drawn)
{
	for (uint32_t i = 0; i < n; i++) {
		struct seq *s = &seqs[i];
		uint32_t last = s->n_prompt / PAGE;

		if (!drawn[i] || s->planned == s->n_out)
			continue;
		if (s->copy) {
			s->copy = false;
			if (s->n_prompt % PAGE)
				m->page_copies[m->plan.n_page_copies++] =
					(struct plan_copy){s->parent->pages[last], s->pages[last]};
			m->state_copies[m->plan.n_state_copies++] =
				(struct plan_copy){s->parent->slot, s->slot};
			s->state = (int32_t)s->slot;
		}
		add_row(m, s, 1)->decode = true;
		add_draw(m, o, s, i, m->plan.n_rows - 1);
	}
}

static bool make_plan(struct made *m, struct out *o, struct seq *seqs, uint32_t n, uint32_t step,
		      uint32_t budget)
{
	uint32_t drawn[SEQS];

	for (uint32_t i = 0; i < n; i++)
		drawn[i] = seqs[i].planned;
	*o = (struct out){0};
	memset(m, 0, sizeof(*m));
	m->plan.step = step + 1;
	m->plan.rows = m->rows;
	m->plan.draws = m->draws;
	m->plan.resets = m->resets;
	m->plan.page_copies = m->page_copies;
	m->plan.state_copies = m->state_copies;
	add_prefill(m, o, seqs, n, step, budget);
	add_decode(m, o, seqs, n, drawn);
	return m->plan.n_rows > 0;
}

/* Runs sequences to their end, with up to `depth` plans out. Returns false if a call of the engine fails. */
static bool run(struct engine *g, struct seq *seqs, uint32_t n, uint32_t budget, uint32_t depth)
{
	static struct made made;
	struct out outs[ENGINE_STEPS_OUT];
	struct draw_result results[SEQS];
	struct err e = {0};
	uint32_t head = 0, tail = 0;

	for (;;) {
		while (tail - head < depth &&
		       make_plan(&made, &outs[tail % ENGINE_STEPS_OUT], seqs, n, tail, budget)) {
			int r = engine_submit(g, &made.plan, &e);

			memset(&made, 0xa5, sizeof(made));
			if (r < 0) {
				printf("# submit: %s\n", e.text);
				return false;
			}
			tail++;
		}
		if (head == tail)
			return true;
		if (engine_wait(g, results, &e) < 0) {
			printf("# wait: %s\n", e.text);
			return false;
		}
		for (uint32_t i = 0; i < outs[head % ENGINE_STEPS_OUT].n; i++) {
			struct seq *s = outs[head % ENGINE_STEPS_OUT].owners[i];

			s->out[s->got++] = results[i];
		}
		head++;
	}
}

static bool same_bits(const void *a, const void *b, size_t n)
{
	return !memcmp(a, b, n);
}

static bool same_results(const struct seq *a, const struct seq *b)
{
	bool same = a->got == b->got && a->got == a->n_out;

	for (uint32_t i = 0; same && i < a->got; i++) {
		const struct draw_result *x = &a->out[i], *y = &b->out[i];

		same = x->token == y->token && same_bits(&x->logprob, &y->logprob, sizeof(float)) &&
		       x->n_top == y->n_top &&
		       same_bits(x->top_ids, y->top_ids, x->n_top * sizeof(int32_t)) &&
		       same_bits(x->top_logprobs, y->top_logprobs, x->n_top * sizeof(float));
		if (!same)
			printf("# %u prompt tokens, draw %u: %d at %.9g, and %d at %.9g\n",
			       a->n_prompt, i, x->token, (double)x->logprob, y->token,
			       (double)y->logprob);
	}
	return same;
}

static void own_pages(struct seq *s, uint32_t first)
{
	for (uint32_t k = 0; k < PAGES; k++)
		s->pages[k] = first + k;
}

static struct engine *open_engine(const char *dir, enum engine_dtype dtype,
				  enum engine_kernels kernels, const char *dump, struct err *e)
{
	struct engine_options o = {
		.model_dir = dir,
		.program_cache = getenv("TIGON_PROGRAM_CACHE"),
		.device_memory_share = test_memory_share(),
		.dump_activations = dump,
		.dtype = dtype,
		.kernels = kernels,
		.page_tokens = PAGE,
		.max_seqs = SEQS,
		.max_prefill_tokens = BUDGET_MAX,
		.max_model_len = LENGTH_MAX,
	};
	struct engine *g = NULL;

	if (engine_open(&o, &g, e) < 0)
		printf("# %s\n", e->text);
	return g;
}

static void random_prompt(int32_t *prompt, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		prompt[i] = 4 + (int32_t)random_below(1000);
}

static struct sampling greedy(uint8_t n_logprobs)
{
	return (struct sampling){.top_p = 1,
				 .repetition_penalty = 1,
				 .n_logprobs = n_logprobs,
				 .want_logprobs = true};
}

/* ---- two plans out ---- */

static void make_mix(struct seq seqs[SEQS], int32_t prompts[SEQS][LENGTH_MAX])
{
	static const uint32_t lengths[SEQS] = {1, 64, 65, 200, 333, 130, 130, 500};
	static const uint32_t arrivals[SEQS] = {0, 0, 1, 2, 2, 5, 0, 9};
	static const int32_t banned[] = {7, 300, 12};

	random_state = 3;
	memset(seqs, 0, SEQS * sizeof(*seqs));
	for (uint32_t i = 0; i < SEQS; i++) {
		struct seq *s = &seqs[i];

		random_prompt(prompts[i], lengths[i]);
		s->prompt = prompts[i];
		s->n_prompt = lengths[i];
		s->n_out = OUT_MAX - i;
		s->arrival = arrivals[i];
		s->sampling = greedy((uint8_t)(i % 2 ? TOP_LOGPROBS_MAX : i));
		s->state = STATE_ZERO;
		s->slot = i;
		own_pages(s, i * PAGES);
	}
	/* Two sequences want no log-probabilities, so that a step returns fewer of them than tokens. */
	seqs[1].sampling.want_logprobs = seqs[5].sampling.want_logprobs = false;
	seqs[2].sampling.temperature = seqs[5].sampling.temperature = seqs[6].sampling.temperature =
		1;
	seqs[2].sampling.seed = seqs[5].sampling.seed = seqs[6].sampling.seed = 99;
	/* Penalties need counts of the generated tokens. The device counts tokens that the host has not seen yet. */
	seqs[3].sampling.repetition_penalty = 1.5f;
	seqs[4].sampling.frequency_penalty = 2;
	seqs[5].sampling.presence_penalty = seqs[6].sampling.presence_penalty = 1;
	seqs[7].sampling.repetition_penalty = 1.2f;
	seqs[0].banned = seqs[4].banned = banned;
	seqs[0].n_banned = seqs[4].n_banned = ARRAY_SIZE(banned);
	seqs[6].parent = &seqs[5];
	seqs[6].prompt = seqs[5].prompt;
}

static void test_depth(struct engine *g, const char *name)
{
	static int32_t prompts[SEQS][LENGTH_MAX];
	static struct seq one[SEQS], two[SEQS], alone[SEQS];
	struct engine_counters before, middle, after;
	uint32_t penalised = 0;

	make_mix(one, prompts);
	make_mix(two, prompts);
	engine_counters(g, &before);
	check(run(g, one, SEQS, 128, 1));
	engine_counters(g, &middle);
	check(run(g, two, SEQS, 128, 2));
	engine_counters(g, &after);
	for (uint32_t i = 0; i < SEQS; i++)
		check(same_results(&one[i], &two[i]));
	ok_all("%s: two plans out, with tokens unseen, give the bits of one", name);

	make_mix(alone, prompts);
	for (uint32_t i = 0; i < SEQS; i++) {
		if (alone[i].parent || i == 5)
			continue;
		alone[i].arrival = 0;
		check(run(g, &alone[i], 1, BUDGET_MAX, 2));
		check(same_results(&one[i], &alone[i]));
		penalised += sampling_penalised(&alone[i].sampling);
	}
	check(penalised >= 3);
	ok_all("%s: and so does each of them alone", name);

	check(middle.steps - before.steps == after.steps - middle.steps);
	check(middle.launches - before.launches == after.launches - middle.launches);
	check(middle.bytes_to_device - before.bytes_to_device ==
	      after.bytes_to_device - middle.bytes_to_device);
	check(middle.bytes_from_device - before.bytes_from_device ==
	      after.bytes_from_device - middle.bytes_from_device);
	check(after.steps > middle.steps && after.bytes_from_device > middle.bytes_from_device);
	ok_all("%s: steps, launches and bytes are counted the same", name);
}

/* ---- refused plans ---- */

/* Makes a plan of a prompt of 130 tokens, with two draws, and with states kept at 64 and 128 tokens. */
static void base_plan(struct made *m)
{
	m->plan = (struct plan){.step = 1,
				.rows = m->rows,
				.draws = m->draws,
				.resets = m->resets,
				.page_copies = m->page_copies,
				.state_copies = m->state_copies,
				.n_rows = 1,
				.n_prefill_rows = 1,
				.n_prefill_tokens = 130,
				.n_draws = 2};
	m->samplings[0] = greedy(2);
	for (uint32_t k = 0; k < PAGES; k++)
		m->pages[0][k] = k;
	m->rows[0] = (struct plan_row){.tokens = m->tokens,
				       .pages = m->pages[0],
				       .n_tokens = 130,
				       .n_pages = PAGES,
				       .state_src = STATE_ZERO,
				       .n_snapshots = 2,
				       .snapshots = {{64, 1}, {128, 2}}};
	for (uint32_t i = 0; i < 2; i++)
		m->draws[i] =
			(struct plan_draw){.sampling = &m->samplings[0], .seat = i, .choice = i};
	for (uint32_t k = 0; k < 130; k++)
		m->tokens[k] = 5 + (int32_t)k;
}

static void decode_plan(struct made *m, uint32_t token_draw)
{
	base_plan(m);
	m->plan.n_prefill_rows = m->plan.n_prefill_tokens = 0;
	m->plan.n_draws = 1;
	m->rows[0].tokens = NULL;
	m->rows[0].token_draw = token_draw;
	m->rows[0].n_tokens = 1;
	m->rows[0].start = 130;
	m->rows[0].state_src = 0;
	m->rows[0].n_snapshots = 0;
	m->rows[0].decode = true;
}

/* The number of calls of count_layer, which the engine makes for each layer of a plan. */
static uint32_t n_layers_queued;

static void count_layer(void *user, const struct plan *plan, uint32_t layer)
{
	check(plan == user && layer == n_layers_queued);
	n_layers_queued++;
}

static void test_refused(struct engine *g, const char *name)
{
	static struct made m;
	const struct engine_info *info = engine_info(g);
	struct draw_result first[SEQS], second[SEQS];
	struct err e = {0};
	int n = 0;

	check(engine_wait(g, first, &e) == -EINVAL);
	ok_all("%s: nothing to wait for", name);
	base_plan(&m);
	check(engine_submit(g, &m.plan, &e) == 0);
	/* One plan is out. Each of the plans below is refused, and that one goes on unchanged. */
	for (int i = 0;; i++) {
		struct plan_row *row = &m.rows[0];

		base_plan(&m);
		switch (i) {
		case 0: row->snapshots[0].n_tokens = 63; break;
		case 1: row->snapshots[0].n_tokens = 0; break;
		case 2: row->snapshots[0].n_tokens = 128; break; /* two snapshots at 128 */
		case 3: row->snapshots[1].n_tokens = 192; break; /* behind the row's end */
		case 4: row->snapshots[1].slot = info->n_slots; break;
		case 5: row->n_snapshots = SNAPSHOTS_MAX + 1; break;
		case 6: row->n_tokens = 128; break; /* a snapshot at the row's end */
		case 7: row->state_dst = info->n_slots; break;
		case 8: row->state_src = (int32_t)info->n_slots; break;
		case 9: row->state_src = -2; break;
		case 10: m.pages[0][2] = info->n_pages; break;
		case 11: row->start = 32; break; /* a row that begins inside a chunk */
		case 12: row->tokens = NULL; break;
		case 13: m.tokens[129] = -1; break;
		case 14: m.tokens[0] = (int32_t)info->model.vocab_size; break;
		case 15: decode_plan(&m, 2); break; /* a draw that the plan before does not have */
		case 16:
			decode_plan(&m, 0);
			row->n_snapshots = 1;
			row->snapshots[0] = (struct plan_snapshot){64, 3};
			break;
		case 17:
			decode_plan(&m, 0);
			row->tokens = m.tokens;
			row->n_tokens = 2;
			break;
		case 18:
			m.plan.n_resets = 1;
			m.resets[0] = (struct plan_seat_reset){.seat = SEQS};
			break;
		case 19:
			m.plan.n_page_copies = 1;
			m.page_copies[0] = (struct plan_copy){0, info->n_pages};
			break;
		case 20:
			m.plan.n_state_copies = 1;
			m.state_copies[0] = (struct plan_copy){info->n_slots, 0};
			break;
		default: n = i; break;
		}
		if (n)
			break;
		if (engine_submit(g, &m.plan, &e) != -EINVAL) {
			printf("# case %d\n", i);
			check(false);
			return;
		}
	}
	ok_all("%s: %d plans outside the limits are refused", name, n);
	decode_plan(&m, 1);
	check(engine_submit(g, &m.plan, &e) == 0);
	check(engine_submit(g, &m.plan, &e) == -EBUSY);
	check(engine_step(g, &m.plan, second, &e) == -EBUSY);
	check(engine_wait(g, first, &e) == 0);
	check(engine_wait(g, second, &e) == 0);
	check(engine_wait(g, second, &e) == -EINVAL);
	check(first[0].token == first[1].token && first[0].n_top == 2);
	/* The same two plans, one after the other: the host has seen the token of the second one. */
	base_plan(&m);
	n_layers_queued = 0;
	engine_set_on_layer(g, count_layer, &m.plan);
	check(engine_step(g, &m.plan, first, &e) == 0);
	engine_set_on_layer(g, NULL, NULL);
	check(n_layers_queued == info->model.n_layers);
	decode_plan(&m, 0);
	m.rows[0].tokens = &first[1].token;
	check(engine_step(g, &m.plan, first, &e) == 0);
	check(first[0].token == second[0].token &&
	      same_bits(&first[0].logprob, &second[0].logprob, sizeof(float)));
	ok_all("%s: and what was queued before and after is none the worse", name);
}

/* ---- states that are kept, and resumed from ---- */

enum { WORK = 4 }; /* slots 0 .. WORK - 1 are the sequences'; those from WORK on keep states */

/* Returns a sequence that computes this prompt and draws four tokens, with pages of its own from `first` on. */
static struct seq cold(const int32_t *prompt, uint32_t n, uint32_t slot, uint32_t first)
{
	struct seq s = {.prompt = prompt,
			.n_prompt = n,
			.n_out = 4,
			.sampling = greedy(TOP_LOGPROBS_MAX),
			.state = STATE_ZERO,
			.slot = slot};

	own_pages(&s, first);
	return s;
}

/* Lets s keep states at up to SNAPSHOTS_MAX ends of pages inside each window of `budget` tokens, chosen by chance, and
 * at every window's end but the last. */
static void choose_kept(struct seq *s, uint32_t budget)
{
	uint32_t slot = WORK;

	for (uint32_t start = 0; start < s->n_prompt; start += budget) {
		uint32_t end = MIN(start + budget, s->n_prompt),
			 inside = (end - 1) / PAGE - start / PAGE;
		uint32_t wanted = MIN(inside, (uint32_t)SNAPSHOTS_MAX);

		for (uint32_t k = 1; k <= inside; k++)
			if (random_below(inside - k + 1) < wanted) {
				wanted--;
				s->keep[s->n_keep++] =
					(struct plan_snapshot){start + k * PAGE, slot++};
			}
		if (end < s->n_prompt)
			s->keep[s->n_keep++] = (struct plan_snapshot){end, slot++};
	}
}

static void test_kept(struct engine *g, const char *name)
{
	static const uint32_t lengths[] = {65, 128, 129, 192, 333, 449, 640, 700, 0, 0};
	static const uint32_t budgets[] = {64, 256, 1024};
	static int32_t prompt[LENGTH_MAX];
	uint32_t resumed = 0, n_slots = engine_info(g)->n_slots;

	random_state = 11;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i += few ? 5 : 1) {
		uint32_t n = lengths[i] ? lengths[i] : 65 + random_below(636);

		random_prompt(prompt, n);
		for (size_t b = 0; b < ARRAY_SIZE(budgets); b++) {
			struct seq want = cold(prompt, n, 0, 0), kept = cold(prompt, n, 1, PAGES);

			choose_kept(&kept, budgets[b]);
			check(kept.n_keep && WORK + kept.n_keep <= n_slots);
			check(run(g, &want, 1, BUDGET_MAX, 1) && run(g, &kept, 1, budgets[b], 2));
			check(same_results(&want, &kept));
			/* Two sequences at a time resume from states: both from the first; then one from each further
			 * state, and one from the state before. */
			for (uint32_t k = 0; k < kept.n_keep; k++) {
				struct seq again[2];

				for (uint32_t j = 0; j < 2; j++) {
					const struct plan_snapshot *from =
						&kept.keep[k - (k ? j : 0)];

					again[j] = cold(prompt, n, 2 + j, (2 + j) * PAGES);
					memcpy(again[j].pages, kept.pages,
					       from->n_tokens / PAGE * sizeof(*kept.pages));
					again[j].position = from->n_tokens;
					again[j].state = (int32_t)from->slot;
				}
				check(run(g, again, 2, budgets[b], 1 + k % 2));
				check(same_results(&want, &again[0]));
				check(same_results(&want, &again[1]));
				resumed += 2;
			}
		}
	}
	ok_all("%s: %u prompts resumed from kept states give the bits of a cold run", name,
	       resumed);
}

/* ---- the rest ---- */

static void test_close(const char *dir, enum engine_dtype dtype)
{
	for (int n = 1; n <= 2; n++) {
		struct err e = {0};
		struct engine *g = open_engine(dir, dtype, ENGINE_KERNELS_GENERIC, NULL, &e);
		static struct made m;

		base_plan(&m);
		check(g && engine_submit(g, &m.plan, &e) == 0);
		decode_plan(&m, 0);
		check(n == 1 || (g && engine_submit(g, &m.plan, &e) == 0));
		engine_close(g);
	}
	ok_all("an engine closes with steps on its queue");
}

/* When activations are dumped, two plans may be out, too. The file has every token, also if the host had not seen
 * it. */
static void test_dump(const char *dir, enum engine_dtype dtype)
{
	static int32_t prompts[SEQS][LENGTH_MAX];
	static struct seq seqs[2][SEQS];
	struct buf files[2];

	for (uint32_t depth = 1; depth <= 2; depth++) {
		char path[512];
		struct engine *g;
		struct err e = {0};

		snprintf(path, sizeof(path), "%s", scratch_path(depth == 1 ? "one" : "two"));
		buf_init(&files[depth - 1], (size_t)1 << 30);
		g = open_engine(dir, dtype, ENGINE_KERNELS_GENERIC, path, &e);
		make_mix(seqs[depth - 1], prompts);
		for (uint32_t i = 0; i < 3; i++)
			seqs[depth - 1][i].n_out = 3;
		check(g && run(g, seqs[depth - 1], 3, 128, depth));
		engine_close(g);
		check(file_read(AT_FDCWD, path, path, &files[depth - 1], &e) == 0);
	}
	for (uint32_t i = 0; i < 3; i++)
		check(same_results(&seqs[0][i], &seqs[1][i]));
	check(files[0].len > 1000 && files[0].len == files[1].len &&
	      same_bits(files[0].data, files[1].data, files[0].len));
	ok_all("activations are dumped the same with two plans out");
	buf_release(&files[0]);
	buf_release(&files[1]);
}

int main(int argc, char **argv)
{
	static const struct {
		enum engine_kernels kernels;
		const char *name;
	} variants[] = {{ENGINE_KERNELS_GENERIC, "generic"},
			{ENGINE_KERNELS_X86, "x86"},
			{ENGINE_KERNELS_NVIDIA, "nvidia"}};
	enum engine_dtype dtype;

	if (argc < 3)
		return 2;
	few = argc > 3 && !strcmp(argv[3], "few");
	dtype = strcmp(argv[2], "bfloat16") ? ENGINE_FLOAT32 : ENGINE_BFLOAT16;
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++) {
		const char *name = variants[i].name;
		struct err e = {0};
		struct engine *g;

		if (variants[i].kernels == ENGINE_KERNELS_X86 && dtype == ENGINE_FLOAT32)
			continue; /* in float32 the x86 kernels are the generic ones */
		g = open_engine(argv[1], dtype, variants[i].kernels, NULL, &e);
		if (!g && e.code == ENOTSUP)
			continue; /* this device cannot run them */
		if (!ok(g != NULL, "%s: opens", name))
			break;
		test_depth(g, name);
		test_refused(g, name);
		test_kept(g, name);
		engine_close(g);
	}
	if (!few) {
		test_close(argv[1], dtype);
		test_dump(argv[1], dtype);
	}
	return done();
}
