#include "protocol/transfer/key_sets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"

/* Entries and nodes refer to each other by index. Index 0 means none, so element 0 is never used. */
struct entry {
	struct wire_key key;
	uint64_t sets;
	uint32_t chain; /* the next entry of its bucket, or of the free list */
	uint32_t nodes; /* the first of its nodes */
};

struct node {
	uint32_t entry;
	uint32_t newer, older; /* in its set */
	uint32_t sibling;      /* the next node of its entry, or of the free list */
	uint32_t set;
};

struct key_sets {
	uint64_t seed[2];
	struct entry *entries;
	struct node *nodes;
	uint32_t *buckets; /* [n_buckets] a power of two */
	uint32_t n_buckets, n_entries;
	/* end: the first element that was never used; free: the first of the list of free elements, 0 if it is empty */
	uint32_t entries_end, entries_cap, entries_free;
	uint32_t nodes_end, nodes_cap, nodes_free;
	struct set {
		uint32_t newest, oldest, n, max;
	} sets[KEY_SETS_MAX];
};

enum { FIRST_BUCKETS = 1024, FIRST_CAP = 256 };

struct key_sets *key_sets_new(const uint64_t seed[2])
{
	struct key_sets *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	memcpy(s->seed, seed, sizeof(s->seed));
	s->entries_end = s->nodes_end = 1;
	s->n_buckets = FIRST_BUCKETS;
	s->buckets = calloc(s->n_buckets, sizeof(*s->buckets));
	if (!s->buckets) {
		free(s);
		return NULL;
	}
	return s;
}

void key_sets_free(struct key_sets *s)
{
	if (!s)
		return;
	free(s->entries);
	free(s->nodes);
	free(s->buckets);
	free(s);
}

/* ---- the table ---- */

static uint32_t *bucket(const struct key_sets *s, const struct wire_key *key)
{
	uint64_t v[2];

	memcpy(v, key->bytes, sizeof(v));
	return &s->buckets[mix_product(v[0] ^ s->seed[0], v[1] ^ s->seed[1]) & (s->n_buckets - 1)];
}

static uint32_t find(const struct key_sets *s, const struct wire_key *key)
{
	uint32_t i = *bucket(s, key);

	while (i && memcmp(&s->entries[i].key, key, sizeof(*key)))
		i = s->entries[i].chain;
	return i;
}

uint64_t key_sets_with(const struct key_sets *s, const struct wire_key *key)
{
	uint32_t i = find(s, key);

	return i ? s->entries[i].sets : 0;
}

/* Doubles the number of buckets if there are as many entries as buckets. If memory is short, the chains just grow
 * longer. */
static void grow_buckets(struct key_sets *s)
{
	uint32_t n = s->n_buckets * 2;
	uint32_t *grown, *old = s->buckets;

	if (s->n_entries < s->n_buckets)
		return;
	grown = calloc(n, sizeof(*grown));
	if (!grown)
		return;
	s->buckets = grown;
	s->n_buckets = n;
	for (uint32_t b = 0; b < n / 2; b++)
		for (uint32_t i = old[b], next; i; i = next) {
			uint32_t *to = bucket(s, &s->entries[i].key);

			next = s->entries[i].chain;
			s->entries[i].chain = *to;
			*to = i;
		}
	free(old);
}

/* ---- memory ---- */

/* Makes room for one more element: grows the array if its list of free elements is empty (first_free is 0) and `end`
 * has reached *cap. Returns the array. NULL: out of memory, the array is unchanged. */
static void *reserve(void *items, size_t size, uint32_t end, uint32_t *cap, uint32_t first_free)
{
	uint32_t n = *cap ? *cap * 2 : FIRST_CAP;

	if (first_free || end < *cap)
		return items;
	if (*cap > UINT32_MAX / 2)
		return NULL;
	items = realloc(items, n * size);
	if (items)
		*cap = n;
	return items;
}

static int reserve_both(struct key_sets *s)
{
	void *nodes =
		reserve(s->nodes, sizeof(*s->nodes), s->nodes_end, &s->nodes_cap, s->nodes_free);
	void *entries;

	if (!nodes)
		return -ENOMEM;
	s->nodes = nodes;
	entries = reserve(s->entries, sizeof(*s->entries), s->entries_end, &s->entries_cap,
			  s->entries_free);
	if (!entries)
		return -ENOMEM;
	s->entries = entries;
	return 0;
}

