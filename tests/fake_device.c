#include "tests/fake_device.h"

#include <stdlib.h>
#include <string.h>

#define HASH_INIT UINT64_C(0xcbf29ce484222325)
#define NOBODY	  UINT32_MAX

struct cell {
	int32_t token;
	uint64_t before; /* hash of the tokens at smaller positions */
};

struct seat {
	uint64_t prompt, generated; /* hashes of what was marked and counted since the last reset */
};

struct fake_device {
	struct scheduler_config config;
	struct cell *cells;    /* [n_pages][page_tokens] */
	int32_t *states;       /* [n_slots][max_model_len] */
	uint32_t *state_len;   /* [n_slots] */
	uint32_t *page_writer; /* [n_pages] the row that writes the page in this step, or NOBODY */
	uint32_t *slot_writer; /* [n_slots] */
	bool *copied_to;       /* [max(n_pages, n_slots)] */
	struct seat *seats;    /* [max_seqs] */
};

static uint64_t hash_add(uint64_t h, int32_t token)
{
	h = (h ^ (uint32_t)token) * UINT64_C(0x100000001b3);
	return h ^ (h >> 29);
}

static uint64_t hash_all(const int32_t *tokens, uint32_t n)
{
	uint64_t h = HASH_INIT;

	for (uint32_t i = 0; i < n; i++)
		h = hash_add(h, tokens[i]);
	return h;
}

struct fake_device *fake_device_new(const struct scheduler_config *c)
{
	struct fake_device *d = calloc(1, sizeof(*d));

	d->config = *c;
	d->cells = calloc((size_t)c->n_pages * c->page_tokens, sizeof(*d->cells));
	d->states = calloc((size_t)c->n_slots * c->max_model_len, sizeof(*d->states));
	d->state_len = calloc(c->n_slots, sizeof(*d->state_len));
	d->page_writer = calloc(c->n_pages, sizeof(*d->page_writer));
	d->slot_writer = calloc(c->n_slots, sizeof(*d->slot_writer));
	d->copied_to = calloc(MAX(c->n_pages, c->n_slots), sizeof(*d->copied_to));
	d->seats = calloc(c->max_seqs, sizeof(*d->seats));
	return d;
}

void fake_device_free(struct fake_device *d)
{
	free(d->cells);
	free(d->states);
	free(d->state_len);
	free(d->page_writer);
	free(d->slot_writer);
	free(d->copied_to);
	free(d->seats);
	free(d);
}

/* No copy reads what another one writes, and no two write the same. */
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
		d->seats[r->seat] = (struct seat){
			.prompt = hash_all(r->prompt, r->n_prompt),
			.generated = hash_all(r->generated, r->n_generated),
		};
	}
	failed = check_copies(d, p->page_copies, p->n_page_copies, c->n_pages);
	if (!failed)
		failed = check_copies(d, p->state_copies, p->n_state_copies, c->n_slots);
	if (failed)
		return failed;
	for (uint32_t i = 0; i < p->n_page_copies; i++)
		memcpy(d->cells + (size_t)p->page_copies[i].dst * c->page_tokens,
		       d->cells + (size_t)p->page_copies[i].src * c->page_tokens,
		       c->page_tokens * sizeof(*d->cells));
	for (uint32_t i = 0; i < p->n_state_copies; i++) {
		uint32_t src = p->state_copies[i].src, dst = p->state_copies[i].dst;

		memcpy(d->states + (size_t)dst * c->max_model_len,
		       d->states + (size_t)src * c->max_model_len,
		       c->max_model_len * sizeof(*d->states));
		d->state_len[dst] = d->state_len[src];
	}
	return NULL;
}

