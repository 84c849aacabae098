/* Values that the engine thread and the transfer thread exchange (transfer.h). */
#pragma once

#include <stdatomic.h>
#include <zmq.h>

#include "base/queue.h"
#include "daemon/transfer/counters.h"
#include "daemon/transfer/keys.h"
#include "protocol/transfer/message.h"

struct transfer_config {
	bool prefill;	    /* a prefill worker: it listens; else a decode worker: it connects */
	const char *listen; /* prefill: the address */
	const char *const *peers; /* [n_peers] decode: addresses of prefill workers */
	size_t n_peers;
	const char *registry; /* NULL: none */
	const char *announce; /* prefill: the address for the registry; NULL: `listen` */
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
		void *arg); /* prefill: whether a NOTE_ASKED is welcome; the transfer thread asks */
	void *arg;	    /* of all three */
	struct transfer_counters *counters;
};

/* To the engine thread. */
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

void transfer_note_free(struct transfer_note *n); /* any thread; NULL is nothing */

/* A decode worker: a prompt that another worker is asked for. */
struct transfer_ask {
	uint64_t attempt; /* a number that is not in use */
	struct wire_prepare prepare;
	const struct wire_key *keys; /* [n_keys] of the prompt's whole pages */
	uint32_t n_keys;
	uint64_t tried; /* of the last NOTE_LOST for this prompt; 0 at first */
};

/* A prefill worker: data of a prompt. */
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
