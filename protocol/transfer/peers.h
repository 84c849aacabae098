/*
 * The workers that this one talks to: are they there, what is their load, what have they cached; and which one a prompt
 * goes to.
 *
 *     Connecting ── HELLO ──> Registered ── 2 PINGs without an answer ──> Dead ── HELLO ──> Registered
 *                  REFUSE ──> Refused ── HELLO (after a restart with another model) ──> Registered
 *
 * peers_tick says what is to be said: HELLO to those that are not registered, PING to those that are. A PING has missed when
 * the next one is due and nothing came since. Counting PINGs, and not time, a worker that was stopped for a while itself
 * reads what waits for it before it calls anybody dead.
 *
 * What a peer has cached is a guess: what was sent there, and what its PONGs tell; as many keys as it has pages,
 * the least recently told leave first. The beginning of a prompt counts as told after what follows it, so that it
 * outlives it. A peer that comes back as another process has nothing.
 *
 * Load is prompt tokens that are still to be computed: what it said last, and what was sent there since. A PONG comes
 * behind all that was sent before its PING, and so knows of it.
 *
 * Pure: no sockets, times are arguments. One thread. Peers are numbers below PEERS_MAX, which come again when one is removed.
 */
#ifndef PROTOCOL_TRANSFER_PEERS_H
#define PROTOCOL_TRANSFER_PEERS_H

#include "protocol/transfer/wire.h"

enum {
	PEERS_MAX = 64,
	PEERS_MISSED = 2,
	PEERS_KEYS_MAX = 1 << 17, /* of one peer, however many pages it says to have */
};

#define PEERS_CALL_NS \
	((uint64_t)1000000000) /* at most: between two HELLOs to one that does not answer */
#define PEERS_REFUSED_NS ((uint64_t)60 * 1000000000) /* one that was refused is asked again */

enum peer_state { PEER_CONNECTING, PEER_REGISTERED, PEER_REFUSED, PEER_DEAD };

enum peers_due {
	PEERS_NOTHING,
	PEERS_SAY_HELLO,
	PEERS_SAY_PING, /* with the sequence of peers_get */
	PEERS_DIED,	/* just now: its rooms fail */
};

struct peer_info {
	const char *endpoint; /* borrowed until the peer is removed */
	const char *refusal;  /* a sentence, "" unless refused; borrowed likewise */
	uint8_t worker[WIRE_ID];
	enum peer_state state;
	bool draining;
	uint64_t sequence; /* of the last PING to it */
	uint64_t load;	   /* tokens */
	uint32_t running, n_keys;
};

struct peers;

/* Nobody. The seed should be random: peers must not know it. NULL: out of memory. */
struct peers *peers_new(const uint64_t seed[2], uint64_t heartbeat_ns) MUST_CHECK;
void peers_free(struct peers *p);

/* One that is to be connected to; the same number again for the same endpoint. -ENOSPC: there are PEERS_MAX;
 * -ENAMETOOLONG, or -EINVAL for an empty one. */
int peers_add(struct peers *p, const char *endpoint, uint64_t now_ns, uint32_t *ret,
	      struct err *e) MUST_CHECK;
void peers_remove(struct peers *p, uint32_t peer);

/* Bit i: there is a peer i. */
uint64_t peers_mask(const struct peers *p);
void peers_get(const struct peers *p, uint32_t peer, struct peer_info *ret);

/* ---- what came from a peer ---- */

/* A HELLO that fits (wire_layout_equal). True: it is another process than the one that was registered, whose rooms fail. */
bool peers_hello(struct peers *p, uint32_t peer, const struct wire_hello *hello,
		 uint64_t now_ns) MUST_CHECK;

/* A HELLO that does not fit, or a REFUSE. */
void peers_refuse(struct peers *p, uint32_t peer, uint64_t now_ns, const char *why);

/* An answer to a PING: its load is taken if it is to the last one. From one that is not registered it is ignored. -ENOMEM:
 * some keys were not kept. */
int peers_pong(struct peers *p, uint32_t peer, const struct wire_pong *pong) MUST_CHECK;

/* Any other message: it lives. */
void peers_alive(struct peers *p, uint32_t peer);

/* Its connection is gone. True: it was registered, its rooms fail. */
bool peers_lost(struct peers *p, uint32_t peer, uint64_t now_ns) MUST_CHECK;

/* ---- time ---- */

/* What is due, one thing a call, until nothing is; to whom. */
enum peers_due peers_tick(struct peers *p, uint64_t now_ns, uint32_t *ret) MUST_CHECK;

/* When peers_tick has to be called again; UINT64_MAX: there is nobody. */
uint64_t peers_deadline(const struct peers *p);

/* ---- prompts ---- */

/* Who gets the prompt with these keys of its pages [n]: of those that are registered, not draining and not in
 * `excluded` (bit i: peer i), the one that would be through with it first: with the fewest tokens of load and of pages
 * that it does not have. Among equals the one with most of its first pages, then the one to which nothing was sent for longest, then
 * the lowest number. So of idle peers the one with most of it cached; but when all prompts begin alike, they do not all go
 * where the first one went. False: there is none. */
bool peers_choose(const struct peers *p, const struct wire_key *keys, uint32_t n, uint64_t excluded,
		  uint32_t *ret, uint32_t *ret_n_cached) MUST_CHECK;

/* A prompt was sent there: it has n_tokens more to compute, and will have its pages. -ENOMEM as above. */
int peers_sent(struct peers *p, uint32_t peer, const struct wire_key *keys, uint32_t n,
	       uint64_t n_tokens) MUST_CHECK;

/* It is through with so many tokens that were sent there, or will not do them. */
void peers_done(struct peers *p, uint32_t peer, uint64_t n_tokens);

#endif
