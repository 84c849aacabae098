/* Parses the header of one safetensors file with a scanner that builds no tree, then checks it as a whole. A header
 * that passes needs no further check: name, type and size of every tensor are valid, and the tensors cover the bytes
 * behind the header exactly once. */
#include "engine/checkpoint/formats/safetensors.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/macros.h"
#include "engine/checkpoint/formats/json_scan.h"

enum {
	HEADER_MAX = 100000000, /* bytes, the limit of the reference implementation */
	TENSORS_MAX = 1 << 20,	/* tensors of a file */
};

struct entry {
	struct tensor tensor;
	uint64_t begin, end; /* offsets into the data */
};

struct header {
	const char *file;
	struct json_scan scan;
	struct arena names;
	struct entry *entries; /* owned, [n] */
	size_t n, cap;
	struct err *e;
};

static int broken_json(struct header *h, const char *what)
{
	return err_set(h->e, EINVAL,
		       "%s: header is not the JSON of a safetensors file: %s at byte %zu", h->file,
		       what, json_scan_offset(&h->scan) + 8);
}

static int broken_tensor(struct header *h, const struct tensor *t, const char *what)
{
	return err_set(h->e, EINVAL, "%s: tensor %s: %s", h->file, t->name, what);
}

static int scan_dtype(struct header *h, struct entry *t)
{
	char name[32];

	if (json_scan_string(&h->scan, name, sizeof(name)) < 0)
		return broken_tensor(h, &t->tensor, "dtype is not a known name");
	t->tensor.type = stored_type_find(name);
	if (t->tensor.type)
		return 0;
	return err_set(h->e, EINVAL, "%s: tensor %s: unknown dtype %s", h->file, t->tensor.name,
		       name);
}

static int scan_shape(struct header *h, struct entry *t)
{
	if (!json_scan_is(&h->scan, '['))
		return broken_tensor(h, &t->tensor, "shape is not a list");
	t->tensor.n_dims = 0;
	if (json_scan_is(&h->scan, ']'))
		return 0;
	do {
		if (t->tensor.n_dims == TENSOR_DIMS_MAX)
			return broken_tensor(h, &t->tensor, "more than 8 dimensions");
		if (json_scan_uint(&h->scan, &t->tensor.shape[t->tensor.n_dims++]) < 0)
			return broken_tensor(h, &t->tensor,
					     "shape holds something other than sizes");
	} while (json_scan_is(&h->scan, ','));
	return json_scan_is(&h->scan, ']') ? 0 : broken_tensor(h, &t->tensor, "shape does not end");
}

static int scan_offsets(struct header *h, struct entry *t)
{
	if (!json_scan_is(&h->scan, '[') || json_scan_uint(&h->scan, &t->begin) < 0 ||
	    !json_scan_is(&h->scan, ',') || json_scan_uint(&h->scan, &t->end) < 0 ||
	    !json_scan_is(&h->scan, ']'))
		return broken_tensor(h, &t->tensor, "data_offsets are not two numbers");
	return 0;
}

/* Parses the description of one tensor, which is the object behind its name. */
static int scan_entry(struct header *h, struct entry *t)
{
	bool dtype = false, shape = false, offsets = false;
	int r;

	if (!json_scan_is(&h->scan, '{'))
		return broken_tensor(h, &t->tensor, "its description is not an object");
	do {
		char key[32];
		bool *seen;

		if (json_scan_string(&h->scan, key, sizeof(key)) < 0 ||
		    !json_scan_is(&h->scan, ':'))
			return broken_tensor(h, &t->tensor, "its description is not valid JSON");
		if (!strcmp(key, "dtype")) {
			seen = &dtype;
			r = scan_dtype(h, t);
		} else if (!strcmp(key, "shape")) {
			seen = &shape;
			r = scan_shape(h, t);
		} else if (!strcmp(key, "data_offsets")) {
			seen = &offsets;
			r = scan_offsets(h, t);
		} else {
			return err_set(h->e, EINVAL, "%s: tensor %s: unknown key \"%s\"", h->file,
				       t->tensor.name, key);
		}
		if (r < 0)
			return r;
		if (*seen)
			return err_set(h->e, EINVAL, "%s: tensor %s: %s twice", h->file,
				       t->tensor.name, key);
		*seen = true;
	} while (json_scan_is(&h->scan, ','));
	if (!json_scan_is(&h->scan, '}'))
		return broken_tensor(h, &t->tensor, "its description is not valid JSON");
	if (!dtype || !shape || !offsets)
		return broken_tensor(h, &t->tensor, "dtype, shape or data_offsets is missing");
	return 0;
}

/* Checks that the tensor's bytes lie inside the data, and that their number follows from the shape: the product of the
 * dimensions, times the bits of an element, divided by 8, without overflow and without a part of a byte. */
