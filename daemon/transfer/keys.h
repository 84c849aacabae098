/*
 * The file of --transfer-key: this worker's CURVE key pair, and the peers that it accepts. Text, one entry a line:
 *
 *     public KEY                     this worker's public key: 40 characters (RFC 32/Z85)
 *     secret KEY                     its secret key
 *     allow KEY [tcp://HOST:PORT]    a peer's public key; with an address, the key of the peer that listens there
 *
 * Empty lines and lines that begin with # are ignored. Without any `allow` exactly the workers with the same key pair
 * accept each other, so one file may serve them all. The file holds a secret. If we own it, no one else may have access
 * to it. If another user owns it (a credential of systemd, a secret of Kubernetes), its group and the users of its ACL
 * may read it, but no one else. Source: RFC 26/CurveZMQ; zmq_curve(7).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/transfer/endpoint.h"

enum { TRANSFER_KEY_TEXT = 41 }; /* bytes, with the final 0 */

struct transfer_allowed {
	char key[TRANSFER_KEY_TEXT];
	char endpoint[TRANSFER_ENDPOINT_MAX]; /* "": none was given */
};

struct transfer_keys {
	char public_key[TRANSFER_KEY_TEXT], secret_key[TRANSFER_KEY_TEXT];
	struct transfer_allowed *allowed; /* [n_allowed] owned */
	size_t n_allowed;
};

/* Fills *ret from a file. -EINVAL: the file is wrong; the sentence names the line, if one line is at fault. -EPERM:
 * others may read or write the file. Another -errno: the file could not be read, or libzmq has no CURVE. */
int transfer_keys_open(const char *path, struct transfer_keys *ret, struct err *e) MUST_CHECK;
void transfer_keys_release(struct transfer_keys *k);

/* Writes a new key pair into a new file that only its owner can read, and the public key to `public_key`. -EEXIST: the
 * file exists already. Another -errno: the key pair could not be made or written. */
int transfer_keys_create(const char *path, char public_key[TRANSFER_KEY_TEXT],
			 struct err *e) MUST_CHECK;

/* Returns whether a peer with this public key may connect to this worker. */
bool transfer_keys_allow(const struct transfer_keys *k, const char *key);

/* Returns whether a peer that listens at this address may have this public key. */
bool transfer_keys_allow_at(const struct transfer_keys *k, const char *key, const char *endpoint);

/* Returns whether an `allow` has this address, spelt in the same way. */
bool transfer_keys_name(const struct transfer_keys *k, const char *endpoint);

/* Returns the public key that the peer at this address must have: the key of the `allow` with this address, else our
 * own. Borrowed. */
const char *transfer_keys_of(const struct transfer_keys *k, const char *endpoint);
