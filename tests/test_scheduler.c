/*
 * scheduler/: each rule by itself, with small numbers and without a cache. What the prefix cache adds is in
 * test_scheduler_cache.c, what memory does in test_waiting.c, and the behaviours that are known from other engines
 * in test_behaviours.c.
 *
 * Requests are letters: the prompt of 'a' is all tokens 'a', and its sampling seed is 'a'. A plan
 * is compared as text: "a0+128" is a prefill row (start and tokens), "a.1@70" a decode row of
 * choice 1 whose token stands at position 70, "!" behind a row means that it draws, once a choice.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "scheduler/scheduler.h"
#include "tests/tap.h"

enum { MAX_SEQS = 16, VOCAB = 1000, END = 999 };

struct world {
	struct scheduler *s;
	struct scheduler_config config;
	const struct plan *plan;
	struct draw_result results[MAX_SEQS];
	struct scheduler_event events[MAX_SEQS];
	uint32_t n_events;
	struct buf text;
};

static struct world *world_new(uint32_t page_tokens, uint32_t n_pages, uint32_t budget)
{
	struct world *w = calloc(1, sizeof(*w));

	w->config = (struct scheduler_config){
		.page_tokens = page_tokens,
		.state_tokens = page_tokens,
		.n_pages = n_pages,
		.n_slots = MAX_SEQS,
		.cache_disabled = true,
		.max_plans_out = 1,
		.max_seqs = MAX_SEQS,
		.max_prefill_tokens = budget,
		.max_model_len = 4096,
		.vocab_size = VOCAB,
	};
	buf_init(&w->text, 4096);
	if (scheduler_new(&w->config, &w->s, NULL) < 0)
		abort();
	return w;
}

static void world_free(struct world *w)
{
	scheduler_free(w->s);
	buf_release(&w->text);
	free(w);
}

static struct scheduler_request request(char name, uint32_t n_prompt, uint32_t max_tokens)
{
	static int32_t prompts[128][4096];
	static const int32_t end[] = {END};
	int32_t *prompt = prompts[(int)name];

	for (uint32_t i = 0; i < 4096; i++)
		prompt[i] = name;
	return (struct scheduler_request){
		.prompt = prompt,
		.n_prompt = n_prompt,
		.max_tokens = max_tokens,
		.n_choices = 1,
		.end_tokens = end,
		.n_end_tokens = 1,
		.sampling = {.seed = (uint64_t)name, .top_p = 1, .repetition_penalty = 1},
		.user = prompt,
	};
}

static uint64_t submit(struct world *w, const struct scheduler_request *r)
{
	uint64_t id = 0;

	if (scheduler_submit(w->s, r, &id, NULL) < 0)
		abort();
	return id;
}

static uint64_t submit_simple(struct world *w, char name, uint32_t n_prompt, uint32_t max_tokens)
{
	struct scheduler_request r = request(name, n_prompt, max_tokens);

	return submit(w, &r);
}

/* The next plan, as text. */
static const char *plan(struct world *w)
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
		if (row->decode)
			buf_printf(&w->text, "%c.%u@%u", (char)p->draws[d].sampling->seed,
				   p->draws[d].choice, row->start);
		else
			buf_printf(&w->text, "%c%u+%u", row->tokens[0], row->start, row->n_tokens);
		for (; d < p->n_draws && p->draws[d].row == i; d++)
			buf_putc(&w->text, '!');
	}
	return buf_str(&w->text);
}

/* Commits the plan that is out; every draw gave `token`. */
static void commit(struct world *w, int32_t token)
{
	for (uint32_t i = 0; i < w->plan->n_draws; i++)
		w->results[i] = (struct draw_result){.token = token};
	w->n_events = scheduler_commit(w->s, w->results, w->events);
}

static struct scheduler_stats stats(const struct world *w)
{
	struct scheduler_stats st;

	scheduler_stats(w->s, &st);
	return st;
}

