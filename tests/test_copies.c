/*
 * Copies of pages and states between host and device: data come back with the same bits, and copies and plans give what
 * they give in the order of their calls. The same for pieces of single layers, while a step runs. All of it with copies
 * on the queue of the plans, and on a queue of their own.
 *
 *     test_copies MODEL float32|bfloat16      MODEL: models/lexis, or a file made of it
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/hash.h"
#include "engine/engine.h"
#include "tests/memory_share.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { PAGE = 64, PROMPT = 2 * PAGE };

static struct engine *g;
static enum engine_copy_queue copy_queue; /* of g */

/* Returns n zero bytes, freed when the TEST has ended. */
static void *bytes_of(uint64_t n)
{
	void *p = calloc(1, n);

	if (!p)
		abort();
	after_test(free, p);
	return p;
}

static uint64_t size_of(enum tier_kind kind)
{
	return kind == TIER_PAGE ? engine_info(g)->page_bytes : engine_info(g)->slot_bytes;
}

/* Waits until no copy is out. Returns the last tag. */
static void *wait_items(void)
{
	void *tags[16], *last = NULL;
	struct err e = {0};
	uint32_t n;

	while (engine_items_out(g)) {
		if (engine_items_done(g, tags, ARRAY_SIZE(tags), &n, &e) < 0)
			abort();
		if (n)
			last = tags[n - 1];
	}
	return last;
}

static void *read_now(enum tier_kind kind, uint32_t id)
{
	void *p = bytes_of(size_of(kind));
	struct err e = {0};

	check(engine_read_item(g, kind, id, p, p, &e) == 0);
	check(wait_items() == p);
	return p;
}

static void write_now(enum tier_kind kind, uint32_t id, const void *p)
{
	struct err e = {0};

	check(engine_write_item(g, kind, id, p, NULL, &e) == 0);
	wait_items();
}

/* ---- plans of one row ---- */

struct one {
	struct plan plan;
	struct plan_row row;
	struct plan_draw draw;
	struct sampling sampling;
	int32_t tokens[PROMPT];
	uint32_t pages[3];
};

static void base(struct one *o, uint32_t start, uint32_t n, uint32_t first_page, int32_t src,
		 uint32_t dst)
{
	o->sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1, .want_logprobs = true};
	for (uint32_t i = 0; i < 3; i++)
		o->pages[i] = first_page + i;
	o->row = (struct plan_row){.tokens = o->tokens,
				   .pages = o->pages,
				   .n_tokens = n,
				   .start = start,
				   .n_pages = 3,
				   .state_src = src,
				   .state_dst = dst,
				   .decode = start > 0};
	o->draw = (struct plan_draw){.sampling = &o->sampling};
	o->plan = (struct plan){.rows = &o->row,
				.draws = &o->draw,
				.n_rows = 1,
				.n_draws = 1,
				.n_prefill_rows = start == 0,
				.n_prefill_tokens = start ? 0 : n};
}

/* Makes a plan of a prompt that follows from `seed`, in first_page and the page behind it, with its state in `slot`. */
static void prompt_plan(struct one *o, int32_t seed, uint32_t first_page, uint32_t slot)
{
	for (int32_t i = 0; i < PROMPT; i++)
		o->tokens[i] = (seed * 7919 + i * i * 31 + i) % 8000 + 1;
	base(o, 0, PROMPT, first_page, STATE_ZERO, slot);
}

/* Makes a plan of one token behind such a prompt. */
static void decode_plan(struct one *o, uint32_t first_page, uint32_t src, uint32_t dst)
{
	o->tokens[0] = 4321;
	base(o, PROMPT, 1, first_page, (int32_t)src, dst);
}

static struct draw_result step(const struct one *o)
{
	struct draw_result result = {.token = -1};
	struct err e = {0};

	if (engine_step(g, &o->plan, &result, &e) < 0)
		printf("# %s\n", e.text);
	return result;
}

/* ---- tests ---- */

