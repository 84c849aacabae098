/* scheduler/handoff.c, rule by rule: prompts that another worker computes for this one, and prompts that this one
 * computes for another. In test_handoff_pair.c two such schedulers work together. Prompts and plans are written as in
 * scheduler_world.h. */
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "tests/scheduler_world.h"
#include "tests/tap.h"

enum { END = WORLD_END };

static struct world *new_world(uint32_t n_pages, uint32_t budget, uint32_t handoff_min_tokens)
{
	struct scheduler_config c = world_config(2, n_pages, budget);

	c.handoff_min_tokens = handoff_min_tokens;
	return world_new(&c);
}

static uint64_t submit(struct world *w, const char *prompt, uint32_t max_tokens,
		       enum scheduler_handoff handoff, uint32_t n_have)
{
	struct scheduler_request r = world_request(prompt, max_tokens);

	r.handoff = handoff;
	r.n_have = n_have;
	return world_submit_request(w, &r);
}

static uint64_t receive(struct world *w, const char *prompt, uint32_t max_tokens)
{
	return submit(w, prompt, max_tokens, HANDOFF_RECEIVE, 0);
}

/* Returns the next prompt to hand over; its request is 0 if there is none. */
static struct scheduler_prepare prepare(struct world *w)
{
	struct scheduler_prepare p = {0};

	(void)scheduler_next_prepare(w->s, &p);
	return p;
}

/* Tells the scheduler that all data of a prompt have come, and `token` as the first token of every choice. Returns the
 * number of events. */
static uint32_t arrive(struct world *w, uint64_t id, int32_t token)
{
	for (uint32_t i = 0; i < WORLD_SEQS; i++)
		w->results[i] = (struct draw_result){.token = token};
	w->n_events = scheduler_received(w->s, id, w->results, w->events);
	return w->n_events;
}

/* Returns the ships of the newest plan as text. "row:first+n": a row, its first page to ship and the number of pages;
 * with "*" at the end the state is shipped, too. */
static const char *ships(struct world *w)
{
	buf_reset(&w->text);
	for (uint32_t i = 0; i < w->plan->n_ships; i++) {
		const struct plan_ship *s = &w->plan->ships[i];

		buf_printf(&w->text, "%s%u:%u+%u%s", i ? " " : "", s->row, s->first_page,
			   s->n_pages, s->state ? "*" : "");
	}
	return buf_str(&w->text);
}

/* ---- to receive ---- */

TEST(here_or_there)
{
	struct world *w = new_world(100, 64, 6);
	struct scheduler_request r;

	receive(w, "aaaaa", 1);
	step_is(w, 1, "a0+5^4!", "fewer tokens than it is worth are computed here");
	ok(w->events[0].hit.n_received == 0 && w->events[0].hit.miss == PREFIX_MISS_COLD,
	   "as an ordinary request");
	receive(w, "aaaabbbbb", 1);
	step_is(w, 1, "b4+5^8!", "so are they behind what can be resumed");
	r = world_request("cccccccccc", 1);
	r.handoff = HANDOFF_RECEIVE;
	r.prompt_logprobs = true;
	world_submit_request(w, &r);
	step_is(w, 1, "c0+10^8!", "and prompts of which every token is asked about");
	ok(prepare(w).request == 0 && world_stats(w).receives == 0, "nobody was asked");
	receive(w, "dddddd", 1);
	plan_is(w, "nothing", "others wait for another worker");
	ok(prepare(w).ask.n_prompt == 6, "which is asked");
	scheduler_abort(w->s, 4);
	ok(world_at_baseline(w), "nothing leaks");
}