/* Nothing is held, nothing waits. */
static bool at_baseline(const struct world *w)
{
	struct scheduler_stats st = stats(w);

	return st.running == 0 && st.waiting == 0 && st.cache.free_pages == w->config.n_pages &&
	       st.cache.free_slots == w->config.n_slots;
}

static void test_config(void)
{
	const struct scheduler_config good = {.page_tokens = 64,
					      .state_tokens = 64,
					      .max_plans_out = 1,
					      .n_pages = 10,
					      .n_slots = 4,
					      .max_seqs = 4,
					      .max_prefill_tokens = 64,
					      .max_model_len = 100,
					      .vocab_size = 10};
	struct scheduler_config c;
	struct scheduler *s = NULL;
	struct err e;

#define REFUSES(field, value, say)                                                    \
	do {                                                                          \
		c = good;                                                             \
		c.field = (value);                                                    \
		e = (struct err){0};                                                  \
		ok(scheduler_new(&c, &s, &e) == -EINVAL && !s && strstr(e.text, say), \
		   "refused: %s", e.text);                                            \
	} while (0)
	REFUSES(page_tokens, 0, "0 tokens");
	REFUSES(page_tokens, 0x80000000u, "2147483648 tokens");
	REFUSES(state_tokens, 96, "every 96 tokens do not end with pages of 64");
	REFUSES(state_tokens, 128, "budget of 64 tokens is less than a page of 128");
	REFUSES(state_tokens, 0, "4 state slots for a model without state");
	REFUSES(max_plans_out, 0, "0 plans");
	REFUSES(max_plans_out, 3, "3 plans");
	REFUSES(max_prefill_tokens, 63, "budget of 63 tokens is less than a page of 64");
	REFUSES(n_pages, 0, "0 pages");
	REFUSES(max_seqs, 0, "0 sequences");
	REFUSES(n_slots, 3, "memory for 3 states, and 4 sequences");
	REFUSES(n_slots, 0x80000000u, "state slots");
	REFUSES(max_model_len, 1, "length of 1");
	REFUSES(max_model_len, 0x80000000u, "context length");
	REFUSES(vocab_size, 0, "vocabulary of 0");
#undef REFUSES
	ok(scheduler_new(&good, &s, &e) == 0 && !scheduler_plan(s),
	   "an idle scheduler plans nothing");
	scheduler_free(s);
	scheduler_free(NULL);
}

static void test_submit(void)
{
	struct world *w = world_new(64, 10, 128);
	struct scheduler_request r;
	struct err e;
	uint64_t id = 77, first, second;
	int32_t bad[3] = {1, 2, 3};

#define REFUSES(field, value, param_, say)                                                         \
	do {                                                                                       \
		r = request('a', 100, 10);                                                         \
		r.field = (value);                                                                 \
		e = (struct err){0};                                                               \
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && id == 77 && at_baseline(w) && \
			   strstr(e.text, say) && !strcmp(e.param, param_),                        \
		   "refused, and nothing changed: %s", e.text);                                    \
	} while (0)
	REFUSES(n_prompt, 0, "prompt", "no tokens");
	REFUSES(max_tokens, 0, "max_tokens", "max_tokens is 0");
	REFUSES(max_tokens, 3997, "max_tokens",
		"100 prompt tokens and 3997 to generate are more "
		"than the context length of 4096");
	REFUSES(max_tokens, UINT32_MAX, "max_tokens", "4294967295 to generate");
	REFUSES(max_tokens, 541, "max_tokens", "needs 11 KV pages of 64 tokens, and there are 10");
	REFUSES(n_choices, 0, "n", "0 choices");
	REFUSES(n_choices, 17, "n", "17 choices are not between 1 and the 16");
	REFUSES(n_choices, 10, "max_tokens", "needs 11 KV pages");
	REFUSES(sampling.n_logprobs, 21, "top_logprobs", "21");
