/* Values that the engine thread and the transfer thread exchange (transfer.h). */
#pragma once

#include <stdatomic.h>
#include <zmq.h>

#include "base/queue.h"
#include "daemon/transfer/counters.h"
#include "daemon/transfer/keys.h"
#include "protocol/transfer/message.h"

struct transfer_config {
	/* true: a prefill worker, which listens; false: a decode worker, which connects */
	bool prefill;
	const char *listen;	  /* prefill: the address to listen at */
	const char *const *peers; /* [n_peers] decode: addresses of prefill workers */
	size_t n_peers;
	const char *registry; /* NULL: none */
	const char *announce; /* prefill: the address that the registry announces; NULL: `listen` */
	const struct transfer_keys *keys; /* NULL: none */
	const char *trace;		  /* trace file, a line for each event; NULL: none */
	uint64_t heartbeat_ns;
	uint64_t largest;	   /* the most bytes of a WINDOW's data */
	struct wire_layout layout; /* its layers are copied */
	uint32_t n_pages, n_slots;
	/* Computes the hash of everything that decides bits. The transfer thread calls it; it may take long. */
	int (*identify)(void *arg, const atomic_bool *cancel, uint8_t model[WIRE_ID],
			struct err *e);
	void (*wake)(void *arg); /* wakes the engine thread; any thread calls it */
	/* prefill: whether the engine thread accepts a NOTE_ASKED now; the transfer thread calls it */
	bool (*admit)(void *arg);
	void *arg; /* argument of all three functions */
	struct transfer_counters *counters;
};

/* A message of the transfer thread to the engine thread. */
enum transfer_note_type {
	NOTE_ASKED,   /* prefill: PREPARE came */
	NOTE_DROPPED, /* prefill: the attempt is no longer wanted */
	NOTE_SENT,    /* prefill: everything was sent */
	NOTE_DATA,    /* decode: a WINDOW, to be written to the device */
	NOTE_CAME,    /* decode: all data have arrived, in the notes before this one */
	NOTE_LOST,    /* decode: the prompt will not come from this peer */
};

enum { TRANSFER_PEERS = 2048 };

struct transfer_note {
	struct queue_node node;
	enum transfer_note_type type;
	uint64_t attempt;
	uint32_t peer;		     /* ASKED: link of the decode worker, below TRANSFER_PEERS */
	struct wire_prepare prepare; /* ASKED: points into head */
	struct wire_window window;   /* DATA: points into head */
	const void *data;	     /* DATA: the bytes of window's pieces, wire_window_bytes */
	struct draw_result *draws;   /* [n_draws] CAME; owned */
	uint32_t n_draws;
	/* LOST: the peers that were tried for this prompt, this one included, as bits; pass them to the next
	 * transfer_ask. The same bits as in transfer_ask mean that no peer was left to try. */
	uint64_t tried;
	zmq_msg_t head, body; /* ASKED, DATA; transfer_note_free closes them */
};

void transfer_note_free(struct transfer_note *n); /* any thread; NULL is nothing */

/* For a decode worker: a prompt to hand over. */
struct transfer_ask {
	uint64_t attempt; /* chosen by the engine thread, not in use */
	struct wire_prepare prepare;
	const struct wire_key *keys; /* [n_keys] the keys of the prompt's whole pages */
	uint32_t n_keys;
	uint64_t tried; /* peers not to ask, from the last NOTE_LOST for this prompt; 0 at first */
};

/* For a prefill worker: a WINDOW message and its data. */
struct transfer_window {
	struct queue_node node;
	uint64_t attempt;
	/* window.pieces points to `pieces`; the thread sets the sequence */
	struct wire_window window;
	void *data;
	uint64_t bytes;
	/* called once, on any thread: this structure and `data` may be used again */
	void (*done)(struct transfer_window *w);
	void *user;
	/* times when the device had read it, and when ZeroMQ had sent it; for the trace */
	uint64_t read_ns, sent_ns;
	void *owner; /* used by the transfer thread alone */
	struct wire_piece pieces[];
};
