#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "protocol/transfer/wire_internal.h"

static const char magic[4] = "TGNX";

/* Where the fields of the header are: the table in FORMAT.md. */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 4,
	AT_TYPE = 6,
	AT_LENGTH = 8,
	AT_ZERO = 12,
	AT_ROOM = 16,
};

/* ---- fields ---- */

static size_t field_bytes(const struct field *f)
{
	return f->kind == ARRAY ? sizeof(uint32_t) : f->size;
}

/* The value of a field of at most 8 bytes, of a frame or a message: both are little endian. */
static uint64_t field_value(const struct field *f, const void *at)
{
	uint64_t v = 0;

	memcpy(&v, at, field_bytes(f));
	return v;
}

static int check_field(const struct field *f, const void *at, struct err *e)
{
	uint64_t v;
	float x;

	if (f->kind == RAW)
		return 0;
	if (f->kind == REAL) {
		memcpy(&x, at, sizeof(x));
		if (x >= f->low && x <= f->high)
			return 0;
		return err_set(e, EBADMSG, "%s is %g, not from %g to %g", f->name, (double)x,
			       (double)f->low, (double)f->high);
	}
	v = field_value(f, at);
	if (v >= f->min && v <= f->max)
		return 0;
	return err_set(e, EBADMSG, "%s is %" PRIu64 ", not from %" PRIu64 " to %" PRIu64, f->name,
		       v, f->min, f->max);
}

/* Where the frame's bytes of a field are in a message. */
static size_t field_offset(const struct field *f)
{
	return f->kind == ARRAY ? f->count : f->offset;
}

static uint32_t array_count(const struct field *f, const struct wire_message *m)
{
	uint32_t n;

	memcpy(&n, (const char *)m + f->count, sizeof(n));
	return n;
}

/* ---- parsing ---- */

static uint16_t get16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static int check_header(const uint8_t *p, size_t len, struct err *e)
{
	const struct wire_form *form;

	if (len < WIRE_HEADER)
		return err_set(e, EBADMSG, "%zu bytes are too few for a message", len);
	if (memcmp(p + AT_MAGIC, magic, sizeof(magic)))
		return err_set(e, EBADMSG, "it is no message of a worker");
	if (get16(p + AT_VERSION) != WIRE_VERSION)
		return err_set(e, EPROTONOSUPPORT,
			       "the peer speaks version %u of the transfer protocol, not %d",
			       get16(p + AT_VERSION), WIRE_VERSION);
	form = wire_form(get16(p + AT_TYPE));
	if (!form)
		return err_set(e, EBADMSG, "a message of type %u is unknown", get16(p + AT_TYPE));
	if (get32(p + AT_LENGTH) != len || len > WIRE_FRAME_MAX)
		return err_set(e, EBADMSG, "%s: it has %zu bytes, but says %u", form->name, len,
			       get32(p + AT_LENGTH));
	if (get32(p + AT_ZERO))
		return err_set(e, EBADMSG, "%s: its header is damaged", form->name);
	if ((get64(p + AT_ROOM) != 0) != form->has_room)
		return err_set(e, EBADMSG, "%s: it has %s room", form->name,
			       form->has_room ? "no" : "a");
	return 0;
}

/* Copies the fields, and points to the arrays behind them. */
static int parse_fields(const struct field *fields, const uint8_t *p, size_t len,
			struct wire_message *m, struct err *e)
{
	size_t at = WIRE_HEADER;

	for (const struct field *f = fields; f->name; f++) {
		int r;

		if (len - at < field_bytes(f))
			return err_set(e, EBADMSG, "it ends before %s", f->name);
		r = check_field(f, p + at, e);
		if (r < 0)
			return r;
		memcpy((char *)m + field_offset(f), p + at, field_bytes(f));
		at += field_bytes(f);
	}
	for (const struct field *f = fields; f->name; f++) {
		const void *elements = p + at;
		uint64_t bytes;

		if (f->kind != ARRAY)
			continue;
		bytes = (uint64_t)array_count(f, m) * f->size;
		if (bytes > len - at)
			return err_set(e, EBADMSG, "it has no room for %s of %u", f->name,
				       array_count(f, m));
		memcpy((char *)m + f->offset, &elements, sizeof(elements));
		at += bytes;
	}
	if (at != len)
		return err_set(e, EBADMSG, "%zu bytes are left over", len - at);
	return 0;
}

