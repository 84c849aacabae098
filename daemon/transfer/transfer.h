/*
 * The transfer thread of a prefill or decode worker: it exchanges messages with peers (protocol/transfer).
 *
 *     engine thread                     transfer thread                    the other worker
 *     transfer_ask       ──────────────> chooses a peer ────── PREPARE ──────────> NOTE_ASKED
 *     NOTE_DATA          <────────────── checks, counts <───── WINDOW ───────────  transfer_window
 *     NOTE_CAME          <────────────── all of it here <───── STATUS ───────────  transfer_draws
 *     NOTE_LOST          <────────────── peer dead, refused, too late
 *     transfer_drop      ──────────────>                ────── ABORT ────────────> NOTE_DROPPED
 *                                                                                  NOTE_SENT
 *
 * On the left is a decode worker, on the right a prefill worker; both have such a thread. An *attempt* is one try to have a
 * prompt computed by one peer; its number is chosen by the decode worker's engine thread, and on the other side by the
 * prefill worker's transfer thread. An attempt that transfer_ask began ends with one NOTE_CAME or NOTE_LOST, unless it is
 * dropped. An attempt that a NOTE_ASKED announced ends with one NOTE_SENT or NOTE_DROPPED.
 *
 * The engine thread calls these functions; config.wake tells it that there is a note. The transfer thread never waits for
 * a device, and the engine thread never for a network.
 */
#ifndef DAEMON_TRANSFER_TRANSFER_H
#define DAEMON_TRANSFER_TRANSFER_H

#include <stdatomic.h>
#include <zmq.h>

#include "base/queue.h"
#include "daemon/transfer/counters.h"
#include "daemon/transfer/keys.h"
#include "protocol/transfer/wire.h"

struct transfer;

struct transfer_config {
	bool prefill;	    /* a prefill worker: it listens; else a decode worker: it connects */
	const char *listen; /* prefill: the address */
	const char *const *peers; /* [n_peers] decode: addresses of prefill workers */
	size_t n_peers;
	const char *registry; /* NULL: none */
	const char
		*announce; /* prefill: the address for the registry; NULL: the one it listens at */
	const struct transfer_keys *keys; /* NULL: none */
	const char *trace;		  /* a file that gets a line for each event; NULL: none */
	uint64_t heartbeat_ns;
	uint64_t largest;	   /* the most bytes that a window's data have */
	struct wire_layout layout; /* its layers are copied */
	uint32_t n_pages, n_slots;
	/* The hash of everything that decides bits. The transfer thread calls it, and it may take long. */
	int (*identify)(void *arg, const atomic_bool *cancel, uint8_t model[WIRE_ID],
			struct err *e);
	void (*wake)(void *arg); /* any thread calls it */
	bool (*admit)(
		void *arg); /* prefill; the transfer thread asks whether a NOTE_ASKED is welcome */
	void *arg;	    /* of all three */
	struct transfer_counters *counters;
};

/* Starts the thread. All of config but layout.layers is borrowed until transfer_stop. */
int transfer_start(const struct transfer_config *config, struct transfer **ret,
		   struct err *e) MUST_CHECK;

/* Tells the peers, ends the thread and frees everything. The last `done` of a window is called before it returns. NULL is
 * nothing. */
void transfer_stop(struct transfer *t);

/* No new attempts, and the peers are told so at once. Attempts that are under way go on. */
void transfer_drain(struct transfer *t);

/* The cache was flushed: peers learn in their next PONG that nothing is cached here. No attempt may be under way. */
void transfer_forget(struct transfer *t);

/* ---- notes ---- */

enum transfer_note_type {
	NOTE_ASKED,   /* prefill: PREPARE came */
	NOTE_DROPPED, /* prefill: the attempt is not wanted any more */
	NOTE_SENT,    /* prefill: everything was sent */
	NOTE_DATA,    /* decode: a window, to be written to the device */
	NOTE_CAME,    /* decode: everything is here; notes before this one have the data */
	NOTE_LOST,    /* decode: it will not come from this peer */
};

enum { TRANSFER_PEERS = 2048 };

struct transfer_note {
	struct queue_node node;
	enum transfer_note_type type;
	uint64_t attempt;
	uint32_t peer; /* ASKED: a number below TRANSFER_PEERS for the decode worker */
	struct wire_prepare prepare; /* ASKED: points into head */
	struct wire_window window;   /* DATA: points into head */
	const void *data;	     /* DATA: the bytes of window's pieces, wire_window_bytes */
	struct draw_result *draws;   /* [n_draws] CAME; owned */
	uint32_t n_draws;
	/* LOST: bit i is set when peer i was tried for this prompt, the last one included. If transfer_ask had given the same
	 * bits, there was no peer left. */
	uint64_t tried;
	zmq_msg_t head, body; /* ASKED, DATA; transfer_note_free closes them */
};

/* The next note, the caller's to free; NULL: there is none now. */
struct transfer_note *transfer_next(struct transfer *t);
void transfer_note_free(struct transfer_note *n); /* any thread; NULL is nothing */

/* ---- decode ---- */

struct transfer_ask {
	uint64_t attempt; /* a number that is not in use */
	struct wire_prepare prepare;
	const struct wire_key *keys; /* [n_keys] of the prompt's whole pages */
	uint32_t n_keys;
	uint64_t tried; /* of the last NOTE_LOST for this prompt; 0 at first */
};

/* Everything is copied. -ENOMEM; -EINVAL: no peer would accept the PREPARE. */
int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e) MUST_CHECK;

/* The attempt is not wanted any more: no new note is made for it. Notes that exist already are to be ignored. */
void transfer_drop(struct transfer *t, uint64_t attempt);

/* ---- prefill ---- */

struct transfer_window {
	struct queue_node node;
	uint64_t attempt;
	struct wire_window
		window; /* window.pieces points to `pieces`; the thread sets the sequence */
	void *data;
	uint64_t bytes;
	void (*done)(struct transfer_window
			     *w); /* any thread, once: this structure and `data` are free */
	void *user;
	uint64_t read_ns,
		sent_ns; /* when the device had read it, and when ZeroMQ had sent it; for the trace */
	void *owner;	 /* the transfer thread's */
	struct wire_piece pieces[];
};

/* Sends a window, which stays borrowed until `done` is called. */
void transfer_window(struct transfer *t, struct transfer_window *w);

/* The first tokens, after all windows. -ENOMEM. */
int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached) MUST_CHECK;

/* The prompt will not be computed. */
void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why);

#endif
