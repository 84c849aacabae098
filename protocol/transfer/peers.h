/* The prefill workers that a decode worker knows ("peers"): which of them answer, their load, the pages that they have
 * cached, and the choice of a peer for a prompt.
 *
 *     Connecting ── HELLO ──> Registered ── 2 PINGs unanswered, or peers_lost ──> Dead ── HELLO ──> Registered
 *     any state ── peers_refuse ──> Refused ── HELLO ──> Registered      Refused ── peers_lost ──> Dead
 *
 * peers_tick tells the caller which messages to send: PING to a Registered peer, HELLO to any other one. A PING is
 * unanswered if no message of the peer has come when the next PING is due. Unanswered PINGs are counted, not elapsed
 * time, because the decode worker itself may have been stopped for a while.
 *
 * The cached pages of a peer are a guess from the prompts sent to it and from its PONGs. A page is known by its content
 * key (prefix_cache/tiers.h). Of each peer at most as many keys are kept as it has pages, and at most PEERS_KEYS_MAX;
 * the least recently added leave first. The first page of a prompt counts as added last, so that the beginning of a
 * prompt is kept longest. A peer that comes back as another process counts as having nothing cached.
 *
 * Load estimates the prompt tokens that a peer still has to compute. It is the sum of our own prompts' tokens and of
 * those of other decode workers' prompts. Of our own prompts the cached pages do not count. The others' tokens follow
 * from a PONG: its queued_tokens, less those of our own prompts that were sent before the PING that it answers, because
 * the PONG counts each of these in full until its last STATUS is sent. A prompt that ends here while the PONG is on its
 * way counts as another worker's until the next PONG. For a choice the others' tokens fall after the PONG at the peer's
 * speed: a heartbeat is long, and a peer that computes 40,000 tokens a second has soon done the work that it told of.
 *
 * Speed is the number of prompt tokens that a peer has computed for this worker, divided by the time that it took. From
 * speed and load follows how long a prompt may take that is sent there (peers_patience). A peer that is Registered may
 * still be *silent*: it answers every PING and no prompt, or it never comes to the end of one. When a delivery was
 * overdue, and nothing of any other delivery came meanwhile, the peer gets no prompt for PEERS_SILENT_NS. Then it gets
 * one prompt at a time, until it answers one. The same happens when a delivery drags (delivery.h), but then only a
 * complete delivery ends it. Each further silence lasts twice as long, up to PEERS_SILENT_MAX_NS. After a silence the
 * peer also gets more time for a prompt than before, because it may only be slow. A HELLO of another process ends the
 * silence and is a new beginning, but only once in PEERS_SILENT_MAX_NS while no prompt is answered. Else a peer that
 * takes a new id with each HELLO would never be silent. A peer that is removed and added again is a new one.
 *
 * Pure: no sockets; times are arguments. One thread. A peer is a number below PEERS_MAX, used again after its
 * removal. */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

enum {
	PEERS_MAX = 64,
	PEERS_MISSED = 2,	  /* unanswered PINGs in a row, after which a peer is Dead */
	PEERS_KEYS_MAX = 1 << 17, /* keys of one peer, however many pages it claims to have */
};

/* The pause between two HELLOs to a peer: PEERS_HELLO_NS, or a heartbeat if that is shorter, while the peer is
 * Connecting or Dead; PEERS_REFUSED_NS while it is Refused. */
#define PEERS_HELLO_NS	 ((uint64_t)1000000000)
#define PEERS_REFUSED_NS ((uint64_t)60 * 1000000000)

/* How long a silent peer gets no prompts: at first, and at most. */
#define PEERS_SILENT_NS	    ((uint64_t)30 * 1000000000)
#define PEERS_SILENT_MAX_NS ((uint64_t)600 * 1000000000)

/* The result of peers_patience is a sum of two times. The first is PEERS_PATIENCE_NS, or PEERS_MISSED heartbeats if
 * that is longer. The second is PEERS_SLOWER times the time that the tokens should take; each silence doubles it,
 * PEERS_DOUBLINGS times at most. While no peer has a measured speed, PEERS_TOKENS_PER_S is assumed, which is slow. */
#define PEERS_PATIENCE_NS ((uint64_t)5 * 1000000000)
enum { PEERS_SLOWER = 4, PEERS_DOUBLINGS = 3, PEERS_TOKENS_PER_S = 100 };

enum peer_state { PEER_CONNECTING, PEER_REGISTERED, PEER_REFUSED, PEER_DEAD };

enum peers_due {
	PEERS_NOTHING,
	PEERS_SAY_HELLO,
	PEERS_SAY_PING, /* with the sequence of peers_get */
	PEERS_DIED,	/* the peer has become Dead: the caller fails the peer's deliveries */
};

struct peer_info {
	const char *endpoint; /* borrowed until the peer is removed */
	const char *refusal;  /* a sentence, "" unless Refused; borrowed likewise */
	uint8_t worker[WIRE_ID];
	enum peer_state state;
	bool draining;
	bool silent;	   /* it gets no prompts now, because it answers none */
	uint64_t sequence; /* of the last PING to it */
	uint64_t load;	   /* tokens */
	uint64_t others;   /* tokens of the load that are of other decode workers' prompts */
	uint32_t running;  /* deliveries under way, as its last PONG says */
	uint32_t n_keys;   /* how many pages it is thought to have cached */
	uint64_t away_ns;  /* if not Registered: since when */
};

/* A prompt that was sent to a peer, from peers_sent to peers_done. */
struct peers_prompt {
	/* tokens that the peer has to compute, if it has cached what it is thought to have */
	uint64_t n_tokens;
	uint64_t n_asked;  /* tokens that the peer counts in queued_tokens (struct wire_pong) */
	uint64_t sequence; /* set by peers_sent: sequence of the last PING before the prompt */
};