#undef REFUSES
	for (int k = 0; k < 2; k++) {
		r = request('a', 3, 1);
		bad[2] = k ? -1 : VOCAB;
		r.prompt = bad;
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && at_baseline(w), "refused: %s",
		   e.text);
		r = request('a', 3, 1);
		r.end_tokens = bad;
		r.n_end_tokens = 3;
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && at_baseline(w), "refused: %s",
		   e.text);
	}
	is_str(plan(w), "nothing", "of requests that were refused, nothing runs");
	first = submit_simple(w, 'a', 100, 540);
	second = submit_simple(w, 'b', 1, 1);
	ok(first && second && first != second, "ids are not 0 and differ");
	is_int(stats(w).waiting, 2, "accepted requests wait");
	scheduler_abort(w->s, first);
	scheduler_abort(w->s, first);
	scheduler_abort(w->s, 0);
	scheduler_abort(w->s, 12345);
	scheduler_finish_choice(w->s, second, 1);
	is_int(stats(w).waiting, 1,
	       "a waiting request is aborted; unknown ids and choices are ignored");
	scheduler_finish_choice(w->s, second, 0);
	ok(at_baseline(w) && !scheduler_plan(w->s), "a waiting request whose choices end is gone");
	ok(submit_simple(w, 'c', 1, 1) > second, "an id is never used again");
	world_free(w);
}

static void test_copies_of_request(void)
{
	struct world *w = world_new(64, 10, 128);
	int32_t prompt[70], end[] = {5};
	struct scheduler_request r = {.prompt = prompt,
				      .n_prompt = 70,
				      .max_tokens = 5,
				      .n_choices = 1,
				      .end_tokens = end,
				      .n_end_tokens = 1,
				      .sampling = {.temperature = 0.5f, .repetition_penalty = 1}};
	const struct plan *p;

	for (int i = 0; i < 70; i++)
		prompt[i] = i;
	submit(w, &r);
	memset(prompt, 0, sizeof(prompt));
	end[0] = 6;
	r = (struct scheduler_request){0};
	p = scheduler_plan(w->s);
	for (int i = 0; i < 70; i++)
		check(p->rows[0].tokens[i] == i);
	ok_all("the prompt is copied");
	ok(p->draws[0].sampling->temperature == 0.5f, "so are the sampling parameters");
	w->plan = p;
	commit(w, 5);
	ok(w->n_events == 1 && w->events[0].finish == FINISH_STOP, "and the end tokens");
	world_free(w);
}

static void test_chunks(void)
{
	struct world *w = world_new(64, 100, 128);

	submit_simple(w, 'a', 256, 3);
	is_str(plan(w), "a0+128", "budget 4, prompt 8: a first chunk of 4");
	is_int(w->plan->rows[0].state_src, STATE_ZERO, "a sequence begins with the zero state");
	is_int(w->plan->rows[0].n_pages, 2, "the block table covers what has been written");
	ok(w->plan->n_prefill_rows == 1 && w->plan->n_prefill_tokens == 128 &&
		   w->plan->n_draws == 0,
	   "a chunk inside the prompt draws nothing");
	is_int(w->plan->step, 1, "steps count from 1");
	commit(w, 1);
	is_int(w->n_events, 0, "and gives no event");
	is_str(plan(w), "a128+128!", "then the other 4");
	ok(w->plan->rows[0].state_src == (int32_t)w->plan->rows[0].state_dst,
	   "which goes on from the state that the first one left");
	commit(w, 7);
	ok(w->n_events == 1 && w->events[0].draw->token == 7 &&
		   w->events[0].finish == FINISH_NONE && !w->events[0].request_finished &&
		   w->events[0].user == request('a', 1, 1).user,
	   "the end of the prompt gives the first token");
	is_str(plan(w), "a.0@256!", "the third step decodes");
	ok(w->plan->rows[0].tokens[0] == 7 && w->plan->rows[0].n_tokens == 1 &&
		   w->plan->rows[0].n_pages == 5 && w->plan->draws[0].position == 1 &&
		   w->plan->n_prefill_tokens == 0,
	   "from the token drawn last, at its position");
	is_int(w->plan->step, 3, "the third step");
	commit(w, 8);
	is_str(plan(w), "a.0@257!", "and so on");
	commit(w, 9);
	ok(w->events[0].finish == FINISH_LENGTH && w->events[0].request_finished && at_baseline(w),
	   "until max_tokens");
	is_str(plan(w), "nothing", "then there is nothing to do");
	world_free(w);

	w = world_new(128, 100, 192);
	submit_simple(w, 'a', 384, 1);
	is_str(plan(w), "a0+128", "page 4, budget 6, prompt 12: chunks of 4");
	commit(w, 1);
	is_str(plan(w), "a128+128", "the second");
	commit(w, 1);
	is_str(plan(w), "a256+128!", "the third");
	commit(w, 1);
	ok(w->events[0].finish == FINISH_LENGTH && w->events[0].request_finished && at_baseline(w),
	   "one token was asked for: no decode step");
	submit_simple(w, 'b', 1, 1);
	is_str(plan(w), "b0+1!", "a prompt of one token");
	commit(w, 1);
	submit_simple(w, 'b', 150, 1);
	is_str(plan(w), "b0+150!", "a prompt that fits the budget is not cut at a page");
	commit(w, 1);
	world_free(w);
}

