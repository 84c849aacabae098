/*
 * engine/copies: a copy of a page or a state fails, when it is queued or when it runs. The device then counts as lost:
 * the call that finds it out says so in one sentence, and so does every later call. Bytes that were read do not count as
 * good, a plan that could have read bytes that were not written has no results, and host memory that is given back is
 * not used any more. With copies on the queue of the plans, and on a queue of their own.
 *
 *     test_copy_faults TINY      a directory of tiny checkpoints
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/engine.h"
#include "tests/copy_faults.h"
#include "tests/golden.h"
#include "tests/tap.h"

enum { PAGE = 64, TAGS = 8 };

static const char *model;
static enum engine_copy_queue copy_queue;
static struct engine *g;
static char *host; /* [2 * size] */
static uint64_t size;

static const char *const fault_names[] = {
	[FAULT_REFUSED] = "refused", [FAULT_BROKEN] = "broken", [FAULT_HELD] = "held"};

/* Opens an engine that has copied a page to the host and back, so the lists of copies have been in use. */
static void open_engine(void)
{
	struct engine_options o = run_options(model, "float32", 4, 128);
	void *tags[TAGS];
	struct err e = {0};
	uint32_t n;

	o.unoptimised = o.separate_launches = true;
	o.copy_queue = copy_queue;
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s\n", e.text);
		abort();
	}
	size = MAX(engine_info(g)->page_bytes, engine_info(g)->slot_bytes);
	host = calloc(2, size);
	if (!host)
		abort();
	check(engine_read_item(g, TIER_PAGE, 0, host, host, &e) == 0);
	check(engine_write_item(g, TIER_PAGE, 0, host, host, &e) == 0);
	engine_finish(g);
	check(engine_items_done(g, tags, TAGS, &n, &e) == 0 && n == 2);
}

static void close_engine(void)
{
	copy_fault_release();
	copy_fault_set(false, FAULT_NONE, 0);
	copy_fault_set(true, FAULT_NONE, 0);
	engine_close(g);
	free(host);
}

/* Whether the call says that a copy has lost the device, in one sentence that names OpenCL's error. */
static bool lost(int r, const struct err *e)
{
	bool right = r == -EIO && e->code == EIO && !strchr(e->text, '\n') &&
		     strstr(e->text, "copying pages or states between host and device: CL_");

	if (!right)
		printf("# %d (%d: %s)\n", r, e->code, e->text);
	return right;
}

static void done_with(void *tag, bool good)
{
	_Atomic int *count = tag;

	/* good ones count 1, bad ones 1000 */
	atomic_fetch_add(count, good ? 1 : 1000);
}

/* A plan of one token at position `start` of page 0, whose state goes from slot 0 to slot 1. */
struct one {
	int32_t token;
	uint32_t page;
	struct sampling sampling;
	struct plan_row row;
	struct plan_draw draw;
	struct plan plan;
};

static void make_plan(struct one *o, uint32_t start)
{
	o->token = 5;
	o->page = 0;
	o->sampling = run_greedy();
	o->row = (struct plan_row){.tokens = &o->token,
				   .pages = &o->page,
				   .n_tokens = 1,
				   .start = start,
				   .n_pages = 1,
				   .state_src = start ? 0 : STATE_ZERO,
				   .state_dst = 1,
				   .decode = true};
	o->draw = (struct plan_draw){.sampling = &o->sampling};
	o->plan = (struct plan){
		.step = 1, .rows = &o->row, .draws = &o->draw, .n_rows = 1, .n_draws = 1};
}

static int submit(uint32_t start, struct err *e)
{
	struct one o;

	make_plan(&o, start);
	return engine_submit(g, &o.plan, e);
}

/* Every call says that the device is lost. */
static bool stays_lost(void)
{
	const struct engine_piece piece = {.layer = 0};
	struct draw_result result;
	_Atomic int count = 0;
	void *tags[TAGS];
	struct err e = {0};
	uint32_t n;
	bool right;

	/* The plan uses the page and the slots of the copies that failed. */
	right = lost(submit(1, &e), &e);
	right &= lost(engine_wait(g, &result, &e), &e);
	right &= lost(engine_read_item(g, TIER_PAGE, 0, host, host, &e), &e);
	right &= lost(engine_write_item(g, TIER_STATE, 0, host, host, &e), &e);
	right &= lost(engine_read_pieces(g, &piece, 1, host, done_with, &count, &e), &e);
	right &= lost(engine_write_pieces(g, &piece, 1, host, done_with, &count, &e), &e);
	right &= lost(engine_pieces_check(g, &e), &e);
	right &= lost(engine_items_done(g, tags, TAGS, &n, &e), &e) && n == 0;
	engine_finish(g);
	return right && count == 0 && engine_items_out(g) == 0;
}

/* ---- copies that cannot be queued ---- */

