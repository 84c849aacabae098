/* Values that the engine thread and the transfer thread exchange (transfer.h). */
#pragma once

#include <stdatomic.h>
#include <zmq.h>

#include "base/queue.h"
#include "daemon/transfer/counters.h"
#include "daemon/transfer/endpoint.h"
#include "daemon/transfer/keys.h"
#include "protocol/transfer/message.h"

struct port;

/* A prefill worker's port, which listens from transfer_listen on. */
struct transfer_listener {
	/* owned; NULL: no port was made, or transfer_start has taken it */
	struct port *port;
	char bound[TRANSFER_ENDPOINT_MAX]; /* the address, whose port the system may have chosen */
};

struct transfer_config {
	/* true: a prefill worker, which listens; false: a decode worker, which connects */
	bool prefill;
	struct transfer_listener *listener; /* prefill: transfer_start takes its port */
	const char *const *peers;	    /* [n_peers] decode: addresses of prefill workers */
	size_t n_peers;
	const char *registry; /* address of the registry (`tigon registry`); NULL: none */
	/* prefill: the address to announce to the registry; NULL: listener->bound */
	const char *announce;
	const struct transfer_keys *keys; /* NULL: none */
	const char *trace;		  /* trace file, a line for each event; NULL: none */
	uint64_t heartbeat_ns;
	uint64_t largest;	   /* the most bytes of a WINDOW's raw frame */
	struct wire_layout layout; /* its layers are copied */
	uint32_t n_pages, n_slots;
	/* prefill: the most prompts of one connection that are under way here at the same time while there are several
	 * decode workers; further ones are refused with EAGAIN */
	uint32_t n_prompts_of_peer;
	/* Computes the hash of everything that decides bits. The transfer thread calls it. It may take long, and ends
	 * early with an error when *cancel becomes true. */
	int (*identify)(void *arg, const atomic_bool *cancel, uint8_t model[WIRE_ID],
			struct err *e);
	void (*wake)(void *arg); /* wakes the engine thread; the transfer thread calls it */
	/* prefill: admits a prompt, which the daemon then counts as a call until the attempt's last note was taken.
	 * False: the worker takes no more prompts. The transfer thread calls it. */
	bool (*admit)(void *arg);
	void *arg; /* argument of all three functions */
	struct transfer_counters *counters;
};

/* Notes: messages of the transfer thread to the engine thread. */
enum transfer_note_type {
	NOTE_ASKED,   /* prefill: PREPARE came */
	NOTE_DROPPED, /* prefill: the attempt has failed, or the decode worker gave it up */
	NOTE_SENT,    /* prefill: everything was sent */
	NOTE_DATA,    /* decode: a WINDOW came; its data are to be written to the device */
	NOTE_CAME,    /* decode: the first tokens came, and all data, which are in earlier notes */
	NOTE_LOST,    /* decode: the attempt has failed, or there was no peer to ask */
};

/* Every link (port.h) is below this number. */
enum { TRANSFER_PEERS = 2048 };

struct transfer_note {
	struct queue_node node;
	enum transfer_note_type type;
	uint64_t attempt;
	uint32_t link;		     /* ASKED: the link to the decode worker */
	struct wire_prepare prepare; /* ASKED: its arrays lie in head */
	struct wire_window window;   /* DATA: its runs lie in head */
	/* DATA: [wire_window_bytes] the bytes of the runs of `window`; points into body */
	const void *data;
	struct draw_result *draws; /* [n_draws] CAME; owned */
	uint32_t n_draws;
	/* LOST: the peers that were tried for this prompt, also by this attempt (bit i: peer i). The next transfer_ask
	 * for the prompt needs them. If transfer_ask was given the same bits, no peer was left to try. */
	uint64_t tried;
	zmq_msg_t head, body; /* ASKED, DATA; transfer_note_free closes them */
};

/* Frees a note; NULL is allowed. Any thread. */
void transfer_note_free(struct transfer_note *n);

/* A prompt that a decode worker wants to have computed by a peer. */
struct transfer_ask {
	uint64_t attempt; /* a number that the engine thread chooses; no other attempt has it now */
	struct wire_prepare prepare;
	const struct wire_key *keys; /* [n_keys] content keys of the prompt's whole pages */
	uint32_t n_keys;
	uint64_t tried; /* peers not to ask, from the last NOTE_LOST for this prompt; 0 at first */
};

/* A parcel: data that a prefill worker sends as one WINDOW. */
struct transfer_parcel {
	struct queue_node node;
	uint64_t attempt;
	struct wire_window window; /* the transfer thread sets window.sequence */
	void *data;		   /* [bytes] the raw frame */
	uint64_t bytes;
	/* Called once, on any thread: from now on this structure, window.runs and `data` belong to the caller of
	 * transfer_parcel again. */
	void (*done)(struct transfer_parcel *p);
	/* for the trace: the times when the data had been read from the device, and when ZeroMQ had sent them */
	uint64_t read_ns, sent_ns;
	void *owner; /* for sending.c alone: its struct sending */
};
