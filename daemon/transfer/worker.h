/* State of the transfer thread in either role: its own HELLO, the port, the notes to the engine thread, and the
 * attempts. While the transfer thread runs, only that thread calls these functions, unless a function's comment says
 * otherwise.
 *
 * Layers of daemon/transfer, each file using only files below it or to its right:
 *
 *     transfer.c                           the thread: takes from the engine's queues, hands out messages
 *     directory.c                          the registry: announces a prefill worker, finds prefill workers
 *     prefill_peers.c   decode_peers.c     the connected peers: of a decode worker; of a prefill worker
 *     receiving.c       sending.c          prompts handed over: on the decode worker; on the prefill worker
 *     worker.c, trace.c                    what both roles use
 *     port.c                               connections
 *     outgoing.c        authenticator.c    one outgoing connection; which incoming ones are accepted
 *     socket.c          keys.c endpoint.c  ZeroMQ sockets; key files; addresses */
#pragma once

#include "base/buf.h"
#include "base/list.h"
#include "daemon/threads.h"
#include "daemon/transfer/port.h"
#include "daemon/transfer/trace.h"
#include "daemon/transfer/types.h"
#include "protocol/transfer/delivery.h"
#include "protocol/transfer/peers.h"

/* The longest time that a prefill worker waits for its peers when it shuts down. A connection that is closed while its
 * peer still sends is reset, and data on the way are lost (RFC 1122, 4.2.2.13). So the worker tells its peers, and
 * waits for their answers. */
#define WORKER_FAREWELL_NS ((uint64_t)1 * 1000000000)

/* A peer that cannot be reached is logged after WORKER_AWAY_NS. A peer that is connected and sends nothing, or that has
 * said that it shuts down, is logged only after WORKER_SILENT_NS. */
#define WORKER_AWAY_NS	 ((uint64_t)2 * 1000000000)
#define WORKER_SILENT_NS ((uint64_t)30 * 1000000000)

/* One try to have a prompt computed by a peer. Both sides have one. */
struct attempt {
	struct list node;	   /* in worker.attempts */
	uint64_t number;	   /* the attempt's number in notes */
	uint32_t link;		   /* to the peer */
	struct delivery *delivery; /* owned */
	uint64_t tried;		   /* decode: as in struct transfer_note */
	uint32_t n_choices;
	uint32_t n_prompt; /* decode: all tokens of the prompt */
	uint64_t sent_ns;  /* decode: when PREPARE was sent */
	/* decode: tokens that the prefill worker has to compute until this prompt is done. n_own: tokens of this prompt
	 * and of this decode worker's prompts that were sent there before it. n_ahead: these, and tokens of other
	 * decode workers' prompts that came before it. */
	uint64_t n_own, n_ahead;
	struct peers_prompt load; /* decode: of the prefill worker */
	/* prefill: as in struct peers_prompt; 0 after the STATUS of success was sent */
	uint64_t n_asked;
	struct wire_key *keys; /* [n_keys] prefill: of the prompt's whole pages; owned */
	uint32_t n_keys;
	/* prefill: prompt tokens that were cached here; set with the first tokens */
	uint32_t n_cached;
	/* The note that ends the attempt. It is there from the attempt's beginning, so that the attempt can end when
	 * memory is short. Owned. */
	struct transfer_note *end;
};

struct worker {
	struct transfer_config config;
	struct wire_layer layers[WIRE_LAYERS_MAX];
	struct wire_hello hello; /* our own HELLO */
	struct port *port;
	struct trace trace;
	struct list attempts;
	struct buf out;		    /* the frame that is being sent */
	uint64_t now_ns;	    /* the time, updated after each wait and with each message */
	atomic_bool draining, quit; /* set by the engine thread, never cleared */
	int wake_fd;		    /* eventfd: readable when the thread has work */
	struct queue notes;	    /* notes to the engine thread */
	_Atomic uint32_t n_asked;   /* how many NOTE_ASKEDs are in `notes` */
	struct {
		/* time of the first message that could not be sent, since one was sent or the link was connected again;
		 * 0: none */
		uint64_t unreached_ns;
		bool said_version;	      /* it was logged that the peer has another version */
		struct log_limit due_version; /* of that line; worker_forget_link keeps it */
	} outgoing[PORT_OUTGOING];
};

/* Makes the port of a worker. It receives frames of at most `largest` bytes, or of WIRE_FRAME_MAX bytes if that is
 * more. */
