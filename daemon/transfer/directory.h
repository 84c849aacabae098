/* How a worker uses the registry (`tigon registry`). A prefill worker announces itself three times within the time for
 * which the registry remembers one announcement. A decode worker asks for the list of prefill workers and connects to
 * new ones that have its model. The following is about workers that it knows from the list, not from an option. A
 * decode worker disconnects from a worker that is missing from the last list and has not been Registered (peers.h) for
 * three heartbeats. So no connection that works ends because the registry is down, or was restarted and knows no worker
 * yet. An idle connection ends if there is another one to the same worker. A decode worker connects anew to a worker
 * that does not answer and has another key in the list than before. While the transfer thread runs, no other thread
 * calls these functions. */
#pragma once

#include "daemon/transfer/prefill_peers.h"

/* A peer of prefill_peers, as the registry described it. If `found` is false, no other member is used. */
struct directory_entry {
	/* the peer is known from the registry; false: an option names it, or there is no such peer */
	bool found;
	uint8_t key[WIRE_CURVE_KEY];
	bool listed; /* the last list had the peer */
};

struct directory {
	struct worker *worker; /* borrowed */
	/* the peers of a decode worker, borrowed; NULL: this is a prefill worker */
	struct prefill_peers *peers;
	uint32_t link;	 /* to the registry; PORT_NONE: no registry is used */
	uint64_t due_ns; /* when the next message is due */
	/* since when no message to the registry could be sent; 0: the last one could */
	uint64_t away_ns;
	bool said_away;				   /* the log says that it is away */
	bool left;				   /* directory_leave was called */
	struct wire_peer self;			   /* prefill: this worker, as announced */
	struct directory_entry entries[PEERS_MAX]; /* decode: by peer */
	uint32_t n_unfit;      /* workers of the last list that have our model and cannot be used */
	uint32_t n_other;      /* workers of the last list that have another model */
	struct log_limit said; /* of lines about the registry's lists */
};

/* Begins to connect to the registry of the options, if they name one. peers: the peers of a decode worker; NULL: this
 * is a prefill worker. */
int directory_open(struct directory *d, struct worker *w, struct prefill_peers *peers,
		   struct err *e) MUST_CHECK;

void directory_hear(struct directory *d, const struct wire_message *m) ON(role_transfer);

/* Sends the registry an announcement or a LIST, if it is due. On a decode worker, disconnects from workers that are
 * gone. Returns the time at which directory_tick has to be called again. */
uint64_t directory_tick(struct directory *d) ON(role_transfer);

/* Asks the registry to forget this prefill worker at once. Does nothing on a decode worker, without a registry, or when
 * it was called before. */
void directory_leave(struct directory *d) ON(role_transfer);