static void test_head_of_line(void)
{
	struct world *w = world_new(64, 100, 128);

	submit_simple(w, 'a', 128, 9);
	submit_simple(w, 'b', 128, 9);
	is_str(plan(w), "a0+128!", "budget 4, two 4-token prompts: one is scheduled");
	commit(w, 1);
	is_str(plan(w), "b0+128! a.0@128!",
	       "then the other: prefill rows first, decode rows on top of the budget");
	commit(w, 1);
	is_str(plan(w), "a.0@129! b.0@128!", "decode rows in the order of admission");
	commit(w, END);
	ok(w->n_events == 2 && at_baseline(w), "both end");

	submit_simple(w, 'c', 1, 9);
	submit_simple(w, 'a', 256, 9);
	is_str(plan(w), "c0+1! a0+64", "a prompt may begin in what is left, with whole pages");
	commit(w, 1);
	submit_simple(w, 'b', 10, 9);
	is_str(plan(w), "a64+128 c.0@1!",
	       "r1 mid-prefill, r2 arrives: only r1 goes on, and decodes");
	commit(w, 1);
	is_str(plan(w), "a192+64! b0+10! c.0@2!", "r2 begins in what r1's last window leaves");
	commit(w, END);
	ok(at_baseline(w), "all end");
	world_free(w);

	w = world_new(64, 100, 100);
	submit_simple(w, 'a', 200, 9);
	submit_simple(w, 'b', 10, 9);
	is_str(plan(w), "a0+64",
	       "what the page floor leaves of the budget is for nobody: r1 is not through");
	commit(w, 1);
	is_str(plan(w), "a64+64", "nor now");
	commit(w, 1);
	is_str(plan(w), "a128+72! b0+10!", "but here it is");
	commit(w, 1);
	submit_simple(w, 'c', 50, 9);
	submit_simple(w, 'd', 80, 9);
	submit_simple(w, 'e', 10, 9);
	is_str(plan(w), "c0+50! a.0@200! b.0@10!",
	       "less than a page is left: d waits, and e does not overtake it");
	commit(w, 1);
	is_str(plan(w), "d0+80! e0+10! a.0@201! b.0@11! c.0@50!", "in the next step both begin");
	commit(w, END);
	ok(at_baseline(w), "all end");
	world_free(w);
}

