#include "tests/fake_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/mix.h"

#define HASH_INIT UINT64_C(0xcbf29ce484222325)
#define NOBODY	  UINT32_MAX
#define SNAPSHOT  (UINT32_MAX - 1) /* written as a snapshot: no row reads it, not even its writer */

static int64_t mark_of(const struct fake_device *d, int32_t token, bool decoded)
{
	return (int64_t)token * 2 + (decoded && !d->unmarked);
}

/* Returns the hash of a cell's mark and of those before it. */
static uint64_t hash_behind(const struct fake_cell *cell)
{
	return mix_add(cell->before, (uint64_t)cell->mark);
}

static uint64_t hash_all(const int32_t *tokens, uint32_t n)
{
	uint64_t h = HASH_INIT;

	for (uint32_t i = 0; i < n; i++)
		h = mix_add(h, (uint64_t)tokens[i]);
	return h;
}

struct fake_cell *fake_device_cell(const struct fake_device *d, const struct plan_row *row,
				   uint32_t position)
{
	uint32_t P = d->config.page_tokens;

	return &d->cells[(size_t)row->pages[position / P] * P + position % P];
}

uint64_t fake_device_hash(const struct fake_device *d, const struct plan_row *row)
{
	return hash_behind(fake_device_cell(d, row, row->start + row->n_tokens - 1));
}

struct fake_device *fake_device_new(const struct scheduler_config *c)
{
	struct fake_device *d = calloc(1, sizeof(*d));

	d->config = *c;
	d->cells = calloc((size_t)c->n_pages * c->page_tokens, sizeof(*d->cells));
	d->fills = calloc(c->n_pages, sizeof(*d->fills));
	d->states = calloc(c->n_slots, sizeof(*d->states));
	d->page_writer = calloc(c->n_pages, sizeof(*d->page_writer));
	d->slot_writer = calloc(c->n_slots, sizeof(*d->slot_writer));
	d->copied_to = calloc(MAX(c->n_pages, c->n_slots), sizeof(*d->copied_to));
	d->seats = calloc(c->max_seqs, sizeof(*d->seats));
	d->drawn = calloc(c->max_seqs, sizeof(*d->drawn));
	return d;
}

void fake_device_free(struct fake_device *d)
{
	free(d->cells);
	free(d->fills);
	free(d->states);
	free(d->page_writer);
	free(d->slot_writer);
	free(d->copied_to);
	free(d->seats);
	free(d->drawn);
	free(d);
}

/* Checks that no copy reads data that a copy writes, and that no two copies write the same data. */
static const char *check_copies(struct fake_device *d, const struct plan_copy *copies, uint32_t n,
				uint32_t n_ids)
{
	memset(d->copied_to, 0, n_ids * sizeof(*d->copied_to));
	for (uint32_t i = 0; i < n; i++) {
		EXPECT(copies[i].src < n_ids && copies[i].dst < n_ids);
		EXPECT(!d->copied_to[copies[i].dst]);
		d->copied_to[copies[i].dst] = true;
	}
	for (uint32_t i = 0; i < n; i++)
		EXPECT(!d->copied_to[copies[i].src]);
	return NULL;
}

static const char *run_before_rows(struct fake_device *d, const struct plan *p)
{
	const struct scheduler_config *c = &d->config;
	const char *failed;

	for (uint32_t i = 0; i < p->n_resets; i++) {
		const struct plan_seat_reset *r = &p->resets[i];

		EXPECT(r->seat < c->max_seqs);
		d->seats[r->seat] = (struct fake_seat){
			.prompt = hash_all(r->prompt, r->n_prompt),
			.generated = hash_all(r->generated, r->n_generated),
		};
	}
	failed = check_copies(d, p->page_copies, p->n_page_copies, c->n_pages);
	if (!failed)
		failed = check_copies(d, p->state_copies, p->n_state_copies, c->n_slots);
	if (failed)
		return failed;
	for (uint32_t i = 0; i < p->n_page_copies; i++) {
		uint32_t src = p->page_copies[i].src, dst = p->page_copies[i].dst;

		memcpy(d->cells + (size_t)dst * c->page_tokens,
		       d->cells + (size_t)src * c->page_tokens, c->page_tokens * sizeof(*d->cells));
		d->fills[dst] = (struct fake_fill){d->fills[src].len, true};
	}
	for (uint32_t i = 0; i < p->n_state_copies; i++)
		d->states[p->state_copies[i].dst] = d->states[p->state_copies[i].src];
	return NULL;
}

