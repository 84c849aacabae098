/* scheduler/: each rule by itself, with small numbers and, but for failed_draw, without a cache. test_scheduler_cache.c
 * adds the prefix cache, test_waiting.c the queue, and test_behaviours.c behaviours known from other engines.
 * scheduler_world.h says how requests and plans are written. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/scheduler_world.h"
#include "tests/tap.h"

enum { MAX_SEQS = WORLD_SEQS_MAX, VOCAB = WORLD_VOCAB, END = WORLD_END };

static struct world *new_world(uint32_t page_tokens, uint32_t n_pages, uint32_t budget)
{
	struct scheduler_config c = world_config(page_tokens, n_pages, budget);
	struct world *w;

	c.page_tokens = page_tokens;
	c.max_seqs = c.n_slots = MAX_SEQS;
	c.cache_disabled = true;
	c.max_model_len = WORLD_LETTERS_MAX;
	w = world_new(&c);
	w->named = true;
	return w;
}

TEST(config)
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

TEST(submit)
{
	struct world *w = new_world(64, 10, 128);
	struct scheduler_request r;
	struct err e;
	uint64_t id = 77, first, second;
	int32_t bad[3] = {1, 2, 3};

#define REFUSES(field, value, param_, say)                                       \
	do {                                                                     \
		r = world_letters('a', 100, 10);                                 \
		r.field = (value);                                               \
		e = (struct err){0};                                             \
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && id == 77 && \
			   world_at_baseline(w) && strstr(e.text, say) &&        \
			   !strcmp(e.param, param_),                             \
		   "refused, and nothing changed: %s", e.text);                  \
	} while (0)
	REFUSES(n_prompt, 0, "prompt", "no tokens");
	REFUSES(max_tokens, 3997, "max_tokens",
		"100 prompt tokens and 3997 to generate are more "
		"than the context length of 4096");
	REFUSES(max_tokens, UINT32_MAX, "max_tokens", "4294967295 to generate");
	REFUSES(max_tokens, 541, "max_tokens", "needs 11 KV pages of 64 tokens, and there are 10");
	REFUSES(n_choices, 0, "n", "0 choices");
	REFUSES(n_choices, 17, "n", "17 choices are not between 1 and the 16");
	REFUSES(n_choices, 10, "max_tokens", "needs 11 KV pages");
	REFUSES(sampling.n_logprobs, 21, "top_logprobs", "21");
	REFUSES(n_biases, PLAN_BIASES_MAX + 1, "logit_bias", "1025 biases");
	REFUSES(pooling, POOLING_LAST, "max_tokens", "a vector generates nothing");
	REFUSES(first_score, 101, "", "from token 101 on, and the prompt has 100");
#undef REFUSES
	for (int k = 0; k < 3; k++) {
		const struct plan_bias biases[3][2] = {{{1, 1}, {1, 1}},
						       {{1, 1}, {VOCAB, 1}},
						       {{1, 1}, {2, NAN}}};

		r = world_letters('a', 3, 1);
		r.biases = biases[k];
		r.n_biases = 2;
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && world_at_baseline(w),
		   "refused: %s", e.text);
	}
	for (int k = 0; k < 2; k++) {
		r = world_letters('a', 3, 1);
		bad[2] = k ? -1 : VOCAB;
		r.prompt = bad;
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && world_at_baseline(w),
		   "refused: %s", e.text);
		r = world_letters('a', 3, 1);
		r.end_tokens = bad;
		r.n_end_tokens = 3;
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && world_at_baseline(w),
		   "refused: %s", e.text);
	}
	plan_is(w, "nothing", "of requests that were refused, nothing runs");
	first = world_submit_letters(w, 'a', 100, 540);
	second = world_submit_letters(w, 'b', 1, 1);
	ok(first && second && first != second, "ids are not 0 and differ");
	is_int(world_stats(w).waiting, 2, "accepted requests wait");
	scheduler_abort(w->s, first);
	scheduler_abort(w->s, first);
	scheduler_abort(w->s, 0);
	scheduler_abort(w->s, 12345);
	scheduler_finish_choice(w->s, second, 1);
	is_int(world_stats(w).waiting, 1,
	       "a waiting request is aborted; unknown ids and choices are ignored");
	scheduler_finish_choice(w->s, second, 0);
	ok(world_at_baseline(w) && !scheduler_plan(w->s),
	   "a waiting request whose choices end is gone");
	ok(world_submit_letters(w, 'c', 1, 1) > second, "an id is never used again");
}

TEST(copies_of_request)
{
	struct world *w = new_world(64, 10, 128);
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
	world_submit_request(w, &r);
	memset(prompt, 0, sizeof(prompt));
	end[0] = 6;
	r = (struct scheduler_request){0};
	p = scheduler_plan(w->s);
	for (int i = 0; i < 70; i++)
		check(p->rows[0].tokens[i] == i);
	ok_all("the prompt is copied");
	ok(p->draws[0].sampling->temperature == 0.5f, "so are the sampling parameters");
	w->plan = p;
	world_commit(w, 5);
	ok(w->n_events == 1 && w->events[0].finish == FINISH_STOP, "and the end tokens");
}

TEST(chunks)
{
	struct world *w = new_world(64, 100, 128);

	world_submit_letters(w, 'a', 256, 3);
	plan_is(w, "a0+128", "budget 4, prompt 8: a first chunk of 4");
	is_int(w->plan->rows[0].state_src, STATE_ZERO, "a sequence begins with the zero state");
	is_int(w->plan->rows[0].n_pages, 2, "the block table covers what has been written");
	ok(w->plan->n_prefill_rows == 1 && w->plan->n_prefill_tokens == 128 &&
		   w->plan->n_draws == 0,
	   "a chunk inside the prompt draws nothing");
	is_int(w->plan->step, 1, "steps count from 1");
	world_commit(w, 1);
	is_int(w->n_events, 0, "and gives no event");
	plan_is(w, "a128+128!", "then the other 4");
	ok(w->plan->rows[0].state_src == (int32_t)w->plan->rows[0].state_dst,
	   "which goes on from the state that the first one left");
	world_commit(w, 7);
	ok(w->n_events == 1 && w->events[0].draw->token == 7 &&
		   w->events[0].finish == FINISH_NONE && !w->events[0].request_finished &&
		   w->events[0].user == world_letters('a', 1, 1).user,
	   "the end of the prompt gives the first token");
	plan_is(w, "a.0@256!", "the third step decodes");
	ok(w->plan->rows[0].tokens[0] == 7 && w->plan->rows[0].n_tokens == 1 &&
		   w->plan->rows[0].n_pages == 5 && w->plan->draws[0].position == 1 &&
		   w->plan->n_prefill_tokens == 0,
	   "from the token drawn last, at its position");
	is_int(w->plan->step, 3, "the third step");
	world_commit(w, 8);
	step_is(w, 9, "a.0@257!", "and so on");
	ok(w->events[0].finish == FINISH_LENGTH && w->events[0].request_finished &&
		   world_at_baseline(w),
	   "until max_tokens");
	plan_is(w, "nothing", "then there is nothing to do");

	w = new_world(128, 100, 192);
	world_submit_letters(w, 'a', 384, 1);
	step_is(w, 1, "a0+128", "page 4, budget 6, prompt 12: chunks of 4");
	step_is(w, 1, "a128+128", "the second");
	step_is(w, 1, "a256+128!", "the third");
	ok(w->events[0].finish == FINISH_LENGTH && w->events[0].request_finished &&
		   world_at_baseline(w),
	   "one token was asked for: no decode step");
	world_submit_letters(w, 'b', 1, 1);
	step_is(w, 1, "b0+1!", "a prompt of one token");
	world_submit_letters(w, 'b', 150, 1);
	step_is(w, 1, "b0+150!", "a prompt that fits the budget is not cut at a page");
}

TEST(head_of_line)
{
	struct world *w = new_world(64, 100, 128);

	world_submit_letters(w, 'a', 128, 9);
	world_submit_letters(w, 'b', 128, 9);
	step_is(w, 1, "a0+128!", "budget 4, two 4-token prompts: one is scheduled");
	step_is(w, 1, "b0+128! a.0@128!",
		"then the other: prefill rows first, decode rows on top of the budget");
	step_is(w, END, "a.0@129! b.0@128!", "decode rows in the order of admission");
	ok(w->n_events == 2 && world_at_baseline(w), "both end");

	world_submit_letters(w, 'c', 1, 9);
	world_submit_letters(w, 'a', 256, 9);
	step_is(w, 1, "c0+1! a0+64", "a prompt may begin in what is left, with whole pages");
	world_submit_letters(w, 'b', 10, 9);
	step_is(w, 1, "a64+128 c.0@1!", "r1 mid-prefill, r2 arrives: only r1 goes on, and decodes");
	step_is(w, END, "a192+64! b0+10! c.0@2!", "r2 begins in what r1's last window leaves");
	ok(world_at_baseline(w), "all end");

	w = new_world(64, 100, 100);
	world_submit_letters(w, 'a', 200, 9);
	world_submit_letters(w, 'b', 10, 9);
	step_is(w, 1, "a0+64",
		"what the page floor leaves of the budget is for nobody: r1 is not through");
	step_is(w, 1, "a64+64", "nor now");
	step_is(w, 1, "a128+72! b0+10!", "but here it is");
	world_submit_letters(w, 'c', 50, 9);
	world_submit_letters(w, 'd', 80, 9);
	world_submit_letters(w, 'e', 10, 9);
	step_is(w, 1, "c0+50! a.0@200! b.0@10!",
		"less than a page is left: d waits, and e does not overtake it");
	step_is(w, END, "d0+80! e0+10! a.0@201! b.0@11! c.0@50!", "in the next step both begin");
	ok(world_at_baseline(w), "all end");
}

TEST(admission)
{
	struct world *w = new_world(64, 10, 1024);
	struct scheduler_stats before, after;
	struct scheduler_request r;

	world_submit_letters(w, 'a', 600, 40);
	world_submit_letters(w, 'b', 64, 1);
	plan_is(w, "a0+600!", "pool of 10 pages: r1 takes all, r2 waits");
	is_int(world_stats(w).cache.free_pages, 0, "prompt and max_tokens are reserved");
	world_commit(w, 1);
	before = world_stats(w);
	plan_is(w, "a.0@600!", "r2 still waits");
	after = world_stats(w);
	ok(!memcmp(&before, &after, sizeof(before)), "a refused admission changes nothing");
	world_commit(w, END);
	is_int(world_stats(w).cache.free_pages, 10, "an early end gives everything back");
	step_is(w, 1, "b0+64!", "r2 runs after");
	ok(world_at_baseline(w), "baseline");

	world_submit_letters(w, 'a', 300, 20);
	world_submit_letters(w, 'b', 300, 21);
	world_submit_letters(w, 'c', 10, 10);
	step_is(w, END, "a0+300!", "b needs 6 of 5 pages: c, which needs 1, does not overtake");
	step_is(w, END, "b0+300! c0+10!", "b, then c");
	ok(world_at_baseline(w), "baseline");

	w = new_world(64, 1000, 1024);
	r = world_letters('a', 10, 10);
	r.n_choices = MAX_SEQS;
	world_submit_request(w, &r);
	world_submit_letters(w, 'b', 10, 10);
	plan_is(w, "a0+10!!!!!!!!!!!!!!!!", "n choices prefill in one row and take a seat each");
	ok(world_stats(w).running == MAX_SEQS && world_stats(w).waiting == 1,
	   "no seat is left for b");
	world_commit(w, 1);
	world_step(w, 1);
	scheduler_finish_choice(w->s, 1, 3);
	step_is(w, END,
		"b0+10! a.0@11! a.1@11! a.2@11! a.4@11! a.5@11! a.6@11! a.7@11! "
		"a.8@11! a.9@11! a.10@11! a.11@11! a.12@11! a.13@11! a.14@11! a.15@11!",
		"a choice that ends leaves its seat");
	ok(world_at_baseline(w), "baseline");
}

TEST(fork)
{
	struct world *w = new_world(64, 100, 128);
	struct scheduler_request r = world_letters('a', 200, 100);
	uint32_t slot, pages[4];
	uint64_t id;

	r.n_choices = 3;
	world_submit_request(w, &r);
	plan_is(w, "a0+128", "three choices, one prefill");
	is_int(world_stats(w).cache.free_pages, 100 - 3 - 3 * 2,
	       "whole pages of the prompt count once");
	ok(world_stats(w).running == 3 && world_stats(w).cache.free_slots == MAX_SEQS - 3,
	   "seats and slots count thrice");
	world_commit(w, 1);
	plan_is(w, "a128+72!!!", "every choice draws from the prompt's last row");
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
	world_commit(w, 5);
	plan_is(w, "a.0@200! a.1@200! a.2@200!", "then each is a sequence");
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
	world_commit(w, 5);
	plan_is(w, "a.0@201! a.1@201! a.2@201!", "the next step");
	ok(!w->plan->n_page_copies && !w->plan->n_state_copies, "copies nothing");
	for (uint32_t i = 0; i < 3; i++)
		w->results[i].token = i == 1 ? END : 5;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 3 && w->events[1].finish == FINISH_STOP && !w->events[1].request_finished,
	   "a choice ends by itself");
	step_is(w, END, "a.0@202! a.2@202!", "the others go on");
	ok(w->n_events == 2 && !w->events[0].request_finished && w->events[1].request_finished &&
		   world_at_baseline(w),
	   "the last event says that the request is finished");

	r = world_letters('b', 128, 10);
	r.n_choices = 2;
	world_submit_request(w, &r);
	step_is(w, 1, "b0+128!!", "a prompt that ends with its page");
	world_plan(w);
	ok(w->plan->n_page_copies == 0 && w->plan->n_state_copies == 1, "needs no page copy");
	world_commit(w, END);
	ok(world_at_baseline(w), "baseline");

	r = world_letters('c', 70, 10);
	r.n_choices = 3;
	world_submit_request(w, &r);
	world_plan(w);
	slot = w->plan->rows[0].state_dst;
	pages[1] = w->plan->rows[0].pages[1];
	w->results[0].token = END;
	w->results[1].token = 6;
	w->results[2].token = END;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 3 && world_stats(w).running == 2,
	   "choices 0 and 2 end with their first token; what choice 0 wrote is kept");
	plan_is(w, "c.1@70!", "choice 1 goes on");
	ok(w->plan->n_page_copies == 1 && w->plan->n_state_copies == 1 &&
		   w->plan->page_copies[0].src == pages[1] && w->plan->state_copies[0].src == slot,
	   "from where the prompt was written");
	world_commit(w, 5);
	is_int(world_stats(w).running, 1, "which is free then");
	world_step(w, END);
	ok(world_at_baseline(w), "baseline");

	r = world_letters('d', 70, 1);
	r.n_choices = 3;
	world_submit_request(w, &r);
	world_step(w, 1);
	ok(w->n_events == 3 && w->events[2].request_finished && world_at_baseline(w),
	   "max_tokens 1: the request ends with its prompt");

	/* Choice 0, to whose pages the prompt goes, ends at every stage: while the request waits (0), then in turn
	 * with a plan out and with none. */
	for (int stage = 0; stage < 6; stage++) {
		r = world_letters('e', 200, 10);
		r.n_choices = 3;
		id = world_submit_request(w, &r);
		if (stage == 0)
			scheduler_finish_choice(w->s, id, 0);
		world_plan(w);
		slot = w->plan->rows[0].state_dst;
		if (stage == 1)
			scheduler_finish_choice(w->s, id, 0);
		world_commit(w, 1);
		if (stage == 2)
			scheduler_finish_choice(w->s, id, 0);
		plan_is(w, stage < 3 ? "e128+72!!" : "e128+72!!!", "stage %d", stage);
		pages[3] = w->plan->rows[0].pages[3];
		check(w->plan->rows[0].state_src == (int32_t)slot);
		if (stage == 3)
			scheduler_finish_choice(w->s, id, 0);
		world_commit(w, 1);
		is_int(w->n_events, stage < 4 ? 2 : 3, "events of the choices that are there");
		if (stage == 4)
			scheduler_finish_choice(w->s, id, 0);
		plan_is(w, stage < 5 ? "e.1@200! e.2@200!" : "e.0@200! e.1@200! e.2@200!",
			"who is left goes on");
		is_int(w->plan->n_state_copies, stage == 0 ? 1 : 2,
		       "copies to all who did not write it");
		check((w->plan->rows[0].state_dst == slot) == (stage == 0 || stage == 5));
		check((w->plan->rows[0].pages[3] == pages[3]) == (stage == 0 || stage == 5));
		check(w->plan->state_copies[0].src == slot);
		check(w->plan->page_copies[0].src == pages[3]);
		if (stage == 5)
			scheduler_finish_choice(w->s, id, 0);
		world_commit(w, 1);
		step_is(w, END, "e.1@201! e.2@201!", "without choice 0");
		check(world_at_baseline(w));
	}
	ok_all("what the prompt's row wrote is kept for the fork, whenever its choice ends");
}