TEST(received)
{
	struct world *w = new_world(100, 64, 1);
	struct scheduler_request r = world_request("abcdefg", 4);
	struct scheduler_prepare p;
	uint64_t id;

	r.handoff = HANDOFF_RECEIVE;
	r.min_tokens = 2;
	r.priority = 7;
	r.user = w;
	id = world_submit_request(w, &r);
	ok(prepare(w).request == 0, "nothing is asked for before there is room");
	plan_is(w, "nothing", "a prompt that comes from elsewhere is in no plan");
	p = prepare(w);
	ok(p.request == id && p.user == w && p.n_pages == 4 && p.slot != POOL_NONE,
	   "it has pages for all of it, and a slot");
	ok(p.ask.n_prompt == 7 && p.ask.prompt[6] == 'g' && p.ask.n_have == 0 &&
		   p.ask.max_tokens == 1 && p.ask.min_tokens == 2 && p.ask.priority == 7 &&
		   p.ask.n_end_tokens == 1 && p.ask.handoff == HANDOFF_SEND,
	   "and what the other worker is asked says it all");
	ok(prepare(w).request == 0, "once");
	ok(world_stats(w).running == 1 && world_stats(w).waiting == 0,
	   "it has a seat and waits in no queue");
	is_int(scheduler_flush(w->s), -EBUSY, "and lives");
	is_int(arrive(w, id, 5), 1, "what has come is an event");
	ok(w->events[0].request == id && w->events[0].user == w && w->events[0].choice == 0 &&
		   w->events[0].draw->token == 5 && w->events[0].finish == FINISH_NONE &&
		   !w->events[0].request_finished,
	   "the first token");
	ok(w->events[0].hit.n_received == 7 && w->events[0].hit.n_cached == 0 &&
		   w->events[0].hit.step == 1,
	   "which says where the prompt is from");
	ok(arrive(w, id, 5) == 0, "it comes once");
	scheduler_receive_failed(w->s, id, true);
	plan_is(w, "@7!", "then it decodes");
	ok(w->plan->rows[0].tokens[0] == 5 && w->plan->rows[0].pages[3] == p.pages[3] &&
		   w->plan->rows[0].state_src == (int32_t)p.slot && w->plan->draws[0].position == 1,
	   "from the token, the page and the state that have come");
	world_commit(w, 6);
	ok(w->events[0].hit.n_received == 7, "later events say so too");
	world_run(w, END);
	ok(world_published_text(w, "abcdef", 6) == false && world_at_baseline(w),
	   "7 tokens end in no page: there is no checkpoint");
}

TEST(published)
{
	struct world *w = new_world(100, 64, 3);
	uint64_t id = receive(w, "abcdefgh", 2);
	struct scheduler_prepare p;

	(void)world_plan(w);
	p = prepare(w);
	ok(!world_published_text(w, "abcdefgh", 8), "nothing is known before it is there");
	arrive(w, id, 5);
	ok(world_published_text(w, "abcdefgh", 8), "a prompt that ends with a page leaves a state");
	plan_is(w, "@8!", "which is resumed");
	ok(w->plan->rows[0].state_src == (int32_t)p.slot && w->plan->rows[0].state_dst != p.slot,
	   "and not written");
	receive(w, "abcdefghij", 1);
	world_commit(w, 6);
	step_is(w, 7, "i8+2!", "and the next prompt begins there");
	ok(w->events[0].hit.n_cached == 8 && w->events[0].hit.miss == PREFIX_MISS_NONE,
	   "as if it had been computed here");
	ok(world_at_baseline(w), "nothing leaks");
}

TEST(have)
{
	struct world *w = new_world(100, 64, 4);
	struct scheduler_prepare p;
	uint64_t id;

	world_submit(w, "abcdefg", 8);
	(void)world_plan(w);
	for (int i = 0; i < 7; i++) {
		world_commit(w, 'x');
		(void)world_plan(w);
	}
	world_commit(w, END);
	ok(world_published_text(w, "abcdefgxxxxxxx", 14), "a conversation was decoded here");
	id = receive(w, "abcdefgxxxxxxxyyy", 2);
	step_is(w, END, "y14+3^16!", "its next turn would begin behind it: it does");
	id = receive(w, "abcdefgxzzzz", 2);
	plan_is(w, "nothing", "another one comes from elsewhere");
	p = prepare(w);
	ok(p.request == id && p.ask.n_have == 6 && p.n_pages == 3,
	   "all but what was prefilled: the page with a decoded token has other bits");
	arrive(w, id, 3);
	ok(w->events[0].hit.n_cached == 6 && w->events[0].hit.n_received == 6,
	   "which its event says");
	(void)world_plan(w);
	ok(w->plan->rows[0].pages[3] == p.pages[0] && w->plan->rows[0].pages[2] != p.pages[0],
	   "it stands on both");
	world_commit(w, END);
	id = receive(w, "abcdef", 2);
	(void)world_plan(w);
	ok(prepare(w).ask.n_have == 4, "a page is always sent: that of the last token");
	scheduler_abort(w->s, id);
	ok(world_at_baseline(w), "nothing leaks");
}