/* Checks that any bits come back, and that the page or slot beside them does not change. */
static void round_trip(enum tier_kind kind)
{
	uint32_t n = kind == TIER_PAGE ? engine_info(g)->n_pages : engine_info(g)->n_slots;
	uint64_t bytes = size_of(kind);
	const uint32_t ids[] = {0, n / 2, n - 1};
	uint8_t *want = bytes_of(bytes);

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		uint32_t beside = ids[i] ? ids[i] - 1 : 1;
		uint8_t *before = read_now(kind, beside), *after, *got;

		for (uint64_t k = 0; k < bytes; k++)
			want[k] = (uint8_t)random_below(256);
		write_now(kind, ids[i], want);
		got = read_now(kind, ids[i]);
		after = read_now(kind, beside);
		check(!memcmp(got, want, bytes));
		check(!memcmp(before, after, bytes));
		memset(want, 0, bytes); /* some of the random bits were NaN */
		write_now(kind, ids[i], want);
	}
	ok_all("a %s goes there and back bit for bit", kind == TIER_PAGE ? "page" : "state");
}

TEST(round_trips)
{
	round_trip(TIER_PAGE);
	round_trip(TIER_STATE);
}

/* A sequence continues elsewhere from the bytes that were read. */
TEST(resume)
{
	struct one o;
	struct draw_result want, got;
	void *page[2], *state;

	prompt_plan(&o, 1, 0, 0);
	step(&o);
	page[0] = read_now(TIER_PAGE, 0);
	page[1] = read_now(TIER_PAGE, 1);
	state = read_now(TIER_STATE, 0);
	decode_plan(&o, 0, 0, 1);
	want = step(&o);
	prompt_plan(&o, 2, 0, 0); /* overwrites everything */
	step(&o);
	prompt_plan(&o, 3, 4, 2);
	step(&o);
	decode_plan(&o, 4, 2, 1);
	got = step(&o);
	printf("# %d %g %d %g\n", want.token, (double)want.logprob, got.token, (double)got.logprob);
	ok(memcmp(&got.logprob, &want.logprob, sizeof(float)) != 0,
	   "another prompt has another answer");
	write_now(TIER_PAGE, 4, page[0]);
	write_now(TIER_PAGE, 5, page[1]);
	write_now(TIER_STATE, 2, state);
	decode_plan(&o, 4, 2, 1);
	got = step(&o);
	ok(got.token == want.token && !memcmp(&got.logprob, &want.logprob, sizeof(float)),
	   "a sequence resumes elsewhere with the same bits");
}

/* Copies and plans that are queued without waiting for one another run in their order. */
TEST(order)
{
	uint64_t page_bytes = size_of(TIER_PAGE), state_bytes = size_of(TIER_STATE);
	void *pages[3] = {bytes_of(page_bytes), bytes_of(page_bytes), bytes_of(page_bytes)};
	void *states[3] = {bytes_of(state_bytes), bytes_of(state_bytes), bytes_of(state_bytes)};
	struct draw_result results[3];
	struct one a, b;
	struct err e = {0};
	void *want_page, *want_state;

	prompt_plan(&a, 7, 0, 0);
	prompt_plan(&b, 8, 0, 0);
	step(&a);
	want_page = read_now(TIER_PAGE, 0);
	want_state = read_now(TIER_STATE, 0);
	step(&b);
	/* The second plan overwrites the data of the first one, and the writes those of the second plan. */
	check(engine_submit(g, &a.plan, &e) == 0);
	check(engine_read_item(g, TIER_PAGE, 0, pages[0], &pages[0], &e) == 0);
	check(engine_read_item(g, TIER_STATE, 0, states[0], &states[0], &e) == 0);
	check(engine_submit(g, &b.plan, &e) == 0);
	check(engine_read_item(g, TIER_PAGE, 0, pages[1], &pages[1], &e) == 0);
	check(engine_read_item(g, TIER_STATE, 0, states[1], &states[1], &e) == 0);
	check(engine_write_item(g, TIER_PAGE, 0, want_page, NULL, &e) == 0);
	check(engine_write_item(g, TIER_STATE, 0, want_state, NULL, &e) == 0);
	check(engine_read_item(g, TIER_PAGE, 0, pages[2], &pages[2], &e) == 0);
	check(engine_read_item(g, TIER_STATE, 0, states[2], &states[2], &e) == 0);
	check(engine_wait(g, results, &e) == 0 && engine_wait(g, results, &e) == 0);
	check(wait_items() == &states[2]);
	check(!memcmp(pages[0], want_page, page_bytes) &&
	      !memcmp(states[0], want_state, state_bytes));
	check(memcmp(pages[1], want_page, page_bytes) &&
	      memcmp(states[1], want_state, state_bytes));
	check(!memcmp(pages[2], want_page, page_bytes) &&
	      !memcmp(states[2], want_state, state_bytes));
	ok_all("reads see what the plans before them left, whatever comes after");

	/* The second plan sees a write between two plans: pages and state of `a`, from which a token follows. */
	{
		void *second = NULL;
		struct draw_result want, got[2];
		struct one d;

		step(&a);
		second = read_now(TIER_PAGE, 1);
		decode_plan(&d, 0, 0, 1);
		want = step(&d);
		check(engine_submit(g, &b.plan, &e) == 0);
		check(engine_write_item(g, TIER_PAGE, 0, want_page, NULL, &e) == 0);
		check(engine_write_item(g, TIER_PAGE, 1, second, NULL, &e) == 0);
		check(engine_write_item(g, TIER_STATE, 0, want_state, NULL, &e) == 0);
		check(engine_submit(g, &d.plan, &e) == 0);
		check(engine_wait(g, &got[0], &e) == 0 && engine_wait(g, &got[1], &e) == 0);
		wait_items();
		check(got[1].token == want.token &&
		      !memcmp(&got[1].logprob, &want.logprob, sizeof(float)));
	}
	ok_all("writes are there for the plans after them");
}

