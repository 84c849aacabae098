#include "protocol/responses/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mix.h"

struct response_turn {
	struct response_turn *previous; /* a reference; NULL: none */
	uint64_t refs;
	size_t input, output; /* bytes of the two lists */
	char text[];	      /* the input, then the output */
};

struct entry {
	struct map_node node; /* in store.ids */
	struct list by_age;   /* in store.entries */
	uint64_t owner, until;
	struct response_turn *turn; /* a reference */
	size_t id, head, tail;	    /* bytes of the three texts */
	char text[];		    /* the id with a 0 behind it, the head, the tail */
};

struct response_store {
	uint64_t max_bytes, age, bytes;
	struct map ids;
	struct list entries; /* the oldest first */
};

static uint64_t hash_id(const char *id)
{
	uint64_t h = 0;

	while (*id)
		h = mix_add(h, (unsigned char)*id++);
	return mix64(h);
}

static size_t turn_bytes(const struct response_turn *t)
{
	return sizeof(*t) + t->input + t->output;
}

static size_t entry_bytes(const struct entry *e)
{
	return sizeof(*e) + e->id + 1 + e->head + e->tail;
}

struct response_store *response_store_new(uint64_t max_bytes, uint64_t age)
{
	struct response_store *s = calloc(1, sizeof(*s));

	if (!s || map_init(&s->ids, 64) < 0) {
		free(s);
		return NULL;
	}
	s->max_bytes = max_bytes;
	s->age = age;
	list_init(&s->entries);
	return s;
}

/* ---- turns ---- */

void response_turn_drop(struct response_store *s, struct response_turn *t)
{
	while (t && !--t->refs) {
		struct response_turn *previous = t->previous;

		s->bytes -= turn_bytes(t);
		free(t);
		t = previous;
	}
}

static char *copy(char *to, const struct response_text *from)
{
	if (from->len)
		memcpy(to, from->text, from->len);
	return to + from->len;
}

static struct response_turn *turn_new(struct response_store *s, const struct response_record *r)
{
	struct response_turn *t = malloc(sizeof(*t) + r->input.len + r->output.len);

	if (!t)
		return NULL;
	*t = (struct response_turn){.previous = r->previous,
				    .refs = 1,
				    .input = r->input.len,
				    .output = r->output.len};
	copy(copy(t->text, &r->input), &r->output);
	if (t->previous)
		t->previous->refs++;
	s->bytes += turn_bytes(t);
	return t;
}

static void append_items(struct buf *out, const char *items, size_t len, bool *any)
{
	if (!len)
		return;
	if (*any)
		buf_putc(out, ',');
	*any = true;
	buf_append(out, items, len);
}

void response_turn_items(const struct response_turn *t, bool output, struct buf *out)
{
	const struct response_turn **chain;
	bool any = false;
	size_t n = 0;

	for (const struct response_turn *p = t; p; p = p->previous)
		n++;
	chain = calloc(n ? n : 1, sizeof(*chain));
	if (!chain) {
		out->failed = true;
		return;
	}
	for (size_t i = n; i; t = t->previous)
		chain[--i] = t;
	for (size_t i = 0; i < n; i++) {
		append_items(out, chain[i]->text, chain[i]->input, &any);
		if (output || i + 1 < n)
			append_items(out, chain[i]->text + chain[i]->input, chain[i]->output, &any);
	}
	free(chain);
}

/* ---- responses ---- */

static void forget(struct response_store *s, struct entry *e)
{
	map_remove(&s->ids, &e->node);
	list_remove(&e->by_age);
	s->bytes -= entry_bytes(e);
	response_turn_drop(s, e->turn);
	free(e);
}

/* Forgets the responses that are too old. All entries are kept for the same time, so these are the first ones. */
static void expire(struct response_store *s, uint64_t now)
{
	struct entry *e;

	while ((e = list_first(&s->entries, struct entry, by_age)) && e->until <= now)
		forget(s, e);
}

void response_store_free(struct response_store *s)
{
	struct entry *e;

	if (!s)
		return;
	while ((e = list_first(&s->entries, struct entry, by_age)))
		forget(s, e);
	map_release(&s->ids);
	free(s);
}

bool response_store_takes(const struct response_store *s, size_t bytes)
{
	return bytes <= s->max_bytes;
}

static struct entry *entry_new(struct response_store *s, const struct response_record *r)
{
	const struct response_text id = {r->id, strlen(r->id)};
	struct entry *e = malloc(sizeof(*e) + id.len + 1 + r->head.len + r->tail.len);
	char *to;

	if (!e)
		return NULL;
	*e = (struct entry){.owner = r->owner,
			    .id = id.len,
			    .head = r->head.len,
			    .tail = r->tail.len};
	to = copy(e->text, &id);
	*to++ = 0;
	copy(copy(to, &r->head), &r->tail);
	e->turn = turn_new(s, r);
	if (!e->turn || map_reserve(&s->ids) < 0) {
		response_turn_drop(s, e->turn);
		free(e);
		return NULL;
	}
	s->bytes += entry_bytes(e);
	return e;
}

bool response_store_put(struct response_store *s, const struct response_record *r, uint64_t now)
{
	struct entry *e;

	expire(s, now);
	e = entry_new(s, r);
	if (!e)
		return false;
	e->until = now + s->age;
	map_insert(&s->ids, &e->node, hash_id(r->id));
	list_init(&e->by_age);
	list_append(&s->entries, &e->by_age);
	/* The turns before this one may be too many by themselves: then the new entry goes as well, as the last one. */
	while (s->bytes > s->max_bytes) {
		struct entry *oldest = list_first(&s->entries, struct entry, by_age);

		if (!oldest)
			return false;
		if (oldest == e)
			e = NULL;
		forget(s, oldest);
	}
	return e;
}

static struct entry *find(struct response_store *s, const char *id, uint64_t owner, uint64_t now)
{
	expire(s, now);
	for (struct map_node *n = map_first(&s->ids, hash_id(id)); n; n = map_next(n)) {
		struct entry *e = container_of(n, struct entry, node);

		if (!strcmp(e->text, id))
			return e->owner == owner ? e : NULL;
	}
	return NULL;
}

bool response_store_get(struct response_store *s, const char *id, uint64_t owner, uint64_t now,
			struct buf *out)
{
	const struct entry *e = find(s, id, owner, now);

	if (!e)
		return false;
	buf_append(out, e->text + e->id + 1, e->head);
	buf_append(out, e->turn->text + e->turn->input, e->turn->output);
	buf_append(out, e->text + e->id + 1 + e->head, e->tail);
	return true;
}

bool response_store_delete(struct response_store *s, const char *id, uint64_t owner, uint64_t now)
{
	struct entry *e = find(s, id, owner, now);

	if (e)
		forget(s, e);
	return e;
}

struct response_turn *response_store_turn(struct response_store *s, const char *id, uint64_t owner,
					  uint64_t now)
{
	struct entry *e = find(s, id, owner, now);

	if (!e)
		return NULL;
	e->turn->refs++;
	return e->turn;
}

uint64_t response_store_count(const struct response_store *s)
{
	return s->ids.n;
}

uint64_t response_store_bytes(const struct response_store *s)
{
	return s->bytes;
}
