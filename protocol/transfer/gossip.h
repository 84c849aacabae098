/*
 * The pages that a prefill worker has newly cached, as content keys: a key is a hash of the cache_salt and of all
 * tokens up to the end of a page (prefix_cache/tiers.h). Each PONG tells a decode worker the next keys, at most
 * GOSSIP_TOLD. The keys are a ring, in which the caller keeps a place for each decode worker, `told`.
 *
 *     . . k5 k6 k7 k8 .        from   keys before this place are not cached any more
 *         |  |        |        n      place where the next key will be added
 *      from  told     n        told   place of the key that a decode worker is told next; 0 at first
 *
 * Keys that are cleared or overwritten before a decode worker is told of them are never told to that worker. Pure. One
 * thread.
 */
#pragma once

#include "protocol/transfer/message.h"

enum {
	GOSSIP_KEYS = 1 << 14, /* keys of the ring */
	GOSSIP_TOLD = 256,     /* most keys of one PONG */
};

_Static_assert((int)GOSSIP_TOLD <= (int)WIRE_KEYS_MAX, "a PONG has room for them");

/* All zeros: nothing is cached. */
struct gossip {
	uint64_t n, from;
	struct wire_key keys[GOSSIP_KEYS];
};

/* Adds the keys of a prompt's whole pages, all of which are cached now; keys[0] is the key of the first page. */
void gossip_add(struct gossip *g, const struct wire_key *keys, uint32_t n);

/* Takes all keys out, because the cache was emptied. */
void gossip_clear(struct gossip *g);

/* Fills keys, n_keys and forgotten of a PONG to one decode worker. The keys are copied to the array `keys`. Moves
 * *told, the place of that worker, behind these keys. */
void gossip_tell(const struct gossip *g, uint64_t *told, struct wire_key keys[GOSSIP_TOLD],
		 struct wire_pong *pong);