TEST(finish)
{
	struct world *w = new_world(64, 100, 128);
	struct scheduler_request r = world_letters('a', 10, 5);
	static const int32_t ends[] = {50, END};

	r.end_tokens = ends;
	r.n_end_tokens = 2;
	r.min_tokens = 2;
	world_submit_request(w, &r);
	for (uint32_t i = 0; i < 4; i++) {
		const struct plan_draw *d;

		world_plan(w);
		d = &w->plan->draws[0];
		check(d->position == i);
		if (i < 2)
			check(d->n_banned == 2 && d->banned[0] == 50 && d->banned[1] == END);
		else
			check(d->n_banned == 0);
		world_commit(w, 1);
		check(w->events[0].finish == FINISH_NONE);
	}
	ok_all("end tokens are banned at positions below min_tokens");
	world_step(w, 50);
	ok(w->events[0].finish == FINISH_STOP && w->events[0].request_finished,
	   "an end token as the last one that may be: stop, not length");
	r = world_letters('a', 10, 5);
	r.n_end_tokens = 0;
	r.end_tokens = NULL;
	r.min_tokens = 3;
	world_submit_request(w, &r);
	for (int i = 0; i < 5; i++) {
		world_plan(w);
		check(w->plan->draws[0].n_banned == 0);
		world_commit(w, END);
	}
	ok_all("without end tokens nothing is banned");
	ok(w->events[0].finish == FINISH_LENGTH && world_at_baseline(w),
	   "and nothing stops but the length");
}

