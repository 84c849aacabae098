#include "protocol/responses/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/map.h"
#include "base/mix.h"

/* The responses, turns and holds of one owner. The record is there as long as any response or turn of the owner is. */
struct owner {
	struct map_node node; /* in store.owners */
	uint64_t number;
	uint64_t bytes;		    /* of this record, and of the owner's responses and turns */
	size_t place;		    /* in store.most */
	struct list entries, holds; /* the oldest first */
};

struct response_turn {
	struct response_turn *previous; /* a reference; NULL: none */
	struct owner *owner;		/* NULL: not put yet */
	uint64_t refs;
	uint64_t all;	      /* bytes of this turn and of those before it */
	size_t input, output; /* bytes of the two lists */
	char text[];	      /* the input, then the output */
};

struct response_entry {
	struct map_node node;	    /* in store.ids */
	struct list by_age;	    /* in store.entries */
	struct list by_owner;	    /* in owner.entries */
	struct owner *owner;	    /* NULL: not put yet */
	uint64_t number;	    /* of the owner */
	uint64_t refs;		    /* the store has one until the response is forgotten */
	uint64_t until;		    /* time at which it is forgotten */
	struct response_turn *turn; /* a reference */
	size_t id, head, tail;	    /* bytes of the three texts */
	char text[];		    /* the id with a 0 behind it, the head, the tail */
};

struct response_store {
	uint64_t max_bytes, age, bytes;
	struct map ids, owners;
	struct list entries; /* the oldest first */
	struct owner *
		*most; /* [owners.n] a heap: the owner that has to give something up is the first */
	size_t most_cap;
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

static size_t entry_bytes(const struct response_entry *e)
{
	return sizeof(*e) + e->id + 1 + e->head + e->tail;
}

struct response_store *response_store_new(uint64_t max_bytes, uint64_t age)
{
	struct response_store *s = calloc(1, sizeof(*s));

	if (!s || map_init(&s->ids, 64) < 0 || map_init(&s->owners, 64) < 0) {
		if (s)
			map_release(&s->ids);
		free(s);
		return NULL;
	}
	s->max_bytes = max_bytes;
	s->age = age;
	list_init(&s->entries);
	return s;
}

/* ---- owners ---- */

static bool has_something(const struct owner *o)
{
	return !list_empty(&o->entries) || !list_empty(&o->holds);
}

/* An owner that has nothing to give up comes after all that have. */
static bool gives_before(const void *a, const void *b)
{
	const struct owner *x = *(struct owner *const *)a, *y = *(struct owner *const *)b;

	if (has_something(x) != has_something(y))
		return has_something(x);
	return x->bytes > y->bytes;
}

static void moved(void *element, size_t place)
{
	(*(struct owner **)element)->place = place;
}

static const struct heap_kind by_bytes = {.size = sizeof(struct owner *),
					  .before = gives_before,
					  .moved = moved};

/* To be called when an owner's bytes or lists have changed. */
static void settle(struct response_store *s, struct owner *o)
{
	heap_settle(&by_bytes, s->most, s->owners.n, o->place);
}

static struct owner *owner_find(const struct response_store *s, uint64_t number)
{
	for (struct map_node *n = map_first(&s->owners, mix64(number)); n; n = map_next(n)) {
		struct owner *o = container_of(n, struct owner, node);

		if (o->number == number)
			return o;
	}
	return NULL;
}

static struct owner *owner_new(struct response_store *s, uint64_t number)
{
	struct owner *o;

