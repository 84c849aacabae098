#include "engine/hazards.h"

#include <errno.h>
#include <stdlib.h>

int hazards_init(struct hazards *h, uint32_t n_pages, uint32_t n_slots, uint32_t page_tokens)
{
	*h = (struct hazards){.page_tokens = page_tokens, .slots = n_slots};
	h->of[TIER_PAGE] = calloc(MAX(n_pages, 1u), sizeof(struct hazard));
	h->of[TIER_STATE] = calloc(MAX(n_slots, 1u), sizeof(struct hazard));
	if (h->of[TIER_PAGE] && h->of[TIER_STATE])
		return 0;
	hazards_release(h);
	return -ENOMEM;
}

void hazards_release(struct hazards *h)
{
	free(h->of[TIER_PAGE]);
	free(h->of[TIER_STATE]);
	*h = (struct hazards){0};
}

/* ---- plans ---- */

static void add_read(struct hazard *h, uint64_t plan, uint64_t *copy)
{
	h->used = plan;
	*copy = MAX(*copy, h->written);
}

static void add_write(struct hazard *h, uint64_t plan, uint64_t *copy)
{
	h->used = h->changed = plan;
	*copy = MAX(*copy, MAX(h->read, h->written));
}

static void add_copies(struct hazard *of, const struct plan_copy *copies, uint32_t n, uint64_t plan,
		       uint64_t *copy)
{
	for (uint32_t i = 0; i < n; i++) {
		add_read(&of[copies[i].src], plan, copy);
		add_write(&of[copies[i].dst], plan, copy);
	}
}

static void add_row(struct hazards *h, const struct plan_row *row, uint64_t plan, uint64_t *copy)
{
	struct hazard *pages = h->of[TIER_PAGE], *slots = h->of[TIER_STATE];
	uint32_t first = row->start / h->page_tokens;
	uint32_t end = CEIL_DIV(row->start + row->n_tokens, h->page_tokens);

	for (uint32_t i = 0; i < first; i++)
		add_read(&pages[row->pages[i]], plan, copy);
	for (uint32_t i = first; i < end; i++)
		add_write(&pages[row->pages[i]], plan, copy);
	if (!h->slots)
		return;
	if (row->state_src != STATE_ZERO)
		add_read(&slots[row->state_src], plan, copy);
	add_write(&slots[row->state_dst], plan, copy);
	for (uint32_t i = 0; i < row->n_snapshots; i++)
		add_write(&slots[row->snapshots[i].slot], plan, copy);
}

uint64_t hazards_plan(struct hazards *h, const struct plan *p, uint64_t number)
{
	uint64_t copy = 0;

	add_copies(h->of[TIER_PAGE], p->page_copies, p->n_page_copies, number, &copy);
	add_copies(h->of[TIER_STATE], p->state_copies, p->n_state_copies, number, &copy);
	for (uint32_t i = 0; i < p->n_rows; i++)
		add_row(h, &p->rows[i], number, &copy);
	return copy;
}

/* ---- copies ---- */

uint64_t hazards_copy(struct hazards *h, enum tier_kind kind, uint32_t id, bool write,
		      uint64_t number)
{
	struct hazard *of = &h->of[kind][id];

	*(write ? &of->written : &of->read) = number;
	return write ? of->used : of->changed;
}