static void test_admission(void)
{
	struct world *w = world_new(64, 10, 1024);
	struct scheduler_stats before, after;
	struct scheduler_request r;

	submit_simple(w, 'a', 600, 40);
	submit_simple(w, 'b', 64, 1);
	is_str(plan(w), "a0+600!", "pool of 10 pages: r1 takes all, r2 waits");
	is_int(stats(w).cache.free_pages, 0, "prompt and max_tokens are reserved");
	commit(w, 1);
	before = stats(w);
	is_str(plan(w), "a.0@600!", "r2 still waits");
	after = stats(w);
	ok(!memcmp(&before, &after, sizeof(before)), "a refused admission changes nothing");
	commit(w, END);
	is_int(stats(w).cache.free_pages, 10, "an early end gives everything back");
	is_str(plan(w), "b0+64!", "r2 runs after");
	commit(w, 1);
	ok(at_baseline(w), "baseline");

	submit_simple(w, 'a', 300, 20);
	submit_simple(w, 'b', 300, 21);
	submit_simple(w, 'c', 10, 10);
	is_str(plan(w), "a0+300!", "b needs 6 of 5 pages: c, which needs 1, does not overtake");
	commit(w, END);
	is_str(plan(w), "b0+300! c0+10!", "b, then c");
	commit(w, END);
	ok(at_baseline(w), "baseline");
	world_free(w);

	w = world_new(64, 1000, 1024);
	r = request('a', 10, 10);
	r.n_choices = MAX_SEQS;
	submit(w, &r);
	submit_simple(w, 'b', 10, 10);
	is_str(plan(w), "a0+10!!!!!!!!!!!!!!!!",
	       "n choices prefill in one row and take a seat each");
	ok(stats(w).running == MAX_SEQS && stats(w).waiting == 1, "no seat is left for b");
	commit(w, 1);
	plan(w);
	commit(w, 1);
	scheduler_finish_choice(w->s, 1, 3);
	is_str(plan(w),
	       "b0+10! a.0@11! a.1@11! a.2@11! a.4@11! a.5@11! a.6@11! a.7@11! "
	       "a.8@11! a.9@11! a.10@11! a.11@11! a.12@11! a.13@11! a.14@11! a.15@11!",
	       "a choice that ends leaves its seat");
	commit(w, END);
	ok(at_baseline(w), "baseline");
	world_free(w);
}