	if (s->owners.n == s->most_cap) {
		size_t cap = s->most_cap ? 2 * s->most_cap : 16;
		struct owner **v = realloc(s->most, cap * sizeof(struct owner *));

		if (!v)
			return NULL;
		s->most = v;
		s->most_cap = cap;
	}
	if (map_reserve(&s->owners) < 0 || !(o = calloc(1, sizeof(*o))))
		return NULL;
	o->number = number;
	o->bytes = sizeof(*o);
	s->bytes += o->bytes;
	list_init(&o->entries);
	list_init(&o->holds);
	heap_add(&by_bytes, s->most, s->owners.n, &o);
	map_insert(&s->owners, &o->node, mix64(number));
	return o;
}

static void count(struct response_store *s, struct owner *o, uint64_t bytes)
{
	o->bytes += bytes;
	s->bytes += bytes;
	settle(s, o);
}

/* Frees the owner's record if nothing else of the owner is left. */
static void uncount(struct response_store *s, struct owner *o, uint64_t bytes)
{
	o->bytes -= bytes;
	s->bytes -= bytes;
	settle(s, o);
	if (o->bytes > sizeof(*o))
		return;
	heap_take(&by_bytes, s->most, s->owners.n, o->place);
	map_remove(&s->owners, &o->node);
	s->bytes -= o->bytes;
	free(o);
}

/* ---- references ---- */

static void turn_drop(struct response_store *s, struct response_turn *t)
{
	while (t && !--t->refs) {
		struct response_turn *previous = t->previous;

		uncount(s, t->owner, turn_bytes(t));
		free(t);
		t = previous;
	}
}

void response_store_drop(struct response_store *s, struct response_entry *e)
{
	struct response_turn *t;

	if (!e || --e->refs)
		return;
	t = e->turn;
	uncount(s, e->owner, entry_bytes(e));
	free(e);
	turn_drop(s, t);
}

void response_store_hold(struct response_store *s, struct response_entry *e,
			 struct response_hold *h)
{
	h->turn = e->turn;
	h->turn->refs++;
	list_init(&h->node);
	list_append(&e->owner->holds, &h->node);
	settle(s, e->owner);
}

void response_store_release(struct response_store *s, struct response_hold *h)
{
	struct response_turn *t = h->turn;

	if (!t)
		return;
	h->turn = NULL;
	list_remove(&h->node);
	settle(s, t->owner);
	turn_drop(s, t);
}

static void forget(struct response_store *s, struct response_entry *e)
{
	map_remove(&s->ids, &e->node);
	list_remove(&e->by_age);
	list_remove(&e->by_owner);
	settle(s, e->owner);
	response_store_drop(s, e);
}

/* Forgets the responses that are too old. All are kept for the same time, so these are the first ones. */
static void expire(struct response_store *s, uint64_t now)
{
	struct response_entry *e;

	while ((e = list_first(&s->entries, struct response_entry, by_age)) && e->until <= now)
		forget(s, e);
}

void response_store_free(struct response_store *s)
{
	struct response_entry *e;

	if (!s)
		return;
	while ((e = list_first(&s->entries, struct response_entry, by_age)))
		forget(s, e);
	map_release(&s->ids);
	map_release(&s->owners);
	free(s->most);
	free(s);
}

/* ---- new responses ---- */

bool response_store_takes(const struct response_store *s, size_t bytes)
{
	return bytes <= s->max_bytes;
}

static char *copy(char *to, const struct response_text *from)
{
	if (from->len)
		memcpy(to, from->text, from->len);
	return to + from->len;
}

static struct response_turn *turn_new(const struct response_record *r)
{
	struct response_turn *t = malloc(sizeof(*t) + r->input.len + r->output.len);

	if (!t)
		return NULL;
	*t = (struct response_turn){.refs = 1, .input = r->input.len, .output = r->output.len};
	t->all = turn_bytes(t);
	copy(copy(t->text, &r->input), &r->output);
	return t;
}

struct response_entry *response_entry_new(const struct response_record *r)
{
	const struct response_text id = {r->id, strlen(r->id)};
	struct response_entry *e = malloc(sizeof(*e) + id.len + 1 + r->head.len + r->tail.len);
	char *to;