int worker_open_port(const struct transfer_keys *keys, uint64_t largest, uint64_t heartbeat_ns,
		     struct port **ret, struct err *e) MUST_CHECK;

/* Fills *w, which is all zeros before. On a prefill worker takes the port of config->listener, also when an error
 * follows. After an error, too, worker_close and worker_free are to be called. */
int worker_open(struct worker *w, const struct transfer_config *config, struct err *e) MUST_CHECK;

/* worker_close: closes the port; afterwards no thread of ZeroMQ calls return_parcel (sending.c). All attempts must have
 * ended. worker_free: frees the rest, after worker_close. */
void worker_close(struct worker *w);
void worker_free(struct worker *w);

/* Wakes the transfer thread, if it waits. Any thread. */
void worker_wake(struct worker *w);

/* ---- messages ---- */

/* Encodes and sends a message; body as in port_send. Returns 0, -EHOSTUNREACH or -EAGAIN as port_send does, or an error
 * of wire_encode, which is logged. */
int worker_say(struct worker *w, uint32_t link, const struct wire_message *m, zmq_msg_t *body)
	ON(role_transfer) MUST_CHECK;

/* Sends REFUSE, if it can be sent. */
void worker_refuse(struct worker *w, uint32_t link, int code, const char *text) ON(role_transfer);

/* Sends REFUSE with ESHUTDOWN: because this worker shuts down, or as the answer to a peer that does. */
void worker_farewell(struct worker *w, uint32_t link) ON(role_transfer);

/* Notes whether a message on an outgoing link could be sent (`reached`). Connects the link again when none could be
 * sent for 3 s. */
void worker_reached(struct worker *w, uint32_t link, bool reached) ON(role_transfer);

/* Logs that a message of another version came on an outgoing link: once, until worker_forget_link. */
void worker_other_version(struct worker *w, uint32_t link, const struct err *why) ON(role_transfer);

/* Forgets what worker_reached and worker_other_version have noted of an outgoing link. To be called when the link gets
 * a peer, and when that peer becomes Registered (peers.h). */
void worker_forget_link(struct worker *w, uint32_t link);

/* Warns if the key file has lines with `allow`, but none with the address that an option names. The peer at that
 * address is then expected to have our own key. */
void worker_key_assumed(const struct worker *w, const char *option, const char *endpoint);

/* ---- attempts ---- */

/* Makes an attempt, which is in worker.attempts at once. Takes the delivery. NULL: out of memory; the delivery is freed
 * then. */
struct attempt *attempt_new(struct worker *w, uint64_t number, uint32_t link, struct delivery *d)
	ON(role_transfer);
void attempt_free(struct attempt *a);

/* Sends the attempt's note `end`, with this type, to the engine thread, and frees the attempt. */
void attempt_end(struct worker *w, struct attempt *a, enum transfer_note_type type)
	ON(role_transfer);

/* Both return an attempt; NULL: there is none. The first finds it by link and delivery id, because deliveries of
 * different links may have the same id. The second finds it by its number. */
struct attempt *attempt_of_delivery(struct worker *w, uint32_t link, uint64_t delivery)
	ON(role_transfer);
struct attempt *attempt_of_number(struct worker *w, uint64_t number) ON(role_transfer);

/* Returns how many attempts a link has. */
uint32_t attempts_count(struct worker *w, uint32_t link) ON(role_transfer);

/* Fails all deliveries of a link; PORT_NONE: of all links. The caller then ends their attempts
 * (attempt_next_failed). */
void attempts_fail(struct worker *w, uint32_t link, int code, const char *why) ON(role_transfer);

/* Fails the deliveries whose deadline has come. Returns the next deadline, UINT64_MAX if there is none. */
uint64_t attempts_tick(struct worker *w) ON(role_transfer);

/* Returns an attempt whose delivery has failed; NULL: there is none. */
struct attempt *attempt_next_failed(struct worker *w) ON(role_transfer);

/* ---- notes ---- */

/* Makes a note. NULL: out of memory. Any thread. */
struct transfer_note *note_new(enum transfer_note_type type, uint64_t attempt);
void note_send(struct worker *w, struct transfer_note *n); /* takes n */

/* Takes the next note, which the caller frees; NULL: there is none. Called on the engine thread. */
struct transfer_note *note_next(struct worker *w);