TEST(limits)
{
	const struct engine_info *info = engine_info(g);
	uint64_t bytes = size_of(TIER_PAGE);
	struct engine_counters before, after;
	char *host = bytes_of(bytes * ENGINE_ITEMS_OUT);
	void *tags[ENGINE_ITEMS_OUT];
	uint32_t n = 0, seen = 0;
	struct err e = {0};

	is_int(engine_read_item(g, TIER_PAGE, info->n_pages, host, NULL, &e), -EINVAL,
	       "no such page: %s", e.text);
	is_int(engine_write_item(g, TIER_STATE, info->n_slots, host, NULL, &e), -EINVAL,
	       "no such state: %s", e.text);
	engine_counters(g, &before);
	for (uint32_t i = 0; i < ENGINE_ITEMS_OUT; i++)
		check(engine_read_item(g, TIER_PAGE, i % info->n_pages, host + i * bytes, host + i,
				       &e) == 0);
	is_int(engine_items_out(g), ENGINE_ITEMS_OUT, "so many are out");
	is_int(engine_read_item(g, TIER_PAGE, 0, host, NULL, &e), -EBUSY, "one more is refused");
	while (engine_items_out(g)) {
		check(engine_items_done(g, tags, 7, &n, &e) == 0 && n <= 7);
		for (uint32_t i = 0; i < n; i++)
			check(tags[i] == host + seen++);
	}
	ok_all("tags come back in the order of the calls, a few at a time");
	is_int(seen, ENGINE_ITEMS_OUT, "all of them");
	engine_counters(g, &after);
	is_int(after.bytes_from_device - before.bytes_from_device, bytes * ENGINE_ITEMS_OUT,
	       "bytes are counted");
	is_int(engine_items_done(g, tags, 7, &n, &e), 0, "nothing is out");
	is_int(n, 0, "and nothing comes");
}

/* ---- by layers ---- */

enum { LAYERS_MAX = 64 };

/* The data of a prompt, by layer: pieces of the layer's two parts, for each of the prompt's two pages or for its
 * state. */
struct shipping {
	const struct plan *plan;
	struct engine_block *blocks[LAYERS_MAX]; /* owned */
	uint8_t *host[LAYERS_MAX];		 /* data of the blocks */
	struct engine_piece pieces[LAYERS_MAX][4];
	uint32_t n[LAYERS_MAX], n_layers, n_read, slot;
	bool in_order;
	_Atomic uint32_t came, bad;
};

/* Returns whether the layer keeps pages (else it keeps states). *ret_bytes: bytes of its two pieces of one of them. */
static bool keeps_pages(uint32_t layer, uint64_t *ret_bytes)
{
	uint32_t n;
	const struct layer_part *parts = engine_layer_parts(g, layer, &n);

	*ret_bytes = parts[0].bytes + parts[1].bytes;
	return n == 2 && parts[0].kind == TIER_PAGE;
}