static const char *claim_slots(struct fake_device *d, const struct plan_row *row, uint32_t i)
{
	const struct scheduler_config *c = &d->config;

	EXPECT(row->n_snapshots <= (row->decode || !c->n_slots ? 0 : SNAPSHOTS_MAX));
	if (!c->n_slots)
		return NULL;
	EXPECT(row->state_dst < c->n_slots);
	EXPECT(d->slot_writer[row->state_dst] == NOBODY);
	d->slot_writer[row->state_dst] = i;
	for (uint32_t k = 0; k < row->n_snapshots; k++) {
		uint32_t slot = row->snapshots[k].slot;

		EXPECT(slot < c->n_slots);
		EXPECT(d->slot_writer[slot] == NOBODY);
		d->slot_writer[slot] = SNAPSHOT;
	}
	return NULL;
}

/* Notes row i as the writer of the pages of [start, start + n_tokens), the only ones that it writes. */
static const char *claim_pages(struct fake_device *d, const struct plan_row *row, uint32_t i)
{
	const struct scheduler_config *c = &d->config;
	uint32_t end = row->start + row->n_tokens;

	EXPECT(row->n_tokens >= 1 && (!row->decode || row->n_tokens == 1));
	EXPECT((uint64_t)row->n_pages * c->page_tokens >= end);
	for (uint32_t k = 0; k < row->n_pages; k++)
		EXPECT(row->pages[k] < c->n_pages);
	for (uint32_t k = row->start / c->page_tokens; k * c->page_tokens < end; k++) {
		EXPECT(d->page_writer[row->pages[k]] == NOBODY);
		d->page_writer[row->pages[k]] = i;
	}
	return NULL;
}

/* Checks that every page and slot has at most one row that writes it, and that no other row reads it then. A row's
 * pages before and behind its own tokens may be shared, so no row may write them, not even this one by another
 * index. */
static const char *check_writers(struct fake_device *d, const struct plan *p)
{
	const struct scheduler_config *c = &d->config;
	const char *failed = NULL;

	memset(d->page_writer, 0xff, c->n_pages * sizeof(*d->page_writer));
	memset(d->slot_writer, 0xff, c->n_slots * sizeof(*d->slot_writer));
	for (uint32_t i = 0; !failed && i < p->n_rows; i++) {
		failed = claim_pages(d, &p->rows[i], i);
		if (!failed)
			failed = claim_slots(d, &p->rows[i], i);
	}
	if (failed)
		return failed;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *row = &p->rows[i];
		uint32_t first = row->start / c->page_tokens;
		uint32_t behind = CEIL_DIV(row->start + row->n_tokens, c->page_tokens);

		for (uint32_t k = 0; k < row->n_pages; k++)
			EXPECT(d->page_writer[row->pages[k]] ==
			       (k >= first && k < behind ? i : NOBODY));
		if (!c->n_slots || row->state_src == STATE_ZERO)
			continue;
		EXPECT(row->state_src >= 0 && (uint32_t)row->state_src < c->n_slots);
		EXPECT(d->slot_writer[row->state_src] == NOBODY ||
		       d->slot_writer[row->state_src] == i);
	}
	return NULL;
}

static int32_t token_at(const struct fake_history *h, uint32_t position)
{
	return position < h->n_prompt ? h->prompt[position] : h->generated[position - h->n_prompt];
}

/* Returns token i of a row; the plan before may have drawn it. */
static int32_t row_token(const struct fake_device *d, const struct plan_row *row, uint32_t i)
{
	return row->tokens ? row->tokens[i] : d->drawn[row->token_draw];
}

/* Writes the row's state, with its snapshots on the way. */
static const char *run_state(struct fake_device *d, const struct plan_row *row)
{
	const struct scheduler_config *c = &d->config;
	uint32_t unit = MIN(c->state_tokens ? c->state_tokens : (uint32_t)CHUNK_TOKENS,
			    (uint32_t)CHUNK_TOKENS);
	struct fake_state s = {.hash = HASH_INIT};
	uint32_t k = 0;

	EXPECT((row->start == 0) == (row->state_src == STATE_ZERO));
	EXPECT(row->decode || row->start % unit == 0);
	if (row->state_src != STATE_ZERO)
		s = d->states[row->state_src];
	EXPECT(s.len == row->start);
	for (uint32_t i = 0; i < row->n_tokens; i++) {
		int64_t mark = mark_of(d, row_token(d, row, i), row->decode);

		s = (struct fake_state){mix_add(s.hash, (uint64_t)mark), s.len + 1};
		if (k == row->n_snapshots || row->snapshots[k].n_tokens != s.len)
			continue;
		EXPECT(s.len % unit == 0 && i + 1 < row->n_tokens);
		d->states[row->snapshots[k++].slot] = s;
	}
	EXPECT(k == row->n_snapshots);
	d->states[row->state_dst] = s;
	return NULL;
}