static int check_size(struct header *h, struct entry *t, uint64_t data_len)
{
	struct tensor *x = &t->tensor;
	uint64_t bits = 8 * x->type->bytes / x->type->elements, bytes;

	for (uint32_t i = 0; i < x->n_dims; i++)
		if (__builtin_mul_overflow(bits, x->shape[i], &bits))
			return broken_tensor(h, x, "shape overflows");
	if (bits % 8)
		return broken_tensor(h, x, "shape does not fill whole bytes");
	bytes = bits / 8;
	if (t->begin > t->end || t->end > data_len)
		return err_set(
			h->e, EINVAL,
			"%s: tensor %s: data_offsets [%llu, %llu] leave the %llu bytes of data",
			h->file, x->name, (unsigned long long)t->begin, (unsigned long long)t->end,
			(unsigned long long)data_len);
	if (t->end - t->begin != bytes)
		return err_set(h->e, EINVAL,
			       "%s: tensor %s: shape takes %llu bytes, data_offsets %llu", h->file,
			       x->name, (unsigned long long)bytes,
			       (unsigned long long)(t->end - t->begin));
	x->bytes = (size_t)bytes;
	return 0;
}

static int scan_header(struct header *h, uint64_t data_len)
{
	char name[TENSOR_NAME_MAX + 1];
	struct entry t;
	int r;

	if (!json_scan_is(&h->scan, '{'))
		return broken_json(h, "no object");
	if (json_scan_is(&h->scan, '}'))
		goto end;
	do {
		r = json_scan_string(&h->scan, name, sizeof(name));
		if (r == -ENAMETOOLONG)
			return broken_json(h, "a name of more than 255 characters");
		if (r < 0)
			return broken_json(h, "a name that is not printable ASCII");
		if (!json_scan_is(&h->scan, ':'))
			return broken_json(h, "no colon behind a name");
		if (!strcmp(name, "__metadata__")) {
			if (json_scan_skip(&h->scan) < 0)
				return broken_json(h, "broken __metadata__");
			continue;
		}
		if (h->n == TENSORS_MAX)
			return err_set(h->e, EINVAL, "%s: more than %d tensors", h->file,
				       TENSORS_MAX);
		t = (struct entry){.tensor.file = h->file,
				   .tensor.name = arena_strdup(&h->names, name)};
		if (!t.tensor.name || !array_grow(h->entries, h->cap, h->n + 1))
			return err_set(h->e, ENOMEM, "%s: out of memory for its header", h->file);
		r = scan_entry(h, &t);
		if (r == 0)
			r = check_size(h, &t, data_len);
		if (r < 0)
			return r;
		h->entries[h->n++] = t;
	} while (json_scan_is(&h->scan, ','));
	if (!json_scan_is(&h->scan, '}'))
		return broken_json(h, "the object does not end");
end:
	if (!json_scan_end(&h->scan))
		return broken_json(h, "more text behind the object");
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return strcmp(x->tensor.name, y->tensor.name);
}

static int compare_places(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return strcmp(x->tensor.name, y->tensor.name);
}

/* Checks that no name comes twice, and that the tensors cover the data exactly once. */
static int check_cover(struct header *h, uint64_t data_len)
{
	uint64_t at = 0;

	if (h->n)
		qsort(h->entries, h->n, sizeof(*h->entries), compare_names);
	for (size_t i = 1; i < h->n; i++)
		if (!strcmp(h->entries[i - 1].tensor.name, h->entries[i].tensor.name))
			return broken_tensor(h, &h->entries[i].tensor, "listed twice");
	if (h->n)
		qsort(h->entries, h->n, sizeof(*h->entries), compare_places);
	for (size_t i = 0; i < h->n; i++) {
		struct entry *t = &h->entries[i];

		if (t->begin != at)
			return err_set(h->e, EINVAL, "%s: tensor %s: %s at byte %llu of the data",
				       h->file, t->tensor.name,
				       t->begin < at ? "overlaps another"
						     : "leaves a hole before it",
				       (unsigned long long)MIN(t->begin, at));
		at = t->end;
	}
	if (at != data_len)
		return err_set(h->e, EINVAL, "%s: %llu bytes behind the last tensor", h->file,
			       (unsigned long long)(data_len - at));
	return 0;
}

int safetensors_parse(const char *file, const void *bytes, size_t len,
		      int (*visit)(const struct tensor *t, void *user), void *user, struct err *e)
{
	struct header h = {.file = file, .e = e};
	const uint8_t *p = bytes;
	uint64_t header_len = 0, data_len;
	int r;

	if (len < 8)
		return err_set(e, EINVAL, "%s: %zu bytes are too short for a safetensors file",
			       file, len);
	for (int i = 7; i >= 0; i--)
		header_len = header_len << 8 | p[i];
	if (header_len > HEADER_MAX)
		return err_set(e, EINVAL, "%s: header of %llu bytes, more than the 100 MB allowed",
			       file, (unsigned long long)header_len);
	if (header_len > len - 8)
		return err_set(e, EINVAL, "%s: header of %llu bytes in a file of %zu bytes", file,
			       (unsigned long long)header_len, len);
	data_len = len - 8 - header_len;
	json_scan_init(&h.scan, (const char *)p + 8, header_len);
	arena_init(&h.names, HEADER_MAX);
	r = scan_header(&h, data_len);
	if (r == 0)
		r = check_cover(&h, data_len);
	for (size_t i = 0; r == 0 && i < h.n; i++) {
		h.entries[i].tensor.data = p + 8 + header_len + h.entries[i].begin;
		r = visit(&h.entries[i].tensor, user);
	}
	arena_release(&h.names);
	free(h.entries);
	return r < 0 ? r : 0;
}