static void test_fork(void)
{
	struct world *w = world_new(64, 100, 128);
	struct scheduler_request r = request('a', 200, 100);
	uint32_t slot, pages[4];
	uint64_t id;

	r.n_choices = 3;
	submit(w, &r);
	is_str(plan(w), "a0+128", "three choices, one prefill");
	is_int(stats(w).cache.free_pages, 100 - 3 - 3 * 2, "whole pages of the prompt count once");
	ok(stats(w).running == 3 && stats(w).cache.free_slots == MAX_SEQS - 3,
	   "seats and slots count thrice");
	commit(w, 1);
	is_str(plan(w), "a128+72!!!", "every choice draws from the prompt's last row");
	for (uint32_t i = 0; i < 3; i++)
		check(w->plan->draws[i].choice == i && w->plan->draws[i].position == 0 &&
		      w->plan->draws[i].row == 0);
	check(w->plan->draws[0].seat != w->plan->draws[1].seat &&
	      w->plan->draws[1].seat != w->plan->draws[2].seat &&
	      w->plan->draws[0].seat != w->plan->draws[2].seat);
	ok_all("choice 0, 1, 2 at position 0, each with its seat");
	ok(!w->plan->n_page_copies && !w->plan->n_state_copies, "nothing is copied yet");
	slot = w->plan->rows[0].state_dst;
	memcpy(pages, w->plan->rows[0].pages, sizeof(pages));
	commit(w, 5);
	is_str(plan(w), "a.0@200! a.1@200! a.2@200!", "then each is a sequence");
	ok(w->plan->n_page_copies == 2 && w->plan->n_state_copies == 2,
	   "two of three are copied to");
	for (uint32_t i = 0; i < 3; i++) {
		const struct plan_row *row = &w->plan->rows[i];

		check(!memcmp(row->pages, pages, 3 * sizeof(*pages)));
		check((row->pages[3] == pages[3]) == (i == 0));
		check((row->state_dst == slot) == (i == 0));
		check(row->state_src == (int32_t)row->state_dst && row->n_pages == 4);
		if (i == 0)
			continue;
		check(w->plan->page_copies[i - 1].src == pages[3]);
		check(w->plan->page_copies[i - 1].dst == row->pages[3]);
		check(w->plan->state_copies[i - 1].src == slot);
		check(w->plan->state_copies[i - 1].dst == row->state_dst);
	}
	ok_all("whole pages are shared, the partial one and the state are copied");
	commit(w, 5);
	is_str(plan(w), "a.0@201! a.1@201! a.2@201!", "the next step");
	ok(!w->plan->n_page_copies && !w->plan->n_state_copies, "copies nothing");
	for (uint32_t i = 0; i < 3; i++)
		w->results[i].token = i == 1 ? END : 5;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 3 && w->events[1].finish == FINISH_STOP && !w->events[1].request_finished,
	   "a choice ends by itself");
	is_str(plan(w), "a.0@202! a.2@202!", "the others go on");
	commit(w, END);
	ok(w->n_events == 2 && !w->events[0].request_finished && w->events[1].request_finished &&
		   at_baseline(w),
	   "the last event says that the request is finished");

	r = request('b', 128, 10);
	r.n_choices = 2;
	submit(w, &r);
	is_str(plan(w), "b0+128!!", "a prompt that ends with its page");
	commit(w, 1);
	plan(w);
	ok(w->plan->n_page_copies == 0 && w->plan->n_state_copies == 1, "needs no page copy");
	commit(w, END);
	ok(at_baseline(w), "baseline");

	r = request('c', 70, 10);
	r.n_choices = 3;
	submit(w, &r);
	plan(w);
	slot = w->plan->rows[0].state_dst;
	pages[1] = w->plan->rows[0].pages[1];
	w->results[0].token = END;
	w->results[1].token = 6;
	w->results[2].token = END;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 3 && stats(w).running == 2,
	   "choices 0 and 2 end with their first token; what choice 0 wrote is kept");
	is_str(plan(w), "c.1@70!", "choice 1 goes on");
	ok(w->plan->n_page_copies == 1 && w->plan->n_state_copies == 1 &&
		   w->plan->page_copies[0].src == pages[1] && w->plan->state_copies[0].src == slot,
	   "from where the prompt was written");
	commit(w, 5);
	is_int(stats(w).running, 1, "which is free then");
	(void)plan(w);
	commit(w, END);
	ok(at_baseline(w), "baseline");

	r = request('d', 70, 1);
	r.n_choices = 3;
	submit(w, &r);
	plan(w);
	commit(w, 1);
	ok(w->n_events == 3 && w->events[2].request_finished && at_baseline(w),
	   "max_tokens 1: the request ends with its prompt");

	/* The choice whose pages the prompt goes to is taken away at every stage: waiting (0), and in turn with a
	 * plan out and not. */
	for (int stage = 0; stage < 6; stage++) {
		r = request('e', 200, 10);
		r.n_choices = 3;
		id = submit(w, &r);
		if (stage == 0)
			scheduler_finish_choice(w->s, id, 0);
		plan(w);
		slot = w->plan->rows[0].state_dst;
		if (stage == 1)
			scheduler_finish_choice(w->s, id, 0);
		commit(w, 1);
		if (stage == 2)
			scheduler_finish_choice(w->s, id, 0);
		is_str(plan(w), stage < 3 ? "e128+72!!" : "e128+72!!!", "stage %d", stage);
		pages[3] = w->plan->rows[0].pages[3];
		check(w->plan->rows[0].state_src == (int32_t)slot);
		if (stage == 3)
			scheduler_finish_choice(w->s, id, 0);
		commit(w, 1);
		is_int(w->n_events, stage < 4 ? 2 : 3, "events of the choices that are there");
		if (stage == 4)
			scheduler_finish_choice(w->s, id, 0);
		is_str(plan(w), stage < 5 ? "e.1@200! e.2@200!" : "e.0@200! e.1@200! e.2@200!",
		       "who is left goes on");
		is_int(w->plan->n_state_copies, stage == 0 ? 1 : 2,
		       "copies to all who did not write it");
		check((w->plan->rows[0].state_dst == slot) == (stage == 0 || stage == 5));
		check((w->plan->rows[0].pages[3] == pages[3]) == (stage == 0 || stage == 5));
		check(w->plan->state_copies[0].src == slot);
		check(w->plan->page_copies[0].src == pages[3]);
		if (stage == 5)
			scheduler_finish_choice(w->s, id, 0);
		commit(w, 1);
		is_str(plan(w), "e.1@201! e.2@201!", "without choice 0");
		commit(w, END);
		check(at_baseline(w));
	}
	ok_all("what the prompt's row wrote is kept for the fork, whenever its choice ends");
	world_free(w);
}

