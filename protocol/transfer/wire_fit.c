#include "protocol/transfer/wire_fit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t wire_window_bytes(const struct wire_window *w)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < w->n_runs; i++)
		sum += w->runs[i].bytes;
	return sum;
}

int wire_window_fits(const struct wire_window *w, uint64_t bytes, struct err *e)
{
	uint64_t listed = wire_window_bytes(w);

	if (bytes != listed)
		return err_set(e, EBADMSG,
			       "WINDOW: %" PRIu64 " bytes came, but its runs have %" PRIu64, bytes,
			       listed);
	return 0;
}

/* Fills *e for a number in which the two layouts differ, and returns -EPROTO. what: the number's name; hint: the end of
 * the sentence. Both workers log the sentence, so it names the worker of each number and never says "here". */
static int number_differs(struct err *e, const char *what, uint64_t decode, uint64_t prefill,
			  const char *hint)
{
	return err_set(e, EPROTO,
		       "the layout is another one: %s %" PRIu64 " at the decode worker, %" PRIu64
		       " at the prefill worker%s",
		       what, decode, prefill, hint);
}

/* The hint when sizes in bytes differ although the pages have equally many tokens. */
static const char dtype_hint[] = "; --dtype and --kv-dtype have to be the same, and the model";

/* Compares the parts of all layers. a: the decode worker's layout; b: the prefill worker's. -EPROTO: they differ. */
static int compare_layers(const struct wire_layout *a, const struct wire_layout *b, struct err *e)
{
	static const char *const kept[] = {"pages", "states"};

	for (uint32_t i = 0; i < a->n_layers * WIRE_PARTS; i++) {
		uint32_t layer = i / WIRE_PARTS, part = i % WIRE_PARTS;
		const struct wire_layer *x = &a->layers[layer], *y = &b->layers[layer];
		bool states = wire_in_state(x, part);
		char what[64];

		if (states != wire_in_state(y, part))
			return err_set(e, EPROTO,
				       "the layout is another one: part %u of layer %u is kept in "
				       "%s at the decode worker, in %s at the prefill worker",
				       part, layer, kept[states], kept[!states]);
		if (x->part_bytes[part] == y->part_bytes[part])
			continue;
		snprintf(what, sizeof(what), "bytes of part %u of layer %u's %s are", part, layer,
			 kept[states]);
		return number_differs(e, what, x->part_bytes[part], y->part_bytes[part],
				      dtype_hint);
	}
	return 0;
}

/* Compares the layouts first and the models then, because a different layout tells a user more than a different
 * hash. */
static int compare_hellos(const struct wire_hello *ours, const struct wire_hello *theirs,
			  struct err *e)
{
	bool decodes = ours->role == WIRE_DECODE;
	const struct wire_layout *a = decodes ? &ours->layout : &theirs->layout;
	const struct wire_layout *b = decodes ? &theirs->layout : &ours->layout;
	int r;

	if (a->n_layers != b->n_layers)
		return number_differs(e, "layers are", a->n_layers, b->n_layers, "");
	if (a->page_tokens != b->page_tokens)
		return number_differs(e, "tokens of a page are", a->page_tokens, b->page_tokens,
				      "; --page-size has to be the same");
	r = compare_layers(a, b, e);
	if (r < 0)
		return r;
	if (a->page_bytes != b->page_bytes)
		return number_differs(e, "bytes of a page are", a->page_bytes, b->page_bytes,
				      dtype_hint);
	if (a->slot_bytes != b->slot_bytes)
		return number_differs(e, "bytes of a state are", a->slot_bytes, b->slot_bytes,
				      dtype_hint);
	if (memcmp(ours->model, theirs->model, sizeof(ours->model)))
		return err_set(e, EPROTO,
			       "the model is another one: the layout is the same, but weights, "
			       "--dtype, --kv-dtype, kernels or device are not, so the bits would "
			       "differ");
	return 0;
}

bool wire_hello_fits(const struct wire_hello *ours, const struct wire_hello *theirs, struct err *e)
{
	return compare_hellos(ours, theirs, e) == 0;
}