TEST(aside)
{
	struct world *w = new_world(100, 4, 10);
	uint64_t r1, r2;

	r1 = receive(w, "aaaaaaaaaaaa", 3);
	world_submit(w, "aaaaaaaaaaab", 3);
	plan_is(w, "a0+4", "who waits for another worker is in nobody's way");
	r2 = receive(w, "cccccccccccc", 3);
	world_commit(w, 1);
	plan_is(w, "a4+4", "nor is it led or held up");
	ok(prepare(w).request == r1 && prepare(w).request == r2 && prepare(w).request == 0,
	   "a prompt that is being computed, and uses all of the budget, holds up no other");
	is_int(arrive(w, r2, 9), 1, "one may come while a plan is out");
	world_commit(w, 1);
	plan_is(w, "a8+4^10! @12!", "and is in the next");
	is_int(arrive(w, r1, 9), 1, "the other");
	world_commit(w, 1);
	plan_is(w, "@13! @12! @12!", "in the order in which they came,");
	ok(w->plan->rows[1].tokens[0] == 1 && w->plan->rows[2].tokens[0] == 9,
	   "or were planned to their end");
	world_commit(w, END);
	world_run(w, END);
	ok(world_at_baseline(w), "nothing leaks");
}

TEST(choices)
{
	struct world *w = new_world(100, 64, 1);
	struct scheduler_request r = world_request("abcde", 4);
	struct scheduler_prepare p;
	uint64_t id;

	r.handoff = HANDOFF_RECEIVE;
	r.n_choices = 4;
	id = world_submit_request(w, &r);
	scheduler_finish_choice(w->s, id, 3);
	(void)world_plan(w);
	p = prepare(w);
	ok(p.ask.n_choices == 3 && world_stats(w).running == 3,
	   "choices that are left are asked for");
	scheduler_finish_choice(w->s, id, 0);
	is_int(world_stats(w).running, 3, "what the trunk holds stays, also when its choice ends");
	for (uint32_t i = 0; i < 3; i++)
		w->results[i] = (struct draw_result){.token = i == 1 ? END : (int32_t)(40 + i)};
	w->n_events = scheduler_received(w->s, id, w->results, w->events);
	ok(w->n_events == 2 && w->events[0].choice == 1 && w->events[0].finish == FINISH_STOP &&
		   !w->events[0].request_finished && w->events[1].choice == 2 &&
		   w->events[1].draw->token == 42,
	   "first tokens by choice; one of them ends its choice");
	plan_is(w, "@5!", "the one that is left decodes");
	ok(w->plan->n_page_copies == 1 && w->plan->page_copies[0].src == p.pages[2] &&
		   w->plan->n_state_copies == 1 && w->plan->state_copies[0].src == p.slot,
	   "from copies of what came");
	world_commit(w, END);
	ok(w->events[0].request_finished && world_at_baseline(w), "nothing leaks");
	id = world_submit_request(w, &r);
	(void)world_plan(w);
	ok(prepare(w).ask.n_choices == 4, "four");
	for (uint32_t i = 0; i < 4; i++)
		scheduler_finish_choice(w->s, id, i);
	ok(arrive(w, id, 1) == 0 && world_at_baseline(w),
	   "when all have ended nothing is waited for");
}

