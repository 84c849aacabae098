/*
 * Up to 64 sets of content keys, each of bounded size, the least recently added leaves first: what peers are thought to
 * have cached. Made for one question: which sets have this key? So there is one table for all.
 *
 *     entry   a key, a bit for each set that has it, a list of its nodes
 *     node    a key in one set: its place in the order of that set
 *
 * Keys come from other machines; where they lie in the table depends on a secret seed, so that nobody can aim.
 * Memory: 20 bytes for each key of each set, 36 for each key.
 */
#ifndef PROTOCOL_TRANSFER_KEY_SETS_H
#define PROTOCOL_TRANSFER_KEY_SETS_H

#include "protocol/transfer/wire.h"

enum { KEY_SETS_MAX = 64 };

struct key_sets;

/* Sets that have room for nothing. NULL: out of memory. */
struct key_sets *key_sets_new(const uint64_t seed[2]) MUST_CHECK;
void key_sets_free(struct key_sets *s);

/* A set may have so many keys; what is too much leaves. */
void key_sets_limit(struct key_sets *s, uint32_t set, uint32_t max);

/* The key is the newest of its set. -ENOMEM: nothing changed. */
int key_sets_add(struct key_sets *s, uint32_t set, const struct wire_key *key) MUST_CHECK;

void key_sets_clear(struct key_sets *s, uint32_t set);
uint32_t key_sets_count(const struct key_sets *s, uint32_t set);

/* Bit i: set i has the key. */
uint64_t key_sets_with(const struct key_sets *s, const struct wire_key *key);

#endif