	if (!e)
		return NULL;
	*e = (struct response_entry){.number = r->owner,
				     .refs = 1,
				     .id = id.len,
				     .head = r->head.len,
				     .tail = r->tail.len};
	to = copy(e->text, &id);
	*to++ = 0;
	copy(copy(to, &r->head), &r->tail);
	e->turn = turn_new(r);
	if (e->turn)
		return e;
	free(e);
	return NULL;
}

/* Returns the owner of a new response that goes on from a turn (NULL: from none). NULL: the response is too large to be
 * kept, or memory is short. */
static struct owner *admit(struct response_store *s, const struct response_entry *e,
			   const struct response_turn *previous)
{
	struct owner *o = owner_find(s, e->number);
	const bool alone = s->bytes == (o ? o->bytes : 0);
	const uint64_t most = alone ? s->max_bytes : s->max_bytes / 2;

	if (sizeof(*o) + entry_bytes(e) + e->turn->all + (previous ? previous->all : 0) > most)
		return NULL;
	if (map_reserve(&s->ids) < 0)
		return NULL;
	return o ? o : owner_new(s, e->number);
}

/* Lets an owner give up its oldest response, or hold. */
static void give_up(struct response_store *s, struct owner *o)
{
	struct response_entry *e = list_first(&o->entries, struct response_entry, by_owner);

	if (e)
		forget(s, e);
	else
		response_store_release(s, list_first(&o->holds, struct response_hold, node));
}

/* Makes room for the bytes beyond the bound, when the response `e` has come. False: `e` was given up itself. */
static bool make_room(struct response_store *s, const struct response_entry *e)
{
	struct owner *own = e->owner;

	while (s->bytes > s->max_bytes) {
		struct owner *o = s->most[0];

		if (own->bytes > s->max_bytes / 2 && own->bytes < s->bytes)
			o = own;
		if (list_first(&o->entries, struct response_entry, by_owner) == e) {
			give_up(s, o);
			return false;
		}
		give_up(s, o);
	}
	return true;
}

bool response_store_put(struct response_store *s, struct response_entry *e,
			const struct response_hold *previous, uint64_t now)
{
	struct response_turn *before = previous ? previous->turn : NULL;
	struct owner *o;

	expire(s, now);
	o = previous && !before ? NULL : admit(s, e, before);
	if (!o) {
		free(e->turn);
		free(e);
		return false;
	}
	if (before) {
		assert(before->owner == o);
		before->refs++;
		e->turn->previous = before;
		e->turn->all += before->all;
	}
	e->owner = e->turn->owner = o;
	e->until = now + s->age;
	map_insert(&s->ids, &e->node, hash_id(e->text));
	list_init(&e->by_age);
	list_append(&s->entries, &e->by_age);
	list_init(&e->by_owner);
	list_append(&o->entries, &e->by_owner);
	count(s, o, entry_bytes(e) + turn_bytes(e->turn));
	return make_room(s, e);
}

/* ---- kept responses ---- */

static struct response_entry *find(struct response_store *s, const char *id, uint64_t owner,
				   uint64_t now)
{
	expire(s, now);
	for (struct map_node *n = map_first(&s->ids, hash_id(id)); n; n = map_next(n)) {
		struct response_entry *e = container_of(n, struct response_entry, node);

		if (!strcmp(e->text, id))
			return e->number == owner ? e : NULL;
	}
	return NULL;
}

struct response_entry *response_store_find(struct response_store *s, const char *id, uint64_t owner,
					   uint64_t now)
{
	struct response_entry *e = find(s, id, owner, now);

	if (e)
		e->refs++;
	return e;
}

bool response_store_delete(struct response_store *s, const char *id, uint64_t owner, uint64_t now)
{
	struct response_entry *e = find(s, id, owner, now);

	if (e)
		forget(s, e);
	return e;
}

uint64_t response_store_count(const struct response_store *s)
{
	return s->ids.n;
}

uint64_t response_store_bytes(const struct response_store *s)
{
	return s->bytes;
}

size_t response_entry_length(const struct response_entry *e)
{
	return e->head + e->turn->output + e->tail;
}

void response_entry_write(const struct response_entry *e, struct buf *out)
{
	buf_append(out, e->text + e->id + 1, e->head);
	buf_append(out, e->turn->text + e->turn->input, e->turn->output);
	buf_append(out, e->text + e->id + 1 + e->head, e->tail);
}

uint64_t response_entry_conversation(const struct response_entry *e)
{
	return e->turn->all;
}

int response_entry_texts(const struct response_entry *e, bool output, struct response_text **ret,
			 size_t *ret_n)
{
	struct response_text *v;
	size_t n = 0, i;

	for (const struct response_turn *t = e->turn; t; t = t->previous)
		n += (t->input != 0) + (t->output && (output || t != e->turn));
	v = calloc(n ? n : 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	i = n;
	for (const struct response_turn *t = e->turn; t; t = t->previous) {
		if (t->output && (output || t != e->turn))
			v[--i] = (struct response_text){t->text + t->input, t->output};
		if (t->input)
			v[--i] = (struct response_text){t->text, t->input};
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

void response_entry_items(const struct response_entry *e, struct buf *out)
{
	struct response_text *v;
	size_t n, len = 0;

	if (response_entry_texts(e, true, &v, &n) < 0) {
		out->failed = true;
		return;
	}
	/* Room for all at once, because a buffer that grows step by step is copied again and again. */
	for (size_t i = 0; i < n; i++)
		len += v[i].len + 1;
	if (buf_reserve(out, len) < 0)
		out->failed = true;
	for (size_t i = 0; !out->failed && i < n; i++) {
		if (i)
			buf_putc(out, ',');
		buf_append(out, v[i].text, v[i].len);
	}
	free(v);
}