int wire_parse(const void *frame, size_t len, struct wire_message *ret, struct err *e)
{
	const uint8_t *p = frame;
	const struct wire_form *form;
	struct wire_message m;
	int r = check_header(p, len, e);

	if (r < 0)
		return r;
	memset(&m, 0, sizeof(m));
	m.type = get16(p + AT_TYPE);
	m.room = get64(p + AT_ROOM);
	form = wire_form(m.type);
	r = parse_fields(form->fields, p, len, &m, e);
	if (r == 0 && form->check)
		r = form->check(&m, e);
	if (r < 0)
		err_prefix(e, "%s", form->name);
	else
		*ret = m;
	return r;
}

uint64_t wire_room(const void *frame, size_t len)
{
	const uint8_t *p = frame;
	const struct wire_form *form;

	if (len < WIRE_HEADER || memcmp(p + AT_MAGIC, magic, sizeof(magic)) ||
	    get16(p + AT_VERSION) != WIRE_VERSION)
		return 0;
	form = wire_form(get16(p + AT_TYPE));
	return form && form->has_room ? get64(p + AT_ROOM) : 0;
}

/* ---- encoding ---- */

/* What parsing would check, before anything is read through a pointer. */
static int check_message(const struct wire_message *m, const struct wire_form *form, struct err *e)
{
	if ((m->room != 0) != form->has_room)
		return err_set(e, EINVAL, "it has %s room", form->has_room ? "no" : "a");
	for (const struct field *f = form->fields; f->name; f++)
		if (check_field(f, (const char *)m + field_offset(f), e) < 0)
			return -EINVAL;
	return form->check && form->check(m, e) < 0 ? -EINVAL : 0;
}

/* Arrays are bounded, so that this cannot overflow. */
static size_t message_bytes(const struct wire_message *m, const struct wire_form *form)
{
	size_t bytes = WIRE_HEADER;

	for (const struct field *f = form->fields; f->name; f++)
		bytes += field_bytes(f) +
			 (f->kind == ARRAY ? (size_t)array_count(f, m) * f->size : 0);
	return bytes;
}

static void put(struct buf *out, uint64_t v, size_t size)
{
	buf_append(out, &v, size);
}

static void append_message(const struct wire_message *m, const struct wire_form *form, size_t bytes,
			   struct buf *out)
{
	buf_append(out, magic, sizeof(magic));
	put(out, WIRE_VERSION, 2);
	put(out, m->type, 2);
	put(out, bytes, 4);
	put(out, 0, 4);
	put(out, m->room, 8);
	for (const struct field *f = form->fields; f->name; f++)
		buf_append(out, (const char *)m + field_offset(f), field_bytes(f));
	for (const struct field *f = form->fields; f->name; f++) {
		const void *elements;

		if (f->kind != ARRAY)
			continue;
		memcpy(&elements, (const char *)m + f->offset, sizeof(elements));
		buf_append(out, elements, (size_t)array_count(f, m) * f->size);
	}
}

int wire_encode(const struct wire_message *m, struct buf *out, struct err *e)
{
	const struct wire_form *form = wire_form(m->type);
	size_t bytes;
	int r;

	if (!form)
		return err_set(e, EINVAL, "a message of type %d is unknown", (int)m->type);
	r = check_message(m, form, e);
	if (r < 0) {
		err_prefix(e, "%s", form->name);
		if (e)
			e->code = EINVAL;
		return r;
	}
	bytes = message_bytes(m, form);
	r = bytes > WIRE_FRAME_MAX ? -ENOBUFS : buf_reserve(out, bytes);
	if (r < 0)
		return err_set(e, -r, "%s: no room for %zu bytes", form->name, bytes);
	append_message(m, form, bytes, out);
	return 0;
}