static uint32_t take_entry(struct key_sets *s)
{
	uint32_t i = s->entries_free;

	if (!i)
		return s->entries_end++;
	s->entries_free = s->entries[i].chain;
	return i;
}

static uint32_t take_node(struct key_sets *s)
{
	uint32_t i = s->nodes_free;

	if (!i)
		return s->nodes_end++;
	s->nodes_free = s->nodes[i].sibling;
	return i;
}

/* ---- the order of a set ---- */

static void unlink_node(struct key_sets *s, uint32_t i)
{
	struct node *n = &s->nodes[i];
	struct set *set = &s->sets[n->set];

	*(n->newer ? &s->nodes[n->newer].older : &set->newest) = n->older;
	*(n->older ? &s->nodes[n->older].newer : &set->oldest) = n->newer;
}

static void link_newest(struct key_sets *s, uint32_t i)
{
	struct node *n = &s->nodes[i];
	struct set *set = &s->sets[n->set];

	n->newer = 0;
	n->older = set->newest;
	*(n->older ? &s->nodes[n->older].newer : &set->oldest) = i;
	set->newest = i;
}

/* ---- adding and removing ---- */

static void drop_entry(struct key_sets *s, uint32_t i)
{
	uint32_t *at = bucket(s, &s->entries[i].key);

	while (*at != i)
		at = &s->entries[*at].chain;
	*at = s->entries[i].chain;
	s->entries[i].chain = s->entries_free;
	s->entries_free = i;
	s->n_entries--;
}

static void drop_oldest(struct key_sets *s, struct set *set)
{
	uint32_t i = set->oldest;
	struct node *n = &s->nodes[i];
	struct entry *entry = &s->entries[n->entry];
	uint32_t *at = &entry->nodes;

	unlink_node(s, i);
	while (*at != i)
		at = &s->nodes[*at].sibling;
	*at = n->sibling;
	entry->sets &= ~((uint64_t)1 << n->set);
	if (!entry->nodes)
		drop_entry(s, n->entry);
	n->sibling = s->nodes_free;
	s->nodes_free = i;
	set->n--;
}

static uint32_t add_entry(struct key_sets *s, const struct wire_key *key)
{
	uint32_t i, *at;

	grow_buckets(s);
	i = take_entry(s);
	at = bucket(s, key);
	s->entries[i] = (struct entry){.key = *key, .chain = *at};
	*at = i;
	s->n_entries++;
	return i;
}

static void add_node(struct key_sets *s, uint32_t set, uint32_t entry)
{
	uint32_t i = take_node(s);

	s->nodes[i] = (struct node){.entry = entry, .sibling = s->entries[entry].nodes, .set = set};
	s->entries[entry].nodes = i;
	s->entries[entry].sets |= (uint64_t)1 << set;
	s->sets[set].n++;
	link_newest(s, i);
}

int key_sets_add(struct key_sets *s, uint32_t set, const struct wire_key *key)
{
	uint32_t entry = find(s, key), i;

	if (entry && s->entries[entry].sets >> set & 1) {
		for (i = s->entries[entry].nodes; s->nodes[i].set != set;)
			i = s->nodes[i].sibling;
		unlink_node(s, i);
		link_newest(s, i);
		return 0;
	}
	if (!s->sets[set].max)
		return 0;
	if (reserve_both(s) < 0)
		return -ENOMEM;
	/* drop_oldest cannot drop `entry`, because the key of `entry` is not in this set. */
	if (s->sets[set].n == s->sets[set].max)
		drop_oldest(s, &s->sets[set]);
	add_node(s, set, entry ? entry : add_entry(s, key));
	return 0;
}

void key_sets_limit(struct key_sets *s, uint32_t set, uint32_t max)
{
	s->sets[set].max = max;
	while (s->sets[set].n > max)
		drop_oldest(s, &s->sets[set]);
}

void key_sets_clear(struct key_sets *s, uint32_t set)
{
	while (s->sets[set].n)
		drop_oldest(s, &s->sets[set]);
}

uint32_t key_sets_count(const struct key_sets *s, uint32_t set)
{
	return s->sets[set].n;
}