/* min_tokens beside a token mask, which may leave end tokens alone. */
TEST(min_tokens_of_a_mask)
{
	static const int32_t ends[] = {50, END};
	uint32_t both[PLAN_MASK_WORDS(VOCAB)] = {0}, other[PLAN_MASK_WORDS(VOCAB)] = {0};
	struct world *w = new_world(64, 100, 128);
	struct scheduler_request r = world_letters('a', 10, 9);
	uint64_t id;

	both[50 / 32] |= 1u << 50 % 32;
	both[END / 32] |= 1u << END % 32;
	memcpy(other, both, sizeof(other));
	other[0] = 1u << 7;
	r.end_tokens = ends;
	r.n_end_tokens = 2;
	r.min_tokens = 4;
	r.needs_last = true;
	r.allowed = other;
	id = world_submit_request(w, &r);
	world_plan(w);
	is_int(w->plan->draws[0].n_banned, 2, "a mask that leaves another token: no end yet");
	world_commit(w, 1);
	scheduler_allow(w->s, id, 0, both);
	world_plan(w);
	is_int(w->plan->draws[0].n_banned, 0, "end tokens alone are left: they may be drawn");
	world_commit(w, 1);
	/* A bit behind the vocabulary is no token. */
	both[(VOCAB - 1) / 32] |= VOCAB % 32 ? 1u << VOCAB % 32 : 0;
	world_plan(w);
	is_int(w->plan->draws[0].n_banned, 0, "whatever follows the vocabulary's last token");
	world_commit(w, 1);
	scheduler_allow(w->s, id, 0, NULL);
	world_plan(w);
	is_int(w->plan->draws[0].n_banned, 2, "without a mask: no end");
	world_commit(w, 1);
	scheduler_allow(w->s, id, 0, other);
	world_plan(w);
	is_int(w->plan->draws[0].n_banned, 0, "min_tokens is reached");
	world_commit(w, 1);
	scheduler_abort(w->s, id);
	ok(world_at_baseline(w), "nothing is left");
}

