/* Shares out the time that handshakes of TLS take on the http thread of one port, which serves all connections there. A
 * handshake costs it an operation with the key: some 1 ms with ECDSA on the curve P-256, and 14 ms with RSA of 4096
 * bits.
 *
 * Handshakes have a *credit* of that thread's time. It grows by half of the time that passes, up to 20 ms, and each
 * handshake takes from it what it has cost. While the credit is used up, handshakes wait for their *turn*
 * (watch_admit). So all of them together take at most half of the thread's time, and connections that are under way
 * keep the rest. Of the handshakes that wait, the one is next whose client has had the least time lately: a client that
 * makes a thousand a second waits for itself, and another one waits until the credit is there.
 *
 * A handshake takes the thread once for each message of the client that it needs, and has a turn for each. Pure: the
 * time is a parameter. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/server.h"

/* Times are in nanoseconds. */
struct handshakes {
	int64_t credit_ns;   /* below 0: more was taken than there was */
	uint64_t counted_ns; /* when the credit grew last */
	uint64_t typical_ns; /* what a turn is thought to cost, until it has ended */
	/* what the clients of each share (server_share) have had lately: halved once a second */
	uint64_t had_ns[OWNER_SHARES];
};

void handshakes_init(struct handshakes *h, uint64_t now);

/* Returns after how much time there is credit; 0: now. */
uint64_t handshakes_wait(struct handshakes *h, uint64_t now);

/* Begins a turn, and takes its typical cost, which is returned. */
uint64_t handshakes_begin(struct handshakes *h, size_t share);

/* Ends a turn. begun: what handshakes_begin has returned; took: what the turn has cost. */
void handshakes_end(struct handshakes *h, size_t share, uint64_t begun, uint64_t took);

/* To be called once a second. */
void handshakes_forget(struct handshakes *h);
