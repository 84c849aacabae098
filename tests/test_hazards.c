/* engine/hazards.c against the plain rule: of two of which one writes a page or slot that the other one uses, the later
 * one waits for the earlier one. */
#include <stdlib.h>

#include "engine/hazards.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { PAGE = 64, PAGES = 7, SLOTS = 5, EVENTS = 4000, ROWS = 3 };

/* A plan or a copy, by what it reads and writes: a bit a page, and behind them a bit a slot. */
struct event {
	uint32_t reads, writes;
	bool copy;
};

static struct event events[EVENTS];

static uint32_t bit(enum tier_kind kind, uint32_t id)
{
	return 1u << (kind == TIER_PAGE ? id : PAGES + id);
}

/* Returns the last plan (of_copies: copy) before event n that must have run, 0: none. */
static uint64_t must_wait(uint32_t n, bool of_copies)
{
	const struct event *e = &events[n];
	uint64_t number = 0, last = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct event *before = &events[i];

		if (before->copy != of_copies)
			continue;
		number++;
		if (before->writes & (e->reads | e->writes) || before->reads & e->writes)
			last = number;
	}
	return last;
}

struct made {
	struct plan plan;
	struct plan_row rows[ROWS];
	uint32_t pages[ROWS][PAGES];
	struct plan_copy page_copies[2], state_copies[2];
};

static void random_copies(struct plan_copy *copies, uint32_t n, enum tier_kind kind, uint32_t n_ids,
			  struct event *e)
{
	for (uint32_t i = 0; i < n; i++) {
		copies[i] = (struct plan_copy){random_below(n_ids), random_below(n_ids)};
		e->reads |= bit(kind, copies[i].src);
		e->writes |= bit(kind, copies[i].dst);
	}
}

static void random_row(struct made *m, uint32_t i, struct event *e)
{
	struct plan_row *row = &m->rows[i];
	bool decode = random_below(2), fresh = random_below(2);

	*row = (struct plan_row){
		.pages = m->pages[i],
		.n_pages = PAGES,
		.decode = decode,
		.n_tokens = decode ? 1 : 1 + random_below(3 * PAGE),
		.start = decode ? random_below(4 * PAGE) : PAGE * random_below(4),
		.state_src = fresh ? STATE_ZERO : (int32_t)random_below(SLOTS),
		.state_dst = random_below(SLOTS),
		.n_snapshots = decode ? 0 : random_below(3),
	};
	for (uint32_t k = 0; k < PAGES; k++)
		m->pages[i][k] = random_below(PAGES);
	/* by tokens, not by pages */
	for (uint32_t t = 0; t < row->start + row->n_tokens; t++)
		*(t < row->start ? &e->reads : &e->writes) |= bit(TIER_PAGE, m->pages[i][t / PAGE]);
	if (!fresh)
		e->reads |= bit(TIER_STATE, (uint32_t)row->state_src);
	e->writes |= bit(TIER_STATE, row->state_dst);
	for (uint32_t k = 0; k < row->n_snapshots; k++) {
		row->snapshots[k].slot = random_below(SLOTS);
		e->writes |= bit(TIER_STATE, row->snapshots[k].slot);
	}
}

static void random_plan(struct made *m, struct event *e)
{
	*m = (struct made){.plan = {.rows = m->rows,
				    .page_copies = m->page_copies,
				    .state_copies = m->state_copies,
				    .n_rows = random_below(ROWS + 1),
				    .n_page_copies = random_below(3),
				    .n_state_copies = random_below(3)}};
	random_copies(m->page_copies, m->plan.n_page_copies, TIER_PAGE, PAGES, e);
	random_copies(m->state_copies, m->plan.n_state_copies, TIER_STATE, SLOTS, e);
	for (uint32_t i = 0; i < m->plan.n_rows; i++)
		random_row(m, i, e);
}

TEST(random_plans_and_copies)
{
	uint64_t n_plans = 0, n_copies = 0, free_plans = 0, free_copies = 0;
	struct hazards h;
	struct made m;

	check(hazards_init(&h, PAGES, SLOTS, PAGE) == 0);
	for (uint32_t i = 0; i < EVENTS; i++) {
		struct event *e = &events[i];

		/* Most events touch few pages, so that some need not wait. */
		if (random_below(3)) {
			enum tier_kind kind = random_below(2) ? TIER_PAGE : TIER_STATE;
			uint32_t id = random_below(kind == TIER_PAGE ? PAGES : SLOTS);
			bool write = random_below(2);
			uint64_t plan = hazards_copy(&h, kind, id, write, ++n_copies);

			e->copy = true;
			*(write ? &e->writes : &e->reads) = bit(kind, id);
			check(plan == must_wait(i, false));
			free_copies += plan < n_plans;
		} else {
			uint64_t copy;

			random_plan(&m, e);
			copy = hazards_plan(&h, &m.plan, ++n_plans);
			check(copy == must_wait(i, true));
			free_plans += copy < n_copies;
		}
	}
	hazards_release(&h);
	ok_all("each plan and each copy waits for the last one that it has to wait for");
	ok(free_plans > 100 && free_copies > 100, "%d plans and %d copies need not wait for all",
	   (int)free_plans, (int)free_copies);
}

TEST(without_states)
{
	struct plan_row row = {.pages = &(uint32_t){2}, .n_tokens = 3, .n_pages = 1};
	struct plan plan = {.rows = &row, .n_rows = 1};
	struct hazards h;

	row.state_src = STATE_ZERO;
	check(hazards_init(&h, PAGES, 0, PAGE) == 0);
	is_int((long)hazards_copy(&h, TIER_PAGE, 2, false, 1), 0, "a read of an unused page");
	is_int((long)hazards_plan(&h, &plan, 1), 1, "a plan that writes it, without a state");
	is_int((long)hazards_copy(&h, TIER_PAGE, 2, true, 2), 1, "a write behind that plan");
	hazards_release(&h);
	hazards_release(&h);
}

TEST_MAIN()