TEST(seats)
{
	struct world *w = new_world(64, 100, 128);
	struct scheduler_request r = world_letters('a', 200, 10);
	uint32_t seat;

	r.n_choices = 2;
	r.sampling.presence_penalty = 0.5f;
	world_submit_request(w, &r);
	world_plan(w);
	is_int(w->plan->n_resets, 0, "no seat is reset before it draws");
	world_commit(w, 1);
	world_submit_letters(w, 'b', 10, 10);
	plan_is(w, "a128+72!! b0+10!", "two that are penalised, one that is not");
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
	plan_is(w, "a.1@200! b.0@10!", "choice 1 goes on");
	is_int(w->plan->draws[0].seat, seat, "but keeps its seat");
	is_int(w->plan->n_resets, 0, "a seat is reset once");
	world_commit(w, END);
	for (int k = 0; k < 2; k++) {
		r = world_letters('c', 10, 10);
		if (k)
			r.sampling.repetition_penalty = 1.1f;
		else
			r.sampling.frequency_penalty = -1;
		world_submit_request(w, &r);
		world_plan(w);
		is_int(w->plan->n_resets, 1, "every kind of penalty resets");
		world_commit(w, END);
	}
}

TEST(abort)
{
	struct world *w = new_world(64, 100, 128);
	struct scheduler_request r = world_letters('b', 70, 10);
	uint64_t a, b, c;

	a = world_submit_letters(w, 'a', 256, 10);
	world_step(w, 1);
	scheduler_abort(w->s, a);
	ok(world_at_baseline(w), "abort in the middle of a prefill");
	plan_is(w, "nothing", "nothing is left of it");

	r.n_choices = 2;
	b = world_submit_request(w, &r);
	a = world_submit_letters(w, 'a', 10, 10);
	plan_is(w, "b0+70!! a0+10!", "two requests");
	scheduler_abort(w->s, b);
	scheduler_abort(w->s, b);
	c = world_submit_letters(w, 'c', 10, 10);
	is_int(world_stats(w).running, 3, "what the plan that is out uses stays");
	world_commit(w, 1);
	ok(w->n_events == 1 && w->events[0].request == a, "late results after abort are ignored");
	ok(world_stats(w).running == 1 && world_stats(w).cache.free_pages == 99,
	   "and its pages are freed");
	plan_is(w, "c0+10! a.0@10!", "the others go on");
	scheduler_abort(w->s, c);
	scheduler_finish_choice(w->s, a, 0);
	world_commit(w, 1);
	ok(w->n_events == 0 && world_at_baseline(w), "all ended while the plan was out: no events");

	b = world_submit_request(w, &r);
	world_step(w, 1);
	world_plan(w);
	scheduler_finish_choice(w->s, b, 1);
	w->results[0].token = END;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 1 && w->events[0].choice == 0 && w->events[0].request_finished &&
		   world_at_baseline(w),
	   "when the other choice has been ended, the event of the first is the last one");

	b = world_submit_request(w, &r);
	world_step(w, 1);
	scheduler_abort(w->s, b);
	ok(world_at_baseline(w) && !scheduler_plan(w->s), "abort between prefill and fork");
}

