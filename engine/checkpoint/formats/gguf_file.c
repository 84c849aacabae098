/* Reads the header of a GGUF file with a cursor that never leaves the file, then checks it as a whole. Memory grows with
 * the keys and tensors that were read, not with their announced numbers. */
#include "engine/checkpoint/formats/gguf_file.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"

enum {
	VERSION = 3,
	KEYS_MAX = 1 << 16,
	TENSORS_MAX = 1 << 20,
	KEY_NAME_MAX = 255,
	DIMS_MAX = 4,
	ALIGNMENT = 32, /* if the key is missing */
	ALIGNMENT_MAX = 1 << 20,
	NAMES_MAX = 1 << 30, /* bytes */
	JSON_MAX = 4096,     /* elements of an array that becomes JSON */
};

/* Bytes of an element of a fixed size. */
static const uint8_t sizes[GGUF_TYPES] = {
	[GGUF_U8] = 1,	[GGUF_I8] = 1,	[GGUF_U16] = 2,	 [GGUF_I16] = 2,
	[GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4,	 [GGUF_U64] = 8,
	[GGUF_I64] = 8, [GGUF_F64] = 8, [GGUF_BOOL] = 1,
};

/* The part of a file that is not read yet. */
struct cursor {
	const uint8_t *at, *end;
};

struct reader {
	struct gguf_file *g;
	struct cursor c;
	const uint8_t *start; /* of the file */
	uint64_t alignment;
	struct err *e;
};

static int broken(struct reader *r, const char *what)
{
	return err_set(r->e, EINVAL, "%s: %s at byte %zu", r->g->shown, what,
		       (size_t)(r->c.at - r->start));
}

static int broken_key(struct reader *r, const char *name, const char *what)
{
	return err_set(r->e, EINVAL, "%s: key %s %s", r->g->shown, name, what);
}

static int broken_tensor(struct reader *r, const struct tensor *t, const char *what)
{
	return err_set(r->e, EINVAL, "%s: tensor %s %s", r->g->shown, t->name, what);
}

static int out_of_memory(struct reader *r)
{
	return err_set(r->e, ENOMEM, "%s: out of memory for its header", r->g->shown);
}

/* ---- numbers and strings ---- */

static bool take_u32(struct cursor *c, uint32_t *ret)
{
	if (c->end - c->at < 4)
		return false;
	memcpy(ret, c->at, 4);
	*ret = le32toh(*ret);
	c->at += 4;
	return true;
}

static bool take_u64(struct cursor *c, uint64_t *ret)
{
	if (c->end - c->at < 8)
		return false;
	memcpy(ret, c->at, 8);
	*ret = le64toh(*ret);
	c->at += 8;
	return true;
}

static bool skip(struct cursor *c, uint64_t bytes)
{
	if (bytes > (uint64_t)(c->end - c->at))
		return false;
	c->at += bytes;
	return true;
}

/* Takes a string of 1 to `max` printable ASCII characters. *ret is a copy in the arena. */
static int take_name(struct reader *r, size_t max, const char **ret)
{
	uint64_t len;

	if (!take_u64(&r->c, &len))
		return broken(r, "the file ends within its header");
	if (!len || len > max)
		return broken(r, "a name that is empty, or longer than 255 characters");
	if (len > (uint64_t)(r->c.end - r->c.at))
		return broken(r, "the file ends within its header");
	for (uint64_t i = 0; i < len; i++)
		if (r->c.at[i] < ' ' || r->c.at[i] > '~')
			return broken(r, "a name that is not printable ASCII");
	*ret = arena_strndup(&r->g->names, (const char *)r->c.at, (size_t)len);
	r->c.at += len;
	return *ret ? 0 : out_of_memory(r);
}

/* ---- keys ---- */

/* Moves the cursor behind n elements. */
static int skip_elements(struct reader *r, const struct gguf_key *k)
{
	uint64_t len;

	if (k->type == GGUF_STRING) {
		for (uint64_t i = 0; i < k->n; i++)
			if (!take_u64(&r->c, &len) || !skip(&r->c, len))
				return broken_key(r, k->name, "does not end inside the file");
		return 0;
	}
	if (k->n > UINT64_MAX / sizes[k->type] || !skip(&r->c, k->n * sizes[k->type]))
		return broken_key(r, k->name, "does not end inside the file");
	for (uint64_t i = 0; k->type == GGUF_BOOL && i < k->n; i++)
		if (k->value[i] > 1)
			return broken_key(r, k->name, "is a truth value other than 0 and 1");
	return 0;
}

static int read_key(struct reader *r)
{
	struct gguf_key k = {.n = 1};
	uint32_t type;
	int error = take_name(r, KEY_NAME_MAX, &k.name);

	if (error < 0)
		return error;
	if (!take_u32(&r->c, &type))
		return broken_key(r, k.name, "does not end inside the file");
	if (type == GGUF_ARRAY) {
		k.array = true;
		if (!take_u32(&r->c, &type) || !take_u64(&r->c, &k.n))
			return broken_key(r, k.name, "does not end inside the file");
	}
	if (type >= GGUF_TYPES || type == GGUF_ARRAY)
		return err_set(r->e, EINVAL, "%s: key %s has %s type %u, which is not known",
			       r->g->shown, k.name, k.array ? "elements of" : "the", type);
	k.type = type;
	k.value = r->c.at;
	error = skip_elements(r, &k);
	if (error < 0)
		return error;
	if (!array_grow(r->g->keys, r->g->cap_keys, r->g->n_keys + 1))
		return out_of_memory(r);
	r->g->keys[r->g->n_keys++] = k;
	return 0;
}

static int compare_keys(const void *a, const void *b)
{
	const struct gguf_key *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int read_keys(struct reader *r, uint64_t n)
{
	const struct gguf_file *g = r->g;
	int error = 0;

	if (n > KEYS_MAX)
		return broken(r, "more than 65536 keys are announced");
	for (uint64_t i = 0; error == 0 && i < n; i++)
		error = read_key(r);
	if (error < 0)
		return error;
	if (g->n_keys)
		qsort(g->keys, g->n_keys, sizeof(*g->keys), compare_keys);
	for (size_t i = 1; i < g->n_keys; i++)
		if (!strcmp(g->keys[i - 1].name, g->keys[i].name))
			return broken_key(r, g->keys[i].name, "is there twice");
	return 0;
}

static int read_alignment(struct reader *r)
{
	static const char name[] = "general.alignment";
	const struct gguf_key *k = gguf_find(r->g, name);

	r->alignment = ALIGNMENT;
	if (!k)
		return 0;
	if (k->array || !gguf_whole(k, 0, &r->alignment) || !r->alignment ||
	    r->alignment > ALIGNMENT_MAX || (r->alignment & (r->alignment - 1)))
		return broken_key(r, name, "is no power of two up to 1048576");
	return 0;
}

/* ---- tensors ---- */

/* Computes the bytes of a tensor. */
static int measure(struct reader *r, struct tensor *t)
{
	uint64_t n = 1, bytes;

	for (uint32_t i = 0; i < t->n_dims; i++)
		if (!t->shape[i])
			return broken_tensor(r, t, "has a dimension of 0");
		else if (__builtin_mul_overflow(n, t->shape[i], &n))
			return broken_tensor(r, t, "has more elements than can be counted");
	if (t->shape[t->n_dims - 1] % t->type->elements)
		return err_set(r->e, EINVAL,
			       "%s: tensor %s has rows that are no multiple of %u elements, the "
			       "block of %s",
			       r->g->shown, t->name, t->type->elements, t->type->name);
	if (__builtin_mul_overflow(n / t->type->elements, (uint64_t)t->type->bytes, &bytes) ||
	    bytes > (uint64_t)(r->c.end - r->start))
		return broken_tensor(r, t, "is larger than the file");
	t->bytes = (size_t)bytes;
	return 0;
}

/* Reads one tensor. Its offset is kept as an address in t->data, which the next step moves to the data. */
static int read_tensor(struct reader *r)
{
	struct tensor t = {.file = r->g->shown};
	uint32_t type;
	uint64_t offset;
	int error = take_name(r, TENSOR_NAME_MAX, &t.name);

	if (error < 0)
		return error;
	if (!take_u32(&r->c, &t.n_dims))
		return broken_tensor(r, &t, "does not end inside the file");
	if (!t.n_dims || t.n_dims > DIMS_MAX)
		return err_set(r->e, EINVAL, "%s: tensor %s has %u dimensions, not 1 to 4",
			       r->g->shown, t.name, t.n_dims);
	for (uint32_t i = t.n_dims; i-- > 0;)
		if (!take_u64(&r->c, &t.shape[i]))
			return broken_tensor(r, &t, "does not end inside the file");
	if (!take_u32(&r->c, &type) || !take_u64(&r->c, &offset))
		return broken_tensor(r, &t, "does not end inside the file");
	t.type = stored_type_of_ggml(type);
	if (!t.type)
		return err_set(r->e, EINVAL, "%s: tensor %s has type %u, which is not known",
			       r->g->shown, t.name, type);
	error = measure(r, &t);
	if (error < 0)
		return error;
	if (offset % r->alignment)
		return err_set(r->e, EINVAL,
			       "%s: tensor %s begins at byte %llu of the data, which is no "
			       "multiple of %llu",
			       r->g->shown, t.name, (unsigned long long)offset,
			       (unsigned long long)r->alignment);
	if (offset > (uint64_t)(r->c.end - r->start) - t.bytes)
		return broken_tensor(r, &t, "does not lie inside the file");
	t.data = r->start + offset;
	if (!array_grow(r->g->tensors, r->g->cap_tensors, r->g->n_tensors + 1))
		return out_of_memory(r);
	r->g->tensors[r->g->n_tensors++] = t;
	return 0;
}

static int compare_places(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	return x->data != y->data ? (x->data < y->data ? -1 : 1) : strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Moves the tensors to the data, which begin behind the cursor, and checks them together. */
static int place_tensors(struct reader *r)
{
	uint64_t used = (uint64_t)(r->c.at - r->start), len = (uint64_t)(r->c.end - r->start);
	uint64_t begin = (used + r->alignment - 1) / r->alignment * r->alignment;
	struct tensor *list = r->g->tensors;
	size_t n = r->g->n_tensors;

	if (!n)
		return 0;
	qsort(list, n, sizeof(*list), compare_places);
	for (size_t i = 0; i < n; i++) {
		uint64_t offset = (uint64_t)((const uint8_t *)list[i].data - r->start);

		if (begin > len || offset > len - begin || list[i].bytes > len - begin - offset)
			return broken_tensor(r, &list[i], "does not lie inside the file");
		list[i].data = r->start + begin + offset;
		if (i && (const uint8_t *)list[i - 1].data + list[i - 1].bytes >
				 (const uint8_t *)list[i].data)
			return err_set(r->e, EINVAL, "%s: tensor %s overlaps tensor %s",
				       r->g->shown, list[i].name, list[i - 1].name);
	}
	qsort(list, n, sizeof(*list), compare_names);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(list[i - 1].name, list[i].name))
			return broken_tensor(r, &list[i], "is there twice");
	return 0;
}

static int read_tensors(struct reader *r, uint64_t n)
{
	int error = 0;

	if (n > TENSORS_MAX)
		return broken(r, "more than 1048576 tensors are announced");
	for (uint64_t i = 0; error == 0 && i < n; i++)
		error = read_tensor(r);
	return error == 0 ? place_tensors(r) : error;
}

/* ---- whole files ---- */

bool gguf_magic(const void *bytes, size_t len)
{
	return len >= 4 && !memcmp(bytes, "GGUF", 4);
}

int gguf_file_read(const char *shown, const void *bytes, size_t len, struct gguf_file *ret,
		   struct err *e)
{
	struct reader r = {.g = ret, .start = bytes, .e = e};
	uint64_t n_tensors, n_keys;
	uint32_t version;
	int error;

	*ret = (struct gguf_file){.shown = shown};
	arena_init(&ret->names, NAMES_MAX);
	if (!gguf_magic(bytes, len))
		return err_set(e, EINVAL, "%s: not a GGUF file", shown);
	r.c = (struct cursor){r.start + 4, r.start + len};
	if (!take_u32(&r.c, &version) || !take_u64(&r.c, &n_tensors) || !take_u64(&r.c, &n_keys))
		return broken(&r, "the file ends within its header");
	if (version != VERSION)
		return err_set(e, EINVAL, "%s: GGUF version %u, but only version %d is known",
			       shown, version, VERSION);
	error = read_keys(&r, n_keys);
	if (error == 0)
		error = read_alignment(&r);
	return error == 0 ? read_tensors(&r, n_tensors) : error;
}

void gguf_file_release(struct gguf_file *g)
{
	arena_release(&g->names);
	free(g->keys);
	free(g->tensors);
}

static int compare_name(const void *name, const void *key)
{
	const struct gguf_key *k = key;

	return strcmp(name, k->name);
}

const struct gguf_key *gguf_find(const struct gguf_file *g, const char *name)
{
	return g->n_keys ? bsearch(name, g->keys, g->n_keys, sizeof(*g->keys), compare_name) : NULL;
}

/* ---- values ---- */

const char *gguf_next_string(const uint8_t **at, size_t *len)
{
	uint64_t n;
	const char *text = (const char *)*at + sizeof(n);

	memcpy(&n, *at, sizeof(n));
	*len = (size_t)le64toh(n);
	*at = (const uint8_t *)text + *len;
	return text;
}

/* Returns the bits of element i, of a type of fixed size. */
static uint64_t bits_of(const struct gguf_key *k, uint64_t i)
{
	uint64_t v = 0;

	memcpy(&v, k->value + i * sizes[k->type], sizes[k->type]);
	return le64toh(v);
}

bool gguf_whole(const struct gguf_key *k, uint64_t i, uint64_t *ret)
{
	uint64_t v;

	switch (k->type) {
	case GGUF_U8:
	case GGUF_U16:
	case GGUF_U32:
	case GGUF_U64: *ret = bits_of(k, i); return true;
	case GGUF_I8:
	case GGUF_I16:
	case GGUF_I32:
	case GGUF_I64:
		v = bits_of(k, i);
		if (v >> (8 * sizes[k->type] - 1))
			return false;
		*ret = v;
		return true;
	default: return false;
	}
}

bool gguf_text(const struct gguf_key *k, char *out, size_t size)
{
	const uint8_t *at = k ? k->value : NULL;
	const char *text;
	size_t len;

	out[0] = 0;
	if (!k || k->array || k->type != GGUF_STRING)
		return false;
	text = gguf_next_string(&at, &len);
	len = MIN(len, size - 1);
	for (size_t i = 0; i < len; i++)
		out[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
	out[len] = 0;
	return true;
}

static json_t *json_of_whole(const struct gguf_key *k, uint64_t i)
{
	uint32_t unused = 64 - 8u * sizes[k->type];
	uint64_t v;

	if (gguf_whole(k, i, &v))
		return v <= INT64_MAX ? json_integer((json_int_t)v) : NULL;
	/* the sign is copied into the upper bits */
	return json_integer((int64_t)(bits_of(k, i) << unused) >> unused);
}

static json_t *json_of_element(const struct gguf_key *k, uint64_t i)
{
	uint64_t bits;
	uint32_t half;
	float single;
	double v;

	switch (k->type) {
	case GGUF_BOOL: return json_boolean(k->value[i]);
	case GGUF_F32:
		half = (uint32_t)bits_of(k, i);
		memcpy(&single, &half, sizeof(single));
		return isfinite(single) ? json_real((double)single) : NULL;
	case GGUF_F64:
		bits = bits_of(k, i);
		memcpy(&v, &bits, sizeof(v));
		return isfinite(v) ? json_real(v) : NULL;
	default: return json_of_whole(k, i);
	}
}

json_t *gguf_json(const struct gguf_key *k)
{
	const uint8_t *at = k->value;
	json_t *list;
	size_t len;
	const char *text;

	if (k->type == GGUF_STRING && !k->array) {
		text = gguf_next_string(&at, &len);
		return memchr(text, 0, len) ? NULL : json_stringn(text, len);
	}
	if (k->type == GGUF_STRING || k->n > JSON_MAX)
		return NULL;
	if (!k->array)
		return json_of_element(k, 0);
	list = json_array();
	for (uint64_t i = 0; list && i < k->n; i++)
		if (json_array_append_new(list, json_of_element(k, i)) < 0) {
			json_decref(list);
			list = NULL;
		}
	return list;
}