static void test_finish(void)
{
	struct world *w = world_new(64, 100, 128);
	struct scheduler_request r = request('a', 10, 5);
	static const int32_t ends[] = {50, END};

	r.end_tokens = ends;
	r.n_end_tokens = 2;
	r.min_tokens = 2;
	submit(w, &r);
	for (uint32_t i = 0; i < 4; i++) {
		const struct plan_draw *d;

		plan(w);
		d = &w->plan->draws[0];
		check(d->position == i);
		if (i < 2)
			check(d->n_banned == 2 && d->banned[0] == 50 && d->banned[1] == END);
		else
			check(d->n_banned == 0);
		commit(w, 1);
		check(w->events[0].finish == FINISH_NONE);
	}
	ok_all("end tokens are banned at positions below min_tokens");
	plan(w);
	commit(w, 50);
	ok(w->events[0].finish == FINISH_STOP && w->events[0].request_finished,
	   "an end token as the last one that may be: stop, not length");
	r = request('a', 10, 5);
	r.n_end_tokens = 0;
	r.end_tokens = NULL;
	r.min_tokens = 3;
	submit(w, &r);
	for (int i = 0; i < 5; i++) {
		plan(w);
		check(w->plan->draws[0].n_banned == 0);
		commit(w, END);
	}
	ok_all("without end tokens nothing is banned");
	ok(w->events[0].finish == FINISH_LENGTH && at_baseline(w),
	   "and nothing stops but the length");
	world_free(w);
}

static void test_seats(void)
{
	struct world *w = world_new(64, 100, 128);
	struct scheduler_request r = request('a', 200, 10);
	uint32_t seat;

	r.n_choices = 2;
	r.sampling.presence_penalty = 0.5f;
	submit(w, &r);
	plan(w);
	is_int(w->plan->n_resets, 0, "no seat is reset before it draws");
	commit(w, 1);
	submit_simple(w, 'b', 10, 10);
	is_str(plan(w), "a128+72!! b0+10!", "two that are penalised, one that is not");
	is_int(w->plan->n_resets, 2, "a reset for each choice that is penalised");
	for (uint32_t i = 0; i < 2; i++) {
		const struct plan_seat_reset *s = &w->plan->resets[i];

		check(s->seat == w->plan->draws[i].seat && s->seat < MAX_SEQS);
		check(s->n_prompt == 200 && s->prompt[0] == 'a' && s->n_generated == 0);
	}
	ok_all("with the prompt's tokens");
	for (uint32_t i = 0; i < 3; i++)
		w->results[i].token = i == 0 ? END : 1; /* choice 0, the trunk, ends */
	seat = w->plan->draws[1].seat;
	scheduler_commit(w->s, w->results, w->events);
	is_str(plan(w), "a.1@200! b.0@10!", "choice 1 goes on");
	is_int(w->plan->draws[0].seat, seat, "but keeps its seat");
	is_int(w->plan->n_resets, 0, "a seat is reset once");
	commit(w, END);
	for (int k = 0; k < 2; k++) {
		r = request('c', 10, 10);
		if (k)
			r.sampling.repetition_penalty = 1.1f;
		else
			r.sampling.frequency_penalty = -1;
		submit(w, &r);
		plan(w);
		is_int(w->plan->n_resets, 1, "every kind of penalty resets");
		commit(w, END);
	}
	world_free(w);
}