/* A draw that failed has no token (-1). Its request ends, and the cache keeps nothing of the row. Other requests go
 * on. */
TEST(failed_draw)
{
	struct scheduler_config config = world_config(64, 100, 256);
	struct scheduler_request r = world_letters('b', 70, 10);
	struct world *w;
	uint64_t a, b;

	config.max_plans_out = 2;
	w = world_new(&config);
	r.n_choices = 2;
	b = world_submit_request(w, &r);
	a = world_submit_letters(w, 'a', 10, 10);
	plan_is(w, "b0+70^64!! a0+10!", "two requests");
	w->results[0].token = w->results[1].token = -1;
	w->results[2].token = 1;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 2 && w->events[0].request == b && w->events[0].request_finished &&
		   w->events[0].draw->token == -1 && w->events[1].request == a &&
		   !w->events[1].request_finished,
	   "one event ends the request of both failed draws");
	ok(world_stats(w).running == 1 && world_stats(w).cache.tree_pages == 5,
	   "the pages of its row are not published, those of the other are");

	plan_is(w, "@10!", "the other goes on");
	world_plan(w);
	w->results[0].token = -1;
	w->n_events = scheduler_commit(w->s, w->results, w->events);
	ok(w->n_events == 1 && w->events[0].request_finished,
	   "a decode row, with its next step out");
	world_commit(w, 1);
	ok(w->n_events == 0 && world_at_baseline(w), "whose result is dropped; nothing is left");
	scheduler_abort(w->s, a);
	scheduler_abort(w->s, b);

	b = world_submit_request(w, &r);
	plan_is(w, "b0+70^64!!", "the same prompt hits nothing");
}

