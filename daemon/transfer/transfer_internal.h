/*
 * The transfer thread's own state, for the files of daemon/transfer only.
 *
 *     transfer.c   the thread, what passes between it and others, attempts
 *     calls.c      a decode worker: peers that are called, attempts that receive
 *     guests.c     a prefill worker: peers that come, attempts that send
 *     directory.c  either: what passes between it and the registry
 */
#ifndef DAEMON_TRANSFER_TRANSFER_INTERNAL_H
#define DAEMON_TRANSFER_TRANSFER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "daemon/threads.h"
#include "daemon/transfer/port.h"
#include "daemon/transfer/transfer.h"
#include "protocol/transfer/delivery.h"
#include "protocol/transfer/gossip.h"
#include "protocol/transfer/peers.h"

/* A request that is handed over, and its delivery. */
struct attempt {
	struct list node; /* in transfer.attempts */
	uint64_t number;  /* the engine thread's name of it */
	uint32_t peer;	  /* of the port */
	struct delivery *delivery;
	uint64_t tried; /* decode: as in struct transfer_ask */
	uint32_t n_choices;
	uint64_t n_tokens;     /* of the prompt that are to be computed, as far as is known */
	struct wire_key *keys; /* [n_keys] prefill: of its whole pages; owned */
	uint32_t n_keys;
	uint32_t n_cached; /* prefill: with the draws */
	/* What tells the engine thread that it is over: made with it, so that this needs no memory then. Owned. */
	struct transfer_note *end;
};

enum task_type { TASK_ASK, TASK_DROP, TASK_DRAWS, TASK_FAIL };

/* What the engine thread wants; owns what follows it. */
struct task {
	struct queue_node node;
	enum task_type type;
	uint64_t attempt;
	struct transfer_ask
		ask;	  /* its arrays are the caller's, gone by now: they are in frame and keys */
	struct buf frame; /* ASK: PREPARE as it will go, but for its delivery */
	struct wire_key *keys;
	struct draw_result *draws;
	uint32_t n_draws, n_cached;
	struct transfer_note *end; /* ASK: of the attempt, until there is one */
	struct err error;
};

/* Somebody who is called: a prefill worker, or the registry. Of what is wrong with it each is said once. */
struct call_info {
	uint64_t unreached_ns; /* since when it has no connection; 0: it has */
	uint64_t
		silent_ns; /* a peer: since when it was spoken to, and nothing came; 0: something did */
	bool said_silent, said_version;
	bool leaves; /* a peer: it has said that it ends */
};

/* A worker that came. */
struct guest_info {
	bool known; /* said HELLO, and fits */
	uint8_t worker[WIRE_ID];
	uint64_t heard_ns;    /* last; of one that is not known: first. 0: nobody */
	uint64_t patience_ns; /* saying nothing for so long it is gone */
	uint64_t told;	      /* of transfer.gossip */
};

/* What the registry said of a peer. */
struct found {
	bool is; /* false: it was not found there */
	uint8_t key[WIRE_CURVE_KEY];
	uint32_t missed; /* lists since the last one that it was in */
};

struct directory {
	uint32_t port;	  /* of the registry; PORT_NONE: there is none */
	uint64_t due_ns;  /* when it is to be spoken to */
	uint64_t away_ns; /* since when it cannot be reached; 0: it can */
	bool said_away, left;
	struct wire_peer self;	       /* prefill: address and key as they are announced */
	struct found found[PEERS_MAX]; /* decode */
	uint32_t n_unfit;	       /* of the last list were not called */
	uint32_t n_other;	       /* of the last list had another model */
};

struct transfer {
	struct transfer_config config;
	struct wire_layer layers[WIRE_LAYERS_MAX];
	pthread_t thread;
	int wake_fd; /* eventfd: something for this thread is there */
	atomic_bool quit, draining;
	atomic_bool flushed;   /* the gossip is to be cleared */
	struct queue tasks;    /* struct task; from the engine thread */
	struct queue windows;  /* struct transfer_window; from the engine thread or the driver's */
	struct queue returned; /* the same, that ZeroMQ is done with; from its threads */
	struct queue notes;    /* to the engine thread */
	_Atomic uint32_t n_asked; /* NOTE_ASKEDs that nobody has taken yet */

	/* the thread's */
	struct port *port;
	struct wire_hello hello; /* ours */
	struct list attempts;
	uint64_t last_delivery, last_number;
	uint64_t now_ns; /* as of this turn */
	FILE *trace;	 /* NULL: none */
	struct log_limit said_trace;
	struct buf out; /* the frame that is sent */

	struct peers *peers;			       /* decode */
	uint32_t ports[PEERS_MAX], called[PORT_CALLS]; /* port of a peer; peer of a port */
	struct call_info calls[PORT_CALLS];	       /* of a port */

	struct guest_info *guests; /* prefill: [PORT_GUESTS] */
	struct log_limit said_refused, said_version;
	bool said_draining; /* prefill: to the guests */
	struct gossip gossip;
	int32_t *page; /* [page_tokens] prefill: work space */

	struct directory directory;
};

/* ---- transfer.c ---- */

/* Encodes and sends; -EHOSTUNREACH or -EAGAIN as port_send, or what the codec says (logged). body as in port_send. */
int transfer_say(struct transfer *t, uint32_t peer, const struct wire_message *m, zmq_msg_t *body)
	ON(role_transfer) MUST_CHECK;

/* What is said first to who is called could be sent, or not: after so long without a connection it is called anew. */
#define CALL_AGAIN_NS ((uint64_t)3 * 1000000000)
void transfer_reached(struct transfer *t, uint32_t port, bool reached) ON(role_transfer);

