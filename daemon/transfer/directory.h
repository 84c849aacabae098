/*
 * A worker's use of the registry (tigon registry). A prefill worker announces itself so often that the registry can miss
 * two announcements before it forgets the worker. A decode worker asks for the list of prefill workers and connects to
 * new ones. It disconnects from one only when that is missing from the list and does not answer either: then a registry
 * that is down, or that was restarted and knows nobody yet, ends no connection. Only the transfer thread.
 */
#pragma once

#include "daemon/transfer/prefill_peers.h"

/* A worker of prefill_peers as the registry described it. */
struct directory_entry {
	bool found; /* the registry named it, and not an option */
	uint8_t key[WIRE_CURVE_KEY];
	uint32_t missed; /* lists in a row that did not have it */
};

struct directory {
	struct worker *worker;	     /* borrowed */
	struct prefill_peers *peers; /* of a decode worker, borrowed; NULL: a prefill worker */
	uint32_t link;		     /* to the registry; PORT_NONE: there is none */
	uint64_t due_ns;	     /* of the next message */
	uint64_t away_ns;	     /* since when it cannot be reached; 0: it can */
	bool said_away, left;
	struct wire_peer self;			   /* prefill: the announcement */
	struct directory_entry entries[PEERS_MAX]; /* decode: by peer */
	uint32_t n_unfit, n_other; /* workers of the last list: not usable; of another model */
};

/* Begins to connect to the registry of the options, if there is one. self: prefill: the address that is announced when no
 * option names one. */
int directory_open(struct directory *d, struct worker *w, struct prefill_peers *peers,
		   const char *self, struct err *e) MUST_CHECK;

void directory_hear(struct directory *d, const struct wire_message *m) ON(role_transfer);

/* Says what is due. Returns when it has to be called again. */
uint64_t directory_tick(struct directory *d) ON(role_transfer);

/* prefill: asks the registry to forget this worker at once. */
void directory_leave(struct directory *d) ON(role_transfer);