/* Draws that need the token before: such a sequence has no row while its last draw is out. */
TEST(needs_last)
{
	static const uint32_t mask[PLAN_MASK_WORDS(VOCAB)] = {5};
	const struct plan_bias biases[] = {{.token = 2, .value = 1}, {.token = 7, .value = -3}};
	struct scheduler_config config = world_config(64, 100, 256);
	struct scheduler_request r = world_letters('a', 10, 10);
	const struct plan_draw *d;
	struct world *w;
	uint64_t a, b;

	config.max_plans_out = 2;
	w = world_new(&config);
	w->named = true;
	r.needs_last = true;
	r.allowed = mask;
	r.biases = biases;
	r.n_biases = 2;
	a = world_submit_request(w, &r);
	b = world_submit_letters(w, 'b', 10, 10);
	plan_is(w, "a0+10! b0+10!", "two requests");
	d = w->plan->draws;
	ok(d[0].allowed != mask && !memcmp(d[0].allowed, mask, sizeof(mask)) &&
		   d[0].n_biases == 2 && d[0].biases[1].token == 7 && !d[1].allowed &&
		   !d[1].n_biases,
	   "a draw has copies of its request's mask and biases");
	plan_is(w, "b.0@10?!", "the one waits for its token, the other does not");
	world_commit(w, 1);
	scheduler_allow(w->s, a, 0, mask);
	scheduler_allow(w->s, a, 1, NULL);
	scheduler_allow(w->s, 12345, 0, NULL);
	plan_is(w, "a.0@10! b.0@11?!", "in every second step it has a row");
	ok(w->plan->draws[0].allowed == mask && w->plan->draws[0].n_biases == 2,
	   "with the mask that it was given, which unknown requests and choices do not change");
	world_commit(w, 1);
	plan_is(w, "b.0@12?!", "and none in the others");
	world_commit(w, 1);
	scheduler_abort(w->s, b);
	scheduler_allow(w->s, a, 0, NULL);
	plan_is(w, "a.0@11!", "alone it has a row");
	ok(!w->plan->draws[0].allowed, "without a mask");
	world_commit(w, 1);
	plan_is(w, "nothing", "and its next row waits for the commit");

	r = world_letters('c', 10, 10);
	r.needs_last = true;
	r.n_choices = 2;
	(void)world_submit_request(w, &r);
	plan_is(w, "c0+10!!", "a prompt does not wait");
	world_commit(w, 1);
	plan_is(w, "nothing", "sequences that all need the token before wait for each other");
	world_commit(w, 1);
	plan_is(w, "a.0@12! c.0@10! c.1@10!", "and then run together");
	plan_is(w, "nothing", "again and again");
	world_commit(w, 1);
	plan_is(w, "a.0@13! c.0@11! c.1@11!", "also with several choices");
	world_commit(w, 1);
	scheduler_abort(w->s, a);
}