static void test_abort(void)
{
	struct world *w = world_new(64, 100, 128);
	struct scheduler_request r = request('b', 70, 10);
	uint64_t a, b, c;

	a = submit_simple(w, 'a', 256, 10);
	plan(w);
	commit(w, 1);
	scheduler_abort(w->s, a);
	ok(at_baseline(w), "abort in the middle of a prefill");
	is_str(plan(w), "nothing", "nothing is left of it");

	r.n_choices = 2;
	b = submit(w, &r);
	a = submit_simple(w, 'a', 10, 10);
	is_str(plan(w), "b0+70!! a0+10!", "two requests");
	scheduler_abort(w->s, b);
	scheduler_abort(w->s, b);
	c = submit_simple(w, 'c', 10, 10);
	is_int(stats(w).running, 3, "what the plan that is out uses stays");
	commit(w, 1);
	ok(w->n_events == 1 && w->events[0].request == a, "late results after abort are ignored");
	ok(stats(w).running == 1 && stats(w).cache.free_pages == 99, "and its pages are freed");
	is_str(plan(w), "c0+10! a.0@10!", "the others go on");
	scheduler_abort(w->s, c);
	scheduler_finish_choice(w->s, a, 0);
	commit(w, 1);
	ok(w->n_events == 0 && at_baseline(w), "all ended while the plan was out: no events");

	b = submit(w, &r);
	plan(w);
	commit(w, 1);
	plan(w);
	scheduler_finish_choice(w->s, b, 1);
	w->results[0].token = END;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 1 && w->events[0].choice == 0 && w->events[0].request_finished &&
		   at_baseline(w),
	   "when the other choice has been ended, the event of the first is the last one");

	b = submit(w, &r);
	plan(w);
	commit(w, 1);
	scheduler_abort(w->s, b);
	ok(at_baseline(w) && !scheduler_plan(w->s), "abort between prefill and fork");
	world_free(w);
}

static void test_fail(void)
{
	struct world *w = world_new(64, 10, 128);
	struct scheduler_request r = request('a', 100, 10);
	uint64_t a, b, c;

	r.n_choices = 2;
	a = submit(w, &r);
	plan(w);
	commit(w, 1);
	b = submit_simple(w, 'b', 200, 10);
	c = submit_simple(w, 'c', 100, 300);
	is_str(plan(w), "b0+128 a.0@100! a.1@100!", "a prefill, two decode rows, and c waits");
	w->n_events = scheduler_fail(w->s, w->events);
	ok(w->n_events == 2 && w->events[0].request == b && w->events[1].request == a,
	   "one event a request, not a row");
	for (uint32_t i = 0; i < 2; i++)
		check(!w->events[i].draw && w->events[i].request_finished &&
		      w->events[i].finish == FINISH_NONE && w->events[i].user);
	ok_all("without a draw, and the last one");
	ok(stats(w).running == 0 && stats(w).cache.free_pages == 10 && stats(w).waiting == 1,
	   "their pages are free, c still waits");
	is_str(plan(w), "c0+100!", "and can run");
	scheduler_abort(w->s, c);
	is_int(scheduler_fail(w->s, w->events), 0, "who was aborted before gets no event");
	ok(at_baseline(w), "baseline");
	world_free(w);
}

static void test_shuffle(void)
{
	struct world *w = world_new(64, 1000, 128);
	bool moved = false;

	is_int(scheduler_shuffle(w->s, 3), 0, "an idle scheduler can be shuffled");
	submit_simple(w, 'a', 200, 200);
	is_int(scheduler_shuffle(w->s, 4), -EBUSY, "but not while a request waits");
	plan(w);
	is_int(scheduler_shuffle(w->s, 5), -EBUSY, "while a sequence runs");
	commit(w, 1);
	is_int(scheduler_shuffle(w->s, 5), -EBUSY, "nor between its steps");
	plan(w);
	for (uint32_t i = 0; i < w->plan->rows[0].n_pages; i++)
		moved |= w->plan->rows[0].pages[i] != i;
	ok(moved, "pages come in another order");
	world_free(w); /* with a plan out and a request in it: the leak checker looks */
}

int main(void)
{
	test_config();
	test_submit();
	test_copies_of_request();
	test_chunks();
	test_head_of_line();
	test_admission();
	test_fork();
	test_finish();
	test_seats();
	test_abort();
	test_fail();
	test_shuffle();
	return done();
}