/* Notes that a row writes a position. A page is written from its beginning on, every position once; a copied page may
 * also be written once more, from any written position on. Any other write hits another sequence's page. */
static const char *fill_page(struct fake_device *d, const struct plan_row *row, uint32_t position)
{
	uint32_t offset = position % d->config.page_tokens;
	struct fake_fill *fill = &d->fills[row->pages[position / d->config.page_tokens]];

	if (!offset)
		fill->len = 0;
	EXPECT(offset == fill->len || (fill->copied && offset < fill->len));
	*fill = (struct fake_fill){offset + 1, false};
	return NULL;
}

static const char *run_row(struct fake_device *d, const struct plan_row *row,
			   const struct fake_history *want)
{
	const struct scheduler_config *c = &d->config;
	uint32_t end = row->start + row->n_tokens;
	uint64_t before = HASH_INIT;
	const char *failed = NULL;

	EXPECT(!want || end == want->n_prompt + want->n_generated);
	EXPECT(row->tokens || (row->decode && row->token_draw < d->n_drawn));
	if (c->n_slots)
		failed = run_state(d, row);
	for (uint32_t i = row->start; !failed && i < end; i++)
		failed = fill_page(d, row, i);
	if (failed)
		return failed;
	for (uint32_t i = 0; i < end; i++) {
		struct fake_cell *cell = fake_device_cell(d, row, i);

		if (i >= row->start) {
			int32_t token = row_token(d, row, i - row->start);

			EXPECT(token >= 0 && (uint32_t)token < c->vocab_size);
			*cell = (struct fake_cell){mark_of(d, token, row->decode), before};
		}
		if (want && want->decoded && want->learn && i < row->start)
			want->decoded[i] = cell->mark & 1;
		EXPECT(!want || cell->mark / 2 == token_at(want, i));
		EXPECT(!want || !want->decoded || want->decoded[i] == (cell->mark & 1));
		EXPECT(cell->before == before);
		before = hash_behind(cell);
	}
	EXPECT(!c->n_slots || d->states[row->state_dst].hash == before);
	return NULL;
}

const char *fake_device_run(struct fake_device *d, const struct plan *p,
			    const struct fake_history *rows)
{
	const char *failed = run_before_rows(d, p);

	if (!failed)
		failed = check_writers(d, p);
	for (uint32_t i = 0; !failed && i < p->n_rows; i++)
		failed = run_row(d, &p->rows[i], rows ? &rows[i] : NULL);
	return failed;
}

const char *fake_device_draw(struct fake_device *d, const struct plan *p,
			     const struct fake_history *want, const struct draw_result *results)
{
	EXPECT(p->n_draws <= d->config.max_seqs);
	for (uint32_t i = 0; i < p->n_draws; i++) {
		const struct plan_draw *draw = &p->draws[i];
		struct fake_seat *seat;

		EXPECT(draw->seat < d->config.max_seqs && draw->row < p->n_rows);
		seat = &d->seats[draw->seat];
		EXPECT(i == 0 || p->draws[i - 1].row <= draw->row);
		for (uint32_t k = 0; k < i; k++)
			EXPECT(p->draws[k].seat != draw->seat);
		if (want && sampling_penalised(draw->sampling)) {
			EXPECT(seat->prompt == hash_all(want[i].prompt, want[i].n_prompt));
			EXPECT(seat->generated == hash_all(want[i].generated, want[i].n_generated));
		}
		for (uint32_t k = 0; k < draw->n_banned; k++)
			EXPECT(results[i].token != draw->banned[k]);
		for (uint32_t k = 0; k < draw->n_biases; k++)
			EXPECT(draw->biases[k].token >= 0 &&
			       (uint32_t)draw->biases[k].token < d->config.vocab_size);
		seat->generated = mix_add(seat->generated, (uint64_t)results[i].token);
		d->drawn[i] = results[i].token;
	}
	d->n_drawn = p->n_draws;
	return NULL;
}

