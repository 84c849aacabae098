/*
 * What a prefill worker has newly cached, told to each decode worker once, a part with each PONG: a ring of content keys that
 * all who listen read, each at a place of its own.
 *
 *     . . k5 k6 k7 k8 .        from   what was before it is not cached any more
 *       |     |       |        n      where the next one comes
 *       from  told    n        told   what its listener hears next; 0 of one that has heard nothing
 *
 * Who is behind `from`, or so far behind that the ring was overwritten, misses what is not there now. Pure. One thread.
 */
#ifndef PROTOCOL_TRANSFER_GOSSIP_H
#define PROTOCOL_TRANSFER_GOSSIP_H

#include "protocol/transfer/wire.h"

enum {
	GOSSIP_KEYS = 1 << 14, /* that are remembered */
	GOSSIP_TOLD = 256,     /* with one PONG, at most */
};

_Static_assert((int)GOSSIP_TOLD <= (int)WIRE_KEYS_MAX, "a PONG has room for them");

/* Zeros: nothing is cached. */
struct gossip {
	uint64_t n, from;
	struct wire_key keys[GOSSIP_KEYS];
};

/* A prompt was cached: its pages, from the first. */
void gossip_add(struct gossip *g, const struct wire_key *keys, uint32_t n);

/* Nothing is cached any more. */
void gossip_clear(struct gossip *g);

/* What somebody has not heard yet, into a PONG; its keys point to `keys`. */
void gossip_tell(const struct gossip *g, uint64_t *told, struct wire_key keys[GOSSIP_TOLD],
		 struct wire_pong *pong);

#endif