TEST(ends_at_once)
{
	struct world *w = new_world(100, 64, 1);
	struct scheduler_request r = world_request("abcd", 9);
	uint64_t id;

	r.handoff = HANDOFF_RECEIVE;
	r.n_choices = 2;
	id = world_submit_request(w, &r);
	(void)world_plan(w);
	(void)prepare(w);
	ok(arrive(w, id, END) == 2 && !w->events[0].request_finished &&
		   w->events[1].request_finished && w->events[1].finish == FINISH_STOP,
	   "the first tokens may be all");
	ok(world_stats(w).running == 0 && world_published_text(w, "abcd", 4) &&
		   world_at_baseline(w),
	   "the prompt is remembered all the same");
	id = receive(w, "abcde", 1);
	(void)world_plan(w);
	ok(arrive(w, id, 3) == 1 && w->events[0].finish == FINISH_LENGTH && world_at_baseline(w),
	   "so may the only one that was asked for");
}

TEST(fails)
{
	struct world *w = new_world(14, 64, 6);
	uint64_t r1, r2, r3;

	r1 = receive(w, "aaaaaaaaaaaaaa", 4);
	r2 = receive(w, "bbbbbbbbbbbbbb", 4);
	r3 = receive(w, "cccccccccccccc", 4);
	plan_is(w, "nothing", "a pool of 14 pages");
	ok(prepare(w).request == r1 && prepare(w).request == 0 && world_stats(w).waiting == 2,
	   "has room for one prompt of 7 and its growth; the others wait");
	scheduler_receive_failed(w->s, r1, true);
	ok(world_stats(w).running == 0 && world_stats(w).waiting == 3 &&
		   world_stats(w).receives_failed == 1,
	   "what failed gives all back");
	ok(arrive(w, r1, 1) == 0, "what comes late is dropped");
	plan_is(w, "nothing", "and waits in its old place");
	ok(prepare(w).request == r1, "to be asked for again");
	scheduler_receive_failed(w->s, r1, false);
	step_is(w, END, "a0+14^12!", "or it is computed here");
	ok(w->events[0].request == r1 && w->events[0].hit.n_received == 0 &&
		   world_stats(w).prompt_tokens == 14,
	   "and counts once");
	plan_is(w, "nothing", "then the next");
	ok(prepare(w).request == r2, "is asked for");
	scheduler_abort(w->s, r2);
	scheduler_abort(w->s, r2);
	ok(arrive(w, r2, 1) == 0, "until its client leaves");
	plan_is(w, "nothing", "then the last");
	ok(prepare(w).request == r3, "is asked for");
	is_int(scheduler_fail(w->s, w->events), 1, "a device that is lost takes it along");
	ok(w->events[0].request == r3 && w->events[0].request_finished && !w->events[0].draw &&
		   world_at_baseline(w),
	   "nothing leaks");
}

TEST(retracted)
{
	struct world *w = new_world(10, 64, 6);
	uint64_t r1, r2;
	struct scheduler_stats st;

	r1 = receive(w, "aaaaaaaa", 7);
	r2 = receive(w, "bbbbbbbb", 7);
	(void)world_plan(w);
	ok(prepare(w).request == r1 && prepare(w).request == r2, "two prompts of 8 in 10 pages");
	is_int(arrive(w, r1, 1), 1, "one has come");
	for (int i = 0; i < 2; i++) {
		world_step(w, 1);
	}
	plan_is(w, "nothing", "it is stuck, the other one holds the rest");
	st = world_stats(w);
	ok(st.retractions == 1 && st.running == 1, "it is retracted; who receives is not");
	is_int(arrive(w, r2, 2), 1, "then the other has come");
	for (int i = 0; i < 6; i++) {
		world_step(w, 2);
	}
	ok(w->events[0].request == r2 && w->events[0].finish == FINISH_LENGTH, "and ends");
	ok(strcmp(world_plan(w), "nothing") != 0 && prepare(w).request == 0,
	   "who was retracted comes back without being asked for");
	for (int i = 0; i < 20 && w->plan; i++) {
		world_commit(w, 1);
		(void)world_plan(w);
	}
	ok(w->n_events == 1 && w->events[0].request == r1 && w->events[0].finish == FINISH_LENGTH &&
		   w->events[0].hit.n_received == 8,
	   "and ends");
	ok(world_at_baseline(w), "nothing leaks");
}

