/* 64 sets of content keys (prefix_cache/tiers.h), one set a peer (peers.h): the keys of the pages that the peer
 * probably has cached. A set is bounded; its least recently added key leaves first. One hash table holds the keys of
 * all sets, so that one look-up tells which sets have a key.
 *
 *     entry   a key, a bit for each set that has it, and the list of its nodes
 *     node    the place of a key in the order of one set
 *
 * Keys come from other machines, so their place in the table depends on a secret seed: a peer cannot choose keys that
 * collide. Memory: 36 bytes a key, and 20 bytes for each set that has the key, or up to twice as much, because the
 * arrays grow by doubling. They never shrink. */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

enum { KEY_SETS_MAX = 64 };

struct key_sets;

/* Makes KEY_SETS_MAX empty sets. A set takes no keys until key_sets_limit. NULL: out of memory. */
struct key_sets *key_sets_new(const uint64_t seed[2]) MUST_CHECK;
void key_sets_free(struct key_sets *s);

/* Limits a set to max keys; if it has more, the least recently added ones leave. */
void key_sets_limit(struct key_sets *s, uint32_t set, uint32_t max);

/* Adds a key to a set; if the set has the key already, makes it the set's newest. In a full set the oldest key leaves.
 * Does nothing if the set is limited to 0 keys. -ENOMEM: nothing changed. */
int key_sets_add(struct key_sets *s, uint32_t set, const struct wire_key *key) MUST_CHECK;

void key_sets_clear(struct key_sets *s, uint32_t set);
uint32_t key_sets_count(const struct key_sets *s, uint32_t set);

/* Returns the sets that have the key; bit i: set i. */
uint64_t key_sets_with(const struct key_sets *s, const struct wire_key *key);