/* Sequences that wait for each other (needs_last): the next page is theirs before an admission can take it, and a
 * sequence that computes known tokens again has a row meanwhile if a prompt has one. */
TEST(gathering)
{
	struct scheduler_config config = world_config(0, 5, 8);
	struct scheduler_request r = world_letters('a', 3, 6);
	struct world *w;
	uint64_t a;

	config.max_plans_out = 2;
	config.cache_disabled = true;
	w = world_new(&config);
	w->named = true;
	r.needs_last = true;
	a = world_submit_request(w, &r);
	step_is(w, 1, "a0+3!", "three pages for a prompt and its first tokens");
	step_is(w, 1, "a.0@3!", "a row");
	step_is(w, 1, "a.0@4!", "a row");
	plan_is(w, "a.0@5!", "a row that fills the last of these pages");
	world_submit_letters(w, 'b', 3, 1);
	plan_is(w, "nothing", "a prompt that needs both free pages does not get them");
	world_commit(w, 1);
	plan_is(w, "a.0@6!", "because the sequence that waited has one of them");
	world_commit(w, 1);
	scheduler_abort(w->s, a);
	step_is(w, 1, "b0+3!", "then the prompt runs");
	ok(world_at_baseline(w), "nothing is left");
}

/* A sequence of a retracted request computes its own tokens again. */
TEST(gathering_again)
{
	struct scheduler_config config = world_config(0, 16, 8);
	struct world *w;
	uint64_t ids[3];

	config.max_plans_out = 2;
	config.cache_disabled = true;
	w = world_new(&config);
	for (uint32_t i = 0; i < 3; i++) {
		struct scheduler_request r = world_letters((char)('a' + i), i < 2 ? 2 : 6, 20);

		r.needs_last = true;
		ids[i] = world_submit_request(w, &r);
	}
	step_is(w, 1, "a0+2! b0+2! c0+4", "three prompts");
	step_is(w, 1, "c4+2! @2! @2!", "to their ends");
	for (int i = 0; i < 40 && !world_stats(w).retractions; i++)
		if (strcmp(world_plan(w), "nothing") == 0)
			world_commit(w, 1);
	ok(world_stats(w).running == 2, "of three the longest is retracted");
	scheduler_abort(w->s, ids[0]);
	world_commit(w, 1);
	step_is(w, 1, "c0+6 @11!", "its prompt runs again when another ends");
	plan_is(w, "@12! @6", "then its tokens, beside a row of the other");
	world_submit_letters(w, 'd', 1, 1);
	plan_is(w, "d0+1! @7", "or of a prompt, while the other waits for its token");
	world_commit(w, 1);
	plan_is(w, "@13! @8", "they do not wait for each other");
	world_commit(w, 1);
	plan_is(w, "nothing", "but alone they would keep the other waiting");
	scheduler_abort(w->s, ids[1]);
	scheduler_abort(w->s, ids[2]);
	world_commit(w, 1);
	ok(world_at_baseline(w), "nothing is left");
}