/* ---- what the raw frame must be ---- */

uint64_t wire_window_bytes(const struct wire_window *w)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < w->n_pieces; i++)
		sum += w->pieces[i].bytes;
	return sum;
}

int wire_window_fits(const struct wire_window *w, uint64_t bytes, struct err *e)
{
	uint64_t listed = wire_window_bytes(w);

	if (bytes != listed)
		return err_set(e, EBADMSG,
			       "WINDOW: %" PRIu64 " bytes came, but its pieces have %" PRIu64,
			       bytes, listed);
	return 0;
}

/* ---- two workers that fit together ---- */

/* Both workers log the sentence, so it says of each number which one's it is, and in place of "here" and "there". `hint`
 * stands at its end. */
static int differs(struct err *e, const char *what, uint64_t decode, uint64_t prefill,
		   const char *hint)
{
	return err_set(e, EPROTO,
		       "the layout is another one: %s %" PRIu64 " at the decode worker, %" PRIu64
		       " at the prefill worker%s",
		       what, decode, prefill, hint);
}

/* Of pages with as many tokens. */
static const char dtype_hint[] = "; --dtype has to be the same, and the model";

/* a: the decode worker's. */
static int compare_layers(const struct wire_layout *a, const struct wire_layout *b, struct err *e)
{
	static const char *const kinds[] = {"attention", "Gated DeltaNet"};
	static const char *const parts[WIRE_PARTS] = {"k of a page", "v of a page", "ring",
						      "recurrent state"};

	for (uint32_t i = 0; i < a->n_layers; i++) {
		const struct wire_layer *x = &a->layers[i], *y = &b->layers[i];

		if (x->kind != y->kind)
			return err_set(e, EPROTO,
				       "the layout is another one: layer %u is %s at the decode "
				       "worker, %s at the prefill worker",
				       i, kinds[x->kind], kinds[y->kind]);
		for (uint32_t part = 0; part < 2; part++) {
			char what[64];

			if (x->part_bytes[part] == y->part_bytes[part])
				continue;
			snprintf(what, sizeof(what), "bytes of layer %u's %s are", i,
				 parts[x->kind * 2 + part]);
			return differs(e, what, x->part_bytes[part], y->part_bytes[part],
				       dtype_hint);
		}
	}
	return 0;
}

/* The layout first: it says more than that a hash is another one. */
static int compare(const struct wire_hello *ours, const struct wire_hello *theirs, struct err *e)
{
	bool decodes = ours->role == WIRE_DECODE;
	const struct wire_layout *a = decodes ? &ours->layout : &theirs->layout;
	const struct wire_layout *b = decodes ? &theirs->layout : &ours->layout;
	int r;

	if (a->n_layers != b->n_layers)
		return differs(e, "layers are", a->n_layers, b->n_layers, "");
	if (a->page_tokens != b->page_tokens)
		return differs(e, "tokens of a page are", a->page_tokens, b->page_tokens,
			       "; --page-size has to be the same");
	r = compare_layers(a, b, e);
	if (r < 0)
		return r;
	if (a->page_bytes != b->page_bytes)
		return differs(e, "bytes of a page are", a->page_bytes, b->page_bytes, dtype_hint);
	if (a->slot_bytes != b->slot_bytes)
		return differs(e, "bytes of a state are", a->slot_bytes, b->slot_bytes, dtype_hint);
	if (memcmp(ours->model, theirs->model, sizeof(ours->model)))
		return err_set(e, EPROTO,
			       "the model is another one: the layout is the same, but weights, "
			       "--dtype, kernels or device are not, so the bits would differ");
	return 0;
}

bool wire_layout_equal(const struct wire_hello *ours, const struct wire_hello *theirs,
		       struct err *e)
{
	return compare(ours, theirs, e) == 0;
}

void wire_text(const char *text, uint32_t n_text, char *out, size_t size)
{
	size_t n = 0;

	if (!size)
		return;
	for (; n < n_text && n + 1 < size; n++)
		out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	out[n] = 0;
}