/* ---- to send ---- */

TEST(refused)
{
	struct world *w = new_world(100, 64, 1);
	uint64_t id = 77;
	struct err e;

#define REFUSES(max, have, logprobs, say)                                        \
	do {                                                                     \
		struct scheduler_request r = world_request("abcdefgh", (max));   \
		r.handoff = HANDOFF_SEND;                                        \
		r.n_have = (have);                                               \
		r.prompt_logprobs = (logprobs);                                  \
		e = (struct err){0};                                             \
		ok(scheduler_submit(w->s, &r, &id, &e) == -EINVAL && id == 77 && \
			   strstr(e.text, say),                                  \
		   "refused: %s", e.text);                                       \
	} while (0)
	REFUSES(2, 0, false, "2 tokens are to be generated");
	REFUSES(1, 0, true, "log-probabilities");
	REFUSES(1, 3, false, "has 3");
	REFUSES(1, 8, false, "has 8");
	REFUSES(1, UINT32_MAX - 1, false, "has 4294967294");
#undef REFUSES
	ok(world_at_baseline(w), "nothing changed");
}

TEST(ships)
{
	struct world *w = new_world(100, 4, 1);
	uint64_t id = submit(w, "abcdefghi", 1, HANDOFF_SEND, 0);

	(void)world_plan(w);
	is_str(ships(w), "0:0+2", "pages are shipped with the row that ends them");
	ok(w->plan->ships[0].request == id, "by the name of their request");
	scheduler_shipped(w->s, id);
	world_commit(w, 1);
	(void)world_plan(w);
	is_str(ships(w), "0:2+2", "each once");
	world_commit(w, 1);
	plan_is(w, "i8+1!", "the last row");
	is_str(ships(w), "0:4+1*", "also ships the page that is not whole, and the state");
	world_commit(w, 1);
	ok(w->n_events == 1 && w->events[0].request_finished &&
		   w->events[0].finish == FINISH_LENGTH,
	   "the first token is all that is drawn");
	plan_is(w, "nothing", "it does not decode");
	is_int(world_stats(w).running, 1, "what was shipped stays");
	scheduler_finish_choice(w->s, id, 0);
	scheduler_receive_failed(w->s, id, false);
	is_int(scheduler_flush(w->s), -EBUSY, "until it is through");
	scheduler_shipped(w->s, id);
	scheduler_shipped(w->s, id);
	is_int(world_stats(w).running, 0, "then it is gone");

	id = submit(w, "abcdefghijkl", 1, HANDOFF_SEND, 4);
	plan_is(w, "i8+4^10!", "the same beginning is found");
	is_str(ships(w), "0:2+4*",
	       "of what is found all that the other worker has not goes with the first row");
	world_commit(w, END);
	is_int(w->events[0].finish, FINISH_STOP, "an end token is a first token too");
	scheduler_abort(w->s, id);
	is_int(world_stats(w).running, 0, "an abort ends it as well");

	id = submit(w, "zzzzzzzzz", 1, HANDOFF_SEND, 6);
	(void)world_plan(w);
	is_str(ships(w), "", "what the other worker has is not shipped");
	world_commit(w, 1);
	(void)world_plan(w);
	is_str(ships(w), "0:3+1", "what follows is");
	scheduler_abort(w->s, id);
	world_commit(w, 1);
	id = submit(w, "abcdefgh", 1, HANDOFF_SEND, 0);
	plan_is(w, "e4+4^6!", "of a prompt that is known the end is computed");
	is_str(ships(w), "0:0+4*", "and all of it is shipped");
	scheduler_finish_choice(w->s, id, 0);
	world_commit(w, 1);
	ok(w->n_events == 0 && world_at_baseline(w),
	   "a request whose choices end before they draw ships nothing");
}