TEST(fail)
{
	struct world *w = new_world(64, 10, 128);
	struct scheduler_request r = world_letters('a', 100, 10);
	uint64_t a, b, c;

	r.n_choices = 2;
	a = world_submit_request(w, &r);
	world_step(w, 1);
	b = world_submit_letters(w, 'b', 200, 10);
	c = world_submit_letters(w, 'c', 100, 300);
	plan_is(w, "b0+128 a.0@100! a.1@100!", "a prefill, two decode rows, and c waits");
	w->n_events = scheduler_fail(w->s, w->events);
	ok(w->n_events == 2 && w->events[0].request == b && w->events[1].request == a,
	   "one event a request, not a row");
	for (uint32_t i = 0; i < 2; i++)
		check(!w->events[i].draw && w->events[i].request_finished &&
		      w->events[i].finish == FINISH_NONE && w->events[i].user);
	ok_all("without a draw, and the last one");
	ok(world_stats(w).running == 0 && world_stats(w).cache.free_pages == 10 &&
		   world_stats(w).waiting == 1,
	   "their pages are free, c still waits");
	plan_is(w, "c0+100!", "and can run");
	scheduler_abort(w->s, c);
	is_int(scheduler_fail(w->s, w->events), 0, "who was aborted before gets no event");
	ok(world_at_baseline(w), "baseline");
}

TEST(shuffle)
{
	struct world *w = new_world(64, 1000, 128);
	bool moved = false;

	is_int(scheduler_shuffle(w->s, 3), 0, "an idle scheduler can be shuffled");
	world_submit_letters(w, 'a', 200, 200);
	is_int(scheduler_shuffle(w->s, 4), -EBUSY, "but not while a request waits");
	world_plan(w);
	is_int(scheduler_shuffle(w->s, 5), -EBUSY, "while a sequence runs");
	world_commit(w, 1);
	is_int(scheduler_shuffle(w->s, 5), -EBUSY, "nor between its steps");
	world_plan(w);
	for (uint32_t i = 0; i < w->plan->rows[0].n_pages; i++)
		moved |= w->plan->rows[0].pages[i] != i;
	ok(moved, "pages come in another order");
}

/* A record has only the hash of a plan, so a plan with another value in one of these fields must have another
 * hash. */
TEST(hash)
{
	int32_t tokens[3] = {1, 2, 3};
	struct plan_row row = {.tokens = tokens,
			       .n_tokens = 3,
			       .start = 64,
			       .state_src = STATE_ZERO,
			       .n_snapshots = 1};
	struct plan_draw draw = {.row = 1, .position = 2};
	struct plan_score score = {.row = 1, .n_tokens = 2};
	struct plan_pooling pooling = {.row = 1};
	struct plan p = {.step = 5,
			 .rows = &row,
			 .draws = &draw,
			 .scores = &score,
			 .poolings = &pooling,
			 .n_poolings = 1,
			 .n_rows = 1,
			 .n_draws = 1,
			 .n_scores = 1,
			 .n_resets = 1,
			 .n_page_copies = 1,
			 .n_state_copies = 1};
	uint64_t hash = plan_hash(&p);

#define COUNTS(field)                                                         \
	do {                                                                  \
		(field)++;                                                    \
		ok(plan_hash(&p) != hash, #field " counts in a plan's hash"); \
		(field)--;                                                    \
	} while (0)
	COUNTS(tokens[0]);
	COUNTS(tokens[1]);
	COUNTS(tokens[2]);
	COUNTS(p.step);
	COUNTS(row.start);
	COUNTS(row.state_src);
	COUNTS(row.snapshots[0].n_tokens);
	COUNTS(draw.row);
	COUNTS(draw.position);
	COUNTS(score.row);
	COUNTS(score.first);
	COUNTS(score.n_tokens);
	COUNTS(pooling.row);
	COUNTS(pooling.first);
	pooling.begins = pooling.ends = true;
	ok(plan_hash(&p) != hash, "so do the flags of a pooling");
	pooling.begins = pooling.ends = false;
	COUNTS(p.n_resets);
	COUNTS(p.n_page_copies);
	COUNTS(p.n_state_copies);
#undef COUNTS
	ok(plan_hash(&p) == hash, "and the same plan has the same hash");
}

TEST_MAIN()