static void count_done(void *tag, bool good)
{
	struct shipping *s = tag;

	atomic_fetch_add(&s->bad, !good);
	atomic_fetch_add(&s->came, 1);
}

static void read_layer(void *user, const struct plan *plan, uint32_t layer)
{
	struct shipping *s = user;
	uint64_t bytes;
	bool pages = keeps_pages(layer, &bytes);
	struct err e = {0};

	if (plan != s->plan)
		return;
	s->in_order &= layer == s->n_layers++;
	s->n[layer] = pages ? 4 : 2;
	for (uint32_t i = 0; i < s->n[layer]; i++)
		s->pieces[layer][i] = (struct engine_piece){layer, i % 2, pages ? i / 2 : s->slot};
	check(engine_block_new(g, (pages ? 2 : 1) * bytes, &s->blocks[layer], &e) == 0);
	s->host[layer] = engine_block_data(s->blocks[layer]);
	if (engine_read_pieces(g, s->pieces[layer], s->n[layer], s->host[layer], count_done, s,
			       &e) == 0)
		s->n_read++;
}

static void wait_done(struct shipping *s, uint32_t n)
{
	while (atomic_load(&s->came) < n)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

TEST(pieces)
{
	const struct model_config *c = &engine_info(g)->model;
	struct shipping s = {.in_order = true};
	struct draw_result want, got, other;
	uint64_t at[2] = {0, 0}, none;
	void *page, *state;
	struct one a, b, d;
	struct err e = {0};

	prompt_plan(&a, 21, 0, 0);
	prompt_plan(&b, 22, 0, 0);
	s.plan = &a.plan;
	engine_set_on_layer(g, read_layer, &s);
	/* The second plan overwrites the data of the first, as soon as it may. */
	check(engine_submit(g, &a.plan, &e) == 0 && engine_submit(g, &b.plan, &e) == 0);
	check(engine_wait(g, &got, &e) == 0 && engine_wait(g, &got, &e) == 0);
	engine_set_on_layer(g, NULL, NULL);
	wait_done(&s, c->n_layers);
	ok(s.in_order && s.n_layers == c->n_layers && s.n_read == c->n_layers && !s.bad,
	   "a step beats once a layer, in their order, and is read there");
	step(&a);
	page = read_now(TIER_PAGE, 1);
	state = read_now(TIER_STATE, 0);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		uint64_t n;
		bool pages = keeps_pages(i, &n);

		/* The second half of a layer's data is page 1's. */
		check(!memcmp(s.host[i] + (pages ? n : 0),
			      (char *)(pages ? page : state) + at[!pages], n));
		at[!pages] += n;
	}
	check(at[0] == size_of(TIER_PAGE) && at[1] == size_of(TIER_STATE));
	ok_all("what a layer left is the layer's part of the items, whatever the next step writes");

	decode_plan(&d, 0, 0, 1);
	want = step(&d);
	step(&b);
	decode_plan(&d, 0, 0, 1);
	other = step(&d);
	s.came = 0;
	for (uint32_t i = 0; i < c->n_layers; i++) {
		uint64_t n;

		for (uint32_t k = 0; k < s.n[i]; k++)
			s.pieces[i][k].id += keeps_pages(i, &n) ? 4 : 2;
		check(engine_write_pieces(g, s.pieces[i], s.n[i], s.host[i], count_done, &s, &e) ==
		      0);
	}
	decode_plan(&d, 4, 2, 1);
	got = step(&d);
	wait_done(&s, c->n_layers);
	ok(!s.bad && got.token == want.token &&
		   !memcmp(&got.logprob, &want.logprob, sizeof(float)) &&
		   memcmp(&got.logprob, &other.logprob, sizeof(float)) != 0,
	   "written elsewhere layer by layer, it is resumed with the same bits");
	s.pieces[0][0].id =
		keeps_pages(0, &none) ? engine_info(g)->n_pages : engine_info(g)->n_slots;
	is_int(engine_read_pieces(g, s.pieces[0], 1, s.host[0], count_done, &s, &e), -EINVAL,
	       "no such piece: %s", e.text);
	s.pieces[0][0] = (struct engine_piece){0, 2, 0};
	is_int(engine_write_pieces(g, s.pieces[0], 1, s.host[0], count_done, &s, &e), -EINVAL,
	       "a layer keeps two parts: %s", e.text);
	for (uint32_t i = 0; i < c->n_layers; i++)
		engine_block_free(s.blocks[i]);
}

