/*
 * Decides which peers may connect to a socket that listens: peers whose public key transfer_keys_allow (keys.h)
 * accepts. ZeroMQ asks about each new connection, by a message on a socket within the process. Source: RFC 27/ZAP.
 */
#pragma once

#include "base/log.h"
#include "daemon/transfer/keys.h"

struct authenticator {
	void *socket; /* NULL: not opened, so ZeroMQ accepts every peer */
	const struct transfer_keys *keys;
	struct log_limit said_unknown;
};

/* Opens the authenticator of all listening sockets of a ZeroMQ context. keys: borrowed. */
int authenticator_open(struct authenticator *a, void *context, const struct transfer_keys *keys,
		       struct err *e) MUST_CHECK;
void authenticator_close(struct authenticator *a);

/* Answers all questions that ZeroMQ has asked by now. */
void authenticator_run(struct authenticator *a);