/* The second command of an item is refused. The first one may already run. */
static void refuse_item(bool write, enum tier_kind kind)
{
	struct err e = {0};
	char *copy;
	int r;

	open_engine();
	copy_fault_set(write, FAULT_REFUSED, 1);
	r = write ? engine_write_item(g, kind, 0, host, host, &e)
		  : engine_read_item(g, kind, 0, host, host, &e);
	check(lost(r, &e) && engine_items_out(g) == 0);
	/* The caller has its memory back: no command writes there now. */
	copy = malloc(size);
	memset(host, 0x5a, size);
	memcpy(copy, host, size);
	copy_fault_set(write, FAULT_NONE, 0);
	check(stays_lost());
	check(!memcmp(copy, host, size));
	free(copy);
	close_engine();
}

TEST(refused_items)
{
	refuse_item(false, TIER_PAGE);
	refuse_item(false, TIER_STATE);
	refuse_item(true, TIER_PAGE);
	refuse_item(true, TIER_STATE);
	ok_all("an item that cannot be copied: the device is lost, and stays lost");
}

TEST(refused_pieces)
{
	const struct engine_piece pieces[2] = {{.layer = 0, .part = 0}, {.layer = 0, .part = 1}};
	_Atomic int count = 0;

	for (int write = 0; write < 2; write++) {
		struct err e = {0};
		int r;

		open_engine();
		copy_fault_set(write, FAULT_REFUSED, 1);
		r = write ? engine_write_pieces(g, pieces, 2, host, done_with, &count, &e)
			  : engine_read_pieces(g, pieces, 2, host, done_with, &count, &e);
		check(lost(r, &e));
		copy_fault_set(write, FAULT_NONE, 0);
		check(stays_lost());
		close_engine();
	}
	check(count == 0);
	ok_all("pieces that cannot be copied: the same, and their engine_done is not called");
}

/* ---- copies that fail while they run ---- */

/* One item is copied, and the next one fails. Its caller learns so from engine_items_done. */
static void break_item(bool write, enum copy_fault fault)
{
	void *tags[TAGS];
	struct err e = {0};
	uint32_t n = 0, given = 0, good = 0;
	int r;

	open_engine();
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			copy_fault_set(write, fault, 1);
		r = write ? engine_write_item(g, TIER_PAGE, 0, host, host + i, &e)
			  : engine_read_item(g, TIER_PAGE, 0, host, host + i, &e);
		check(r == 0);
	}
	copy_fault_release();
	do {
		r = engine_items_done(g, tags, TAGS, &n, &e);
		good += r == 0 ? n : 0;
		for (uint32_t i = 0; i < n; i++)
			check(tags[i] == host + given++);
	} while (r == 0 || n);
	check(given == 3 && good <= 1);
	check(lost(r, &e));
	copy_fault_set(write, FAULT_NONE, 0);
	check(stays_lost());
	close_engine();
	ok_all("a %s of an item is %s: it does not count as good", write ? "write" : "read",
	       fault_names[fault]);
}

TEST(broken_items)
{
	break_item(false, FAULT_BROKEN);
	break_item(true, FAULT_BROKEN);
	break_item(false, FAULT_HELD);
	break_item(true, FAULT_HELD);
}

TEST(broken_pieces)
{
	const struct engine_piece pieces[2] = {{.layer = 0, .part = 0}, {.layer = 0, .part = 1}};

	for (int write = 0; write < 2; write++) {
		_Atomic int count = 0;
		struct err e = {0};
		int r;

		open_engine();
		copy_fault_set(write, FAULT_BROKEN, 1);
		r = write ? engine_write_pieces(g, pieces, 2, host, done_with, &count, &e)
			  : engine_read_pieces(g, pieces, 2, host, done_with, &count, &e);
		check(r == 0);
		engine_finish(g);
		check(count == 1000);
		check(lost(engine_pieces_check(g, &e), &e));
		copy_fault_set(write, FAULT_NONE, 0);
		check(stays_lost());
		close_engine();
	}
	ok_all("pieces that fail: engine_done is called once, with good = false");
}

/* A plan that was queued behind a copy of its page. If the copy wrote the page, the plan may have read something
 * else. */
static void break_before_plan(bool write)
{
	struct draw_result result = {.token = -7};
	void *tags[TAGS];
	struct err e = {0};
	uint32_t n;
	int r;

	open_engine();
	copy_fault_set(write, FAULT_HELD, 0);
	r = write ? engine_write_item(g, TIER_PAGE, 0, host, host, &e)
		  : engine_read_item(g, TIER_PAGE, 0, host, host, &e);
	check(r == 0);
	copy_fault_set(write, FAULT_NONE, 0);
	check(submit(1, &e) == 0);
	copy_fault_release();
	check(lost(engine_wait(g, &result, &e), &e));
	check(lost(engine_items_done(g, tags, TAGS, &n, &e), &e) && n == 1);
	check(stays_lost());
	close_engine();
	ok_all("a plan behind a %s of its page that fails has no results",
	       write ? "write" : "read");
}

TEST(plans)
{
	break_before_plan(true);
	break_before_plan(false);
}

int main(int argc, char **argv)
{
	char path[4096];

	if (argc < 2)
		return 2;
	snprintf(path, sizeof(path), "%s/05-next-ratio-3", argv[1]);
	model = path;
	copy_queue = ENGINE_COPIES_SHARED;
	run_tests();
	copy_queue = ENGINE_COPIES_OWN;
	run_tests();
	return done();
}