/* Every page and slot has at most one row that writes it, and then no other that reads it. */
static const char *check_writers(struct fake_device *d, const struct plan *p)
{
	const struct scheduler_config *c = &d->config;

	memset(d->page_writer, 0xff, c->n_pages * sizeof(*d->page_writer));
	memset(d->slot_writer, 0xff, c->n_slots * sizeof(*d->slot_writer));
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *row = &p->rows[i];
		uint32_t end = row->start + row->n_tokens;

		EXPECT(row->n_tokens >= 1);
		EXPECT((uint64_t)row->n_pages * c->page_tokens >= end);
		for (uint32_t k = 0; k < row->n_pages; k++)
			EXPECT(row->pages[k] < c->n_pages);
		for (uint32_t k = row->start / c->page_tokens; k * c->page_tokens < end; k++) {
			EXPECT(d->page_writer[row->pages[k]] == NOBODY);
			d->page_writer[row->pages[k]] = i;
		}
		EXPECT(row->state_dst < c->n_slots);
		EXPECT(d->slot_writer[row->state_dst] == NOBODY);
		d->slot_writer[row->state_dst] = i;
	}
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *row = &p->rows[i];

		for (uint32_t k = 0; k < row->n_pages; k++) {
			uint32_t writer = d->page_writer[row->pages[k]];

			EXPECT(writer == NOBODY || writer == i);
		}
		if (row->state_src != STATE_ZERO) {
			EXPECT(row->state_src >= 0 && (uint32_t)row->state_src < c->n_slots);
			EXPECT(d->slot_writer[row->state_src] == NOBODY ||
			       d->slot_writer[row->state_src] == i);
		}
	}
	return NULL;
}

static int32_t token_at(const struct fake_history *h, uint32_t position)
{
	return position < h->n_prompt ? h->prompt[position] : h->generated[position - h->n_prompt];
}

static const char *run_row(struct fake_device *d, const struct plan_row *row,
			   const struct fake_history *want)
{
	const struct scheduler_config *c = &d->config;
	uint32_t end = row->start + row->n_tokens;
	int32_t *state = d->states + (size_t)row->state_dst * c->max_model_len;
	uint64_t before = HASH_INIT;

	EXPECT(end == want->n_prompt + want->n_generated);
	EXPECT(row->decode || row->start % CHUNK_TOKENS == 0);
	EXPECT((row->start == 0) == (row->state_src == STATE_ZERO));
	if (row->state_src != STATE_ZERO) {
		EXPECT(d->state_len[row->state_src] == row->start);
		memmove(state, d->states + (size_t)row->state_src * c->max_model_len,
			row->start * sizeof(*state));
	}
	for (uint32_t i = 0; i < row->start; i++)
		EXPECT(state[i] == token_at(want, i));
	memcpy(state + row->start, row->tokens, row->n_tokens * sizeof(*state));
	d->state_len[row->state_dst] = end;
	for (uint32_t i = 0; i < end; i++) {
		struct cell *cell =
			&d->cells[(size_t)row->pages[i / c->page_tokens] * c->page_tokens +
				  i % c->page_tokens];

		if (i >= row->start)
			*cell = (struct cell){row->tokens[i - row->start], before};
		EXPECT(cell->token == token_at(want, i));
		EXPECT(cell->before == before);
		before = hash_add(before, cell->token);
	}
	return NULL;
}

static const char *run_draws(struct fake_device *d, const struct plan *p,
			     const struct fake_history *want, const struct draw_result *results)
{
	for (uint32_t i = 0; i < p->n_draws; i++) {
		const struct plan_draw *draw = &p->draws[i];
		struct seat *seat = &d->seats[draw->seat];

		EXPECT(draw->seat < d->config.max_seqs && draw->row < p->n_rows);
		EXPECT(i == 0 || p->draws[i - 1].row <= draw->row);
		for (uint32_t k = 0; k < i; k++)
			EXPECT(p->draws[k].seat != draw->seat);
		if (sampling_penalised(draw->sampling)) {
			EXPECT(seat->prompt == hash_all(want[i].prompt, want[i].n_prompt));
			EXPECT(seat->generated == hash_all(want[i].generated, want[i].n_generated));
		}
		for (uint32_t k = 0; k < draw->n_banned; k++)
			EXPECT(results[i].token != draw->banned[k]);
		seat->generated = hash_add(seat->generated, results[i].token);
	}
	return NULL;
}

const char *fake_device_run(struct fake_device *d, const struct plan *p,
			    const struct fake_history *rows, const struct fake_history *draws,
			    const struct draw_result *results)
{
	const char *failed = run_before_rows(d, p);

	if (!failed)
		failed = check_writers(d, p);
	for (uint32_t i = 0; !failed && i < p->n_rows; i++)
		failed = run_row(d, &p->rows[i], &rows[i]);
	return failed ? failed : run_draws(d, p, draws, results);
}