struct peers;

/* Makes a table without peers. seed: a random number that the peers do not know. NULL: out of memory. */
struct peers *peers_new(const uint64_t seed[2], uint64_t heartbeat_ns) MUST_CHECK;
void peers_free(struct peers *p);

/* Adds the peer at an endpoint, or finds the peer that is there already. -ENOSPC: there are PEERS_MAX peers;
 * -ENAMETOOLONG; -EINVAL: the endpoint is empty. */
int peers_add(struct peers *p, const char *endpoint, uint64_t now_ns, uint32_t *ret,
	      struct err *e) MUST_CHECK;
void peers_remove(struct peers *p, uint32_t peer);

/* Returns the peers that there are; bit i: peer i. */
uint64_t peers_mask(const struct peers *p);
void peers_get(const struct peers *p, uint32_t peer, struct peer_info *ret);

/* ---- messages from a peer ---- */

/* Handles a HELLO that fits: the peer becomes Registered. True: another process was Registered there until now, so the
 * caller fails the deliveries of that process. */
bool peers_hello(struct peers *p, uint32_t peer, const struct wire_hello *hello,
		 uint64_t now_ns) MUST_CHECK;

/* Handles a HELLO that does not fit, or a REFUSE: the peer becomes Refused. why: a sentence for peer_info.refusal. */
void peers_refuse(struct peers *p, uint32_t peer, uint64_t now_ns, const char *why);

/* Handles a PONG that came at now_ns; does nothing if the peer is not Registered. The queued_tokens count only if the
 * PONG answers the last PING. -ENOMEM: some keys were not kept. */
int peers_pong(struct peers *p, uint32_t peer, const struct wire_pong *pong,
	       uint64_t now_ns) MUST_CHECK;

/* Notes that a message of the peer came, of any type: no PING is unanswered now. */
void peers_alive(struct peers *p, uint32_t peer);

/* Makes a Registered or Refused peer Dead, because its connection broke, it shuts down, or it does not know us any
 * more. True: it was Registered, so the caller fails the peer's deliveries. */
bool peers_lost(struct peers *p, uint32_t peer, uint64_t now_ns) MUST_CHECK;

/* ---- time ---- */

/* Returns one message or event that is due, and in *ret its peer. To be called until it returns PEERS_NOTHING. */
enum peers_due peers_tick(struct peers *p, uint64_t now_ns, uint32_t *ret) MUST_CHECK;

/* Returns the time at which peers_tick has to be called again; UINT64_MAX: there are no peers. */
uint64_t peers_deadline(const struct peers *p);

/* ---- prompts ---- */

/* Chooses a peer for a prompt. keys[n]: the keys of the prompt's whole pages. Candidates are Registered, not draining,
 * not silent and not in `excluded` (bit i: peer i). A peer that was silent and has not answered since is a candidate
 * only while it has no prompt of this worker. The peer with the fewest tokens to compute wins: those left of its load
 * at now_ns, and those of the prompt's whole pages behind its cached ones. Its cached pages end before the prompt's
 * first page that it is not thought to have. Of peers with equally many tokens the one with the most cached pages wins, then the one that got
 * no prompt for longest, then the one with the lowest number. So of idle peers the one with the longest cached prefix
 * wins, yet prompts that all begin alike spread over the peers. *ret_n_cached: how many of the prompt's pages the
 * chosen peer is thought to have. False: there is no candidate. */
bool peers_choose(const struct peers *p, const struct wire_key *keys, uint32_t n, uint64_t excluded,
		  uint64_t now_ns, uint32_t *ret, uint32_t *ret_n_cached) MUST_CHECK;

/* Notes that a prompt was sent to the peer, which will have the prompt's whole pages cached. keys[n]: the keys of these
 * pages. -ENOMEM: some keys were not kept. */
int peers_sent(struct peers *p, uint32_t peer, const struct wire_key *keys, uint32_t n,
	       struct peers_prompt *prompt) MUST_CHECK;

/* Takes a prompt's tokens off the peer's load, because it has computed them or will not compute them. To be called once
 * for each prompt of peers_sent, when its delivery has ended. */
void peers_done(struct peers *p, uint32_t peer, const struct peers_prompt *prompt);

/* ---- speed and silence ---- */

/* Notes that a message of a delivery came from the peer which brought something new, or by which the delivery failed. It
 * ends a silence, unless that began because a delivery dragged. A repeated message must not be noted, because a peer can
 * send it without end. True: there was such a silence since the last message that was noted. */
bool peers_answered(struct peers *p, uint32_t peer, uint64_t now_ns);

/* Notes that the peer has computed n_tokens of a prompt that was sent to it at sent_ns, and whose delivery is complete
 * now. True: there was a silence until now, which began because a delivery dragged. */
bool peers_measure(struct peers *p, uint32_t peer, uint64_t n_tokens, uint64_t sent_ns,
		   uint64_t now_ns);

/* Returns how long the peer may take to send the first data of a prompt. n_tokens: all tokens that it has to compute
 * until then, for this prompt and for the prompts before it. */
uint64_t peers_patience(const struct peers *p, uint32_t peer, uint64_t n_tokens);

/* Notes that a delivery of the peer, which has waited since since_ns, is overdue. True: nothing of another delivery came
 * since then either, so the peer is silent from now on, and the caller fails all deliveries of the peer. */
bool peers_overdue(struct peers *p, uint32_t peer, uint64_t since_ns, uint64_t now_ns) MUST_CHECK;

/* Notes that a delivery of the peer drags (delivery.h). True: the peer is silent from now on; false: it was already. The
 * caller fails this delivery alone, because the others may come to their ends. */
bool peers_drags(struct peers *p, uint32_t peer, uint64_t now_ns);
