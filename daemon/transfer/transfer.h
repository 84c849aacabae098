/*
 * The transfer thread: what a worker says to its peers, and hears from them (protocol/transfer).
 *
 *     engine thread                     transfer thread                    the other worker
 *     transfer_ask       ──────────────> chooses a peer ────── PREPARE ──────────> NOTE_ASKED
 *     NOTE_DATA          <────────────── checks, counts <───── WINDOW ───────────  transfer_window
 *     NOTE_CAME          <────────────── all of it here <───── STATUS ───────────  transfer_draws
 *     NOTE_LOST          <────────────── peer dead, refused, too late
 *     transfer_drop      ──────────────>                ────── ABORT ────────────> NOTE_DROPPED
 *                                                                                  NOTE_SENT
 *
 * Left a decode worker, right a prefill worker; each has such a thread. A request that is handed over is an *attempt*, with a
 * number of its own on either side. Whatever happens, an attempt that was asked for ends with one NOTE_CAME or NOTE_LOST,
 * unless it was dropped; one that was announced by NOTE_ASKED ends with one NOTE_SENT or NOTE_DROPPED.
 *
 * The engine thread calls; wake says that a note is there. Nothing here waits for a device, nothing there for a network.
 */
#ifndef DAEMON_TRANSFER_TRANSFER_H
#define DAEMON_TRANSFER_TRANSFER_H

#include <zmq.h>

#include "base/queue.h"
#include "daemon/metrics.h"
#include "daemon/transfer/keys.h"
#include "engine/cache_identity.h"
#include "protocol/transfer/wire.h"

struct transfer;

struct transfer_config {
	bool prefill;		  /* listens; else it calls */
	const char *listen;	  /* its address */
	const char *const *peers; /* [n_peers] addresses that are called */
	size_t n_peers;
	const char *registry; /* NULL: none */
	const char *announce; /* prefill: what the registry is told; NULL: where it listens */
	const struct transfer_keys *keys; /* NULL: none */
	const char *trace;		  /* a file of what happened when; NULL: none */
	uint64_t heartbeat_ns;
	uint64_t largest;	   /* bytes of a window's data, at most */
	struct wire_layout layout; /* with its layers, which are copied */
	uint32_t n_pages, n_slots;
	/* What decides bits (engine/cache_identity.h); computed by the thread, which takes its time. */
	int (*identify)(void *arg, const atomic_bool *cancel, struct cache_identity *ret,
			struct err *e);
	void (*wake)(void *arg);  /* any thread */
	bool (*admit)(void *arg); /* prefill, its thread: whether this NOTE_ASKED may still come */
	void *arg;		  /* of all three */
	struct metrics *metrics;  /* peers, and prompts_* */
};

/* Everything but the layers is borrowed for as long as it runs. */
int transfer_start(const struct transfer_config *config, struct transfer **ret,
		   struct err *e) MUST_CHECK;

/* Tells the peers, ends the thread and gives all memory back; after it no `done` of a window is called any more. */
void transfer_stop(struct transfer *t);

/* No new attempts, which the peers are told at once: those that run go on. */
void transfer_drain(struct transfer *t);

/* Nothing that was cached here is cached any more: who may think that it is, is told with its next PONG. No attempt is under
 * way. */
void transfer_forget(struct transfer *t);

/* ---- notes ---- */

enum transfer_note_type {
	NOTE_ASKED,   /* prefill: PREPARE came; prepare points into the note */
	NOTE_DROPPED, /* prefill: nobody waits for it any more */
	NOTE_SENT,    /* prefill: all of it is out */
	NOTE_DATA,    /* decode: a window, to be written */
	NOTE_CAME,    /* decode: all of it is here, the data in notes before this one */
	NOTE_LOST,    /* decode: it will not come from this peer */
};

enum { TRANSFER_PEERS = 2048 };

struct transfer_note {
	struct queue_node node;
	enum transfer_note_type type;
	uint64_t attempt;
	uint32_t peer;		     /* ASKED: who asks, below TRANSFER_PEERS */
	struct wire_prepare prepare; /* ASKED */
	struct wire_window window;   /* DATA: borrowed from head */
	const void *data;	     /* DATA: wire_window_bytes, one piece behind the other */
	struct draw_result *draws;   /* [n_draws] CAME; owned */
	uint32_t n_draws;
	uint64_t
		tried; /* LOST: bit i: peer i was tried, this one among them; no bit is new: there is no peer */
	zmq_msg_t head, body; /* ASKED, DATA; closed by transfer_note_free */
};

/* The next note, taken over; NULL: there is none now. */
struct transfer_note *transfer_next(struct transfer *t);
void transfer_note_free(struct transfer_note *n); /* any thread */

/* ---- decode ---- */

struct transfer_ask {
	uint64_t attempt; /* any number that is not in use */
	struct wire_prepare prepare;
	const struct wire_key *keys; /* [n_keys] of the prompt's whole pages */
	uint32_t n_keys;
	uint64_t tried; /* as the last NOTE_LOST said; 0 */
};

/* Everything is copied. -ENOMEM; -EINVAL: no peer would understand it. */
int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e) MUST_CHECK;

/* Nobody waits for it any more: no note of it is made from now on; such as are there already are to be ignored. */
void transfer_drop(struct transfer *t, uint64_t attempt);

/* ---- prefill ---- */

struct transfer_window {
	struct queue_node node;
	uint64_t attempt;
	struct wire_window window; /* pieces point to those behind; the sequence is set later */
	void *data;
	uint64_t bytes;
	void (*done)(
		struct transfer_window *w); /* any thread, once: the memory of all this is free */
	void *user;
	uint64_t read_ns, sent_ns; /* when the device was done with it, and ZeroMQ; for the trace */
	struct transfer *transfer; /* the thread's */
	struct wire_piece pieces[];
};

/* Takes it over until done is called. */
void transfer_window(struct transfer *t, struct transfer_window *w);

/* The first tokens, when all windows were given. -ENOMEM. */
int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached) MUST_CHECK;

/* It will not be computed. */
void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why);

#endif