/* ---- any order ---- */

enum { EVENTS = 300, IDS = 6, CONTENTS = 4, BURST = 12 };

/* Plans and copies in random order, on so few pages and slots that most of them meet on one. All that comes back is
 * kept until the end, so nothing waits but the plans, two of which may be out. */
struct mess {
	struct one plans[CONTENTS];
	void *pages[CONTENTS], *states[CONTENTS]; /* contents that may be written */
	void *reads[EVENTS * BURST];
	uint64_t bytes[EVENTS * BURST];
	struct draw_result results[EVENTS];
	uint32_t n_reads, n_results, n_out, n_pieces;
	_Atomic uint32_t n_came, n_bad;
};

static void piece_came(void *tag, bool good)
{
	struct mess *m = tag;

	atomic_fetch_add(&m->n_bad, !good);
	atomic_fetch_add(&m->n_came, 1);
}

/* Returns memory for a read, owned by m. */
static void *to_read(struct mess *m, uint64_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		abort();
	m->bytes[m->n_reads] = bytes;
	return m->reads[m->n_reads++] = p;
}

static void end_plan(struct mess *m)
{
	struct err e = {0};

	check(engine_wait(g, &m->results[m->n_results++], &e) == 0);
	m->n_out--;
}

static void submit_some(struct mess *m)
{
	uint32_t page = random_below(IDS - 2), src = random_below(IDS), dst = random_below(IDS);
	struct one *o = &m->plans[random_below(CONTENTS)], decode;
	struct plan_copy page_copy = {random_below(IDS), random_below(IDS)},
			 state_copy = {random_below(IDS), random_below(IDS)};
	struct err e = {0};

	if (m->n_out == ENGINE_STEPS_OUT)
		end_plan(m);
	if (random_below(3)) {
		decode_plan(&decode, page, src, dst);
		o = &decode;
	} else {
		for (uint32_t i = 0; i < 3; i++)
			o->pages[i] = page + i;
		o->row.state_dst = dst;
	}
	/* A copied page must not be one that the row writes, nor a copied slot. */
	o->plan.page_copies = &page_copy;
	o->plan.n_page_copies = page_copy.src != page_copy.dst && !random_below(3);
	o->plan.state_copies = &state_copy;
	o->plan.n_state_copies = state_copy.src != state_copy.dst && !random_below(3);
	check(engine_submit(g, &o->plan, &e) == 0);
	m->n_out++;
}

static void copy_items(struct mess *m)
{
	uint32_t n = 1 + random_below(BURST);
	struct err e = {0};

	for (uint32_t i = 0; i < n; i++) {
		enum tier_kind kind = random_below(2) ? TIER_PAGE : TIER_STATE;
		void **contents = kind == TIER_PAGE ? m->pages : m->states;
		uint32_t id = random_below(IDS);

		if (random_below(2))
			check(engine_read_item(g, kind, id, to_read(m, size_of(kind)), NULL, &e) ==
			      0);
		else
			check(engine_write_item(g, kind, id, contents[random_below(CONTENTS)], NULL,
						&e) == 0);
	}
}

/* Copies both parts of one layer: of two pages, or of a state. */
static void copy_layer(struct mess *m)
{
	uint32_t layer = random_below(engine_info(g)->model.n_layers), id = random_below(IDS - 1);
	uint64_t bytes;
	bool pages = keeps_pages(layer, &bytes);
	struct engine_piece pieces[4];
	struct err e = {0};
	int r;

	for (uint32_t i = 0; i < ARRAY_SIZE(pieces); i++)
		pieces[i] = (struct engine_piece){layer, i % 2, id + i / 2};
	/* The beginning of any content will do as bytes of a piece. */
	if (random_below(2))
		r = engine_read_pieces(g, pieces, pages ? 4 : 2,
				       to_read(m, (pages ? 2 : 1) * bytes), piece_came, m, &e);
	else
		r = engine_write_pieces(g, pieces, 2, (pages ? m->pages : m->states)[0], piece_came,
					m, &e);
	check(r == 0);
	m->n_pieces++;
}