/* ---- between workers ---- */

void fake_device_receive(struct fake_device *d, const struct scheduler_prepare *p)
{
	uint32_t P = d->config.page_tokens, first = p->ask.n_have / P;
	uint64_t before = HASH_INIT;

	for (uint32_t i = 0; i < p->ask.n_prompt; i++) {
		struct fake_cell cell = {mark_of(d, p->ask.prompt[i], false), before};

		if (i >= p->ask.n_have) {
			uint32_t page = p->pages[i / P - first];

			d->cells[(size_t)page * P + i % P] = cell;
			d->fills[page] = (struct fake_fill){i % P + 1, false};
		}
		before = hash_behind(&cell);
	}
	if (p->slot != POOL_NONE)
		d->states[p->slot] = (struct fake_state){before, p->ask.n_prompt};
}

const char *fake_device_check_page(const struct fake_device *d, uint32_t page, uint32_t index,
				   const int32_t *prompt, uint32_t n_prompt)
{
	uint32_t P = d->config.page_tokens;
	struct fake_cell want = {.before = HASH_INIT};

	for (uint32_t i = 0; i < MIN((index + 1) * P, n_prompt); i++) {
		const struct fake_cell *cell = &d->cells[(size_t)page * P + i % P];

		want.mark = mark_of(d, prompt[i], false);
		if (i >= index * P)
			EXPECT(cell->mark == want.mark && cell->before == want.before);
		want.before = hash_behind(&want);
	}
	return NULL;
}

const char *fake_device_check_state(const struct fake_device *d, uint32_t slot,
				    const int32_t *prompt, uint32_t n_prompt)
{
	uint64_t hash = HASH_INIT;

	EXPECT(slot < d->config.n_slots && d->states[slot].len == n_prompt);
	for (uint32_t i = 0; i < n_prompt; i++)
		hash = mix_add(hash, (uint64_t)mark_of(d, prompt[i], false));
	EXPECT(d->states[slot].hash == hash);
	return NULL;
}

/* ---- published pages and states ---- */

/* A node of the cache that was visited: the hash and the origin of its path up to the node's end. */
struct path_end {
	uint64_t id, hash, origin;
	bool decoded;
	uint32_t depth;
};

struct look {
	const struct fake_device *d;
	struct path_end ends[FAKE_NODES_MAX];
	uint32_t n;
	const char *failed;
};

static const char *check_node(struct look *l, const struct prefix_view *v)
{
	const struct scheduler_config *c = &l->d->config;
	struct path_end end = {.hash = HASH_INIT};

	EXPECT(l->n < FAKE_NODES_MAX && v->n_tokens == v->n_pages * c->page_tokens && v->n_pages);
	for (uint32_t i = 0; i < l->n; i++)
		if (l->ends[i].id == v->parent)
			end = l->ends[i];
	EXPECT(v->parent == end.id && end.depth + v->n_tokens == v->depth);
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		const struct fake_cell *cell =
			&l->d->cells[(size_t)v->pages[i / c->page_tokens] * c->page_tokens +
				     i % c->page_tokens];

		EXPECT(l->d->fills[v->pages[i / c->page_tokens]].len == c->page_tokens);
		EXPECT(cell->mark / 2 == v->tokens[i] && cell->before == end.hash);
		end.hash = hash_behind(cell);
		end.origin = prefix_origin(end.origin, end.depth + i, cell->mark & 1);
		if ((i + 1) % c->page_tokens == 0)
			EXPECT(v->origin == end.origin);
	}
	end.id = v->id;
	end.depth = v->depth;
	l->ends[l->n++] = end;
	if (v->slot != POOL_NONE)
		EXPECT(v->slot < c->n_slots && l->d->states[v->slot].len == v->depth &&
		       l->d->states[v->slot].hash == end.hash);
	return NULL;
}

static bool look_at(void *arg, const struct prefix_view *v)
{
	struct look *l = arg;

	l->failed = check_node(l, v);
	return !l->failed;
}

const char *fake_device_check_cache(const struct fake_device *d, const struct prefix_cache *c)
{
	struct look l = {.d = d};

	prefix_cache_walk(c, look_at, &l);
	return l.failed;
}
