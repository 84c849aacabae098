#include "protocol/transfer/pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

uint64_t *bits_new(uint64_t n)
{
	return calloc(n / 64 + 1, sizeof(uint64_t));
}

bool bits_set(uint64_t *bits, uint64_t at)
{
	uint64_t mask = (uint64_t)1 << (at % 64);
	bool was = bits[at / 64] & mask;

	bits[at / 64] |= mask;
	return was;
}

int pieces_init(struct pieces *p, const struct wire_layout *layout, uint32_t n_prompt,
		uint32_t n_have, struct err *e)
{
	uint32_t first = n_have / layout->page_tokens;
	struct pieces new = {.layout = layout, .first_page = first};

	if (n_prompt > WIRE_TOKENS_MAX || n_have >= n_prompt)
		return err_set(e, EINVAL, "a prompt of %u tokens, %u of them there, cannot be sent",
			       n_prompt, n_have);
	if (n_have % layout->page_tokens)
		return err_set(e, EINVAL, "%u tokens are no whole pages of %u", n_have,
			       layout->page_tokens);
	new.n_pages = CEIL_DIV(n_prompt, layout->page_tokens) - first;
	if (__builtin_mul_overflow(layout->page_bytes, new.n_pages, &new.expected_bytes) ||
	    __builtin_add_overflow(new.expected_bytes, layout->slot_bytes, &new.expected_bytes))
		return err_set(e, EOVERFLOW, "%u pages of %" PRIu64 " bytes are too many",
			       new.n_pages, layout->page_bytes);
	for (uint32_t i = 0; i < layout->n_layers * WIRE_PARTS; i++) {
		const struct wire_layer *l = &layout->layers[i / WIRE_PARTS];

		if (l->part_bytes[i % WIRE_PARTS])
			new.expected_pieces += wire_in_state(l, i % WIRE_PARTS) ? 1 : new.n_pages;
	}
	new.bits = bits_new((uint64_t)layout->n_layers * new.n_pages *WIRE_PARTS);
	if (!new.bits)
		return err_no_memory(e);
	*p = new;
	return 0;
}

void pieces_release(struct pieces *p)
{
	free(p->bits);
	p->bits = NULL;
}

int pieces_mark(struct pieces *p, const struct wire_run *run, struct err *e)
{
	const struct wire_layer *layer;
	uint32_t first = p->first_page, n = p->n_pages;

	if (run->layer >= p->layout->n_layers)
		return err_set(e, EPROTO, "a WINDOW has layer %u of %u", run->layer,
			       p->layout->n_layers);
	layer = &p->layout->layers[run->layer];
	if (run->part >= WIRE_PARTS || !layer->part_bytes[run->part])
		return err_set(e, EPROTO, "a WINDOW has part %u of layer %u, which has none",
			       run->part, run->layer);
	if (wire_in_state(layer, run->part)) {
		first = 0;
		n = 1;
	}
	if (!run->n || run->first < first || run->n > n || run->first - first > n - run->n)
		return err_set(e, EPROTO,
			       "a WINDOW has %u pages from %u on, but %u from %u on were asked for",
			       run->n, run->first, n, first);
	if (run->bytes != layer->part_bytes[run->part] * run->n)
		return err_set(e, EPROTO, "a WINDOW has %" PRIu64 " bytes for %u times %" PRIu64,
			       (uint64_t)run->bytes, run->n,
			       (uint64_t)layer->part_bytes[run->part]);
	for (uint32_t i = run->first - first; i < run->first - first + run->n; i++)
		if (bits_set(p->bits,
			     ((uint64_t)run->layer * p->n_pages + i) * WIRE_PARTS + run->part))
			return err_set(e, EPROTO, "part %u of layer %u, page %u, came twice",
				       run->part, run->layer, first + i);
	p->n_pieces += run->n;
	p->bytes += run->bytes;
	return 0;
}
