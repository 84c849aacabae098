#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "protocol/transfer/wire.h"
#include "protocol/transfer/wire_form.h"

static const char magic[4] = "TGNX";

/* The header as it lies in a frame (FORMAT.md). */
struct header {
	char magic[4];
	uint16_t version, type;
	uint32_t length, zero;
	uint64_t delivery;
};

_Static_assert(sizeof(struct header) == WIRE_HEADER, "a header");

/* ---- fields ---- */

static size_t field_bytes(const struct field *f)
{
	return f->kind == ARRAY ? sizeof(uint32_t) : f->size;
}

/* Returns the value of a field of at most 8 bytes, in a frame or in a struct; both are little endian. */
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

/* Returns the offset in struct wire_message of a field's value; for an array, of its number of elements. */
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

/* Copies the header of a frame to *h and checks it. */
static int check_header(const void *frame, size_t len, struct header *h, struct err *e)
{
	const struct wire_form *form;
	const char *name;

	if (len < WIRE_HEADER)
		return err_set(e, EBADMSG, "%zu bytes are too few for a message", len);
	memcpy(h, frame, sizeof(*h));
	if (memcmp(h->magic, magic, sizeof(magic)))
		return err_set(e, EBADMSG, "it does not begin as a worker's message does");
	if (h->version != WIRE_VERSION)
		return err_set(e, EPROTONOSUPPORT,
			       "the peer speaks version %u of the transfer protocol, not %d",
			       h->version, WIRE_VERSION);
	name = wire_type_name(h->type);
	form = wire_form(h->type);
	if (!form)
		return err_set(e, EBADMSG, "a message of type %u is unknown", h->type);
	if (h->length != len || len > WIRE_FRAME_MAX)
		return err_set(e, EBADMSG, "%s: it has %zu bytes, but says %u", name, len,
			       h->length);
	if (h->zero)
		return err_set(e, EBADMSG, "%s: its header is damaged", name);
	if ((h->delivery != 0) != form->has_delivery)
		return err_set(e, EBADMSG, "%s: it names %s delivery", name,
			       form->has_delivery ? "no" : "a");
	return 0;
}

/* Checks the fields and copies them into *m. Sets the pointers of *m to the arrays, which follow the fields in the
 * frame. */
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
			return err_set(e, EBADMSG, "it is too short for %s of %u", f->name,
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
	const struct wire_form *form;
	struct wire_message m;
	struct header h;
	int r = check_header(frame, len, &h, e);

	if (r < 0)
		return r;
	memset(&m, 0, sizeof(m));
	m.type = h.type;
	m.delivery = h.delivery;
	form = wire_form(m.type);
	r = parse_fields(form->fields, frame, len, &m, e);
	if (r == 0 && form->check)
		r = form->check(&m, e);
	if (r < 0)
		err_prefix(e, "%s", wire_type_name(m.type));
	else
		*ret = m;
	return r;
}

uint64_t wire_delivery(const void *frame, size_t len)
{
	const struct wire_form *form;
	struct header h;

	if (len < WIRE_HEADER)
		return 0;
	memcpy(&h, frame, sizeof(h));
	if (memcmp(h.magic, magic, sizeof(magic)) || h.version != WIRE_VERSION)
		return 0;
	form = wire_form(h.type);
	return form && form->has_delivery ? h.delivery : 0;
}

/* ---- encoding ---- */

/* Makes the checks of values that wire_parse makes: that a delivery id is there if and only if the type has one, the
 * range of each field, then `check` of the form. -EINVAL: wire_parse would refuse the message. */
static int check_message(const struct wire_message *m, const struct wire_form *form, struct err *e)
{
	if ((m->delivery != 0) != form->has_delivery)
		return err_set(e, EINVAL, "it names %s delivery", form->has_delivery ? "no" : "a");
	for (const struct field *f = form->fields; f->name; f++)
		if (check_field(f, (const char *)m + field_offset(f), e) < 0)
			return -EINVAL;
	return form->check && form->check(m, e) < 0 ? -EINVAL : 0;
}

/* Returns the bytes of a message's frame. The sum cannot overflow, because check_message has bounded the arrays. */
static size_t message_bytes(const struct wire_message *m, const struct wire_form *form)
{
	size_t bytes = WIRE_HEADER;

	for (const struct field *f = form->fields; f->name; f++)
		bytes += field_bytes(f) +
			 (f->kind == ARRAY ? (size_t)array_count(f, m) * f->size : 0);
	return bytes;
}

static void append_message(const struct wire_message *m, const struct wire_form *form, size_t bytes,
			   struct buf *out)
{
	struct header h = {.version = WIRE_VERSION,
			   .type = (uint16_t)m->type,
			   .length = (uint32_t)bytes,
			   .delivery = m->delivery};

	memcpy(h.magic, magic, sizeof(magic));
	buf_append(out, &h, sizeof(h));
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
		err_prefix(e, "%s", wire_type_name(m->type));
		if (e)
			e->code = EINVAL;
		return r;
	}
	bytes = message_bytes(m, form);
	r = bytes > WIRE_FRAME_MAX ? -ENOBUFS : buf_reserve(out, bytes);
	if (r < 0)
		return err_set(e, -r, "%s: no room for %zu bytes", wire_type_name(m->type), bytes);
	append_message(m, form, bytes, out);
	return 0;
}

void wire_set_delivery(void *frame, uint64_t delivery)
{
	memcpy((char *)frame + offsetof(struct header, delivery), &delivery, sizeof(delivery));
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
