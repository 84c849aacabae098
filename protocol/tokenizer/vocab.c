/*
 * The vocabulary's two tables: an array by id, and an open-addressing hash table by bytes.
 *
 * The hash table is searched for the words of a text, so a slot holds a short token's bytes themselves: the search for
 * a short word usually takes one multiplication and one cache line.
 */
#include "protocol/tokenizer/vocab.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/mix.h"

enum { INLINE_MAX = 16, FIRST_SLOTS = 1024 };

void vocab_init(struct vocab *v)
{
	*v = (struct vocab){0};
	buf_init(&v->bytes, INT32_MAX);
}

void vocab_release(struct vocab *v)
{
	free(v->tokens);
	free(v->slots);
	buf_release(&v->bytes);
	vocab_init(v);
}

static int store(struct vocab *v, const char *bytes, size_t len, uint32_t *ret_start)
{
	size_t start = v->bytes.len;

	if (len > v->bytes.max - start)
		return -E2BIG;
	buf_append(&v->bytes, bytes, len);
	if (v->bytes.failed)
		return -ENOMEM;
	*ret_start = (uint32_t)start;
	return 0;
}

int vocab_set(struct vocab *v, int64_t id, const char *bytes, size_t len)
{
	uint32_t start;
	int r;

	if (id < 0 || id >= VOCAB_MAX || !len)
		return -EINVAL;
	if (!array_grow(v->tokens, v->cap, (size_t)id + 1))
		return -ENOMEM;
	r = store(v, bytes, len, &start);
	if (r < 0)
		return r;
	while (v->n <= (size_t)id)
		v->tokens[v->n++] = (struct vocab_token){0};
	v->tokens[id] = (struct vocab_token){.start = start, .len = (uint32_t)len & INT32_MAX};
	return 0;
}

static uint64_t load(const char *p, size_t n)
{
	uint64_t w = 0;

	memcpy(&w, p, n);
	return w;
}

static uint64_t mix(uint64_t low, uint64_t high)
{
	return mix_product(low ^ MIX_GOLDEN, high ^ 0xbf58476d1ce4e5b9u);
}

/* Fills the members of a slot by which these bytes are compared: len and low, and high unless the bytes are long.
 * Returns the bytes' hash, whose low bits are the number of the slot at which a search begins. */
static uint64_t key(const char *bytes, size_t len, struct vocab_slot *ret)
{
	uint64_t hash = len;

	ret->len = (uint32_t)len;
	if (len > INLINE_MAX) {
		for (size_t at = 0; at + 8 < len; at += 8)
			hash = mix(hash, load(bytes + at, 8));
		hash = mix(hash, load(bytes + len - 8, 8));
		ret->low = hash;
		ret->high = 0;
		return hash;
	}
	if (len >= 8) {
		ret->low = load(bytes, 8);
		ret->high = load(bytes + len - 8, 8);
	} else if (len >= 4) {
		ret->low = load(bytes, 4);
		ret->high = load(bytes + len - 4, 4);
	} else {
		ret->low = (uint64_t)(unsigned char)bytes[0] << 8 | (unsigned char)bytes[len - 1];
		ret->high = (unsigned char)bytes[len / 2];
	}
	return mix(ret->low ^ len << 56, ret->high);
}

/* Returns the slot that holds the bytes, or the empty one where they would go. Fills *ret_key as `key` does. */
static struct vocab_slot *seek(const struct vocab *v, const char *bytes, size_t len,
			       struct vocab_slot *ret_key)
{
	size_t mask = v->n_slots - 1, at = key(bytes, len, ret_key) & mask;

	for (;; at = (at + 1) & mask) {
		struct vocab_slot *s = &v->slots[at];

		if (!s->len)
			return s;
		if (s->len != ret_key->len || s->low != ret_key->low)
			continue;
		if (len > INLINE_MAX ? !memcmp(v->bytes.data + s->high, bytes, len)
				     : s->high == ret_key->high)
			return s;
	}
}

static uint64_t slot_hash(const struct vocab_slot *s)
{
	return s->len > INLINE_MAX ? s->low : mix(s->low ^ (uint64_t)s->len << 56, s->high);
}

static int grow(struct vocab *v)
{
	size_t n = v->n_slots ? v->n_slots * 2 : FIRST_SLOTS;
	struct vocab_slot *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_slots; i++) {
		size_t at = slot_hash(&v->slots[i]) & (n - 1);

		if (!v->slots[i].len)
			continue;
		while (slots[at].len)
			at = (at + 1) & (n - 1);
		slots[at] = v->slots[i];
	}
	free(v->slots);
	v->slots = slots;
	v->n_slots = n;
	return 0;
}

int vocab_index(struct vocab *v, int64_t id, const char *bytes, size_t len)
{
	struct vocab_slot new, *s;
	uint32_t start;
	int r;

	if (id < 0 || id >= VOCAB_MAX || !len)
		return -EINVAL;
	if (v->n_used >= v->n_slots / 2) {
		r = grow(v);
		if (r < 0)
			return r;
	}
	s = seek(v, bytes, len, &new);
	if (s->len)
		return s->id == id ? 0 : -EEXIST;
	if (len > INT32_MAX)
		return -E2BIG;
	if (len > INLINE_MAX) {
		r = store(v, bytes, len, &start);
		if (r < 0)
			return r;
		new.high = start;
	}
	new.id = (uint32_t)id &INT32_MAX;
	new.whole = 0;
	*s = new;
	v->n_used++;
	v->longest = MAX(v->longest, (uint32_t)len);
	return 0;
}

struct vocab_slot *vocab_find(const struct vocab *v, const char *bytes, size_t len)
{
	struct vocab_slot probe, *s;

	if (!v->n_used || len > v->longest)
		return NULL;
	s = seek(v, bytes, len, &probe);
	return s->len ? s : NULL;
}
