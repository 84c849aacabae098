/*
 * The file of --transfer-key: this worker's CURVE key pair and whom it talks to. Text, a line each:
 *
 *     public Z85                     this worker's keys, 40 characters each (RFC 32/Z85)
 *     secret Z85
 *     allow Z85 [tcp://HOST:PORT]    a peer; the address of one that is called, whose key is then no other's
 *
 * Empty lines and those that begin with # are left out. Workers may share one file that has no `allow`: then exactly those
 * with the same keys talk to each other. The file holds a secret, so nobody but its owner may read it; one that
 * belongs to somebody else (systemd's credentials, Kubernetes' secrets) may be given to us by its group or an ACL.
 * Source: RFC 26/CurveZMQ; zmq_curve(7).
 */
#ifndef DAEMON_TRANSFER_KEYS_H
#define DAEMON_TRANSFER_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/transfer/endpoint.h"

enum { TRANSFER_KEY_TEXT = 41 }; /* with the 0 behind it */

struct transfer_allowed {
	char key[TRANSFER_KEY_TEXT];
	char endpoint[TRANSFER_ENDPOINT_MAX]; /* "": not said */
};

struct transfer_keys {
	char public_key[TRANSFER_KEY_TEXT], secret_key[TRANSFER_KEY_TEXT];
	struct transfer_allowed *allowed; /* [n_allowed] owned */
	size_t n_allowed;
};

/* Fills *ret from a file. -EINVAL names the line; -EPERM: others may read it. */
int transfer_keys_open(const char *path, struct transfer_keys *ret, struct err *e) MUST_CHECK;
void transfer_keys_release(struct transfer_keys *k);

/* Writes a new pair into a new file, for its owner alone, and the public key to `public_key`. -EEXIST. */
int transfer_keys_create(const char *path, char public_key[TRANSFER_KEY_TEXT],
			 struct err *e) MUST_CHECK;

/* Whether a peer with this public key may talk to us. */
bool transfer_keys_allow(const struct transfer_keys *k, const char *key);

/* The same for one who listens at an address: no other key will do where an `allow` names it. */
bool transfer_keys_allow_at(const struct transfer_keys *k, const char *key, const char *endpoint);

/* Whether an `allow` names this address, by the same text. */
bool transfer_keys_name(const struct transfer_keys *k, const char *endpoint);

/* The key that who listens at this address has to have: that of its `allow`, else our own. Borrowed. */
const char *transfer_keys_of(const struct transfer_keys *k, const char *endpoint);

#endif