static void read_in_step(void *user, const struct plan *plan, uint32_t layer)
{
	struct mess *m = user;
	uint64_t bytes;
	bool pages = keeps_pages(layer, &bytes);
	uint32_t id =
		pages ? plan->rows[0].pages[plan->rows[0].start / PAGE] : plan->rows[0].state_dst;
	struct engine_piece pieces[2] = {{layer, 0, id}, {layer, 1, id}};
	struct err e = {0};

	if (layer % 3 || plan->n_prefill_rows == 0)
		return;
	check(engine_read_pieces(g, pieces, 2, to_read(m, bytes), piece_came, m, &e) == 0);
	m->n_pieces++;
}

static struct hash128 make_mess(void)
{
	struct hash128 h = HASH128_INIT;
	struct mess *m = bytes_of(sizeof(*m));
	void *tags[BURST];
	struct err e = {0};
	uint32_t n;

	random_state = 2026;
	for (uint32_t i = 0; i < CONTENTS; i++) {
		prompt_plan(&m->plans[i], 40 + (int32_t)i, 0, i);
		step(&m->plans[i]);
		m->pages[i] = read_now(TIER_PAGE, i % 2);
		m->states[i] = read_now(TIER_STATE, i);
	}
	for (uint32_t i = 0; i < IDS; i++) {
		write_now(TIER_PAGE, i, m->pages[0]);
		write_now(TIER_STATE, i, m->states[0]);
	}
	engine_set_on_layer(g, read_in_step, m);
	for (uint32_t i = 0; i < EVENTS; i++) {
		check(engine_items_done(g, tags, ARRAY_SIZE(tags), &n, &e) == 0);
		while (engine_items_out(g) > ENGINE_ITEMS_OUT - BURST)
			check(engine_items_done(g, tags, ARRAY_SIZE(tags), &n, &e) == 0);
		switch (random_below(4)) {
		case 0:
		case 1: submit_some(m); break;
		case 2: copy_items(m); break;
		case 3: copy_layer(m); break;
		}
	}
	while (m->n_out)
		end_plan(m);
	engine_finish(g);
	engine_set_on_layer(g, NULL, NULL);
	wait_items();
	check(m->n_came == m->n_pieces && !m->n_bad);
	for (uint32_t i = 0; i < m->n_reads; i++) {
		hash128_update(&h, m->reads[i], m->bytes[i]);
		free(m->reads[i]);
	}
	for (uint32_t i = 0; i < m->n_results; i++) {
		hash128_update(&h, &m->results[i].token, sizeof(m->results[i].token));
		hash128_update(&h, &m->results[i].logprob, sizeof(m->results[i].logprob));
	}
	printf("# %u reads, %u steps\n", m->n_reads, m->n_results);
	return h;
}

TEST(any_order)
{
	static struct hash128 want;
	struct hash128 h = make_mess();

	if (copy_queue == ENGINE_COPIES_SHARED)
		want = h;
	ok_all("plans and copies run in any order");
	ok(h.value == want.value, "and give the bytes of one queue");
}

static void test_queue(struct engine_options *o, const char *name)
{
	struct err e = {0};
	char *host;

	o->copy_queue = copy_queue;
	if (!ok(engine_open(o, &g, &e) == 0, "the engine opens, copies on %s%s%s", name,
		e.text[0] ? ": " : "", e.text))
		return;
	run_tests();
	/* A copy that is never waited for. */
	host = calloc(1, size_of(TIER_PAGE));
	check(engine_read_item(g, TIER_PAGE, 0, host, NULL, &e) == 0);
	engine_close(g);
	free(host);
	ok_all("an engine closes with copies on its queue");
}

int main(int argc, char **argv)
{
	struct engine_options o = {.page_tokens = PAGE,
				   .max_seqs = 8,
				   .max_prefill_tokens = 256,
				   .max_model_len = 512};

	if (argc < 3)
		return 2;
	o.model_dir = argv[1];
	o.program_cache = getenv("TIGON_PROGRAM_CACHE");
	o.device_memory_share = test_memory_share();
	o.dtype = strcmp(argv[2], "bfloat16") ? ENGINE_FLOAT32 : ENGINE_BFLOAT16;
	copy_queue = ENGINE_COPIES_SHARED;
	test_queue(&o, "the queue of the plans");
	copy_queue = ENGINE_COPIES_OWN;
	test_queue(&o, "a queue of their own");
	return done();
}