/* The pages and the slot of a ship are kept until scheduler_shipped, even if other requests need room. */
TEST(kept)
{
	struct scheduler_config c = world_config(2, 12, 64);
	uint32_t shipped[4], slot;
	struct world *w;
	bool taken = false;
	uint64_t id;

	c.max_seqs = 2;
	c.n_slots = 4;
	w = world_new(&c);
	id = submit(w, "abcdefgh", 1, HANDOFF_SEND, 0);
	(void)world_plan(w);
	is_str(ships(w), "0:0+4*", "a prompt that ends with a page");
	memcpy(shipped, w->plan->rows[0].pages, sizeof(shipped));
	slot = w->plan->rows[0].state_dst;
	world_commit(w, 1);
	ok(world_published_text(w, "abcdefgh", 8), "leaves its state");
	world_submit(w, "mnopqrstuv", 3);
	plan_is(w, "m0+10^8!", "another one");
	for (int n = 0; w->plan && n < 9; n++) {
		for (uint32_t i = 0; i < w->plan->n_rows; i++) {
			const struct plan_row *row = &w->plan->rows[i];

			taken |= row->state_dst == slot;
			for (uint32_t k = 0; k < row->n_pages; k++)
				for (uint32_t j = 0; j < ARRAY_SIZE(shipped); j++)
					taken |= row->pages[k] == shipped[j];
			for (uint32_t k = 0; k < row->n_snapshots; k++)
				taken |= row->snapshots[k].slot == slot;
		}
		world_commit(w, 1);
		if (n == 1)
			world_submit(w, "0123456789", 3);
		(void)world_plan(w);
	}
	ok(!taken && world_stats(w).cache.evicted_pages > 0,
	   "gets none of its pages, nor its state, though it has to evict others");
	scheduler_shipped(w->s, id);
	ok(world_at_baseline(w), "nothing leaks");

	/* The cache has pages of the prompt's beginning, but no state there. So these pages are computed again, and the
	 * cache keeps its own. */
	id = submit(w, "abcdX", 1, HANDOFF_SEND, 0);
	world_step(w, 1);
	scheduler_shipped(w->s, id);
	for (int k = 0; k < 2; k++) {
		id = submit(w, "abY", 1, HANDOFF_SEND, 0);
		(void)world_plan(w);
		shipped[k] = w->plan->rows[0].pages[0];
		if (!k && w->plan->rows[0].start == 0) {
			world_commit(w, 1);
			is_int(world_stats(w).cache.free_pages, 12 - 2 - 2,
			       "what was computed again is kept beside what the cache has");
		} else {
			world_commit(w, 1);
		}
		scheduler_shipped(w->s, id);
	}
	ok(shipped[0] != shipped[1], "which is what the next one finds");
	ok(world_at_baseline(w), "nothing leaks");
}

TEST(send_choices)
{
	struct world *w = new_world(100, 64, 1);
	struct scheduler_request r = world_request("abcde", 1);
	uint64_t id, hash;

	r.handoff = HANDOFF_SEND;
	r.n_choices = 3;
	id = world_submit_request(w, &r);
	plan_is(w, "a0+5^4!!!", "the first tokens of all choices are drawn");
	is_str(ships(w), "0:0+3*", "of one prompt");
	hash = plan_hash(w->plan);
	scheduler_finish_choice(w->s, id, 0);
	world_commit(w, 1);
	ok(w->n_events == 2 && w->events[1].request_finished && w->events[1].choice == 2,
	   "and said, but of one that ended");
	is_int(world_stats(w).running, 1, "only what the trunk holds stays");
	plan_is(w, "nothing", "nobody forks");
	is_int(scheduler_fail(w->s, w->events), 0, "a device that is lost has no more to say");
	ok(world_at_baseline(w), "and nobody reads from it");

	w = new_world(100, 64, 1);
	r.n_have = 2;
	(void)world_submit_request(w, &r);
	(void)world_plan(w);
	ok(plan_hash(w->plan) != hash, "what is shipped counts in a plan's hash");
}

TEST_MAIN()