/* A connection that is closed while somebody sends on it is reset, and takes with it what had not arrived there (RFC 1122,
 * 4.2.2.13): who ends waits so long for those who are told of it to answer. */
#define ANSWERED_NS ((uint64_t)1 * 1000000000)

/* Who is called, and is not there for so long: that is worth a line; when it had said that it goes, or is there and says
 * nothing, only later. */
#define AWAY_NS	  ((uint64_t)2 * 1000000000)
#define SILENT_NS ((uint64_t)30 * 1000000000)

/* That we end, and a guest's answer to that: a REFUSE, ESHUTDOWN. */
void transfer_farewell(struct transfer *t, uint32_t peer) ON(role_transfer);

/* Who is called by an option, and has no `allow` of its own in a list of keys: a line says so. */
void transfer_key_assumed(const struct transfer *t, const char *option, const char *endpoint);

/* New, in the list. NULL: out of memory. The delivery is taken over. */
struct attempt *attempt_new(struct transfer *t, uint64_t number, uint32_t peer,
			    struct delivery *delivery) ON(role_transfer);
void attempt_free(struct attempt *a);

/* NULL: there is none. */
struct attempt *attempt_of_delivery(struct transfer *t, uint32_t peer, uint64_t delivery)
	ON(role_transfer);
struct attempt *attempt_of_number(struct transfer *t, uint64_t number) ON(role_transfer);

/* To the engine thread. NULL: out of memory. */
struct transfer_note *note_new(enum transfer_note_type type, uint64_t attempt);
void note_send(struct transfer *t, struct transfer_note *n);

/* The last note of an attempt. */
void note_end(struct transfer *t, struct attempt *a, enum transfer_note_type type)
	ON(role_transfer);

/* A line of the trace; w: NULL where it is about a whole prompt. */
void transfer_trace(struct transfer *t, uint64_t ns, const char *what, uint64_t delivery,
		    const struct wire_window *w) ON(role_transfer);

/* ---- calls.c and guests.c: of each the same ---- */

int calls_open(struct transfer *t, struct err *e) MUST_CHECK;
void calls_close(struct transfer *t);
void calls_task(struct transfer *t, struct task *k) ON(role_transfer);
/* Something came from there, whatever it is. */
void calls_seen(struct transfer *t, uint32_t port) ON(role_transfer);
void calls_hear(struct transfer *t, uint32_t port, const struct wire_message *m, zmq_msg_t *head,
		zmq_msg_t *body) ON(role_transfer);
/* What is due by now; when to come again. */
uint64_t calls_tick(struct transfer *t) ON(role_transfer);
/* An attempt has failed: tells the engine thread and the peer, and frees it. */
void calls_fail(struct transfer *t, struct attempt *a) ON(role_transfer);
/* We end: whoever is there is told. */
void calls_leave(struct transfer *t) ON(role_transfer);
/* Connections broke: lost[i], that of call i. */
void calls_lost(struct transfer *t, const bool lost[PORT_CALLS]) ON(role_transfer);

/* Begins to connect to one more; key as in port_call. -ENOSPC: PEERS_MAX are there. */
int calls_add(struct transfer *t, const char *endpoint, const char *key, uint32_t *ret_peer,
	      struct err *e) MUST_CHECK;
/* No more of it: what is under way there has failed. */
void calls_remove(struct transfer *t, uint32_t peer, const char *why) ON(role_transfer);
bool calls_busy(const struct transfer *t, uint32_t peer) ON(role_transfer);

int guests_open(struct transfer *t, struct err *e) MUST_CHECK;
void guests_close(struct transfer *t);
void guests_task(struct transfer *t, struct task *k) ON(role_transfer);
void guests_hear(struct transfer *t, uint32_t port, const struct wire_message *m, zmq_msg_t *head,
		 zmq_msg_t *body) ON(role_transfer);
uint64_t guests_tick(struct transfer *t) ON(role_transfer);
void guests_fail(struct transfer *t, struct attempt *a) ON(role_transfer);
/* We are about to end, and do: whoever is there is told. */
void guests_drain(struct transfer *t) ON(role_transfer);
void guests_leave(struct transfer *t) ON(role_transfer);
bool guests_known(const struct transfer *t) ON(role_transfer);
/* A message cannot be read: of another version, or of a delivery that there is not. */
void guests_version(struct transfer *t, uint32_t port, const struct err *why) ON(role_transfer);
void guests_broken(struct transfer *t, uint32_t port, uint64_t delivery, const struct err *why)
	ON(role_transfer);
/* Something came from there, whatever it is. */
void guests_seen(struct transfer *t, uint32_t port) ON(role_transfer);
/* A window is to go; ZeroMQ has sent one. */
void guests_window(struct transfer *t, struct transfer_window *w) ON(role_transfer);
void guests_returned(struct transfer *t, struct transfer_window *w) ON(role_transfer);

/* ---- directory.c ---- */

int directory_open(struct transfer *t, struct err *e) MUST_CHECK;
/* Of a prefill worker, before the thread runs. */
int directory_announce_as(struct transfer *t, const char *endpoint, struct err *e) MUST_CHECK;
void directory_hear(struct transfer *t, const struct wire_message *m) ON(role_transfer);
/* What is due by now; when to come again. */
uint64_t directory_tick(struct transfer *t) ON(role_transfer);
/* It is to be forgotten at once, and announced no more. */
void directory_leave(struct transfer *t) ON(role_transfer);

#endif
